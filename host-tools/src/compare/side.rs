//! The two sides of a comparison: the runtime on this machine, and a device. (A transcript is the third kind: [`super::transcript`].)

use crate::decode::{Cpu, Loaded};
use crate::device::Device;
use crate::error::{Error, Result};
use dmexp::probe::checksum;
use dmexp::{Sampler, Session};
use dmexp_format::{Error as FormatError, KvDType, crc32};

/// What a side says of itself and its model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct About {
    /// What it is called in words: `this machine`, `qemu:an386`.
    pub name: String,
    /// The firmware's and the board's name, of a device.
    pub firmware: Option<(String, String)>,
    /// The model's fingerprint.
    pub fingerprint: u32,
    /// Values of the residual stream.
    pub dim: u32,
    /// Layers.
    pub n_layers: u32,
    /// Tokens, and so logits.
    pub vocab_size: u32,
    /// Positions.
    pub context: u32,
    /// How keys and values are kept.
    pub kv: KvDType,
    /// Tensors whose checksums can be asked for.
    pub tensors: u32,
}

/// Something that plays tokens, one after the other, and shows what it computes.
pub trait Side {
    /// What it is.
    fn about(&self) -> &About;

    /// Begins a text.
    ///
    /// # Errors
    /// Those of the line to a device.
    fn begin(&mut self) -> Result<()>;

    /// Feeds `token` at the next position through its embedding and so many layers; the checksum of the residual stream. `None` of a side that does not know.
    ///
    /// # Errors
    /// Those of the line, and of the model for a token that it has not or a context that is full.
    fn layers(&mut self, token: u32, layers: u32) -> Result<Option<u32>>;

    /// The residual stream after [`Side::layers`]. `None` of a side that does not know.
    ///
    /// # Errors
    /// Those of the line.
    fn residual(&mut self) -> Result<Option<Vec<f32>>>;

    /// Feeds `token` at the next position, or the rest of it: the checksum of the logits; `None` where they are not finite, after which nothing more can be fed.
    ///
    /// # Errors
    /// Those of [`Side::layers`].
    fn step(&mut self, token: u32) -> Result<Option<u32>>;

    /// The logits after the last step.
    ///
    /// # Errors
    /// Those of the line.
    fn logits(&mut self) -> Result<Vec<f32>>;

    /// The checksum of the bytes of a tensor where they lie. `None` of a side that does not know.
    ///
    /// # Errors
    /// Those of the line.
    fn tensor(&mut self, number: u32) -> Result<Option<u32>>;

    /// Whether it can play any tokens, not only those that were recorded.
    fn is_free(&self) -> bool {
        true
    }
}

/// The runtime on this machine.
#[derive(Debug)]
pub struct Host<'a> {
    about: About,
    loaded: &'a Loaded,
    session: Session<'a>,
    logits: Vec<f32>,
}

impl<'a> Host<'a> {
    /// A session of the model of `loaded`, in the memory of `cpu`.
    ///
    /// # Errors
    /// Those of [`Cpu::session`].
    pub fn new(loaded: &'a Loaded, cpu: &'a mut Cpu<'_>) -> Result<Self> {
        let tensors = if loaded.file()?.index().is_some() { loaded.file()?.num_tensors() } else { 0 };
        Self::of(loaded, cpu, "this machine".to_owned(), tensors)
    }

    /// The same of a model that something else computes ([`Cpu::elsewhere`]), which is called `name`: where its weights lie cannot be looked at.
    ///
    /// # Errors
    /// Those of [`Cpu::session`].
    pub fn elsewhere(loaded: &'a Loaded, cpu: &'a mut Cpu<'_>, name: String) -> Result<Self> {
        Self::of(loaded, cpu, name, 0)
    }

    fn of(loaded: &'a Loaded, cpu: &'a mut Cpu<'_>, name: String, tensors: u32) -> Result<Self> {
        let model = cpu.model();
        let network = model.network();
        let about = About {
            name,
            firmware: None,
            fingerprint: loaded.file()?.fingerprint(),
            dim: network.dim(),
            n_layers: network.n_layers(),
            vocab_size: network.vocab_size(),
            context: model.context(),
            kv: model.kv(),
            tensors,
        };
        Ok(Self { about, loaded, session: cpu.session(Sampler::greedy())?, logits: Vec::new() })
    }

    /// Makes `token` the one of the session's position.
    fn place(&mut self, token: u32) -> Result<()> {
        if self.session.tokens().len() as u32 == self.session.position() {
            self.session.push_tokens(&[token])?;
        }
        Ok(())
    }
}

impl Side for Host<'_> {
    fn about(&self) -> &About {
        &self.about
    }

    fn begin(&mut self) -> Result<()> {
        self.session.reset();
        Ok(())
    }

    fn layers(&mut self, token: u32, layers: u32) -> Result<Option<u32>> {
        self.place(token)?;
        while self.session.layers_done().is_none_or(|done| done < layers) {
            self.session.advance()?;
        }
        Ok(Some(checksum(self.session.residual())))
    }

    fn residual(&mut self) -> Result<Option<Vec<f32>>> {
        Ok(Some(self.session.residual().to_vec()))
    }

    fn step(&mut self, token: u32) -> Result<Option<u32>> {
        self.place(token)?;
        match self.session.logits() {
            Ok(logits) => {
                self.logits = logits.to_vec();
                Ok(Some(checksum(logits)))
            }
            Err(FormatError::NonFiniteLogits { .. }) => Ok(None),
            Err(error) => Err(self.loaded.explain(error)),
        }
    }

    fn logits(&mut self) -> Result<Vec<f32>> {
        Ok(self.logits.clone())
    }

    fn tensor(&mut self, number: u32) -> Result<Option<u32>> {
        let view = self.loaded.file()?.tensor(number);
        Ok(view.map(|view| crc32::checksum(&[view.bytes()])))
    }
}

/// A device.
#[derive(Debug)]
pub struct Remote {
    about: About,
    device: Device,
}

impl Remote {
    /// A device that answers, and what it is called.
    ///
    /// # Errors
    /// [`Class::NotAModel`](crate::error::Class::NotAModel) where it keeps keys and values in a type that this version does not know.
    pub fn new(name: String, device: Device) -> Result<Self> {
        let (hello, facts) = (device.hello(), device.facts());
        let kv = facts.kv().ok_or_else(|| {
            Error::not_a_model(format!("{name} keeps keys and values in type {}, which this version does not know", facts.kv))
        })?;
        let about = About {
            name,
            firmware: Some((hello.firmware.clone(), hello.board.clone())),
            fingerprint: hello.fingerprint,
            dim: facts.dim,
            n_layers: facts.n_layers,
            vocab_size: facts.vocab_size,
            context: facts.context,
            kv,
            tensors: facts.tensors,
        };
        Ok(Self { about, device })
    }

    /// The device, for other questions.
    pub fn device(&mut self) -> &mut Device {
        &mut self.device
    }
}

impl Side for Remote {
    fn about(&self) -> &About {
        &self.about
    }

    fn begin(&mut self) -> Result<()> {
        self.device.begin()
    }

    fn layers(&mut self, token: u32, layers: u32) -> Result<Option<u32>> {
        self.device.layers(token, layers).map(Some)
    }

    fn residual(&mut self) -> Result<Option<Vec<f32>>> {
        self.device.residual().map(Some)
    }

    fn step(&mut self, token: u32) -> Result<Option<u32>> {
        Ok(self.device.step(token)?.map(|stepped| stepped.checksum))
    }

    fn logits(&mut self) -> Result<Vec<f32>> {
        self.device.logits()
    }

    fn tensor(&mut self, number: u32) -> Result<Option<u32>> {
        self.device.tensor(number).map(Some)
    }
}

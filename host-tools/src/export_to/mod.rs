//! A `.dmexp` becomes a model in another format: what that format can say is written bit for bit, and what it cannot say is refused by name. Called by `dmexp export to`.

mod llama2c_v0;
mod rustyml;
mod safetensors;
#[cfg(test)]
mod tests;

use crate::checkpoint::{Checkpoint, Config, LlamaSource, rope};
use crate::decode::{Loaded, verify};
use crate::error::{Class, Error, Result};
use dmexp_format::arch::Architecture;
use dmexp_format::tokenizer::TokenizerKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// A format to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Destination {
    /// A Hugging Face folder: `config.json` and `model.safetensors`.
    Safetensors,
    /// llama2.c's checkpoint of version 0: one file of f32.
    Llama2cV0,
    /// `RustyML`'s format 4, of `RustyML` 0.17.
    RustyMl,
    /// `RustyML`'s format 3, of `RustyML` 0.16.
    RustyMlV3,
}

impl Destination {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Safetensors, Self::Llama2cV0, Self::RustyMl, Self::RustyMlV3];

    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Safetensors => "safetensors",
            Self::Llama2cV0 => "llama2c-v0",
            Self::RustyMl => "rustyml",
            Self::RustyMlV3 => "rustyml-v3",
        }
    }

    /// The one with this name.
    ///
    /// # Errors
    /// [`Class::Request`], with all names.
    pub fn from_name(name: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|format| format.name() == name).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            Error::new(Class::Request, format!("the format {name:?} is not known")).advise(format!("the formats are {names}"))
        })
    }
}

/// What was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The file or folder.
    pub out: PathBuf,
    /// In which format.
    pub format: Destination,
    /// Bytes of all files.
    pub bytes: u64,
    /// How many tensors.
    pub tensors: u64,
    /// What a user should know, one sentence each.
    pub notes: Vec<String>,
}

/// Told how many elements of all are written, and asked whether to go on.
pub(crate) struct Watch<'w> {
    cancel: &'w AtomicBool,
    progress: &'w mut dyn FnMut(u64, u64),
    done: u64,
    total: u64,
}

impl Watch<'_> {
    fn add(&mut self, elements: u64) -> Result<()> {
        self.done += elements;
        (self.progress)(self.done, self.total);
        if self.cancel.load(Ordering::Relaxed) {
            return Err(Error::new(Class::Cancelled, "stopped: nothing was written"));
        }
        Ok(())
    }
}

/// Writes the `.dmexp` at `path` to `out` in another format. `cancel`, once set, stops it soon, with nothing written; `progress` is told the elements written and their number.
///
/// The file is verified first, so that damage is never passed on. The same file gives the same bytes wherever it lies.
///
/// # Errors
/// Those of opening and verifying the file; [`Class::Request`] for what the format cannot say, by name; [`Class::Unwritable`]; [`Class::Cancelled`].
pub fn run(path: &Path, format: Destination, out: &Path, cancel: &AtomicBool, progress: &mut dyn FnMut(u64, u64)) -> Result<Report> {
    let loaded = Loaded::open(path)?;
    let file = loaded.file()?;
    let rustyml = matches!(format, Destination::RustyMl | Destination::RustyMlV3);
    let wanted = if rustyml { Architecture::Sequential } else { Architecture::Llama };
    if file.architecture() != wanted {
        let what = format!("is of the architecture {:?}, which {} has no form for", file.architecture().name(), format.name());
        return Err(Error::new(Class::Request, what).in_file(path));
    }
    verify::after_export(&loaded)?;
    let facts = file.tokenizer_facts()?;
    let mut watch = Watch { cancel, progress, done: 0, total: file.num_params() };
    watch.add(0)?;
    let mut report = match format {
        Destination::Safetensors => safetensors::write(path, &facts, out, &mut watch)?,
        Destination::Llama2cV0 => llama2c_v0::write(path, out, &mut watch)?,
        Destination::RustyMl | Destination::RustyMlV3 => rustyml::write(&loaded, format, out, &mut watch)?,
    };
    if facts.kind != TokenizerKind::None {
        report.notes.push("the tokenizer is not written: use the one that the model was exported with".to_owned());
    }
    Ok(report)
}

fn source(checkpoint: &Checkpoint) -> Result<&LlamaSource> {
    match &checkpoint.config {
        Config::Llama(source) => Ok(source),
        Config::Dormouse(_) => Err(Error::new(Class::Request, "is a model of dormouse, not a Llama").in_file(checkpoint.path())),
        Config::Sequential(_) => Err(Error::new(Class::Request, "is a network of layers, not a Llama").in_file(checkpoint.path())),
    }
}

/// Refuses rotation frequencies that are not those of `theta` alone: a format that states a base and nothing else would say another model.
fn check_rotation(source: &LlamaSource, theta: f64, format: Destination) -> Result<()> {
    let LlamaSource { config, inv_freq, .. } = source;
    if rope::inv_freq(theta, config.head_dim) != *inv_freq {
        let what = if source.rope_scaling.is_empty() {
            format!("has rotation frequencies that are not those of the rope theta {theta}")
        } else {
            format!("has scaled rotation frequencies ({})", source.rope_scaling.keys().cloned().collect::<Vec<_>>().join(", "))
        };
        return Err(cannot(format, &what));
    }
    if config.attention_factor != 1.0 {
        return Err(cannot(format, &format!("has the attention factor {}", config.attention_factor)));
    }
    Ok(())
}

/// The error of a model that a format cannot say.
fn cannot(format: Destination, what: &str) -> Error {
    Error::new(Class::Request, format!("{what}, which {} cannot say", format.name())).advise("write another format")
}

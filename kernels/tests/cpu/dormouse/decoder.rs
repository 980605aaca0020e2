//! A dormouse model on a device: what a host with a driver does, without one.

use super::made::Made;
use crate::device::{Device, Outcome};
use dmexp::format::arch::dormouse::layout::Decoding;
use dmexp_kernels::dormouse::{Plan, Settings};
use dmexp_kernels::{Contents, Launch, Step};
use std::path::Path;

pub(crate) struct Decoder {
    device: Device,
    plan: Plan,
    addresses: Vec<u64>,
    step: Step,
    vocab: usize,
}

fn bytes_of(values: impl IntoIterator<Item = f32>) -> Vec<u8> {
    values.into_iter().flat_map(f32::to_le_bytes).collect()
}

impl Decoder {
    /// `made` with room for so many positions, on a device that is `program`, whose threads run in this order.
    pub(crate) fn new(program: &Path, order: u32, made: &Made, decoding: Decoding, context: u32) -> Outcome<Self> {
        let kda_scale = made.config.kda_scale.expect("a scale");
        let settings = Settings { kda_scale, exact: decoding != Decoding::Fast, context };
        let plan = Plan::new(made.config, settings, |role| made.view(role)).map_err(|refusal| refusal.to_string())?;
        let mut device = Device::start(program);
        device.order(order)?;
        let addresses = plan.pieces().iter().map(|piece| device.allocate(piece.bytes)).collect::<Outcome<Vec<u64>>>()?;
        for (piece, address) in plan.pieces().iter().zip(&addresses) {
            let view = |number: u32| made.view(made.config.role(number).expect("a tensor")).expect("a tensor that is read");
            let bytes = match piece.contents {
                Contents::Matrix(number) => {
                    let mut packed = vec![0; piece.bytes as usize];
                    plan.layout(number).expect("the layout of a matrix").write(&view(number), &mut packed);
                    packed
                }
                Contents::Vector(number) => {
                    let view = view(number);
                    bytes_of((0..view.rows() * view.cols()).map(|i| view.get_float(i)))
                }
                Contents::Padding => vec![0; piece.bytes as usize],
                Contents::Decays => bytes_of(made.decays()),
                Contents::Table => plan.table(&addresses),
                // What a kernel reads before one has written it stays as it was: no numbers.
                _ => Vec::new(),
            };
            device.write(*address, &bytes)?;
        }
        let step = plan.step(&addresses, 1);
        Ok(Self { device, plan, addresses, step, vocab: made.config.vocab as usize })
    }

    /// The fault that the kernels have from now on.
    pub(crate) fn fault(&mut self, fault: u32) -> Outcome<()> {
        self.device.fault(fault)
    }

    /// Ends the device; what went wrong on it is an error.
    pub(crate) fn end(self) -> Outcome<()> {
        self.device.end()
    }

    /// Begins anew with tokens of which `known` are given.
    pub(crate) fn begin(&mut self, tokens: &[u32], known: u32) -> Outcome<()> {
        self.write_words(self.plan.tokens(), tokens)?;
        self.set_state(0, known)
    }

    fn set_state(&mut self, position: u32, known: u32) -> Outcome<()> {
        self.write_words(self.plan.state(), &[position, known, 0, 0])
    }

    fn write_words(&mut self, piece: usize, words: &[u32]) -> Outcome<()> {
        self.device.write_words(self.addresses[piece], words)
    }

    pub(crate) fn words(&mut self, piece: usize, count: usize) -> Outcome<Vec<u32>> {
        self.device.words(self.addresses[piece], count)
    }

    pub(crate) const fn plan(&self) -> &Plan {
        &self.plan
    }

    fn launch<'l>(&mut self, launches: impl Iterator<Item = &'l Launch>) -> Outcome<Vec<u32>> {
        for launch in launches {
            self.device.launch(launch)?;
        }
        self.words(self.plan.logits(), self.vocab)
    }

    /// One step; the patterns of its logits.
    pub(crate) fn step(&mut self) -> Outcome<Vec<u32>> {
        let step = self.step.clone();
        self.launch(step.launches())
    }

    /// The patterns of the logits after `count` tokens at once, from position `first` on.
    pub(crate) fn at_once(&mut self, first: u32, count: u32) -> Outcome<Vec<u32>> {
        self.set_state(first, first + count)?;
        let step = self.plan.step(&self.addresses, count);
        self.launch(step.embed.iter().chain(step.layers.iter().flatten()).chain(&step.head))
    }
}

//! A model on a device: what a host with a driver does, without one.

use crate::device::{Device, Outcome};
use crate::models::{Made, Rng};
use dmexp::format::{KvDType, TensorView};
use dmexp::ops::convert::narrow_f16;
use dmexp::ops::rope::rotation;
use dmexp_kernels::{COLUMNS, Contents, Kernel, Launch, Plan, Step};
use std::path::Path;

pub(crate) struct Decoder {
    device: Device,
    plan: Plan,
    addresses: Vec<u64>,
    step: Step,
    kv: KvDType,
    vocab_size: usize,
}

/// A row of a block: its token, its position, its text.
pub(crate) type Row = (u32, u32, u32);

fn bytes_of(values: impl IntoIterator<Item = f32>) -> Vec<u8> {
    values.into_iter().flat_map(f32::to_le_bytes).collect()
}

impl Decoder {
    /// `made` with room for so many positions, on a device that is `program`, whose threads run in this order.
    pub(crate) fn new(program: &Path, order: u32, made: &Made, context: (u32, KvDType), shared_limit: u32) -> Outcome<Self> {
        Self::for_texts(1, program, order, made, context, shared_limit)
    }

    /// The same with room for so many texts.
    pub(crate) fn for_texts(
        texts: u32,
        program: &Path,
        order: u32,
        made: &Made,
        (context, kv): (u32, KvDType),
        shared_limit: u32,
    ) -> Outcome<Self> {
        let views = made.views();
        let plan = Plan::for_texts(texts, made.config, |number| views.get(number as usize).copied(), (context, kv), shared_limit)
            .map_err(|refusal| refusal.to_string())?;
        let mut device = Device::start(program);
        device.order(order)?;
        let (cos, sin) = rotations(made, context);
        let widened = |view: &TensorView<'_>| bytes_of((0..view.cols()).map(|i| view.get_float(i)));
        let mut addresses = Vec::new();
        for piece in plan.pieces() {
            let bytes = match piece.contents {
                Contents::Matrix(number) => {
                    let mut packed = vec![0; piece.bytes as usize];
                    plan.layout(number).expect("the layout of a matrix").write(&views[number as usize], &mut packed);
                    packed
                }
                Contents::Vector(number) => widened(&views[number as usize]),
                Contents::Vectors(numbers) => numbers.into_iter().flat_map(|number| widened(&views[number as usize])).collect(),
                Contents::Cos => bytes_of(cos.iter().copied()),
                Contents::Sin => bytes_of(sin.iter().copied()),
                // What a kernel reads before one has written it stays as it was: no numbers.
                _ => Vec::new(),
            };
            let address = device.allocate(piece.bytes)?;
            device.write(address, &bytes)?;
            addresses.push(address);
        }
        let step = plan.step(&addresses, 0);
        Ok(Self { device, plan, addresses, step, kv, vocab_size: made.config.vocab_size as usize })
    }

    /// The fault that the kernels have from now on.
    pub(crate) fn fault(&mut self, fault: u32) -> Outcome<()> {
        self.device.fault(fault)
    }

    /// Ends the device; what went wrong on it is an error.
    pub(crate) fn end(self) -> Outcome<()> {
        self.device.end()
    }

    /// Begins anew with tokens of which all are given.
    pub(crate) fn begin(&mut self, tokens: &[u32]) -> Outcome<()> {
        self.begin_with(tokens, tokens.len() as u32)
    }

    /// Begins anew with tokens of which `known` are given.
    pub(crate) fn begin_with(&mut self, tokens: &[u32], known: u32) -> Outcome<()> {
        self.write_words(self.plan.tokens(), tokens)?;
        self.set_state(0, known)
    }

    fn set_state(&mut self, position: u32, known: u32) -> Outcome<()> {
        self.write_words(self.plan.state(), &[position, known, 0, 0])
    }

    /// Any keys and values at all positions.
    pub(crate) fn fill_cache(&mut self, seed: u64) -> Outcome<()> {
        let mut rng = Rng::new(seed);
        let count = self.plan.pieces()[self.plan.cache()].bytes / self.kv.size();
        let bytes = match self.kv {
            KvDType::F32 => bytes_of((0..count).map(|_| rng.float())),
            KvDType::F16 => (0..count).flat_map(|_| narrow_f16(rng.float()).to_le_bytes()).collect(),
            _ => (0..count).map(|_| ((rng.next() % 255) as u8).wrapping_sub(127)).collect(),
        };
        self.device.write(self.addresses[self.plan.cache()], &bytes)?;
        let Some(piece) = self.plan.cache_scales() else { return Ok(()) };
        let count = self.plan.pieces()[piece].bytes / 2;
        let bytes: Vec<u8> = (0..count).flat_map(|_| narrow_f16(0.01 + 0.005 * rng.float()).to_le_bytes()).collect();
        self.device.write(self.addresses[piece], &bytes)
    }

    /// A step of `token` at `position` in `text`, whose attention is launched for `reach` positions; the patterns of its logits.
    pub(crate) fn step_at(&mut self, (token, position, text): Row, reach: u32) -> Outcome<Vec<u32>> {
        self.device.write(self.addresses[self.plan.tokens()] + 4 * u64::from(position), &token.to_le_bytes())?;
        self.write_words(self.plan.state(), &[position, position + 1, 0, text])?;
        let launches: Vec<_> = self.plan.step(&self.addresses, reach).launches().cloned().collect();
        self.launch(&launches)?;
        self.words(self.plan.logits(), self.vocab_size)
    }

    /// Feeds rows together; the patterns of the logits after each.
    pub(crate) fn rows(&mut self, rows: &[Row], reach: u32) -> Outcome<Vec<Vec<u32>>> {
        self.feed_rows(rows, reach)?;
        let count = rows.len() as u32;
        self.launch(&self.plan.block_logits(&self.addresses, 0, count))?;
        let logits = self.words(self.plan.logits(), self.vocab_size * rows.len())?;
        // A block's last column by itself is what generating goes on from.
        self.launch(&self.plan.block_logits(&self.addresses, count - 1, 1))?;
        assert_eq!(self.words(self.plan.logits(), self.vocab_size)?, logits[logits.len() - self.vocab_size..]);
        Ok(logits.chunks(self.vocab_size).map(<[u32]>::to_vec).collect())
    }

    /// Feeds rows together.
    fn feed_rows(&mut self, rows: &[Row], reach: u32) -> Outcome<()> {
        self.place_rows(rows)?;
        self.launch(&self.plan.block(&self.addresses, rows.len() as u32, reach))
    }

    /// Feeds rows of a model with one layer, whose keys and values do not depend on attention, without it.
    pub(crate) fn store_rows(&mut self, rows: &[Row]) -> Outcome<()> {
        self.place_rows(rows)?;
        let launches = self.plan.block(&self.addresses, rows.len() as u32, 0);
        self.launch(&launches.into_iter().filter(|launch| launch.kernel != Kernel::Attend).collect::<Vec<_>>())
    }

    fn place_rows(&mut self, rows: &[Row]) -> Outcome<()> {
        let words: Vec<u32> = rows.iter().flat_map(|(token, position, text)| [*token, *position, *text, 0]).collect();
        self.write_words(self.plan.rows(), &words)
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

    fn launch(&mut self, launches: &[Launch]) -> Outcome<()> {
        launches.iter().try_for_each(|launch| self.device.launch(launch))
    }

    /// One step; the patterns of its logits.
    pub(crate) fn step(&mut self) -> Outcome<Vec<u32>> {
        let launches: Vec<_> = self.step.launches().cloned().collect();
        self.launch(&launches)?;
        self.words(self.plan.logits(), self.vocab_size)
    }

    /// The patterns of the logits after each token, fed in blocks of `count`.
    pub(crate) fn blocks(&mut self, tokens: &[u32], count: u32) -> Outcome<Vec<Vec<u32>>> {
        let rows: Vec<Row> = tokens.iter().zip(0..).map(|(token, position)| (*token, position, 0)).collect();
        let mut all = Vec::new();
        for rows in rows.chunks(count.min(COLUMNS) as usize) {
            all.extend(self.rows(rows, 0)?);
        }
        Ok(all)
    }
}

/// Cosines and sines of all positions, as the runtime makes them.
fn rotations(made: &Made, context: u32) -> (Vec<f32>, Vec<f32>) {
    let frequencies = made.frequencies();
    let half = frequencies.len();
    let (mut cos, mut sin) = (vec![0.0; half * context as usize], vec![0.0; half * context as usize]);
    for ((cos, sin), position) in cos.chunks_mut(half).zip(sin.chunks_mut(half)).zip(0..) {
        rotation(cos, sin, &frequencies, position, made.config.attention_factor);
    }
    (cos, sin)
}

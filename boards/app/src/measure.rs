//! What is measured and compared: steps, logits, and single kernels. Called by the application where its feature `measure` is on; firmware of users has no need of it.

use crate::Board;
use crate::attend::sum8;
use crate::command::{Words, kv};
use crate::floats::digest;
use crate::text::Text;
use dmexp::format::layout::activation_words;
use dmexp::format::{DType, Dims, Error, KvDType, Planes, TensorView};
use dmexp::ops::activation::Activation;
use dmexp::ops::matvec::matvec;
use dmexp::{Session, Step};

/// What is to be done with a session.
#[derive(Clone, Copy)]
pub(crate) enum Steps {
    /// The logits of so many positions.
    Logits(u32),
    /// So many steps, counted.
    Bench(u32),
}

impl Steps {
    /// The task that `word` and the words after it name, and how keys and values are to be kept for it.
    pub(crate) fn parse(word: &[u8], words: &mut Words<'_>) -> Option<(Self, KvDType)> {
        let task = match word {
            b"logits" => Self::Logits,
            b"bench" => Self::Bench,
            _ => return None,
        };
        let kv = kv(words.next())?;
        Some((task(words.number().unwrap_or(1)), kv))
    }

    /// How many positions it takes.
    pub(crate) fn positions(self) -> u32 {
        let (Self::Logits(count) | Self::Bench(count)) = self;
        count
    }
}

/// Made-up numbers, the same on every run.
pub(crate) struct Numbers(u32);

impl Numbers {
    pub(crate) fn new() -> Self {
        Self(1)
    }

    /// The next 16 bits.
    fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        self.0 >> 16
    }

    /// Numbers of both signs, below 32,768 times `scale`.
    pub(crate) fn fill(&mut self, values: &mut [f32], scale: f32) {
        for value in values {
            *value = self.next() as i16 as f32 * scale;
        }
    }
}

/// Begins a text with the begin-of-text token (or token 0) and either measures steps or writes logits.
pub(crate) fn steps<B: Board>(board: &mut B, session: &mut Session<'_>, task: Steps) -> Result<(), Error> {
    begin(session)?;
    match task {
        Steps::Bench(count) => bench(board, session, count),
        Steps::Logits(count) => logits(board, session, count),
    }
}

#[inline(never)]
fn begin(session: &mut Session<'_>) -> Result<(), Error> {
    let bos = session.model().tokenizer().facts().bos;
    let first = if bos < session.model().network().vocab_size() { bos } else { 0 };
    session.push_tokens(&[first])
}

/// Writes the logits of `count` positions of the greedy text.
#[inline(never)]
fn logits<B: Board>(board: &mut B, session: &mut Session<'_>, count: u32) -> Result<(), Error> {
    for _ in 0..count {
        let logits = session.logits()?;
        let mut text = Text::new(board.output());
        for logit in logits {
            text.bytes(&logit.to_le_bytes());
        }
        text.finish()?;
        let best = dmexp::sampler::argmax(logits).map_or(0, |(token, _)| token);
        if session.position() < session.model().context() {
            session.push_tokens(&[best])?;
        }
    }
    Ok(())
}

/// Makes `count` steps, each a counted region of its own.
#[inline(never)]
fn bench<B: Board>(board: &mut B, session: &mut Session<'_>, count: u32) -> Result<(), Error> {
    for _ in 0..count {
        board.count_begin();
        let step = session.step();
        board.count_end();
        if let Step::Stop(_) = step? {
            break;
        }
    }
    let peak = board.stack_peak();
    let mut text = Text::new(board.output());
    text.figure("regions", session.position());
    text.figure("stack_peak_bytes", peak as u32);
    text.finish()
}

/// Writes a number for the results of float arithmetic.
#[inline(never)]
pub(crate) fn floats<B: Board>(board: &mut B, count: u32) -> Result<(), Error> {
    let mut text = Text::new(board.output());
    text.figure("floats", digest(count));
    text.finish()
}

/// One product of a made-up matrix and a vector.
#[derive(Clone, Copy)]
pub(crate) struct Kernel {
    dtype: DType,
    rows: u32,
    cols: u32,
    /// Elements of a row to a multiplier.
    group: u32,
    /// Bytes past an aligned address.
    shift: u32,
}

impl Kernel {
    /// The product that the words after `kernel` name: a type, rows, columns, the length of groups, and bytes past an aligned address.
    pub(crate) fn parse(words: &mut Words<'_>) -> Option<Self> {
        let dtype = DType::from_name(words.next())?;
        Some(Self { dtype, rows: words.number()?, cols: words.number()?, group: words.number()?, shift: words.number()? })
    }
}

/// Multiplies a made-up matrix by a vector, which is a counted region, and compares each result with the definition. `None` where no such matrix is possible or `memory` does not suffice.
#[inline(never)]
pub(crate) fn kernel<B: Board>(board: &mut B, kernel: Kernel, memory: &mut [u32]) -> Option<Result<(), Error>> {
    let Kernel { dtype, rows, cols, group, shift } = kernel;
    let dims = Dims::matrix(rows, cols);
    let planes = Planes::new(0, dtype, dims, group).ok()?;
    let (weights, rest) = memory.split_at_mut_checked((planes.bytes as usize).div_ceil(4).checked_add(4)?)?;
    let (x, rest) = bytemuck::cast_slice_mut::<u32, f32>(rest).split_at_mut_checked(cols as usize)?;
    let (out, rest) = rest.split_at_mut_checked(rows as usize)?;
    let scratch = rest.get_mut(..activation_words(cols) as usize)?;
    let weights = bytemuck::cast_slice_mut::<u32, u8>(weights).get_mut(shift as usize..)?.get_mut(..planes.bytes as usize)?;
    fill(weights, x, dtype, &planes);
    let w = TensorView::grouped(0, dtype, dims, group, weights).ok()?;
    let mut activation = Activation::new(x, scratch);
    // Once for the activation's codes, then counted.
    matvec(out, &w, &mut activation, None);
    out.fill(0.0);
    board.count_begin();
    matvec(out, &w, &mut activation, None);
    board.count_end();
    let wrong = out.iter().enumerate().filter(|(row, y)| y.to_bits() != exact(&w, x, *row).to_bits()).count();
    let mut text = Text::new(board.output());
    text.figure("wrong", wrong as u32);
    Some(text.finish())
}

/// Numbers for the planes of a matrix and for a vector.
fn fill(weights: &mut [u8], x: &mut [f32], dtype: DType, planes: &Planes) {
    let mut numbers = Numbers::new();
    let size = if dtype.is_quantised() { 1 } else { dtype.size() as usize };
    for element in weights.chunks_exact_mut(size) {
        for byte in &mut *element {
            *byte = numbers.next() as u8;
        }
        // Floats between 1/2 and 2 of both signs.
        if let (Some(top), false) = (element.last_mut(), dtype.is_quantised()) {
            *top = if dtype == DType::F16 { *top & 0x83 | 0x38 } else { *top & 0x80 | 0x3f };
        }
    }
    for (i, byte) in weights.iter_mut().enumerate().filter(|_| dtype.is_quantised()) {
        let i = i as u64;
        // Scales are small positive numbers, multipliers and codes what they may be.
        let scale = i >= planes.scales && i < planes.multipliers;
        *byte = match (i & 3, scale, *byte) {
            (3, true, _) => 0x38,
            (_, _, 0 | 0x80) => 1,
            (.., code) => code,
        };
    }
    numbers.fill(x, 0.000_1);
}

/// A row's result by the definition.
fn exact(w: &TensorView<'_>, x: &[f32], row: usize) -> f32 {
    if !w.dtype().is_quantised() {
        let start = row.wrapping_mul(w.cols());
        return sum8(x.iter().enumerate().map(|(column, x)| w.get_f32(start.wrapping_add(column)) * *x), 0);
    }
    let largest = x.iter().fold(0.0f32, |largest, x| largest.max(x.abs()));
    let inverse = 32_767.0 / largest;
    let mut sum = 0i64;
    for (column, x) in x.iter().enumerate() {
        let code = (*x * inverse + 12_582_912.0) - 12_582_912.0;
        sum = sum.wrapping_add(i64::from(w.integer(row, column)).wrapping_mul(code as i64));
    }
    sum as f32 * (w.row_scale(row) * (largest / 32_767.0))
}

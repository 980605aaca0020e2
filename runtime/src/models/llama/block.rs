//! Several positions of one text or of several at once, on hosts: each matrix is read once for all of them. Every position gets the bits that the steps of [`super`] give it.
//!
//! It is the step again, with a row for each position where the step has a vector. Keys and values of all rows are stored before the first of them attends, and each attends to those of its own text up to
//! its own.

use super::{Llama, State, split};
use crate::arena::Carve;
use crate::format::arch::llama::{LlamaConfig, TensorKind};
use crate::format::layout::activation_words;
use crate::format::{Error, TensorView};
use crate::ops::activation::Activation;
use crate::ops::attention::Heads;
use crate::ops::check::all_finite;
use crate::ops::crew::{Attended, MOST, Scratch};
use crate::ops::ffn::{add, gate};
use crate::ops::kv::KvCache;
use crate::ops::matvec::{add_vector, widen_row};
use crate::ops::rope::{rotate, rotation};
use core::array::from_fn;

/// Positions of one text whose logits are computed at once.
pub(crate) const LOGITS: usize = 8;

/// How much memory a session has beside that of steps, in words: sizes of the parts of [`Block`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockLayout {
    positions: usize,
    rotation: usize,
    x: usize,
    xb: usize,
    shared: usize,
    codes: usize,
    planes: usize,
    logits: usize,
    slots: usize,
    words: usize,
}

impl BlockLayout {
    /// For `positions` at once (or as many as there may be) of a context of `context`, the logits of `logits` of them at once, and so many [`slots`](crate::ops::crew::Crew::slots) of scratch.
    ///
    /// # Errors
    /// [`Error::TooLargeForTarget`].
    pub(crate) fn new(config: &LlamaConfig, context: u32, (positions, logits): (u32, usize), slots: usize) -> Result<Self, Error> {
        let positions = (positions as usize).min(MOST);
        let (dim, q_dim, kv_dim, hidden) = (config.dim as u64, config.q_dim(), config.kv_dim(), config.hidden_dim as u64);
        let many = positions as u64;
        let widest = dim.max(q_dim).max(hidden) as u32;
        let head_dim = config.head_dim as u64;
        let parts = [
            many * head_dim,
            many * dim,
            many * dim.max(q_dim),
            many * (q_dim + 2 * kv_dim).max(dim).max(2 * hidden),
            many * u64::from(activation_words(widest)),
            many * u64::from(widest.next_multiple_of(32)),
            if many == 0 { 0 } else { logits.clamp(1, MOST) as u64 * u64::from(config.vocab_size) },
            slots as u64 * (u64::from(context) + 8 * head_dim).max(if many == 0 { 0 } else { 24 * u64::from(widest.next_multiple_of(4)) }),
        ];
        let words = parts.into_iter().fold(0u64, u64::saturating_add);
        let addressable = (isize::MAX as u64) / size_of::<u32>() as u64;
        if words > addressable {
            return Err(Error::TooLargeForTarget { needed: words, addressable });
        }
        let [rotation, x, xb, shared, codes, planes, logits, slots] = parts.map(|part| part as usize);
        Ok(Self { positions, rotation, x, xb, shared, codes, planes, logits, slots, words: words as usize })
    }

    /// All of it, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.words.saturating_mul(size_of::<u32>())
    }
}

/// The rows of several positions.
#[derive(Debug)]
pub(crate) struct Block<'m> {
    positions: usize,
    cos: &'m mut [f32],
    sin: &'m mut [f32],
    x: &'m mut [f32],
    xb: &'m mut [f32],
    /// What is never needed at the same time: queries, keys and values; projections; gate and up.
    shared: &'m mut [f32],
    codes: &'m mut [f32],
    logits: &'m mut [f32],
    /// What the threads need.
    scratch: Scratch<'m>,
}

impl<'m> Block<'m> {
    /// Carves what `layout` says off the front of `rest`.
    pub(crate) fn new(layout: &BlockLayout, rest: &mut Carve<'m>) -> Self {
        Self {
            positions: layout.positions,
            cos: rest.floats(layout.rotation / 2),
            sin: rest.floats(layout.rotation / 2),
            x: rest.floats(layout.x),
            xb: rest.floats(layout.xb),
            shared: rest.floats(layout.shared),
            codes: rest.floats(layout.codes),
            logits: rest.floats(layout.logits),
            scratch: Scratch { planes: rest.floats(layout.planes), slots: rest.floats(layout.slots) },
        }
    }

    /// Memory for each thread.
    pub(crate) fn slots(&mut self) -> &mut [f32] {
        self.scratch.slots
    }

    /// The most positions at once.
    pub(crate) fn positions(&self) -> u32 {
        self.positions as u32
    }

    /// Puts the residual stream of `row`, of `dim` values, in the place of an earlier row's.
    pub(crate) fn move_row(&mut self, row: usize, to: usize, dim: usize) {
        let (earlier, rest) = split(self.x, row.saturating_mul(dim));
        if let Some(to) = earlier.chunks_exact_mut(dim.max(1)).nth(to) {
            for (to, from) in to.iter_mut().zip(rest) {
                *to = *from;
            }
        }
    }
}

/// Inputs of matrices, one a position.
type Inputs<'a> = [Activation<'a>; MOST];

/// The rows of `x`, `width` wide, as inputs of matrices, with `scratch` for their integers.
fn inputs<'a>(x: &'a [f32], width: usize, scratch: &'a mut [f32]) -> Inputs<'a> {
    let mut rows = x.chunks_exact(width.max(1));
    let mut scratch = scratch.chunks_exact_mut((activation_words(width as u32) as usize).max(1));
    from_fn(|_| Activation::new(rows.next().unwrap_or(&[]), scratch.next().unwrap_or_default()))
}

/// Positions of one text that follow each other.
#[derive(Debug)]
pub(crate) struct Run<'s, 'm> {
    kv: &'s mut KvCache<'m>,
    inv_freq: &'s [f32],
    /// The tokens at them.
    tokens: &'s [u32],
    /// The first of them.
    position: u32,
}

impl<'m> State<'m> {
    /// The `count` positions from `position` on, whose tokens are known and for which the context has room.
    pub(crate) fn run(&mut self, position: u32, count: u32) -> Run<'_, 'm> {
        let tokens = self.tokens.get(position as usize..).and_then(|rest| rest.get(..count as usize)).unwrap_or(&[]);
        Run { kv: &mut self.kv, inv_freq: self.inv_freq, tokens, position }
    }
}

/// What row `row` of all `runs` attends to in `layer`: the positions of its own text up to its own, `window` of them at most, if that is not 0.
fn attended_by<'r>(runs: &'r [Option<Run<'_, '_>>], row: usize, layer: usize, window: usize) -> Option<Attended<'r>> {
    let mut row = row;
    for run in runs.iter().flatten() {
        if let Some(later) = row.checked_sub(run.tokens.len()) {
            row = later;
            continue;
        }
        let last = (run.position as usize).saturating_add(row);
        let first = if window == 0 { 0 } else { last.saturating_add(1).saturating_sub(window) };
        return Some(Attended { keys: run.kv.keys(layer), values: run.kv.values(layer), positions: (first, last) });
    }
    None
}

impl Llama<'_> {
    /// Feeds the `count` known tokens from `position` on, all layers of them; the residual stream of the last is where a step leaves it. As many as [`Block::positions`] at most; the caller has checked
    /// that they are known and that the context has room for them.
    pub(crate) fn feed_block(&self, state: &mut State<'_>, position: u32, count: u32) {
        let Some(mut block) = state.block.take() else { return };
        self.feed_runs(&mut block, &mut [Some(state.run(position, count))]);
        if let Some(last) = block.x.chunks_exact(self.config().dim as usize).nth((count as usize).wrapping_sub(1)) {
            for (to, from) in state.x.iter_mut().zip(last) {
                *to = *from;
            }
        }
        state.block = Some(block);
    }

    /// Feeds all positions of all `runs`, [`Block::positions`] together at most, each of another text; returns how many. A row of `block` after the other has their residual streams.
    pub(crate) fn feed_runs(&self, block: &mut Block<'_>, runs: &mut [Option<Run<'_, '_>>]) -> usize {
        let config = self.config();
        let (dim, half) = (config.dim as usize, config.head_dim as usize / 2);
        let embeddings = *self.tensor(TensorKind::TokEmbeddings, 0, &mut None);
        let positions = runs.iter().flatten().flat_map(|run| run.tokens.iter().zip(run.position..).map(|place| (place, run.inv_freq)));
        let rows = block.x.chunks_exact_mut(dim).zip(block.cos.chunks_exact_mut(half)).zip(block.sin.chunks_exact_mut(half));
        let mut count = 0usize;
        for (((x, cos), sin), ((token, position), inv_freq)) in rows.zip(positions) {
            widen_row(x, &embeddings, *token as usize);
            rotation(cos, sin, inv_freq, position, config.attention_factor);
            count = count.wrapping_add(1);
        }
        for layer in 0..config.n_layers {
            self.attend_block(block, runs, layer, count);
            self.feed_forward_block(block, layer, count);
        }
        count
    }

    fn attend_block(&self, block: &mut Block<'_>, runs: &mut [Option<Run<'_, '_>>], layer: u32, count: usize) {
        let config = self.config();
        let (dim, q_dim, kv_dim) = (config.dim as usize, config.q_dim() as usize, config.kv_dim() as usize);
        let heads = Heads { n_heads: config.n_heads as usize, n_kv_heads: config.n_kv_heads as usize, head_dim: config.head_dim as usize };
        let (normed, _) = split(block.xb, dim.wrapping_mul(count));
        self.norm_block(normed, TensorKind::AttentionNorm, layer, block.x);
        let (queries, rest) = split(block.shared, q_dim.wrapping_mul(count));
        let (keys, rest) = split(rest, kv_dim.wrapping_mul(count));
        let (values, _) = split(rest, kv_dim.wrapping_mul(count));
        let mut input = inputs(normed, dim, block.codes);
        self.project_block(queries, TensorKind::Wq, layer, &mut input, count, &mut block.scratch);
        self.project_block(keys, TensorKind::Wk, layer, &mut input, count, &mut block.scratch);
        self.project_block(values, TensorKind::Wv, layer, &mut input, count, &mut block.scratch);
        let half = heads.head_dim / 2;
        let rotations = block.cos.chunks_exact(half.max(1)).zip(block.sin.chunks_exact(half.max(1)));
        let rows = queries.chunks_exact_mut(q_dim).zip(keys.chunks_exact_mut(kv_dim)).zip(values.chunks_exact_mut(kv_dim));
        let mut rows = rows.zip(rotations);
        for run in runs.iter_mut().flatten() {
            for ((((q, k), v), (cos, sin)), position) in rows.by_ref().take(run.tokens.len()).zip(run.position as usize..) {
                if config.qkv_bias {
                    add_vector(q, self.tensor(TensorKind::Bq, layer, &mut None));
                    add_vector(k, self.tensor(TensorKind::Bk, layer, &mut None));
                    add_vector(v, self.tensor(TensorKind::Bv, layer, &mut None));
                }
                rotate(q, heads.head_dim, cos, sin, config.rope_layout);
                rotate(k, heads.head_dim, cos, sin, config.rope_layout);
                run.kv.store(layer as usize, position, k, v);
            }
        }
        let (attended, _) = split(block.xb, q_dim.wrapping_mul(count));
        let (runs, window) = (&*runs, config.sliding_window as usize);
        self.crew.attention_rows(attended, queries, heads, &|row| attended_by(runs, row, layer as usize, window), block.scratch.slots);
        let (projected, _) = split(block.shared, dim.wrapping_mul(count));
        self.project_block(projected, TensorKind::Wo, layer, &mut inputs(attended, q_dim, block.codes), count, &mut block.scratch);
        add(block.x, projected);
    }

    fn feed_forward_block(&self, block: &mut Block<'_>, layer: u32, count: usize) {
        let config = self.config();
        let (dim, hidden_dim) = (config.dim as usize, config.hidden_dim as usize);
        let (normed, _) = split(block.xb, dim.wrapping_mul(count));
        self.norm_block(normed, TensorKind::FfnNorm, layer, block.x);
        let (hidden, rest) = split(block.shared, hidden_dim.wrapping_mul(count));
        let (up, _) = split(rest, hidden_dim.wrapping_mul(count));
        let mut input = inputs(normed, dim, block.codes);
        self.project_block(hidden, TensorKind::W1, layer, &mut input, count, &mut block.scratch);
        self.project_block(up, TensorKind::W3, layer, &mut input, count, &mut block.scratch);
        gate(hidden, up);
        let (down, _) = split(block.xb, dim.wrapping_mul(count));
        self.project_block(down, TensorKind::W2, layer, &mut inputs(hidden, hidden_dim, block.codes), count, &mut block.scratch);
        add(block.x, down);
    }

    /// The logits after each of the `count` positions that [`Llama::feed_block`] fed from `position` on, given to `each` with their position.
    ///
    /// # Errors
    /// [`Error::NonFiniteLogits`]; those of `each`.
    pub(crate) fn logits_block<E: From<Error>>(
        &self,
        state: &mut State<'_>,
        (position, count): (u32, u32),
        each: &mut impl FnMut(u32, &[f32]) -> Result<(), E>,
    ) -> Result<(), E> {
        let Some(block) = &mut state.block else { return Ok(()) };
        let mut position = position;
        let width = (self.config().vocab_size as usize).max(1);
        self.logits_rows(block, count as usize, &mut |rows| {
            rows.chunks_exact(width).try_for_each(|logits| {
                if !all_finite(logits) {
                    return Err(Error::NonFiniteLogits { position }.into());
                }
                each(position, logits)?;
                position = position.wrapping_add(1);
                Ok(())
            })
        })
    }

    /// The logits of the first `count` rows of `block`, whether they are finite or not: as many at once as there is room for, one after the other.
    ///
    /// # Errors
    /// Those of `each`.
    pub(crate) fn logits_rows<E>(
        &self,
        block: &mut Block<'_>,
        count: usize,
        each: &mut impl FnMut(&mut [f32]) -> Result<(), E>,
    ) -> Result<(), E> {
        let config = self.config();
        let (dim, vocab_size) = (config.dim as usize, (config.vocab_size as usize).max(1));
        let classifier = if config.tied_embeddings { TensorKind::TokEmbeddings } else { TensorKind::Output };
        let at_once = block.logits.len() / vocab_size;
        let (used, _) = split(block.x, dim.wrapping_mul(count));
        for x in used.chunks(dim.saturating_mul(at_once).max(1)) {
            let count = x.len() / dim.max(1);
            let (normed, _) = split(block.xb, x.len());
            self.norm_block(normed, TensorKind::Norm, 0, x);
            let (logits, _) = split(block.logits, vocab_size.wrapping_mul(count));
            self.project_block(logits, classifier, 0, &mut inputs(normed, dim, block.codes), count, &mut block.scratch);
            each(logits)?;
        }
        Ok(())
    }

    /// Each row of `out` = the product of this matrix and an input.
    fn project_block(&self, out: &mut [f32], kind: TensorKind, layer: u32, x: &mut Inputs<'_>, count: usize, scratch: &mut Scratch<'_>) {
        let w: TensorView<'_> = *self.tensor(kind, layer, &mut None);
        self.crew.matmul(out, &w, x.get_mut(..count).unwrap_or_default(), scratch);
    }

    /// Each row of `out` = a row of `x` normed with this gain.
    fn norm_block(&self, out: &mut [f32], kind: TensorKind, layer: u32, x: &[f32]) {
        let dim = (self.config().dim as usize).max(1);
        for (out, x) in out.chunks_exact_mut(dim).zip(x.chunks_exact(dim)) {
            self.norm(out, kind, layer, x);
        }
    }
}

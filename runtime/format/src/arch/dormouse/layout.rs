//! How much memory a session of a dormouse model needs, part by part.

use super::tensors::Layer;
use super::{Attention, DormouseConfig, Residual, padded};
use crate::Error;
use crate::layout::activation_words;

/// How a session of a model with a recurrence treats the positions before the last: the recurrence of an iteration starts where that of the iteration before ended, so every new byte changes
/// them all, by less and less. Models without one are computed in one way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Decoding {
    /// Old positions are computed again until nothing changes any more: the bits of [`Decoding::Full`], in a fraction of the time, in more memory.
    #[default]
    Exact,
    /// Everything is computed again for every byte, as dormouse does it. Gives the logits of every position of the window, too.
    Full,
    /// Old positions are never computed again: other bits (see docs/dormouse.md for how far they are off), the least time and memory.
    Fast,
}

impl Decoding {
    /// The name on command lines.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Full => "full",
            Self::Fast => "fast",
        }
    }
}

/// The positions from the beginning on whose states are all kept.
const DENSE: u32 = 32;

/// Sizes of the parts of a dormouse arena, in words of 32 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DormouseLayout {
    /// Where each tensor is: one word a tensor that the configuration calls for.
    pub places: usize,
    /// The mean magnitude of each ternary factor, by the tensor's number.
    pub means: usize,
    /// The factor of the decay: `n_heads`.
    pub decay: usize,
    /// Rotation frequencies, cosines and sines of plain attention: `head_dim` / 2 of each.
    pub rotation: usize,
    /// The stream of the position at hand.
    pub stream: usize,
    /// The streams before iterations 1, 2, .. of every position (exact), or before the iteration at hand (full).
    pub streams: usize,
    /// The running state of the recurrence: `n_heads` * `head_dim` * `head_dim`.
    pub state: usize,
    /// The state behind the last position, an iteration.
    pub ends: usize,
    /// The states behind the positions of [`saved_place`], an iteration after the first (exact).
    pub saved: usize,
    /// Keys and values of plain attention: iteration x (keys, values) x position x `d_model`.
    pub kv: usize,
    /// What every iteration gives to the mean, then the iterations' scores: of the last position, or of all (full).
    pub outs: usize,
    /// `d_model` numbers six times: the stream's reading, the same with the iteration's embedding, the byte's embedding, the normed reading, the same rounded, and the result.
    pub vectors: usize,
    /// The controller's results.
    pub raw: usize,
    /// What one arm of the block needs at a time.
    pub arm: usize,
    /// Lane sums of products with matrices that have their inputs first, and with the state.
    pub lanes: usize,
    /// The input of a matrix as integers.
    pub activation: usize,
    /// Logits, then the sampler's order of them: 2 `vocab`.
    pub logits: usize,
    /// The tokens of the context so far, one a position, then room for as many of a prompt.
    pub tokens: usize,
    /// All parts together, in bytes.
    pub total_bytes: usize,
}

/// Columns whose sums are kept at a time.
pub const COLUMN_BLOCK: u32 = 256;

impl DormouseLayout {
    /// The layout for `context` positions.
    ///
    /// # Errors
    /// [`Error::Config`] if the configuration is not valid, [`Error::Context`] if `context` is 0 or more than `max_seq_len`, [`Error::TooLargeForTarget`] if the sizes do not fit this target.
    pub const fn new(config: &DormouseConfig, context: u32, decoding: Decoding) -> Result<Self, Error> {
        if let Err(error) = config.validate() {
            return Err(error);
        }
        if context == 0 || context > config.max_seq_len {
            return Err(Error::Context { found: context as u64, allowed: config.max_seq_len as u64 });
        }
        let (d, width, loops, positions) = (config.d_model as u64, config.width(), config.max_iter as u64, context as u64);
        let half = config.head_dim as u64 / 2;
        let (exact, full) =
            if config.is_causal() { (false, false) } else { (matches!(decoding, Decoding::Exact), matches!(decoding, Decoding::Full)) };
        let kda = matches!(config.attention, Attention::Kda);
        let plain = matches!(config.attention, Attention::Plain);
        let state = if kda { mul(width, config.head_dim as u64) } else { 0 };
        let stream = config.stream_len();
        let later = mul(loops - 1, positions);
        let words = [
            config.num_tensors() as u64,
            config.num_tensors() as u64,
            if kda { config.n_heads as u64 } else { 0 },
            if plain { 3 * half } else { 0 },
            stream,
            mul(
                stream,
                if exact {
                    later
                } else if full {
                    positions
                } else {
                    0
                },
            ),
            state,
            mul(state, if full { 0 } else { loops }),
            mul(state, if exact { mul(loops - 1, saved_states(context) as u64) } else { 0 }),
            if plain { mul(mul(2 * loops, positions), width) } else { 0 },
            mul(loops * (d + 1), if full { positions } else { 1 }),
            6 * d,
            padded(3 + config.n_experts as u64),
            arm(config, positions),
            8 * max(min(COLUMN_BLOCK as u64, widest(config)), config.head_dim as u64),
            activation_words(longest(config)) as u64,
            2 * config.vocab as u64,
            2 * positions,
        ];
        let mut total = 0u64;
        let mut rest: &[u64] = &words;
        while let [part, tail @ ..] = rest {
            total = total.saturating_add(*part);
            rest = tail;
        }
        let (total, addressable) = (total.saturating_mul(4), isize::MAX as u64);
        if total > addressable {
            return Err(Error::TooLargeForTarget { needed: total, addressable });
        }
        let [
            places,
            means,
            decay,
            rotation,
            stream,
            streams,
            state,
            ends,
            saved,
            kv,
            outs,
            vectors,
            raw,
            arm,
            lanes,
            activation,
            logits,
            tokens,
        ] = words;
        Ok(Self {
            places: places as usize,
            means: means as usize,
            decay: decay as usize,
            rotation: rotation as usize,
            stream: stream as usize,
            streams: streams as usize,
            state: state as usize,
            ends: ends as usize,
            saved: saved as usize,
            kv: kv as usize,
            outs: outs as usize,
            vectors: vectors as usize,
            raw: raw as usize,
            arm: arm as usize,
            lanes: lanes as usize,
            activation: activation as usize,
            logits: logits as usize,
            tokens: tokens as usize,
            total_bytes: total as usize,
        })
    }
}

impl DormouseLayout {
    /// What is kept of the positions before, in bytes: streams, states, keys and values, results.
    pub const fn past_bytes(&self) -> usize {
        (self.streams + self.ends + self.saved + self.kv + self.outs) * size_of::<u32>()
    }
}

/// How many states of one iteration are kept for `context` positions.
pub const fn saved_states(context: u32) -> u32 {
    if context <= DENSE { context } else { DENSE + context / DENSE - 1 }
}

/// Where the state behind `position` is kept, if it is: of the first positions all, because there a change fades soonest, then one in 32.
pub const fn saved_place(position: u32) -> Option<u32> {
    if position < DENSE {
        Some(position)
    } else if position % DENSE == DENSE - 1 {
        Some(DENSE + position / DENSE - 1)
    } else {
        None
    }
}

/// What the arm with the largest need has: the arms follow one another.
const fn arm(config: &DormouseConfig, positions: u64) -> u64 {
    let (d, width, head) = (config.d_model as u64, config.width(), config.head_dim as u64);
    let (gated, ffn, rank) = (config.sizes(Layer::GateUp(0)).1, config.d_ffn as u64, config.rank as u64);
    let (streams, inner) = (config.mhc_streams as u64, config.sizes(Layer::GrDown).1);
    let attention = match config.attention {
        Attention::None => 0,
        // Queries, keys, values, decay, gate, results; the decay's inner vector, steps, what is added to the state; the projection.
        Attention::Kda => 6 * width + 2 * head + config.n_heads as u64 + d,
        Attention::Plain => 4 * width + positions + 8 * head + d,
    };
    let memory = if config.use_engram { 3 * config.engram_dim as u64 + 3 * d } else { 0 };
    let experts = gated + max(ffn, rank) + rank + d + 8 * d + config.n_experts as u64;
    let residual = match config.residual {
        Residual::ReZero => 0,
        Residual::Gr => 8 * d + 2 * inner + 4,
        Residual::AttnRes => 2 * (config.max_iter as u64 + 1),
        Residual::Mhc => d + 3 * streams + streams * streams,
    };
    let classifier = 2 * d + rank;
    max(max(attention, memory), max(max(experts, residual), classifier))
}

/// The most outputs of a matrix.
const fn widest(config: &DormouseConfig) -> u64 {
    let (d, streams) = (config.d_model as u64, config.mhc_streams as u64);
    let gated = config.sizes(Layer::GateUp(0)).1;
    let residual = match config.residual {
        Residual::Gr => 4 * d,
        Residual::Mhc => streams * streams,
        _ => d,
    };
    let first = max(max(config.width(), gated), max(config.vocab as u64, residual));
    max(max(first, config.rank as u64), max(3 + config.n_experts as u64, d))
}

/// The longest input of a matrix.
const fn longest(config: &DormouseConfig) -> u32 {
    let d = config.d_model as u64;
    let residual = if matches!(config.residual, Residual::Gr) { 4 * d } else { 2 * d };
    let memory = 3 * config.engram_dim as u64;
    let first = max(max(residual, config.width()), max(config.d_ffn as u64, memory));
    // `validate` keeps every one of these below 2^27.
    max(first, max(config.rank as u64, config.head_dim as u64)) as u32
}

const fn mul(a: u64, b: u64) -> u64 {
    a.saturating_mul(b)
}

const fn max(a: u64, b: u64) -> u64 {
    if a > b { a } else { b }
}

const fn min(a: u64, b: u64) -> u64 {
    if a < b { a } else { b }
}

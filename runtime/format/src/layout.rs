//! How much memory a configuration needs, as constants: the sizes by which `dmexp::Arena` is carved.

use crate::arch::llama::LlamaConfig;
use crate::{Error, KvDType};

/// Sizes of the parts of a Llama arena, in the order in which they lie. All but the first count words of 32 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LlamaLayout {
    /// Keys and values, in bytes: [layer][key, value][position][`kv_dim`], a multiple of 4.
    pub kv_bytes: usize,
    /// Rotation frequencies: `head_dim` / 2.
    pub inv_freq: usize,
    /// Cosines, then sines, of the current position: `head_dim`.
    pub rotation: usize,
    /// The residual stream: `dim`.
    pub x: usize,
    /// The normed stream, or the attention's output: the larger of `dim` and `n_heads` * `head_dim`.
    pub xb: usize,
    /// What is never needed at the same time: q, k, v, scores and lane sums of attention; its output projected; gate and up of the
    /// feed-forward network; logits and the sampler's order.
    pub shared: usize,
    /// The tokens of the context so far: one a position.
    pub tokens: usize,
    /// All parts together, in bytes.
    pub total_bytes: usize,
}

impl LlamaLayout {
    /// The layout for `context` positions with keys and values kept as `kv`.
    ///
    /// # Errors
    /// [`Error::Config`] if the configuration is not valid, [`Error::Context`] if `context` is 0 or more than `max_seq_len`,
    /// [`Error::TooLargeForTarget`] if the sizes do not fit this target.
    pub const fn new(config: &LlamaConfig, context: u32, kv: KvDType) -> Result<Self, Error> {
        if let Err(error) = config.validate() {
            return Err(error);
        }
        if context == 0 || context > config.max_seq_len {
            return Err(Error::Context { found: context as u64, allowed: config.max_seq_len as u64 });
        }
        let (q_dim, kv_dim, context) = (config.q_dim(), config.kv_dim(), context as u64);
        // Every factor is checked by `validate` to be below 2^24 (2^12 layers), so the product of three fits; saturation covers the rest.
        let kv_elements = (2 * config.n_layers as u64).saturating_mul(context).saturating_mul(kv_dim);
        let kv_bytes = kv_elements.saturating_mul(kv.size()).saturating_add(3) / 4 * 4;
        let attention = q_dim + 2 * kv_dim + context + 8 * config.head_dim as u64;
        let feed_forward = 2 * config.hidden_dim as u64;
        let sampling = 2 * config.vocab_size as u64;
        let shared = max(max(attention, feed_forward), max(sampling, config.dim as u64));
        let xb = max(config.dim as u64, q_dim);
        let words = config.head_dim as u64 / 2 + config.head_dim as u64 + config.dim as u64 + xb + shared + context;
        let total = kv_bytes.saturating_add(4 * words);
        let addressable = isize::MAX as u64;
        if total > addressable {
            return Err(Error::TooLargeForTarget { needed: total, addressable });
        }
        Ok(Self {
            kv_bytes: kv_bytes as usize,
            inv_freq: config.head_dim as usize / 2,
            rotation: config.head_dim as usize,
            x: config.dim as usize,
            xb: xb as usize,
            shared: shared as usize,
            tokens: context as usize,
            total_bytes: total as usize,
        })
    }
}

const fn max(a: u64, b: u64) -> u64 {
    if a > b { a } else { b }
}

//! How much memory a configuration needs, as constants: the sizes by which `dmexp::Arena` is carved.

pub use crate::arch::dormouse::layout::{Decoding, DormouseLayout};
use crate::arch::llama::LlamaConfig;
use crate::bytes::align_up;
use crate::planes::GROUP_MULTIPLE;
use crate::{Error, KvDType};

/// Sizes of the parts of a Llama arena, in the order in which they lie. All but the first count words of 32 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LlamaLayout {
    /// Keys and values, in bytes: layer x (key, value) x position x `kv_dim`, a multiple of 4; in q8 followed by the scales, layer x (key, value) x position x `n_kv_heads`, also a multiple
    /// of 4.
    pub kv_bytes: usize,
    /// Those before the scales: a multiple of 4 bytes.
    pub kv_code_bytes: usize,
    /// Rotation frequencies: `head_dim` / 2.
    pub inv_freq: usize,
    /// Cosines, then sines, of the current position: `head_dim`.
    pub rotation: usize,
    /// The residual stream: `dim`.
    pub x: usize,
    /// The normed stream, or the attention's output: the larger of `dim` and `n_heads` * `head_dim`.
    pub xb: usize,
    /// What is never needed at the same time: q, k, v, scores and lane sums of attention; its output projected; gate and up of the
    /// feed-forward network; logits and the sampler's order. Beside each result of a projection there is room for its input as integers ([`activation_words`]): after q, k and v (where the
    /// scores will be), after the projected output, after gate and up, instead of up for the projection down, and after the logits (where the order will be).
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
        // `validate` keeps every size (and `context` with them) to 2^24 and layers to 2^12, so no sum or product below leaves 64 bits.
        let (q_dim, kv_dim) = (config.q_dim() as u32, config.kv_dim() as u32);
        let kv_rows = (2 * config.n_layers as u64) * context as u64;
        let kv_codes = align_up(kv_rows * kv_dim as u64 * kv.size(), 4);
        let kv_bytes = kv_codes + align_up(kv_rows * config.n_kv_heads as u64 * kv.scale_size(), 4);
        let of_x = activation_words(config.dim);
        let attention = q_dim + 2 * kv_dim + max(context + 8 * config.head_dim, of_x);
        let projected = config.dim + activation_words(q_dim);
        let feed_forward = config.hidden_dim + max(config.hidden_dim + of_x, activation_words(config.hidden_dim));
        let logits = config.vocab_size + max(config.vocab_size, of_x);
        let shared = max(max(attention, projected), max(feed_forward, logits));
        let xb = max(config.dim, q_dim);
        let words = config.head_dim / 2 + config.head_dim + config.dim + xb + shared + context;
        let total = kv_bytes + 4 * words as u64;
        let addressable = isize::MAX as u64;
        if total > addressable {
            return Err(Error::TooLargeForTarget { needed: total, addressable });
        }
        Ok(Self {
            kv_bytes: kv_bytes as usize,
            kv_code_bytes: kv_codes as usize,
            inv_freq: config.head_dim as usize / 2,
            rotation: config.head_dim as usize,
            x: config.dim as usize,
            xb: xb as usize,
            shared: shared as usize,
            tokens: context as usize,
            total_bytes: total as usize,
        })
    }

    /// Everything but the keys and values, in bytes.
    pub const fn work_bytes(&self) -> usize {
        self.total_bytes.saturating_sub(self.kv_bytes)
    }
}

/// Words of 32 bits for a vector of `n` activations as integers: `n` codes of 16 bits and zeros up to a multiple of [`GROUP_MULTIPLE`], so that kernels need not care where a row ends, then
/// the sums of the codes of each group, of which there is at most one for every [`GROUP_MULTIPLE`] elements.
pub const fn activation_words(n: u32) -> u32 {
    (GROUP_MULTIPLE / 2 + 1) * n.div_ceil(GROUP_MULTIPLE)
}

const fn max(a: u32, b: u32) -> u32 {
    if a > b { a } else { b }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::llama::tests::CONFIG as STORIES;

    #[test]
    fn a_cache_in_8_bits_has_a_scale_a_head_and_position() {
        for (context, codes, scales, most) in [(256, 81_920, 20_480, 112_000), (512, 163_840, 40_960, 216_000)] {
            let layout = LlamaLayout::new(&STORIES, context, KvDType::Q8).unwrap();
            assert_eq!(layout.kv_bytes, codes + scales);
            assert!(layout.total_bytes <= most, "{context}: {}", layout.total_bytes);
            let halves = LlamaLayout::new(&STORIES, context, KvDType::F16).unwrap();
            assert_eq!((halves.kv_bytes, halves.total_bytes - layout.total_bytes), (2 * codes, codes - scales));
        }
        // One position of one head of two: 20 codes and 20 bytes of scales.
        let small = LlamaConfig { head_dim: 2, n_kv_heads: 1, ..STORIES };
        assert_eq!(LlamaLayout::new(&small, 1, KvDType::Q8).unwrap().kv_bytes, 20 + 20);
    }

    #[test]
    fn every_projection_has_room_for_its_input_as_integers() {
        assert_eq!((activation_words(1), activation_words(8), activation_words(64), activation_words(172)), (5, 5, 40, 110));
        for (dim, hidden_dim, vocab_size, context) in [(64, 172, 512, 1), (64, 8, 4, 1), (8, 1000, 4, 512), (4096, 16, 16, 1)] {
            let config = LlamaConfig { dim, hidden_dim, vocab_size, ..STORIES };
            let shared = LlamaLayout::new(&config, context, KvDType::F16).unwrap().shared as u32;
            let (q_dim, kv_dim) = (config.q_dim() as u32, config.kv_dim() as u32);
            for (results, input) in
                [(q_dim + 2 * kv_dim, dim), (dim, q_dim), (2 * hidden_dim, dim), (hidden_dim, hidden_dim), (vocab_size, dim)]
            {
                assert!(shared >= results + activation_words(input), "{config:?}");
            }
        }
    }
}

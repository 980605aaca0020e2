//! Llama-family decoders: the configuration, the checks on it, and the tensors in the order in which files list them.
//!
//! Tensor `n` of a Llama file is always the one that [`LlamaConfig::tensor`] describes, so a reader without a heap finds any tensor by arithmetic and `bind` compares names only once.

use crate::bytes::u32_at;
use crate::{ConfigKey, Dims, Error, Rule};
use core::fmt;

/// Bytes of the configuration record in a format-2 index.
pub const CONFIG_RECORD_LEN: usize = 64;

/// How the two halves of a rotated pair lie in a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum RopeLayout {
    /// Pairs (2i, 2i+1): llama2.c, GGUF.
    Interleaved = 0,
    /// Pairs (i, i + `head_dim`/2): Hugging Face.
    Half = 1,
}

impl RopeLayout {
    /// The name in headers.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Interleaved => "interleaved",
            Self::Half => "half",
        }
    }
}

/// All that decides what a Llama-family model computes, apart from its tensors.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LlamaConfig {
    /// Width of the residual stream.
    pub dim: u32,
    /// Width of the feed-forward layers.
    pub hidden_dim: u32,
    /// Number of layers.
    pub n_layers: u32,
    /// Query heads.
    pub n_heads: u32,
    /// Key/value heads; divides `n_heads`.
    pub n_kv_heads: u32,
    /// Width of a head; even.
    pub head_dim: u32,
    /// Number of tokens.
    pub vocab_size: u32,
    /// Positions the model was trained for: the most a context may have.
    pub max_seq_len: u32,
    /// Added under the root of every RMS norm.
    pub norm_eps: f32,
    /// How rotated pairs lie in a head.
    pub rope_layout: RopeLayout,
    /// Multiplies sine and cosine of the rotation (1 unless the scaling of long contexts says otherwise).
    pub attention_factor: f32,
    /// Whether the classifier is the embedding.
    pub tied_embeddings: bool,
    /// Whether q, k and v have a bias.
    pub qkv_bias: bool,
    /// Positions that attention looks back (the current one counted); 0 = all.
    pub sliding_window: u32,
}

/// Which of the model's tensors, within its layer if it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum TensorKind {
    /// Token embeddings, (`vocab_size`, `dim`).
    TokEmbeddings,
    /// Gain of the norm before attention, (`dim`).
    AttentionNorm,
    /// Query projection, (`n_heads` * `head_dim`, `dim`).
    Wq,
    /// Key projection, (`n_kv_heads` * `head_dim`, `dim`).
    Wk,
    /// Value projection, (`n_kv_heads` * `head_dim`, `dim`).
    Wv,
    /// Query bias, (`n_heads` * `head_dim`).
    Bq,
    /// Key bias, (`n_kv_heads` * `head_dim`).
    Bk,
    /// Value bias, (`n_kv_heads` * `head_dim`).
    Bv,
    /// Output projection of attention, (`dim`, `n_heads` * `head_dim`).
    Wo,
    /// Gain of the norm before the feed-forward network, (`dim`).
    FfnNorm,
    /// Gate projection, (`hidden_dim`, `dim`).
    W1,
    /// Up projection, (`hidden_dim`, `dim`).
    W3,
    /// Down projection, (`dim`, `hidden_dim`).
    W2,
    /// Gain of the last norm, (`dim`).
    Norm,
    /// Classifier where it is not the embedding, (`vocab_size`, `dim`).
    Output,
    /// Rotation frequencies, (`head_dim` / 2), always f32 (format 2 alone; format 1 has them in its configuration).
    RopeInvFreq,
}

/// A tensor that the configuration calls for: which one, and its dims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorSpec {
    /// Which of the model's tensors.
    pub kind: TensorKind,
    /// Its layer; `None` outside the layers.
    pub layer: Option<u32>,
    /// Its dims.
    pub dims: Dims,
}

/// The keys of the sizes, in the order of the record.
const SIZE_KEYS: [ConfigKey; 8] = [
    ConfigKey::Dim,
    ConfigKey::HiddenDim,
    ConfigKey::NLayers,
    ConfigKey::NHeads,
    ConfigKey::NKvHeads,
    ConfigKey::HeadDim,
    ConfigKey::VocabSize,
    ConfigKey::MaxSeqLen,
];

const LAYER: [TensorKind; 9] = [
    TensorKind::AttentionNorm,
    TensorKind::Wq,
    TensorKind::Wk,
    TensorKind::Wv,
    TensorKind::Wo,
    TensorKind::FfnNorm,
    TensorKind::W1,
    TensorKind::W3,
    TensorKind::W2,
];
const LAYER_WITH_BIAS: [TensorKind; 12] = [
    TensorKind::AttentionNorm,
    TensorKind::Wq,
    TensorKind::Wk,
    TensorKind::Wv,
    TensorKind::Bq,
    TensorKind::Bk,
    TensorKind::Bv,
    TensorKind::Wo,
    TensorKind::FfnNorm,
    TensorKind::W1,
    TensorKind::W3,
    TensorKind::W2,
];

impl LlamaConfig {
    /// The largest value of any size in a configuration: far past every model, and small enough that products of two fit 64 bits.
    pub const SIZE_LIMIT: u32 = 1 << 24;
    /// The most layers.
    pub const LAYER_LIMIT: u32 = 4096;

    /// Checks every value by itself and against the others.
    ///
    /// # Errors
    /// [`Error::Config`] with the first key that is wrong.
    pub const fn validate(&self) -> Result<(), Error> {
        let sizes =
            [self.dim, self.hidden_dim, self.n_layers, self.n_heads, self.n_kv_heads, self.head_dim, self.vocab_size, self.max_seq_len];
        let (mut rest, mut keys): (&[u32], &[ConfigKey]) = (&sizes, &SIZE_KEYS);
        while let ([value, tail @ ..], [key, more @ ..]) = (rest, keys) {
            let limit = if let ConfigKey::NLayers = *key { Self::LAYER_LIMIT } else { Self::SIZE_LIMIT };
            if *value == 0 {
                return Err(wrong(*key, Rule::NotZero, 0, 1));
            }
            if *value > limit {
                return Err(wrong(*key, Rule::TooLarge, *value, limit));
            }
            rest = tail;
            keys = more;
        }
        if self.n_kv_heads > self.n_heads {
            return Err(wrong(ConfigKey::NKvHeads, Rule::TooLarge, self.n_kv_heads, self.n_heads));
        }
        if let Some(0) = self.n_heads.checked_rem(self.n_kv_heads) {
        } else {
            return Err(wrong(ConfigKey::NKvHeads, Rule::Divides, self.n_kv_heads, self.n_heads));
        }
        if self.head_dim & 1 != 0 {
            return Err(wrong(ConfigKey::HeadDim, Rule::Even, self.head_dim, 2));
        }
        if self.q_dim() > Self::SIZE_LIMIT as u64 {
            return Err(Error::Config {
                key: ConfigKey::NHeads,
                rule: Rule::TooLarge,
                found: self.q_dim(),
                allowed: Self::SIZE_LIMIT as u64,
            });
        }
        let floats = [(ConfigKey::NormEps, self.norm_eps), (ConfigKey::AttentionFactor, self.attention_factor)];
        let mut rest: &[(ConfigKey, f32)] = &floats;
        while let [(key, value), tail @ ..] = rest {
            if !value.is_finite() {
                return Err(wrong(*key, Rule::Finite, value.to_bits(), 0));
            }
            if *value <= 0.0 {
                return Err(wrong(*key, Rule::Positive, value.to_bits(), 0));
            }
            rest = tail;
        }
        Ok(())
    }

    /// Width of all query heads together.
    pub const fn q_dim(&self) -> u64 {
        self.n_heads as u64 * self.head_dim as u64
    }

    /// Width of all key (or value) heads together.
    pub const fn kv_dim(&self) -> u64 {
        self.n_kv_heads as u64 * self.head_dim as u64
    }

    const fn kinds(&self) -> &'static [TensorKind] {
        if self.qkv_bias { &LAYER_WITH_BIAS } else { &LAYER }
    }

    /// How many tensors hold weights: all but the rotation frequencies and the tokenizer's arrays.
    pub const fn weight_tensors(&self) -> u32 {
        let fixed = if self.tied_embeddings { 2 } else { 3 };
        fixed + self.n_layers * self.kinds().len() as u32
    }

    /// The number of the tensor of this kind (in `layer`, which is ignored outside the layers) in the file's order, whether or not the
    /// configuration has it.
    #[inline(never)]
    pub const fn tensor_number(&self, kind: TensorKind, layer: u32) -> u32 {
        // The kinds are numbered in the order of a file, biases included.
        let missing = if self.qkv_bias { 0 } else { TensorKind::Wo as u32 - TensorKind::Bq as u32 };
        let in_layer = TensorKind::Norm as u32 - TensorKind::AttentionNorm as u32 - missing;
        let number = kind as u32;
        if number == 0 {
            return 0;
        }
        let before = if number < TensorKind::Norm as u32 { layer } else { self.n_layers }.wrapping_mul(in_layer);
        let absent = if number >= TensorKind::Norm as u32 {
            // As if the last layer ended before them.
            in_layer + missing + if self.tied_embeddings && number == TensorKind::RopeInvFreq as u32 { 1 } else { 0 }
        } else if number >= TensorKind::Wo as u32 {
            missing
        } else {
            0
        };
        before.wrapping_add(number - absent)
    }

    /// The tensor that the configuration calls for at place `number`; past the weights come the rotation frequencies, then nothing.
    #[inline(never)]
    pub const fn tensor(&self, number: u32) -> Option<TensorSpec> {
        let kinds = self.kinds();
        let after_layers = 1 + self.n_layers.wrapping_mul(kinds.len() as u32);
        let (kind, layer) = if number == 0 {
            (TensorKind::TokEmbeddings, None)
        } else if number < after_layers {
            let in_layers = number - 1;
            let per_layer = kinds.len() as u32;
            let (Some(layer), Some(place)) = (in_layers.checked_div(per_layer), in_layers.checked_rem(per_layer)) else {
                return None;
            };
            match kinds.split_at_checked(place as usize) {
                Some((_, [kind, ..])) => (*kind, Some(layer)),
                _ => return None,
            }
        } else if number == after_layers {
            (TensorKind::Norm, None)
        } else if number == after_layers + 1 && !self.tied_embeddings {
            (TensorKind::Output, None)
        } else if number == self.weight_tensors() {
            (TensorKind::RopeInvFreq, None)
        } else {
            return None;
        };
        Some(TensorSpec { kind, layer, dims: self.dims(kind) })
    }

    /// The dims of a kind of tensor.
    pub const fn dims(&self, kind: TensorKind) -> Dims {
        let q_dim = self.q_dim() as u32;
        let kv_dim = self.kv_dim() as u32;
        match kind {
            TensorKind::TokEmbeddings | TensorKind::Output => Dims::matrix(self.vocab_size, self.dim),
            TensorKind::AttentionNorm | TensorKind::FfnNorm | TensorKind::Norm => Dims::vector(self.dim),
            TensorKind::Wq => Dims::matrix(q_dim, self.dim),
            TensorKind::Wk | TensorKind::Wv => Dims::matrix(kv_dim, self.dim),
            TensorKind::Bq => Dims::vector(q_dim),
            TensorKind::Bk | TensorKind::Bv => Dims::vector(kv_dim),
            TensorKind::Wo => Dims::matrix(self.dim, q_dim),
            TensorKind::W1 | TensorKind::W3 => Dims::matrix(self.hidden_dim, self.dim),
            TensorKind::W2 => Dims::matrix(self.dim, self.hidden_dim),
            TensorKind::RopeInvFreq => Dims::vector(self.head_dim / 2),
        }
    }

    /// How many elements come before a tensor where all lie one after the other in their order: where format 1 has it.
    pub const fn elements_before(&self, kind: TensorKind, layer: u32) -> u64 {
        let (mut in_layer, mut per_layer, mut found) = (0, 0, false);
        let mut rest = self.kinds();
        while let [first, tail @ ..] = rest {
            found |= *first as u8 == kind as u8;
            let count = self.dims(*first).count();
            if !found {
                in_layer += count;
            }
            per_layer += count;
            rest = tail;
        }
        let embeddings = self.dims(TensorKind::TokEmbeddings).count();
        let layers = if found { layer } else { self.n_layers };
        let before = embeddings.saturating_add((layers as u64).saturating_mul(per_layer));
        match kind {
            TensorKind::TokEmbeddings => 0,
            TensorKind::Norm => before,
            TensorKind::Output | TensorKind::RopeInvFreq => before.saturating_add(self.dim as u64),
            _ => before.saturating_add(in_layer),
        }
    }

    /// How many numbers the weights are, rotation frequencies not counted.
    pub const fn num_params(&self) -> u64 {
        let classifier = if self.tied_embeddings { 0 } else { self.dims(TensorKind::Output).count() };
        self.elements_before(TensorKind::Output, 0).saturating_add(classifier)
    }

    /// Reads the configuration record of a format-2 index, without validating it.
    ///
    /// # Errors
    /// [`Error::Config`] for a rope layout or flags that are not known, or reserved bytes that are not 0.
    pub const fn from_record(record: &[u8; CONFIG_RECORD_LEN]) -> Result<Self, Error> {
        let rope_layout = match u32_at(record, 36) {
            0 => RopeLayout::Interleaved,
            1 => RopeLayout::Half,
            other => return Err(wrong(ConfigKey::RopeLayout, Rule::Unknown, other, 1)),
        };
        let flags = u32_at(record, 40);
        if flags > 3 {
            return Err(wrong(ConfigKey::Other, Rule::Unknown, flags, 3));
        }
        if u32_at(record, 52) | u32_at(record, 56) | u32_at(record, 60) != 0 {
            return Err(wrong(ConfigKey::Other, Rule::Zero, u32_at(record, 52), 0));
        }
        Ok(Self {
            dim: u32_at(record, 0),
            hidden_dim: u32_at(record, 4),
            n_layers: u32_at(record, 8),
            n_heads: u32_at(record, 12),
            n_kv_heads: u32_at(record, 16),
            head_dim: u32_at(record, 20),
            vocab_size: u32_at(record, 24),
            max_seq_len: u32_at(record, 28),
            norm_eps: f32::from_bits(u32_at(record, 32)),
            rope_layout,
            tied_embeddings: flags & 1 != 0,
            qkv_bias: flags & 2 != 0,
            sliding_window: u32_at(record, 44),
            attention_factor: f32::from_bits(u32_at(record, 48)),
        })
    }

    /// The configuration record of a format-2 index: the inverse of [`LlamaConfig::from_record`].
    pub fn to_record(&self) -> [u8; CONFIG_RECORD_LEN] {
        let words = [
            self.dim,
            self.hidden_dim,
            self.n_layers,
            self.n_heads,
            self.n_kv_heads,
            self.head_dim,
            self.vocab_size,
            self.max_seq_len,
            self.norm_eps.to_bits(),
            self.rope_layout as u32,
            u32::from(self.tied_embeddings) | u32::from(self.qkv_bias) << 1,
            self.sliding_window,
            self.attention_factor.to_bits(),
            0,
            0,
            0,
        ];
        let mut record = [0; CONFIG_RECORD_LEN];
        for (bytes, word) in record.chunks_exact_mut(4).zip(words) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        record
    }
}

#[cold]
#[inline(never)]
const fn wrong(key: ConfigKey, rule: Rule, found: u32, allowed: u32) -> Error {
    Error::Config { key, rule, found: found as u64, allowed: allowed as u64 }
}

impl TensorKind {
    /// The name within its layer (or the whole name outside the layers).
    pub const fn name(self) -> &'static str {
        match self {
            Self::TokEmbeddings => "tok_embeddings.weight",
            Self::AttentionNorm => "attention_norm.weight",
            Self::Wq => "attention.wq.weight",
            Self::Wk => "attention.wk.weight",
            Self::Wv => "attention.wv.weight",
            Self::Bq => "attention.wq.bias",
            Self::Bk => "attention.wk.bias",
            Self::Bv => "attention.wv.bias",
            Self::Wo => "attention.wo.weight",
            Self::FfnNorm => "ffn_norm.weight",
            Self::W1 => "feed_forward.w1.weight",
            Self::W3 => "feed_forward.w3.weight",
            Self::W2 => "feed_forward.w2.weight",
            Self::Norm => "norm.weight",
            Self::Output => "output.weight",
            Self::RopeInvFreq => "rope.inv_freq",
        }
    }

    /// Whether it is a matrix, which an export may narrow; vectors (gains, biases, frequencies) stay f32 in format 2.
    pub const fn is_matrix(self) -> bool {
        matches!(self, Self::TokEmbeddings | Self::Wq | Self::Wk | Self::Wv | Self::Wo | Self::W1 | Self::W3 | Self::W2 | Self::Output)
    }
}

impl TensorSpec {
    /// Whether `name` is this tensor's name.
    #[inline(never)]
    pub fn is_named(&self, name: &[u8]) -> bool {
        let Some(layer) = self.layer else {
            return name == self.kind.name().as_bytes();
        };
        let Some(mut rest) = name.strip_prefix(b"layers.") else {
            return false;
        };
        let mut number = 0u32;
        let mut digits = 0u32;
        while let [digit @ b'0'..=b'9', tail @ ..] = rest {
            // A second digit after a leading zero is another name for the same layer: not this one.
            if digits > 0 && number == 0 || digits > 9 {
                return false;
            }
            number = number.wrapping_mul(10).wrapping_add(u32::from(*digit - b'0'));
            digits += 1;
            rest = tail;
        }
        digits > 0 && number == layer && rest.strip_prefix(b".") == Some(self.kind.name().as_bytes())
    }
}

impl fmt::Display for TensorSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.layer {
            Some(layer) => write!(f, "layers.{layer}.{}", self.kind.name()),
            None => f.write_str(self.kind.name()),
        }
    }
}

#[cfg(test)]
#[path = "llama_tests.rs"]
pub(crate) mod tests;

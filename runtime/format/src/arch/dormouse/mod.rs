//! The dormouse byte model: a loop over one block with an n-gram memory, a delta-rule attention and ternary low-rank layers.
//!
//! The configuration and the checks on it are here; [`tensors`] lists what a configuration calls for, [`check`] compares a file with it, [`layout`] says how much memory a session needs.

pub mod check;
pub mod layout;
mod names;
mod record;
pub mod tensors;

#[cfg(test)]
mod tests;

use crate::{ConfigKey, Error, Rule};

pub use record::CONFIG_RECORD_LEN;

/// What mixes positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Attention {
    /// Nothing (`use_kda` and `use_plain_attn` are both false).
    None = 0,
    /// The delta-rule recurrence, whose state goes on from one iteration to the next (`use_kda`).
    Kda = 1,
    /// Causal softmax attention with rotary positions (`use_plain_attn`).
    Plain = 2,
}

/// How an iteration's result joins the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Residual {
    /// Times one learned factor.
    ReZero = 0,
    /// Four branches, read and written through gates (`use_gr`).
    Gr = 1,
    /// A softmax over all results so far (`use_attnres`).
    AttnRes = 2,
    /// Streams mixed by a doubly stochastic matrix (`use_mhc`).
    Mhc = 3,
}

/// How the inputs of attention and experts are rounded (`act_quant`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum ActQuant {
    /// They are not.
    None = 0,
    /// Experts: E2M1, 4 bits. Attention: 8 bits.
    Fp4 = 1,
    /// Experts: integers of 4 bits. Attention: 8 bits.
    Int4 = 2,
    /// Integers of 8 bits.
    Int8 = 3,
}

impl ActQuant {
    /// The format with this spelling in a configuration.
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "fp4" => Self::Fp4,
            "4" | "int4" => Self::Int4,
            "8" | "int8" => Self::Int8,
            _ => return None,
        })
    }
}

/// All that decides what a dormouse model computes, apart from its tensors.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(clippy::struct_excessive_bools, reason = "the keys of the configuration")]
pub struct DormouseConfig {
    /// Width of the stream.
    pub d_model: u32,
    /// Heads; divides `d_model`.
    pub n_heads: u32,
    /// Width of a head.
    pub head_dim: u32,
    /// Width of the experts.
    pub d_ffn: u32,
    /// Number of tokens: one a byte value.
    pub vocab: u32,
    /// Positions that the model was trained for: the most a context may have.
    pub max_seq_len: u32,
    /// Iterations of the loop.
    pub max_iter: u32,
    /// Rank of the ternary layers.
    pub rank: u32,
    /// Added under the root of the loop's norm and of the last.
    pub norm_eps: f32,
    /// What mixes positions.
    pub attention: Attention,
    /// Whether layers are ternary factors of low rank, or dense with a bias.
    pub use_tsct: bool,
    /// Whether the n-gram memory is read.
    pub use_engram: bool,
    /// How results join the stream.
    pub residual: Residual,
    /// With [`Residual::AttnRes`]: whether the queries have gains.
    pub attnres_gain: bool,
    /// Streams of [`Residual::Mhc`]; divides `d_model`.
    pub mhc_streams: u32,
    /// Whether experts are gated by capped tangents.
    pub use_situ: bool,
    /// Number of experts.
    pub n_experts: u32,
    /// Experts that count at a position; 0 is all.
    pub moe_topk: u32,
    /// Rows of the memory, which its tables round up to a power of two.
    pub engram_rows: u32,
    /// Width of a row of the memory.
    pub engram_dim: u32,
    /// The most that the memory weighs.
    pub engram_lam_max: f32,
    /// Whether only some iterations count at a position.
    pub use_mor: bool,
    /// How many of them.
    pub mor_k: u32,
    /// How inputs are rounded.
    pub act_quant: ActQuant,
    /// Elements that share a scale then; 0 is the whole row.
    pub act_group: u32,
    /// What the recurrence's results are multiplied by; `None` where the file does not say (format 1).
    pub kda_scale: Option<f32>,
}

impl DormouseConfig {
    /// The values of a configuration without keys: those of the preset `small`.
    pub const DEFAULT: Self = Self {
        d_model: 768,
        n_heads: 12,
        head_dim: 64,
        d_ffn: 2048,
        vocab: 256,
        max_seq_len: 512,
        max_iter: 4,
        rank: 64,
        norm_eps: 0.001,
        attention: Attention::Kda,
        use_tsct: true,
        use_engram: true,
        residual: Residual::ReZero,
        attnres_gain: true,
        mhc_streams: 4,
        use_situ: false,
        n_experts: 3,
        moe_topk: 0,
        engram_rows: 25_000,
        engram_dim: 32,
        engram_lam_max: 0.5,
        use_mor: false,
        mor_k: 2,
        act_quant: ActQuant::None,
        act_group: 0,
        kda_scale: None,
    };
    /// The largest value of any size: far past every model, and small enough that products of two fit 64 bits.
    pub const SIZE_LIMIT: u32 = 1 << 24;
    /// The most iterations, experts and streams.
    pub const COUNT_LIMIT: u32 = 256;

    /// Checks every value by itself and against the others.
    ///
    /// # Errors
    /// [`Error::Config`] with the first key that is wrong.
    pub const fn validate(&self) -> Result<(), Error> {
        if let Err(error) = self.check_sizes() {
            return Err(error);
        }
        if let Err(error) = self.check_floats() {
            return Err(error);
        }
        let d = self.d_model;
        let mut divisors: &[(ConfigKey, bool, u32)] = &[
            (ConfigKey::NHeads, true, self.n_heads),
            (ConfigKey::ActGroup, !matches!(self.act_quant, ActQuant::None) && self.act_group != 0, self.act_group),
            (ConfigKey::MhcStreams, matches!(self.residual, Residual::Mhc), self.mhc_streams),
        ];
        while let [(key, used, value), rest @ ..] = divisors {
            if *used && !matches!(d.checked_rem(*value), Some(0)) {
                return Err(wrong(*key, Rule::Divides, *value as u64, d as u64));
            }
            divisors = rest;
        }
        if matches!(self.attention, Attention::Plain) {
            if self.width() != d as u64 {
                return Err(wrong(ConfigKey::HeadDim, Rule::Equal, self.width(), d as u64));
            }
            if self.head_dim & 1 != 0 {
                return Err(wrong(ConfigKey::HeadDim, Rule::Even, self.head_dim as u64, 2));
            }
        }
        if self.moe_topk > self.n_experts {
            return Err(wrong(ConfigKey::MoeTopk, Rule::TooLarge, self.moe_topk as u64, self.n_experts as u64));
        }
        if self.use_mor && self.mor_k == 0 {
            return Err(wrong(ConfigKey::MorK, Rule::NotZero, 0, 1));
        }
        if self.use_mor && self.mor_k > self.max_iter {
            return Err(wrong(ConfigKey::MorK, Rule::TooLarge, self.mor_k as u64, self.max_iter as u64));
        }
        // A memory of one row lies in a file of the training's own: this one has not what the model was trained with.
        if self.use_engram && self.engram_table() == 1 {
            return Err(wrong(ConfigKey::EngramRows, Rule::TooSmall, self.engram_rows as u64, 2));
        }
        Ok(())
    }

    const fn check_sizes(&self) -> Result<(), Error> {
        let (size, count) = (Self::SIZE_LIMIT, Self::COUNT_LIMIT);
        let mut sizes: &[(ConfigKey, u32, u32)] = &[
            (ConfigKey::DModel, self.d_model, size),
            (ConfigKey::NHeads, self.n_heads, size),
            (ConfigKey::HeadDim, self.head_dim, size),
            (ConfigKey::DFfn, self.d_ffn, size),
            (ConfigKey::Vocab, self.vocab, size),
            (ConfigKey::MaxSeqLen, self.max_seq_len, size),
            (ConfigKey::MaxIter, self.max_iter, count),
            (ConfigKey::Rank, self.rank, size),
            (ConfigKey::NExperts, self.n_experts, count),
            (ConfigKey::EngramDim, self.engram_dim, size),
            // Upstream takes 0 rows for one.
            (ConfigKey::EngramRows, if self.engram_rows == 0 { 1 } else { self.engram_rows }, size),
            (ConfigKey::MhcStreams, if matches!(self.residual, Residual::Mhc) { self.mhc_streams } else { 1 }, count),
        ];
        while let [(key, value, limit), rest @ ..] = sizes {
            if *value == 0 {
                return Err(wrong(*key, Rule::NotZero, 0, 1));
            }
            if *value > *limit {
                return Err(wrong(*key, Rule::TooLarge, *value as u64, *limit as u64));
            }
            sizes = rest;
        }
        if self.width() > Self::SIZE_LIMIT as u64 {
            return Err(wrong(ConfigKey::HeadDim, Rule::TooLarge, self.width(), Self::SIZE_LIMIT as u64));
        }
        Ok(())
    }

    const fn check_floats(&self) -> Result<(), Error> {
        let scale = match self.kda_scale {
            Some(scale) => scale,
            None => 1.0,
        };
        let mut floats: &[(ConfigKey, f32)] =
            &[(ConfigKey::NormEps, self.norm_eps), (ConfigKey::EngramLamMax, self.engram_lam_max), (ConfigKey::KdaScale, scale)];
        while let [(key, value), rest @ ..] = floats {
            if !value.is_finite() {
                return Err(wrong(*key, Rule::Finite, value.to_bits() as u64, 0));
            }
            if *value <= 0.0 {
                return Err(wrong(*key, Rule::Positive, value.to_bits() as u64, 0));
            }
            floats = rest;
        }
        if self.engram_lam_max > 1.0 {
            return Err(wrong(ConfigKey::EngramLamMax, Rule::TooLarge, self.engram_lam_max.to_bits() as u64, 1));
        }
        Ok(())
    }

    /// Width of all heads together.
    pub const fn width(&self) -> u64 {
        self.n_heads as u64 * self.head_dim as u64
    }

    /// Rows of one of the memory's three tables: a power of two.
    pub const fn engram_table(&self) -> u32 {
        if self.engram_rows < 2 { 1 } else { self.engram_rows.next_power_of_two() }
    }

    /// Whether a position's result depends on the positions before it alone, within every iteration: not with a recurrence that goes on from one iteration to the next.
    pub const fn is_causal(&self) -> bool {
        !matches!(self.attention, Attention::Kda) || self.max_iter == 1
    }

    /// Numbers of the stream at a position before iteration `iteration`.
    pub const fn stream_len(&self) -> u64 {
        let d = self.d_model as u64;
        match self.residual {
            Residual::ReZero | Residual::Mhc => d,
            // The branches; the sum that is read from them follows from them.
            Residual::Gr => 4 * d,
            // The results so far, of all iterations but the last; the embedding is not among them.
            Residual::AttnRes => (self.max_iter as u64) * d,
        }
    }
}

/// `n` rounded up to a multiple of 4, as dormouse rounds columns; 1 stays 1.
pub const fn padded(n: u64) -> u64 {
    if n == 1 { 1 } else { (n + 3) & !3 }
}

#[cold]
const fn wrong(key: ConfigKey, rule: Rule, found: u64, allowed: u64) -> Error {
    Error::Config { key, rule, found, allowed }
}

//! The configuration as the index of format 2 has it.

use super::{ActQuant, Attention, DormouseConfig, Residual, wrong};
use crate::bytes::u32_at;
use crate::file::golden::Bounds;
use crate::{ConfigKey, Error, KvDType, Part, Rule};

/// Bytes of the configuration record in a format-2 index.
pub const CONFIG_RECORD_LEN: usize = 96;

const TSCT: u32 = 1;
const ENGRAM: u32 = 2;
const MOR: u32 = 4;
const SITU: u32 = 8;
const ATTNRES_GAIN: u32 = 16;
const FLAGS: u32 = TSCT | ENGRAM | MOR | SITU | ATTNRES_GAIN;

impl DormouseConfig {
    /// The configuration in the record of a format-2 index, validated.
    ///
    /// # Errors
    /// [`Error::Layout`] for another length; those of [`DormouseConfig::from_record`] and [`DormouseConfig::validate`].
    pub fn parse(record: &[u8]) -> Result<Self, Error> {
        let Some((record, [])) = record.split_first_chunk::<CONFIG_RECORD_LEN>() else {
            let (found, allowed) = (record.len() as u64, CONFIG_RECORD_LEN as u64);
            return Err(Error::Layout { part: Part::Config, rule: Rule::Length, offset: 20, found, allowed });
        };
        let config = Self::from_record(record)?;
        config.validate().map(|()| config)
    }

    /// What golden vectors are held to, by a record that was not validated.
    pub(crate) const fn golden_bounds(record: &[u8]) -> Bounds {
        Bounds { vocab_size: u32_at(record, 16), max_seq_len: u32_at(record, 20), most_kv: KvDType::F32 }
    }

    /// The configuration record of a format-2 index, without validating it.
    ///
    /// # Errors
    /// [`Error::Config`] for flags or numbers of choices that are not known, or reserved bytes that are not 0.
    pub const fn from_record(record: &[u8; CONFIG_RECORD_LEN]) -> Result<Self, Error> {
        let flags = u32_at(record, 64);
        if flags & !FLAGS != 0 {
            return Err(wrong(ConfigKey::Other, Rule::Unknown, flags as u64, FLAGS as u64));
        }
        let attention = match u32_at(record, 68) {
            0 => Attention::None,
            1 => Attention::Kda,
            2 => Attention::Plain,
            other => return Err(wrong(ConfigKey::UseKda, Rule::Unknown, other as u64, 2)),
        };
        let residual = match u32_at(record, 72) {
            0 => Residual::ReZero,
            1 => Residual::Gr,
            2 => Residual::AttnRes,
            3 => Residual::Mhc,
            other => return Err(wrong(ConfigKey::ResidualArm, Rule::Unknown, other as u64, 3)),
        };
        let act_quant = match u32_at(record, 76) {
            0 => ActQuant::None,
            1 => ActQuant::Fp4,
            2 => ActQuant::Int4,
            3 => ActQuant::Int8,
            other => return Err(wrong(ConfigKey::ActQuant, Rule::Unknown, other as u64, 3)),
        };
        if u32_at(record, 88) | u32_at(record, 92) != 0 {
            return Err(wrong(ConfigKey::Other, Rule::Zero, u32_at(record, 88) as u64, 0));
        }
        Ok(Self {
            d_model: u32_at(record, 0),
            n_heads: u32_at(record, 4),
            head_dim: u32_at(record, 8),
            d_ffn: u32_at(record, 12),
            vocab: u32_at(record, 16),
            max_seq_len: u32_at(record, 20),
            max_iter: u32_at(record, 24),
            rank: u32_at(record, 28),
            norm_eps: f32::from_bits(u32_at(record, 32)),
            n_experts: u32_at(record, 36),
            moe_topk: u32_at(record, 40),
            engram_rows: u32_at(record, 44),
            engram_dim: u32_at(record, 48),
            engram_lam_max: f32::from_bits(u32_at(record, 52)),
            mor_k: u32_at(record, 56),
            mhc_streams: u32_at(record, 60),
            attention,
            residual,
            act_quant,
            use_tsct: flags & TSCT != 0,
            use_engram: flags & ENGRAM != 0,
            use_mor: flags & MOR != 0,
            use_situ: flags & SITU != 0,
            attnres_gain: flags & ATTNRES_GAIN != 0,
            act_group: u32_at(record, 80),
            kda_scale: Some(f32::from_bits(u32_at(record, 84))),
        })
    }

    /// The configuration record of a format-2 index: the inverse of [`DormouseConfig::from_record`]. A scale of the recurrence that is not known is written as 0, which no reader takes.
    pub fn to_record(&self) -> [u8; CONFIG_RECORD_LEN] {
        let flags = [
            (self.use_tsct, TSCT),
            (self.use_engram, ENGRAM),
            (self.use_mor, MOR),
            (self.use_situ, SITU),
            (self.attnres_gain, ATTNRES_GAIN),
        ];
        let words = [
            self.d_model,
            self.n_heads,
            self.head_dim,
            self.d_ffn,
            self.vocab,
            self.max_seq_len,
            self.max_iter,
            self.rank,
            self.norm_eps.to_bits(),
            self.n_experts,
            self.moe_topk,
            self.engram_rows,
            self.engram_dim,
            self.engram_lam_max.to_bits(),
            self.mor_k,
            self.mhc_streams,
            flags.iter().fold(0, |all, (on, bit)| if *on { all | bit } else { all }),
            self.attention as u32,
            self.residual as u32,
            self.act_quant as u32,
            self.act_group,
            self.kda_scale.unwrap_or(0.0).to_bits(),
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

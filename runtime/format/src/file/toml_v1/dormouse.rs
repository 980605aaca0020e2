//! The configuration of a dormouse model as a format-1 header carries it: a flat TOML table in which every key has a default. Used by the parent module alone.
//!
//! dormouse ignores keys that it does not know; here they are refused, because one of them might change the function.

use super::place;
use super::scan::{Expression, Key, Keys, Scanner, Text, Value};
use crate::arch::dormouse::{ActQuant, Attention, DormouseConfig, Residual};
use crate::{ConfigKey, Error, Rule};

impl DormouseConfig {
    /// The configuration in the TOML text that dormouse writes, validated. Whether queries over results have gains is not in it: they are taken to have.
    ///
    /// # Errors
    /// [`Error::Toml`] and [`Error::Config`], with places in the text.
    pub fn from_toml(text: &str) -> Result<Self, Error> {
        parse(Text { text, at: 0 })
    }
}

/// The keys that only choose between arms, as they are read.
#[derive(Default)]
#[allow(clippy::struct_excessive_bools, reason = "the keys of the configuration")]
struct Arms {
    plain: bool,
    no_kda: bool,
    gr: bool,
    attnres: bool,
    mhc: bool,
}

/// Reads the whole text and checks every value, by itself and against the others.
pub(super) fn parse(text: Text<'_>) -> Result<DormouseConfig, Error> {
    let mut config = DormouseConfig::DEFAULT;
    let mut arms = Arms::default();
    let mut seen = Keys::<96>::new();
    let mut scanner = Scanner::new(text);
    while let Some(expression) = scanner.next()? {
        let (key, value) = match expression {
            Expression::Pair { key, value } if !key.dotted => (key, value),
            Expression::Pair { key, .. } | Expression::Table { key, .. } => return Err(place(ConfigKey::Other, Rule::Unknown, key.at)),
        };
        seen.add(&key)?;
        if !(size(&mut config, &key, &value)? || number(&mut config, &key, &value)? || flag(&mut config, &mut arms, &key, &value)?) {
            rest(&mut config, &key, &value)?;
        }
    }
    config.attention = match (arms.no_kda, arms.plain) {
        (false, false) => Attention::Kda,
        (true, false) => Attention::None,
        (true, true) => Attention::Plain,
        (false, true) => return Err(place(ConfigKey::UseKda, Rule::Unsupported, text.at)),
    };
    config.residual = match (arms.gr, arms.attnres, arms.mhc) {
        (false, false, false) => Residual::ReZero,
        (true, false, false) => Residual::Gr,
        (false, true, false) => Residual::AttnRes,
        (false, false, true) => Residual::Mhc,
        _ => return Err(place(ConfigKey::ResidualArm, Rule::Unsupported, text.at)),
    };
    config.validate()?;
    Ok(config)
}

fn size(config: &mut DormouseConfig, key: &Key<'_>, value: &Value<'_>) -> Result<bool, Error> {
    let (name, slot) = match key.first {
        "d_model" => (ConfigKey::DModel, &mut config.d_model),
        "n_heads" => (ConfigKey::NHeads, &mut config.n_heads),
        "head_dim" => (ConfigKey::HeadDim, &mut config.head_dim),
        "d_ffn" => (ConfigKey::DFfn, &mut config.d_ffn),
        "vocab" => (ConfigKey::Vocab, &mut config.vocab),
        "max_seq_len" => (ConfigKey::MaxSeqLen, &mut config.max_seq_len),
        "max_iter" => (ConfigKey::MaxIter, &mut config.max_iter),
        "rank" => (ConfigKey::Rank, &mut config.rank),
        "mhc_streams" => (ConfigKey::MhcStreams, &mut config.mhc_streams),
        "n_experts" => (ConfigKey::NExperts, &mut config.n_experts),
        "moe_topk" => (ConfigKey::MoeTopk, &mut config.moe_topk),
        "engram_rows" => (ConfigKey::EngramRows, &mut config.engram_rows),
        "engram_dim" => (ConfigKey::EngramDim, &mut config.engram_dim),
        "mor_k" => (ConfigKey::MorK, &mut config.mor_k),
        "act_group" => (ConfigKey::ActGroup, &mut config.act_group),
        _ => return Ok(false),
    };
    *slot = word(value).map_err(|rule| place(name, rule, value.at))?;
    Ok(true)
}

fn number(config: &mut DormouseConfig, key: &Key<'_>, value: &Value<'_>) -> Result<bool, Error> {
    let (name, slot) = match key.first {
        "norm_eps" => (ConfigKey::NormEps, &mut config.norm_eps),
        "engram_lam_max" => (ConfigKey::EngramLamMax, &mut config.engram_lam_max),
        _ => return Ok(false),
    };
    *slot = value.float().map_err(|rule| place(name, rule, value.at))?;
    Ok(true)
}

fn flag(config: &mut DormouseConfig, arms: &mut Arms, key: &Key<'_>, value: &Value<'_>) -> Result<bool, Error> {
    let boolean = || value.boolean().map_err(|rule| place(ConfigKey::Flag, rule, value.at));
    // What changes the function in a way that is not known here.
    let refused = match key.first {
        "bf16" => Some(ConfigKey::Bf16),
        "use_msa" => Some(ConfigKey::UseMsa),
        "use_byteflow" => Some(ConfigKey::UseByteflow),
        _ => None,
    };
    if let Some(name) = refused {
        return if boolean()? { Err(place(name, Rule::Unsupported, key.at)) } else { Ok(true) };
    }
    let slot = match key.first {
        "use_kda" => {
            arms.no_kda = !boolean()?;
            return Ok(true);
        }
        "use_plain_attn" => &mut arms.plain,
        "use_tsct" => &mut config.use_tsct,
        "use_engram" => &mut config.use_engram,
        "use_gr" => &mut arms.gr,
        "use_attnres" => &mut arms.attnres,
        "use_mhc" => &mut arms.mhc,
        "use_situ" => &mut config.use_situ,
        "use_mor" => &mut config.use_mor,
        _ => return Ok(false),
    };
    *slot = boolean()?;
    Ok(true)
}

/// The keys that are left: those of the training, and two of their own kind.
fn rest(config: &mut DormouseConfig, key: &Key<'_>, value: &Value<'_>) -> Result<(), Error> {
    let training = |rule| place(ConfigKey::Training, rule, value.at);
    match key.first {
        "act_quant" => {
            let unknown = place(ConfigKey::ActQuant, Rule::Unknown, value.at);
            config.act_quant = match (value.string(), value.integer()) {
                (Ok(name), _) => ActQuant::from_name(name.text).ok_or(unknown)?,
                (_, Ok(4)) => ActQuant::Int4,
                (_, Ok(8)) => ActQuant::Int8,
                _ => return Err(unknown),
            };
        }
        "engram_orders" => {
            let fault = |rule| place(ConfigKey::EngramOrders, rule, value.at);
            let mut count = 0;
            for order in value.items().map_err(fault)? {
                if !(1..=32).contains(&order.integer().map_err(fault)?) {
                    return Err(fault(Rule::Range));
                }
                count += 1;
            }
            if count != 3 {
                return Err(fault(Rule::Length));
            }
        }
        "jepa_weight" | "jepa_mask_frac" | "dspark_weight" | "aux_fb_weight" | "mor_bce_weight" | "moe_lb_coef" | "msa_distill_weight"
        | "ponder_prior" => {
            if value.float().map_err(training)? < 0.0 {
                return Err(training(Rule::Range));
            }
        }
        "dspark_stride" | "aux_fb_horizon" => {
            if value.integer().map_err(training)? == 0 {
                return Err(training(Rule::NotZero));
            }
        }
        "jepa_mask_span" | "dspark_k" | "msa_kb" | "msa_q_heads" | "msa_block_r" | "msa_head_dim" => {
            value.integer().map_err(training)?;
        }
        // Read by models that are refused.
        other if other.starts_with("byteflow_") => (),
        _ => return Err(place(ConfigKey::Other, Rule::Unknown, key.at)),
    }
    Ok(())
}

fn word(value: &Value<'_>) -> Result<u32, Rule> {
    u32::try_from(value.integer()?).map_err(|_| Rule::TooLarge)
}

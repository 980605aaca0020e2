//! `[config]` of a dormouse model in a format-2 header, and the tensors that such a file has: those that inference reads, matrices with their inputs last, ternary factors as codes.

use super::header::{Header, TensorEntry, Tokenizer};
use super::toml_text::{BOOL, F32, Keys, Text, U32};
use super::{HeaderError, check};
use crate::arch::dormouse::tensors::Form;
use crate::arch::dormouse::{ActQuant, Attention, DormouseConfig, Residual};
use crate::{DType, KvDType};
use toml::Table;

const ATTENTIONS: [(&str, Attention); 3] = [("none", Attention::None), ("kda", Attention::Kda), ("plain", Attention::Plain)];
const RESIDUALS: [(&str, Residual); 4] =
    [("rezero", Residual::ReZero), ("gr", Residual::Gr), ("attnres", Residual::AttnRes), ("mhc", Residual::Mhc)];
const ROUNDINGS: [(&str, ActQuant); 4] =
    [("none", ActQuant::None), ("fp4", ActQuant::Fp4), ("int4", ActQuant::Int4), ("int8", ActQuant::Int8)];

/// Reads the table; every key must be there, and no other.
pub(super) fn parse(table: Table) -> Result<DormouseConfig, HeaderError> {
    let mut keys = Keys::new("config".into(), table);
    let config = DormouseConfig {
        d_model: keys.required("d_model", &U32)?,
        n_heads: keys.required("n_heads", &U32)?,
        head_dim: keys.required("head_dim", &U32)?,
        d_ffn: keys.required("d_ffn", &U32)?,
        vocab: keys.required("vocab", &U32)?,
        max_seq_len: keys.required("max_seq_len", &U32)?,
        max_iter: keys.required("max_iter", &U32)?,
        rank: keys.required("rank", &U32)?,
        norm_eps: keys.required("norm_eps", &F32)?,
        attention: keys.named("attention", &ATTENTIONS)?,
        kda_scale: Some(keys.required("kda_scale", &F32)?),
        use_tsct: keys.required("use_tsct", &BOOL)?,
        use_engram: keys.required("use_engram", &BOOL)?,
        engram_rows: keys.required("engram_rows", &U32)?,
        engram_dim: keys.required("engram_dim", &U32)?,
        engram_lam_max: keys.required("engram_lam_max", &F32)?,
        residual: keys.named("residual", &RESIDUALS)?,
        attnres_gain: keys.required("attnres_gain", &BOOL)?,
        mhc_streams: keys.required("mhc_streams", &U32)?,
        n_experts: keys.required("n_experts", &U32)?,
        moe_topk: keys.required("moe_topk", &U32)?,
        use_situ: keys.required("use_situ", &BOOL)?,
        use_mor: keys.required("use_mor", &BOOL)?,
        mor_k: keys.required("mor_k", &U32)?,
        act_quant: keys.named("act_quant", &ROUNDINGS)?,
        act_group: keys.required("act_group", &U32)?,
    };
    keys.refuse_rest()?;
    Ok(config)
}

/// Writes the table.
pub(super) fn write(text: &mut Text, config: &DormouseConfig) {
    fn name<T: PartialEq>(names: &[(&'static str, T)], value: &T) -> &'static str {
        names.iter().find(|(_, known)| known == value).map_or("", |(name, _)| name)
    }
    text.head("[config]");
    text.plain("d_model", config.d_model);
    text.plain("n_heads", config.n_heads);
    text.plain("head_dim", config.head_dim);
    text.plain("d_ffn", config.d_ffn);
    text.plain("vocab", config.vocab);
    text.plain("max_seq_len", config.max_seq_len);
    text.plain("max_iter", config.max_iter);
    text.plain("rank", config.rank);
    text.float("norm_eps", config.norm_eps);
    text.text("attention", name(&ATTENTIONS, &config.attention));
    text.float("kda_scale", config.kda_scale.unwrap_or(0.0));
    text.plain("use_tsct", config.use_tsct);
    text.plain("use_engram", config.use_engram);
    text.plain("engram_rows", config.engram_rows);
    text.plain("engram_dim", config.engram_dim);
    text.float("engram_lam_max", config.engram_lam_max);
    text.text("residual", name(&RESIDUALS, &config.residual));
    text.plain("attnres_gain", config.attnres_gain);
    text.plain("mhc_streams", config.mhc_streams);
    text.plain("n_experts", config.n_experts);
    text.plain("moe_topk", config.moe_topk);
    text.plain("use_situ", config.use_situ);
    text.plain("use_mor", config.use_mor);
    text.plain("mor_k", config.mor_k);
    text.text("act_quant", name(&ROUNDINGS, &config.act_quant));
    text.plain("act_group", config.act_group);
}

impl Header {
    /// A dormouse model's tokens are bytes, so there is no tokenizer. It keeps keys and values, where it has any, in f32 alone.
    pub(super) fn check_dormouse(&self, config: &DormouseConfig) -> Result<(), HeaderError> {
        config.validate()?;
        if config.kda_scale.is_none() {
            return Err(HeaderError::wrong("config.kda_scale", "nothing", "a number above 0"));
        }
        if self.tokenizer != Tokenizer::NONE {
            return Err(HeaderError::wrong("tokenizer.kind", self.tokenizer.kind.name(), "none: a dormouse model's tokens are bytes"));
        }
        check::check_entries(&self.tensors)?;
        check_list(config, &self.tensors)?;
        for (number, golden) in self.golden.iter().enumerate() {
            if golden.kv != KvDType::F32 {
                return Err(HeaderError::wrong(format!("golden[{number}].kv"), golden.kv.name(), "f32: this architecture has no other"));
            }
            check::check_golden(&format!("golden[{number}]"), golden, (config.vocab, config.max_seq_len))?;
        }
        Ok(())
    }
}

fn check_list(config: &DormouseConfig, tensors: &[TensorEntry]) -> Result<(), HeaderError> {
    let read = (0..config.num_tensors()).filter_map(|number| config.tensor(number)).filter(|spec| spec.is_read);
    let mut entries = tensors.iter().enumerate();
    for wanted in read {
        let Some((number, entry)) = entries.next() else {
            return Err(HeaderError::wrong("tensors", "no more of them", format!("\"{wanted}\", which the configuration calls for")));
        };
        let key = |key| format!("tensors[{number}].{key} ({wanted})");
        let spec = &entry.spec;
        if spec.name != wanted.to_string() {
            return Err(HeaderError::wrong(
                key("name"),
                format!("{:?}", spec.name),
                format!("\"{wanted}\", which the configuration calls for here"),
            ));
        }
        let dims = wanted.turned_dims();
        if spec.dims != dims {
            let allowed = format!("{:?}, which the configuration calls for", dims.as_slice());
            return Err(HeaderError::wrong(key("dims"), format!("{:?}", spec.dims.as_slice()), allowed));
        }
        let (fits, allowed) = match wanted.form {
            Form::Plain => (spec.dtype == DType::F32, "f32"),
            Form::FactorFirst | Form::FactorLast => (spec.dtype == DType::T2, "t2"),
            Form::Table | Form::InputFirst => (spec.dtype.is_weight(), "f32, f16, bf16, q8, q4 or t2"),
        };
        if !fits {
            return Err(HeaderError::wrong(key("dtype"), spec.dtype, allowed));
        }
        if !spec.trainable || spec.transposed != wanted.form.is_turned() {
            let turned = wanted.form.is_turned();
            return Err(HeaderError::wrong(key("transposed"), spec.transposed, format!("{turned}, and a kind of trainable")));
        }
    }
    match entries.next() {
        None => Ok(()),
        Some((number, extra)) => Err(HeaderError::wrong(
            format!("tensors[{number}].name"),
            format!("{:?}", extra.spec.name),
            format!("{number} tensors, which inference reads with this configuration"),
        )),
    }
}

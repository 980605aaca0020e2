//! The configuration of a Llama-family model from GGUF's metadata. Every key of the architecture is mapped, or known to change nothing at its value, or refused.

use super::container::{AGAIN, Container, TensorType};
use crate::checkpoint::{Fixed, LlamaSource, rope};
use crate::error::{Error, Result};
use dmexp_format::arch::llama::{LlamaConfig, RopeLayout};
use dmexp_format::host::Scalar;
use std::collections::BTreeMap;

/// An architecture that the Llama graph computes exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    /// Llama, Mistral, `SmolLM`: q and k rows in interleaved pairs.
    Llama,
    /// Qwen2: pairs half a head apart, biases on q, k and v.
    Qwen2,
}

impl Family {
    /// The prefix of its keys.
    pub(super) fn prefix(self) -> &'static str {
        match self {
            Self::Llama => "llama",
            Self::Qwen2 => "qwen2",
        }
    }

    fn rope_layout(self) -> RopeLayout {
        match self {
            Self::Llama => RopeLayout::Interleaved,
            Self::Qwen2 => RopeLayout::Half,
        }
    }
}

/// The architecture that the file states.
pub(super) fn family(container: &Container<'_>) -> Result<Family> {
    if let Some(kind @ ("adapter" | "mmproj" | "imatrix")) = container.text("general.type")? {
        return Err(
            Error::not_a_model(format!("is a GGUF file of the type {kind:?}, which is no language model")).advise("name the model's file")
        );
    }
    if let Some(count) = container.unsigned("split.count")?.filter(|count| *count > 1) {
        let what = format!("is one of {count} parts of a model");
        return Err(Error::not_a_model(what).advise("put them together with llama.cpp's llama-gguf-split --merge"));
    }
    match container.text("general.architecture")? {
        Some("llama") => Ok(Family::Llama),
        Some("qwen2") => Ok(Family::Qwen2),
        Some(other) => Err(Error::not_a_model(format!("is a model of the architecture {other:?}, which this version does not import"))
            .advise("llama (Llama, Mistral, SmolLM and their like) and qwen2 are imported")),
        None => Err(Error::damaged("is a GGUF file without general.architecture").advise(AGAIN)),
    }
}

/// Reads the configuration. Nothing of the tensors is looked at but which there are.
pub(super) fn read(container: &Container<'_>, family: Family) -> Result<LlamaSource> {
    let keys = Keys { container, prefix: family.prefix() };
    let mut fixed = Vec::new();
    let embedding = container.tensors.iter().find(|tensor| tensor.name == "token_embd.weight");
    let Some(embedding) = embedding else {
        return Err(Error::mismatch("has no tensor token_embd.weight").advise(AGAIN));
    };
    let has = |name: &str| container.tensors.iter().any(|tensor| tensor.name == name);
    let vocab_size = size("the rows of token_embd.weight", embedding.sizes[1])?;
    if let Some(stated) = keys.size("vocab_size")?.filter(|stated| *stated != vocab_size) {
        let what = format!("{}.vocab_size is {stated}, but token_embd.weight has {vocab_size} rows", keys.prefix);
        return Err(Error::mismatch(what).advise(AGAIN));
    }
    let dim = keys.needed("embedding_length")?;
    let n_heads = keys.needed("attention.head_count")?;
    let n_kv_heads = keys.size("attention.head_count_kv")?.unwrap_or_else(|| {
        fixed.push(Fixed { key: "n_kv_heads", value: "as many as n_heads", why: UNSTATED });
        n_heads
    });
    let norm_eps = keys.float("attention.layer_norm_rms_epsilon")?.ok_or_else(|| keys.missing("attention.layer_norm_rms_epsilon"))? as f32;
    let config = LlamaConfig {
        dim,
        hidden_dim: keys.needed("feed_forward_length")?,
        n_layers: keys.needed("block_count")?,
        n_heads,
        n_kv_heads,
        head_dim: head_dim(&keys, dim, n_heads)?,
        vocab_size,
        max_seq_len: keys.needed("context_length")?,
        norm_eps,
        rope_layout: family.rope_layout(),
        attention_factor: 1.0,
        tied_embeddings: !has("output.weight"),
        qkv_bias: family == Family::Qwen2 || has("blk.0.attn_q.bias"),
        sliding_window: keys.size("attention.sliding_window")?.unwrap_or(0),
    };
    config.validate().map_err(|error| Error::damaged(format!("its configuration is not possible: {error}")).advise(AGAIN))?;
    refuse_other_keys(&keys, &config)?;
    let rope_theta = keys.float("rope.freq_base")?.unwrap_or_else(|| {
        fixed.push(Fixed { key: "rope_theta", value: "10000", why: UNSTATED });
        10_000.0
    });
    let Rotation { inv_freq, scaling } = rotation(&keys, &config, rope_theta)?;
    let layout = if config.rope_layout == RopeLayout::Half { "half" } else { "interleaved" };
    fixed.push(Fixed { key: "rope_layout", value: layout, why: "fixed by the architecture" });
    fixed.push(Fixed { key: "attention_factor", value: "1", why: "no scaling that changes it" });
    Ok(LlamaSource { config, rope_theta, rope_scaling: scaling, inv_freq, fixed })
}

const UNSTATED: &str = "llama.cpp's default where the file does not say";

/// The keys of one architecture.
struct Keys<'c, 'a> {
    container: &'c Container<'a>,
    prefix: &'static str,
}

impl Keys<'_, '_> {
    fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.prefix)
    }

    fn size(&self, name: &str) -> Result<Option<u32>> {
        let key = self.key(name);
        self.container.unsigned(&key)?.map(|value| size(&key, value)).transpose()
    }

    fn float(&self, name: &str) -> Result<Option<f64>> {
        self.container.float(&self.key(name))
    }

    fn needed(&self, name: &str) -> Result<u32> {
        self.size(name)?.ok_or_else(|| self.missing(name))
    }

    fn missing(&self, name: &str) -> Error {
        Error::damaged(format!("has no {}", self.key(name))).advise(AGAIN)
    }
}

fn size(what: &str, value: u64) -> Result<u32> {
    u32::try_from(value)
        .ok()
        .filter(|size| *size <= LlamaConfig::SIZE_LIMIT)
        .ok_or_else(|| Error::damaged(format!("{what} is {value}; at most {} is possible", LlamaConfig::SIZE_LIMIT)).advise(AGAIN))
}

/// The width of a head: stated, or the model's width through the heads.
fn head_dim(keys: &Keys<'_, '_>, dim: u32, n_heads: u32) -> Result<u32> {
    let by_heads = dim.checked_div(n_heads);
    let head_dim = match keys.size("attention.key_length")? {
        Some(length) => length,
        None if dim.checked_rem(n_heads) == Some(0) => by_heads.unwrap_or(0),
        None => {
            let what =
                format!("the width {dim} does not divide into {n_heads} heads, and there is no {}", keys.key("attention.key_length"));
            return Err(Error::mismatch(what).advise(AGAIN));
        }
    };
    // Where only one of the two is stated, llama.cpp takes the width through the heads for the other.
    let value_length = match (keys.size("attention.value_length")?, keys.size("attention.key_length")?) {
        (Some(length), _) => length,
        (None, Some(_)) => by_heads.unwrap_or(0),
        (None, None) => head_dim,
    };
    let rotated = keys.size("rope.dimension_count")?.unwrap_or(head_dim);
    for (what, found) in [("values have heads of", value_length), ("the rotation covers", rotated)] {
        if found != head_dim {
            return Err(Error::not_a_model(format!(
                "{what} {found} elements, but keys have heads of {head_dim}, which this version cannot compute"
            )));
        }
    }
    Ok(head_dim)
}

/// The rotation frequencies, and what scales them in words.
struct Rotation {
    inv_freq: Vec<f32>,
    scaling: BTreeMap<String, Scalar>,
}

/// The frequencies of theta, divided by the factors of Llama 3 and the one of linear scaling where there are any.
fn rotation(keys: &Keys<'_, '_>, config: &LlamaConfig, theta: f64) -> Result<Rotation> {
    if !(theta.is_finite() && theta > 0.0) {
        return Err(Error::damaged(format!("{} is {theta}", keys.key("rope.freq_base"))).advise(AGAIN));
    }
    let linear = linear_factor(keys)?;
    let factors = factors(keys.container, config.head_dim / 2)?;
    let mut scaling = BTreeMap::new();
    if let Some(factor) = linear {
        scaling.insert("type".to_owned(), Scalar::Text("linear".to_owned()));
        scaling.insert("factor".to_owned(), Scalar::Float(factor));
    }
    if !factors.is_empty() {
        scaling.insert("divisors".to_owned(), Scalar::Text(ROPE_FACTORS.to_owned()));
    }
    let factor = |pair: u32| factors.get(pair as usize).map_or(1.0, |factor| f64::from(*factor));
    let frequency = |pair| rope::frequency(theta, config.head_dim, pair) / factor(pair) / linear.unwrap_or(1.0);
    Ok(Rotation { inv_freq: (0..config.head_dim / 2).map(|pair| frequency(pair) as f32).collect(), scaling })
}

/// The factor of linear scaling; `None` where there is none.
fn linear_factor(keys: &Keys<'_, '_>) -> Result<Option<f64>> {
    let kind_key = keys.key("rope.scaling.type");
    let (name, factor) = match (keys.container.text(&kind_key)?, keys.float("rope.scale_linear")?) {
        (Some("linear"), None) => ("rope.scaling.factor", keys.float("rope.scaling.factor")?),
        (None | Some("none"), Some(factor)) => ("rope.scale_linear", Some(factor)),
        (None | Some("none"), None) => {
            // llama.cpp scales by a factor whose kind is not stated as if it were linear.
            let factor = if keys.container.value(&kind_key).is_some() { None } else { keys.float("rope.scaling.factor")? };
            ("rope.scaling.factor", factor)
        }
        (Some("linear"), Some(_)) => {
            let what = format!("{} and {} contradict each other", keys.key("rope.scale_linear"), kind_key);
            return Err(Error::damaged(what).advise(AGAIN));
        }
        (Some(other), _) => {
            let what = format!("{kind_key} is {other:?}, which this version cannot compute");
            return Err(Error::not_a_model(what).advise("none and linear are computed, and the factors of Llama 3 (rope_freqs.weight)"));
        }
    };
    match factor {
        Some(factor) if !(factor.is_finite() && factor > 0.0) => {
            Err(Error::damaged(format!("{} is {factor}", keys.key(name))).advise(AGAIN))
        }
        // What a factor of 1 scales stays as it is.
        factor => Ok(factor.filter(|factor| *factor != 1.0)),
    }
}

/// The factors of the tensor `rope_freqs.weight`; none where it is not there.
fn factors(container: &Container<'_>, pairs: u32) -> Result<Vec<f32>> {
    let Some(tensor) = container.tensors.iter().find(|tensor| tensor.name == ROPE_FACTORS) else {
        return Ok(Vec::new());
    };
    let wrong = |what: String| Error::mismatch(format!("{ROPE_FACTORS} {what}")).advise(AGAIN);
    if tensor.kind != TensorType::F32 || tensor.sizes != [u64::from(pairs), 1, 1, 1] {
        return Err(wrong(format!("is {} {:?}; half a head in F32 is {pairs}", tensor.kind.name(), tensor.shape())));
    }
    let factors: Vec<f32> = container.data(tensor).as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
    match factors.iter().position(|factor| !(factor.is_finite() && *factor > 0.0)) {
        Some(place) => Err(wrong(format!("has {} at {place}, where only positive factors are possible", factors[place]))),
        None => Ok(factors),
    }
}

/// The tensor that holds the factors by which Llama 3 divides its rotation frequencies.
pub(super) const ROPE_FACTORS: &str = "rope_freqs.weight";

/// Keys that are read above.
const READ: [&str; 14] = [
    "vocab_size",
    "embedding_length",
    "attention.head_count",
    "attention.head_count_kv",
    "attention.layer_norm_rms_epsilon",
    "feed_forward_length",
    "block_count",
    "context_length",
    "attention.sliding_window",
    "attention.key_length",
    "attention.value_length",
    "rope.dimension_count",
    "rope.freq_base",
    "rope.scaling.type",
];
/// Keys that change nothing: what linear scaling was trained from, and factors that are read with their kind.
const HARMLESS: [&str; 4] = ["rope.scaling.factor", "rope.scale_linear", "rope.scaling.original_context_length", "rope.scaling.finetuned"];
/// Keys that change nothing while they are 0 (or false).
const ZERO: [&str; 9] = [
    "expert_count",
    "expert_used_count",
    "use_parallel_residual",
    "attention.clamp_kqv",
    "attention.max_alibi_bias",
    "attention.scale",
    "attn_logit_softcapping",
    "final_logit_softcapping",
    "pooling_type",
];
/// Keys that change nothing while they are 1 (or true).
const ONE: [&str; 5] = ["attention.causal", "logit_scale", "residual_scale", "embedding_scale", "rope.scaling.attn_factor"];

/// Refuses every key of the architecture that is not mapped, unless its value is known to change nothing.
fn refuse_other_keys(keys: &Keys<'_, '_>, config: &LlamaConfig) -> Result<()> {
    use super::value::Value;
    for (key, value) in keys.container.keys() {
        let Some(name) = key.strip_prefix(keys.prefix).and_then(|rest| rest.strip_prefix('.')) else { continue };
        let number = match value {
            Value::Unsigned(number) => Some(number as f64),
            Value::Signed(number) => Some(number as f64),
            Value::Float(number) => Some(number),
            Value::Bool(flag) => Some(f64::from(u8::from(flag))),
            _ => None,
        };
        let usual_scale =
            name == "attention.scale" && number.is_some_and(|scale| scale as f32 == (1.0 / f64::from(config.head_dim).sqrt()) as f32);
        let harmless = READ.contains(&name)
            || HARMLESS.contains(&name)
            || ZERO.contains(&name) && number == Some(0.0)
            || ONE.contains(&name) && number == Some(1.0)
            || usual_scale
            || name == "tensor_data_layout" && value == Value::Text(b"Meta AI original pth");
        if !harmless {
            let what = format!("{key} is {}, which this version cannot compute", value.describe());
            return Err(Error::not_a_model(what).advise("it is refused because the exported model would not compute what this one does"));
        }
    }
    Ok(())
}

//! The configuration of a Llama-family model from GGUF's metadata. Every key of the architecture is mapped, or known to change nothing at its value, or refused.

use super::container::{AGAIN, Container};
use super::rotation::{self, Rotation};
use crate::checkpoint::{Fixed, LlamaSource};
use crate::error::{Error, Result};
use dmexp_format::arch::llama::{LlamaConfig, RopeLayout};

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
    let mut config = LlamaConfig {
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
    let Rotation { inv_freq, attention_factor, scaling } = rotation::read(&keys, &config, rope_theta)?;
    config.attention_factor = attention_factor;
    let layout = if config.rope_layout == RopeLayout::Half { "half" } else { "interleaved" };
    fixed.push(Fixed { key: "rope_layout", value: layout, why: "fixed by the architecture" });
    if attention_factor == 1.0 {
        fixed.push(Fixed { key: "attention_factor", value: "1", why: "no scaling that changes it" });
    }
    Ok(LlamaSource { config, rope_theta, rope_scaling: scaling, inv_freq, fixed })
}

const UNSTATED: &str = "llama.cpp's default where the file does not say";

/// The keys of one architecture.
pub(super) struct Keys<'c, 'a> {
    pub(super) container: &'c Container<'a>,
    prefix: &'static str,
}

impl Keys<'_, '_> {
    pub(super) fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.prefix)
    }

    pub(super) fn size(&self, name: &str) -> Result<Option<u32>> {
        let key = self.key(name);
        self.container.unsigned(&key)?.map(|value| size(&key, value)).transpose()
    }

    pub(super) fn float(&self, name: &str) -> Result<Option<f64>> {
        self.container.float(&self.key(name))
    }

    /// A number that has to be finite and above 0 where it is there.
    pub(super) fn positive(&self, name: &str) -> Result<Option<f64>> {
        match self.float(name)? {
            Some(number) if !(number.is_finite() && number > 0.0) => {
                Err(Error::damaged(format!("{} is {number}; it has to be above 0", self.key(name))).advise(AGAIN))
            }
            number => Ok(number),
        }
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
/// Keys that are read with the kind of scaling, and whether the model was trained with it, which changes nothing.
const OF_SCALING: [&str; 5] = [
    "rope.scaling.factor",
    "rope.scaling.attn_factor",
    "rope.scale_linear",
    "rope.scaling.original_context_length",
    "rope.scaling.finetuned",
];
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
const ONE: [&str; 4] = ["attention.causal", "logit_scale", "residual_scale", "embedding_scale"];

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
            || OF_SCALING.contains(&name)
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

//! config.json to the configuration of our Llama graph: everything that decides what is computed is carried or refused by name.

use super::{keys, rope};
use crate::checkpoint::json::{Keys, shown};
use crate::checkpoint::{Fixed, LlamaSource};
use crate::error::{Error, Result};
use dmexp_format::arch::llama::{LlamaConfig, RopeLayout};
use serde_json::{Map, Value};

/// The classes of the transformers library whose graph ours is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    Llama,
    Mistral,
    Qwen2,
}

const FAMILIES: [(&str, &str, Family); 3] = [
    ("LlamaForCausalLM", "llama", Family::Llama),
    ("MistralForCausalLM", "mistral", Family::Mistral),
    ("Qwen2ForCausalLM", "qwen2", Family::Qwen2),
];
const KNOWN: &str = "this version imports LlamaForCausalLM (SmolLM2 among them), MistralForCausalLM and Qwen2ForCausalLM";

/// What config.json says.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Model {
    /// The configuration; `tied_embeddings` is what `tied` says, false where it says nothing.
    pub(super) source: LlamaSource,
    /// Whether the classifier is the embedding; `None` where config.json does not say.
    pub(super) tied: Option<bool>,
    /// What a user should know.
    pub(super) notes: Vec<String>,
}

/// Reads the configuration.
///
/// # Errors
/// [`Class::NotAModel`](crate::error::Class::NotAModel) for what the graph does not carry, [`Class::Damaged`](crate::error::Class::Damaged) for values that are missing or cannot be, both with the key.
pub(super) fn read(config: &Map<String, Value>) -> Result<Model> {
    let keys = Keys::new(config, "");
    let family = family(&keys)?;
    no_own_code(&keys)?;
    not_quantised(&keys)?;
    let size = |key: &str| keys.required(key, keys.u32(key)?);
    let mut fixed = Vec::new();
    let dim = size("hidden_size")?;
    let hidden_dim = size("intermediate_size")?;
    let n_layers = size("num_hidden_layers")?;
    let n_heads = size("num_attention_heads")?;
    let n_kv_heads = match keys.u32("num_key_value_heads")? {
        Some(heads) => heads,
        None if family == Family::Llama => n_heads,
        // The library's default for these is a number of one certain model.
        None => return Err(Error::damaged("has no num_key_value_heads")),
    };
    let head_dim = match keys.u32("head_dim")? {
        Some(head_dim) => head_dim,
        None if n_heads > 0 && dim.is_multiple_of(n_heads) => dim / n_heads,
        None => {
            let what = format!("num_attention_heads is {n_heads}, which does not divide hidden_size, {dim}, and there is no head_dim");
            return Err(Error::damaged(what));
        }
    };
    let max_seq_len = size("max_position_embeddings")?;
    let norm_eps = keys.required("rms_norm_eps", keys.f64("rms_norm_eps")?)? as f32;
    activation(&keys)?;
    biases(&keys, family)?;
    let sliding_window = window(&keys, family, n_layers, max_seq_len, &mut fixed)?;
    let mut notes = keys::check(config)?;
    // Sizes are judged before anything is made of them.
    let mut model = LlamaConfig {
        dim,
        hidden_dim,
        n_layers,
        n_heads,
        n_kv_heads,
        head_dim,
        vocab_size: size("vocab_size")?,
        max_seq_len,
        norm_eps,
        rope_layout: RopeLayout::Interleaved,
        attention_factor: 1.0,
        tied_embeddings: false,
        qkv_bias: family == Family::Qwen2,
        sliding_window,
    };
    let judge = |model: &LlamaConfig| model.validate().map_err(|error| Error::damaged(error.to_string()));
    judge(&model)?;
    let rope = rope::read(config, head_dim, max_seq_len)?;
    if !rope.theta_stated {
        fixed.push(Fixed { key: "rope_theta", value: "10000", why: LIBRARY });
    }
    model.attention_factor = rope.attention_factor;
    let tied = keys.bool("tie_word_embeddings")?;
    model.tied_embeddings = tied == Some(true);
    judge(&model)?;
    if sliding_window >= max_seq_len {
        model.sliding_window = 0;
        notes.push(format!(
            "the window of {sliding_window} positions is no shorter than the context: attention looks back to the beginning"
        ));
    }
    let source = LlamaSource { config: model, rope_theta: rope.theta, rope_scaling: rope.scaling, inv_freq: rope.inv_freq, fixed };
    Ok(Model { source, tied, notes })
}

const LIBRARY: &str = "not stated: the transformers library's default";

fn family(keys: &Keys<'_>) -> Result<Family> {
    let unknown = |what: String| Err(Error::not_a_model(what).advise(KNOWN));
    let by_class = match keys.list("architectures")?.unwrap_or_default() {
        [] => None,
        [Value::String(class)] => match FAMILIES.iter().find(|(name, ..)| name == class) {
            Some((.., family)) => Some(*family),
            None => return unknown(format!("is a model of the architecture {class:?}")),
        },
        other => return unknown(format!("architectures is {}, not one name", shown(&Value::Array(other.to_vec())))),
    };
    let by_type = match keys.text("model_type")? {
        None => None,
        Some(name) => match FAMILIES.iter().find(|(_, kind, _)| *kind == name) {
            Some((.., family)) => Some(*family),
            None => return unknown(format!("is a model of the type {name:?}")),
        },
    };
    match (by_class, by_type) {
        (Some(class), Some(kind)) if class != kind => Err(Error::mismatch("architectures and model_type name two kinds of model")),
        (Some(family), _) | (None, Some(family)) => Ok(family),
        (None, None) => Err(Error::damaged("has neither architectures nor model_type")),
    }
}

/// A model that brings its own code is whatever that code computes.
fn no_own_code(keys: &Keys<'_>) -> Result<()> {
    let Some(map) = keys.object("auto_map")? else { return Ok(()) };
    match map.iter().find(|(class, _)| class.starts_with("AutoModel")) {
        None => Ok(()),
        Some((class, code)) => {
            let what = format!("auto_map names code of its own for {class} ({}): what it computes cannot be known", shown(code));
            Err(Error::not_a_model(what))
        }
    }
}

fn not_quantised(keys: &Keys<'_>) -> Result<()> {
    let Some(table) = keys.object("quantization_config")? else { return Ok(()) };
    let method = Keys::new(table, "quantization_config.").text("quant_method")?.unwrap_or("a method that is not named");
    Err(Error::not_a_model(format!("quantization_config: the weights are quantised by {method}"))
        .advise("import the model that was quantised"))
}

fn activation(keys: &Keys<'_>) -> Result<()> {
    for key in ["hidden_act", "hidden_activation"] {
        match keys.text(key)? {
            None | Some("silu" | "swish") => {}
            Some(other) => {
                return Err(Error::not_a_model(format!("{key} is {other:?}: the activation of this version is \"silu\"")));
            }
        }
    }
    if keys.value("hidden_act").or(keys.value("hidden_activation")).is_none() {
        return Err(Error::damaged("has no hidden_act"));
    }
    Ok(())
}

fn biases(keys: &Keys<'_>, family: Family) -> Result<()> {
    match (keys.bool("attention_bias")?, family) {
        (Some(true), Family::Llama | Family::Mistral) => {
            let what = "attention_bias is true: the output projection of attention (o_proj) has a bias, which this version does not have";
            return Err(Error::not_a_model(what));
        }
        (Some(false), Family::Qwen2) => {
            return Err(Error::mismatch("attention_bias is false, but q, k and v of a Qwen2ForCausalLM have biases"));
        }
        _ => {}
    }
    if keys.bool("mlp_bias")? == Some(true) {
        return Err(Error::not_a_model("mlp_bias is true: the feed-forward projections have biases, which this version does not have"));
    }
    Ok(())
}

/// How far attention looks back: 0 is to the beginning. What the library does: a window of n is n positions with the current one.
fn window(keys: &Keys<'_>, family: Family, n_layers: u32, max_seq_len: u32, fixed: &mut Vec<Fixed>) -> Result<u32> {
    let stated = keys.u32("sliding_window")?;
    if stated == Some(0) {
        return Err(Error::damaged("sliding_window is 0; it can be null or a number from 1 on"));
    }
    let switched_on = keys.bool("use_sliding_window")?;
    let by_family = match family {
        Family::Llama => match stated {
            Some(window) if window < max_seq_len => {
                return Err(Error::not_a_model(format!("sliding_window is {window}, which a LlamaForCausalLM does not have")).advise(
                    "if the model was trained with it, its architecture is MistralForCausalLM; if not, sliding_window should be null",
                ));
            }
            _ => 0,
        },
        Family::Mistral if keys.has("sliding_window") => stated.unwrap_or(0),
        Family::Mistral => {
            fixed.push(Fixed { key: "sliding_window", value: "4096", why: LIBRARY });
            4096
        }
        Family::Qwen2 if switched_on == Some(true) => {
            let window = keys.required("sliding_window", stated)?;
            // Layers from this one on have the window.
            match (keys.list("layer_types")?, keys.u32("max_window_layers")?) {
                (Some(_), _) | (None, Some(0)) => window,
                (None, Some(first)) if first >= n_layers => 0,
                (None, Some(_)) if window >= max_seq_len => 0,
                (None, Some(first)) => {
                    let what = format!(
                        "max_window_layers is {first}: layers from there on have a window of {window} positions and those before have none"
                    );
                    return Err(Error::not_a_model(what).advise("this version has one window for all layers"));
                }
                (None, None) => return Err(Error::damaged("has use_sliding_window but no max_window_layers")),
            }
        }
        Family::Qwen2 => 0,
    };
    match keys.list("layer_types")? {
        None => Ok(by_family),
        Some(types) => by_layer(types, by_family, n_layers),
    }
}

fn by_layer(types: &[Value], by_family: u32, n_layers: u32) -> Result<u32> {
    if types.len() as u64 != u64::from(n_layers) {
        return Err(Error::mismatch(format!("layer_types has {} entries, the model {n_layers} layers", types.len())));
    }
    let all = |name: &str| types.iter().all(|kind| kind == name);
    match (all("full_attention"), all("sliding_attention"), by_family) {
        (true, _, 0) => Ok(0),
        (_, true, window @ 1..) => Ok(window),
        (true, ..) => {
            Err(Error::mismatch(format!("layer_types says full_attention of every layer, but there is a window of {by_family} positions")))
        }
        (_, true, ..) => Err(Error::mismatch("layer_types says sliding_attention of every layer, but no window is switched on")),
        _ => {
            let what = format!("layer_types is {}", shown(&Value::Array(types.to_vec())));
            Err(Error::not_a_model(what).advise("this version has one kind of attention for all layers"))
        }
    }
}

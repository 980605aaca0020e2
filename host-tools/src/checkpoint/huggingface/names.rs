//! The names of Hugging Face's Llama tensors, and the arrays of a checkpoint made of the tensors that a model has.

use crate::checkpoint::array::Array;
use crate::error::{Error, Result};
use dmexp_format::arch::llama::{LlamaConfig, TensorKind, TensorSpec};
use std::collections::BTreeMap;

/// A tensor as its file has it, and that file's name.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) array: Array,
    pub(super) file_name: String,
}

/// All tensors of a model, by name.
pub(super) type Tensors = BTreeMap<String, Found>;

/// The classifier, where it is not the embedding.
pub(super) const LM_HEAD: &str = "lm_head.weight";
/// The embedding.
pub(super) const EMBEDDING: &str = "model.embed_tokens.weight";

/// What Hugging Face calls a tensor; `None` for the frequencies, which it does not store.
pub(crate) fn tensor_name(spec: &TensorSpec) -> Option<String> {
    let within = match spec.kind {
        TensorKind::TokEmbeddings => return Some(EMBEDDING.to_owned()),
        TensorKind::Norm => return Some("model.norm.weight".to_owned()),
        TensorKind::Output => return Some(LM_HEAD.to_owned()),
        TensorKind::AttentionNorm => "input_layernorm.weight",
        TensorKind::Wq => "self_attn.q_proj.weight",
        TensorKind::Wk => "self_attn.k_proj.weight",
        TensorKind::Wv => "self_attn.v_proj.weight",
        TensorKind::Bq => "self_attn.q_proj.bias",
        TensorKind::Bk => "self_attn.k_proj.bias",
        TensorKind::Bv => "self_attn.v_proj.bias",
        TensorKind::Wo => "self_attn.o_proj.weight",
        TensorKind::FfnNorm => "post_attention_layernorm.weight",
        TensorKind::W1 => "mlp.gate_proj.weight",
        TensorKind::W3 => "mlp.up_proj.weight",
        TensorKind::W2 => "mlp.down_proj.weight",
        TensorKind::RopeInvFreq => return None,
    };
    Some(format!("model.layers.{}.{within}", spec.layer?))
}

/// Takes the tensors that the configuration calls for out of `tensors`, in its order, rows of q and k re-ordered from rotary halves to interleaved pairs; refuses what is left over.
///
/// # Errors
/// [`Class::Mismatch`](crate::error::Class::Mismatch) for a tensor that is missing, has other dims, or is not called for.
pub(super) fn arrays(config: &LlamaConfig, mut tensors: Tensors) -> Result<Vec<Array>> {
    let mut arrays = Vec::new();
    for number in 0..config.weight_tensors() {
        let Some(spec) = config.tensor(number) else { break };
        let Some(name) = tensor_name(&spec) else { continue };
        let Some(Found { array, file_name }) = tensors.remove(&name) else {
            return Err(Error::mismatch(format!("has no tensor {name}, which config.json calls for")));
        };
        let (found, wanted) = (array.dims, spec.dims);
        if found != wanted {
            let what = format!("{name} in {file_name} is {:?}; config.json calls for {:?}", found.as_slice(), wanted.as_slice());
            return Err(Error::mismatch(what));
        }
        let array = match spec.kind {
            TensorKind::Wq | TensorKind::Wk | TensorKind::Bq | TensorKind::Bk => array.interleave_halves(config.head_dim)?,
            _ => array,
        };
        arrays.push(array.named(spec.to_string()));
    }
    let mut extra = tensors.iter().filter(|(name, _)| !is_frequencies(name));
    match extra.next() {
        None => Ok(arrays),
        Some((name, found)) => {
            let more = extra.count();
            let others = if more == 0 { String::new() } else { format!(" and {more} more") };
            let what = format!("{}: has a tensor {name}{others} that a model of this architecture does not use", found.file_name);
            Err(Error::mismatch(what).advise("the model computes something that this version would leave out"))
        }
    }
}

/// The rotation frequencies that the library stored up to version 4.31 and reads no more: it computes them from config.json, and so does this reader.
fn is_frequencies(name: &str) -> bool {
    let layer = name.strip_prefix("model.layers.").and_then(|rest| rest.strip_suffix(".self_attn.rotary_emb.inv_freq"));
    layer.is_some_and(|layer| !layer.is_empty() && layer.bytes().all(|digit| digit.is_ascii_digit())) || name == "model.rotary_emb.inv_freq"
}

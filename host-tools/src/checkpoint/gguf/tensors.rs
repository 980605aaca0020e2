//! The tensors of a Llama-family model by GGUF's names, matched strictly with what the configuration calls for.

use super::container::{AGAIN, Container, Tensor, TensorType};
use super::rotation::DIVISORS;
use crate::checkpoint::Encoding;
use crate::checkpoint::array::Array;
use crate::error::{Error, Result};
use dmexp_format::Dims;
use dmexp_format::arch::llama::{LlamaConfig, TensorKind, TensorSpec};
use std::collections::HashMap;

/// GGUF's name of a tensor.
fn name(spec: &TensorSpec) -> String {
    let stem = match spec.kind {
        TensorKind::TokEmbeddings => "token_embd.weight",
        TensorKind::AttentionNorm => "attn_norm.weight",
        TensorKind::Wq => "attn_q.weight",
        TensorKind::Wk => "attn_k.weight",
        TensorKind::Wv => "attn_v.weight",
        TensorKind::Bq => "attn_q.bias",
        TensorKind::Bk => "attn_k.bias",
        TensorKind::Bv => "attn_v.bias",
        TensorKind::Wo => "attn_output.weight",
        TensorKind::FfnNorm => "ffn_norm.weight",
        TensorKind::W1 => "ffn_gate.weight",
        TensorKind::W3 => "ffn_up.weight",
        TensorKind::W2 => "ffn_down.weight",
        TensorKind::Norm => "output_norm.weight",
        TensorKind::Output => "output.weight",
        TensorKind::RopeInvFreq => DIVISORS,
    };
    match spec.layer {
        Some(layer) => format!("blk.{layer}.{stem}"),
        None => stem.to_owned(),
    }
}

/// The arrays in the order of [`LlamaConfig::tensor`]: each there, of the right dims, and none left over.
pub(super) fn arrays(container: &Container<'_>, config: &LlamaConfig) -> Result<Vec<Array>> {
    let mut left: HashMap<&str, &Tensor<'_>> = container.tensors.iter().map(|tensor| (tensor.name, tensor)).collect();
    left.remove(DIVISORS);
    // No more than the file lists, however many layers the configuration claims.
    let mut arrays = Vec::new();
    for number in 0..config.weight_tensors() {
        let Some(spec) = config.tensor(number) else { break };
        let wanted = name(&spec);
        let Some(tensor) = left.remove(wanted.as_str()) else {
            let what = format!("has no tensor {wanted}, which its configuration calls for");
            return Err(Error::mismatch(what).advise(AGAIN));
        };
        if !fits(tensor, spec.dims) {
            let mut expected = spec.dims.as_slice().to_vec();
            expected.reverse();
            let what = format!("{wanted} has the sizes {:?}; its configuration calls for {expected:?}", tensor.shape());
            return Err(Error::mismatch(what).advise(AGAIN));
        }
        arrays.push(Array::whole(spec.to_string(), spec.dims, 0, encoding(tensor)));
    }
    // The first of them in the file's order, so that the same file always gives the same error.
    match container.tensors.iter().find(|tensor| left.contains_key(tensor.name)) {
        Some(extra) => {
            let what = format!("has a tensor {} of the sizes {:?}, which its architecture has no place for", extra.name, extra.shape());
            Err(Error::mismatch(what).advise("it is refused because leaving it out would change what the model computes"))
        }
        None => Ok(arrays),
    }
}

/// Whether a tensor's sizes, the fastest-running first, are these dims, which have it last.
fn fits(tensor: &Tensor<'_>, dims: Dims) -> bool {
    dims.as_slice().iter().rev().map(|dim| u64::from(*dim)).eq(tensor.shape().iter().copied())
}

fn encoding(tensor: &Tensor<'_>) -> Encoding {
    let offset = tensor.offset;
    match tensor.kind {
        TensorType::F32 => Encoding::F32 { offset },
        TensorType::F16 => Encoding::F16 { offset },
        TensorType::Bf16 => Encoding::Bf16 { offset },
        TensorType::Blocks(kind) => Encoding::Blocks { offset, kind },
    }
}

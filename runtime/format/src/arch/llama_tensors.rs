//! Whether a file holds what its Llama configuration calls for, and nothing else: what `bind`, `verify` and `include_model!` rely on.

use super::Architecture;
use super::llama::{LlamaConfig, TensorKind};
use crate::file::{Entry, ModelFile};
use crate::{ConfigKey, DType, Error, Rule};

/// Checks every tensor of a Llama file against its configuration: number, order, names, dims, element types, and the number of parameters. Reads no payload; the
/// tokenizer's arrays were checked by [`ModelFile::open`].
///
/// # Errors
/// [`Error::OtherArchitecture`]; those of [`ModelFile::llama_config`] and [`ModelFile::tokenizer_facts`]; [`Error::TensorName`],
/// [`Error::Shape`] or [`Error::Tensor`] for the first tensor that is not the one wanted at its place; [`Error::Config`] where a count is another.
#[inline(never)]
pub fn check_tensors(file: &ModelFile<'_>) -> Result<LlamaConfig, Error> {
    let found = file.architecture();
    if found != Architecture::Llama {
        return Err(Error::OtherArchitecture { found: found.code(), expected: Architecture::Llama.code() });
    }
    let config = file.llama_config()?;
    // Format 1 has its rotation frequencies in the configuration, and no tokenizer.
    let indexed = !file.is_format_1();
    let weights = config.weight_tensors() + u32::from(indexed);
    let mut tensors = file.tensors();
    for number in 0..weights {
        let Some(tensor) = tensors.next_entry() else { return Err(Error::TensorName { tensor: number }) };
        check_weight(&config, &tensor, indexed)?;
    }
    let expected = weights + file.tokenizer_facts()?.kind.arrays().map_or(0, |arrays| arrays.len() as u32);
    if file.num_tensors() != expected {
        return Err(count(ConfigKey::NumTensors, u64::from(file.num_tensors()), u64::from(expected)));
    }
    // In format 2 `open` counted the parameters of the tensors, whose dims are compared above.
    if !indexed && file.num_params() != config.num_params() {
        return Err(count(ConfigKey::NumParams, file.num_params(), config.num_params()));
    }
    Ok(config)
}

#[inline(never)]
fn check_weight(config: &LlamaConfig, tensor: &Entry<'_>, indexed: bool) -> Result<(), Error> {
    let number = tensor.number;
    let Some(spec) = config.tensor(number).filter(|spec| spec.is_named(tensor.name)) else {
        return Err(Error::TensorName { tensor: number });
    };
    let (dims, dtype) = (tensor.view.dims(), tensor.view.dtype());
    if !dims.equals(&spec.dims) {
        return Err(Error::Shape { tensor: number, found: dims.padded(), expected: spec.dims.padded() });
    }
    let plain = spec.kind == TensorKind::RopeInvFreq || indexed && !spec.kind.is_matrix();
    let allowed = if plain { dtype == DType::F32 } else { dtype.is_weight() };
    if allowed {
        Ok(())
    } else {
        Err(Error::Tensor { tensor: number, rule: Rule::DType, found: u64::from(dtype.code()), allowed: u64::from(DType::F32.code()) })
    }
}

fn count(key: ConfigKey, found: u64, allowed: u64) -> Error {
    Error::Config { key, rule: Rule::Equal, found, allowed }
}

//! Whether a file holds what its Llama configuration calls for, and nothing else: what `bind`, `verify` and `include_model!` rely on.

use super::Architecture;
use super::llama::{LlamaConfig, TensorKind};
use crate::file::ModelFile;
use crate::tokenizer::{ARRAY_NAMES, NO_TOKEN, TokenizerFacts, TokenizerKind};
use crate::{ConfigKey, DType, Dims, Error, Rule, TokenizerKey};

/// Checks every tensor of a Llama file against its configuration: number, order, names, dims, element types, and the number of parameters. Reads no payload.
///
/// # Errors
/// [`Error::OtherArchitecture`]; those of [`ModelFile::llama_config`] and [`ModelFile::tokenizer_facts`]; [`Error::TensorName`], [`Error::Shape`] or [`Error::Tensor`] for the first tensor that is not the
/// one wanted at its place; [`Error::Config`] where a count is another; [`Error::Tokenizer`] where an array is missing.
pub fn check_tensors(file: &ModelFile<'_>) -> Result<LlamaConfig, Error> {
    let found = file.architecture();
    if found != Architecture::Llama {
        return Err(Error::OtherArchitecture { found: found.code(), expected: Architecture::Llama.code() });
    }
    let config = file.llama_config()?;
    let facts = file.tokenizer_facts()?;
    // Format 1 has its rotation frequencies in the configuration, and no tokenizer.
    let indexed = file.version() > 1;
    let weights = config.weight_tensors() + u32::from(indexed);
    let arrays = if indexed && facts.kind == TokenizerKind::SentencepieceBpe { ARRAY_NAMES.len() as u32 } else { 0 };
    for number in 0..weights {
        check_weight(file, &config, number)?;
    }
    check_arrays(file, &facts, weights, arrays)?;
    let expected = weights + arrays;
    if file.num_tensors() != expected {
        return Err(count(ConfigKey::NumTensors, u64::from(file.num_tensors()), u64::from(expected)));
    }
    if file.num_params() != config.num_params() {
        return Err(count(ConfigKey::NumParams, file.num_params(), config.num_params()));
    }
    Ok(config)
}

fn check_weight(file: &ModelFile<'_>, config: &LlamaConfig, number: u32) -> Result<(), Error> {
    let (Some(spec), Some(name), Some(tensor)) = (config.tensor(number), file.tensor_name(number), file.tensor(number)) else {
        return Err(Error::TensorName { tensor: number });
    };
    if !spec.is_named(name.as_bytes()) {
        return Err(Error::TensorName { tensor: number });
    }
    if !tensor.dims().equals(&spec.dims) {
        return Err(Error::Shape { tensor: number, found: tensor.dims().padded(), expected: spec.dims.padded() });
    }
    let allowed = if spec.kind == TensorKind::RopeInvFreq || file.version() > 1 && !spec.kind.is_matrix() {
        tensor.dtype() == DType::F32
    } else {
        tensor.dtype().is_weight()
    };
    if allowed { Ok(()) } else { Err(dtype(number, tensor.dtype(), DType::F32)) }
}

/// The tokenizer's arrays are the `count` tensors from `first` on, with the dims that its facts call for.
fn check_arrays(file: &ModelFile<'_>, facts: &TokenizerFacts, first: u32, count: u32) -> Result<(), Error> {
    for (place, (recorded, name)) in facts.arrays.iter().zip(ARRAY_NAMES).enumerate() {
        let number = first + place as u32;
        let expected = if count == 0 { NO_TOKEN } else { number };
        if *recorded != expected {
            return Err(Error::Tokenizer {
                key: TokenizerKey::Pieces,
                rule: Rule::Equal,
                found: u64::from(*recorded),
                allowed: u64::from(expected),
            });
        }
        if count == 0 {
            continue;
        }
        let (Some(found), Some(tensor)) = (file.tensor_name(number), file.tensor(number)) else {
            return Err(Error::TensorName { tensor: number });
        };
        if found != name {
            return Err(Error::TensorName { tensor: number });
        }
        let (wanted, len) = match place {
            0 => (DType::U8, tensor.dims().cols()),
            1 => (DType::U32, facts.n_pieces.saturating_add(1)),
            2 => (DType::F32, facts.n_pieces),
            _ => (DType::U32, facts.n_pieces),
        };
        if tensor.dtype() != wanted {
            return Err(dtype(number, tensor.dtype(), wanted));
        }
        let expected = Dims::vector(len);
        if !tensor.dims().equals(&expected) {
            return Err(Error::Shape { tensor: number, found: tensor.dims().padded(), expected: expected.padded() });
        }
    }
    Ok(())
}

fn count(key: ConfigKey, found: u64, allowed: u64) -> Error {
    Error::Config { key, rule: Rule::Equal, found, allowed }
}

fn dtype(tensor: u32, found: DType, allowed: DType) -> Error {
    Error::Tensor { tensor, rule: Rule::DType, found: u64::from(found.code()), allowed: u64::from(allowed.code()) }
}

//! What will be written of a sequential model. Used by `plan`.

use super::plan::{Plan, Planned, Source, Values};
use super::{Format, Options};
use crate::checkpoint::{Checkpoint, SequentialSource};
use crate::error::{Class, Error, Result};
use dmexp_format::DType;
use dmexp_format::host::{self, TensorSpec};

/// Plans the export of a sequential model: its kernels and tables in the type asked for, everything else in f32.
///
/// # Errors
/// [`Class::Request`] for format 1 and for types that these layers are not stored in, single tensors in another type, and a text to measure with; [`Class::Mismatch`] where the arrays are not those that the layers call for.
pub(super) fn plan<'c>(checkpoint: &'c Checkpoint, source: &'c SequentialSource, options: &Options) -> Result<Plan<'c>> {
    let in_file = |error: Error| error.in_file(checkpoint.path());
    if options.format == Format::V1 {
        let what = "format 1 has no place for a sequential model";
        return Err(in_file(Error::new(Class::Request, what).advise("export format 2")));
    }
    if !matches!(options.dtype, DType::F32 | DType::F16 | DType::Bf16) {
        let what = format!("the kernels of a sequential model are not stored as {}", options.dtype);
        return Err(in_file(Error::new(Class::Request, what).advise("use f32, f16 or bf16")));
    }
    if !options.select.is_empty() {
        let what = "all kernels of a sequential model have one type";
        return Err(in_file(Error::new(Class::Request, what).advise("name it with --dtype, without --tensor")));
    }
    if options.quality.is_some() {
        let what = "a sequential model takes numbers: it cannot be measured with a text";
        return Err(in_file(Error::new(Class::Request, what).advise("leave --quality out")));
    }
    let settings = &source.settings;
    let wanted = settings.tensors().map_err(|(layer, fault)| in_file(Error::mismatch(fault.of_layer(layer).to_string())))?;
    let mut arrays = checkpoint.arrays();
    let mut tensors = Vec::new();
    for wanted in wanted {
        let Some(array) = arrays.next().filter(|array| array.name() == wanted.to_string() && array.dims() == wanted.dims) else {
            return Err(in_file(Error::mismatch(format!("has no array {wanted} {:?}, which its layers call for", wanted.dims.as_slice()))));
        };
        let spec = TensorSpec {
            name: wanted.to_string(),
            dtype: if wanted.role.is_matrix() { options.dtype } else { DType::F32 },
            dims: wanted.dims,
            group: 0,
            trainable: wanted.role.is_trainable(),
            transposed: wanted.role.is_transposed(),
        };
        tensors.push(Planned { spec, values: Values::Array(array) });
    }
    if tensors.is_empty() {
        return Err(in_file(Error::new(Class::Request, "has no weights at all: there is nothing to export")));
    }
    Ok(Plan { source: Source::Sequential(source), tokenizer: host::Tokenizer::NONE, tensors, warnings: checkpoint.notes.clone() })
}

//! What will be written of a sequential model. Used by `plan`.

use super::plan::{Plan, Planned, Source, Values};
use super::resampling;
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
    if !matches!(options.dtype, DType::F32 | DType::F16 | DType::Bf16 | DType::Q8) {
        let what = format!("the kernels of a sequential model are not stored as {}", options.dtype);
        return Err(in_file(Error::new(Class::Request, what).advise("use f32, f16, bf16 or q8")));
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
    let mut floats = Vec::new();
    for wanted in wanted {
        let Some(layer) = settings.layers.get(wanted.layer as usize).map(|named| named.layer) else { continue };
        let dtype = if wanted.role.is_matrix() { options.dtype } else { DType::F32 };
        let dtype = if wanted.role.dtypes(layer.op).contains(&dtype) { dtype } else { DType::F32 };
        if wanted.role.is_matrix() && dtype != options.dtype {
            floats.push(wanted.to_string());
        }
        let group = if dtype == DType::Q8 && options.group < wanted.dims.cols() { options.group } else { 0 };
        let spec = TensorSpec {
            name: wanted.to_string(),
            dtype,
            dims: wanted.dims,
            group,
            trainable: wanted.role.is_trainable(),
            transposed: wanted.role.is_transposed(),
        };
        spec.planes(tensors.len() as u32).map_err(|_| {
            let what = format!("tensor {} has rows of {}; {dtype} takes at most 65536", spec.name, spec.dims.cols());
            in_file(Error::new(Class::Unrepresentable, what).advise("store it as bf16"))
        })?;
        let values = if wanted.role.is_computed() {
            let input = settings.inputs_of(wanted.layer).first().copied().unwrap_or(wanted.dims);
            Values::Bytes(resampling::weights(&layer, wanted.role, input).iter().flat_map(|weight| weight.to_le_bytes()).collect())
        } else {
            let Some(array) = arrays.next().filter(|array| array.name() == wanted.to_string() && array.dims() == wanted.dims) else {
                return Err(in_file(Error::mismatch(format!(
                    "has no array {wanted} {:?}, which its layers call for",
                    wanted.dims.as_slice()
                ))));
            };
            Values::Array(array)
        };
        tensors.push(Planned { spec, values });
    }
    if tensors.is_empty() {
        return Err(in_file(Error::new(Class::Request, "has no weights at all: there is nothing to export")));
    }
    let mut warnings = checkpoint.notes.clone();
    if !floats.is_empty() {
        warnings.push(format!(
            "{} kept as f32: {} stores the kernels of dense, convolutional and recurrent layers",
            floats.join(", "),
            options.dtype
        ));
    }
    Ok(Plan { source: Source::Sequential(source), tokenizer: host::Tokenizer::NONE, tensors, warnings })
}

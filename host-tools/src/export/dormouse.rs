//! What will be written of a dormouse model: format 1, as upstream's own exporter does. Used by `plan`.

use super::plan::{Plan, Planned, Source, Values};
use super::{Format, Options};
use crate::checkpoint::{Checkpoint, DormouseSource};
use crate::error::{Class, Error, Result};
use dmexp_format::host::{self, TensorSpec};

/// Plans the export of a dormouse model: every tensor in the type asked for, in the checkpoint's order.
///
/// # Errors
/// [`Class::Request`] for format 2, which has no record for its configuration, and for what format 1 has no place for.
pub(super) fn plan<'c>(checkpoint: &'c Checkpoint, source: &'c DormouseSource, options: &Options) -> Result<Plan<'c>> {
    let request = |what: &str, advice: &str| Err(Error::new(Class::Request, what).advise(advice).in_file(checkpoint.path()));
    if options.format != Format::V1 {
        return request("format 2 has no place for a model of dormouse yet", "export format 1");
    }
    // Said here, because the general errors name format 2 as the way out.
    if options.dtype.is_quantised() || !options.select.is_empty() {
        return request("a model of dormouse is stored in one type, and it is f32, f16 or bf16", "name one of them for all tensors");
    }
    if options.alignment.is_some() || options.sha256 {
        return request("format 1, that of models of dormouse, has no alignment and no place for a SHA-256", "leave them out");
    }
    if options.quality.is_some() {
        return request("a model of dormouse cannot be measured with a text yet: this version does not run it", "leave the text out");
    }
    options.check()?;
    let spec =
        |name: &str, dims| TensorSpec { name: name.to_owned(), dtype: options.dtype, dims, group: 0, trainable: true, transposed: false };
    let tensors =
        checkpoint.arrays().map(|array| Planned { spec: spec(array.name(), array.dims()), values: Values::Array(array) }).collect();
    Ok(Plan { source: Source::Dormouse(source), tokenizer: host::Tokenizer::NONE, tensors, warnings: checkpoint.notes.clone() })
}

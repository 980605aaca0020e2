//! What will be written of a dormouse model: format 1, as upstream's own exporter does. Used by `plan`.

use super::plan::{Plan, Planned, Source, Values};
use super::{Format, Options};
use crate::checkpoint::{Checkpoint, DormouseSource};
use crate::error::{Class, Error, Result};
use dmexp_format::host::{self, TensorSpec};

/// Plans the export of a dormouse model: every tensor in the type asked for, in the checkpoint's order.
///
/// # Errors
/// [`Class::Request`] for format 2, which has no record for its configuration.
pub(super) fn plan<'c>(checkpoint: &'c Checkpoint, source: &'c DormouseSource, options: &Options) -> Result<Plan<'c>> {
    if options.format != Format::V1 {
        let what = "format 2 has no place for a model of dormouse yet";
        return Err(Error::new(Class::Request, what).advise("export format 1").in_file(checkpoint.path()));
    }
    let spec =
        |name: &str, dims| TensorSpec { name: name.to_owned(), dtype: options.dtype, dims, group: 0, trainable: true, transposed: false };
    let tensors =
        checkpoint.arrays().map(|array| Planned { spec: spec(array.name(), array.dims()), values: Values::Array(array) }).collect();
    Ok(Plan { source: Source::Dormouse(source), tokenizer: host::Tokenizer::NONE, tensors, warnings: checkpoint.notes.clone() })
}

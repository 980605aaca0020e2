//! `RustyML`'s files of formats 3 and 4, for sequential models.

use super::{Destination, Report, Watch};
use crate::checkpoint::rustyml::to_rustyml;
use crate::decode::Loaded;
use crate::error::Result;
use crate::target::Target;
use dmexp_format::DType;
use std::path::Path;

pub(super) fn write(loaded: &Loaded, format: Destination, out: &Path, watch: &mut Watch<'_>) -> Result<Report> {
    let file = loaded.file()?;
    let bytes = to_rustyml(loaded, if format == Destination::RustyMlV3 { 3 } else { 4 })?;
    watch.add(file.num_params())?;
    loaded.unchanged()?;
    let target = Target::new(out, [loaded.path()])?;
    target.write(|out| out.write_all(&bytes).map_err(|error| target.failed(error)))?;
    let mut notes = vec!["a RustyML file has the weights alone: what the layers do stays in the .dmexp (dmexp export info)".to_owned()];
    if file.tensors().any(|tensor| tensor.view.dtype() != DType::F32) {
        notes
            .push("weights in fewer bits were widened to f32: the values that this file computes with, not those of its source".to_owned());
    }
    Ok(Report { out: out.to_path_buf(), format, bytes: bytes.len() as u64, tensors: u64::from(file.num_tensors()), notes })
}

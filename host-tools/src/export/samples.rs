//! Samples of a sequential model: run before the file is written, compared with what they say, and added to it as golden vectors. Called by `run`.

use super::plan::{Plan, Planned, Source, Values};
use super::run::{Job, Watch, measure};
use super::spool::Spool;
use super::{Options, plan};
use crate::checkpoint::Checkpoint;
use crate::decode::Loaded;
use crate::error::{Error, Result};
use crate::input::{self, NUMBERS_LIMIT};
use crate::predict::{self, Compared, Sample, Tensor, Tolerance};
use crate::target::Target;
use dmexp_format::DType;
use dmexp_format::host::TensorSpec;
use std::path::Path;

/// Runs the samples in `path` and adds their golden vectors to `plan`.
///
/// Whatever type the kernels will have, the model is first compared in f32, where its results must be those of the samples: what a coarser type changes cannot hide a wrong activation.
///
/// # Errors
/// [`Class::Unreadable`](crate::error::Class::Unreadable) and those of [`predict::samples`] with the path of the samples; those of running them, and [`Class::Mismatch`](crate::error::Class::Mismatch)
/// where what comes out in f32 is not what they say.
pub(super) fn add(
    path: &Path,
    checkpoint: &Checkpoint,
    plan: &mut Plan<'_>,
    options: &Options,
    target: &Target,
    watch: &mut Watch<'_>,
) -> Result<Compared> {
    let Source::Sequential(source) = plan.source else { return Ok(Compared::default()) };
    let in_file = |error: Error| error.in_file(path);
    let bytes = input::read(path, NUMBERS_LIMIT)?;
    let text = std::str::from_utf8(&bytes).map_err(|_| in_file(Error::damaged("is not text")))?;
    let samples = predict::samples(text).map_err(in_file)?;
    let exact = run(checkpoint, &Options { dtype: DType::F32, ..options.clone() }, &samples, target, watch);
    let (mut outputs, mut compared) = exact.map_err(in_file)?;
    if options.dtype != DType::F32 {
        (outputs, compared) = run(checkpoint, options, &samples, target, watch).map_err(in_file)?;
    }
    if options.golden {
        for (name, dims, bytes) in predict::tensors_of(&source.settings, &samples, &outputs).map_err(in_file)? {
            let spec = TensorSpec { name, dtype: DType::F32, dims, group: 0, trainable: false, transposed: false };
            plan.tensors.push(Planned { spec, values: Values::Bytes(bytes) });
        }
    }
    Ok(compared)
}

/// The results of the model as it will be exported.
fn run(
    checkpoint: &Checkpoint,
    options: &Options,
    samples: &[Sample],
    target: &Target,
    watch: &mut Watch<'_>,
) -> Result<(Vec<Vec<Tensor>>, Compared)> {
    let plan = plan(checkpoint, options)?;
    let mut spool = Spool::default();
    let payload = measure(checkpoint, &plan, options, target, &mut spool, watch)?;
    let job = Job { checkpoint, original: checkpoint, plan: &plan, options, target, spool: &spool };
    let header = job.header(payload)?;
    let file = job.write(target.temporary()?, &header, watch)?;
    let tolerance = (options.dtype == DType::F32).then_some(Tolerance::F32);
    predict::compute(&Loaded::open(file.path())?, samples, tolerance)
}

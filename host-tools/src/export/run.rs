//! The export itself: measure, write, run for golden vectors, read back, rename.

use super::narrow::Narrower;
use super::plan::{Plan, Planned, Source, Values};
use super::quantise::quantise;
use super::spool::Spool;
use super::{Format, Options, Phase, Progress, Report, golden, plan, quality, samples};
use crate::checkpoint::Checkpoint;
use crate::decode::{Loaded, verify};
use crate::error::{Class, Error, Result};
use crate::target::Target;
use dmexp_format::host::{
    Config, Header, HeaderV1, LlamaSettings, Measure, Padding, Payload, Provenance, WriteError, llama_config_v1, write_v1, write_v2,
};
use sha2::{Digest, Sha256};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use tempfile::NamedTempFile;

/// Elements narrowed at a time.
const CHUNK: usize = 1 << 16;
/// Bytes hashed at a time.
const PIECE: usize = 1 << 20;

/// Told how far things are, asked whether to go on.
pub(super) struct Watch<'w> {
    cancel: &'w AtomicBool,
    progress: &'w mut dyn FnMut(Progress),
}

impl<'w> Watch<'w> {
    pub(super) fn new(cancel: &'w AtomicBool, progress: &'w mut dyn FnMut(Progress)) -> Self {
        Self { cancel, progress }
    }

    /// Reports, unless the user wants to stop.
    pub(super) fn tick(&mut self, progress: Progress) -> Result<()> {
        (self.progress)(progress);
        if self.cancel.load(Ordering::Relaxed) {
            return Err(Error::new(Class::Cancelled, "stopped: nothing was written"));
        }
        Ok(())
    }
}

/// Exports `checkpoint`. `cancel`, once set (from a signal handler or another thread), stops it soon, with nothing written; `progress` is called often.
///
/// The same checkpoint and options give the same bytes, wherever the source lies and whatever the time is. Before the file gets its name it is read back and checked as `dmexp export verify` does.
///
/// # Errors
/// Those of [`plan`]; [`Class::Damaged`] for a weight that is NaN or infinite, [`Class::Unrepresentable`] for one that the element type cannot hold (with tensor, element, value, and the
/// type that can); [`Class::Unwritable`]; [`Class::Cancelled`]. After an error there is no new file, and an old one is as it was.
///
/// ```
/// use dmexp_tools::{checkpoint, export};
/// use std::{path::Path, sync::atomic::AtomicBool};
///
/// let checkpoint = checkpoint::open(Path::new("../models/tiny.bin"))?;
/// let folder = tempfile::tempdir().unwrap();
/// let options = export::Options::new(folder.path().join("tiny.dmexp"));
/// // Set from another thread, the flag stops it; what it was writing is gone then.
/// let report = export::run(&checkpoint, &options, &AtomicBool::new(false), &mut |_| {})?;
/// assert!(report.out.is_file());
/// # Ok::<(), dmexp_tools::error::Error>(())
/// ```
pub fn run(checkpoint: &Checkpoint, options: &Options, cancel: &AtomicBool, progress: &mut dyn FnMut(Progress)) -> Result<Report> {
    run_watched(checkpoint, options, &mut Watch::new(cancel, progress))
}

/// [`run`] within another piece of work.
pub(super) fn run_watched(checkpoint: &Checkpoint, options: &Options, watch: &mut Watch<'_>) -> Result<Report> {
    let in_file = |error: Error| error.in_file(checkpoint.path());
    let turned = match options.format {
        _ if options.fold_batch_norm => match checkpoint.folded().map_err(in_file)? {
            None => return Err(in_file(no_place("is no sequential model: it has no batch normalisation", "leave --fold-batch-norm out"))),
            folded => folded,
        },
        Format::V2 => checkpoint.turned().map_err(in_file)?,
        Format::V1 => None,
    };
    export(turned.as_ref().unwrap_or(checkpoint), checkpoint, options, watch)
}

fn export(checkpoint: &Checkpoint, original: &Checkpoint, options: &Options, watch: &mut Watch<'_>) -> Result<Report> {
    let mut plan = plan(checkpoint, options)?;
    if options.samples.is_some() && !matches!(plan.source, Source::Sequential(_)) {
        return Err(no_place("samples of numbers are for sequential models", "leave --samples out").in_file(checkpoint.path()));
    }
    if options.quality.is_some() && checkpoint.tokenizer.is_none() {
        return Err(Error::new(Class::Request, "a text cannot be measured with: there is no tokenizer").advise("name it with --tokenizer"));
    }
    let sources = original.sources();
    let beside = options.quality.as_deref().into_iter().chain(options.samples.as_deref());
    let target = Target::new(&options.out, sources.iter().map(PathBuf::as_path).chain(beside))?;
    // Made first, so that a folder that takes no file is found out before the work.
    let file = target.temporary()?;
    let compared = match &options.samples {
        Some(path) => Some(samples::add(path, checkpoint, &mut plan, options, &target, watch)?),
        None => None,
    };
    let mut spool = Spool::default();
    let payload = measure(checkpoint, &plan, options, &target, &mut spool, watch)?;
    let job = Job { checkpoint, original, plan: &plan, options, target: &target, spool: &spool };
    let mut report = Report {
        out: options.out.clone(),
        format: options.format,
        dtype: options.dtype,
        file_bytes: 0,
        source_bytes: checkpoint.provenance.source_bytes,
        num_params: plan.num_params(),
        figures: payload
            .tensors
            .iter()
            .filter(|t| t.is_weight())
            .filter_map(|t| t.figures)
            .fold(super::Figures::NONE, super::Figures::merged),
        tensors: payload.tensors.clone(),
        fingerprint: 0,
        golden: if options.golden { compared.map_or(0, |compared| compared.samples) } else { 0 },
        quality: None,
        samples: compared,
        fixed: match plan.source {
            Source::Llama(source) => source.fixed.clone(),
            Source::Dormouse(_) | Source::Sequential(_) => Vec::new(),
        },
        warnings: plan.warnings.clone(),
    };
    let file = match options.format {
        Format::V1 => job.format_1(file, &payload, watch)?,
        Format::V2 => job.format_2(file, payload, watch, &mut report)?,
    };
    watch.tick(Progress { phase: Phase::Verify, done: 0, total: 1 })?;
    let loaded = Loaded::open(file.path())?;
    verify::after_export(&loaded).map_err(|error| {
        Error::damaged(format!("what was written does not read back as it should: {error}"))
            .advise("this is a fault of dmexp or of the disk")
    })?;
    report.file_bytes = loaded.bytes().len() as u64;
    report.fingerprint = loaded.file()?.fingerprint();
    watch.tick(Progress { phase: Phase::Verify, done: 1, total: 1 })?;
    if let Some(text) = &options.quality {
        let quality = quality::measure(checkpoint, options, &loaded, text, &target, watch)?;
        report.warnings.extend(quality.warnings(options.dtype));
        report.quality = Some(quality);
    }
    drop(loaded);
    original.unchanged()?;
    target.commit(file)?;
    Ok(report)
}

/// First pass: narrows every tensor and measures the result.
pub(super) fn measure(
    checkpoint: &Checkpoint,
    plan: &Plan<'_>,
    options: &Options,
    target: &Target,
    spool: &mut Spool,
    watch: &mut Watch<'_>,
) -> Result<Payload> {
    let in_source = |error: Error| error.in_file(checkpoint.path());
    let mut measure = match options.format {
        Format::V1 => Measure::contiguous(),
        Format::V2 => Measure::new(options.alignment()).map_err(|error| Error::new(Class::Request, error.to_string()))?,
    };
    let mut pass = Pass { phase: Phase::Measure, done: 0, total: plan.elements() };
    for (number, tensor) in plan.tensors.iter().enumerate() {
        let mut sink = measure.begin(tensor.spec.clone());
        let explain = |trouble| match trouble {
            Trouble::Tools(error) if error.path().as_os_str().is_empty() => in_source(error),
            Trouble::Tools(error) => error,
            Trouble::Io(error) => in_source(Error::damaged(error.to_string())),
        };
        let flushed = match &tensor.values {
            Values::Array(array) if tensor.spec.dtype.is_quantised() => {
                let made =
                    quantise(*array, &tensor.spec, &mut |elements| pass.add(elements, watch)).map_err(|error| explain(error.into()))?;
                sink.write_all(&made.bytes).map_err(|error| explain(error.into()))?;
                spool.add(number, &made.bytes, target)?;
                made.flushed
            }
            _ => tensor.write(&mut sink, &mut pass, watch).map_err(explain)?,
        };
        sink.finish(flushed).map_err(|error| in_source(Error::damaged(error.to_string())))?;
    }
    Ok(measure.finish())
}

/// Elements gone through in one pass.
struct Pass {
    phase: Phase,
    done: u64,
    total: u64,
}

impl Pass {
    fn add(&mut self, elements: u64, watch: &mut Watch<'_>) -> Result<()> {
        self.done += elements;
        watch.tick(Progress { phase: self.phase, done: self.done, total: self.total })
    }
}

/// Why a tensor was not written.
enum Trouble {
    Tools(Error),
    Io(io::Error),
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Self::Tools(error)
    }
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl Planned<'_> {
    /// Writes the tensor's bytes; returns how many values became 0.
    fn write(&self, out: &mut dyn Write, pass: &mut Pass, watch: &mut Watch<'_>) -> Result<u64, Trouble> {
        match &self.values {
            Values::Bytes(bytes) => {
                out.write_all(bytes)?;
                pass.add(self.spec.dims.count(), watch)?;
                Ok(0)
            }
            Values::Array(array) => {
                let mut narrower = Narrower::new(self.spec.dtype);
                array.for_each_chunk(CHUNK, |first, values| {
                    out.write_all(narrower.narrow(first, values).map_err(|refused| refused.explain(&self.spec.name))?)?;
                    pass.add(values.len() as u64, watch).map_err(Trouble::from)
                })?;
                Ok(narrower.flushed())
            }
        }
    }
}

/// What the second pass works with.
pub(super) struct Job<'a> {
    pub(super) checkpoint: &'a Checkpoint,
    /// What the checkpoint was made of, where that is another one.
    pub(super) original: &'a Checkpoint,
    pub(super) plan: &'a Plan<'a>,
    pub(super) options: &'a Options,
    pub(super) target: &'a Target,
    pub(super) spool: &'a Spool,
}

impl Job<'_> {
    fn format_1(&self, file: NamedTempFile, payload: &Payload, watch: &mut Watch<'_>) -> Result<NamedTempFile> {
        let header = match self.plan.source {
            Source::Llama(source) => llama_config_v1(&source.config, Some(source.rope_theta), &source.inv_freq, &self.plan.tokenizer)
                .and_then(|config| HeaderV1::new(self.checkpoint.provenance.file_name.clone(), 0, config, payload)),
            Source::Dormouse(source) => HeaderV1::new(source.source.clone(), source.step, source.config.to_text(), payload),
            Source::Sequential(_) => return Err(no_place("format 1 has no place for this model", "export format 2")),
        };
        let header = header.map_err(|error| Error::damaged(error.to_string()).in_file(self.checkpoint.path()))?;
        self.fill(file, watch, |out, tensor| write_v1(out, &header, payload, Padding::To16, tensor))
    }

    fn format_2(&self, file: NamedTempFile, payload: Payload, watch: &mut Watch<'_>, report: &mut Report) -> Result<NamedTempFile> {
        let mut header = self.header(payload)?;
        let file = self.write(file, &header, watch)?;
        if !self.options.golden || !matches!(header.config, Config::Llama(_) | Config::Dormouse(_)) {
            return Ok(file);
        }
        let (golden, warning) = golden::compute(&Loaded::open(file.path())?, watch)?;
        drop(file);
        report.golden = golden.len();
        report.warnings.extend(warning);
        header.golden = golden;
        self.write(self.target.temporary()?, &header, watch)
    }

    /// Writes a file of format 2.
    pub(super) fn write(&self, file: NamedTempFile, header: &Header, watch: &mut Watch<'_>) -> Result<NamedTempFile> {
        self.fill(file, watch, |out, tensor| write_v2(out, header, self.options.alignment(), tensor))
    }

    /// The header of format 2, without golden vectors.
    pub(super) fn header(&self, payload: Payload) -> Result<Header> {
        let in_source = |error: dmexp_format::host::HeaderError| Error::damaged(error.to_string()).in_file(self.checkpoint.path());
        let config = match self.plan.source {
            Source::Llama(source) => Config::Llama(LlamaSettings {
                model: source.config,
                rope_theta: Some(source.rope_theta),
                rope_scaling: source.rope_scaling.clone(),
            }),
            Source::Sequential(source) => Config::Sequential(source.settings.clone()),
            Source::Dormouse(source) => match source.turned {
                Some(config) => Config::Dormouse(config),
                None => return Err(no_place("this model of dormouse was not made ready for format 2", "export format 1")),
            },
        };
        let provenance = Provenance {
            source: self.checkpoint.provenance.file_name.clone(),
            sha256: self.options.sha256.then(|| sha256(self.original)),
            importer: self.checkpoint.provenance.importer.to_owned(),
            exporter: concat!("dmexp ", env!("CARGO_PKG_VERSION")).to_owned(),
            licence: self.checkpoint.provenance.licence.clone(),
        };
        Header::new(config, self.plan.tokenizer.clone(), provenance, payload).map_err(in_source)
    }

    /// Second pass: `write` puts a whole file into `file`, narrowing the tensors again (those that were quantised come from the spool).
    fn fill(
        &self,
        mut file: NamedTempFile,
        watch: &mut Watch<'_>,
        write: impl FnOnce(
            &mut BufWriter<&mut std::fs::File>,
            &mut dyn FnMut(usize, &mut dyn Write) -> io::Result<()>,
        ) -> Result<u64, WriteError>,
    ) -> Result<NamedTempFile> {
        let mut pass = Pass { phase: Phase::Write, done: 0, total: self.plan.elements() };
        copy_into(&mut file, self.target, self.checkpoint.path(), |out| {
            write(out, &mut |number, out| {
                let Some(tensor) = self.plan.tensors.get(number) else { return Ok(()) };
                let written = match self.spool.copy(number, out) {
                    Some(copied) => copied.map_err(Trouble::from).and_then(|()| Ok(pass.add(tensor.spec.dims.count(), watch)?)),
                    None => tensor.write(out, &mut pass, watch).map(|_| ()),
                };
                match written {
                    Ok(()) => Ok(()),
                    Err(Trouble::Io(error)) => Err(error),
                    // Taken out again below.
                    Err(Trouble::Tools(error)) => Err(io::Error::other(error)),
                }
            })
        })?;
        Ok(file)
    }
}

/// Writes `file`, its bytes by way of a buffer; errors of ours that `write` passed through as errors of the system come out as they were.
pub(super) fn copy_into(
    file: &mut NamedTempFile,
    target: &Target,
    source: &Path,
    write: impl FnOnce(&mut BufWriter<&mut std::fs::File>) -> Result<u64, WriteError>,
) -> Result<()> {
    let mut out = BufWriter::new(file.as_file_mut());
    let written = write(&mut out);
    let flushed = out.flush();
    drop(out);
    written.map_err(|error| match error {
        WriteError::Io(error) => match error.downcast::<Error>() {
            Ok(ours) => ours,
            Err(system) => target.failed(system),
        },
        other => Error::damaged(other.to_string()).in_file(source),
    })?;
    flushed.map_err(|error| target.failed(error))
}

fn no_place(what: &str, advice: &str) -> Error {
    Error::new(Class::Request, what).advise(advice)
}

/// Of the source files' bytes, one file after the other.
fn sha256(checkpoint: &Checkpoint) -> String {
    let mut hash = Sha256::new();
    for file in checkpoint.files() {
        for (piece, start) in file.bytes().chunks(PIECE).zip((0..).step_by(PIECE)) {
            hash.update(piece);
            file.release(start..start + piece.len() as u64);
        }
    }
    format!("{:x}", hash.finalize())
}

//! Weights of a checkpoint onto a `.dmexp` that is there already: all of them where both are one architecture (strict), or what fits (partial). Called by `dmexp export run --onto`.
//!
//! Everything is compared before anything is written. The result is a new file with the base's configuration, tokenizer and element types; what the checkpoint does not give stays byte for byte.

use super::golden;
use super::narrow::Narrower;
use super::run::{Watch, copy_into};
use super::{Phase, Progress};
use crate::checkpoint::roster::{LoadReport, Roster, partial, strict};
use crate::checkpoint::rustyml::{RustyMl, model_roster, wanted};
use crate::checkpoint::{ArrayView, Checkpoint, Config as Source, LlamaSource, llama_roster};
use crate::decode::{Loaded, verify};
use crate::error::{Class, Error, Result, shown_path};
use crate::predict;
use crate::target::Target;
use dmexp_format::DType;
use dmexp_format::arch::llama::LlamaConfig;
use dmexp_format::host::{Config, Header, Measure, Payload, TensorEntry, write_v2};
use std::collections::HashMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

/// Elements narrowed at a time.
const CHUNK: usize = 1 << 16;

/// Where the weights come from.
#[derive(Debug)]
pub enum Weights {
    /// A `RustyML` file, for a sequential base: the base has the architecture.
    RustyMl(RustyMl),
    /// Any other checkpoint.
    Checkpoint(Box<Checkpoint>),
}

impl Weights {
    /// Opens what `path` holds.
    ///
    /// # Errors
    /// Those of the importers.
    pub fn open(path: &Path) -> Result<Self> {
        match crate::checkpoint::recognise_path(path)? {
            crate::checkpoint::Kind::RustyMl { .. } => RustyMl::open(path).map(Self::RustyMl),
            _ => crate::checkpoint::open(path).map(|checkpoint| Self::Checkpoint(Box::new(checkpoint))),
        }
    }
}

/// What was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loading {
    /// The file.
    pub out: PathBuf,
    /// Its length.
    pub file_bytes: u64,
    /// Tells this model from another.
    pub fingerprint: u32,
    /// What came from the checkpoint, what did not, and what of it was left.
    pub lists: LoadReport,
    /// What a user should know, one sentence each.
    pub notes: Vec<String>,
}

/// Writes `out`: the base with the checkpoint's weights. With `partial` what fits is taken; without it everything must fit.
///
/// # Errors
/// Those of [`Loaded::open`]; [`Class::Request`] for a base that is stripped, of format 1, or that has in q8, q4 or t2 what the checkpoint gives; [`Class::Mismatch`] for another architecture, without
/// `partial` for the first difference, and where nothing fits;
/// those of narrowing and writing. After an error there is no new file, and an old one is as it was.
pub fn onto(
    weights: Weights,
    base: &Path,
    partially: bool,
    out: &Path,
    cancel: &AtomicBool,
    progress: &mut dyn FnMut(Progress),
) -> Result<Loading> {
    let loaded = Loaded::open(base)?;
    let header = header_of(&loaded)?;
    let (lists, checkpoint, notes) = compare(weights, &loaded, &header, partially)?;
    if lists.applied.is_empty() {
        let list = |paths: &[String]| if paths.is_empty() { "none".to_owned() } else { paths.join(", ") };
        let what =
            format!("has no weights that fit {}: missing {}; unused {}", shown_path(base), list(&lists.missing), list(&lists.unused));
        return Err(Error::mismatch(what).advise("name the file that these weights were trained from").in_file(checkpoint.path()));
    }
    let arrays: HashMap<&str, ArrayView<'_>> = checkpoint.arrays().map(|array| (array.name(), array)).collect();
    let applied: Vec<Option<ArrayView<'_>>> = header
        .tensors
        .iter()
        .map(|entry| {
            let name = entry.spec.name.as_str();
            arrays.get(name).copied().filter(|_| lists.applied.iter().any(|path| path == name))
        })
        .collect();
    let target = Target::new(out, checkpoint.sources().iter().map(PathBuf::as_path))?;
    let mut watch = Watch::new(cancel, progress);
    let file = target.temporary()?;
    let mut job = Job { loaded: &loaded, header: &header, applied: &applied, replaced: Vec::new(), source: checkpoint.path() };
    let payload = job.measure(&mut watch)?;
    let mut provenance = header.provenance.clone();
    let how = if partially { "partially onto" } else { "onto" };
    let base_name = base.file_name().unwrap_or_default().to_string_lossy();
    provenance.importer = format!("{} {how} {base_name}", checkpoint.provenance.importer);
    provenance.source.clone_from(&checkpoint.provenance.file_name);
    provenance.sha256 = None;
    let with_golden = !header.golden.is_empty();
    let with = |payload| {
        Header::new(header.config.clone(), header.tokenizer.clone(), provenance.clone(), payload)
            .map_err(|error| Error::damaged(error.to_string()).in_file(checkpoint.path()))
    };
    let mut new = with(payload)?;
    let mut file = job.write(file, &new, &target, &mut watch)?;
    let mut notes = notes;
    if matches!(header.config, Config::Sequential(_)) {
        // The base's golden vectors say what the base's weights give.
        job.replaced = predict::recomputed(&Loaded::open(file.path())?)?;
        if !job.replaced.is_empty() {
            new = with(job.measure(&mut watch)?)?;
            file = job.write(target.temporary()?, &new, &target, &mut watch)?;
        }
    }
    if with_golden {
        let (golden, warning) = golden::compute(&Loaded::open(file.path())?, &mut watch)?;
        notes.extend(warning);
        new.golden = golden;
        file = job.write(target.temporary()?, &new, &target, &mut watch)?;
    }
    watch.tick(Progress { phase: Phase::Verify, done: 0, total: 1 })?;
    let written = Loaded::open(file.path())?;
    verify::after_export(&written)?;
    let (file_bytes, fingerprint) = (written.bytes().len() as u64, written.file()?.fingerprint());
    drop(written);
    loaded.unchanged()?;
    checkpoint.unchanged()?;
    target.commit(file)?;
    Ok(Loading { out: out.to_path_buf(), file_bytes, fingerprint, lists, notes })
}

/// The base's header.
fn header_of(loaded: &Loaded) -> Result<Header> {
    let file = loaded.file()?;
    let request = |what: &str, advice: &str| Err(Error::new(Class::Request, what).advise(advice).in_file(loaded.path()));
    match (file.version(), file.header_text()) {
        (1, _) => request("is of format 1, which has no kinds of tensors", "export it as format 2 first"),
        (_, None) => request("was stripped for firmware", "name the file that it was made of"),
        (_, Some(text)) => Ok(Header::parse(text).map_err(|error| Error::mismatch(error.to_string()).in_file(loaded.path()))?.0),
    }
}

/// The lists, and a checkpoint that has at least what is applied.
fn compare(weights: Weights, loaded: &Loaded, header: &Header, partially: bool) -> Result<(LoadReport, Checkpoint, Vec<String>)> {
    let base = loaded.path();
    match (weights, &header.config) {
        (Weights::RustyMl(file), Config::Sequential(settings)) => {
            let lists = lists(&model_roster(settings), &file.roster(), partially).map_err(|error| error.in_file(file.path()))?;
            let mut taken = wanted(settings)?;
            taken.retain(|tensor| lists.applied.contains(&tensor.to_string()));
            let notes = file.notes();
            Ok((lists, file.into_checkpoint(settings.clone(), &taken)?, notes))
        }
        (Weights::Checkpoint(checkpoint), Config::Llama(settings)) => {
            let Source::Llama(source) = &checkpoint.config else { return Err(other_architecture(header, checkpoint.path(), base)) };
            let (model, found) = (llama_roster(&settings.model), llama_roster(&source.config));
            let lists = lists(&model, &found, partially).map_err(|error| error.in_file(checkpoint.path()))?;
            let mut notes = checkpoint.notes.clone();
            for difference in other_function(loaded, &settings.model, source)? {
                if !partially {
                    return Err(Error::mismatch(difference).in_file(checkpoint.path()));
                }
                notes.push(format!("{difference}: the base's holds"));
            }
            Ok((lists, *checkpoint, notes))
        }
        (Weights::RustyMl(file), _) => Err(other_architecture(header, file.path(), base)),
        (Weights::Checkpoint(checkpoint), _) => Err(other_architecture(header, checkpoint.path(), base)),
    }
}

fn lists(model: &Roster, file: &Roster, partially: bool) -> Result<LoadReport> {
    if !partially {
        strict(model, file).map_err(|error| error.advise("--partial takes what fits"))?;
    }
    Ok(partial(model, file))
}

fn other_architecture(header: &Header, path: &Path, base: &Path) -> Error {
    Error::mismatch(format!("is another kind of model than {}, whose architecture is {:?}", shown_path(base), header.arch().name()))
        .in_file(path)
}

/// What both configurations say differently without any array's shape telling.
fn other_function(loaded: &Loaded, model: &LlamaConfig, source: &LlamaSource) -> Result<Vec<String>> {
    let found = &source.config;
    let mut different = Vec::new();
    let mut say = |key: &str, wanted: String, found: String| {
        if wanted != found {
            different.push(format!("{key} is {wanted} in the model, and {found} in the file"));
        }
    };
    say("norm_eps", model.norm_eps.to_string(), found.norm_eps.to_string());
    say("attention_factor", model.attention_factor.to_string(), found.attention_factor.to_string());
    say("sliding_window", model.sliding_window.to_string(), found.sliding_window.to_string());
    say("max_seq_len", model.max_seq_len.to_string(), found.max_seq_len.to_string());
    let mut frequencies = vec![0.0; model.head_dim as usize / 2];
    loaded.file()?.rope_inv_freq(&mut frequencies)?;
    // Another width of a head is said by the layers' types.
    if frequencies.len() == source.inv_freq.len() && frequencies != source.inv_freq {
        let theta = source.rope_theta;
        different.push(format!("the rotation frequencies are others in the model than in the file, whose rope_theta is {theta}"));
    }
    Ok(different)
}

/// What both passes work with.
struct Job<'a> {
    loaded: &'a Loaded,
    header: &'a Header,
    applied: &'a [Option<ArrayView<'a>>],
    /// The bytes of tensors that are neither the checkpoint's nor the base's.
    replaced: Vec<(usize, Vec<u8>)>,
    source: &'a Path,
}

impl Job<'_> {
    fn damaged(&self, what: &str) -> Error {
        Error::damaged(what).in_file(self.source)
    }

    fn total(&self) -> u64 {
        self.header.tensors.iter().map(|entry| entry.spec.dims.count()).sum()
    }

    fn measure(&self, watch: &mut Watch<'_>) -> Result<Payload> {
        let alignment = self.loaded.file()?.alignment();
        let mut measure = Measure::new(alignment).map_err(|error| self.damaged(&error.to_string()))?;
        let mut done = 0;
        for (number, entry) in self.header.tensors.iter().enumerate() {
            let mut sink = measure.begin(entry.spec.clone());
            let flushed = self.tensor(number, entry, &mut sink)?;
            sink.finish(flushed).map_err(|error| self.damaged(&error.to_string()))?;
            done += entry.spec.dims.count();
            watch.tick(Progress { phase: Phase::Measure, done, total: self.total() })?;
        }
        Ok(measure.finish())
    }

    /// Writes one tensor; returns how many of its values narrowing made 0.
    fn tensor(&self, number: usize, entry: &TensorEntry, out: &mut dyn Write) -> Result<u64> {
        let failed = |error: io::Error| self.damaged(&error.to_string());
        if let Some((_, bytes)) = self.replaced.iter().find(|(place, _)| *place == number) {
            out.write_all(bytes).map_err(failed)?;
            return Ok(0);
        }
        let Some(array) = self.applied.get(number).copied().flatten() else {
            let view = self.loaded.file()?.tensor(number as u32);
            out.write_all(view.map_or(&[], |view| view.bytes())).map_err(failed)?;
            return Ok(entry.figures.map_or(0, |figures| figures.flushed));
        };
        let dtype = entry.spec.dtype;
        if !matches!(dtype, DType::F32 | DType::F16 | DType::Bf16) {
            let what = format!("the base stores {} as {dtype}, into which single tensors are not narrowed", entry.spec.name);
            return Err(Error::new(Class::Request, what).advise("name a base in f32, f16 or bf16").in_file(self.loaded.path()));
        }
        if array.dims() != entry.spec.dims {
            return Err(self.damaged(&format!("{} has not the dims of the base's", entry.spec.name)));
        }
        let mut narrower = Narrower::new(dtype);
        array.for_each_chunk(CHUNK, |first, values| {
            let bytes = narrower.narrow(first, values).map_err(|refused| refused.explain(&entry.spec.name).in_file(self.source))?;
            out.write_all(bytes).map_err(failed)
        })?;
        Ok(narrower.flushed())
    }

    fn write(
        &self,
        mut file: tempfile::NamedTempFile,
        header: &Header,
        target: &Target,
        watch: &mut Watch<'_>,
    ) -> Result<tempfile::NamedTempFile> {
        let alignment = self.loaded.file()?.alignment();
        let mut done = 0;
        copy_into(&mut file, target, self.source, |out| {
            write_v2(out, header, alignment, |number, out| {
                let Some(entry) = header.tensors.get(number) else { return Ok(()) };
                done += entry.spec.dims.count();
                let tick = watch.tick(Progress { phase: Phase::Write, done, total: self.total() });
                tick.and_then(|()| self.tensor(number, entry, out)).map(|_| ()).map_err(io::Error::other)
            })
        })?;
        Ok(file)
    }
}

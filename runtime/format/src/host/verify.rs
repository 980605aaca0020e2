//! Every check of a file that needs no running model: for `dmexp export verify`, `include_model!` and `--check`.
//!
//! What needs the runtime (a tokenizer's arrays, golden vectors) is listed in [`Report::left`] for the caller to do.

use super::{Figures, Header, HeaderError, HeaderV1, TensorMeter, derive_index};
use crate::arch::llama_tensors::check_tensors;
use crate::arch::{Architecture, dormouse, sequential};
use crate::file::ModelFile;
use crate::{DType, Error};
use half::{bf16, f16};
use std::fmt;

/// [`Left::check`] of a tokenizer's arrays: callers make it with [`Vocabulary`](crate::vocabulary::Vocabulary).
pub const TOKENIZER_ARRAYS: &str = "the tokenizer's arrays";

/// [`Left::check`] of golden vectors: callers make it with the runtime.
pub const GOLDEN_VECTORS: &str = "golden vectors";

/// What a file was checked for, and what it was not.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// The checks that were made, in order, each in a few words.
    pub done: Vec<&'static str>,
    /// What could not be checked here, and why.
    pub left: Vec<Left>,
    /// Keys of the header that are not known and change nothing that is computed.
    pub unknown_keys: Vec<String>,
}

/// A check that was not made.
#[derive(Clone, Debug, PartialEq)]
pub struct Left {
    /// What.
    pub check: &'static str,
    /// Why not.
    pub why: String,
}

/// Why a file failed.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum VerifyError {
    /// The container, the index or the payload.
    File(Error),
    /// The header.
    Header(HeaderError),
    /// The header says something else of the payload than measuring it.
    Figures {
        /// The key, with the tensor's name.
        key: String,
        /// What the header says.
        stored: String,
        /// What the payload gives.
        measured: String,
    },
}

impl fmt::Display for VerifyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(error) => error.fmt(f),
            Self::Header(error) => error.fmt(f),
            Self::Figures { key, stored, measured } => write!(f, "header: {key}: the header says {stored}, the payload gives {measured}"),
        }
    }
}

impl std::error::Error for VerifyError {}

impl From<Error> for VerifyError {
    fn from(error: Error) -> Self {
        Self::File(error)
    }
}

impl From<HeaderError> for VerifyError {
    fn from(error: HeaderError) -> Self {
        Self::Header(error)
    }
}

/// Checks a whole file. Reads all of it.
///
/// # Errors
/// [`VerifyError`] with the first check that fails.
pub fn verify(bytes: &[u8]) -> Result<Report, VerifyError> {
    verify_with(bytes, &mut |_| ())
}

/// The same, with `read` told each piece of the payload once it has been read, which happens several times: whoever mapped a large file can give the memory back.
///
/// # Errors
/// Those of [`verify`].
pub fn verify_with(bytes: &[u8], read: &mut dyn FnMut(&[u8])) -> Result<Report, VerifyError> {
    let file = ModelFile::open(bytes)?;
    let mut report = Report { done: vec!["container: magic, version, lengths, limits"], left: Vec::new(), unknown_keys: Vec::new() };
    match (file.index(), file.header_text()) {
        (Some(index), text) => verify_v2(&file, index.bytes(), text, &mut report, read)?,
        (None, text) => verify_v1(&file, text.unwrap_or_default(), &mut report, read)?,
    }
    Ok(report)
}

fn verify_v2(
    file: &ModelFile<'_>,
    index: &[u8],
    text: Option<&str>,
    report: &mut Report,
    read: &mut dyn FnMut(&[u8]),
) -> Result<(), VerifyError> {
    report.done.push("checksum of fixed part, header and index; padding is zero");
    report.done.push("index: records, configuration, tokenizer facts, names (none given twice), offsets, golden vectors' form");
    match file.architecture() {
        Architecture::Sequential => sequential::check_tensors(file).map(|_| ())?,
        Architecture::Dormouse => dormouse::check::check_tensors(file).map(|_| ())?,
        _ => check_tensors(file).map(|_| ())?,
    }
    let header = match text {
        None => {
            report.done.push("the architecture's tensors by name and dims");
            let why = "the file has no header: it was stripped for firmware".to_string();
            report.left.push(Left { check: "header and index agree; figures of the values", why });
            None
        }
        Some(text) => {
            let (header, unknown) = Header::parse(text)?;
            report.unknown_keys = unknown;
            report.done.push("header: TOML, every key of the right type, counts, the architecture's tensors by name and dims");
            same_index(&derive_index(&header)?, index)?;
            report.done.push("the index is what the header derives to");
            Some(header)
        }
    };
    file.verify_payload_with(read)?;
    report.done.push("checksums of every tensor and of the payload; gaps are zero; weights are finite, codes and scales allowed");
    if let Some(header) = &header {
        for (entry, tensor) in header.tensors.iter().zip(file.tensors()) {
            let mut meter = TensorMeter::of(tensor.view.dtype(), tensor.view.dims(), tensor.view.group());
            meter.update(tensor.view.bytes());
            read(tensor.view.bytes());
            if let (Some(stored), Some(measured)) = (entry.figures, meter.finish().figures) {
                same_figures(&format!(" of {}", tensor.name), &stored, &measured)?;
                same("subnormal", &format!(" of {}", tensor.name), &stored.subnormal, &measured.subnormal)?;
            }
        }
        report.done.push("figures of every tensor: max_abs, min_nonzero_abs, subnormal");
        report.left.push(Left { check: "flushed", why: "only the exporter saw the values that became 0".into() });
        check_special(file, &header.tokenizer.special)?;
    }
    if file.architecture() == Architecture::Llama {
        check_frequencies(file, report)?;
    }
    if file.tokenizer_facts()?.kind.arrays().is_some() {
        report.left.push(Left { check: TOKENIZER_ARRAYS, why: "the tokenizer itself checks them".into() });
    }
    let samples = match file.architecture() {
        Architecture::Sequential => sequential::Samples::of(file, &file.sequential()?)?.count(),
        _ => 0,
    };
    if samples > 0 || file.golden().next().is_some() {
        report.left.push(Left { check: GOLDEN_VECTORS, why: "they need the model to run".into() });
    }
    Ok(())
}

fn verify_v1(file: &ModelFile<'_>, text: &str, report: &mut Report, read: &mut dyn FnMut(&[u8])) -> Result<(), VerifyError> {
    let (header, unknown) = HeaderV1::parse(text)?;
    report.unknown_keys = unknown;
    report
        .done
        .push("header: TOML, every key of the right type, num_params and num_tensors as counted, no name given twice, no trailing bytes");
    let architecture = file.architecture();
    if architecture == Architecture::Llama {
        report.done.push("the configuration, and the architecture's tensors by name and dims");
        check_list_v1(file, &header)?;
        check_frequencies(file, report)?;
    } else {
        check_dormouse_v1(file, report)?;
    }
    file.verify_payload_with(read)?;
    report.done.push("checksum of the payload; weights are finite");
    let mut measured = Figures::NONE;
    for tensor in file.tensors() {
        let mut meter = TensorMeter::of(tensor.view.dtype(), tensor.view.dims(), tensor.view.group());
        meter.update(tensor.view.bytes());
        read(tensor.view.bytes());
        measured = measured.merged(meter.finish().figures.unwrap_or(Figures::NONE));
    }
    report.done.push(check_figures_v1(&header, architecture, &measured)?);
    report.left.push(Left { check: "flushed", why: "only the exporter saw the values that became 0".into() });
    report.left.push(Left { check: "damage to the header", why: "format 1 has no checksum over it".into() });
    Ok(())
}

/// The configuration of a dormouse model and its tensors; and what could be changed in such a header without anything else of the file contradicting it.
fn check_dormouse_v1(file: &ModelFile<'_>, report: &mut Report) -> Result<(), VerifyError> {
    let checked = dormouse::check::check_tensors(file)?;
    report.done.push("the configuration, every value of it, and the architecture's tensors by name and dims, no other but aux.*");
    let config = checked.config;
    let unseen = ["norm_eps", "max_seq_len", "engram_lam_max", "n_heads against head_dim", "moe_topk", "mor_k", "act_quant"];
    let arms = [("use_kda", config.attention != dormouse::Attention::None), ("use_engram", config.use_engram), ("use_mor", config.use_mor)];
    let arms: Vec<String> = arms.iter().map(|(name, on)| format!("{name} (here {on})")).collect();
    let why = format!(
        "the tensors are the same whatever {} and the arms {} say: compare the header's CRC-32, {:08x}, with that of the file as it was exported",
        unseen.join(", "),
        arms.join(", "),
        crate::crc32::checksum(&[file.header_text().unwrap_or_default().as_bytes()])
    );
    report.left.push(Left { check: "keys of the configuration that no tensor shows", why });
    if checked.config.kda_scale.is_none() && config.attention == dormouse::Attention::Kda {
        let why = match checked.age {
            dormouse::check::Age::Before => "the file does not say; its confidence head is of old, so 1 is taken",
            _ => "the file does not say; 1 / sqrt(head_dim) is taken, as dormouse does since 2026-10-02",
        };
        report.left.push(Left { check: "kda_scale", why: why.to_owned() });
    }
    Ok(())
}

/// The figures of a format-1 file. dormouse's exporter measures the values as they are stored; other writers of its files state those before narrowing, which are no damage.
fn check_figures_v1(header: &HeaderV1, architecture: Architecture, measured: &Figures) -> Result<&'static str, VerifyError> {
    let narrowed = |value: f32| match header.dtype {
        _ if architecture != Architecture::Dormouse => value,
        DType::F16 => f16::from_f32(value).to_f32(),
        DType::Bf16 => bf16::from_f32(value).to_f32(),
        _ => value,
    };
    let as_stored = |value: f32, measured: f32| if narrowed(value) == measured { measured } else { value };
    // A smallest value that became 0 is no longer there to be compared with.
    let flushed = header.flushed > 0 && header.min_nonzero_abs > 0.0 && narrowed(header.min_nonzero_abs) == 0.0;
    let stored = Figures {
        max_abs: as_stored(header.max_abs, measured.max_abs),
        min_nonzero_abs: if flushed { measured.min_nonzero_abs } else { as_stored(header.min_nonzero_abs, measured.min_nonzero_abs) },
        ..Figures::NONE
    };
    same_figures("", &stored, measured)?;
    let same = (header.max_abs, header.min_nonzero_abs) == (measured.max_abs, measured.min_nonzero_abs);
    Ok(if same { "figures: max_abs, min_nonzero_abs" } else { "figures: max_abs, min_nonzero_abs, as they were before narrowing" })
}

/// The special tokens that the header names are those that `tokenizer.sorted` ends with.
fn check_special(file: &ModelFile<'_>, named: &[u32]) -> Result<(), VerifyError> {
    let [.., sorted] = file.tokenizer_facts()?.arrays;
    let words = file.tensor(sorted).map_or(&[][..], |view| view.bytes().as_chunks::<4>().0);
    let stored: Vec<u32> = words.iter().skip(words.len() - named.len().min(words.len())).map(|word| u32::from_le_bytes(*word)).collect();
    if stored == named {
        return Ok(());
    }
    Err(HeaderError::wrong("tokenizer.special", format!("{named:?}"), format!("{stored:?}, the end of tokenizer.sorted")).into())
}

fn check_frequencies(file: &ModelFile<'_>, report: &mut Report) -> Result<(), VerifyError> {
    file.rope_inv_freq(&mut vec![0.0; file.llama_config()?.head_dim as usize / 2])?;
    report.done.push("rotation frequencies: as many as the head needs, finite, above 0");
    Ok(())
}

/// The tensors of a format-1 Llama are those that its configuration calls for, all of them, in order.
fn check_list_v1(file: &ModelFile<'_>, header: &HeaderV1) -> Result<(), VerifyError> {
    let config = file.llama_config()?;
    for number in 0..config.weight_tensors() {
        let Some(spec) = config.tensor(number) else { break };
        let key = |key| format!("tensors[{number}].{key}");
        let Some(tensor) = header.tensors.get(number as usize) else {
            return Err(HeaderError::wrong(key("name"), "nothing", format!("\"{spec}\", which the configuration calls for")).into());
        };
        if !spec.is_named(tensor.name.as_bytes()) {
            let allowed = format!("\"{spec}\", which the configuration calls for here");
            return Err(HeaderError::wrong(key("name"), format!("{:?}", tensor.name), allowed).into());
        }
        if tensor.dims != spec.dims {
            let allowed = format!("{:?}, which the configuration calls for", spec.dims.as_slice());
            return Err(HeaderError::wrong(key("dims"), format!("{:?}", tensor.dims.as_slice()), allowed).into());
        }
    }
    let count = config.weight_tensors() as usize;
    match header.tensors.get(count) {
        None => Ok(()),
        Some(extra) => {
            let allowed = format!("{count} tensors, which the configuration calls for");
            Err(HeaderError::wrong(format!("tensors[{count}].name"), format!("{:?}", extra.name), allowed).into())
        }
    }
}

/// Refuses an index that differs from the derived one, at the first byte that does.
fn same_index(derived: &[u8], stored: &[u8]) -> Result<(), VerifyError> {
    if derived == stored {
        return Ok(());
    }
    let place = derived.iter().zip(stored).position(|(a, b)| a != b).unwrap_or(derived.len().min(stored.len()));
    Err(Error::IndexMismatch { offset: place as u64 }.into())
}

fn same_figures(of: &str, stored: &Figures, measured: &Figures) -> Result<(), VerifyError> {
    same("max_abs", of, &stored.max_abs, &measured.max_abs)?;
    same("min_nonzero_abs", of, &stored.min_nonzero_abs, &measured.min_nonzero_abs)
}

fn same<T: PartialEq + fmt::Display>(key: &str, of: &str, stored: &T, measured: &T) -> Result<(), VerifyError> {
    if stored == measured {
        return Ok(());
    }
    Err(VerifyError::Figures { key: format!("{key}{of}"), stored: stored.to_string(), measured: measured.to_string() })
}

//! One checkpoint in several element types: each is exported, run on the same windows of a text and compared with f32. The table of `dmexp compare dtypes`.

use super::divergence::{Divergence, Meter, best};
use super::windows::windows;
use crate::checkpoint::{Checkpoint, Config};
use crate::decode::{Cpu, CpuOptions, Decoder, DormouseOptions, Loaded, physical_cores, window_logits};
use crate::error::{Class, Error, Result};
use crate::export::{self, Format, Options};
use crate::text;
use dmexp::Sampler;
use dmexp_format::host::Figures;
use dmexp_format::layout::Decoding;
use dmexp_format::{DType, KvDType};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// What to compare, and on what.
#[derive(Clone, Copy, Debug)]
pub struct Request<'r> {
    /// The text.
    pub text: &'r [u8],
    /// How many windows of it, spaced evenly; fewer where the text is too short for so many.
    pub windows: u32,
    /// Bytes of a window, at least 1.
    pub window_bytes: u32,
    /// The most tokens of the greedy texts that are compared.
    pub greedy: u32,
    /// The element types; f32 is always there, and first.
    pub dtypes: &'r [DType],
    /// The same model with its ternary factors written as their codes (dormouse): its exports are rows of their own, in f16 and bf16.
    pub canonical: Option<&'r Checkpoint>,
    /// Whether windows are run as wholes, as dormouse's own evaluation does, where bytes that come after count too; otherwise each position sees those before it alone.
    pub full: bool,
}

/// All rows, and what they were measured on.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// Bytes of the checkpoint.
    pub source_bytes: u64,
    /// Windows that were run.
    pub windows: usize,
    /// Positions of all windows together.
    pub positions: u64,
    /// Tokens of f32's greedy text.
    pub greedy: usize,
    /// One row an element type.
    pub rows: Vec<Row>,
}

/// One element type.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The type that was asked for.
    pub dtype: DType,
    /// Whether the factors were written as their codes first.
    pub canonical: bool,
    /// What was measured; the exporter's sentence where it refused the type.
    pub measured: std::result::Result<Measured, String>,
}

impl Row {
    /// What the row is called.
    pub fn name(&self) -> String {
        if self.canonical { format!("{} canonical", self.dtype) } else { self.dtype.to_string() }
    }
}

/// The figures of one export.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// Bytes of the export.
    pub file_bytes: u64,
    /// The same as a part of the checkpoint's.
    pub ratio: f64,
    /// Of the weights as stored.
    pub figures: Figures,
    /// Of the logits, against f32.
    pub divergence: Divergence,
    /// Tokens of the greedy text before the first that differs from f32's.
    pub greedy: usize,
}

/// An export under comparison.
struct Candidate {
    dtype: DType,
    canonical: bool,
    loaded: Loaded,
    file_bytes: u64,
    ratio: f64,
    figures: Figures,
    meter: Meter,
}

/// Exports `checkpoint` in every type into `folder` and compares. `progress` is told how many tokens of how many are done.
///
/// # Errors
/// Those of the exporter for f32; [`Class::Request`] for no text, or a checkpoint without tokenizer; [`Class::Cancelled`] once `cancel` is set.
pub fn dtypes(
    checkpoint: &Checkpoint,
    request: &Request<'_>,
    folder: &Path,
    cancel: &AtomicBool,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Comparison> {
    let mut candidates = vec![candidate(checkpoint, DType::F32, false, folder, cancel)?];
    let mut refused = Vec::new();
    for dtype in request.dtypes.iter().filter(|dtype| **dtype != DType::F32) {
        if candidates.iter().any(|candidate| candidate.dtype == *dtype && !candidate.canonical) {
            continue;
        }
        match candidate(checkpoint, *dtype, false, folder, cancel) {
            Ok(made) => {
                candidates.push(made);
                if let (Some(canonical), DType::F16 | DType::Bf16) = (request.canonical, dtype) {
                    candidates.push(candidate(canonical, *dtype, true, folder, cancel)?);
                }
            }
            // The type cannot hold the weights, which is an answer too.
            Err(error) if error.class() == Class::Unrepresentable => refused.push((*dtype, error.to_string())),
            Err(error) => return Err(error),
        }
    }
    let texts = token_windows(&candidates[0].loaded, request)?;
    let per_model = texts.iter().map(|tokens| tokens.len() as u64).sum::<u64>() + u64::from(request.greedy);
    let mut watch = Watch { cancel, progress, done: 0, total: per_model * candidates.len() as u64 };
    for tokens in &texts {
        let mut reference = Vec::new();
        for (number, candidate) in candidates.iter_mut().enumerate() {
            let Candidate { loaded, meter, .. } = candidate;
            let mut cpu = cpu(loaded, request.full)?;
            let causal = cpu.model().network().dormouse().is_none_or(|network| network.config().is_causal());
            let mut session = cpu.session(Sampler::greedy())?;
            let mut each = |position: u32, row: &[f32]| {
                let position = position as usize;
                if number == 0 {
                    reference.push(row.to_vec());
                }
                let next = tokens.get(position + 1).copied();
                if !reference.get(position).is_some_and(|reference| meter.add(reference, row, next)) {
                    return Err(Error::mismatch("two exports of one checkpoint have not the same number of tokens"));
                }
                watch.tick(1)
            };
            if request.full && !causal {
                window_logits(&mut session, tokens, &mut each)?;
            } else {
                Decoder::logits(&mut session, tokens, &mut each)?;
            }
        }
    }
    let prompt = texts.first().map_or(&[][..], |tokens| tokens.get(..PROMPT.min(tokens.len())).unwrap_or_default());
    let mut greedy: Vec<Vec<u32>> = Vec::new();
    for candidate in &candidates {
        greedy.push(continuation(&candidate.loaded, prompt, request.greedy, &mut watch)?);
    }
    let reference = greedy.first().cloned().unwrap_or_default();
    let rows = candidates.into_iter().zip(&greedy).filter_map(|(candidate, tokens)| {
        let equal = reference.iter().zip(tokens).take_while(|(a, b)| a == b).count();
        let Candidate { dtype, canonical, file_bytes, ratio, figures, meter, .. } = candidate;
        let measured = Measured { file_bytes, ratio, figures, divergence: meter.divergence()?, greedy: equal };
        Some(Row { dtype, canonical, measured: Ok(measured) })
    });
    let mut rows: Vec<Row> = rows.collect();
    rows.extend(refused.into_iter().map(|(dtype, why)| Row { dtype, canonical: false, measured: Err(why) }));
    Ok(Comparison {
        source_bytes: checkpoint.provenance.source_bytes,
        windows: texts.len(),
        positions: texts.iter().map(|tokens| tokens.len() as u64).sum(),
        greedy: reference.len(),
        rows,
    })
}

/// Tokens of the first window that the greedy text continues.
const PROMPT: usize = 8;

struct Watch<'w> {
    cancel: &'w AtomicBool,
    progress: &'w mut dyn FnMut(u64, u64),
    done: u64,
    total: u64,
}

impl Watch<'_> {
    fn tick(&mut self, tokens: u64) -> Result<()> {
        self.done += tokens;
        (self.progress)(self.done.min(self.total), self.total);
        if self.cancel.load(Ordering::Relaxed) {
            return Err(Error::new(Class::Cancelled, "stopped"));
        }
        Ok(())
    }
}

fn candidate(checkpoint: &Checkpoint, dtype: DType, canonical: bool, folder: &Path, cancel: &AtomicBool) -> Result<Candidate> {
    // A model of dormouse in a float type is what dormouse itself would write.
    let is_old = matches!(checkpoint.config, Config::Dormouse(_)) && dtype.is_float();
    let format = if is_old { Format::V1 } else { Format::V2 };
    let name = format!("{dtype}{}.dmexp", if canonical { ".canonical" } else { "" });
    let options = Options { dtype, format, golden: false, ..Options::new(folder.join(name)) };
    let report = export::run(checkpoint, &options, cancel, &mut |_| ())?;
    Ok(Candidate {
        dtype,
        canonical,
        loaded: Loaded::open(&report.out)?,
        file_bytes: report.file_bytes,
        ratio: report.ratio(),
        figures: report.figures,
        meter: Meter::new(),
    })
}

/// Keys and values in f32: what is compared are the weights.
fn cpu(loaded: &Loaded, full: bool) -> Result<Cpu<'_>> {
    let dormouse = DormouseOptions { decoding: full.then_some(Decoding::Full), ..DormouseOptions::default() };
    Cpu::with_dormouse(loaded, &CpuOptions { kv: KvDType::F32, ..CpuOptions::default() }, &dormouse, physical_cores())
}

/// The windows as tokens, as many as the context holds.
fn token_windows(loaded: &Loaded, request: &Request<'_>) -> Result<Vec<Vec<u32>>> {
    let model = loaded.model()?;
    let mut texts = Vec::new();
    for window in windows(request.text, request.windows, request.window_bytes) {
        let mut tokens = text::encode(model.tokenizer(), window, true).map_err(|error| loaded.explain(error))?;
        tokens.truncate(model.context() as usize);
        texts.push(tokens);
    }
    texts.retain(|tokens| !tokens.is_empty());
    if texts.is_empty() {
        return Err(Error::new(Class::Request, "there is no text to compare on").advise("name a text that is not empty"));
    }
    Ok(texts)
}

/// The greedy text after `prompt`: up to `most` tokens, the context's end or an end of text, which counts as one.
fn continuation(loaded: &Loaded, prompt: &[u32], most: u32, watch: &mut Watch<'_>) -> Result<Vec<u32>> {
    let mut cpu = cpu(loaded, false)?;
    let model = *cpu.model();
    let mut session = cpu.session(Sampler::greedy())?;
    let decoder: &mut dyn Decoder = &mut session;
    let mut tokens = Vec::new();
    let mut next = best(decoder.feed(prompt)?);
    while let Some(token) = next.filter(|_| tokens.len() < most as usize) {
        tokens.push(token);
        watch.tick(1)?;
        if model.tokenizer().ends_text(token) || decoder.position() == decoder.context() {
            break;
        }
        next = best(decoder.feed(&[token])?);
    }
    Ok(tokens)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::tests::{SMALL, open, tokenizer};
    use tempfile::TempDir;

    fn compare(dtypes_wanted: &[DType], greedy: u32) -> Result<Comparison> {
        let mut checkpoint = open(SMALL.random());
        checkpoint.tokenizer = Some(tokenizer(300));
        let folder = TempDir::new().unwrap();
        let text = b"to be or not to be, that is the question".repeat(20);
        let request = Request { text: &text, windows: 3, window_bytes: 32, greedy, dtypes: dtypes_wanted, canonical: None, full: false };
        dtypes(&checkpoint, &request, folder.path(), &AtomicBool::new(false), &mut |done, total| assert!(done <= total))
    }

    #[test]
    fn f32_is_itself_and_narrower_types_are_further_off() {
        let found = compare(&[DType::F32, DType::F16, DType::Bf16], 24).unwrap();
        let measured: Vec<Measured> = found.rows.iter().map(|row| row.measured.clone().unwrap()).collect();
        assert_eq!(found.rows.iter().map(|row| row.dtype).collect::<Vec<_>>(), [DType::F32, DType::F16, DType::Bf16]);
        let [f32, f16, bf16] = measured.as_slice() else { panic!("three rows") };
        assert_eq!((f32.divergence.kl, f32.divergence.max_abs_delta, f32.divergence.top1, f32.greedy), (0.0, 0.0, 1.0, found.greedy));
        assert!(f16.divergence.kl > 0.0 && f16.divergence.kl < bf16.divergence.kl, "{measured:?}");
        assert!(f16.file_bytes < f32.file_bytes);
        assert!(f16.divergence.perplexity.is_some() && f16.divergence.reference_perplexity == f32.divergence.perplexity);
        assert_eq!((found.windows, found.positions), (3, f16.divergence.positions));
        assert!(found.greedy > 0 && f16.greedy <= found.greedy);
        assert_eq!(compare(&[DType::F16, DType::Bf16], 24).unwrap(), found);
    }

    #[test]
    fn a_type_that_cannot_hold_the_weights_is_a_row_that_says_so() {
        let mut checkpoint = open(SMALL.v0(|place| if place == 7 { 1e6 } else { 0.01 }));
        checkpoint.tokenizer = Some(tokenizer(300));
        let folder = TempDir::new().unwrap();
        let request =
            Request { text: b"abc", windows: 1, window_bytes: 256, greedy: 2, dtypes: &[DType::F16], canonical: None, full: false };
        let found = dtypes(&checkpoint, &request, folder.path(), &AtomicBool::new(false), &mut |_, _| ()).unwrap();
        assert!(found.rows[0].measured.is_ok());
        assert!(found.rows[1].measured.as_ref().unwrap_err().contains("1000000"), "{:?}", found.rows[1]);
    }

    #[test]
    fn without_text_or_tokenizer_there_is_nothing_to_compare() {
        let checkpoint = open(SMALL.random());
        let folder = TempDir::new().unwrap();
        let request = Request { text: b"abc", windows: 1, window_bytes: 256, greedy: 2, dtypes: &[], canonical: None, full: false };
        let run = |checkpoint: &Checkpoint, request: &Request<'_>, cancel: bool| {
            dtypes(checkpoint, request, folder.path(), &AtomicBool::new(cancel), &mut |_, _| ()).unwrap_err()
        };
        assert!(run(&checkpoint, &request, false).to_string().contains("tokenizer"));
        let mut with = open(SMALL.random());
        with.tokenizer = Some(tokenizer(300));
        assert_eq!(run(&with, &Request { text: b"", ..request }, false).class(), Class::Request);
        assert_eq!(run(&with, &request, true).class(), Class::Cancelled);
    }
}

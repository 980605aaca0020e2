//! What an export says other than its source: both run over windows of a text that the user gives, and their logits compared. Called by [`super::run`] before the file gets its name.

use super::run::Watch;
use super::{Format, Options, Phase, Progress};
use crate::checkpoint::Checkpoint;
use crate::compare::{Divergence, Meter, windows};
use crate::decode::{Cpu, CpuOptions, Decoder, Loaded, physical_cores};
use crate::error::{Class, Error, Result};
use crate::input::{self, TEXT_LIMIT};
use crate::target::Target;
use dmexp::Sampler;
use dmexp::tokenizer::Tokenizer;
use dmexp_format::{DType, KvDType};
use std::path::{Path, PathBuf};

/// At most this many windows of the text, evenly spaced.
const WINDOWS: u32 = 16;
/// Bytes of a window.
const WINDOW: u32 = 256;

/// How the exported file compares with its source in f32, teacher-forced on a text.
#[derive(Clone, Debug, PartialEq)]
pub struct Quality {
    /// The text.
    pub text: PathBuf,
    /// How many windows of it were run.
    pub windows: usize,
    /// The figures over all positions of all windows.
    pub divergence: Divergence,
}

/// Above this mean divergence a reader sees the difference: a model of half the size would be as good.
const POOR: f64 = 0.01;
/// Means over fewer positions than this say more of the text than of the export.
const FEW: u64 = 64;

impl Quality {
    /// Warnings where the export lost much, and where the text was too short to say so.
    pub(super) fn warnings(&self, dtype: DType) -> impl Iterator<Item = String> {
        let Divergence { kl, positions, .. } = self.divergence;
        let poor = (kl > POOR).then(|| {
            let advice = if dtype == DType::Q4 { "q8, or --tensor for single matrices" } else { "a wider type" };
            format!("the export diverges from its source by {kl:.1e} a token, more than {POOR}: use {advice}")
        });
        let short = (positions < FEW).then(|| {
            format!(
                "only {positions} positions were compared, too few for their means to be the model's: give some kilobytes of what it writes"
            )
        });
        poor.into_iter().chain(short)
    }
}

/// Runs `exported` and its source in f32 over the text in `path`. The source is exported as f32 for this, beside the target, for as long as it takes.
///
/// # Errors
/// A text that cannot be read or is empty; a checkpoint without a tokenizer; what running the models refuses.
pub(super) fn measure(
    checkpoint: &Checkpoint,
    options: &Options,
    exported: &Loaded,
    path: &Path,
    target: &Target,
    watch: &mut Watch<'_>,
) -> Result<Quality> {
    let text = input::read(path, TEXT_LIMIT)?;
    let room = target.temporary_folder()?;
    let reference = Options { dtype: DType::F32, format: Format::V2, golden: false, ..Options::new(room.path().join("reference.dmexp")) };
    // The name of a temporary file is of no use to anybody.
    let in_target = |error: Error| if error.class() == Class::Unwritable { error.in_file(&options.out) } else { error };
    super::run::run_watched(checkpoint, &reference, watch).map_err(in_target)?;
    let reference = Loaded::open(&reference.out)?;

    let tokens = windows(&text, WINDOWS, WINDOW).into_iter().map(|window| encode(reference.model()?.tokenizer(), window));
    let mut tokens = tokens.collect::<Result<Vec<_>>>().map_err(|error| error.in_file(path))?;
    let longest = exported.model()?.network().max_seq_len();
    for tokens in &mut tokens {
        tokens.truncate(longest as usize);
    }
    tokens.retain(|tokens| !tokens.is_empty());
    let context = tokens.iter().map(Vec::len).max().unwrap_or(0) as u32;
    if context == 0 {
        return Err(Error::new(Class::Request, "the text to measure with is empty")
            .advise("give some kilobytes of what the model writes")
            .in_file(path));
    }

    let total = 2 * tokens.iter().map(Vec::len).sum::<usize>() as u64;
    let mut done = 0;
    let cpu_options = CpuOptions { context: Some(context), kv: KvDType::F32, tokenizer: None };
    let mut meter = Meter::new();
    for window in &tokens {
        let mut expected: Vec<Vec<f32>> = Vec::with_capacity(window.len());
        let mut step = |watch: &mut Watch<'_>| {
            done += 1;
            watch.tick(Progress { phase: Phase::Quality, done, total })
        };
        rows(&reference, &cpu_options, window, &mut |_, logits| {
            expected.push(logits.to_vec());
            step(watch)
        })?;
        rows(exported, &cpu_options, window, &mut |position, logits| {
            let place = position as usize;
            if !expected.get(place).is_some_and(|expected| meter.add(expected, logits, window.get(place + 1).copied())) {
                return Err(Error::mismatch("the export has another vocabulary than its source"));
            }
            step(watch)
        })?;
    }
    let divergence = meter.divergence().ok_or_else(|| Error::new(Class::Request, "no position was compared"))?;
    Ok(Quality { text: path.to_path_buf(), windows: tokens.len(), divergence })
}

fn rows(loaded: &Loaded, options: &CpuOptions<'_>, tokens: &[u32], each: &mut dyn FnMut(u32, &[f32]) -> Result<()>) -> Result<()> {
    let mut cpu = Cpu::on_threads(loaded, options, physical_cores())?;
    let mut session = cpu.session(Sampler::greedy())?;
    Decoder::logits(&mut session, tokens, each)
}

/// The tokens of a window, which is taken as the beginning of a text.
fn encode(tokenizer: &Tokenizer<'_>, text: &[u8]) -> Result<Vec<u32>> {
    Ok(crate::text::encode(tokenizer, text, true)?)
}

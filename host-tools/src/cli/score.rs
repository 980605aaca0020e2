//! `dmexp score`: how well a model foretells a text.

use super::bench::bar;
use super::dormouse_run;
use super::failure::{Outcome, request};
use super::logits::{Convention, rows, told_apart};
use super::model::{ModelArgs, encode, needed};
use super::output::{count, float, json};
use super::run_on::{Processor, RunOn};
use clap::Args;
use dmexp::Sampler;
use dmexp_tools::compare::log_normaliser;
use dmexp_tools::decode::{Decoder, physical_cores};
use dmexp_tools::error::{Error, shown_path};
use serde_json::json;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::Path;

/// Say how well a model foretells a text: bits a byte, and perplexity
///
/// The fewer bits a byte of the text costs the model, the better; the perplexity, of a token, compares models of one tokenizer only. The text is cut into windows as long as the context; the first token of a window has nothing before it and is not scored, unless the model has a token that begins a text. A model of
/// dormouse has two figures: by prefix, which is what generation sees, and by the full window, as dormouse's own evaluation has it, where bytes that come after a position help to foretell it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  dmexp perplexity --export stories.dmexp --text held-out.txt
  dmexp score --export latest.bf16.dmexp --text held-out.txt
  dmexp score --export latest.bf16.dmexp --text held-out.txt --convention prefix \\
    --context 128 --json")]
pub(crate) struct Score {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    on: RunOn,
    /// The file with the text, byte for byte; - is stdin
    #[arg(long, value_name = "FILE", allow_hyphen_values = true)]
    text: OsString,
    /// dormouse models: one convention alone [default: both]
    #[arg(long, value_name = "prefix|full")]
    convention: Option<Convention>,
    /// Prints JSON
    #[arg(long)]
    json: bool,
    /// Shows no progress
    #[arg(long)]
    quiet: bool,
}

/// What a convention gave.
struct Figure {
    convention: Convention,
    bits: f64,
    bytes: u64,
    tokens: u64,
    windows: u64,
}

impl Figure {
    fn bits_per_byte(&self) -> f64 {
        self.bits / self.bytes as f64
    }

    /// How many tokens that are equally likely would be as hard to tell apart.
    fn perplexity(&self) -> f64 {
        (self.bits / self.tokens as f64).exp2()
    }
}

/// Runs the command.
pub(crate) fn run(command: &Score) -> Outcome {
    let opened = command.model.open()?;
    let text = super::args::file_or_stdin(&command.text)?;
    let dormouse = opened.loaded.model()?.network().dormouse().is_some();
    let conventions = match command.convention {
        Some(convention) => vec![convention],
        // A GPU has no full decoding.
        None if dormouse && command.on.device == Processor::Cpu => vec![Convention::Prefix, Convention::Full],
        None => vec![Convention::Prefix],
    };
    let threads = command.model.threads.map_or_else(physical_cores, |threads| threads as usize);
    let bar = bar(command.quiet || command.json, "scoring");
    let mut figures = Vec::new();
    let mut settings = (None, json!(null));
    for convention in conventions {
        let mut cpu = command.model.cpu_for(&opened, convention, command.on)?;
        let model = *cpu.model();
        needed(model.tokenizer(), opened.loaded.path())?;
        let told = told_apart(convention, &model);
        let tokens = encode(model.tokenizer(), &text, false)?;
        let bos = Some(model.tokenizer().facts().bos).filter(|_| model.tokenizer().facts().add_bos);
        let room = (model.context() as usize).saturating_sub(usize::from(bos.is_some())).max(1);
        let mut figure = Figure { convention, bits: 0.0, bytes: 0, tokens: 0, windows: 0 };
        let mut session = cpu.session(Sampler::greedy())?;
        bar.set_length(tokens.len() as u64);
        bar.set_position(0);
        for window in tokens.chunks(room) {
            Decoder::reset(&mut session);
            figure.windows += 1;
            let window: Vec<u32> = bos.into_iter().chain(window.iter().copied()).collect();
            let mut score = |position: u32, logits: &[f32]| -> Result<(), Error> {
                if let Some(next) = window.get(position as usize + 1) {
                    let this = window.get(position as usize).copied().unwrap_or_default();
                    figure.bits += bits(logits, *next, threads);
                    figure.bytes += model.tokenizer().decode(this, *next).as_bytes().len() as u64;
                    figure.tokens += 1;
                    bar.inc(1);
                }
                Ok(())
            };
            rows(&mut session, told, &window, &mut score).map_err(|error| error.in_file(opened.loaded.path()))?;
        }
        if figure.bytes == 0 {
            return Err(request(
                format!("there is nothing to score in {}", shown_path(Path::new(&command.text))),
                "give a text of two bytes or more",
            ));
        }
        if settings.0.is_none() {
            settings = (dormouse_run::settings(&model), dormouse_run::settings_json(&model));
        }
        figures.push(figure);
    }
    bar.finish_and_clear();
    opened.loaded.unchanged()?;
    let total = text.len() as u64;
    if command.json {
        let scores = figures.iter().map(|figure| {
            json!({
                "convention": figure.convention.name(),
                "bits_per_byte": figure.bits_per_byte(),
                "perplexity": figure.perplexity(),
                "bytes_scored": figure.bytes,
                "tokens_scored": figure.tokens,
                "windows": figure.windows,
            })
        });
        return Ok(json(&json!({
            "export": command.model.export.to_string_lossy(),
            "device": command.on.device.to_string(),
            "text_bytes": total,
            "dormouse": settings.1,
            "scores": scores.collect::<Vec<_>>(),
        }))?);
    }
    let mut stdout = io::stdout().lock();
    for figure in &figures {
        let name = match figure.convention {
            Convention::Prefix if dormouse => "prefix only (what generation sees)",
            Convention::Prefix => "prefix",
            Convention::Full => "full window (dormouse's evaluation)",
        };
        let bits = float(figure.bits_per_byte() as f32);
        let tokens = format!("perplexity {:.3} over {}", figure.perplexity(), count(figure.tokens, "token"));
        let windows = count(figure.windows, "window");
        writeln!(stdout, "{name}: {bits} bits a byte, over {} of {total} bytes in {windows}; {tokens}", figure.bytes)?;
    }
    if let Some(line) = settings.0 {
        writeln!(stdout, "{line}")?;
    }
    Ok(stdout.flush()?)
}

/// How many bits `token` costs: the negative logarithm of its probability, in double precision.
fn bits(logits: &[f32], token: u32, threads: usize) -> f64 {
    let own = logits.get(token as usize).copied().unwrap_or(f32::NEG_INFINITY);
    (log_normaliser(logits, threads) - f64::from(own)) / std::f64::consts::LN_2
}

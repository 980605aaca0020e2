//! `dmexp export run`: a checkpoint becomes a `.dmexp`.

use super::args;
use super::dormouse::{DormouseArgs, SourceArgs};
use super::export_onto::{self, Onto};
use super::failure::{Outcome, request};
use super::figures::{TensorLine, by_dtype, magnitude, tensor_table};
use super::model::{for_checkpoint, tokenizer_files};
use super::output::{bytes, count, facts, float, grouped, json};
use super::signals::cancel_flag;
use clap::Args;
use dmexp_format::DType;
use dmexp_tools::checkpoint::{self, Config};
use dmexp_tools::compare::Divergence;
use dmexp_tools::error::{Error, shown_path};
use dmexp_tools::export::{self, Format, Options, Phase, Progress, Quality, Report, Select};
use dmexp_tools::target::Target;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::json;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Make a .dmexp file of a training checkpoint
///
/// Reads llama2.c checkpoints (v0, v1, v2 and ckpt.pt), folders of Hugging Face models (Llama, Mistral, Qwen2) and of Meta's (params.json), GGUF files of Llama and Qwen2, dormouse's checkpoints (with the .config.toml beside them) and, with --arch, RustyML models; which it is, its bytes say, whatever it is called. A value that the element type cannot hold is refused, not clipped. The file appears when it is whole and checked: a failed or stopped export leaves what was there before.
#[expect(clippy::struct_excessive_bools, reason = "flags of the command line")]
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  dmexp export run --checkpoint stories260K.bin --tokenizer tok512.bin --out stories.dmexp
  dmexp export run --checkpoint stories15M.bin --tokenizer tokenizer.bin --dtype f16
  dmexp export run --checkpoint SmolLM2-135M-Instruct --out smollm2.dmexp
  dmexp export run --ckpt-dir checkpoints --ckpt-name latest --dtype bf16
  dmexp export run --checkpoint kws.bin --arch kws.arch.toml --dtype q8 \\
    --samples samples.json --classes yes,no,up
  dmexp export run --checkpoint tuned.bin --onto stories.dmexp --partial --out tuned.dmexp
  dmexp export run --checkpoint tiny.bin --tokenizer bytes --bos 0 --dtype f32 --json
  dmexp export run --checkpoint stories15M.bin --tokenizer tokenizer.bin --dtype q4 \\
    --tensor 'layers.*.attention.*=q8:64'

Element types: f32 (fp32, float32), f16 (fp16, float16, half), bf16 (bfloat16), q8 (8 bits), q4 (4 bits; the embedding and the classifier in 8), t2 (ternary, where nothing is lost). In format 2 matrices are stored so, vectors as f32.")]
pub(crate) struct Run {
    #[command(flatten)]
    source: SourceArgs,
    #[command(flatten)]
    dormouse: DormouseArgs,
    /// A .dmexp that gets the checkpoint's weights: its configuration, tokenizer and element types stay; every layer must be the same, or see --partial. What it gets is in f32, f16 or bf16: single tensors are not made q8, q4 or t2
    #[arg(long, value_name = "FILE", requires = "out", conflicts_with_all = ["arch", "tokenizer", "bos", "dtype", "group", "tensor", "format", "align", "sha256", "quality", "fold_batch_norm", "samples", "classes", "no_golden", "tensors"])]
    onto: Option<PathBuf>,
    /// With --onto: takes what fits and lists what was applied, what is missing and what was not used; where nothing fits, nothing is written
    #[arg(long, requires = "onto")]
    partial: bool,
    #[arg(long, value_name = "FILE", help = "What the layers of a RustyML model do, in TOML or JSON (docs/format/sequential.md)")]
    arch: Option<PathBuf>,
    /// The tokenizer the model was trained with: tokenizer.json, tokenizer.model, llama2.c's tokenizer.bin, a folder with one of them, or the words bytes or none [default: the one in the checkpoint or its folder]
    #[arg(long, value_name = "FILE|bytes|none")]
    tokenizer: Option<OsString>,
    /// With --tokenizer bytes: the token that begins every text
    #[arg(long, value_name = "TOKEN", value_parser = args::number, allow_negative_numbers = true)]
    bos: Option<u32>,
    /// How weights are stored: f32, f16, bf16, q8, q4, or t2 where they are ternary
    #[arg(long, value_name = "TYPE", default_value = "bf16", value_parser = args::dtype)]
    dtype: DType,
    /// Elements of a row that share a multiplier in q8 and q4: a multiple of 8, or 0 for one group a row
    #[arg(long, value_name = "ELEMENTS", default_value_t = export::DEFAULT_GROUP, value_parser = args::number, allow_negative_numbers = true)]
    group: u32,
    /// Stores tensors in another way: names by a pattern (* is anything), a type, and a group if it is another; may be given again, the last that fits counts
    #[arg(long, value_name = "PATTERN=TYPE[:GROUP]", value_parser = select)]
    tensor: Vec<Select>,
    /// The file to write [default: the checkpoint's name with the type, in the current folder: stories260K.bf16.dmexp]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// The file format: 2, or 1 as dormouse reads it (one type for all, no tokenizer) [default: 2; for dormouse's models 1, where it can hold the type]
    #[arg(long, value_name = "1|2", value_parser = format)]
    format: Option<Format>,
    /// Where tensors begin: at multiples of this many bytes, a power of two from 16 to 4096 [default: 64]
    #[arg(long, value_name = "BYTES", value_parser = args::number, allow_negative_numbers = true)]
    align: Option<u32>,
    /// Records the SHA-256 of the checkpoint
    #[arg(long)]
    sha256: bool,
    /// Measures the export with this text: how far its logits are from the source's in f32 (about a minute for 100 million parameters)
    #[arg(long, value_name = "FILE")]
    quality: Option<PathBuf>,
    /// Folds the batch normalisations of a sequential model into the dense and convolutional layers before them: smaller and faster, and the same but for rounding
    #[arg(long)]
    fold_batch_norm: bool,
    /// Samples of a sequential model, in JSON (docs/small-networks.md): compares what comes out with what they say, and records them as golden vectors
    #[arg(long, value_name = "FILE")]
    samples: Option<PathBuf>,
    /// What the elements of a sequential model's first output mean, in order
    #[arg(long, value_name = "NAME,NAME..", value_delimiter = ',')]
    classes: Vec<String>,
    /// Records no golden vectors, by which a device can test itself
    #[arg(long)]
    no_golden: bool,
    /// Lists every tensor with its range
    #[arg(long)]
    tensors: bool,
    /// Prints the report as JSON
    #[arg(long)]
    json: bool,
    /// Prints no report and no progress
    #[arg(long, conflicts_with = "json")]
    quiet: bool,
}

fn select(text: &str) -> Result<Select, String> {
    text.parse::<Select>().map_err(|error| error.to_string())
}

fn format(text: &str) -> Result<Format, String> {
    let number = text.parse().map_err(|_| "the formats are 1 and 2".to_owned())?;
    Format::from_number(number).map_err(|error| error.to_string())
}

impl Run {
    fn out(&self) -> PathBuf {
        self.out.clone().unwrap_or_else(|| {
            let mut name = self.source.stem().into_os_string();
            name.push(format!(".{}.dmexp", self.dtype));
            name.into()
        })
    }
}

/// Runs the command.
pub(crate) fn run(command: &Run) -> Outcome {
    let path = &command.source.path();
    if let (Some(base), Some(out)) = (&command.onto, &command.out) {
        let onto = Onto { checkpoint: path, base, partial: command.partial, out, json: command.json, quiet: command.quiet };
        let mut bar = Shown::new(command.quiet || command.json, std::fs::metadata(base).map_or(0, |file| file.len()));
        let outcome = export_onto::run(&onto, &*cancel_flag()?, &mut |progress| bar.show(progress));
        bar.clear();
        return outcome;
    }
    let mut checkpoint = match &command.arch {
        Some(arch) => {
            Target::new(&command.out(), [arch.as_path()])?;
            checkpoint::rustyml::open(path, arch)?
        }
        None => command.dormouse.open(path)?,
    };
    command.dormouse.change(&mut checkpoint)?;
    if !command.classes.is_empty() {
        let Config::Sequential(source) = &mut checkpoint.config else {
            return Err(request("classes are named of sequential models alone", "leave --classes out"));
        };
        source.settings.labels.clone_from(&command.classes);
        source
            .settings
            .check()
            .map_err(|error| Error::mismatch(error.to_string()).advise("name as many classes as the first output has elements"))?;
    }
    // What dormouse itself reads, where it can hold what is asked for.
    let is_old = matches!(checkpoint.config, Config::Dormouse(_)) && !command.dtype.is_quantised() && command.tensor.is_empty();
    let format = command.format.unwrap_or(if is_old { Format::V1 } else { Format::V2 });
    if format == Format::V1 {
        command.dormouse.fits_format_1()?;
    }
    let vocab_size = match &checkpoint.config {
        Config::Llama(source) => source.config.vocab_size,
        Config::Dormouse(_) if command.tokenizer.is_some() => {
            return Err(request("a model of dormouse takes bytes as they are: it has no tokenizer", "leave --tokenizer out"));
        }
        _ if command.tokenizer.is_some() => {
            return Err(request("this model takes numbers, not text: it has no tokenizer", "leave --tokenizer out"));
        }
        _ => 0,
    };
    match &command.tokenizer {
        Some(name) if name == "none" && command.bos.is_none() => {
            checkpoint.tokenizer = None;
            checkpoint.refused_tokenizer = None;
        }
        Some(name) => {
            Target::new(&command.out(), tokenizer_files(name).iter().map(PathBuf::as_path))?;
            checkpoint.tokenizer = Some(for_checkpoint(name, command.bos, vocab_size)?);
        }
        None if command.bos.is_some() => {
            return Err(request("--bos goes with --tokenizer bytes alone", "name the tokenizer"));
        }
        None => {}
    }
    let options = Options {
        out: command.out(),
        dtype: command.dtype,
        group: command.group,
        select: command.tensor.clone(),
        format,
        alignment: command.align,
        golden: !command.no_golden && format == Format::V2,
        sha256: command.sha256,
        quality: command.quality.clone(),
        fold_batch_norm: command.fold_batch_norm,
        samples: command.samples.clone(),
    };
    let cancel = cancel_flag()?;
    let mut bar = Shown::new(command.quiet || command.json, checkpoint.provenance.source_bytes);
    let result = export::run(&checkpoint, &options, &cancel, &mut |progress| bar.show(progress));
    bar.clear();
    let report = result?;
    if command.json {
        let mut value = as_json(&report);
        if command.tensors {
            value["tensors"] = report.tensors.iter().map(|tensor| TensorLine::from(tensor).json()).collect();
        }
        return Ok(json(&value)?);
    }
    for warning in &report.warnings {
        // If stderr is closed, nobody is left to warn.
        let _ = writeln!(io::stderr(), "note: {warning}");
    }
    if command.quiet {
        return Ok(());
    }
    Ok(print(&report, command.tensors, path)?)
}

/// The progress bar, a new one for each phase: on terminals only.
struct Shown {
    hidden: bool,
    source_bytes: u64,
    bar: Option<(Phase, ProgressBar)>,
}

impl Shown {
    fn new(hidden: bool, source_bytes: u64) -> Self {
        Self { hidden, source_bytes, bar: None }
    }

    fn show(&mut self, progress: Progress) {
        let Progress { phase, done, total } = progress;
        if self.hidden {
            return;
        }
        // Elements are counted; users think in bytes of the file that is read.
        let in_bytes = matches!(phase, Phase::Measure | Phase::Write);
        if self.bar.as_ref().is_none_or(|(shown, _)| *shown != phase) {
            self.clear();
            self.bar = Some((phase, bar(phase, if in_bytes { self.source_bytes } else { total })));
        }
        if let Some((_, bar)) = &self.bar {
            bar.set_position(if in_bytes { scaled(done, total, self.source_bytes) } else { done });
        }
    }

    fn clear(&self) {
        if let Some((_, bar)) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// A bar for `phase`, not drawn before it has all that it shows.
fn bar(phase: Phase, len: u64) -> ProgressBar {
    let (name, template) = match phase {
        Phase::Measure => ("measuring", BYTES),
        Phase::Write => ("writing", BYTES),
        Phase::Golden => ("running", STEPS),
        Phase::Quality => ("comparing", STEPS),
        _ => ("checking", "{msg}"),
    };
    let bar = ProgressBar::with_draw_target(Some(len), ProgressDrawTarget::stderr()).with_message(name);
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

const BYTES: &str = "{msg:9} {bar:30} {decimal_bytes} of {decimal_total_bytes}, {eta} left";
const STEPS: &str = "{msg:9} {bar:30} {pos} of {len} tokens, {eta} left";

fn scaled(done: u64, total: u64, bytes: u64) -> u64 {
    if total == 0 { bytes } else { (u128::from(done) * u128::from(bytes) / u128::from(total)) as u64 }
}

fn as_json(report: &Report) -> serde_json::Value {
    json!({
        "out": report.out.to_string_lossy(),
        "format": report.format.number(),
        "dtype": report.dtype.name(),
        "file_bytes": report.file_bytes,
        "source_bytes": report.source_bytes,
        "ratio": report.ratio(),
        "num_params": report.num_params,
        "num_tensors": report.tensors.len(),
        "max_abs": float(report.figures.max_abs),
        "min_nonzero_abs": float(report.figures.min_nonzero_abs),
        "flushed": report.figures.flushed,
        "subnormal": report.figures.subnormal,
        "golden": report.golden,
        "fingerprint": format!("{:08x}", report.fingerprint),
        "quality": report.quality.as_ref().map(quality_json),
        "samples": report.samples.map(|compared| json!({
            "count": compared.samples,
            "compared": compared.known,
            "max_abs_error": float(compared.worst),
            "tolerance_used": float(compared.worst_part),
        })),
        "fixed": report.fixed.iter().map(|fixed| json!({ "key": fixed.key, "value": fixed.value, "why": fixed.why })).collect::<Vec<_>>(),
        "warnings": report.warnings,
    })
}

fn quality_json(quality: &Quality) -> serde_json::Value {
    let Divergence { positions, kl, max_abs_delta, mean_abs_delta, top1, reference_perplexity, perplexity } = quality.divergence;
    json!({
        "text": quality.text.to_string_lossy(),
        "windows": quality.windows,
        "positions": positions,
        "kl": kl,
        "max_abs_delta": max_abs_delta,
        "mean_abs_delta": mean_abs_delta,
        "top1": top1,
        "reference_perplexity": reference_perplexity,
        "perplexity": perplexity,
    })
}

fn quality_rows(quality: &Quality) -> Vec<(&'static str, String)> {
    let Divergence { positions, kl, max_abs_delta, top1, reference_perplexity, perplexity, .. } = quality.divergence;
    let mut rows = vec![
        (
            "compared on",
            format!("{} in {} of {}", count(positions, "token"), count(quality.windows as u64, "window"), shown_path(&quality.text)),
        ),
        ("KL from f32", format!("{kl:.2e} a token")),
        ("same best token", format!("{:.1}%", 100.0 * top1)),
        ("largest difference", format!("{max_abs_delta:.3} of a logit")),
    ];
    if let (Some(before), Some(after)) = (reference_perplexity, perplexity) {
        rows.push(("perplexity", format!("{after:.3}, in f32 {before:.3} ({:+.2}%)", 100.0 * (after / before - 1.0))));
    }
    rows
}

fn print(report: &Report, tensors: bool, source: &Path) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let lines: Vec<TensorLine> = report.tensors.iter().map(TensorLine::from).collect();
    writeln!(out, "{} is now a .dmexp of {}", shown_path(&report.out), shown_path(source))?;
    let figures = &report.figures;
    let mut rows = vec![
        ("format", report.format.number().to_string()),
        ("dtype", report.dtype.name().to_owned()),
        ("parameters", grouped(report.num_params)),
        ("tensors", format!("{}: {}", lines.len(), by_dtype(&lines))),
        ("file", bytes(report.file_bytes)),
        ("of the source", format!("{:.1}% of {}", 100.0 * report.ratio(), bytes(report.source_bytes))),
        ("max_abs", magnitude(figures.max_abs)),
        ("min_nonzero_abs", magnitude(figures.min_nonzero_abs)),
        ("flushed to 0", count(figures.flushed, "value")),
        ("subnormal", count(figures.subnormal, "value")),
        ("golden vectors", report.golden.to_string()),
        ("fingerprint", format!("{:08x}", report.fingerprint)),
    ];
    if let Some(quality) = &report.quality {
        rows.extend(quality_rows(quality));
    }
    if let Some(compared) = report.samples.filter(|compared| compared.known > 0) {
        let what = format!(
            "{}; the largest error is {:.2e}, {:.3} of the tolerance 1e-5 + 1e-5 of the value",
            count(compared.known as u64, "sample"),
            compared.worst,
            compared.worst_part
        );
        rows.push(("compared with", what));
    }
    rows.extend(report.fixed.iter().map(|fixed| (fixed.key, format!("{} ({})", fixed.value, fixed.why))));
    facts(&mut out, &rows)?;
    if tensors {
        writeln!(out, "\n{}", tensor_table(&lines))?;
    }
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_shown_reach_the_source_and_never_pass_it() {
        assert_eq!(scaled(0, 100, 4000), 0);
        assert_eq!(scaled(100, 100, 4000), 4000);
        assert_eq!(scaled(u64::MAX, u64::MAX, u64::MAX), u64::MAX);
        assert_eq!(scaled(0, 0, 7), 7);
    }
}

//! `dmexp bench`: how fast models run on this machine.

use super::args;
use super::bench_report;
use super::dormouse_run::DormouseRunArgs;
use super::failure::{Outcome, request};
use super::output::json;
use super::run_on::{Processor, RunOn};
use clap::Args;
use dmexp::simd::Level;
use dmexp_format::{DType, KvDType};
use dmexp_tools::bench::{self, Request, Wanted};
use dmexp_tools::decode::{Load, Loaded, physical_cores};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{self, Write};
use std::path::PathBuf;

/// Measure how fast models run on this machine
///
/// Tokens a second of reading a text at once (prefill) and of feeding tokens one by one (decode), at each of the given lengths of text before them; the median of the repetitions, the lowest and the highest. Beside them: the median for a second of processor time, milliseconds a token, memory, and of decoding the bytes that it reads for a token and which share that is of what the same threads read of memory of their own, measured in the same run. For models of dormouse the rate is bytes a second, for small networks predictions a second.
///
/// Each repetition measures everything once, so that what else the machine does meets all rows alike; a pass before them is not counted. The tokens are made up: speed does not depend on them.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  dmexp bench --export stories.dmexp
  dmexp bench --export smollm2.q8.dmexp --export smollm2.q4.dmexp --threads 1,2
  dmexp bench --export smollm2.q8.dmexp --pp 0 --tg 16 --context 0,256,512,1024,2048
  dmexp bench --export smollm2.q8.dmexp --kv f32,f16,q8 --context 1000 --csv
  dmexp bench --export kws.dmexp --json
  dmexp bench --export smollm2.bf16.dmexp --device cuda
  dmexp bench --costs bf16")]
pub(crate) struct Bench {
    /// The .dmexp file to run; may be given more than once
    #[arg(long, value_name = "FILE", required_unless_present = "costs")]
    export: Vec<PathBuf>,
    /// How many tokens are read at once; 0 leaves it out
    #[arg(long, value_name = "N,..", default_value = "128", value_delimiter = ',', value_parser = args::number, allow_negative_numbers = true)]
    pub(super) pp: Vec<u32>,
    /// How many tokens are fed one by one; 0 leaves it out
    #[arg(long, value_name = "N,..", default_value = "64", value_delimiter = ',', value_parser = args::number, allow_negative_numbers = true)]
    pub(super) tg: Vec<u32>,
    /// How many tokens come before them
    #[arg(long, value_name = "N,..", default_value = "0", value_delimiter = ',', value_parser = args::number, allow_negative_numbers = true)]
    pub(super) context: Vec<u32>,
    /// How keys and values are kept: f32, f16 or q8
    #[arg(long, value_name = "TYPE,..", default_value = "f16", value_delimiter = ',', value_parser = args::kv)]
    pub(super) kv: Vec<KvDType>,
    /// How many threads share the work [default: one a core]
    #[arg(long, value_name = "N,..", value_delimiter = ',', value_parser = args::threads, allow_negative_numbers = true)]
    pub(super) threads: Vec<u32>,
    /// The vector instructions to use: baseline, avx2, avx512 or vnni [default: the best that the machine has]
    #[arg(long, value_name = "LEVEL,..", value_delimiter = ',', value_parser = args::level)]
    pub(super) simd: Vec<Level>,
    /// How the files come to memory: map, copy or auto, as for dmexp generate
    #[arg(long, value_name = "HOW", default_value = "map", value_parser = args::load)]
    pub(super) load: Load,
    /// How often everything is measured
    #[arg(long, value_name = "N", default_value = "5", value_parser = args::from_one, allow_negative_numbers = true)]
    pub(super) repetitions: u32,
    /// Prints JSON, with the rate of each repetition
    #[arg(long, conflicts_with = "csv")]
    pub(super) json: bool,
    /// Prints CSV: a line a row, with the names of the columns in the first
    #[arg(long)]
    pub(super) csv: bool,
    /// Shows no progress
    #[arg(long)]
    quiet: bool,
    #[command(flatten)]
    pub(super) on: RunOn,
    /// Shows what steps of known shapes should cost on an NVIDIA H200, by a model of bytes and launches, with their matrices in this type; nothing is measured
    #[arg(long, value_name = "TYPE", value_parser = args::dtype, conflicts_with_all = ["export", "csv"])]
    pub(super) costs: Option<DType>,
    #[command(flatten)]
    dormouse: DormouseRunArgs,
}

/// Runs the command.
pub(crate) fn run(command: &Bench) -> Outcome {
    #[cfg(feature = "cuda")]
    if let Some(dtype) = command.costs {
        return super::bench_cuda::costs(command, dtype);
    }
    #[cfg(not(feature = "cuda"))]
    if command.costs.is_some() || command.on.device != Processor::Cpu {
        return Err(request("this dmexp was built without the feature cuda", "use a build that has it"));
    }
    if let Some(level) = command.simd.iter().find(|level| **level > Level::best()) {
        return Err(request(format!("this machine has no {}", level.name()), format!("the most it has is {}", Level::best().name())));
    }
    let loaded = command.export.iter().map(|path| Loaded::open_as(path, command.load)).collect::<Result<Vec<_>, _>>()?;
    let threads: Vec<usize> =
        if command.threads.is_empty() { vec![physical_cores()] } else { command.threads.iter().map(|threads| *threads as usize).collect() };
    let levels = if command.simd.is_empty() { vec![Level::best()] } else { command.simd.clone() };
    let wanted = Wanted {
        exports: &loaded,
        prefill: &command.pp,
        decode: &command.tg,
        contexts: &command.context,
        kv: &command.kv,
        repetitions: command.repetitions,
    };
    let bar = bar(command.quiet || command.json || command.csv, "measuring");
    #[cfg(feature = "cuda")]
    if let Processor::Cuda(number) = command.on.device {
        return super::bench_cuda::run(command, number, wanted, &bar);
    }
    let request = Request { wanted, threads: &threads, levels: &levels, dormouse: command.dormouse.options() };
    let report = bench::run(&request, &mut |done, total| {
        bar.set_length(total);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    let report = report?;
    loaded.iter().try_for_each(Loaded::unchanged)?;
    if command.json {
        return Ok(json(&bench_report::as_json(&report, &loaded, command)?)?);
    }
    let text = if command.csv { bench_report::csv(&report, &loaded)? } else { bench_report::text(&report, &loaded)? };
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

/// A bar for progress on stderr, which says what is done.
pub(super) fn bar(hidden: bool, what: &'static str) -> ProgressBar {
    let target = if hidden { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
    let bar = ProgressBar::with_draw_target(None, target).with_message(what);
    match ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len} {eta}") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

//! `dmexp compare`: a device with this machine, for which see [`compare_machines`]; and `dmexp compare dtypes`: one checkpoint in several element types, on one text.

use super::args;
use super::compare_machines::{self, Machines};
use super::failure::{Outcome, request};
use super::figures::magnitude;
use super::logits::Convention;
use super::model::{ModelArgs, for_checkpoint, tokenizer_files};
use super::output::{count, float, grouped, json, table};
use super::signals::cancel_flag;
use clap::{ArgMatches, Args, FromArgMatches, Subcommand};
use dmexp_format::DType;
use dmexp_tools::checkpoint::{self, Config};
use dmexp_tools::compare::{self, Comparison, Measured, Request};
use dmexp_tools::error::Error;
use dmexp_tools::input::{self, TEXT_LIMIT};
use dmexp_tools::target::Target;
use indicatif::{ProgressBar, ProgressDrawTarget};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;

/// Compare a device with this machine bit by bit, or exports of one model
///
/// Plays the same tokens on both sides and compares the logits: whether all bits are the same and, where they are not, at which position and in which layer the first difference is, how far apart they are, and whether it is the weights or the arithmetic. docs/compare.md says more.
#[derive(Debug, Args)]
#[command(
    arg_required_else_help = true,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "\
Examples:
  dmexp compare --export stories.dmexp --device qemu:an386 --prompt \"Once upon a time\"
  dmexp compare --export stories.dmexp --device /dev/ttyACM0 --text story.txt --svg layers.svg
  dmexp compare --export mine.dmexp --reference-export yours.dmexp --device cpu --tokens 1,403,407
  dmexp compare dtypes stories260K.bin --tokenizer tok512.bin --text story.txt

Exit codes: 0 all bits are the same; 1 they differ; 2 they could not be compared."
)]
pub(crate) struct Compare {
    #[command(flatten)]
    model: OfNoSubcommand<ModelArgs>,
    #[command(flatten)]
    machines: OfNoSubcommand<Machines>,
    // The last to be read: the others look whether there is one, and reading takes it away.
    #[command(subcommand)]
    what: Option<What>,
}

/// Arguments of the command itself, which are not there where a subcommand is.
#[derive(Debug)]
struct OfNoSubcommand<T>(Option<T>);

impl<T: FromArgMatches> FromArgMatches for OfNoSubcommand<T> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let is_there = matches.subcommand_name().is_none();
        Ok(Self(is_there.then(|| T::from_arg_matches(matches)).transpose()?))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl<T: Args> Args for OfNoSubcommand<T> {
    fn augment_args(command: clap::Command) -> clap::Command {
        T::augment_args(command)
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        T::augment_args_for_update(command)
    }
}

#[derive(Debug, Subcommand)]
enum What {
    Dtypes(Dtypes),
}

/// Export a checkpoint in several element types and show what each changes against f32
///
/// Each type is exported, run on the same windows of the text with keys and values in f32, and compared with the f32 export: the difference of logits, how often the best token is the same, the Kullback-Leibler divergence in nats a token, perplexity, and how many tokens of a greedy text are the same. A type that cannot hold the weights is a row that says why. The exports are made in a temporary folder (TMPDIR) and deleted.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  dmexp compare dtypes stories260K.bin --tokenizer tok512.bin --text story.txt
  dmexp compare dtypes SmolLM2-135M-Instruct --text story.txt --dtypes f16,bf16,q8 --windows 4
  dmexp compare dtypes stories260K.bin --tokenizer tok512.bin --text story.txt \\
    --csv table.csv --svg plot.svg")]
pub(crate) struct Dtypes {
    /// The training checkpoint: a file, or the folder of a Hugging Face model
    #[arg(value_name = "PATH")]
    checkpoint: PathBuf,
    /// The text to run
    #[arg(long, value_name = "FILE")]
    text: PathBuf,
    /// The tokenizer the model was trained with, where the checkpoint has none: a file, or the word bytes
    #[arg(long, value_name = "FILE|bytes")]
    tokenizer: Option<OsString>,
    /// The element types besides f32 [default: f16,bf16,q8,q4; for dormouse's models f16,bf16,t2,q8]
    #[arg(long = "dtypes", value_name = "TYPES", value_delimiter = ',', value_parser = args::dtype)]
    types: Option<Vec<DType>>,
    /// How many windows, spaced evenly through the text
    #[arg(long, value_name = "N", default_value = "16", value_parser = args::from_one)]
    windows: u32,
    /// Bytes of a window
    #[arg(long, value_name = "N", default_value = "256", value_parser = args::from_one)]
    window_bytes: u32,
    /// The most tokens of the greedy texts
    #[arg(long, value_name = "N", default_value = "256", value_parser = args::from_one)]
    greedy: u32,
    /// dormouse models: whether each position sees the bytes before it alone, or windows are run as wholes, as dormouse's evaluation does, which is many times faster
    #[arg(long, value_name = "prefix|full", default_value = "prefix")]
    convention: Convention,
    /// Writes the table as CSV
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Draws size against divergence
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Prints the table as JSON
    #[arg(long)]
    json: bool,
    /// Shows no progress
    #[arg(long)]
    quiet: bool,
}

/// Runs the command.
pub(crate) fn run(command: &Compare) -> Outcome {
    match command {
        Compare { what: Some(What::Dtypes(command)), .. } => dtypes(command),
        Compare { model: OfNoSubcommand(Some(model)), machines: OfNoSubcommand(Some(machines)), .. } => {
            compare_machines::run(model, machines)
        }
        _ => Err(request("there is nothing to compare", "name a file and a device: --export, --device")),
    }
}

fn dtypes(command: &Dtypes) -> Outcome {
    let text = input::read(&command.text, TEXT_LIMIT)?;
    let mut sources = vec![command.checkpoint.clone(), command.text.clone()];
    sources.extend(checkpoint::beside(&command.checkpoint));
    sources.extend(command.tokenizer.as_deref().map(tokenizer_files).unwrap_or_default());
    let target = |path: &Option<PathBuf>| path.as_deref().map(|path| Target::new(path, sources.iter().map(PathBuf::as_path))).transpose();
    let (csv_file, svg_file) = (target(&command.csv)?, target(&command.svg)?);
    if let (Some(csv), Some(svg)) = (&csv_file, &svg_file)
        && csv.is_that_of(svg)
    {
        return Err(request("--csv and --svg name one file", "name two"));
    }
    let mut checkpoint = checkpoint::open(&command.checkpoint)?;
    let vocab_size = match &checkpoint.config {
        Config::Llama(source) => Some(source.config.vocab_size),
        Config::Dormouse(_) => None,
        _ => return Err(request("this checkpoint's architecture cannot be run", "use a newer version of dmexp")),
    };
    if vocab_size.is_some() && command.convention == Convention::Full {
        return Err(request("--convention full is for models of dormouse", "leave it out"));
    }
    let canonical = if vocab_size.is_some() {
        None
    } else {
        let mut canonical = checkpoint::open(&command.checkpoint)?;
        canonical.canonical_factors()?;
        Some(canonical)
    };
    if let (None, Some(name)) = (vocab_size, &command.tokenizer) {
        if name != "bytes" {
            return Err(request("the tokens of a model of dormouse are bytes", "leave --tokenizer out"));
        }
    } else if let (Some(vocab_size), Some(name)) = (vocab_size, &command.tokenizer) {
        checkpoint.tokenizer = Some(for_checkpoint(name, None, vocab_size)?);
    } else if vocab_size.is_some() && checkpoint.tokenizer.is_none() && checkpoint.refused_tokenizer.is_none() {
        return Err(request("the checkpoint has no tokenizer", "name the one that the model was trained with: --tokenizer"));
    }
    let usual = if canonical.is_some() {
        &[DType::F16, DType::Bf16, DType::T2, DType::Q8][..]
    } else {
        &[DType::F16, DType::Bf16, DType::Q8, DType::Q4]
    };
    let types = command.types.clone().unwrap_or_else(|| usual.to_vec());
    let wanted = Request {
        text: &text,
        windows: command.windows,
        window_bytes: command.window_bytes,
        greedy: command.greedy,
        dtypes: &types,
        canonical: canonical.as_ref(),
        full: command.convention == Convention::Full,
    };

    let folder =
        tempfile::tempdir().map_err(|error| Error::unwritable(&std::env::temp_dir(), error).advise("name another folder in TMPDIR"))?;
    let cancel = cancel_flag()?;
    let hidden = command.quiet || command.json;
    let bar = ProgressBar::with_draw_target(None, if hidden { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() });
    let found = compare::dtypes(&checkpoint, &wanted, folder.path(), &cancel, &mut |done, total| {
        bar.set_length(total);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    let found = found?;
    if let Some(target) = csv_file {
        let text = csv(&found);
        target.write(|out| out.write_all(text.as_bytes()).map_err(|error| target.failed(error)))?;
    }
    if let Some(target) = svg_file {
        let image = compare::svg(&found)?;
        target.write(|out| out.write_all(image.as_bytes()).map_err(|error| target.failed(error)))?;
    }
    if command.json {
        return Ok(json(&as_json(&found))?);
    }
    Ok(print(&found)?)
}

const COLUMNS: [&str; 13] = [
    "dtype",
    "file_bytes",
    "ratio",
    "max_abs",
    "min_nonzero_abs",
    "flushed",
    "max_delta",
    "mean_delta",
    "top1",
    "greedy_equal",
    "kl",
    "perplexity",
    "perplexity_f32",
];

fn cells(name: &str, measured: &Measured) -> [String; 13] {
    let divergence = &measured.divergence;
    let perplexity = |value: Option<f64>| value.map_or_else(String::new, |value| value.to_string());
    [
        name.to_owned(),
        measured.file_bytes.to_string(),
        measured.ratio.to_string(),
        measured.figures.max_abs.to_string(),
        measured.figures.min_nonzero_abs.to_string(),
        measured.figures.flushed.to_string(),
        divergence.max_abs_delta.to_string(),
        divergence.mean_abs_delta.to_string(),
        divergence.top1.to_string(),
        measured.greedy.to_string(),
        divergence.kl.to_string(),
        perplexity(divergence.perplexity),
        perplexity(divergence.reference_perplexity),
    ]
}

/// One line a type, those that were refused with empty cells; no cell has a comma.
fn csv(found: &Comparison) -> String {
    let mut text = COLUMNS.join(",");
    for row in &found.rows {
        let name = row.name();
        let cells = match &row.measured {
            Ok(measured) => cells(&name, measured).join(","),
            Err(_) => format!("{name}{}", ",".repeat(COLUMNS.len() - 1)),
        };
        text.push('\n');
        text.push_str(&cells);
    }
    text.push('\n');
    text
}

fn as_json(found: &Comparison) -> Value {
    let rows = found.rows.iter().map(|row| match &row.measured {
        Err(why) => json!({ "dtype": row.name(), "refused": why }),
        Ok(measured) => {
            let divergence = &measured.divergence;
            json!({
                "dtype": row.name(),
                "file_bytes": measured.file_bytes,
                "ratio": measured.ratio,
                "max_abs": float(measured.figures.max_abs),
                "min_nonzero_abs": float(measured.figures.min_nonzero_abs),
                "flushed": measured.figures.flushed,
                "max_abs_delta": divergence.max_abs_delta,
                "mean_abs_delta": divergence.mean_abs_delta,
                "top1": divergence.top1,
                "greedy_equal": measured.greedy,
                "kl": divergence.kl,
                "perplexity": divergence.perplexity,
                "perplexity_f32": divergence.reference_perplexity,
            })
        }
    });
    json!({
        "source_bytes": found.source_bytes,
        "windows": found.windows,
        "positions": found.positions,
        "greedy": found.greedy,
        "rows": rows.collect::<Vec<_>>(),
    })
}

fn print(found: &Comparison) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let measured = found.rows.iter().filter_map(|row| Some((row.name(), row.measured.as_ref().ok()?)));
    let rows = measured.map(|(name, measured)| {
        let Measured { file_bytes, ratio, figures, divergence, greedy } = measured;
        [
            name,
            grouped(*file_bytes),
            format!("{:.1}%", 100.0 * ratio),
            magnitude(figures.max_abs),
            magnitude(figures.min_nonzero_abs),
            grouped(figures.flushed),
            format!("{:.3e}", divergence.max_abs_delta),
            format!("{:.3e}", divergence.mean_abs_delta),
            format!("{:.2}%", 100.0 * divergence.top1),
            format!("{greedy} of {}", found.greedy),
            format!("{:.3e}", divergence.kl),
            divergence.perplexity.map_or_else(|| "n/a".to_owned(), |perplexity| format!("{perplexity:.4}")),
        ]
    });
    let header = [
        "type",
        "file",
        "of source",
        "max |w|",
        "min |w| > 0",
        "flushed",
        "max delta",
        "mean delta",
        "top-1",
        "greedy",
        "KL",
        "perplexity",
    ];
    writeln!(out, "{}", table(header, &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11], rows))?;
    for row in &found.rows {
        if let Err(why) = &row.measured {
            writeln!(out, "{}: {why}", row.name())?;
        }
    }
    writeln!(
        out,
        "{}, {}; deltas, KL (nats a token) and top-1 against f32",
        count(found.windows as u64, "window"),
        count(found.positions, "token")
    )?;
    out.flush()
}

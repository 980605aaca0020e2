//! `dmexp export to`: a `.dmexp` becomes a model in another format.

use super::failure::Outcome;
use super::output::{bytes, count, json};
use super::signals::cancel_flag;
use clap::Args;
use dmexp_tools::error::shown_path;
use dmexp_tools::export_to::{self, Destination};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::json;
use std::io::{self, Write};
use std::path::PathBuf;

/// Write a .dmexp file in another format
///
/// Weights of f32, f16 and bf16 are written bit for bit; what the format cannot say is refused by name. The file or folder appears when it is whole: a failed or stopped command leaves nothing.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  dmexp export to --format safetensors stories.dmexp --out stories
  dmexp export to --format llama2c-v0 stories.dmexp --out stories.bin
  dmexp export to --format rustyml kws.dmexp --out kws.bin

Formats: safetensors (a Hugging Face folder with config.json and model.safetensors), llama2c-v0 (llama2.c's checkpoint: f32, rope theta 10000, norm_eps 0.00001, no biases, no sliding window), rustyml (RustyML 0.17, sequential models) and rustyml-v3 (RustyML 0.16).")]
pub(crate) struct To {
    /// The .dmexp file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The format to write: safetensors, llama2c-v0, rustyml or rustyml-v3
    #[arg(long, value_name = "FORMAT", value_parser = destination)]
    format: Destination,
    /// The file to write; with --format safetensors the folder to make
    #[arg(long, value_name = "PATH")]
    out: PathBuf,
    /// Prints JSON
    #[arg(long)]
    json: bool,
}

fn destination(name: &str) -> Result<Destination, String> {
    Destination::from_name(name).map_err(|error| error.to_string())
}

/// Runs the command.
pub(crate) fn run(command: &To) -> Outcome {
    let cancel = cancel_flag()?;
    let bar = bar(command.json);
    let result = export_to::run(&command.file, command.format, &command.out, &cancel, &mut |done, total| {
        bar.set_length(total);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    let report = result?;
    if command.json {
        let value = json!({
            "out": report.out.to_string_lossy(),
            "format": report.format.name(),
            "bytes": report.bytes,
            "num_tensors": report.tensors,
            "notes": report.notes,
        });
        return Ok(json(&value)?);
    }
    for note in &report.notes {
        // If stderr is closed, nobody is left to tell.
        let _ = writeln!(io::stderr(), "note: {note}");
    }
    writeln!(
        io::stdout(),
        "{}: {}, {}, {}",
        shown_path(&report.out),
        report.format.name(),
        count(report.tensors, "tensor"),
        bytes(report.bytes)
    )?;
    Ok(())
}

fn bar(hidden: bool) -> ProgressBar {
    let target = if hidden { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
    let bar = ProgressBar::with_draw_target(Some(0), target);
    match ProgressStyle::with_template("writing   {bar:30} {percent}%, {eta} left") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

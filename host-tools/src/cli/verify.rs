//! `dmexp export verify`: every check there is, one a line.

use super::failure::{Failure, Outcome};
use super::output::{json, shown, style};
use anstyle::AnsiColor;
use clap::Args;
use dmexp_tools::decode::verify::Outcome as Found;
use dmexp_tools::decode::{VerifyReport, verify_all};
use dmexp_tools::error::shown_path;
use serde_json::json;
use std::io::{self, Write};
use std::path::PathBuf;

/// Make every check of a .dmexp file
///
/// Container, header against index, checksums, finite weights, the architecture's tensors, the tokenizer, and the golden vectors, for which the model is run. Says of each check whether it passed, failed or was not made. Exits with 1 if one failed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  dmexp export verify stories.dmexp
  dmexp export verify stories.dmexp --json")]
pub(crate) struct Verify {
    /// The .dmexp file, of format 1 or 2
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Prints JSON
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(crate) fn run(command: &Verify) -> Outcome {
    let report = verify_all(&command.file)?;
    if command.json {
        let checks = report.checks.iter().map(|check| {
            let (outcome, why) = match &check.outcome {
                Found::Passed => ("ok", None),
                Found::Failed(why) => ("failed", Some(why)),
                Found::NotMade(why) => ("not_checked", Some(why)),
            };
            json!({ "name": check.name, "outcome": outcome, "why": why })
        });
        json(&json!({
            "file": command.file.to_string_lossy(),
            "passed": report.passed(),
            "checks": checks.collect::<Vec<_>>(),
            "unknown_keys": report.unknown_keys,
        }))?;
    } else {
        print(command, &report)?;
    }
    if report.passed() { Ok(()) } else { Err(Failure::FoundWrong) }
}

fn print(command: &Verify, report: &VerifyReport) -> io::Result<()> {
    let mut out = anstream::stdout().lock();
    let (green, red, yellow) = (style(AnsiColor::Green), style(AnsiColor::Red), style(AnsiColor::Yellow));
    let (mut passed, mut failed, mut not_made) = (0, 0, 0);
    for check in &report.checks {
        let name = shown(&check.name);
        match &check.outcome {
            Found::Passed => {
                passed += 1;
                writeln!(out, "{green}ok{green:#}           {name}")?;
            }
            Found::Failed(why) => {
                failed += 1;
                writeln!(out, "{red}FAILED{red:#}       {name}: {}", shown(why))?;
            }
            Found::NotMade(why) => {
                not_made += 1;
                writeln!(out, "{yellow}not checked{yellow:#}  {name}: {}", shown(why))?;
            }
        }
    }
    for key in &report.unknown_keys {
        writeln!(out, "not known to this version, and without effect on what is computed: {}", shown(key))?;
    }
    let rest = if failed > 0 { "; later checks were not made" } else { "" };
    writeln!(out, "{}: {passed} passed, {failed} failed, {not_made} not checked{rest}", shown_path(&command.file))?;
    out.flush()
}

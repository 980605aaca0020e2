//! `dmexp export strip`: the form of a file for firmware.

use super::failure::{Outcome, request};
use super::output::{bytes, json};
use clap::Args;
use dmexp_format::host;
use dmexp_tools::decode::Loaded;
use dmexp_tools::error::{Error, shown_path};
use dmexp_tools::target::Target;
use serde_json::json;
use std::io::{self, Write};
use std::path::PathBuf;

/// Leave out of a format-2 file what only people read: the header
///
/// Index, weights, tokenizer, golden vectors and fingerprint stay; the model computes the same. Firmware that includes a model by the macro needs no such file.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  dmexp export strip stories.dmexp --out firmware.dmexp")]
pub(crate) struct Strip {
    /// The .dmexp file, of format 2
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The file to write
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Prints JSON
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(crate) fn run(command: &Strip) -> Outcome {
    let loaded = Loaded::open(&command.file)?;
    let file = loaded.file()?;
    if file.version() != 2 {
        let what = format!(
            "{} is of format {}, which has no index that could stand without the header",
            shown_path(&command.file),
            file.version()
        );
        return Err(request(what, "export the checkpoint again as format 2"));
    }
    let stripped = host::strip(loaded.bytes()).map_err(|error| Error::damaged(error.to_string()).in_file(&command.file))?;
    loaded.unchanged()?;
    let target = Target::new(&command.out, [command.file.as_path()])?;
    target.write(|out| out.write_all(&stripped).map_err(|error| target.failed(error)))?;
    let (before, after) = (loaded.bytes().len() as u64, stripped.len() as u64);
    if command.json {
        let value = json!({ "out": command.out.to_string_lossy(), "bytes_before": before, "bytes": after, "fingerprint": format!("{:08x}", file.fingerprint()) });
        return Ok(json(&value)?);
    }
    writeln!(io::stdout(), "{}: {}, {} less", shown_path(&command.out), bytes(after), bytes(before.saturating_sub(after)))?;
    Ok(())
}

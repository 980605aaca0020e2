//! `dmexp man`: manual pages, made of the command line's own definition.

use super::failure::{Failure, Outcome};
use clap::Args;
use clap_mangen::Man as Page;
use dmexp_tools::error::Error;
use std::io::{self, Write};
use std::path::PathBuf;

/// Print the manual page, or write one for every command
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  dmexp man | man -l -
  dmexp man --out ~/.local/share/man/man1")]
pub(crate) struct Man {
    /// A folder for the pages dmexp.1, dmexp-export.1 and so on, which are replaced where they are there
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
}

/// Runs the command.
pub(crate) fn run(command: &Man, definition: clap::Command) -> Outcome {
    if let Some(folder) = &command.out {
        let written = clap_mangen::generate_to(definition, folder);
        return written.map_err(|error| Failure::Told(Error::unwritable(folder, error)));
    }
    let mut page = Vec::new();
    Page::new(definition).render(&mut page)?;
    let mut out = io::stdout().lock();
    out.write_all(&page)?;
    Ok(out.flush()?)
}

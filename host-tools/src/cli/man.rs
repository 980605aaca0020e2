//! `dmexp man`: manual pages, made of the command line's own definition.

use super::failure::Outcome;
use clap::Args;
use clap_mangen::Man as Page;
use dmexp_tools::target::Target;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

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
pub(crate) fn run(command: &Man, mut definition: clap::Command) -> Outcome {
    if let Some(folder) = &command.out {
        definition = definition.disable_help_subcommand(true);
        definition.build();
        return pages(&definition, folder);
    }
    let mut page = Vec::new();
    Page::new(definition).render(&mut page)?;
    let mut out = io::stdout().lock();
    out.write_all(&page)?;
    Ok(out.flush()?)
}

/// Writes the page of `command` and those of the commands under it.
fn pages(command: &clap::Command, folder: &Path) -> Outcome {
    let page = Page::new(command.clone());
    let target = Target::new(&folder.join(page.get_filename()), [])?;
    target.write(|mut out| page.render(&mut out).map_err(|error| target.failed(error)))?;
    command.get_subcommands().filter(|command| !command.is_hide_set()).try_for_each(|command| pages(command, folder))
}

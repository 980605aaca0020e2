//! `dmexp completions`: for shells, made of the command line's own definition.

use super::failure::Outcome;
use clap::Args;
use clap_complete::Shell;
use std::io::{self, Write};

/// Print a completion script for a shell
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  dmexp completions bash > ~/.local/share/bash-completion/completions/dmexp
  dmexp completions zsh > \"${fpath[1]}/_dmexp\"
  dmexp completions fish > ~/.config/fish/completions/dmexp.fish
  dmexp completions powershell | Out-String | Invoke-Expression")]
pub(crate) struct Completions {
    /// The shell
    shell: Shell,
}

/// Runs the command.
pub(crate) fn run(command: &Completions, definition: &mut clap::Command) -> Outcome {
    // Into memory first: the generator panics where its output fails.
    let mut script = Vec::new();
    clap_complete::generate(command.shell, definition, "dmexp", &mut script);
    let mut out = io::stdout().lock();
    out.write_all(&script)?;
    Ok(out.flush()?)
}

//! Programs of crates.io that tasks use: the one on PATH, the one built earlier, or one built now into target/tools. Used by `book`, `deny`, `fuzz` and `semver`.

use crate::failure::Outcome;
use crate::{paths, process};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A program of a crate of the same name, with the version that this repository is checked with.
pub(crate) struct Tool {
    pub(crate) name: &'static str,
    pub(crate) version: &'static str,
    /// The subcommand of cargo that the program is, which its `--version` wants said; or nothing.
    pub(crate) subcommand: &'static [&'static str],
    /// More words for `cargo install`.
    pub(crate) options: &'static [&'static str],
}

impl Tool {
    /// The program, built now if need be. Built with the lock file that it was released with.
    pub(crate) fn program(&self) -> Outcome<PathBuf> {
        if let Some(found) = process::on_path(self.name).filter(|found| self.is(found)) {
            return Ok(found);
        }
        let root = paths::tools().join(self.name);
        let program = root.join("bin").join(self.name).with_extension(std::env::consts::EXE_EXTENSION);
        if self.is(&program) {
            return Ok(program);
        }
        println!("building {} {} into target/tools", self.name, self.version);
        let mut install = process::cargo();
        // Unoptimised and without debug information it is built in half the time, and what it works on here is small.
        install.current_dir(paths::root()).env("CARGO_PROFILE_DEV_DEBUG", "0");
        install.args(["install", "--quiet", "--locked", "--debug", "--force", self.name, "--version", self.version]);
        process::capture(install.args(self.options).arg("--root").arg(&root))?;
        Ok(program)
    }

    /// Whether a program is there and has the version.
    fn is(&self, program: &Path) -> bool {
        let said = process::capture(Command::new(program).args(self.subcommand).arg("--version"));
        said.is_ok_and(|said| said.split_whitespace().last().is_some_and(|last| last.trim_start_matches('v') == self.version))
    }
}

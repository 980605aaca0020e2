//! `cargo xtask deny`: holds every dependency to deny.toml, with cargo-deny. Not part of `test`: it takes a tool of its own and, for the advisories, the network.

use crate::failure::{Failure, Outcome};
use crate::tool::Tool;
use crate::{paths, process};
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

pub(crate) const HELP: &str = "\
Usage: cargo xtask deny [OPTIONS]

Refuses dependencies whose licence, source or version deny.toml does not allow, and those that RustSec's advisories name, in
every lock file of the repository. Takes cargo-deny, which is built from crates.io into target/tools where it is missing
(minutes). Where the advisories cannot be fetched, the rest is checked and the exit status is 2: what was not looked at is not
called clean.

Options:
  --no-advisories   Without the advisories, which are fetched from GitHub
";

/// What looks.
const DENY: Tool = Tool { name: "cargo-deny", version: "0.20.2", subcommand: &[], options: &[] };

/// The folders that have a lock file, from the repository's root.
const WORKSPACES: [&str; 5] = ["", "boards", "boards/real", "tests/fuzz", "tests/peers"];

pub(crate) fn main(words: Vec<OsString>) -> Outcome {
    use lexopt::prelude::*;
    let mut parser = lexopt::Parser::from_args(words);
    let mut advisories = true;
    while let Some(argument) = parser.next()? {
        match argument {
            Long("no-advisories") => advisories = false,
            other => return Err(other.unexpected().into()),
        }
    }
    let program = DENY.program()?;
    check(&program, &["licenses", "sources", "bans"])?;
    if advisories {
        check_advisories(&program)?;
    }
    Ok(())
}

/// The check of a release: everything.
pub(crate) fn check_all() -> Outcome<String> {
    let program = DENY.program()?;
    check(&program, &["licenses", "sources", "bans"])?;
    check_advisories(&program)?;
    Ok(format!("licences, sources and advisories of {} lock files", WORKSPACES.len()))
}

/// Refuses what the advisories name. Where they cannot be had, nothing is known, and that is said.
fn check_advisories(program: &Path) -> Outcome {
    process::capture(in_workspace(program, "").args(["fetch", "db"])).map_err(|failure| {
        Failure::cannot_run(format!("the advisories cannot be fetched, so nobody looked whether one names a dependency\n{failure}"))
    })?;
    check(program, &["--disable-fetch", "advisories"])
}

/// Runs these checks for every lock file.
fn check(program: &Path, words: &[&str]) -> Outcome {
    for workspace in WORKSPACES {
        println!("{}: {}", Path::new(workspace).join("Cargo.lock").display(), words.join(", "));
        process::run(in_workspace(program, workspace).args(["check", "--hide-inclusion-graph"]).args(words))?;
    }
    Ok(())
}

/// cargo-deny in the workspace of this folder, with the one configuration.
fn in_workspace(program: &Path, workspace: &str) -> Command {
    let mut deny = Command::new(program);
    deny.current_dir(paths::root().join(workspace)).args(["--locked", "--config"]).arg(paths::root().join("deny.toml"));
    deny
}

#[cfg(test)]
mod tests {
    use super::WORKSPACES;
    use crate::paths;

    #[test]
    fn every_lock_file_is_looked_at() {
        let mut found = Vec::new();
        let mut folders = vec![paths::root().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap()) {
                let name = entry.file_name();
                // Projects that are begun or built by tests lie in `target`.
                if entry.file_type().unwrap().is_dir() && name != "target" && name != ".git" {
                    folders.push(entry.path());
                } else if name == "Cargo.lock" {
                    found.push(folder.strip_prefix(paths::root()).unwrap().display().to_string());
                }
            }
        }
        found.sort();
        assert_eq!(found, WORKSPACES);
    }
}

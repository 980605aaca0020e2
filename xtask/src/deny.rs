//! `cargo xtask deny`: holds every dependency to deny.toml, with cargo-deny. Not part of `test`: it takes a tool of its own and, for the advisories, the network.

use crate::failure::{Failure, Outcome};
use crate::{paths, process};
use std::ffi::OsString;

pub(crate) const HELP: &str = "\
Usage: cargo xtask deny [OPTIONS]

Refuses dependencies whose licence, source or version deny.toml does not allow, and those that RustSec's advisories name, in
every lock file: the workspace, boards, boards/real, tests/peers. It takes cargo-deny (`cargo install cargo-deny --locked`).

Options:
  --no-advisories   Without the advisories, which are fetched from GitHub
";

/// The folders that have a lock file, from the repository's root.
const WORKSPACES: [&str; 4] = ["", "boards", "boards/real", "tests/peers"];

pub(crate) fn main(words: Vec<OsString>) -> Outcome {
    use lexopt::prelude::*;
    let mut parser = lexopt::Parser::from_args(words);
    let mut checks = vec!["licenses", "sources", "bans", "advisories"];
    while let Some(argument) = parser.next()? {
        match argument {
            Long("no-advisories") => checks.retain(|check| *check != "advisories"),
            other => return Err(other.unexpected().into()),
        }
    }
    if process::capture(process::cargo().args(["deny", "--version"])).is_err() {
        return Err(Failure::cannot_run("cargo-deny is not installed: `cargo install cargo-deny --locked`"));
    }
    for workspace in WORKSPACES {
        let folder = paths::root().join(workspace);
        println!("{}", folder.join("Cargo.lock").display());
        let mut deny = process::cargo();
        deny.current_dir(&folder).args(["deny", "--locked", "--config"]).arg(paths::root().join("deny.toml"));
        process::run(deny.args(["check", "--hide-inclusion-graph"]).args(&checks))?;
    }
    Ok(())
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

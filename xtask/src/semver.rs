//! `cargo xtask semver`: whether what is public changed so that users' code breaks, by cargo-semver-checks.

use crate::failure::{Failure, Outcome};
use crate::tool::Tool;
use crate::{paths, process};
use std::ffi::OsString;
use std::process::Command;

pub(crate) const HELP: &str = "\
Usage: cargo xtask semver [OPTIONS]

Compares what is public in dmexp-format, dmexp, dmexp-kernels and dmexp-tools with an earlier revision, and refuses changes that the
version does not allow: of 0.1.0 everything that breaks users' code needs 0.2.0. Takes cargo-semver-checks, which is built from
crates.io into target/tools where it is missing (minutes).

Options:
  --baseline REV   The revision to compare with, a tag or a commit (default: the last tag; without one nothing is
                   compared, and that passes)
  --package NAME   Only this package; may be given more than once
";

/// What compares.
const CHECKS: Tool = Tool { name: "cargo-semver-checks", version: "0.51.0", subcommand: &["semver-checks"], options: &[] };

/// The libraries that are published. Of a macro there is nothing that can be compared.
const LIBRARIES: [&str; 4] = ["dmexp-format", "dmexp", "dmexp-kernels", "dmexp-tools"];

pub(crate) fn main(words: Vec<OsString>) -> Outcome {
    use lexopt::prelude::*;
    let mut parser = lexopt::Parser::from_args(words);
    let mut baseline = None;
    let mut packages: Vec<String> = Vec::new();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("baseline") => baseline = Some(parser.value()?.string()?),
            Long("package") => packages.push(parser.value()?.string()?),
            other => return Err(other.unexpected().into()),
        }
    }
    if let Some(unknown) = packages.iter().find(|name| !LIBRARIES.contains(&name.as_str())) {
        return Err(Failure::cannot_run(format!("`{unknown}` is none of the published libraries: {}", LIBRARIES.join(", "))));
    }
    if packages.is_empty() {
        packages = LIBRARIES.map(str::to_owned).to_vec();
    }
    println!("{}", compare(baseline, &packages)?);
    Ok(())
}

/// The check of a release: every library against the last tag.
pub(crate) fn check_release() -> Outcome<String> {
    compare(None, &LIBRARIES.map(str::to_owned))
}

/// Compares with the revision or else the last tag, and says with which.
fn compare(baseline: Option<String>, packages: &[String]) -> Outcome<String> {
    let baseline = match baseline {
        Some(named) => {
            // Else a word that names nothing would be cargo-semver-checks' own error, after minutes of building it.
            git(&["rev-parse", "--verify", "--quiet", &format!("{named}^{{commit}}")])
                .map_err(|_| Failure::cannot_run(format!("there is no revision `{named}` in this repository")))?;
            named
        }
        None => match last_tag()? {
            Some(tag) => tag,
            None => return Ok("nothing is compared: no release is tagged yet; --baseline REV compares with a revision".to_owned()),
        },
    };
    let mut check = Command::new(CHECKS.program()?);
    check.current_dir(paths::root()).args(["semver-checks", "check-release", "--baseline-rev", &baseline]);
    process::run(check.args(packages.iter().flat_map(|package| ["--package", package])))?;
    Ok(format!("{} compared with {baseline}: nothing breaks that the version does not allow", packages.join(", ")))
}

/// The last tag before the revision that is checked out, if there is one.
fn last_tag() -> Outcome<Option<String>> {
    // Of `git describe` a repository without tags is an error like any other.
    if git(&["tag", "--merged"])?.is_empty() {
        return Ok(None);
    }
    git(&["describe", "--tags", "--abbrev=0"]).map(Some)
}

fn git(words: &[&str]) -> Outcome<String> {
    process::capture(Command::new("git").current_dir(paths::root()).args(words)).map(|said| said.trim().to_owned())
}

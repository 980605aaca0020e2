//! `cargo xtask release`: whether this could be released. Publishes nothing.

mod packages;
mod versions;

use crate::failure::{Failure, Outcome};
use crate::{deny, semver};
use std::ffi::OsString;

pub(crate) use packages::check_contents;
pub(crate) use versions::check as check_versions;

pub(crate) const HELP: &str = "\
Usage: cargo xtask release [OPTIONS]

Looks whether this could be released, and publishes nothing:
  versions   One version and one Rust everywhere, lock files that are committed, a CHANGELOG that has the version or an
             [Unreleased] part
  packages   Each package has its licences and a README, and the set builds from the packages alone
  install    The command is built from its package as `cargo install` does it, and a firmware project that it begins builds
             with the packages
  semver     What is public has not changed so that users' code breaks, against the last tag (cargo xtask semver)
  deny       Licences, sources and advisories of the dependencies (cargo xtask deny)

Prints what each found and a table. Exit status 1 where a check failed, 2 where one could not be done.

Options:
  --only NAME   Only this check; may be given more than once
";

/// One check: its name and what it finds, in a few words.
type Check = (&'static str, fn() -> Outcome<String>);

const CHECKS: &[Check] = &[
    ("versions", versions::check),
    ("packages", packages::verify),
    ("install", packages::install),
    ("semver", semver::check_release),
    ("deny", deny::check_all),
];

pub(crate) fn main(words: Vec<OsString>) -> Outcome {
    use lexopt::prelude::*;
    let mut parser = lexopt::Parser::from_args(words);
    let mut only: Vec<String> = Vec::new();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("only") => only.push(parser.value()?.string()?),
            other => return Err(other.unexpected().into()),
        }
    }
    let names: Vec<_> = CHECKS.iter().map(|(name, _)| *name).collect();
    if let Some(unknown) = only.iter().find(|name| !names.contains(&name.as_str())) {
        return Err(Failure::cannot_run(format!("there is no check `{unknown}`; the checks are: {}", names.join(", "))));
    }
    let mut results = Vec::new();
    for (name, check) in CHECKS.iter().filter(|(name, _)| only.is_empty() || only.iter().any(|wanted| wanted == name)) {
        println!("{name}");
        results.push((*name, check()));
    }
    print!("\n{}", table(&results));
    verdict(&results)
}

/// A line for each check: what it found, or the first line of why not.
fn table(results: &[(&str, Outcome<String>)]) -> String {
    let line = |(name, result): &(&str, Outcome<String>)| match result {
        Ok(found) => format!("{name:<9} ok        {found}\n"),
        Err(failure) => {
            let word = if failure.is_found_wrong() { "failed" } else { "not done" };
            let text = failure.to_string();
            format!("{name:<9} {word:<8}  {}\n", text.lines().next().unwrap_or_default())
        }
    };
    results.iter().map(line).collect()
}

/// A check that failed weighs more than one that could not be done, and both more than those that passed. The whole of what they say stands in the message.
fn verdict(results: &[(&str, Outcome<String>)]) -> Outcome {
    let failures: Vec<_> = results.iter().filter_map(|(name, result)| Some((*name, result.as_ref().err()?))).collect();
    if failures.is_empty() {
        return Ok(());
    }
    let said: Vec<_> = failures.iter().map(|(name, failure)| format!("{name}: {failure}")).collect();
    let message = format!("this cannot be released\n{}", said.join("\n"));
    let wrong = failures.iter().any(|(_, failure)| failure.is_found_wrong());
    Err(if wrong { Failure::found_wrong(message) } else { Failure::cannot_run(message) })
}

#[cfg(test)]
mod tests {
    use super::{table, verdict};
    use crate::failure::{Failure, Outcome};

    fn results(failures: &[Failure]) -> Vec<(&'static str, Outcome<String>)> {
        let failed = failures.iter().map(|failure| {
            let text = failure.to_string();
            let again = if failure.is_found_wrong() { Failure::found_wrong(text) } else { Failure::cannot_run(text) };
            ("bad", Err(again))
        });
        [("good", Ok("all of it".to_owned()))].into_iter().chain(failed).collect()
    }

    #[test]
    fn what_could_not_be_done_is_not_shown_as_clean() {
        assert!(verdict(&results(&[])).is_ok());
        let undone = results(&[Failure::cannot_run("no network\nat all")]);
        assert_eq!(table(&undone), "good      ok        all of it\nbad       not done  no network\n");
        assert!(!verdict(&undone).unwrap_err().is_found_wrong());
        let both = results(&[Failure::cannot_run("no network"), Failure::found_wrong("a break")]);
        let error = verdict(&both).unwrap_err();
        assert!(error.is_found_wrong() && error.to_string().contains("no network") && error.to_string().contains("a break"), "{error}");
    }
}

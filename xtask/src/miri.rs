//! `cargo xtask miri`: the tests of the file and of the runtime under Miri or `AddressSanitizer`, which see what no test of results sees: memory used against the rules of the language.

use crate::failure::{Failure, Outcome};
use crate::{paths, process};
use std::ffi::OsString;
use std::process::{Command, Stdio};
use std::time::Instant;

pub(crate) const HELP: &str = "\
Usage: cargo xtask miri [OPTIONS]

Runs the tests of dmexp-format and dmexp under Miri, an interpreter that refuses undefined behaviour, and prints how many passed
by crate and target: 64 bits, 32 bits, and big-endian (there without the probe, which is for little-endian machines). Sizes are
smaller there; vector instructions are those of the target's baseline. Takes a nightly toolchain with Miri, and an hour or so.

Options:
  --target TARGET  x86_64-unknown-linux-gnu, i686-unknown-linux-gnu or s390x-unknown-linux-gnu; more than once for several
  --quick          Of the runtime only what has unsafe code, on the first target
  --sanitizer      AddressSanitizer in place of Miri, by the toolchain of this repository: also reaches the vector instructions
                   that this machine has (x86-64 Linux alone)
";

/// The toolchain that Miri is looked for in, and what puts it there.
const TOOLCHAIN: &str = "nightly";
const ADVICE: &str = "there is no nightly toolchain with Miri: `rustup toolchain install nightly --component miri,rust-src`";

/// One target of Miri, and the features of the runtime whose tests run there.
struct Target {
    name: &'static str,
    runtime: &'static str,
}

const TARGETS: [Target; 3] = [
    Target { name: "x86_64-unknown-linux-gnu", runtime: "std,probe" },
    Target { name: "i686-unknown-linux-gnu", runtime: "std,probe" },
    Target { name: "s390x-unknown-linux-gnu", runtime: "std" },
];

/// The names of the tests of all unsafe code of the runtime.
const UNSAFE: &str = "ops::chip::";

/// Pointers are what they were made of, and alignment is what is known of them, not what they happen to have; tests read files and the environment.
const MIRI_FLAGS: &str = "-Zmiri-strict-provenance -Zmiri-symbolic-alignment-check -Zmiri-disable-isolation";

/// Cases of a property where it does not say itself how many.
const CASES: &str = "4";

/// Tests of one crate on one target, and the seconds that they took.
struct Row {
    package: &'static str,
    target: &'static str,
    passed: u64,
    seconds: u64,
}

pub(crate) fn main(words: Vec<OsString>) -> Outcome {
    use lexopt::prelude::*;
    let mut parser = lexopt::Parser::from_args(words);
    let (mut chosen, mut quick, mut sanitizer) = (Vec::new(), false, false);
    while let Some(argument) = parser.next()? {
        match argument {
            Long("target") => {
                let name = parser.value()?.string()?;
                let known = || TARGETS.iter().map(|target| target.name).collect::<Vec<_>>().join(", ");
                let target = TARGETS.iter().find(|target| target.name == name);
                chosen.push(target.ok_or_else(|| Failure::cannot_run(format!("there is no target `{name}`; they are: {}", known())))?);
            }
            Long("quick") => quick = true,
            Long("sanitizer") => sanitizer = true,
            other => return Err(other.unexpected().into()),
        }
    }
    if sanitizer {
        return if chosen.is_empty() && !quick { sanitize() } else { Err(Failure::cannot_run("--sanitizer stands alone")) };
    }
    if !is_there() {
        return Err(Failure::cannot_run(ADVICE));
    }
    if chosen.is_empty() {
        chosen.extend(TARGETS.iter().take(if quick { 1 } else { TARGETS.len() }));
    }
    let mut rows = Vec::new();
    for target in chosen {
        if !quick {
            rows.push(tested("dmexp-format", target.name, interpreted("dmexp-format", target.name, "std"), "")?);
        }
        rows.push(tested("dmexp", target.name, interpreted("dmexp", target.name, target.runtime), if quick { UNSAFE } else { "" })?);
    }
    print(&rows);
    Ok(())
}

/// Whether there is a Miri, and the source that it builds the standard library of a target from.
fn is_there() -> bool {
    let listed = Command::new("rustup").args(["component", "list", "--installed", "--toolchain", TOOLCHAIN]).output();
    listed.is_ok_and(|listed| {
        let text = String::from_utf8_lossy(&listed.stdout).into_owned();
        listed.status.success()
            && text.lines().any(|line| line.starts_with("miri"))
            && text.lines().any(|line| line.starts_with("rust-src"))
    })
}

/// `cargo miri test` of a crate's library.
fn interpreted(package: &str, target: &str, features: &str) -> Command {
    let mut cargo = Command::new("rustup");
    cargo.args(["run", TOOLCHAIN, "cargo", "miri", "test", "--locked", "--lib", "--package", package, "--target", target]);
    cargo.args(["--features", features]).env("MIRIFLAGS", MIRI_FLAGS).env("PROPTEST_CASES", CASES);
    // Set by the cargo that runs this task, to programs of its own toolchain.
    cargo.env_remove("CARGO").env_remove("RUSTC").env_remove("RUSTUP_TOOLCHAIN");
    cargo
}

/// The runtime's tests with every access to memory checked, by the stable compiler with its unstable option let through.
fn sanitize() -> Outcome {
    const TARGET: &str = "x86_64-unknown-linux-gnu";
    if !cfg!(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu")) {
        return Err(Failure::cannot_run(format!("AddressSanitizer is run on {TARGET} alone")));
    }
    let mut rows = Vec::new();
    for (package, features) in [("dmexp-format", "std"), ("dmexp", "std,probe")] {
        let mut cargo = process::cargo();
        // With a target, so that build scripts and macros are compiled without it; a folder of its own, so that nothing else is compiled again.
        cargo.args(["test", "--locked", "--lib", "--package", package, "--target", TARGET, "--features", features]);
        cargo.env("RUSTC_BOOTSTRAP", "1").env("RUSTFLAGS", "-Zsanitizer=address");
        cargo.env("CARGO_TARGET_DIR", paths::root().join("target/sanitizer"));
        rows.push(tested(package, TARGET, cargo, "")?);
    }
    print(&rows);
    Ok(())
}

/// Runs the tests whose names have `filter` in them; refuses a run that tests nothing.
fn tested(package: &'static str, target: &'static str, mut cargo: Command, filter: &str) -> Outcome<Row> {
    let started = Instant::now();
    cargo.current_dir(paths::root()).args(["--", filter]).stderr(Stdio::inherit());
    let output = cargo.output().map_err(|error| Failure::cannot_run(format!("cannot start `{}`: {error}", process::shown(&cargo))))?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        print!("{text}");
        return Err(Failure::found_wrong(format!("{package} on {target}: `{}` failed ({})", process::shown(&cargo), output.status)));
    }
    let passed = passed(&text);
    if passed == 0 {
        return Err(Failure::found_wrong(format!("{package} on {target}: no test was run")));
    }
    Ok(Row { package, target, passed, seconds: started.elapsed().as_secs() })
}

/// How many tests passed, of all summaries in what cargo wrote.
fn passed(text: &str) -> u64 {
    let summaries = text.lines().filter_map(|line| line.strip_prefix("test result: ok. ")?.split_once(" passed")?.0.parse::<u64>().ok());
    summaries.sum()
}

fn print(rows: &[Row]) {
    println!("{:<14}{:<28}{:>7}{:>9}", "crate", "target", "passed", "seconds");
    for row in rows {
        println!("{:<14}{:<28}{:>7}{:>9}", row.package, row.target, row.passed, row.seconds);
    }
}

#[cfg(test)]
mod tests {
    use super::passed;

    #[test]
    fn summaries_are_added_up() {
        let text = "running 2 tests\ntest result: ok. 2 passed; 0 failed; 0 ignored\n\ntest result: ok. 40 passed; 0 failed\n";
        assert_eq!(passed(text), 42);
        assert_eq!(passed("test result: FAILED. 3 passed; 1 failed"), 0);
    }
}

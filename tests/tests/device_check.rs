//! What a machine with a GPU is asked for, on one without: the hashes are those of the runtime as it is, and whatever keeps the script from checking something is said in one line.

use dmexp_tests::{dmexp, folder, root};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// What a run printed, and its status.
struct Ran {
    said: String,
    status: Option<i32>,
}

impl Ran {
    /// Lines that begin so.
    fn lines(&self, begin: &str) -> Vec<&str> {
        self.said.lines().filter(|line| line.starts_with(begin)).collect()
    }
}

/// The script on the processor, with `tools` before all other programs.
fn run(out: &Path, tools: &Path, words: &[&str], settings: &[(&str, &str)]) -> Ran {
    let path = format!("{}:{}", tools.display(), std::env::var("PATH").unwrap_or_default());
    let mut check = Command::new("bash");
    check.arg(root().join("tests/device_check/run.sh")).args(words);
    check.env("DMEXP", dmexp(out).get_program()).env("MADE", env!("CARGO_BIN_EXE_made-checkpoint"));
    check.env("DEVICE", "cpu").env("OUT", out).env("PATH", path).envs(settings.iter().copied());
    let output = check.output().expect("bash runs");
    let said = [output.stdout, output.stderr].map(|stream| String::from_utf8_lossy(&stream).into_owned()).concat();
    Ran { said, status: output.status.code() }
}

/// A program of this name that does what `script` says.
fn tool(folder: &Path, name: &str, script: &str) {
    let file = folder.join(name);
    fs::write(&file, format!("#!/bin/bash\n{script}\n")).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn the_stored_hashes_are_those_of_the_runtime() {
    let (out, tools) = (folder(), folder());
    let ran = run(out.path(), tools.path(), &["bits"], &[("BUDGET", "3000")]);
    assert_eq!(ran.status, Some(0), "{}", ran.said);
    assert_eq!(ran.said.matches("42 hashes are those of the runtime").count(), 2, "{}", ran.said);
}

#[test]
fn what_a_sanitizer_finds_and_what_keeps_it_from_looking_are_told_apart() {
    let (out, tools) = (folder(), folder());
    let sanitize = |script: &str, settings: &[(&str, &str)]| {
        tool(tools.path(), "compute-sanitizer", script);
        run(out.path(), tools.path(), &["sanitize"], settings)
    };
    // It runs the program behind its own four words.
    let ran = sanitize("shift 4; exec \"$@\"", &[]);
    assert_eq!((ran.status, ran.lines("sanitize, ").len()), (Some(0), 12), "{}", ran.said);
    assert!(ran.lines("sanitize, ").iter().all(|line| line.ends_with(": nothing found")), "{}", ran.said);
    let ran = sanitize(
        "[ $2 = racecheck ] || exit 0; echo '========= Error: Race reported between Write access'; echo '========= RACECHECK SUMMARY'; exit 9",
        &[],
    );
    let found = ran.lines("WRONG: sanitize, racecheck, ");
    assert_eq!((ran.status, found.len()), (Some(1), 3), "{}", ran.said);
    assert!(found.iter().all(|line| line.contains("Race reported") && line.contains("sanitize-racecheck-")), "{}", ran.said);
    let ran = sanitize("echo '========= Error: Device not supported'; exit 1", &[]);
    assert_eq!((ran.status, ran.lines("NOT CHECKED: sanitize, ").len()), (Some(0), 12), "{}", ran.said);
    assert!(ran.said.contains("(status 1): ========= Error: Device not supported"), "{}", ran.said);
    let ran = sanitize("sleep 20", &[("BUDGET", "8")]);
    assert_eq!((ran.status, ran.lines("NOT CHECKED: sanitize, ").len()), (Some(0), 12), "{}", ran.said);
    assert!(ran.said.contains("it was stopped after ") && ran.said.contains("the 8 s of BUDGET are over"), "{}", ran.said);
}

#[test]
fn whatever_goes_wrong_is_said_in_one_line() {
    let (out, tools) = (folder(), folder());
    let ran = run(out.path(), tools.path(), &["measure"], &[("SHAPES", "ternary none")]);
    assert!(ran.said.contains("1.1B") && ran.said.contains("made-ternary") && ran.said.contains("decode 64"), "{}", ran.said);
    assert_eq!(
        ran.lines("WRONG"),
        ["WRONG: measure, none: there is no shape none; the shapes are 15M, 42M, 110M, 1.1B, long, ternary, dormouse, dormouse-small"]
    );
    assert_eq!(ran.status, Some(1), "{}", ran.said);
    // No driver, and a program that does not run.
    let ran = run(out.path(), tools.path(), &["bits"], &[("DEVICE", "cuda:77")]);
    assert_eq!((ran.status, ran.lines("WRONG: bits, ").len()), (Some(1), 2), "{}", ran.said);
    assert!(ran.lines("WRONG: bits, first run, after 0 of 42 hashes: ")[0].contains("cuda"), "{}", ran.said);
    tool(tools.path(), "broken", "echo \"version 'GLIBC_2.99' not found\"; exit 1");
    let broken = tools.path().join("broken").to_string_lossy().into_owned();
    let ran = run(out.path(), tools.path(), &["bits"], &[("DMEXP", &broken)]);
    assert_eq!(ran.status, Some(2), "{}", ran.said);
    assert!(ran.said.contains("does not run here: version 'GLIBC_2.99' not found"), "{}", ran.said);
    let ran = run(out.path(), tools.path(), &["bits"], &[("MADE", "/nowhere/made-checkpoint")]);
    assert!(ran.status == Some(2) && ran.said.contains("there is no program /nowhere/made-checkpoint"), "{}", ran.said);
    let ran = run(out.path(), tools.path(), &["all"], &[]);
    assert!(ran.status == Some(2) && ran.said.contains("there is no part all"), "{}", ran.said);
}

//! Spawning other programs, with messages that name the command. Used by every task.

use crate::failure::{Failure, Outcome};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The cargo that runs this task, so that whatever is spawned uses the same toolchain.
pub(crate) fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo")))
}

/// The command as one would type it.
pub(crate) fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let mut text = program.file_name().unwrap_or(program.as_os_str()).to_string_lossy().into_owned();
    for word in command.get_args() {
        text.push(' ');
        text += &word.to_string_lossy();
    }
    text
}

/// Runs to the end with output passed through; a status other than 0 is a check that failed.
pub(crate) fn run(command: &mut Command) -> Outcome {
    let status = command.status().map_err(|error| not_started(command, &error))?;
    if status.success() {
        return Ok(());
    }
    Err(Failure::found_wrong(format!("`{}` failed ({status})", shown(command))))
}

/// Runs to the end and returns standard output; whatever it said is in the message when it fails.
pub(crate) fn capture(command: &mut Command) -> Outcome<String> {
    let output = command.output().map_err(|error| not_started(command, &error))?;
    if !output.status.success() {
        return Err(Failure::cannot_run(format!("`{}` failed ({}):\n{}", shown(command), output.status, said(&output))));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Both output streams of a program that ended, as text.
pub(crate) fn said(output: &Output) -> String {
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text += &String::from_utf8_lossy(&output.stderr);
    text
}

/// Runs a build of cargo with its diagnostics passed through and returns the static library of this name that it made.
pub(crate) fn built_library(build: &mut Command, name: &str) -> Outcome<PathBuf> {
    let archive = |message: &serde_json::Value| {
        message["filenames"]
            .as_array()?
            .iter()
            .filter_map(|file| file.as_str())
            .map(PathBuf::from)
            .find(|file| file.extension().is_some_and(|kind| kind == "a"))
    };
    artifact(build, name, archive)
}

/// Runs a build of cargo with its diagnostics passed through and returns the executable of this name that it made.
pub(crate) fn built(build: &mut Command, name: &str) -> Outcome<PathBuf> {
    artifact(build, name, |message| message["executable"].as_str().map(PathBuf::from))
}

/// Runs a build of cargo and returns what `pick` finds in its message about the target `name`.
fn artifact(build: &mut Command, name: &str, pick: impl Fn(&serde_json::Value) -> Option<PathBuf>) -> Outcome<PathBuf> {
    build.args(["--message-format", "json-render-diagnostics"]);
    let output = build.stderr(Stdio::inherit()).output().map_err(|error| not_started(build, &error))?;
    if !output.status.success() {
        return Err(Failure::found_wrong(format!("`{}` failed ({})", shown(build), output.status)));
    }
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|message| message["reason"] == "compiler-artifact" && message["target"]["name"] == name)
        .find_map(|message| pick(&message))
        .ok_or_else(|| Failure::cannot_run(format!("`{}` reported no file of {name} that is wanted", shown(build))))
}

fn not_started(command: &Command, error: &std::io::Error) -> Failure {
    Failure::cannot_run(format!("cannot start `{}`: {error}", shown(command)))
}

/// The program of this name on PATH.
pub(crate) fn on_path(name: impl AsRef<OsStr>) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name.as_ref())).find(|candidate| candidate.is_file())
}

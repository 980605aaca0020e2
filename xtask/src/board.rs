//! The boards that firmware exists for, and how it is built. Used by `qemu`, `size`, `bench` and `test`.

use crate::failure::{Failure, Outcome};
use crate::setup::Emulator;
use crate::{paths, process, setup};
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// One board: which crate under `boards/`, for which target, on which emulated machine.
#[derive(Debug)]
pub(crate) struct Board {
    /// The name in commands and in the rows of `bench`.
    pub(crate) name: &'static str,
    /// The crate, and its folder under `boards/`.
    pub(crate) package: &'static str,
    /// The Rust target.
    pub(crate) target: &'static str,
    /// Which QEMU emulates it.
    pub(crate) emulator: Emulator,
    /// QEMU's name of the machine.
    pub(crate) machine: &'static str,
    /// The table of cycle costs under `boards/plugin/`.
    pub(crate) costs: &'static str,
}

/// Every board.
pub(crate) const ALL: &[Board] = &[Board {
    name: "an386",
    package: "qemu-an386",
    target: "thumbv7em-none-eabihf",
    emulator: Emulator::Arm,
    machine: "mps2-an386",
    costs: "cortex_m4.costs",
}];

/// The board of this name.
pub(crate) fn find(name: &str) -> Outcome<&'static Board> {
    ALL.iter().find(|board| board.name == name).ok_or_else(|| {
        let known: Vec<_> = ALL.iter().map(|board| board.name).collect();
        Failure::cannot_run(format!("there is no board `{name}`; the boards are: {}", known.join(", ")))
    })
}

/// Builds a board's firmware as it is shipped, with these cargo features, and returns the ELF file.
pub(crate) fn build(board: &Board, features: &[&str]) -> Outcome<PathBuf> {
    setup::rust_target(board.target)?;
    let mut command = process::cargo();
    command
        .current_dir(paths::boards())
        .args(["build", "--release", "--locked", "--quiet"])
        .args(["--package", board.package, "--target", board.target])
        .args(["--message-format", "json-render-diagnostics"]);
    if !features.is_empty() {
        command.args(["--features", &features.join(",")]);
    }
    let printed = read_messages(&mut command)?;
    printed
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|message| message["reason"] == "compiler-artifact")
        .filter(|message| message["target"]["name"] == board.package)
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
        .ok_or_else(|| Failure::cannot_run(format!("`{}` reported no executable named {}", process::shown(&command), board.package)))
}

/// Runs cargo with its diagnostics passed through and returns the messages for machines.
fn read_messages(command: &mut Command) -> Outcome<String> {
    let output = command.stderr(Stdio::inherit()).output().map_err(|error| Failure::cannot_run(format!("cannot start cargo: {error}")))?;
    if !output.status.success() {
        return Err(Failure::found_wrong(format!("`{}` failed ({})", process::shown(command), output.status)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

//! The boards that firmware exists for, and how it is built. Used by `qemu`, `size`, `bench` and `test`.

use crate::failure::{Failure, Outcome};
use crate::setup::Emulator;
use crate::{paths, process, setup};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

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
    /// Where QEMU loads a model file from outside.
    pub(crate) load_address: u64,
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
    load_address: 0x2100_0000,
    costs: "cortex_m4.costs",
}];

/// The board of this name.
pub(crate) fn find(name: &str) -> Outcome<&'static Board> {
    ALL.iter().find(|board| board.name == name).ok_or_else(|| {
        let known: Vec<_> = ALL.iter().map(|board| board.name).collect();
        Failure::cannot_run(format!("there is no board `{name}`; the boards are: {}", known.join(", ")))
    })
}

/// The boards that a command line names; every one where it names none.
pub(crate) fn named(words: Vec<OsString>) -> Outcome<Vec<&'static Board>> {
    use lexopt::prelude::*;
    let mut parser = lexopt::Parser::from_args(words);
    let mut boards = Vec::new();
    while let Some(argument) = parser.next()? {
        match argument {
            Value(word) => boards.push(find(&word.string()?)?),
            other => return Err(other.unexpected().into()),
        }
    }
    if boards.is_empty() {
        boards.extend(ALL);
    }
    Ok(boards)
}

/// Builds a board's firmware as it is shipped, with these cargo features and `model` inside, and returns the ELF file.
pub(crate) fn build(board: &Board, features: &[&str], model: &Path) -> Outcome<PathBuf> {
    setup::rust_target(board.target)?;
    let mut command = process::cargo();
    command.current_dir(paths::boards()).env("DMEXP_MODEL", model).args(["build", "--release", "--locked", "--quiet"]).args([
        "--package",
        board.package,
        "--target",
        board.target,
    ]);
    if !features.is_empty() {
        command.args(["--features", &features.join(",")]);
    }
    process::built(&mut command, board.package)
}

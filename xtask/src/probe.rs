//! `cargo xtask probe`: firmware that `dmexp compare` can ask, and the check that it finds what is wrong with a device.

use crate::board::{self, Board};
use crate::failure::{Failure, Outcome};
use crate::{paths, qemu};
use std::ffi::OsString;
use std::path::PathBuf;

pub(crate) const HELP: &str = "\
Usage: cargo xtask probe [BOARD...]

Builds the firmware of BOARD (without one, of every board) with the feature `probe` and puts it at target/probe/BOARD.elf, where
`dmexp compare --device qemu:BOARD` looks for it.
";

/// The feature of a board's firmware that answers `dmexp compare`.
const FEATURE: &str = "probe";

pub(crate) fn main(words: Vec<OsString>) -> Outcome {
    for board in board::named(words)? {
        println!("{}", firmware(board)?.display());
    }
    Ok(())
}

/// Builds the firmware of one board and returns where it lies.
fn firmware(board: &Board) -> Outcome<PathBuf> {
    let elf = board::build(board, &[FEATURE], &board.model.export(qemu::DEFAULT_DTYPE)?)?;
    let folder = paths::root().join("target/probe");
    let copy = folder.join(format!("{}.elf", board.name));
    let failed = |error| Failure::cannot_run(format!("{}: {error}", copy.display()));
    std::fs::create_dir_all(&folder).map_err(failed)?;
    std::fs::copy(&elf, &copy).map_err(failed)?;
    Ok(copy)
}

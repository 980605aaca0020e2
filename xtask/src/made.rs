//! The made dormouse model that an386 is given, and the firmware that reads it. Used by `bits` and `bench`.

use crate::board::{self, Board};
use crate::failure::{Failure, Outcome};
use crate::models::{self, Source};
use crate::{paths, process, qemu};
use std::path::PathBuf;
use std::process::Command;

/// The board with memory for the model and for what exact decoding keeps.
pub(crate) const BOARD: &str = "an386";

/// Types of weights: everything in f32 but the factors, and everything in bf16 but them. They are codes in both.
pub(crate) const TYPES: [&str; 2] = ["f32", "t2"];

/// The program that makes models of dormouse and measures one of the size `small`.
pub(crate) fn program() -> Outcome<PathBuf> {
    models::program("--example", models::EXAMPLE)
}

/// The model in format 2, with weights in `dtype`.
pub(crate) fn export(dtype: &str) -> Outcome<PathBuf> {
    let file = paths::root().join(models::DORMOUSE.checkpoint);
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder).map_err(|error| Failure::cannot_run(format!("cannot make {}: {error}", folder.display())))?;
    }
    process::capture(Command::new(program()?).arg(&file))?;
    Source::export(&models::DORMOUSE, dtype)
}

/// Firmware that measures and compares, and reads files of dormouse models.
pub(crate) fn firmware(board: &Board) -> Outcome<PathBuf> {
    board::build(board, &[board::MEASURE, "dormouse"], &board.model.export(qemu::DEFAULT_DTYPE)?)
}

//! Does what a stranger does with `dmexp new firmware`: writes a project, builds it and runs it. Called by `test`.

use crate::board::Board;
use crate::failure::{Failure, Outcome};
use crate::{emulator, models, paths, process, qemu};

/// Refuses a project that does not build, or whose text is not that of the repository's own firmware for the board.
pub(crate) fn check(board: &Board) -> Outcome {
    let model = board.model.export(qemu::DEFAULT_DTYPE)?;
    let folder = paths::root().join("target/new-firmware").join(board.name);
    if folder.exists() {
        std::fs::remove_dir_all(&folder).map_err(|error| Failure::cannot_run(format!("cannot remove {}: {error}", folder.display())))?;
    }
    let parent = folder.parent().unwrap_or(&folder);
    std::fs::create_dir_all(parent).map_err(|error| Failure::cannot_run(format!("cannot make {}: {error}", parent.display())))?;
    process::run(
        models::dmexp()?.current_dir(parent).args(["new", "firmware", "--board", board.name, "--model"]).arg(&model).arg(&folder),
    )?;
    let mut build = process::cargo();
    build.current_dir(&folder).args(["build", "--release", "--quiet"]);
    if std::env::var_os("CARGO_TARGET_DIR").is_none() {
        // Most of what it needs was compiled there for the board's own firmware.
        build.env("CARGO_TARGET_DIR", paths::boards().join("target"));
    }
    let elf = process::built(&mut build, "firmware")?;
    let written = emulator::run(board, &elf, qemu::DEFAULT_LIMIT, &emulator::Options::default())?;
    qemu::compare(board, &written)
}

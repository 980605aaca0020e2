//! Does what a stranger does with `dmexp new firmware`: writes a project, builds it and, where the board is emulated, runs it. Called by `test` and `real`.

use crate::board::Board;
use crate::failure::{Failure, Outcome};
use crate::{emulator, models, paths, process, qemu};
use std::path::{Path, PathBuf};

/// Refuses a project that does not build, or whose text is not that of the repository's own firmware for the board.
pub(crate) fn check(board: &Board) -> Outcome {
    let folder = written(board.name, &board.model.export(qemu::DEFAULT_DTYPE)?)?;
    // Most of what it needs was compiled there for the board's own firmware.
    let elf = built(&folder, "release", &paths::boards())?;
    let written = emulator::run(board, &elf, qemu::DEFAULT_LIMIT, &emulator::Options::default())?;
    qemu::compare(board, &written)
}

/// Refuses a project for a board of `boards/real` that does not build with this profile.
pub(crate) fn check_real(name: &str, profile: &str) -> Outcome {
    let folder = written(name, &models::STORY.export(qemu::DEFAULT_DTYPE)?)?;
    built(&folder, profile, &paths::boards().join("real")).map(|_| println!("{name}: a project of `dmexp new firmware` builds"))
}

/// A new project for the board of this name.
fn written(name: &str, model: &Path) -> Outcome<PathBuf> {
    let folder = paths::root().join("target/new-firmware").join(name);
    if folder.exists() {
        std::fs::remove_dir_all(&folder).map_err(|error| Failure::cannot_run(format!("cannot remove {}: {error}", folder.display())))?;
    }
    let parent = folder.parent().unwrap_or(&folder);
    std::fs::create_dir_all(parent).map_err(|error| Failure::cannot_run(format!("cannot make {}: {error}", parent.display())))?;
    process::run(models::dmexp()?.current_dir(parent).args(["new", "firmware", "--board", name, "--model"]).arg(model).arg(&folder))?;
    Ok(folder)
}

/// Builds a project among what was compiled for `workspace`.
fn built(folder: &Path, profile: &str, workspace: &Path) -> Outcome<PathBuf> {
    let mut build = process::cargo();
    build.current_dir(folder).args(["build", "--quiet", "--profile", profile]);
    if std::env::var_os("CARGO_TARGET_DIR").is_none() {
        build.env("CARGO_TARGET_DIR", workspace.join("target"));
    }
    process::built(&mut build, "firmware")
}

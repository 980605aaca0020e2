//! Does what a stranger does with `dmexp new firmware`: writes a project, builds it and, where the board is emulated, runs it. Called by `test` and `real`.

use crate::board::{self, Board};
use crate::elf::Firmware;
use crate::failure::{Failure, Outcome};
use crate::{emulator, models, paths, plan, process, qemu};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Refuses a project that does not build, or whose text is not that of the repository's own firmware for the board.
pub(crate) fn check(board: &Board) -> Outcome {
    let model = board.model.export(qemu::DEFAULT_DTYPE)?;
    let folder = written(board.name, &model)?;
    // Most of what it needs was compiled there for the board's own firmware.
    let elf = built(&folder, &["--profile", "release"], &paths::boards())?;
    plan::check_room(board.name, &model, KV, &Firmware::read(&elf)?)?;
    let written = emulator::run(board, &elf, qemu::DEFAULT_LIMIT, &emulator::Options::default())?;
    qemu::compare(board, &written)
}

/// Refuses a project for a board of `boards/real` that does not build with these options.
pub(crate) fn check_real(name: &str, options: &[&str]) -> Outcome {
    let model = models::STORY.export(qemu::DEFAULT_DTYPE)?;
    let elf = built(&written(name, &model)?, options, &paths::boards().join("real"))?;
    println!("{name}: a project of `dmexp new firmware` builds ({})", options.join(" "));
    plan::check_room(name, &model, KV, &Firmware::read(&elf)?)
}

/// Refuses a list of boards that says other targets and machines than this program builds for and starts.
pub(crate) fn check_list() -> Outcome {
    let listed = process::capture(models::dmexp()?.args(["new", "firmware", "--list", "--json"]))?;
    let listed: Vec<Value> = serde_json::from_str(&listed)
        .map_err(|error| Failure::found_wrong(format!("`dmexp new firmware --list --json` prints no list: {error}")))?;
    let mut emulated = 0;
    for entry in listed.iter().filter(|entry| !entry["machine"].is_null()) {
        let board = board::find(entry["name"].as_str().unwrap_or_default())?;
        if (entry["target"].as_str(), entry["machine"].as_str()) != (Some(board.target), Some(board.machine)) {
            return Err(Failure::found_wrong(format!("{}: dmexp says {entry}, xtask {} and {}", board.name, board.target, board.machine)));
        }
        emulated += 1;
    }
    println!("{emulated} emulated boards have the targets and machines that dmexp lists");
    if emulated > 0 { Ok(()) } else { Err(Failure::found_wrong("dmexp lists no emulated board")) }
}

/// How a project keeps keys and values where nothing is said.
const KV: &str = "f16";

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
fn built(folder: &Path, options: &[&str], workspace: &Path) -> Outcome<PathBuf> {
    let mut build = process::cargo();
    build.current_dir(folder).args(["build", "--quiet"]).args(options);
    if std::env::var_os("CARGO_TARGET_DIR").is_none() {
        build.env("CARGO_TARGET_DIR", workspace.join("target"));
    }
    process::built(&mut build, "firmware")
}

//! `cargo xtask real`: builds the firmware of boards that are to be had. None of them is run here.

use crate::elf::Firmware;
use crate::failure::{Failure, Outcome};
use crate::{models, new_firmware, paths, plan, process, qemu, setup, size};
use std::ffi::OsString;

pub(crate) const HELP: &str = "\
Usage: cargo xtask real [OPTIONS] [BOARD...]

Puts the story model into boards/real, builds the firmware of BOARD (pico, pico2, nrf52840-dk, nucleo-h743zi, esp32-c6; without
one, of every board), prints what it takes of the chip, and fails when something of dmexp can panic in it (the crates of the
hardware can). It is not run here: the README.md of each board says how to wire and flash it, and what to expect.

Options:
  --quick          Without the slow optimisations of the linker, and so without the check of panics: does it build, and has it room?
";

/// The boards and their Rust targets.
const BOARDS: &[(&str, &str)] = &[
    ("pico", "thumbv6m-none-eabi"),
    ("pico2", "thumbv8m.main-none-eabihf"),
    ("nrf52840-dk", "thumbv7em-none-eabihf"),
    ("nucleo-h743zi", "thumbv7em-none-eabihf"),
    ("esp32-c6", "riscv32imac-unknown-none-elf"),
];

pub(crate) fn main(words: Vec<OsString>) -> Outcome {
    use lexopt::prelude::*;
    let mut parser = lexopt::Parser::from_args(words);
    let (mut quick, mut chosen) = (false, Vec::new());
    while let Some(argument) = parser.next()? {
        match argument {
            Long("quick") => quick = true,
            Value(word) => {
                let name = word.string()?;
                let known = BOARDS.iter().find(|(board, _)| *board == name).ok_or_else(|| {
                    let known: Vec<_> = BOARDS.iter().map(|(board, _)| *board).collect();
                    Failure::cannot_run(format!("there is no board `{name}`; the boards are: {}", known.join(", ")))
                })?;
                chosen.push(*known);
            }
            other => return Err(other.unexpected().into()),
        }
    }
    if chosen.is_empty() {
        chosen.extend(BOARDS);
    }
    build(&chosen, if quick { "quick" } else { "release" })
}

/// Builds every board, and projects for two of them, with the probe: one whose folder has a linker script, and the one whose has not.
pub(crate) fn check() -> Outcome {
    build(BOARDS, "release")?;
    new_firmware::check_list()?;
    let options = ["--release", "--features", "probe"];
    ["pico2", "esp32-c6"].into_iter().try_for_each(|board| new_firmware::check_real(board, &options))
}

fn build(boards: &[(&str, &str)], profile: &str) -> Outcome {
    let folder = paths::boards().join("real");
    let (from, to) = (models::STORY.export(qemu::DEFAULT_DTYPE)?, folder.join("model.dmexp"));
    if std::fs::read(&from).ok() != std::fs::read(&to).ok() {
        std::fs::copy(&from, &to).map_err(|error| Failure::cannot_run(format!("cannot write {}: {error}", to.display())))?;
    }
    for (board, target) in boards {
        setup::rust_target(target)?;
        let mut command = process::cargo();
        command.current_dir(&folder).args(["build", "--locked", "--quiet", "--profile", profile]);
        command.args(["--package", board, "--target", target]);
        // Lints what it builds: clippy by itself would check the hardware crates once more.
        command.env("RUSTC_WORKSPACE_WRAPPER", "clippy-driver").env("CLIPPY_ARGS", "-Dwarnings__CLIPPY_HACKERY__");
        let firmware = Firmware::read(&process::built(&mut command, board)?)?;
        if firmware.adds_in_rom {
            return Err(Failure::found_wrong(format!(
                "{board}: floats are added by a routine of the chip's ROM, whose bits are not known"
            )));
        }
        // Only the optimiser that sees all at once leaves out what cannot happen.
        if profile == "release" {
            size::refuse_own_panics(board, &firmware, &own_places())?;
        }
        let (flash, ram) = (firmware.code_without_model() + firmware.model, firmware.data + firmware.bss);
        println!("{board}: {flash} bytes of flash, {} of them the model; {ram} of RAM before the stack; not run here", firmware.model);
        plan::check_room(board, &from, "f16", &firmware)?;
    }
    Ok(())
}

/// What the names of source files of dmexp have in them, in firmware of boards/real. Not its programs: each of their asynchronous functions has a panic of the compiler's, for who runs it once more
/// when it is done.
fn own_places() -> Vec<String> {
    // The runtime is outside of the boards' workspace, so names of its files are whole, or what a mapped prefix leaves of them.
    let whole = paths::root().join("runtime").display().to_string();
    let parts = ["/src/../../model.rs", "runtime/src/session", "runtime/src/ops/", "runtime/src/models/", "runtime/format/src/"];
    std::iter::once(whole).chain(parts.map(str::to_owned)).collect()
}

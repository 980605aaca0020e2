//! The boards that firmware exists for, and how it is built. Used by `qemu`, `size`, `bench` and `test`.

use crate::failure::{Failure, Outcome};
use crate::models::{self, Source};
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
    /// Where QEMU loads a model file from outside; `None` where the board has no memory for that.
    pub(crate) load_address: Option<u64>,
    /// The table of cycle costs under `boards/plugin/`; without one, instructions alone are counted.
    pub(crate) costs: Option<&'static str>,
    /// The model inside its firmware.
    pub(crate) model: Source,
    /// Types of weights in which that model is too large for its flash.
    pub(crate) too_large: &'static [&'static str],
    /// How the firmware's own story keeps keys and values.
    pub(crate) story_kv: &'static str,
    /// How it calculates with floats.
    pub(crate) floats: Floats,
}

/// How a core calculates with floats: it decides how many steps of a float model are worth the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Floats {
    /// In a floating-point unit.
    Hardware,
    /// By subroutines: some 60 million instructions a token of the story model in f32.
    Software,
}

/// The feature of a board's firmware that has the commands to measure and compare.
pub(crate) const MEASURE: &str = "measure";

/// Every board.
pub(crate) const ALL: &[Board] = &[
    AN386,
    Board {
        name: "an500",
        package: "qemu-an500",
        machine: "mps2-an500",
        load_address: Some(0x6000_0000),
        // The manual of the Cortex-M7 states no cycles for instructions.
        costs: None,
        ..AN386
    },
    Board {
        name: "an505",
        package: "qemu-an505",
        target: "thumbv8m.main-none-eabihf",
        machine: "mps2-an505",
        load_address: Some(0x8000_0000),
        costs: None,
        ..AN386
    },
    Board {
        name: "an547",
        package: "qemu-an547",
        target: "thumbv8m.main-none-eabihf",
        machine: "mps3-an547",
        load_address: Some(0x6000_0000),
        costs: None,
        ..AN386
    },
    Board {
        name: "netduinoplus2",
        package: "qemu-netduinoplus2",
        machine: "netduinoplus2",
        load_address: None,
        too_large: &["f32"],
        story_kv: "q8",
        ..AN386
    },
    AN385,
    // The code of a Cortex-M0, with the models for which no emulated Cortex-M0 has room.
    Board { name: "an385-v6m", target: "thumbv6m-none-eabi", ..AN385 },
    Board {
        name: "lm3s6965evb",
        package: "qemu-lm3s6965evb",
        machine: "lm3s6965evb",
        load_address: None,
        model: models::TINY,
        story_kv: "f32",
        ..AN385
    },
    Board {
        name: "microbit",
        package: "qemu-microbit",
        target: "thumbv6m-none-eabi",
        machine: "microbit",
        load_address: None,
        model: models::TINY,
        story_kv: "f32",
        ..AN385
    },
    VIRT_IMAC,
    Board { name: "virt-imafc", target: "riscv32imafc-unknown-none-elf", floats: Floats::Hardware, ..VIRT_IMAC },
    Board {
        name: "sifive_e",
        package: "qemu-sifive-e",
        machine: "sifive_e",
        load_address: None,
        model: models::TINY,
        story_kv: "f32",
        ..VIRT_IMAC
    },
];

const AN386: Board = Board {
    name: "an386",
    package: "qemu-an386",
    target: "thumbv7em-none-eabihf",
    emulator: Emulator::Arm,
    machine: "mps2-an386",
    load_address: Some(0x2100_0000),
    costs: Some("cortex_m4.costs"),
    model: models::STORY,
    too_large: &[],
    story_kv: "f16",
    floats: Floats::Hardware,
};

const AN385: Board = Board {
    name: "an385",
    package: "qemu-an385",
    target: "thumbv7m-none-eabi",
    emulator: Emulator::Arm,
    machine: "mps2-an385",
    load_address: Some(0x2100_0000),
    costs: None,
    model: models::STORY,
    too_large: &[],
    story_kv: "f16",
    floats: Floats::Software,
};

const VIRT_IMAC: Board = Board {
    name: "virt-imac",
    package: "qemu-virt",
    target: "riscv32imac-unknown-none-elf",
    emulator: Emulator::Riscv32,
    machine: "virt",
    load_address: Some(0x8100_0000),
    costs: None,
    model: models::STORY,
    too_large: &[],
    story_kv: "f16",
    floats: Floats::Software,
};

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
    built(board, &[], features, model)
}

/// Builds a board's firmware with these cargo features and no others.
pub(crate) fn build_only(board: &Board, features: &[&str], model: &Path) -> Outcome<PathBuf> {
    built(board, &["--no-default-features"], features, model)
}

fn built(board: &Board, words: &[&str], features: &[&str], model: &Path) -> Outcome<PathBuf> {
    setup::rust_target(board.target)?;
    let mut command = process::cargo();
    command.current_dir(paths::boards()).env("DMEXP_MODEL", model).args(["build", "--release", "--locked", "--quiet"]).args([
        "--package",
        board.package,
        "--target",
        board.target,
    ]);
    command.args(words);
    if !features.is_empty() {
        command.args(["--features", &features.join(",")]);
    }
    process::built(&mut command, board.package)
}

//! `cargo xtask c`: builds the firmware in C of boards/c-an386, runs it under QEMU, and compares its story with that of the firmware in Rust.

use crate::board::{self, Board};
use crate::elf::Firmware;
use crate::failure::{Failure, Outcome};
use crate::{emulator, paths, process, qemu, setup, size};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) const HELP: &str = "\
Usage: cargo xtask c [OPTIONS]

Builds dmexp as a C library for a Cortex-M4F, and the firmware boards/c-an386 with arm-none-eabi-gcc (obtained if it is not
there); refuses panic paths; runs it under QEMU and compares what it writes with boards/qemu-an386/expected.txt, the story that
the firmware in Rust tells and the host too.

Options:
  --build   Only build it, and print the commands
";

/// What gcc is told: a Cortex-M4 with its floating-point unit, and nothing of a C library.
const FLAGS: &[&str] = &[
    "-mcpu=cortex-m4",
    "-mthumb",
    "-mfloat-abi=hard",
    "-mfpu=fpv4-sp-d16",
    "-std=c11",
    "-Os",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-ffreestanding",
    "-ffunction-sections",
    "-fdata-sections",
    "-nostdlib",
    "-nostartfiles",
    "-Wl,--gc-sections",
];

/// Types of weights and of keys and values that the library is built with: golden vectors keep theirs in f32.
const FEATURES: &str = "bf16,kv-f16,kv-f32";

pub(crate) fn main(words: Vec<OsString>) -> Outcome {
    use lexopt::prelude::*;
    let mut parser = lexopt::Parser::from_args(words);
    let mut only_build = false;
    while let Some(argument) = parser.next()? {
        match argument {
            Long("build") => only_build = true,
            other => return Err(other.unexpected().into()),
        }
    }
    if !only_build {
        return check();
    }
    println!("built {}", build(board::find("an386")?, true)?.display());
    Ok(())
}

/// Builds, weighs, runs and compares.
pub(crate) fn check() -> Outcome {
    let board = board::find("an386")?;
    let elf = build(board, false)?;
    let firmware = Firmware::read(&elf)?;
    size::refuse_panic_paths("c-an386", &firmware)?;
    let written = emulator::run(board, &elf, qemu::DEFAULT_LIMIT, &emulator::Options::default())?;
    let path = paths::boards().join("qemu-an386/expected.txt");
    let expected = std::fs::read(&path).map_err(|error| Failure::cannot_run(format!("cannot read {}: {error}", path.display())))?;
    if written != expected {
        print!("{}", String::from_utf8_lossy(&written));
        return Err(Failure::found_wrong("the firmware in C tells another story than boards/qemu-an386/expected.txt"));
    }
    println!("c-an386: the story of boards/qemu-an386, {} bytes; {} bytes of code", written.len(), firmware.text);
    Ok(())
}

/// The library for the board's target.
fn library(board: &Board, show: bool) -> Outcome<PathBuf> {
    setup::rust_target(board.target)?;
    let mut cargo = process::cargo();
    cargo.current_dir(paths::root()).args(["build", "--profile", "chip", "--locked", "--quiet", "--package", "dmexp-c"]).args([
        "--target",
        board.target,
        "--no-default-features",
        "--features",
        FEATURES,
    ]);
    if show {
        println!("{}", process::shown(&cargo));
    }
    process::built_library(&mut cargo, "dmexp_c")
}

fn build(board: &Board, show: bool) -> Outcome<PathBuf> {
    let library = library(board, show)?;
    let folder = paths::boards().join("c-an386");
    let model = board.model.export(qemu::DEFAULT_DTYPE)?;
    let elf = library.with_file_name("c-an386.elf");
    let mut gcc = Command::new(setup::arm_gcc()?);
    gcc.current_dir(&folder)
        .args(FLAGS)
        .arg(format!("-DMODEL_FILE=\"{}\"", model.display()))
        .arg("-I")
        .arg(paths::root().join("runtime/c/include"))
        .args(["-T", "link.ld", "main.c", "startup.c", "model.S"])
        .arg(&library)
        .arg("-o")
        .arg(&elf);
    if show {
        println!("{}", process::shown(&gcc));
    }
    process::run(&mut gcc)?;
    Ok(Path::new(&elf).to_path_buf())
}

//! `cargo xtask train`: spawns the training program, which is built apart because it pulls in a tensor framework.

use crate::failure::Outcome;
use crate::{paths, process};
use std::ffi::OsString;

pub(crate) const HELP: &str = "\
Usage: cargo xtask train [ARGUMENTS...]

Builds `tests/train` and runs it with these arguments; `cargo xtask train -- --help` lists them.
";

pub(crate) fn main(words: Vec<OsString>) -> Outcome {
    let words = words.into_iter().skip_while(|word| word == "--");
    process::run(
        process::cargo().current_dir(paths::root()).args(["run", "--locked", "--release", "--package", "dmexp-train", "--"]).args(words),
    )
}

//! `cargo xtask demo`: from a checkpoint to a story on the host and on an emulated chip, and whether both computed the same.

use crate::failure::{Failure, Outcome};
use crate::models::{self, STORY};
use crate::{bits, board, emulator, paths, process, qemu, setup};
use std::ffi::OsString;

pub(crate) const HELP: &str = "\
Usage: cargo xtask demo [SEED]

Gets what it needs, exports the repository's story model, tells the story of SEED (1 unless given) on the host and then on an
emulated Cortex-M4F, and shows that the logits of both are the same bits.
";

pub(crate) fn main(words: Vec<OsString>) -> Outcome {
    use lexopt::prelude::*;
    let mut parser = lexopt::Parser::from_args(words);
    let mut seed = 1u32;
    while let Some(argument) = parser.next()? {
        match argument {
            Value(word) => seed = word.parse()?,
            other => return Err(other.unexpected().into()),
        }
    }
    println!("1. What this needs: Rust targets, QEMU, the command `dmexp`");
    setup::toolchain()?;
    let board = board::find("an386")?;
    setup::emulator(board.emulator)?;

    println!("\n2. A checkpoint becomes a .dmexp file");
    let file = paths::root().join("target/models/story.bf16.dmexp");
    let words = STORY.export_words("bf16", &file);
    say(&words);
    process::run(models::dmexp()?.current_dir(paths::root()).args(&words))?;

    println!("\n3. A story on this machine");
    let seed_word = seed.to_string();
    let relative = "target/models/story.bf16.dmexp";
    let words = ["generate", "--export", relative, "--prompt", "Once upon a time", "--steps", "240", "--kv", "f16", "--seed", &seed_word];
    say(&words.map(str::to_owned));
    let told = process::capture(models::dmexp()?.current_dir(paths::root()).args(words))?;
    print!("{told}");

    println!("\n4. The same model in the firmware of a Cortex-M4F ({}, emulated), without a heap", board.machine);
    let elf = board::build(board, &[], &file)?;
    let words = ["story".to_owned(), seed_word];
    let options = emulator::Options { arguments: &words, stream: true, ..Default::default() };
    let chip = emulator::run(board, &elf, qemu::DEFAULT_LIMIT, &options)?;
    if told.as_bytes() != chip {
        return Err(Failure::found_wrong("the two stories are not the same: the board or the model? please report this"));
    }
    println!("The same story, byte for byte.");

    println!("\n5. The logits of both, bit for bit");
    bits::check(board, &[STORY], false).map(drop)
}

/// Shows a command as one would type it.
fn say(words: &[String]) {
    let quoted = words.iter().map(|word| if word.contains(' ') { format!("\"{word}\"") } else { word.clone() });
    println!("$ dmexp {}", quoted.collect::<Vec<_>>().join(" "));
}

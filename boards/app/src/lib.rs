//! The application that every board runs: it reads one command, does it, and reports in text. Called by the `main` of each board crate.
//!
//! A board crate says where its memory is and which serial port it has, and nothing else. Free text is for people; a line
//! of the form `@name value` is a figure that `cargo xtask bench` reads. Commands:
//!
//! - `story [SEED]`, or nothing: the story of the built-in model
//! - `info [CONTEXT]`, with the feature of this name: what the model is, and the arena that it needs for so many positions
//!
//! And with the feature `measure`:
//!
//! - `logits KV COUNT`: the logits of COUNT positions of the greedy text, as raw little-endian f32
//! - `bench KV COUNT`: the same steps, each between the counting markers, then the stack used
//! - `kernel DTYPE ROWS COLUMNS GROUP SHIFT`: one product of a made-up matrix between the counting markers, compared with the exact sums
//!
//! With the feature `reader`, `file SHIFT LENGTH` before a command takes the model file that was loaded into memory, SHIFT bytes past an aligned address, in place of the built-in one.

#![no_std]

mod command;
#[cfg_attr(target_arch = "arm", path = "cortex_m.rs")]
#[cfg_attr(target_arch = "riscv32", path = "riscv.rs")]
#[cfg_attr(not(feature = "measure"), allow(dead_code, reason = "nothing is counted"))]
mod core_of;
#[cfg(feature = "measure")]
mod floats;
pub mod machine;
#[cfg(feature = "measure")]
mod measure;
mod semihost;
#[cfg(feature = "measure")]
mod stack;
mod story;
mod text;
pub mod uart;

use command::Words;
#[cfg(feature = "models")]
use dmexp::Model;
#[cfg(feature = "reader")]
use dmexp::format::file::ModelFile;
#[cfg(feature = "info")]
use dmexp::format::layout::LlamaLayout;
use dmexp::format::{Error, KvDType};
#[cfg(feature = "measure")]
use dmexp::{Memory, Sampler, Session};
use embedded_io::Write;
#[cfg(feature = "models")]
use story::Story;
use text::Text;

/// What a board provides to the application.
#[cfg_attr(not(feature = "measure"), allow(dead_code, reason = "nothing is counted"))]
trait Board {
    /// Where text goes; a UART on real boards.
    type Output: Write;

    /// The writer for everything that is printed.
    fn output(&mut self) -> &mut Self::Output;

    /// Executes the marker instruction at which the counting plugin starts a region.
    #[cfg(feature = "measure")]
    fn count_begin(&self);

    /// Executes the marker instruction at which the counting plugin ends the region.
    #[cfg(feature = "measure")]
    fn count_end(&self);

    /// Bytes of stack used at the deepest point since the stack was painted.
    #[cfg(feature = "measure")]
    fn stack_peak(&self) -> usize;

    /// The memory into which a model file was loaded from outside, and memory besides that nobody uses: taken once, and empty where the board has none.
    fn spare_memory(&mut self) -> (&'static [u8], &'static mut [u32]);
}

/// Exit status of a command that was done.
const DONE: i32 = 0;
/// Exit status where the model was refused, a step failed or the output did not take the text.
const FAILED: i32 = 1;
/// Exit status of a command that the application does not know.
const UNKNOWN: i32 = 2;

/// Does one command and returns the exit status for the emulator, after a line of text that says what went wrong, if anything did.
fn run<B: Board>(board: &mut B, line: &[u8]) -> i32 {
    #[cfg(feature = "seeded-panic")]
    core::hint::black_box(line[core::hint::black_box(3)]);
    let outcome = obey(board, &mut Words::new(line));
    let mut text = Text::new(board.output());
    let status = match outcome {
        Ok(true) => DONE,
        Ok(false) => {
            text.say("dmexp: unknown command; this firmware knows: story [SEED]");
            if cfg!(feature = "info") {
                text.say(" | info [CONTEXT]");
            }
            if cfg!(feature = "measure") {
                text.say(" | logits KV COUNT | bench KV COUNT | kernel DTYPE ROWS COLUMNS GROUP SHIFT | floats COUNT");
            }
            text.say("\n");
            UNKNOWN
        }
        Err(error) => {
            text.say("dmexp: refused: ");
            text.error(&error);
            FAILED
        }
    };
    if text.finish().is_ok() { status } else { FAILED }
}

/// What is to be done with a model.
#[derive(Clone, Copy)]
enum Task {
    Story {
        seed: u32,
    },
    #[cfg(feature = "info")]
    Info {
        context: Option<u32>,
    },
    #[cfg(feature = "measure")]
    Measure(measure::Measure),
}

impl Task {
    /// The task that `word` and the words after it name, and how keys and values are to be kept for it.
    fn parse(word: &[u8], words: &mut Words<'_>) -> Option<(Self, KvDType)> {
        match word {
            b"" | b"story" => Some((Self::Story { seed: words.number().unwrap_or(1) }, KvDType::F16)),
            #[cfg(feature = "info")]
            b"info" => Some((Self::Info { context: words.number() }, KvDType::F16)),
            #[cfg(feature = "measure")]
            _ => measure::Measure::parse(word, words).map(|(task, kv)| (Self::Measure(task), kv)),
            #[cfg(not(feature = "measure"))]
            _ => None,
        }
    }
}

/// False where the command is none of those that the application knows.
#[cfg_attr(not(feature = "reader"), allow(unused_variables, reason = "without the reader no file is looked for in memory"))]
fn obey<B: Board>(board: &mut B, words: &mut Words<'_>) -> Result<bool, Error> {
    let mut word = words.next();
    let mut place = None;
    if cfg!(feature = "reader") && word == b"file" {
        let (Some(shift), Some(len)) = (words.number(), words.number()) else { return Ok(false) };
        place = Some((shift as usize, len as usize));
        word = words.next();
    }
    #[cfg(feature = "measure")]
    if word == b"floats" {
        let mut text = Text::new(board.output());
        text.figure("floats", floats::digest(words.number().unwrap_or(1)));
        return text.finish().map(|()| true);
    }
    #[cfg(feature = "measure")]
    if word == b"kernel" {
        let (_, memory) = board.spare_memory();
        return measure::kernel(board, words, memory).map_or(Ok(false), |done| done.map(|()| true));
    }
    let Some((task, kv)) = Task::parse(word, words) else { return Ok(false) };
    // The story needs no model but its own.
    if let (None, Task::Story { seed }) = (place, task) {
        return story::tell(u64::from(seed), board.output()).map(|()| true);
    }
    #[cfg(feature = "models")]
    other_models(board, place, task, kv)?;
    Ok(true)
}

/// Does what is to be done with the file in memory at `place` (where it begins, how long it is), or with the built-in model where there is none.
#[cfg(feature = "models")]
fn other_models<B: Board>(board: &mut B, place: Option<(usize, usize)>, task: Task, kv: KvDType) -> Result<(), Error> {
    let (memory, arena) = board.spare_memory();
    match place {
        #[cfg(feature = "reader")]
        Some((shift, len)) => {
            let bytes = memory.get(shift..).and_then(|rest| rest.get(..len)).unwrap_or(&[]);
            with_file(board, bytes, task, kv, arena)
        }
        _ => with_model(board, &Story::bind().with_kv(kv), task, arena),
    }
}

// Models and sessions are borrowed where they were made, in frames of their own: each move would take their size of stack once more.

#[cfg(feature = "reader")]
#[inline(never)]
fn with_file<B: Board>(board: &mut B, bytes: &'static [u8], task: Task, kv: KvDType, arena: &'static mut [u32]) -> Result<(), Error> {
    match Model::bind(&ModelFile::open(bytes)?) {
        Ok(model) => with_model(board, &model.with_kv(kv), task, arena),
        Err(error) => Err(error),
    }
}

#[cfg(feature = "models")]
#[inline(never)]
#[cfg_attr(not(feature = "measure"), allow(unused_variables, reason = "the story has an arena of its own"))]
fn with_model<B: Board>(board: &mut B, model: &Model<'static>, task: Task, arena: &'static mut [u32]) -> Result<(), Error> {
    match task {
        Task::Story { seed } => story::tell(u64::from(seed), board.output()),
        #[cfg(feature = "info")]
        Task::Info { context } => info(board, model, context.unwrap_or(model.context())),
        #[cfg(feature = "measure")]
        Task::Measure(task) => {
            let arena = if arena.is_empty() { story::arena()?.words() } else { arena };
            match Session::new(*model, arena, Sampler::greedy()) {
                Ok(ref mut session) => measure::steps(board, session, task),
                Err(error) => Err(error),
            }
        }
    }
}

/// Says what the model is and what a session of it needs.
#[cfg(feature = "info")]
#[inline(never)]
fn info<B: Board>(board: &mut B, model: &Model<'_>, context: u32) -> Result<(), Error> {
    let config = model.network().config();
    let arena_len = LlamaLayout::new(config, context, model.kv())?.total_bytes;
    let mut text = Text::new(board.output());
    for (name, value) in [
        ("fingerprint", Story::FINGERPRINT),
        ("arena_bytes", arena_len as u32),
        ("weights_in_ram", Story::RAM_LEN as u32),
        ("context", context),
        ("dim", config.dim),
        ("n_layers", config.n_layers),
        ("vocab_size", config.vocab_size),
    ] {
        text.figure(name, value);
    }
    text.finish()
}

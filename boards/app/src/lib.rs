//! The application that every board runs: it reads one command, does it, and reports in text. Called by the `main` of each board crate.
//!
//! A board crate says where its memory is and which serial port it has, and nothing else. Free text is for people; a line
//! of the form `@name value` is a figure that `cargo xtask bench` reads. Commands:
//!
//! - `story [SEED]`, or nothing: the story of the built-in model
//! - `info [CONTEXT]`, with the feature of this name: what the model is, and the arena that it needs for so many positions
//!
//! With the feature `probe`:
//!
//! - `probe KV [CONTEXT]`: answers `dmexp compare` on the serial port, and does not end by itself
//!
//! And with the feature `measure`:
//!
//! - `logits KV COUNT`: the logits of COUNT positions of the greedy text, as raw little-endian f32
//! - `bench KV COUNT`: the same steps, each between the counting markers, then the stack used
//! - `kernel DTYPE ROWS COLUMNS GROUP SHIFT`: one product of a made-up matrix between the counting markers, compared with the definition
//! - `attend KV HEADS KV_HEADS WIDTH FIRST LAST`: attention over made-up keys and values, likewise
//!
//! With the feature `reader`, `file SHIFT LENGTH` before a command takes the model file that was loaded into memory, SHIFT bytes past an aligned address, in place of the built-in one.

#![no_std]

#[cfg(feature = "measure")]
mod attend;
mod command;
#[cfg_attr(target_arch = "arm", path = "cortex_m.rs")]
#[cfg_attr(target_arch = "riscv32", path = "riscv.rs")]
#[cfg_attr(not(feature = "measure"), allow(dead_code, reason = "nothing is counted"))]
mod core_of;
mod entry;
#[cfg(feature = "measure")]
mod floats;
pub mod machine;
#[cfg(feature = "measure")]
mod measure;
#[cfg(feature = "probe")]
mod probe;
mod semihost;
#[cfg(any(feature = "measure", feature = "probe"))]
mod stack;
mod story;
mod text;
pub mod uart;

use command::Words;
#[cfg(target_arch = "riscv32")]
pub use core_of::trap_address;
#[cfg(feature = "models")]
use dmexp::Model;
#[cfg(feature = "reader")]
use dmexp::format::file::ModelFile;
use dmexp::format::{Error, KvDType};
#[cfg(feature = "info")]
use dmexp::format::{arch::Architecture, layout::LlamaLayout};
#[cfg(feature = "measure")]
use dmexp::{Memory, Sampler, Session};
use embedded_io::{Read, Write};
#[cfg(feature = "models")]
use story::Story;
use text::Text;

/// What a board provides to the application.
#[cfg_attr(not(feature = "measure"), allow(dead_code, reason = "nothing is counted"))]
trait Board {
    /// Where text goes and requests come from; a UART on real boards.
    type Output: Read + Write;

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

/// A command that the application knows.
#[derive(Clone, Copy)]
struct Command {
    /// Where the model file in memory begins and how long it is; `None` is the built-in model.
    #[cfg(feature = "reader")]
    place: Option<(usize, usize)>,
    task: Task,
    /// How keys and values are to be kept.
    #[cfg(feature = "models")]
    kv: KvDType,
}

/// What is to be done.
#[derive(Clone, Copy)]
enum Task {
    Story {
        seed: u32,
    },
    #[cfg(feature = "info")]
    Info {
        context: Option<u32>,
    },
    #[cfg(feature = "probe")]
    Probe {
        context: Option<u32>,
    },
    #[cfg(feature = "measure")]
    Steps(measure::Steps),
    #[cfg(feature = "measure")]
    Kernel(measure::Kernel),
    #[cfg(feature = "measure")]
    Attend(attend::Attend),
    #[cfg(feature = "measure")]
    Floats(u32),
}

impl Command {
    /// The command on a line; `None` where it is none of those that the application knows.
    fn parse(line: &[u8]) -> Option<Self> {
        #[cfg(feature = "seeded-panic")]
        core::hint::black_box(line[core::hint::black_box(3)]);
        let mut words = Words::new(line);
        let word = words.next();
        #[cfg(feature = "reader")]
        let (place, word) = match word {
            b"file" => (Some((words.number()? as usize, words.number()? as usize)), words.next()),
            _ => (None, word),
        };
        let (task, kv) = Task::parse(word, &mut words)?;
        #[cfg(not(feature = "models"))]
        let _ = kv;
        Some(Self {
            #[cfg(feature = "reader")]
            place,
            task,
            #[cfg(feature = "models")]
            kv,
        })
    }

    /// The model file in memory, where the command names one: empty where the memory is not that long.
    #[cfg(feature = "reader")]
    fn bytes(&self, memory: &'static [u8]) -> Option<&'static [u8]> {
        let (shift, len) = self.place?;
        Some(memory.get(shift..).and_then(|rest| rest.get(..len)).unwrap_or(&[]))
    }
}

impl Task {
    /// The task that `word` and the words after it name, and how keys and values are to be kept for it.
    fn parse(word: &[u8], words: &mut Words<'_>) -> Option<(Self, KvDType)> {
        let task = match word {
            b"" | b"story" => Self::Story { seed: words.number().unwrap_or(1) },
            #[cfg(feature = "info")]
            b"info" => Self::Info { context: words.number() },
            #[cfg(feature = "probe")]
            b"probe" => {
                let kv = command::kv(words.next())?;
                return Some((Self::Probe { context: words.number() }, kv));
            }
            #[cfg(feature = "measure")]
            b"floats" => Self::Floats(words.number().unwrap_or(1)),
            #[cfg(feature = "measure")]
            b"kernel" => Self::Kernel(measure::Kernel::parse(words)?),
            #[cfg(feature = "measure")]
            b"attend" => Self::Attend(attend::Attend::parse(words)?),
            #[cfg(feature = "measure")]
            _ => return measure::Steps::parse(word, words).map(|(steps, kv)| (Self::Steps(steps), kv)),
            #[cfg(not(feature = "measure"))]
            _ => return None,
        };
        Some((task, KvDType::F16))
    }
}

/// Does one command and returns the exit status for the emulator, after a line of text that says what went wrong, if anything did.
fn run<B: Board>(board: &mut B, command: Option<&Command>) -> i32 {
    let outcome = command.and_then(|command| obey(board, command));
    report(board, outcome)
}

#[inline(never)]
fn report<B: Board>(board: &mut B, outcome: Option<Result<(), Error>>) -> i32 {
    let mut text = Text::new(board.output());
    let status = match outcome {
        Some(Ok(())) => DONE,
        None => {
            text.say("dmexp: unknown command; this firmware knows: story [SEED]");
            if cfg!(feature = "info") {
                text.say(" | info [CONTEXT]");
            }
            if cfg!(feature = "probe") {
                text.say(" | probe KV [CONTEXT]");
            }
            if cfg!(feature = "measure") {
                text.say(" | logits KV COUNT | bench KV COUNT | kernel DTYPE ROWS COLUMNS GROUP SHIFT");
                text.say(" | attend KV HEADS KV_HEADS WIDTH FIRST LAST | floats COUNT");
            }
            text.say("\n");
            UNKNOWN
        }
        Some(Err(error)) => {
            text.say("dmexp: refused: ");
            text.error(&error);
            FAILED
        }
    };
    if text.finish().is_ok() { status } else { FAILED }
}

// What a command no longer needs is not on the stack while a session runs: each part of the work is a frame of its own, and what is large is borrowed where it was made.

/// `None` where the numbers of a command are impossible.
#[inline(never)]
#[cfg_attr(
    not(feature = "measure"),
    allow(
        clippy::unnecessary_wraps,
        clippy::trivially_copy_pass_by_ref,
        reason = "commands have less in them, and none has impossible numbers"
    )
)]
fn obey<B: Board>(board: &mut B, command: &Command) -> Option<Result<(), Error>> {
    match command.task {
        // The story needs no model but its own.
        Task::Story { seed } => Some(story::tell(u64::from(seed), board.output())),
        #[cfg(feature = "measure")]
        Task::Floats(count) => Some(measure::floats(board, count)),
        #[cfg(feature = "measure")]
        Task::Kernel(kernel) => {
            let (_, memory) = board.spare_memory();
            measure::kernel(board, kernel, memory)
        }
        #[cfg(feature = "measure")]
        Task::Attend(task) => {
            let (_, memory) = board.spare_memory();
            attend::attend(board, task, memory)
        }
        #[cfg(feature = "probe")]
        Task::Probe { context } => Some(probe::run(board, command, context)),
        #[cfg(feature = "models")]
        _ => Some(with_model(board, command)),
    }
}

#[cfg(feature = "models")]
#[inline(never)]
fn with_model<B: Board>(board: &mut B, command: &Command) -> Result<(), Error> {
    let (memory, arena) = board.spare_memory();
    match bind(command, memory) {
        Ok(ref mut model) => {
            model.set_kv(command.kv);
            // The story's arena need not hold all positions in another type of keys and values.
            #[cfg(feature = "measure")]
            if let (Task::Steps(steps), []) = (command.task, &*arena) {
                model.set_context(steps.positions().min(model.context()));
            }
            with_bound(board, model, command.task, arena)
        }
        Err(error) => Err(error),
    }
}

/// The file in memory where the command says so, or the built-in model.
#[cfg(feature = "models")]
#[inline(never)]
#[cfg_attr(
    not(feature = "reader"),
    allow(unused_variables, clippy::unnecessary_wraps, reason = "without the reader no file is looked for")
)]
fn bind(command: &Command, memory: &'static [u8]) -> Result<Model<'static>, Error> {
    #[cfg(feature = "reader")]
    if let Some(bytes) = command.bytes(memory) {
        return Model::bind(&ModelFile::open(bytes)?);
    }
    Ok(*Story::bind())
}

#[cfg(feature = "models")]
#[inline(never)]
#[cfg_attr(
    not(feature = "measure"),
    allow(unused_variables, reason = "nothing runs a session but the story, which has an arena of its own")
)]
fn with_bound<B: Board>(board: &mut B, model: &Model<'_>, task: Task, arena: &mut [u32]) -> Result<(), Error> {
    match task {
        #[cfg(feature = "info")]
        Task::Info { context } => info(board, model, context.unwrap_or(model.context())),
        #[cfg(feature = "measure")]
        Task::Steps(steps) => {
            let arena = if arena.is_empty() { story::arena()?.words() } else { arena };
            match Session::new(model, arena, Sampler::greedy()) {
                Ok(ref mut session) => measure::steps(board, session, steps),
                Err(error) => Err(error),
            }
        }
        _ => Ok(()),
    }
}

/// Says what the model is and what a session of it needs.
#[cfg(feature = "info")]
#[inline(never)]
fn info<B: Board>(board: &mut B, model: &Model<'_>, context: u32) -> Result<(), Error> {
    let Some(config) = model.network().llama().map(dmexp::models::llama::Llama::config) else {
        let (found, expected) = (Architecture::Dormouse.code(), Architecture::Llama.code());
        return Err(Error::OtherArchitecture { found, expected });
    };
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

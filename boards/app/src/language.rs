//! What firmware with a language model does.

#[cfg(feature = "measure")]
use crate::attend;
#[cfg(feature = "probe")]
use crate::command;
use crate::command::Words;
#[cfg(feature = "measure")]
use crate::measure;
#[cfg(feature = "probe")]
use crate::probe;
#[cfg(feature = "models")]
use crate::story::Story;
use crate::text::Text;
use crate::{Board, DONE, FAILED, UNKNOWN, story};
#[cfg(feature = "models")]
use dmexp::Model;
#[cfg(feature = "reader")]
use dmexp::format::file::ModelFile;
use dmexp::format::{Error, KvDType};
#[cfg(feature = "info")]
use dmexp::format::{arch::Architecture, layout::LlamaLayout};
#[cfg(feature = "measure")]
use dmexp::{Memory, Sampler, Session};

/// A command that the application knows.
#[derive(Clone, Copy)]
pub(crate) struct Command {
    /// Where the model file in memory begins and how long it is; `None` is the built-in model.
    #[cfg(feature = "reader")]
    place: Option<(usize, usize)>,
    task: Task,
    /// How keys and values are to be kept.
    #[cfg(feature = "models")]
    pub(crate) kv: KvDType,
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
    pub(crate) fn parse(line: &[u8]) -> Option<Self> {
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
    pub(crate) fn bytes(&self, memory: &'static [u8]) -> Option<&'static [u8]> {
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
pub(crate) fn run<B: Board>(board: &mut B, command: Option<&Command>) -> i32 {
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
pub(crate) fn bind(command: &Command, memory: &'static [u8]) -> Result<Model<'static>, Error> {
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

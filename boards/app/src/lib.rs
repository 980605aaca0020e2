//! The application that every board runs: it reads one command, does it, and reports in text. Called by the `main` of each board crate.
//!
//! A board crate provides what differs between boards, the [`Board`] trait, and nothing else. Free text is for people; a line
//! of the form `@name value` is a figure that `cargo xtask bench` reads. Commands:
//!
//! - `story [SEED]`, or nothing: the story of the built-in model
//! - `info [CONTEXT]`: what the model is, and the arena that it needs for so many positions
//! - `logits KV COUNT`: the logits of COUNT positions of the greedy text, as raw little-endian f32
//! - `bench KV COUNT`: the same steps, each between the counting markers, then the stack used
//!
//! `file SHIFT LENGTH` before a command takes the model file that was loaded into memory, SHIFT bytes past an aligned address, in place of the built-in one.

#![no_std]

mod command;
#[cfg(target_arch = "arm")]
pub mod cortex_m;
pub mod semihost;
mod story;
pub mod text;

use command::Words;
use dmexp::format::file::ModelFile;
use dmexp::format::{Error, KvDType};
use dmexp::{Model, Sampler, Session, Step};
use embedded_io::Write;
use story::Story;

/// What a board provides to the application.
pub trait Board {
    /// Where text goes; a UART on real boards.
    type Output: Write;

    /// The writer for everything that is printed.
    fn output(&mut self) -> &mut Self::Output;

    /// Executes the marker instruction at which the counting plugin starts a region.
    fn count_begin(&self);

    /// Executes the marker instruction at which the counting plugin ends the region.
    fn count_end(&self);

    /// Bytes of stack used at the deepest point since the stack was painted.
    fn stack_peak(&self) -> usize;

    /// The memory into which a model file was loaded from outside, and memory besides that nobody uses: taken once.
    fn spare_memory(&mut self) -> (&'static [u8], &'static mut [u32]);
}

/// Why the application stopped early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Failure {
    /// The command is none of those that the application knows.
    UnknownCommand,
    /// The output did not take the text.
    Output,
    /// The model was refused, or a step failed.
    Model(Error),
}

impl Failure {
    /// The exit status for the emulator: 2 for a command that was not understood, 1 for everything else.
    pub fn exit_code(self) -> i32 {
        match self {
            Self::UnknownCommand => 2,
            Self::Output | Self::Model(_) => 1,
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Model(error)
    }
}

/// Does one command.
///
/// # Errors
/// [`Failure`], after a line of text that says what went wrong wherever the output still works.
pub fn run<B: Board>(board: &mut B, line: &[u8]) -> Result<(), Failure> {
    #[cfg(feature = "seeded-panic")]
    core::hint::black_box(line[core::hint::black_box(3)]);
    let result = obey(board, &mut Words::new(line));
    match result {
        Err(Failure::UnknownCommand) => {
            say(board, "dmexp: unknown command; this firmware knows: [file SHIFT LENGTH] story [SEED] | info [CONTEXT] | logits KV COUNT | bench KV COUNT\n")?;
        }
        Err(Failure::Model(error)) => {
            say(board, "dmexp: refused: ")?;
            text::write_error(board.output(), error).map_err(|_| Failure::Output)?;
            say(board, "\n")?;
        }
        _ => {}
    }
    result
}

fn obey<B: Board>(board: &mut B, words: &mut Words<'_>) -> Result<(), Failure> {
    let mut model = Story::bind();
    let mut word = words.next();
    let (memory, arena) = board.spare_memory();
    if word == b"file" {
        let (Some(shift), Some(len)) = (words.number(), words.number()) else { return Err(Failure::UnknownCommand) };
        let bytes = memory.get(shift as usize..).and_then(|rest| rest.get(..len as usize)).unwrap_or(&[]);
        model = Model::bind(&ModelFile::open(bytes)?)?;
        word = words.next();
    }
    match word {
        b"" | b"story" => {
            let seed = words.number().unwrap_or(1);
            story::tell(u64::from(seed), board.output())?;
            say(board, "\n")
        }
        b"info" => {
            let context = words.number().unwrap_or(model.context());
            info(board, &model.with_context(context))
        }
        b"logits" => {
            let mut session = session(model, arena, words)?;
            let count = words.number().unwrap_or(1);
            logits(board, &mut session, count)
        }
        b"bench" => {
            let mut session = session(model, arena, words)?;
            let count = words.number().unwrap_or(1);
            bench(board, &mut session, count)
        }
        _ => Err(Failure::UnknownCommand),
    }
}

/// A greedy session whose KV type is the next word, begun with the begin-of-text token (or token 0).
fn session(model: Model<'static>, arena: &'static mut [u32], words: &mut Words<'_>) -> Result<Session<'static>, Failure> {
    let kv = match words.next() {
        b"f32" => KvDType::F32,
        b"f16" => KvDType::F16,
        _ => return Err(Failure::UnknownCommand),
    };
    let bos = model.tokenizer().facts().bos;
    let first = if bos < model.network().config().vocab_size { bos } else { 0 };
    let mut session = Session::new(model.with_kv(kv), arena, Sampler::greedy())?.ignoring_end_of_text(true);
    session.push_tokens(&[first])?;
    Ok(session)
}

/// Says what the model is and what a session of it needs.
fn info<B: Board>(board: &mut B, model: &Model<'_>) -> Result<(), Failure> {
    let config = *model.network().config();
    figure(board, "fingerprint", Story::FINGERPRINT)?;
    figure(board, "arena_bytes", model.arena_len()? as u32)?;
    figure(board, "context", model.context())?;
    figure(board, "dim", config.dim)?;
    figure(board, "n_layers", config.n_layers)?;
    figure(board, "vocab_size", config.vocab_size)
}

/// Writes the logits of `count` positions of the greedy text.
fn logits<B: Board>(board: &mut B, session: &mut Session<'_>, count: u32) -> Result<(), Failure> {
    for _ in 0..count {
        let logits = session.logits()?;
        for logit in logits {
            board.output().write_all(&logit.to_le_bytes()).map_err(|_| Failure::Output)?;
        }
        let best = dmexp::sampler::argmax(logits).map_or(0, |(token, _)| token);
        if session.position() < session.model().context() {
            session.push_tokens(&[best])?;
        }
    }
    Ok(())
}

/// Makes `count` steps, each a counted region of its own.
fn bench<B: Board>(board: &mut B, session: &mut Session<'_>, count: u32) -> Result<(), Failure> {
    for _ in 0..count {
        board.count_begin();
        let step = session.step();
        board.count_end();
        if let Step::Stop(_) = step? {
            break;
        }
    }
    figure(board, "regions", session.position())?;
    let peak = board.stack_peak();
    figure(board, "stack_peak_bytes", peak as u32)
}

/// Writes text to the board's output.
fn say<B: Board>(board: &mut B, words: &str) -> Result<(), Failure> {
    board.output().write_all(words.as_bytes()).map_err(|_| Failure::Output)
}

/// Writes one `@name value` line, the form that `cargo xtask bench` reads.
fn figure<B: Board>(board: &mut B, name: &str, value: u32) -> Result<(), Failure> {
    say(board, "@")?;
    say(board, name)?;
    say(board, " ")?;
    text::write_u32(board.output(), value).map_err(|_| Failure::Output)?;
    say(board, "\n")
}

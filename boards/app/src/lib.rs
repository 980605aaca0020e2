//! The application that every board runs: it reads one command, does it, and reports in text. Called by the `main` of each board crate.
//!
//! A board crate provides what differs between boards, the [`Board`] trait, and nothing else. Free text is for people; a line
//! of the form `@name value` is a figure that `cargo xtask bench` reads.

#![no_std]

#[cfg(target_arch = "arm")]
pub mod cortex_m;
pub mod semihost;
pub mod text;
mod workload;

use embedded_io::Write;

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
}

/// Why the application stopped early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Failure {
    /// The command is none of those that the application knows.
    UnknownCommand,
    /// The output did not take the text.
    Output,
    /// The machine computed something else than what is known to be right.
    WrongResult,
}

impl Failure {
    /// The exit status for the emulator: 2 for a command that was not understood, 1 for everything else.
    pub fn exit_code(self) -> i32 {
        match self {
            Self::UnknownCommand => 2,
            Self::Output | Self::WrongResult => 1,
        }
    }
}

/// Does one command. An empty command is `check`.
///
/// # Errors
/// [`Failure`], after a line of text that says what went wrong wherever the output still works.
pub fn run<B: Board>(board: &mut B, command: &[u8]) -> Result<(), Failure> {
    match command {
        b"" | b"check" => check(board),
        b"bench" => bench(board),
        _ => {
            let known = "dmexp: unknown command; this firmware knows: check, bench\n";
            say(board, known)?;
            Err(Failure::UnknownCommand)
        }
    }
}

/// Computes a checksum whose value is known and says whether it came out.
fn check<B: Board>(board: &mut B) -> Result<(), Failure> {
    let found = workload::crc32(workload::MESSAGE);
    say(board, "dmexp: CRC-32 of \"123456789\" is ")?;
    text::write_hex32(board.output(), found).map_err(|_| Failure::Output)?;
    if found == workload::MESSAGE_CRC32 {
        say(board, ", as it should be\n")
    } else {
        say(board, ", which is wrong\n")?;
        Err(Failure::WrongResult)
    }
}

/// Runs the workload between the markers and reports the stack that it took.
fn bench<B: Board>(board: &mut B) -> Result<(), Failure> {
    board.count_begin();
    let found = workload::crc32(core::hint::black_box(workload::MESSAGE));
    board.count_end();
    if found != workload::MESSAGE_CRC32 {
        return Err(Failure::WrongResult);
    }
    figure(board, "regions", 1)?;
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

//! Why a command did not do what it was asked, and the exit code for it. Every command returns an [`Outcome`].

use super::output::style;
use anstyle::AnsiColor;
use dmexp_tools::error::{Class, Error};
use std::io::{self, Write};
use std::process::ExitCode;

/// What a command returns.
pub(crate) type Outcome<T = ()> = Result<T, Failure>;

/// Why a command ended early.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Told in one line.
    Told(Error),
    /// Its own output says so already.
    FoundWrong,
    /// A comparison that could not be made: another exit code than that of a difference.
    NotCompared(Error),
    /// The output failed.
    Output(io::Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Told(error)
    }
}

impl From<dmexp::format::Error> for Failure {
    fn from(error: dmexp::format::Error) -> Self {
        Self::Told(error.into())
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

/// A request that cannot be met: what, and what to do instead.
pub(crate) fn request(what: impl Into<String>, advice: impl Into<String>) -> Failure {
    Failure::Told(Error::new(Class::Request, what).advise(advice))
}

/// Tells the user, and gives the process its exit code.
pub(crate) fn exit(outcome: Outcome) -> ExitCode {
    let (message, code) = match outcome {
        Ok(()) => return ExitCode::SUCCESS,
        Err(Failure::FoundWrong) => return ExitCode::FAILURE,
        // Whoever read the output has seen enough.
        Err(Failure::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => return ExitCode::SUCCESS,
        Err(Failure::Output(error)) => (format!("the output cannot be written: {error}"), 1),
        Err(Failure::NotCompared(error)) => (error.to_string(), 2),
        Err(Failure::Told(error)) => (error.to_string(), if error.class() == Class::Cancelled { 130 } else { 1 }),
    };
    let red = style(AnsiColor::Red);
    // Nobody is left to tell if this fails.
    let _ = writeln!(anstream::stderr(), "{red}dmexp:{red:#} {message}");
    ExitCode::from(code)
}

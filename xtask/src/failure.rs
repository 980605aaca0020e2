//! How a task fails: a message and an exit status. Used by every other file.

use std::fmt;
use std::process::ExitCode;

/// What every task returns.
pub(crate) type Outcome<T = ()> = Result<T, Failure>;

/// A failure, already in words for whoever called the task.
#[derive(Debug)]
pub(crate) struct Failure {
    message: String,
    status: u8,
}

impl Failure {
    /// Something was checked and found wrong: exit status 1.
    pub(crate) fn found_wrong(message: impl Into<String>) -> Self {
        Self { message: message.into(), status: 1 }
    }

    /// The task could not be carried out, for want of a tool or for a word that is not understood: exit status 2.
    pub(crate) fn cannot_run(message: impl Into<String>) -> Self {
        Self { message: message.into(), status: 2 }
    }

    /// Whether a check found something wrong, rather than could not be carried out.
    pub(crate) fn is_found_wrong(&self) -> bool {
        self.status == 1
    }

    /// The exit status for the shell.
    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.status)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<lexopt::Error> for Failure {
    fn from(error: lexopt::Error) -> Self {
        Self::cannot_run(format!("{error}; --help lists what is understood"))
    }
}

//! What can be wrong with a header or a file being written, in words: which key, what was found, what is allowed.

use crate::Error;
use std::fmt;
use std::io;

/// Why a header was refused, read or to be written.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum HeaderError {
    /// The text is not TOML.
    Toml {
        /// What the parser says, with line and column.
        message: String,
    },
    /// A key is missing or has a value that is not allowed.
    Wrong {
        /// The key, with the tables it lies in: `config.dim`, `tensors[3].dtype`.
        key: String,
        /// What was found ("nothing" for a key that is missing).
        found: String,
        /// What is allowed.
        allowed: String,
    },
    /// A key that is not known where an unknown key could change what the model computes.
    UnknownKey {
        /// The key, with the tables it lies in.
        key: String,
        /// The keys that are known there.
        known: String,
    },
    /// The values contradict the rules of the format.
    Rule(Error),
}

impl HeaderError {
    pub(super) fn wrong(key: impl Into<String>, found: impl fmt::Display, allowed: impl fmt::Display) -> Self {
        Self::Wrong { key: key.into(), found: found.to_string(), allowed: allowed.to_string() }
    }
}

impl fmt::Display for HeaderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Toml { message } => write!(f, "the header is not valid TOML: {message}"),
            Self::Wrong { key, found, allowed } => write!(f, "header: {key}: found {found}, allowed: {allowed}"),
            Self::UnknownKey { key, known } => write!(f, "header: the key {key} is not known to this version; known there: {known}"),
            Self::Rule(error) => write!(f, "header: {error}"),
        }
    }
}

impl std::error::Error for HeaderError {}

impl From<Error> for HeaderError {
    fn from(error: Error) -> Self {
        Self::Rule(error)
    }
}

/// Why a file was not written.
#[derive(Debug)]
#[non_exhaustive]
pub enum WriteError {
    /// The header cannot be written.
    Header(HeaderError),
    /// The output failed, or the source of a tensor did.
    Io(io::Error),
    /// The bytes of a tensor are not those that were measured: the source changed between the passes, or narrowing is not repeatable.
    Changed {
        /// The tensor's name.
        name: String,
        /// What the second pass gave.
        found: String,
        /// What the first pass measured.
        expected: String,
    },
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header(error) => error.fmt(f),
            Self::Io(error) => write!(f, "writing failed: {error}"),
            Self::Changed { name, found, expected } => {
                write!(
                    f,
                    "tensor {name} changed while it was exported: {expected} when measured, {found} when written; keep the source still and export again"
                )
            }
        }
    }
}

impl std::error::Error for WriteError {}

impl From<HeaderError> for WriteError {
    fn from(error: HeaderError) -> Self {
        Self::Header(error)
    }
}

impl From<Error> for WriteError {
    fn from(error: Error) -> Self {
        Self::Header(HeaderError::Rule(error))
    }
}

impl From<io::Error> for WriteError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

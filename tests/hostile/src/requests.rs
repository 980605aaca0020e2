//! Bodies of HTTP requests, and the schemas in them.

use crate::{Outcome, seeds};
use dmexp_tools::serve::fuzzing::{Door, write_json};
use std::sync::LazyLock;

static DOOR: LazyLock<Door> = LazyLock::new(seeds::served);

/// The body of a completion, or of a chat where the first byte is odd.
pub(crate) fn body(bytes: &[u8]) -> Outcome {
    let Some((kind, body)) = bytes.split_first() else { return Outcome::Refused };
    match DOOR.ask(kind % 2 == 1, body) {
        Ok(asked) => Outcome::accepted(&asked),
        Err(error) => Outcome::refused(&error),
    }
}

/// A JSON schema behind its length (2 bytes), and what chooses among the bytes that it allows.
///
/// # Panics
/// If a text that the schema ends is no JSON.
pub(crate) fn schema(bytes: &[u8]) -> Outcome {
    let Some((len, rest)) = bytes.split_first_chunk() else { return Outcome::Refused };
    let (schema, choices) = rest.split_at(usize::from(u16::from_le_bytes(*len)).min(rest.len()));
    match write_json(schema, choices) {
        Ok((text, complete)) => {
            if complete {
                let parsed: Result<serde_json::Value, _> = serde_json::from_slice(&text);
                let shown = text.escape_ascii();
                // JSON has numbers of any size and lists of any depth; this reader has not.
                let allowed = |error: &serde_json::Error| {
                    ["number out of range", "recursion limit"].iter().any(|what| error.to_string().contains(what))
                };
                assert!(parsed.as_ref().err().is_none_or(allowed), "{shown} is no JSON: {parsed:?}");
            }
            Outcome::accepted(&text)
        }
        Err(error) => Outcome::refused(&error),
    }
}

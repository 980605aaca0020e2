//! Requests without a connection, for tests of hostile input: what routes do with a body before there is work.

use super::Served;
use super::fields::Fields;
use super::grammar::{Progress, of_schema};
use super::models::Serving;
use super::params::Asked;
use crate::error::Result;
use serde_json::Value;
use std::sync::Arc;

/// A model that is served, without a server.
#[derive(Debug)]
pub struct Door(Serving);

impl Door {
    /// The door of this model.
    ///
    /// # Errors
    /// Those of a server's start.
    pub fn open(served: Served) -> Result<Self> {
        Serving::start(served, 1).map(|(serving, _)| Self(serving))
    }

    /// Checks the body of a request for text and says what was asked for, in words.
    ///
    /// # Errors
    /// The sentence of the refusal.
    pub fn ask(&self, chat: bool, body: &[u8]) -> Result<String, String> {
        let body: Value = serde_json::from_slice(body).map_err(|error| error.to_string())?;
        let asked = Fields::of(&body).and_then(|fields| {
            fields.text("model")?;
            if chat { Asked::chat(fields, &self.0) } else { Asked::completion(fields, &self.0) }
        });
        asked.map(|asked| format!("{asked:?}")).map_err(|refusal| refusal.json()["error"]["message"].to_string())
    }
}

/// Writes a text of a schema: each choice is one of the bytes that may follow. Says whether the text may end where the choices do.
///
/// # Errors
/// The sentence of the refusal.
pub fn write_json(schema: &[u8], choices: &[u8]) -> Result<(Vec<u8>, bool), String> {
    let schema: Value = serde_json::from_slice(schema).map_err(|error| error.to_string())?;
    let grammar = of_schema(&schema).map_err(|refusal| refusal.json()["error"]["message"].to_string())?;
    let mut progress = Progress::new(Arc::new(grammar));
    let mut text = Vec::new();
    for choice in choices {
        let next = progress.next();
        let allowed: Vec<u8> = (0..=u8::MAX).filter(|byte| next.has(*byte)).collect();
        let Some(byte) = allowed.get(usize::from(*choice) % allowed.len().max(1)) else { break };
        // A text that can be read in too many ways is not followed: it ends here, and is not complete.
        if !progress.push(&[*byte]) {
            return Ok((text, false));
        }
        text.push(*byte);
    }
    Ok((text, progress.is_complete()))
}

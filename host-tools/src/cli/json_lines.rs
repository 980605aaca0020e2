//! `dmexp generate --json`: a line for each new token, as it comes.

use dmexp::format::Error;
use dmexp::tokenizer::Tokenizer;
use dmexp::{Session, Step};
use dmexp_tools::logprobs::logprobs;
use serde_json::{Value, json};
use std::io::{self, Write};

/// What tells of new tokens.
pub(super) struct Lines<'m> {
    tokenizer: Tokenizer<'m>,
    /// How many of the likeliest tokens are told beside the chosen one's probability, if any of it is.
    top: Option<u32>,
    /// The model's own, of the token that is told next.
    logits: Vec<f32>,
    /// The token before it.
    before: u32,
    index: u64,
}

impl<'m> Lines<'m> {
    /// For what follows the token `before`.
    pub(super) fn new(tokenizer: Tokenizer<'m>, before: u32, top: Option<u32>) -> Self {
        Self { tokenizer, top, logits: Vec::new(), before, index: 0 }
    }

    /// A step of `session`, whose logits are kept where they are told.
    pub(super) fn step<'a>(&mut self, session: &mut Session<'a>) -> Result<Step<'a>, Error> {
        if self.top.is_none() {
            return session.step();
        }
        session.step_seen(|logits| {
            self.logits.clear();
            self.logits.extend_from_slice(logits);
        })
    }

    /// Tells of a new token: its bytes, and what of the text is certain with it.
    pub(super) fn token(&mut self, id: u32, bytes: &[u8], text: &str) -> io::Result<()> {
        let mut told = json!({ "event": "token", "index": self.index, "id": id, "text": text, "bytes": bytes });
        if let Some(top) = self.top {
            let (logprob, likeliest) = logprobs(&self.logits, id, top as usize);
            told["logprob"] = logprob.into();
            told["top_logprobs"] = likeliest.into_iter().map(|(id, logprob)| self.candidate(id, logprob)).collect();
        }
        (self.before, self.index) = (id, self.index + 1);
        line(&told)
    }

    fn candidate(&self, id: u32, logprob: f64) -> Value {
        let piece = self.tokenizer.decode(self.before, id);
        let bytes = piece.as_bytes();
        json!({ "id": id, "text": String::from_utf8_lossy(bytes), "bytes": bytes, "logprob": logprob })
    }
}

/// One value on a line of stdout, at once.
pub(super) fn line(value: &Value) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{value}")?;
    out.flush()
}

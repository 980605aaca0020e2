//! What clients of OpenAI's API expect to read: texts as they are when they are done, and piece by piece.

use super::follow::Chunk;
use super::job::{Candidate, Chosen, Finish};
use super::models::Serving;
use super::params::Asked;
use serde_json::{Map, Value, json};
use std::hash::{BuildHasher, RandomState};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// What OpenAI's API says of a probability that is too small for a number.
const LEAST_LOGPROB: f64 = -9999.0;

/// The reply to a request for text.
#[derive(Debug)]
pub(super) struct Reply {
    chat: bool,
    id: String,
    created: u64,
    model: String,
    fingerprint: String,
    seed: u64,
    logprobs: bool,
    include_usage: bool,
    n: usize,
    prompt_tokens: u64,
    cached: u64,
    tokens: u64,
    texts: Vec<Text>,
    start: Instant,
    first_token: Option<f64>,
}

/// One of its texts.
#[derive(Debug, Default)]
struct Text {
    /// What is not sent yet.
    new: String,
    chosen: Vec<Chosen>,
    /// Characters before the next token.
    offset: usize,
    finish: Option<Finish>,
}

/// Seconds since 1970.
pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Milliseconds since `start`.
pub(super) fn milliseconds(start: Instant) -> f64 {
    (start.elapsed().as_secs_f64() * 1e6).round() / 1e3
}

impl Reply {
    pub(super) fn new(asked: &Asked, serving: &Serving) -> Self {
        let random = RandomState::new();
        let id = format!("{}-{:016x}{:016x}", if asked.chat { "chatcmpl" } else { "cmpl" }, random.hash_one(0), random.hash_one(1));
        let echoes = asked.prompts.iter().flat_map(|prompt| (0..asked.n).map(|_| prompt.echo.clone()));
        Self {
            chat: asked.chat,
            id,
            created: now(),
            model: serving.id.clone(),
            fingerprint: serving.fingerprint.clone(),
            seed: asked.generate.settings.seed,
            logprobs: asked.generate.likeliest.is_some(),
            include_usage: asked.include_usage,
            n: asked.n,
            prompt_tokens: asked.prompts.iter().map(|prompt| prompt.tokens.len() as u64).sum(),
            cached: 0,
            tokens: 0,
            texts: echoes.map(|new| Text { new, ..Text::default() }).collect(),
            start: Instant::now(),
            first_token: None,
        }
    }

    /// Takes what is new of a text.
    pub(super) fn take(&mut self, chunk: Chunk) {
        if chunk.index.is_multiple_of(self.n) {
            self.cached += u64::from(chunk.cached);
        }
        if !chunk.chosen.is_empty() && self.first_token.is_none() {
            self.first_token = Some(milliseconds(self.start));
        }
        self.tokens += chunk.chosen.len() as u64;
        if let Some(text) = self.texts.get_mut(chunk.index) {
            text.new.push_str(&chunk.text);
            if self.logprobs {
                text.chosen.extend(chunk.chosen);
            }
            text.finish = chunk.finish;
        }
    }

    /// Whether all texts are done.
    pub(super) fn is_over(&self) -> bool {
        self.texts.iter().all(|text| text.finish.is_some())
    }

    /// All of it, done.
    pub(super) fn whole(&mut self) -> Value {
        let (chat, logprobs) = (self.chat, self.logprobs);
        let choice = |(index, text): (usize, &mut Text)| {
            let logprobs = if logprobs { entries(chat, &text.chosen, &mut text.offset) } else { Value::Null };
            let finish = text.finish.map(Finish::name);
            if chat {
                let message = json!({ "role": "assistant", "content": text.new, "refusal": null });
                json!({ "index": index, "message": message, "logprobs": logprobs, "finish_reason": finish })
            } else {
                json!({ "index": index, "text": text.new, "logprobs": logprobs, "finish_reason": finish })
            }
        };
        let choices: Vec<Value> = self.texts.iter_mut().enumerate().map(choice).collect();
        let mut reply = self.object(if chat { "chat.completion" } else { "text_completion" }, &choices);
        reply.insert("usage".to_owned(), self.usage());
        Value::Object(reply)
    }

    /// What a stream begins with.
    pub(super) fn opening(&mut self) -> Vec<Value> {
        let mut opening = Vec::new();
        for index in 0..self.texts.len() {
            if self.chat {
                opening.push(self.piece(index, &json!({ "role": "assistant", "content": "" }), &Value::Null, None));
            }
            opening.extend(self.pieces(index));
        }
        opening
    }

    /// What is to be sent of the text `index` that was not yet.
    pub(super) fn pieces(&mut self, index: usize) -> Vec<Value> {
        let chat = self.chat;
        let Some(text) = self.texts.get_mut(index) else { return Vec::new() };
        let (new, finish) = (std::mem::take(&mut text.new), text.finish);
        let chosen = std::mem::take(&mut text.chosen);
        let logprobs = if chosen.is_empty() { Value::Null } else { entries(chat, &chosen, &mut text.offset) };
        let mut pieces = Vec::new();
        if !new.is_empty() || !chosen.is_empty() {
            let delta = if chat { json!({ "content": new }) } else { Value::from(new) };
            pieces.push(self.piece(index, &delta, &logprobs, None));
        }
        if finish.is_some() {
            pieces.push(self.piece(index, &if chat { json!({}) } else { Value::from("") }, &Value::Null, finish));
        }
        pieces
    }

    /// What a stream ends with, before `[DONE]`.
    pub(super) fn closing(&self) -> Option<Value> {
        if !self.include_usage {
            return None;
        }
        let mut last = self.object(self.streamed(), &[]);
        last.insert("usage".to_owned(), self.usage());
        Some(Value::Object(last))
    }

    const fn streamed(&self) -> &'static str {
        if self.chat { "chat.completion.chunk" } else { "text_completion" }
    }

    fn piece(&self, index: usize, new: &Value, logprobs: &Value, finish: Option<Finish>) -> Value {
        let key = if self.chat { "delta" } else { "text" };
        let choice = json!({ "index": index, key: new, "logprobs": logprobs, "finish_reason": finish.map(Finish::name) });
        let mut piece = self.object(self.streamed(), &[choice]);
        if self.include_usage {
            piece.insert("usage".to_owned(), Value::Null);
        }
        Value::Object(piece)
    }

    fn object(&self, kind: &str, choices: &[Value]) -> Map<String, Value> {
        let object = json!({
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.fingerprint,
            "seed": self.seed,
            "choices": choices,
        });
        if let Value::Object(object) = object { object } else { Map::new() }
    }

    fn usage(&self) -> Value {
        json!({
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.tokens,
            "total_tokens": self.prompt_tokens + self.tokens,
            "prompt_tokens_details": { "cached_tokens": self.cached },
        })
    }

    /// A line for the log: counts and times, nothing of the texts.
    pub(super) fn line(&self) -> Value {
        let finish: Vec<Option<&str>> = self.texts.iter().map(|text| text.finish.map(Finish::name)).collect();
        json!({
            "event": "text",
            "time": now(),
            "id": self.id,
            "model": self.model,
            "prompt_tokens": self.prompt_tokens,
            "cached_tokens": self.cached,
            "tokens": self.tokens,
            "finish": finish,
            "first_token_ms": self.first_token,
            "ms": milliseconds(self.start),
        })
    }
}

/// The probabilities of tokens, in the form of the one API or the other.
fn entries(chat: bool, chosen: &[Chosen], offset: &mut usize) -> Value {
    let name = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let shown = |logprob: f64| logprob.max(LEAST_LOGPROB);
    if chat {
        let entry = |bytes: &[u8], logprob: f64| json!({ "token": name(bytes), "logprob": shown(logprob), "bytes": bytes });
        let content = chosen.iter().map(|token| {
            let mut all = entry(&token.bytes, token.logprob.unwrap_or(LEAST_LOGPROB));
            let likeliest = token.likeliest.iter().map(|Candidate { bytes, logprob }| entry(bytes, *logprob));
            all["top_logprobs"] = likeliest.collect();
            all
        });
        return json!({ "content": content.collect::<Vec<_>>(), "refusal": null });
    }
    let offsets = chosen.iter().map(|token| {
        let before = *offset;
        *offset += name(&token.bytes).chars().count();
        before
    });
    let offsets: Vec<usize> = offsets.collect();
    let top = chosen.iter().map(|token| {
        let likeliest = token.likeliest.iter().map(|Candidate { bytes, logprob }| (name(bytes), Value::from(shown(*logprob))));
        Value::Object(likeliest.collect())
    });
    json!({
        "tokens": chosen.iter().map(|token| name(&token.bytes)).collect::<Vec<_>>(),
        "token_logprobs": chosen.iter().map(|token| token.logprob.map(shown)).collect::<Vec<_>>(),
        "top_logprobs": top.collect::<Vec<_>>(),
        "text_offset": offsets,
    })
}

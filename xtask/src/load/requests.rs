//! Requests of every kind, and what is said to them.

use super::client::{Client, Failed};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// A request for texts.
#[derive(Debug)]
pub(crate) struct Request {
    path: &'static str,
    body: Value,
    /// Goes away after so many events.
    leaves_after: Option<usize>,
}

/// What is said: for each text the text itself, why it ended, and what else there is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Said(Vec<[String; 3]>);

/// How long the tokens of streams took.
#[derive(Debug, Default)]
pub(crate) struct Times {
    /// From the request to the first.
    pub(crate) first: Vec<Duration>,
    /// From one to the next.
    pub(crate) next: Vec<Duration>,
}

/// A completion of `tokens` tokens, whatever the model says.
pub(crate) fn completion(prompt: &str, tokens: u32, seed: u64, temperature: f64) -> Request {
    let body = json!({ "prompt": prompt, "max_tokens": tokens, "seed": seed, "temperature": temperature, "ignore_eos": true });
    Request { path: "/v1/completions", body, leaves_after: None }
}

/// A conversation.
pub(crate) fn chat(messages: &Value, tokens: u32, seed: u64) -> Request {
    let body = json!({ "messages": messages, "max_tokens": tokens, "seed": seed });
    Request { path: "/v1/chat/completions", body, leaves_after: None }
}

/// All that clients may ask for, in some variants.
pub(crate) fn mixed() -> Vec<Request> {
    let mut all = Vec::new();
    for (seed, prompt) in (1..).zip(["Once upon a time", "The cat", "A", "Once upon a time there was a fox who"]) {
        let tokens = 8 * seed as u32;
        let messages = json!([{ "role": "user", "content": prompt }]);
        let schema = json!({
            "type": "object",
            "properties": { "age": { "type": "integer" }, "name": { "type": "string", "maxLength": 5 } },
            "required": ["age", "name"],
        });
        let format = json!({ "type": "json_schema", "json_schema": { "name": "fox", "schema": schema } });
        all.extend([
            completion(prompt, tokens, seed, 1.0),
            completion(prompt, tokens, seed, 0.0).streamed(),
            completion(prompt, 2 * tokens, seed, 0.8).with("top_p", json!(0.9)).with("frequency_penalty", json!(0.5)).streamed(),
            completion(prompt, tokens, seed, 1.0).with("n", json!(3)),
            completion(prompt, tokens, seed, 1.0).with("logprobs", json!(3)),
            completion(prompt, tokens, seed, 1.0).with("stop", json!(["e", "7"])).streamed(),
            chat(&messages, tokens, seed).with("top_logprobs", json!(2)).with("logprobs", json!(true)),
            chat(&messages, tokens, seed).streamed(),
            chat(&messages, tokens, seed).with("response_format", format),
            Request { leaves_after: Some(3), ..completion(prompt, 200, seed, 1.0).streamed() },
        ]);
    }
    all
}

impl Request {
    pub(crate) fn with(mut self, field: &str, value: Value) -> Self {
        self.body[field] = value;
        self
    }

    pub(crate) fn streamed(self) -> Self {
        self.with("stream", json!(true))
    }

    /// Asks, and says what came of it; the times of a stream's tokens go to `times`.
    pub(crate) fn ask(&self, client: Client, times: &mut Times) -> Result<Said, Failed> {
        let mut said = Said::default();
        if self.body["stream"] != true {
            said.add(&client.ask(self.path, &self.body)?);
            return Ok(said);
        }
        let (mut last, mut events, mut begun) = (Instant::now(), 0, false);
        client.stream(self.path, &self.body, &mut |event| {
            if said.add(event) {
                let now = Instant::now();
                if begun { &mut times.next } else { &mut times.first }.push(now - last);
                (last, begun) = (now, true);
            }
            events += 1;
            Some(events) != self.leaves_after
        })?;
        Ok(said)
    }

    /// Whether `said` is what was `alone`, or its beginning where the client went away.
    pub(crate) fn is_answered(&self, said: &Said, alone: &Said) -> bool {
        match self.leaves_after {
            None => said == alone,
            Some(_) => said.0.iter().zip(&alone.0).all(|([text, ..], [whole, ..])| whole.starts_with(text.as_str())),
        }
    }

    /// The same from a client that stays.
    pub(crate) fn whole(&self) -> Self {
        Self { path: self.path, body: self.body.clone(), leaves_after: None }
    }
}

impl Said {
    /// The texts alone.
    pub(crate) fn texts(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|[text, ..]| text.as_str())
    }

    /// Adds a reply or a piece of one; whether it has text.
    fn add(&mut self, reply: &Value) -> bool {
        let mut has_text = false;
        for choice in reply["choices"].as_array().map(Vec::as_slice).unwrap_or_default() {
            let index = choice["index"].as_u64().unwrap_or(0) as usize;
            if self.0.len() <= index {
                self.0.resize(index + 1, Default::default());
            }
            let new = [&choice["text"], &choice["message"]["content"], &choice["delta"]["content"]].into_iter().find_map(Value::as_str);
            let [text, finish, more] = &mut self.0[index];
            text.push_str(new.unwrap_or_default());
            has_text |= new.is_some_and(|new| !new.is_empty());
            finish.push_str(choice["finish_reason"].as_str().unwrap_or_default());
            if !choice["logprobs"].is_null() {
                more.push_str(&choice["logprobs"].to_string());
            }
        }
        has_text
    }
}

/// The value that so many in a hundred are not above, in milliseconds; 0 of none.
pub(crate) fn percentile(times: &mut [Duration], percent: usize) -> f64 {
    times.sort_unstable();
    let at = (times.len() * percent).div_ceil(100).saturating_sub(1);
    times.get(at).map_or(0.0, |time| time.as_secs_f64() * 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_were_there() {
        let mut times: Vec<Duration> = (1..=200).rev().map(Duration::from_millis).collect();
        assert_eq!([1, 50, 99, 100].map(|percent| percentile(&mut times, percent)), [2.0, 100.0, 198.0, 200.0]);
        assert_eq!(percentile(&mut [], 50), 0.0);
    }

    #[test]
    fn pieces_add_up_to_the_whole() {
        let request = completion("x", 2, 1, 0.0);
        let (mut whole, mut pieces) = (Said::default(), Said::default());
        whole.add(&json!({ "choices": [{ "index": 1, "text": "ab", "finish_reason": "stop", "logprobs": null }] }));
        assert!(pieces.add(&json!({ "choices": [{ "index": 1, "text": "a", "finish_reason": null }] })));
        assert!(Request { leaves_after: Some(1), ..request.whole() }.is_answered(&pieces, &whole) && !request.is_answered(&pieces, &whole));
        pieces.add(&json!({ "choices": [{ "index": 1, "text": "b" }] }));
        assert!(!pieces.add(&json!({ "choices": [{ "index": 1, "text": "", "finish_reason": "stop" }] })));
        assert!(request.is_answered(&pieces, &whole));
    }
}

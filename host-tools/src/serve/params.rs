//! What a request for text asks for, checked against the model.

use super::fields::{self, Fields, kind};
use super::grammar::{Grammar, any_object, of_schema};
use super::job::{Generate, Work};
use super::models::Serving;
use super::refusal::{Answer, Refusal};
use super::shape::Shaping;
use crate::chat::{self, Message, Role};
use crate::decode::any_seed;
use crate::text::encode;
use axum::http::StatusCode;
use dmexp::StopStrings;
use dmexp::sampler::Settings;
use serde_json::Value;
use std::sync::Arc;

/// The most texts that one request may ask for.
const MOST_TEXTS: usize = 128;
/// The most stop strings.
const MOST_STOPS: usize = 16;
/// The most tokens whose probabilities are told at each place.
const MOST_LIKELIEST: u64 = 20;
/// New tokens of a completion where the request does not say, as in OpenAI's API.
const COMPLETION_TOKENS: u32 = 16;

/// A request for text.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) chat: bool,
    pub(super) prompts: Vec<Prompt>,
    /// Texts for each prompt.
    pub(super) n: usize,
    pub(super) generate: Generate,
    pub(super) stops: Vec<String>,
    pub(super) stream: bool,
    /// Whether a stream ends with what was used.
    pub(super) include_usage: bool,
}

/// A prompt.
#[derive(Debug, Default)]
pub(super) struct Prompt {
    pub(super) tokens: Vec<u32>,
    /// What goes before the new text, where that was asked for.
    pub(super) echo: String,
}

impl Asked {
    /// A request to `/v1/completions`.
    pub(super) fn completion(fields: Fields<'_>, serving: &Serving) -> Answer<Self> {
        fields.unsupported("suffix", |value| value == "")?;
        let n = count_of_texts(fields)?;
        fields.unsupported("best_of", |value| value.as_u64() == Some(n as u64))?;
        let likeliest = fields.whole("logprobs", (0, MOST_LIKELIEST))?.map(|count| count as usize);
        let echo = fields.flag("echo")?;
        if echo && likeliest.is_some() {
            return Err(Refusal::field("echo", "is not supported together with logprobs; /v1/logits gives those of a prompt"));
        }
        let prompts = prompts(fields, serving, echo)?;
        let max_tokens = fields.whole("max_tokens", (1, u64::from(u32::MAX)))?.map(|count| count as u32);
        Self::new(fields, serving, false, (prompts, n), likeliest, max_tokens)
    }

    /// A request to `/v1/chat/completions`.
    pub(super) fn chat(fields: Fields<'_>, serving: &Serving) -> Answer<Self> {
        let is_empty = |value: &Value| value.as_array().is_some_and(Vec::is_empty);
        for name in ["tools", "functions", "audio", "modalities", "prediction", "web_search_options"] {
            fields.unsupported(name, |value| is_empty(value) || *value == Value::from(["text"].as_slice()))?;
        }
        for name in ["tool_choice", "function_call"] {
            fields.unsupported(name, |value| value == "none" || value == "auto")?;
        }
        let n = count_of_texts(fields)?;
        let top = fields.whole("top_logprobs", (0, MOST_LIKELIEST))?;
        let likeliest = match (fields.flag("logprobs")?, top) {
            (true, top) => Some(top.unwrap_or(0) as usize),
            (false, None | Some(0)) => None,
            (false, Some(_)) => return Err(Refusal::field("top_logprobs", "needs logprobs: true")),
        };
        let messages = messages(fields)?;
        let Some(template) = &serving.template else {
            let what =
                format!("the model {} carries no chat template: use /v1/completions, or start the server with --chat-template", serving.id);
            return Err(Refusal::request(what).with_code("no_chat_template"));
        };
        let feed = chat::feed(template, &serving.names, &serving.specials, &messages)?;
        let tokens = chat::encode(serving.model.tokenizer(), &feed, true)?;
        let max_tokens = match fields.whole("max_completion_tokens", (1, u64::from(u32::MAX)))? {
            Some(count) => Some(count),
            None => fields.whole("max_tokens", (1, u64::from(u32::MAX)))?,
        };
        let prompts = vec![Prompt { tokens, echo: String::new() }];
        Self::new(fields, serving, true, (prompts, n), likeliest, max_tokens.map(|count| count as u32))
    }

    fn new(
        fields: Fields<'_>,
        serving: &Serving,
        chat: bool,
        (prompts, n): (Vec<Prompt>, usize),
        likeliest: Option<usize>,
        max_tokens: Option<u32>,
    ) -> Answer<Self> {
        if prompts.len() * n > MOST_TEXTS {
            let what = format!("{} prompts with n = {n} are more than {MOST_TEXTS} texts; ask for fewer at a time", prompts.len());
            return Err(Refusal::request(what));
        }
        let context = serving.model.context();
        let longest = prompts.iter().map(|prompt| prompt.tokens.len()).max().unwrap_or(0);
        if prompts.iter().any(|prompt| prompt.tokens.is_empty()) {
            return Err(Refusal::field("prompt", "is empty, and the model has no token that begins a text"));
        }
        if longest > context as usize {
            let what = format!("the prompt has {longest} tokens, the context has {context} positions; shorten it");
            return Err(Refusal::request(what).with_code("context_length_exceeded"));
        }
        // The last new token is not fed again, so it needs no position.
        let room = context - longest as u32 + 1;
        let budget = max_tokens.unwrap_or(if chat { room } else { COMPLETION_TOKENS.min(room) });
        if budget > room {
            let what = format!(
                "max_tokens: {budget} new tokens after {longest} of the prompt do not fit the context of {context} positions; ask for {room} at most"
            );
            return Err(Refusal::request(what).with_code("context_length_exceeded"));
        }
        let stream = fields.flag("stream")?;
        let include_usage = fields.object("stream_options")?.map_or(Ok(false), |options| options.flag("include_usage"))?;
        let vocab_size = serving.model.network().vocab_size();
        let generate = Generate {
            settings: settings(fields)?,
            shaping: shaping(fields, vocab_size)?,
            budget,
            grammar: grammar(fields)?.map(Arc::new),
            ignore_end: fields.flag("ignore_eos")?,
            likeliest,
        };
        Ok(Self { chat, prompts, n, generate, stops: stops(fields)?, stream, include_usage })
    }

    /// What the engine has to do for the text `index`: the first of a prompt begins at the seed, others at the seeds that follow.
    pub(super) fn work(&self, index: usize) -> Work {
        let mut generate = self.generate.clone();
        let seed = generate.settings.seed.wrapping_add((index % self.n) as u64);
        generate.settings.seed = seed.max(1);
        Work::Generate(generate)
    }
}

fn count_of_texts(fields: Fields<'_>) -> Answer<usize> {
    Ok(fields.whole("n", (1, MOST_TEXTS as u64))?.unwrap_or(1) as usize)
}

/// The texts of `prompt`: one, or several, each a string or token ids.
fn prompts(fields: Fields<'_>, serving: &Serving, echo: bool) -> Answer<Vec<Prompt>> {
    let (tokenizer, vocab_size) = (serving.model.tokenizer(), serving.model.network().vocab_size());
    let of_text = |text: &str| {
        has_tokenizer(serving)?;
        let tokens = encode(tokenizer, text.as_bytes(), true)?;
        Ok::<_, Refusal>(Prompt { tokens, echo: if echo { text.to_owned() } else { String::new() } })
    };
    let of_tokens = |list: &[Value]| {
        let tokens = fields::tokens("prompt", list, vocab_size)?;
        let echo = if echo { serving.text(&tokens) } else { String::new() };
        Ok(Prompt { tokens, echo })
    };
    match fields.get("prompt") {
        None => Ok(vec![of_text("")?]),
        Some(Value::String(text)) => Ok(vec![of_text(text)?]),
        Some(Value::Array(list)) if list.is_empty() => Err(Refusal::field("prompt", "is an empty array")),
        Some(Value::Array(list)) if list.iter().all(Value::is_number) => Ok(vec![of_tokens(list)?]),
        Some(Value::Array(list)) => {
            let prompt = |value: &Value| match value {
                Value::String(text) => of_text(text),
                Value::Array(tokens) => of_tokens(tokens),
                other => Err(Refusal::field("prompt", format_args!("expected texts or lists of token ids, found {}", kind(other)))),
            };
            list.iter().map(prompt).collect()
        }
        Some(other) => Err(Refusal::field("prompt", format_args!("expected a string or an array, found {}", kind(other)))),
    }
}

/// What was said, of `messages`.
fn messages(fields: Fields<'_>) -> Answer<Vec<Message>> {
    let list = fields.list("messages")?.filter(|list| !list.is_empty());
    let Some(list) = list else { return Err(Refusal::field("messages", "at least one message is needed")) };
    list.iter().enumerate().map(|(place, value)| message(place, value)).collect()
}

fn message(place: usize, value: &Value) -> Answer<Message> {
    let at = |field: &str| format!("messages[{place}].{field}");
    for name in ["tool_calls", "function_call"] {
        if !value[name].is_null() {
            return Err(Refusal::field(&at(name), "is not supported by this server").with_code("unsupported_parameter"));
        }
    }
    let role = match value["role"].as_str() {
        Some("system" | "developer") => Role::System,
        Some("user") => Role::User,
        Some("assistant") => Role::Assistant,
        Some(other) => return Err(Refusal::field(&at("role"), format_args!("{other:?} is none of system, developer, user and assistant"))),
        None => return Err(Refusal::field(&at("role"), format_args!("expected a string, found {}", kind(&value["role"])))),
    };
    let content = match &value["content"] {
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            let text = |part: &Value| match (part["type"].as_str(), part["text"].as_str()) {
                (Some("text"), Some(text)) => Ok(text.to_owned()),
                _ => Err(Refusal::field(&at("content"), "every part has to be a text: this server takes text alone")),
            };
            parts.iter().map(text).collect::<Answer<String>>()?
        }
        Value::Null if role == Role::Assistant => String::new(),
        other => return Err(Refusal::field(&at("content"), format_args!("expected a string or parts, found {}", kind(other)))),
    };
    Ok(Message { role, content })
}

/// OpenAI's defaults: the model's own probabilities.
fn settings(fields: Fields<'_>) -> Answer<Settings> {
    let settings = Settings {
        temperature: fields.float("temperature", (0.0, f32::MAX))?.unwrap_or(1.0),
        top_p: fields.float("top_p", (0.0, 1.0))?.unwrap_or(1.0),
        top_k: fields.whole("top_k", (0, u64::from(u32::MAX)))?.unwrap_or(0) as u32,
        min_p: fields.float("min_p", (0.0, 1.0))?.unwrap_or(0.0),
        repeat_penalty: fields.float("repeat_penalty", (0.0, f32::MAX))?.unwrap_or(1.0),
        seed: fields.whole("seed", (1, u64::MAX))?.unwrap_or_else(any_seed),
        ..Settings::GREEDY
    };
    settings.check()?;
    Ok(settings)
}

/// The form of `response_format`.
fn grammar(fields: Fields<'_>) -> Answer<Option<Grammar>> {
    let Some(format) = fields.object("response_format")? else { return Ok(None) };
    match format.text("type")? {
        Some("text") => Ok(None),
        Some("json_object") => Ok(Some(any_object())),
        Some("json_schema") => {
            let schema = format.object("json_schema").ok().flatten().and_then(|named| named.get("schema"));
            let missing = || Refusal::field("response_format", "json_schema is no object with a schema");
            Ok(Some(of_schema(schema.ok_or_else(missing)?)?))
        }
        Some(other) => Err(Refusal::field("response_format", format_args!("type {other:?} is none of text, json_object and json_schema"))),
        None => Err(Refusal::field("response_format", "type is missing")),
    }
}

fn shaping(fields: Fields<'_>, vocab_size: u32) -> Answer<Shaping> {
    let penalty = |name| Ok::<_, Refusal>(fields.float(name, (-2.0, 2.0))?.unwrap_or(0.0));
    let mut bias = Vec::new();
    if let Some(value) = fields.get("logit_bias") {
        let Some(object) = value.as_object() else {
            return Err(Refusal::field("logit_bias", format_args!("expected an object, found {}", kind(value))));
        };
        for (token, value) in object {
            let wrong = |what: String| Refusal::field("logit_bias", what);
            let id = token.parse().ok().filter(|id| *id < vocab_size);
            let id = id.ok_or_else(|| wrong(format!("{token:?} is no token id of the vocabulary of {vocab_size}")))?;
            let change = value.as_f64().filter(|change| (-100.0..=100.0).contains(change));
            bias.push((id, change.ok_or_else(|| wrong(format!("token {token}: {value} is no number from -100 to 100")))? as f32));
        }
    }
    Ok(Shaping { bias, frequency: penalty("frequency_penalty")?, presence: penalty("presence_penalty")? })
}

/// The strings of `stop`: one, or several.
fn stops(fields: Fields<'_>) -> Answer<Vec<String>> {
    let stops: Vec<String> = match fields.get("stop") {
        None => Vec::new(),
        Some(Value::String(text)) => vec![text.clone()],
        Some(Value::Array(list)) => {
            let text = |value: &Value| {
                let text = value.as_str().map(str::to_owned);
                text.ok_or_else(|| Refusal::field("stop", format_args!("expected strings, found {}", kind(value))))
            };
            list.iter().map(text).collect::<Answer<_>>()?
        }
        Some(other) => return Err(Refusal::field("stop", format_args!("expected a string or an array of strings, found {}", kind(other)))),
    };
    if stops.len() > MOST_STOPS {
        return Err(Refusal::field("stop", format_args!("{} strings are given, {MOST_STOPS} are taken at most", stops.len())));
    }
    let strings: Vec<&str> = stops.iter().map(String::as_str).collect();
    StopStrings::new(&strings).map_err(|error| Refusal::field("stop", error))?;
    Ok(stops)
}

/// Refuses a model that has no tokenizer.
pub(super) fn has_tokenizer(serving: &Serving) -> Answer<()> {
    if serving.has_tokenizer() {
        return Ok(());
    }
    Err(Refusal::new(StatusCode::BAD_REQUEST, format!("the model {} carries no tokenizer: it takes token ids alone", serving.id)))
}

//! What stands beside a tokenizer file in a Hugging Face folder: `tokenizer_config.json`, `special_tokens_map.json`, `chat_template.jinja`, `generation_config.json`, `config.json`. Each may be absent.

use super::Mapping;
use super::json::{self, Keys, shown};
use crate::error::{Error, Result};
use dmexp_format::tokenizer::NO_TOKEN;
use serde_json::{Map, Value};
use std::path::Path;

/// The longest chat template in bytes: they are some thousand, and the header that carries it is read whole.
pub(super) const TEMPLATE_LIMIT: usize = 1 << 20;

/// The settings, as far as they are stated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Settings {
    /// The class of the transformers library that reads the tokenizer.
    pub(super) class: Option<String>,
    pub(super) add_bos: Option<bool>,
    pub(super) add_eos: Option<bool>,
    /// The texts of special tokens.
    pub(super) bos: Option<String>,
    pub(super) eos: Option<String>,
    pub(super) pad: Option<String>,
    pub(super) unk: Option<String>,
    /// Ids as the model's configuration has them.
    pub(super) bos_id: Option<u32>,
    pub(super) pad_id: Option<u32>,
    /// What ends a generated text: the list of `generation_config.json`, or that of `config.json` where that says nothing.
    pub(super) eos_ids: Vec<u32>,
    pub(super) chat_template: Option<String>,
    pub(super) notes: Vec<String>,
}

/// Reads the settings in `folder`.
///
/// # Errors
/// With the path: [`Class::Unreadable`](crate::error::Class::Unreadable), [`Class::Damaged`](crate::error::Class::Damaged) for a file that is not what it should be.
pub(super) fn read(folder: &Path) -> Result<Settings> {
    let mut settings = Settings::default();
    with(folder, "tokenizer_config.json", |table| settings.tokenizer_config(table))?;
    with(folder, "special_tokens_map.json", |table| settings.special_tokens(table))?;
    let mut model_eos = Vec::new();
    with(folder, "config.json", |table| {
        let keys = Keys::new(table, "");
        settings.bos_id = keys.u32("bos_token_id")?;
        // Some models write -1 for none.
        settings.pad_id = keys.value("pad_token_id").and_then(Value::as_u64).and_then(|id| u32::try_from(id).ok());
        model_eos = ids(&keys, "eos_token_id")?;
        Ok(())
    })?;
    with(folder, "generation_config.json", |table| {
        settings.eos_ids = ids(&Keys::new(table, ""), "eos_token_id")?;
        Ok(())
    })?;
    if settings.eos_ids.is_empty() {
        settings.eos_ids = model_eos;
    }
    let path = folder.join("chat_template.jinja");
    if path.is_file() {
        let file = Mapping::open(&path)?;
        let text = std::str::from_utf8(file.bytes()).map_err(|_| Error::damaged("is not UTF-8").in_file(&path))?;
        settings.chat_template = Some(template(text).map_err(|error| error.in_file(&path))?);
    }
    Ok(settings)
}

fn with(folder: &Path, name: &str, read: impl FnOnce(&Map<String, Value>) -> Result<()>) -> Result<()> {
    let path = folder.join(name);
    if !path.is_file() {
        return Ok(());
    }
    read(&json::read_object(&path)?).map_err(|error| error.in_file(&path))
}

/// One id or a list of them.
fn ids(keys: &Keys<'_>, key: &str) -> Result<Vec<u32>> {
    let Some(value) = keys.value(key) else { return Ok(Vec::new()) };
    let one = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
    let all = match value {
        Value::Array(list) => list.iter().map(one).collect(),
        other => one(other).map(|id| vec![id]),
    };
    let mut ids: Vec<u32> = all.ok_or_else(|| keys.wrong(key, value, "a token or a list of tokens"))?;
    let mut seen = Vec::new();
    ids.retain(|id| {
        !seen.contains(id) && {
            seen.push(*id);
            true
        }
    });
    Ok(ids)
}

fn template(text: &str) -> Result<String> {
    if text.len() > TEMPLATE_LIMIT {
        return Err(Error::damaged(format!("the chat template has {} bytes; it can have {TEMPLATE_LIMIT}", text.len())));
    }
    Ok(text.to_owned())
}

/// A special token: its text, or an object with its text as `content`.
fn token(keys: &Keys<'_>, key: &str) -> Result<Option<String>> {
    match keys.value(key) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(Value::Object(table)) => {
            let inner = Keys::new(table, key);
            Ok(Some(inner.required(" content", inner.text("content")?)?.to_owned()))
        }
        Some(other) => Err(keys.wrong(key, other, "a token's text or its description")),
    }
}

impl Settings {
    fn tokenizer_config(&mut self, table: &Map<String, Value>) -> Result<()> {
        let keys = Keys::new(table, "");
        self.class = keys.text("tokenizer_class")?.map(str::to_owned);
        self.add_bos = keys.bool("add_bos_token")?;
        self.add_eos = keys.bool("add_eos_token")?;
        self.special_tokens(table)?;
        match keys.value("chat_template") {
            None => {}
            Some(Value::String(text)) => self.chat_template = Some(template(text)?),
            Some(Value::Array(list)) => self.named_templates(list)?,
            Some(other) => return Err(keys.wrong("chat_template", other, "a text or a list of named texts")),
        }
        Ok(())
    }

    /// Special tokens; what is known already stays.
    fn special_tokens(&mut self, table: &Map<String, Value>) -> Result<()> {
        let keys = Keys::new(table, "");
        for (place, key) in
            [(&mut self.bos, "bos_token"), (&mut self.eos, "eos_token"), (&mut self.pad, "pad_token"), (&mut self.unk, "unk_token")]
        {
            if place.is_none() {
                *place = token(&keys, key)?;
            }
        }
        Ok(())
    }

    /// Of several templates the one that is named `default`.
    fn named_templates(&mut self, list: &[Value]) -> Result<()> {
        let mut others = Vec::new();
        for entry in list {
            let (Some(name), Some(text)) = (entry["name"].as_str(), entry["template"].as_str()) else {
                let what = format!("chat_template has an entry {}; it can be {{\"name\": text, \"template\": text}}", shown(entry));
                return Err(Error::damaged(what));
            };
            if name != "default" {
                others.push(name);
            } else if self.chat_template.replace(template(text)?).is_some() {
                return Err(Error::damaged("chat_template has two templates named \"default\""));
            }
        }
        if !others.is_empty() {
            let carried = if self.chat_template.is_some() {
                "only the one named default is carried"
            } else {
                "none is named default, so none is carried"
            };
            self.notes.push(format!("there are chat templates named {}: {carried}", others.join(", ")));
        }
        Ok(())
    }

    /// The tokens that end a text, given the tokenizer's own.
    ///
    /// # Errors
    /// [`Class::NotAModel`](crate::error::Class::NotAModel) for more than there is room for, or one that is put after every text.
    pub(super) fn ends(&self, own: Option<u32>) -> Result<Vec<u32>> {
        if self.add_eos == Some(true) {
            let what = "add_eos_token is true: every text would be ended before it is continued";
            return Err(Error::not_a_model(what).advise("make add_eos_token false"));
        }
        let ends = if self.eos_ids.is_empty() { own.into_iter().collect() } else { self.eos_ids.clone() };
        let room = end_list(&[]).len();
        if ends.len() > room {
            return Err(Error::not_a_model(format!("{} tokens end a text; this version has room for {room}", ends.len())));
        }
        Ok(ends)
    }

    /// Whether text begins with the begin-of-text token, given whether tokenizer.json's post-processor puts it there: the library's Llama classes follow `add_bos_token`, the others do not look at it.
    pub(super) fn begins(&self, by_file: bool) -> bool {
        let follows =
            self.class.as_deref().is_some_and(|class| class.starts_with("LlamaTokenizer") || class.starts_with("CodeLlamaTokenizer"));
        if follows { self.add_bos.unwrap_or(by_file) } else { by_file }
    }
}

/// The settings beside the file at `path`.
///
/// # Errors
/// Those of [`read`].
pub(super) fn beside(path: &Path) -> Result<Settings> {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => read(folder),
        _ => read(Path::new(".")),
    }
}

/// The tokens that end a text, as a tokenizer's facts list them; at most as many as there is room for.
pub(super) fn end_list(ends: &[u32]) -> [u32; 8] {
    let mut list = [NO_TOKEN; 8];
    for (place, token) in list.iter_mut().zip(ends) {
        *place = *token;
    }
    list
}

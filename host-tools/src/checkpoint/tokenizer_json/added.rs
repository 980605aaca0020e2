//! The added tokens of a tokenizer.json, and all tokens by id.

use crate::checkpoint::json::{Keys, shown};
use crate::error::{Error, Result};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, HashMap};

/// A token: its text as the file has it, and what sort it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Token<'v> {
    pub(super) text: &'v str,
    pub(super) sort: Sort,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sort {
    /// Of the model's vocabulary.
    Piece,
    /// Added, and ordinary text once it is decoded.
    Added,
    /// Added, and no text.
    Special,
}

/// All tokens by id.
#[derive(Debug)]
pub(super) struct Tokens<'v> {
    pub(super) by_id: BTreeMap<u32, Token<'v>>,
    pub(super) ids: HashMap<&'v str, u32>,
}

/// Reads `model.vocab` and `added_tokens`.
///
/// # Errors
/// [`Class::Damaged`](crate::error::Class::Damaged) for ids or texts that stand twice, [`Class::NotAModel`](crate::error::Class::NotAModel) for an added token that is found in ordinary text.
pub(super) fn read<'v>(keys: &Keys<'v>, vocab: &'v Map<String, Value>, notes: &mut Vec<String>) -> Result<Tokens<'v>> {
    let mut tokens = Tokens { by_id: BTreeMap::new(), ids: HashMap::with_capacity(vocab.len()) };
    for (text, id) in vocab {
        let Some(number) = id.as_u64().and_then(|id| u32::try_from(id).ok()) else {
            return Err(Error::damaged(format!("the piece {} has the id {}", shown_text(text), shown(id))));
        };
        if let Some(other) = tokens.by_id.insert(number, Token { text, sort: Sort::Piece }) {
            let what = format!("the pieces {} and {} have one id, {number}", shown_text(other.text), shown_text(text));
            return Err(Error::damaged(what));
        }
        tokens.ids.insert(text, number);
    }
    let (mut found_in_text, mut strip) = (0, 0);
    for entry in keys.list("added_tokens")?.unwrap_or_default() {
        let token = entry.as_object().map(|table| Keys::new(table, "added_tokens: "));
        let Some(token) = token else { return Err(keys.wrong("added_tokens", entry, "a list of objects")) };
        let id = token.required("id", token.u32("id")?)?;
        let text = token.required("content", token.text("content")?)?;
        let special = token.bool("special")?.unwrap_or(false);
        if text.is_empty() {
            return Err(Error::damaged(format!("the added token {id} has no text")));
        }
        if !special {
            if !is_tag(text) {
                let what = format!(
                    "the added token {id}, {}, is cut out of any text before it is split, which this version does not do",
                    shown_text(text)
                );
                return Err(Error::not_a_model(what));
            }
            found_in_text += 1;
        }
        strip += usize::from(token.bool("lstrip")?.unwrap_or(false) || token.bool("rstrip")?.unwrap_or(false));
        let sort = if special { Sort::Special } else { Sort::Added };
        match (tokens.by_id.insert(id, Token { text, sort }), tokens.ids.insert(text, id)) {
            (Some(other), _) if other.text != text => {
                let what = format!("token {id} is the piece {} and the added token {}", shown_text(other.text), shown_text(text));
                return Err(Error::damaged(what));
            }
            (_, Some(other)) if other != id => {
                return Err(Error::damaged(format!("the text {} has two ids, {other} and {id}", shown_text(text))));
            }
            _ => {}
        }
    }
    if found_in_text > 0 {
        notes.push(format!(
            "{found_in_text} added tokens in angle or square brackets are only made by templates, never of a text that spells them"
        ));
    }
    if strip > 0 {
        notes.push(format!("{strip} added tokens take the white space beside them where a template spells them; here it stays"));
    }
    Ok(tokens)
}

/// Whether a token looks like a mark of templates, which nobody writes for what it says.
fn is_tag(text: &str) -> bool {
    text.len() > 2 && (text.starts_with('<') && text.ends_with('>') || text.starts_with('[') && text.ends_with(']'))
}

/// A piece as it stands in an error.
pub(super) fn shown_text(text: &str) -> String {
    shown(&Value::String(text.to_owned()))
}

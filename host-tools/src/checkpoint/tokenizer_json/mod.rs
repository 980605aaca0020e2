//! Reader of tokenizer.json, the file of the `tokenizers` library: byte-level BPE, and BPE in sentencepiece's style. What our tokenizers do not do exactly is refused by name.

mod added;
mod sentencepiece;
mod stages;

#[cfg(test)]
mod tests;

use super::byte_level::{ByteLevelBpe, character_of};
use super::json::{self, Keys, shown};
use super::tokenizer_settings::{Settings, end_list};
use super::{Mapping, TokenizerSource, tokenizer_settings};
use crate::decode::TokenizerArrays;
use crate::error::{Error, Result};
use added::{Sort, Tokens, shown_text};
use dmexp_format::tokenizer::{NO_TOKEN, TokenizerFacts, TokenizerKind};
use serde_json::{Map, Value};
use std::path::Path;

/// Reads the tokenizer of a model with `vocab_size` tokens (`None`: as many as the file has), with the settings that stand beside it.
///
/// # Errors
/// With the path: [`Class::Unreadable`](crate::error::Class::Unreadable), [`Class::NotAModel`](crate::error::Class::NotAModel) for a kind or stage that this version does not have exactly,
/// [`Class::Damaged`](crate::error::Class::Damaged) for contents that cannot be, [`Class::Mismatch`](crate::error::Class::Mismatch) where it does not fit the model.
pub(super) fn read(path: &Path, vocab_size: Option<u32>) -> Result<TokenizerSource> {
    let file = Mapping::open(path)?;
    let settings = tokenizer_settings::beside(path)?;
    let source = parse(file.bytes(), vocab_size, &settings).map_err(|error| error.in_file(path))?;
    Ok(TokenizerSource { file_name: file.file_name(), ..source })
}

/// Reads a tokenizer from memory, like [`read`].
pub(super) fn parse(bytes: &[u8], vocab_size: Option<u32>, settings: &Settings) -> Result<TokenizerSource> {
    let table = json::object(bytes)?;
    let keys = Keys::new(&table, "");
    let Some(model) = keys.object("model")? else { return Err(Error::not_a_model("is a JSON text without a model: no tokenizer.json")) };
    let model = Keys::new(model, "model.");
    let vocab = bpe(&model)?;
    stages::no_limits(&keys)?;
    let mut notes = settings.notes.clone();
    let tokens = added::read(&keys, vocab, &mut notes)?;
    let count = count(&tokens, vocab_size, &mut notes)?;
    let merges = merges(&model)?;
    let stage = |key: &str| table.get(key).unwrap_or(&Value::Null);
    let byte_level = stages::is_byte_level(stage("pre_tokenizer"));
    let names = Special::read(&tokens, stages::begin(stage("post_processor"))?, model.text("unk_token")?, settings)?;
    let ignore_merges = model.bool("ignore_merges")?.unwrap_or(false);
    let special: Vec<u32> = (0..count).filter(|id| tokens.by_id.get(id).is_none_or(|token| token.sort == Sort::Special)).collect();
    let mut source = if byte_level {
        let written = |id: u32| match tokens.by_id.get(&id) {
            Some(token) if token.sort == Sort::Added => token.text.bytes().map(character_of).collect(),
            Some(token) => token.text.to_owned(),
            None => unused(id),
        };
        let tokenizer = ByteLevelBpe {
            pieces: (0..count).map(written).collect(),
            merges: merges.into_iter().map(|(left, right)| (left.to_owned(), right.to_owned())).collect(),
            special,
            pre_tokenizer: stages::pre_tokenizer(stage("pre_tokenizer"))?,
            ignore_merges,
            normalizer: stages::byte_level_normalizer(stage("normalizer"))?,
            add_bos: names.add_bos,
            bos: names.bos,
            eos: names.eos,
            pad: names.pad,
            unk: names.unk,
            chat_template: settings.chat_template.clone(),
            file_name: String::new(),
        };
        tokenizer.build()?
    } else {
        if ignore_merges {
            return Err(Error::not_a_model("model.ignore_merges is true, which this version has for byte-level tokenizers alone"));
        }
        let mut facts = names.facts(count)?;
        facts.dummy_prefix = stages::dummy_prefix(stage("normalizer"), stage("pre_tokenizer"))?;
        facts.byte_base = if model.bool("byte_fallback")?.unwrap_or(false) { sentencepiece::byte_base(&tokens)? } else { NO_TOKEN };
        if facts.byte_base == NO_TOKEN {
            notes.push("the tokenizer has no byte tokens: a character without a piece is an error".to_owned());
        }
        // The piece of an unknown character is its text, as it is with llama2.c's tokenizer.bin.
        let special: Vec<u32> = special.into_iter().filter(|id| *id != facts.unk).collect();
        let piece = |id: u32| match tokens.by_id.get(&id) {
            Some(token) => sentencepiece::piece(token),
            None => Ok(unused(id).into_bytes()),
        };
        let pieces: Vec<Vec<u8>> = (0..count).map(piece).collect::<Result<_>>()?;
        facts.n_special = special.len() as u32;
        facts.max_piece_len = pieces.iter().map(Vec::len).max().unwrap_or(0) as u32;
        let scores = sentencepiece::scores(&tokens, &merges, count, facts.byte_base)?;
        TokenizerSource { pieces, scores, special, facts, chat_template: settings.chat_template.clone(), ..TokenizerSource::NONE }
    };
    stages::decoder(stage("decoder"), byte_level, source.facts.dummy_prefix)?;
    source.notes.extend(notes);
    TokenizerArrays::new(&source).tokenizer()?;
    Ok(source)
}

/// What stands for a token that the model has and the tokenizer has not.
fn unused(id: u32) -> String {
    format!("<|unused {id}|>")
}

/// The vocabulary of a BPE without any of the options that our tokenizers do not have.
fn bpe<'v>(model: &Keys<'v>) -> Result<&'v Map<String, Value>> {
    match model.text("type")? {
        Some("BPE") => {}
        None if model.value("merges").is_some() => {}
        other => {
            let what = format!("its model is {:?}; this version has BPE", other.unwrap_or("of a kind that it does not name"));
            return Err(Error::not_a_model(what));
        }
    }
    if model.f64("dropout")?.is_some_and(|dropout| dropout != 0.0) {
        return Err(Error::not_a_model("model.dropout is not 0: tokens would be a matter of chance"));
    }
    for key in ["continuing_subword_prefix", "end_of_word_suffix"] {
        if let Some(text) = model.text(key)?.filter(|text| !text.is_empty()) {
            return Err(Error::not_a_model(format!("model.{key} is {text:?}, which this version does not have")));
        }
    }
    model.required("vocab", model.object("vocab")?)
}

/// How many tokens there are: the model's, where it has more than the tokenizer (embeddings are often filled up to a round number).
fn count(tokens: &Tokens<'_>, vocab_size: Option<u32>, notes: &mut Vec<String>) -> Result<u32> {
    let Some((last, token)) = tokens.by_id.last_key_value() else { return Err(Error::damaged("has no tokens")) };
    let own = last.saturating_add(1);
    let count = vocab_size.unwrap_or(own);
    if own > count {
        let what = format!("has {own} tokens (the last is {}), the model has {count}", shown_text(token.text));
        return Err(Error::mismatch(what).advise("name the tokenizer that the model was trained with"));
    }
    // Every token costs memory, and ids can be anything.
    let unused = u64::from(count) - tokens.by_id.len() as u64;
    if vocab_size.is_none() && unused > tokens.by_id.len() as u64 {
        return Err(Error::damaged(format!("the ids go up to {last}, but there are only {} tokens", tokens.by_id.len())));
    }
    if unused > 0 {
        notes.push(format!("{unused} of the model's {count} tokens have no piece: they are special tokens without text"));
    }
    Ok(count)
}

/// Left and right of each merge, in the order of their ranks.
fn merges<'v>(model: &Keys<'v>) -> Result<Vec<(&'v str, &'v str)>> {
    let list = model.required("merges", model.list("merges")?)?;
    let pair = |(rank, merge): (usize, &'v Value)| {
        let pair = match merge {
            Value::String(text) => {
                text.split_once(' ').filter(|(left, right)| !left.is_empty() && !right.is_empty() && !right.contains(' '))
            }
            Value::Array(list) => match list.as_slice() {
                [Value::String(left), Value::String(right)] => Some((left.as_str(), right.as_str())),
                _ => None,
            },
            _ => None,
        };
        pair.ok_or_else(|| Error::damaged(format!("merge {rank} is {}; it can be two pieces", shown(merge))))
    };
    list.iter().enumerate().map(pair).collect()
}

/// Begin, end, padding and unknown, and whether begin is put before text.
struct Special {
    bos: Option<u32>,
    add_bos: bool,
    eos: Vec<u32>,
    pad: Option<u32>,
    unk: Option<u32>,
}

impl Special {
    /// `by_file` is the token that the post-processor puts before text, `unk` the model's unknown piece.
    fn read(tokens: &Tokens<'_>, by_file: Option<u32>, unk: Option<&str>, settings: &Settings) -> Result<Self> {
        let named = |key: &str, text: Option<&str>| match text.map(|text| (text, tokens.ids.get(text))) {
            None => Ok(None),
            Some((_, Some(id))) => Ok(Some(*id)),
            Some((text, None)) => Err(Error::mismatch(format!("{key} is {}, which the tokenizer does not have", shown_text(text)))),
        };
        let bos = named("bos_token", settings.bos.as_deref())?;
        if let (Some(put), Some(bos)) = (by_file, bos)
            && put != bos
        {
            return Err(Error::mismatch(format!("the post_processor puts token {put} before text, but bos_token is token {bos}")));
        }
        let bos = bos.or(by_file).or(settings.bos_id);
        let add_bos = settings.begins(by_file.is_some());
        if add_bos && bos.is_none() {
            return Err(Error::mismatch("add_bos_token is true, but there is no bos_token"));
        }
        let eos = named("eos_token", settings.eos.as_deref())?;
        Ok(Self {
            bos,
            add_bos,
            eos: settings.ends(eos)?,
            pad: named("pad_token", settings.pad.as_deref())?.or(settings.pad_id),
            unk: named("unk_token", unk.or(settings.unk.as_deref()))?,
        })
    }

    /// The facts of a sentencepiece-style tokenizer, as far as they are known.
    fn facts(&self, count: u32) -> Result<TokenizerFacts> {
        let facts = TokenizerFacts {
            kind: TokenizerKind::SentencepieceBpe,
            n_pieces: count,
            add_bos: self.add_bos,
            bos: self.bos.unwrap_or(NO_TOKEN),
            pad: self.pad.unwrap_or(NO_TOKEN),
            unk: self.unk.unwrap_or(NO_TOKEN),
            eos: end_list(&self.eos),
            ..TokenizerFacts::NONE
        };
        let named = [self.bos, self.pad, self.unk].into_iter().flatten().chain(self.eos.iter().copied());
        match named.into_iter().find(|id| *id >= count) {
            Some(id) => Err(Error::mismatch(format!("token {id} is named as a special one; the tokenizer has {count} tokens"))),
            None => Ok(facts),
        }
    }
}

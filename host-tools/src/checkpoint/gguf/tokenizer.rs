//! The tokenizer that a GGUF file carries: `llama` (sentencepiece-style BPE) and `gpt2` (byte-level BPE), with special tokens and chat template. What decides how text becomes tokens is
//! carried, or refused by name.

use super::container::{AGAIN, Container};
use super::sentencepiece;
use super::value::Value;
use crate::checkpoint::TokenizerSource;
use crate::checkpoint::byte_level::{ByteLevelBpe, character_of};
use crate::decode::TokenizerArrays;
use crate::error::{Error, Result};
use dmexp_format::tokenizer::{Normalizer, PreTokenizer};

/// What GGUF's `token_type` says of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenType {
    Normal,
    Unknown,
    Control,
    UserDefined,
    Unused,
    Byte,
}

/// The parts that both kinds have.
pub(super) struct Vocabulary<'a> {
    pub(super) pieces: Vec<&'a [u8]>,
    pub(super) types: Vec<TokenType>,
    pub(super) bos: Option<u32>,
    /// End of text, of a turn or of a message: each stops generation.
    pub(super) eos: Vec<u32>,
    pub(super) unk: Option<u32>,
    pub(super) pad: Option<u32>,
    pub(super) chat_template: Option<String>,
    pub(super) notes: Vec<String>,
}

/// Reads the tokenizer; `None` where the file carries none.
pub(super) fn read(container: &Container<'_>, vocab_size: u32) -> Result<Option<TokenizerSource>> {
    let tokenizer = match container.text("tokenizer.ggml.model")? {
        None | Some("none" | "no_vocab") => return Ok(None),
        Some("llama") => sentencepiece::build(container, vocabulary(container, vocab_size)?)?,
        Some("gpt2") => byte_level(container, vocabulary(container, vocab_size)?)?,
        Some(other) => {
            let what = format!("has a tokenizer of the kind {other:?}, which this version does not import");
            return Err(Error::not_a_model(what).advise("the kinds are llama (sentencepiece-style BPE) and gpt2 (byte-level BPE)"));
        }
    };
    refuse_other_keys(container)?;
    // As the runtime checks it: here an error is this file's, once it is written it would be the export's.
    TokenizerArrays::new(&tokenizer).tokenizer()?;
    Ok(Some(tokenizer))
}

fn vocabulary<'a>(container: &Container<'a>, vocab_size: u32) -> Result<Vocabulary<'a>> {
    let pieces = texts(container, "tokenizer.ggml.tokens")?.ok_or_else(|| missing("tokenizer.ggml.tokens"))?;
    if pieces.len() as u64 != u64::from(vocab_size) {
        let what = format!("has {vocab_size} rows in token_embd.weight, but tokenizer.ggml.tokens has {} tokens", pieces.len());
        return Err(Error::mismatch(what).advise(AGAIN));
    }
    let types = types(container, pieces.len())?;
    let id = |name: &str| -> Result<Option<u32>> {
        let key = format!("tokenizer.ggml.{name}_token_id");
        match container.unsigned(&key)? {
            None => Ok(None),
            // What llama.cpp's converter wrote for "there is none".
            Some(id) if id == u64::from(u32::MAX) => Ok(None),
            Some(id) if id < u64::from(vocab_size) => Ok(Some(id as u32)),
            Some(id) => Err(Error::damaged(format!("{key} is {id}; the tokens are 0 to {}", vocab_size - 1)).advise(AGAIN)),
        }
    };
    let mut notes = Vec::new();
    let mut eos = Vec::new();
    for token in [id("eos")?, id("eot")?, id("eom")?].into_iter().flatten() {
        if !eos.contains(&token) {
            eos.push(token);
        }
    }
    ends_by_name(&pieces, &types, &mut eos, &mut notes);
    if container.bool("tokenizer.ggml.add_eos_token")? == Some(true) {
        notes.push(
            "the file wants an end-of-text token behind every text (add_eos_token); prompts are continued, so none is added".to_owned(),
        );
    }
    let chat_template = container.text("tokenizer.chat_template")?.map(str::to_owned);
    Ok(Vocabulary { pieces, types, bos: id("bos")?, eos, unk: id("unknown")?, pad: id("padding")?, chat_template, notes })
}

/// Control tokens that end a turn in every model that has them, whether the file names them as ends or not: llama.cpp stops at them too.
fn ends_by_name(pieces: &[&[u8]], types: &[TokenType], eos: &mut Vec<u32>, notes: &mut Vec<String>) {
    const ENDS: [&[u8]; 7] =
        [b"<|eot_id|>", b"<|eom_id|>", b"<|im_end|>", b"<|end|>", b"<end_of_turn>", b"<|endoftext|>", b"<|end_of_text|>"];
    for ((token, piece), kind) in (0..).zip(pieces).zip(types) {
        if *kind == TokenType::Control && ENDS.contains(piece) && !eos.contains(&token) && eos.len() < 8 {
            eos.push(token);
            notes.push(format!("token {token}, {}, ends a text too", String::from_utf8_lossy(piece)));
        }
    }
}

fn types(container: &Container<'_>, count: usize) -> Result<Vec<TokenType>> {
    const KEY: &str = "tokenizer.ggml.token_type";
    let Some(list) = container.list(KEY)? else { return Ok(vec![TokenType::Normal; count]) };
    let mut types = Vec::new();
    for (token, value) in (0u32..).zip(list.values()) {
        types.push(match value {
            Value::Signed(1) | Value::Unsigned(1) => TokenType::Normal,
            Value::Signed(2) | Value::Unsigned(2) => TokenType::Unknown,
            Value::Signed(3) | Value::Unsigned(3) => TokenType::Control,
            Value::Signed(4) | Value::Unsigned(4) => TokenType::UserDefined,
            Value::Signed(5) | Value::Unsigned(5) => TokenType::Unused,
            Value::Signed(6) | Value::Unsigned(6) => TokenType::Byte,
            other => {
                let what = format!("{KEY} of token {token} is {}; the types are 1 to 6", other.describe());
                return Err(Error::damaged(what).advise(AGAIN));
            }
        });
    }
    same_count(KEY, types.len(), count)?;
    Ok(types)
}

/// An array of texts, as bytes.
fn texts<'a>(container: &Container<'a>, key: &str) -> Result<Option<Vec<&'a [u8]>>> {
    let Some(list) = container.list(key)? else { return Ok(None) };
    if !list.is_text() {
        return Err(Error::damaged(format!("{key} is not an array of texts")).advise(AGAIN));
    }
    let texts = list.values().filter_map(|value| if let Value::Text(text) = value { Some(text) } else { None });
    Ok(Some(texts.collect()))
}

pub(super) fn same_count(key: &str, found: usize, expected: usize) -> Result<()> {
    if found == expected {
        return Ok(());
    }
    Err(Error::mismatch(format!("{key} has {found} entries, but there are {expected} tokens")).advise(AGAIN))
}

pub(super) fn missing(key: &str) -> Error {
    Error::damaged(format!("has no {key}, which its tokenizer needs")).advise(AGAIN)
}

impl Vocabulary<'_> {
    /// The text of a token.
    fn text(&self, token: u32) -> Result<&str> {
        let piece = self.pieces.get(token as usize).copied().unwrap_or_default();
        std::str::from_utf8(piece).map_err(|_| Error::damaged(format!("token {token} of tokenizer.ggml.tokens is not UTF-8")).advise(AGAIN))
    }

    /// Whether a token that the users defined is one that chats are made of: the template writes it, or it has the form that such tokens have.
    fn in_chats(&self, piece: &[u8]) -> bool {
        let Ok(text) = std::str::from_utf8(piece) else { return false };
        let written = self.chat_template.as_ref().is_some_and(|template| !text.is_empty() && template.contains(text));
        written || text.starts_with("<|") && text.ends_with("|>")
    }

    /// Tokens that text never becomes: those for control, and those of the users' that the chat template writes.
    pub(super) fn special(&self) -> Vec<u32> {
        let tokens = (0..).zip(&self.pieces).zip(&self.types);
        let special = tokens.filter(|((_, piece), kind)| match kind {
            TokenType::Control => true,
            TokenType::UserDefined => self.in_chats(piece),
            _ => false,
        });
        special.map(|((token, _), _)| token).collect()
    }
}

fn byte_level(container: &Container<'_>, vocabulary: Vocabulary<'_>) -> Result<TokenizerSource> {
    let mut notes = vocabulary.notes.clone();
    let (pre_tokenizer, ignore_merges, adds_bos) = match container.text("tokenizer.ggml.pre")? {
        Some("gpt-2" | "gpt2") => (PreTokenizer::Gpt2, false, false),
        Some("default") => {
            notes.push("the pre-tokenizer is \"default\": text is split as GPT-2 splits it".to_owned());
            (PreTokenizer::Gpt2, false, false)
        }
        None => {
            notes.push("the file names no pre-tokenizer (tokenizer.ggml.pre): text is split as GPT-2 splits it; convert the model again if it is not meant so".to_owned());
            (PreTokenizer::Gpt2, false, false)
        }
        Some("smollm") => (PreTokenizer::Smollm, false, false),
        Some("llama-bpe" | "llama3" | "llama-v3") => (PreTokenizer::LlamaBpe, true, true),
        Some("qwen2" | "deepseek-r1-qwen") => (PreTokenizer::Qwen2, false, false),
        Some(other) => {
            let what = format!("tokenizer.ggml.pre is {other:?}, a pre-tokenizer that this version does not know");
            return Err(Error::not_a_model(what).advise("default, gpt-2, smollm, llama-bpe and qwen2 are known"));
        }
    };
    let special = vocabulary.special();
    let mut pieces = Vec::with_capacity(vocabulary.pieces.len());
    for (token, kind) in (0..).zip(&vocabulary.types) {
        let text = vocabulary.text(token)?;
        // Users' own tokens are written as they are, not byte by byte.
        let plain = *kind == TokenType::UserDefined && special.binary_search(&token).is_err();
        pieces.push(if plain { text.bytes().map(character_of).collect() } else { text.to_owned() });
    }
    let unread = texts(container, "tokenizer.ggml.merges")?.ok_or_else(|| missing("tokenizer.ggml.merges"))?;
    let mut merges = Vec::with_capacity(unread.len());
    for (rank, pair) in unread.into_iter().enumerate() {
        // The first character may be a space where somebody else's converter left it so.
        let sides = std::str::from_utf8(pair).ok().and_then(|pair| {
            let second = pair.chars().next()?.len_utf8();
            let at = second + pair.get(second..)?.find(' ')?;
            Some((pair.get(..at)?.to_owned(), pair.get(at + 1..)?.to_owned()))
        });
        let Some(sides) = sides else {
            let what = format!(
                "merge {rank} of tokenizer.ggml.merges is {:?}, not two pieces with a space between",
                String::from_utf8_lossy(pair)
            );
            return Err(Error::damaged(what).advise(AGAIN));
        };
        merges.push(sides);
    }
    let add_bos = container.bool("tokenizer.ggml.add_bos_token")?.unwrap_or(adds_bos && vocabulary.bos.is_some());
    let mut source = ByteLevelBpe {
        pieces,
        merges,
        special,
        pre_tokenizer,
        ignore_merges,
        // The file does not say it; the tokenizers of this pre-tokenizer compose text first.
        normalizer: if pre_tokenizer == PreTokenizer::Qwen2 { Normalizer::Nfc } else { Normalizer::None },
        add_bos,
        bos: vocabulary.bos,
        eos: vocabulary.eos,
        pad: vocabulary.pad,
        unk: vocabulary.unk,
        chat_template: vocabulary.chat_template,
        file_name: String::new(),
    }
    .build()?;
    source.notes.splice(..0, notes);
    Ok(source)
}

/// Keys that are read above or by the kinds, and ids of tokens that have a meaning only elsewhere (infilling, classification).
const KNOWN: [&str; 13] = [
    "model",
    "pre",
    "tokens",
    "token_type",
    "scores",
    "merges",
    "added_tokens",
    "add_bos_token",
    "add_eos_token",
    "add_sep_token",
    "add_space_prefix",
    "token_type_count",
    "mask_token_id",
];

/// Refuses a key of the tokenizer that this version does not know: it may say how text becomes tokens.
fn refuse_other_keys(container: &Container<'_>) -> Result<()> {
    for (key, value) in container.keys() {
        let Some(name) = key.strip_prefix("tokenizer.ggml.") else { continue };
        let off = match value {
            Value::Bool(flag) => !flag,
            Value::Array(list) => list.len == 0,
            _ => false,
        };
        if !(KNOWN.contains(&name) || name.ends_with("_token_id") || off) {
            let what = format!("{key} is {}, which this version does not know: it may change how text becomes tokens", value.describe());
            return Err(Error::not_a_model(what));
        }
    }
    Ok(())
}

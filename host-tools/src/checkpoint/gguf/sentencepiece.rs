//! GGUF's `llama` tokenizer: pieces with scores, as a sentencepiece model has them.

use super::container::{AGAIN, Container};
use super::tokenizer::{TokenType, Vocabulary, missing, same_count};
use super::value::Value;
use crate::checkpoint::TokenizerSource;
use crate::error::{Error, Result};
use dmexp_format::tokenizer::{NO_TOKEN, PIECE_LEN_LIMIT, TokenizerFacts, TokenizerKind};

/// Stands for a space in sentencepiece's own pieces.
const SPACE: &str = "\u{2581}";
/// A score at which nothing ever merges into a piece.
const NEVER: f32 = -1e10;

/// Builds the tokenizer.
pub(super) fn build(container: &Container<'_>, vocabulary: Vocabulary<'_>) -> Result<TokenizerSource> {
    let count = vocabulary.pieces.len();
    let mut scores = scores(container, count)?;
    let special = vocabulary.special();
    let mut pieces = Vec::with_capacity(count);
    for (((token, piece), kind), score) in (0u32..).zip(&vocabulary.pieces).zip(&vocabulary.types).zip(&mut scores) {
        let piece = match kind {
            TokenType::Normal | TokenType::UserDefined if !special.contains(&token) => spaced(piece),
            _ => piece.to_vec(),
        };
        if piece.is_empty() || piece.len() > PIECE_LEN_LIMIT as usize {
            let what = format!("token {token} of tokenizer.ggml.tokens has {} bytes; 1 to {PIECE_LEN_LIMIT} are carried", piece.len());
            return Err(Error::damaged(what).advise(AGAIN));
        }
        // llama.cpp takes users' own tokens out of a text before anything merges, which the runtime does not: they stay text, and no merge makes them of it.
        if matches!(kind, TokenType::UserDefined | TokenType::Unused) {
            *score = NEVER;
        }
        pieces.push(piece);
    }
    let dummy_prefix = container.bool("tokenizer.ggml.add_space_prefix")?.unwrap_or(true);
    let add_bos = container.bool("tokenizer.ggml.add_bos_token")?.unwrap_or(vocabulary.bos.is_some());
    let mut notes = vocabulary.notes.clone();
    let left =
        vocabulary.types.iter().zip(0u32..).filter(|(kind, token)| **kind == TokenType::UserDefined && !special.contains(token)).count();
    if left > 0 {
        notes.push(format!("{left} of the tokens are user-defined: text that spells one becomes other tokens"));
    }
    let mut eos = [NO_TOKEN; 8];
    for (place, token) in eos.iter_mut().zip(&vocabulary.eos) {
        *place = *token;
    }
    let unknown =
        vocabulary.unk.or_else(|| vocabulary.types.iter().zip(0..).find(|(kind, _)| **kind == TokenType::Unknown).map(|(_, token)| token));
    let facts = TokenizerFacts {
        kind: TokenizerKind::SentencepieceBpe,
        n_pieces: count as u32,
        add_bos,
        dummy_prefix,
        bos: vocabulary.bos.unwrap_or(NO_TOKEN),
        pad: vocabulary.pad.unwrap_or(NO_TOKEN),
        unk: unknown.unwrap_or(NO_TOKEN),
        byte_base: byte_base(&vocabulary)?,
        max_piece_len: pieces.iter().map(Vec::len).max().unwrap_or(0) as u32,
        n_special: special.len() as u32,
        eos,
        ..TokenizerFacts::NONE
    };
    facts.check(count as u32).map_err(|error| Error::damaged(error.to_string()).advise(AGAIN))?;
    let chat_template = vocabulary.chat_template;
    Ok(TokenizerSource { pieces, scores, special, chat_template, facts, notes, ..TokenizerSource::NONE })
}

fn scores(container: &Container<'_>, count: usize) -> Result<Vec<f32>> {
    const KEY: &str = "tokenizer.ggml.scores";
    let list = container.list(KEY)?.ok_or_else(|| missing(KEY))?;
    let mut scores = Vec::new();
    for (token, value) in (0u32..).zip(list.values()) {
        match value {
            Value::Float(score) if score.is_finite() => scores.push(score as f32),
            other => {
                let what = format!("{KEY} of token {token} is {}, which is no score", other.describe());
                return Err(Error::damaged(what).advise(AGAIN));
            }
        }
    }
    same_count(KEY, scores.len(), count)?;
    Ok(scores)
}

/// A piece with spaces where sentencepiece writes its stand-in.
fn spaced(piece: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(piece.len());
    let mut rest = piece;
    while let Some((first, tail)) = rest.split_first() {
        if let Some(behind) = rest.strip_prefix(SPACE.as_bytes()) {
            out.push(b' ');
            rest = behind;
        } else {
            out.push(*first);
            rest = tail;
        }
    }
    out
}

/// The token of byte 0, where the 256 bytes have tokens one after the other.
fn byte_base(vocabulary: &Vocabulary<'_>) -> Result<u32> {
    let bytes: Vec<(u32, &[u8])> = (0u32..)
        .zip(&vocabulary.pieces)
        .zip(&vocabulary.types)
        .filter(|(_, kind)| **kind == TokenType::Byte)
        .map(|((token, piece), _)| (token, *piece))
        .collect();
    let Some((base, _)) = bytes.first() else { return Ok(NO_TOKEN) };
    if bytes.len() != 256 {
        return Err(Error::damaged(format!("{} tokens stand for bytes; 256 or none are read", bytes.len())).advise(AGAIN));
    }
    for (byte, (token, piece)) in (0u32..).zip(&bytes) {
        if *token != base + byte || *piece != format!("<0x{byte:02X}>").as_bytes() {
            let what = format!("token {token} is {:?} where <0x{byte:02X}> was expected", String::from_utf8_lossy(piece));
            return Err(Error::damaged(what).advise(AGAIN));
        }
    }
    Ok(*base)
}

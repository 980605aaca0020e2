//! Sentencepiece-style BPE of a tokenizer.json: pieces with scores that make our merges those of its list.
//!
//! A tokenizer.json merges pairs by rank; ours merges any pair whose text is a piece, by that piece's score. The two agree where (1) every way to cut a piece in two pieces is in the list, so that
//! whatever ours can merge the list can; (2) the ranks of all the ways to make one piece stand together, so that a score a piece orders them; which holds for lists made of a sentencepiece model.
//! Both are checked. That ranks order the ways to make one piece and a score does not makes no difference, for only one of them ever comes up: where the two halves of a piece stand side by side, nothing was
//! merged across their borders yet, so what was merged within them is what is merged of that piece's text alone, in the same order, and that passes through one state of two symbols.

use super::added::{Sort, Token, Tokens, shown_text};
use super::stages::SPACE;
use crate::error::{Error, Result};
use dmexp_format::tokenizer::NO_TOKEN;
use std::collections::HashSet;

/// The bytes of a token: spaces for their stand-ins.
pub(super) fn piece(token: &Token<'_>) -> Result<Vec<u8>> {
    let text = token.text;
    if token.sort != Sort::Piece {
        return Ok(text.as_bytes().to_vec());
    }
    if text.contains(' ') {
        let what = format!("the piece {} has a space where sentencepiece has {SPACE:?}", shown_text(text));
        return Err(Error::not_a_model(what));
    }
    Ok(text.replace(SPACE, " ").into_bytes())
}

/// Where the byte tokens are: all 256 one after the other, or none.
pub(super) fn byte_base(tokens: &Tokens<'_>) -> Result<u32> {
    let Some(base) = tokens.ids.get("<0x00>").copied() else { return Ok(NO_TOKEN) };
    for byte in 0..=u8::MAX {
        let (name, wanted) = (format!("<0x{byte:02X}>"), base.saturating_add(u32::from(byte)));
        match tokens.ids.get(name.as_str()) {
            Some(id) if *id == wanted => {}
            Some(id) => {
                let what = format!("the byte tokens do not stand one after the other: {name} is token {id}, not {wanted}");
                return Err(Error::not_a_model(what));
            }
            None => return Err(Error::damaged(format!("has byte tokens, but none for {name}"))),
        }
    }
    Ok(base)
}

/// Left, right and result of each merge as tokens.
fn ids(tokens: &Tokens<'_>, merges: &[(&str, &str)]) -> Result<Vec<(u32, u32, u32)>> {
    let mut seen = HashSet::with_capacity(merges.len());
    let mut ids = Vec::with_capacity(merges.len());
    for (rank, (left, right)) in merges.iter().enumerate() {
        let name = || format!("merge {rank} ({left:?} with {right:?})");
        let id = |text: &str| {
            let unknown = || Error::damaged(format!("{}: {text:?} is not a piece", name()));
            tokens.ids.get(text).copied().ok_or_else(unknown)
        };
        let merge = (id(left)?, id(right)?, id(&format!("{left}{right}"))?);
        if !seen.insert((merge.0, merge.1)) {
            return Err(Error::damaged(format!("{} stands twice", name())));
        }
        ids.push(merge);
    }
    Ok(ids)
}

/// The score of each of `count` tokens: the later a piece can be made, the lower.
pub(super) fn scores(tokens: &Tokens<'_>, merges: &[(&str, &str)], count: u32, byte_base: u32) -> Result<Vec<f32>> {
    let merges = ids(tokens, merges)?;
    let lowest = -(merges.len() as f32) - 1.0;
    let mut scores = vec![lowest; count as usize];
    let mut made: Option<u32> = None;
    let mut done = HashSet::new();
    let mut group = 0u32;
    let name = |id: u32| tokens.by_id.get(&id).map_or_else(String::new, |token| shown_text(token.text));
    for (left, right, result) in &merges {
        if made != Some(*result) {
            if !done.insert(*result) {
                let what = format!(
                    "the merge of {} and {} stands apart from other merges that make {}: no score a piece gives their order",
                    name(*left),
                    name(*right),
                    name(*result)
                );
                return Err(Error::not_a_model(what).advise(ADVICE));
            }
            made = Some(*result);
            group += 1;
        }
        if let Some(score) = scores.get_mut(*result as usize) {
            *score = -(group as f32);
        }
    }
    let listed: HashSet<(u32, u32)> = merges.iter().map(|(left, right, _)| (*left, *right)).collect();
    let is_byte = |id: u32| byte_base != NO_TOKEN && (byte_base..byte_base.saturating_add(256)).contains(&id);
    let ordinary = |text: &str| {
        let id = *tokens.ids.get(text)?;
        (tokens.by_id.get(&id)?.sort != Sort::Special && !is_byte(id)).then_some(id)
    };
    for (id, token) in &tokens.by_id {
        if token.sort == Sort::Special || is_byte(*id) {
            continue;
        }
        for (cut, _) in token.text.char_indices().skip(1) {
            let (head, tail) = token.text.split_at(cut);
            if let (Some(left), Some(right)) = (ordinary(head), ordinary(tail))
                && !listed.contains(&(left, right))
            {
                let what = format!(
                    "{} and {} are pieces and so is {}, but no merge makes one of the other",
                    shown_text(head),
                    shown_text(tail),
                    shown_text(token.text)
                );
                return Err(Error::not_a_model(what).advise(ADVICE));
            }
        }
    }
    Ok(scores)
}

const ADVICE: &str = "its merges are not those of a sentencepiece model; name the model's tokenizer.model instead, if it has one";

//! Byte-level BPE: text is split as the model's pre-tokenizer says, then the bytes of each part are merged.
//!
//! For UTF-8 the tokens are those of Hugging Face's `tokenizers`. What is not UTF-8 is split as if each of its bytes were a character that is no letter, number or space, and encoded as it is:
//! decoding gives the same bytes again. Text is not normalised here: see
//! [`Tokenizer::encode`].

mod classes;
mod split;
#[expect(clippy::unreadable_literal, reason = "tables that a test writes")]
mod tables;

#[cfg(test)]
mod tests;

use super::Tokenizer;
use super::bpe::{self, WORDS_PER_SYMBOL};
use crate::format::Error;
use split::Parts;

/// Encodes `text` into the beginning of `scratch`, of which `head` words are taken already, and returns the number of tokens with them.
pub(super) fn encode(tokenizer: &Tokenizer<'_>, text: &[u8], head: usize, scratch: &mut [u32]) -> Result<usize, Error> {
    let needed = text.len().saturating_mul(WORDS_PER_SYMBOL).saturating_add(head);
    // Symbols are numbered in 32 bits.
    if needed > scratch.len() || text.len() >= u32::MAX as usize {
        return Err(Error::ScratchTooSmall { needed: needed as u64, found: scratch.len() as u64 });
    }
    let mut count = head;
    // A part has at most as many tokens as bytes, so what is left of the scratch is always enough for the rest of the text.
    for (start, part) in Parts::new(tokenizer.facts().pre_tokenizer, text) {
        let Some(free) = scratch.get_mut(count..) else { break };
        let whole = if tokenizer.facts().ignore_merges { tokenizer.vocabulary.find(part, b"") } else { None };
        count += match (whole, free) {
            (Some(token), [first, ..]) => {
                *first = token;
                1
            }
            (_, free) => bpe::encode_part(tokenizer, part, part.len(), free).map_err(|error| within(error, start))?,
        };
    }
    Ok(count)
}

/// The error of a part that begins at byte `start` of the text.
fn within(error: Error, start: usize) -> Error {
    match error {
        Error::NoToken { offset, byte } => Error::NoToken { offset: offset.saturating_add(start as u64), byte },
        other => other,
    }
}

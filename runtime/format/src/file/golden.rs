//! Golden vectors of a format-2 index: what the logits must be for stated tokens, so that a device can test itself. Read through [`super::ModelFile::golden`].

use crate::bytes::{u32_at, word_count};
use crate::tokenizer::NO_TOKEN;
use crate::{Error, KvDType, Part, Rule};

const HEAD: usize = 12;
const POSITION: usize = 28;

/// One golden vector: tokens to feed, and what must come out at some positions. The context is as long as the tokens.
#[derive(Clone, Copy, Debug)]
pub struct Golden<'a> {
    kv: KvDType,
    tokens: &'a [u8],
    positions: &'a [u8],
}

/// What the logits at one position must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GoldenPosition {
    /// The position, from 0.
    pub position: u32,
    /// The CRC-32 of the logits: `vocab_size` f32, little-endian.
    pub crc32: u32,
    /// The five largest logits' tokens, best first, ties to the lowest id; `NO_TOKEN` past the end of a vocabulary that is smaller.
    pub top: [u32; 5],
}

/// The golden vectors of a file, in order. Empty where the file has none.
#[derive(Clone, Debug)]
pub struct Goldens<'a> {
    rest: &'a [u8],
}

impl<'a> Golden<'a> {
    /// How keys and values are kept while the tokens are fed.
    pub const fn kv(&self) -> KvDType {
        self.kv
    }

    /// How many tokens, and the context.
    pub const fn len(&self) -> u32 {
        word_count(self.tokens)
    }

    /// Whether there are no tokens; `Index::parse` refuses such a vector.
    pub const fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// The tokens to feed, each below `vocab_size` (checked by `Index::parse`).
    pub fn tokens(&self) -> impl ExactSizeIterator<Item = u32> + Clone + use<'a> {
        self.tokens.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word))
    }

    /// The positions at which the logits are known, rising, each below `len` (checked by `Index::parse`).
    pub fn positions(&self) -> impl ExactSizeIterator<Item = GoldenPosition> + Clone + use<'a> {
        self.positions.as_chunks::<POSITION>().0.iter().map(position)
    }

    /// The first vector of `bytes` and what follows it; `None` if it does not fit or its key/value type is not known.
    const fn split(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let Some(kv) = KvDType::from_code(u32_at(bytes, 0)) else {
            return None;
        };
        let (tokens_len, positions_len) = (u32_at(bytes, 4) as u64 * 4, u32_at(bytes, 8) as u64 * POSITION as u64);
        if HEAD as u64 + tokens_len + positions_len > bytes.len() as u64 {
            return None;
        }
        let Some((_, rest)) = bytes.split_at_checked(HEAD) else {
            return None;
        };
        let Some((tokens, rest)) = rest.split_at_checked(tokens_len as usize) else {
            return None;
        };
        let Some((positions, rest)) = rest.split_at_checked(positions_len as usize) else {
            return None;
        };
        Some((Self { kv, tokens, positions }, rest))
    }
}

impl<'a> Goldens<'a> {
    pub(super) const fn new(checked: &'a [u8]) -> Self {
        Self { rest: checked }
    }

    /// The vectors that another instance had as [`Self::as_bytes`].
    #[doc(hidden)]
    pub const fn from_checked(bytes: &'a [u8]) -> Self {
        Self::new(bytes)
    }

    /// Those that are left, as they lie in the file.
    #[doc(hidden)]
    pub const fn as_bytes(&self) -> &'a [u8] {
        self.rest
    }
}

impl<'a> Iterator for Goldens<'a> {
    type Item = Golden<'a>;

    fn next(&mut self) -> Option<Golden<'a>> {
        let (golden, rest) = Golden::split(self.rest)?;
        self.rest = rest;
        Some(golden)
    }
}

const fn position(record: &[u8; POSITION]) -> GoldenPosition {
    GoldenPosition {
        position: u32_at(record, 0),
        crc32: u32_at(record, 4),
        top: [u32_at(record, 8), u32_at(record, 12), u32_at(record, 16), u32_at(record, 20), u32_at(record, 24)],
    }
}

/// What the golden vectors of a model are held to.
pub(crate) struct Bounds {
    pub(crate) vocab_size: u32,
    pub(crate) max_seq_len: u32,
    /// The last type, by its code, that the model keeps keys and values in.
    pub(crate) most_kv: KvDType,
}

/// Checks the whole part; `start` is where it lies within the index, for errors.
///
/// # Errors
/// [`Error::Layout`] of [`Part::Golden`].
#[inline(never)]
pub(super) const fn check(bytes: &[u8], start: u64, bounds: &Bounds) -> Result<(), Error> {
    let mut rest = bytes;
    while !rest.is_empty() {
        let at = start + (bytes.len() - rest.len()) as u64;
        let Some((golden, tail)) = Golden::split(rest) else {
            if KvDType::from_code(u32_at(rest, 0)).is_none() {
                return Err(wrong(Rule::Unknown, at, u32_at(rest, 0), 1));
            }
            return Err(wrong(Rule::Length, at, rest.len() as u32, u32_at(rest, 4)));
        };
        if golden.kv as u32 > bounds.most_kv as u32 {
            return Err(wrong(Rule::TooLarge, at, golden.kv as u32, bounds.most_kv as u32));
        }
        if golden.is_empty() || golden.len() > bounds.max_seq_len {
            return Err(wrong(Rule::Range, at + 4, golden.len(), bounds.max_seq_len));
        }
        if golden.positions.is_empty() {
            return Err(wrong(Rule::NotZero, at + 8, 0, 1));
        }
        if let Err(error) = check_words(&golden, at, bounds.vocab_size) {
            return Err(error);
        }
        rest = tail;
    }
    Ok(())
}

#[inline(never)]
const fn check_words(golden: &Golden<'_>, at: u64, vocab_size: u32) -> Result<(), Error> {
    let mut rest = golden.tokens.as_chunks::<4>().0;
    while let [word, tail @ ..] = rest {
        let token = u32::from_le_bytes(*word);
        if token >= vocab_size {
            return Err(wrong(Rule::TooLarge, at, token, vocab_size));
        }
        rest = tail;
    }
    let mut rest = golden.positions.as_chunks::<POSITION>().0;
    let mut next = 0;
    while let [record, tail @ ..] = rest {
        let found = position(record);
        if found.position < next {
            return Err(wrong(Rule::Order, at, found.position, next));
        }
        if found.position >= golden.len() {
            return Err(wrong(Rule::TooLarge, at, found.position, golden.len()));
        }
        next = found.position + 1;
        let mut best: &[u32] = &found.top;
        let mut place = 0;
        while let [token, others @ ..] = best {
            if place < vocab_size && *token >= vocab_size || place >= vocab_size && *token != NO_TOKEN {
                return Err(wrong(Rule::TooLarge, at, *token, vocab_size));
            }
            place += 1;
            best = others;
        }
        rest = tail;
    }
    Ok(())
}

#[cold]
#[inline(never)]
const fn wrong(rule: Rule, offset: u64, found: u32, allowed: u32) -> Error {
    Error::Layout { part: Part::Golden, rule, offset, found: found as u64, allowed: allowed as u64 }
}

//! Merging in the caller's scratch, for sentencepiece-style BPE and for the parts of byte-level BPE: the symbols as a linked list, the pairs that can merge in a heap.
//!
//! Every symbol that can merge with the one after it has one entry in the heap, at a place that the symbol knows; so an entry is replaced or taken out when a
//! neighbour changes, and the heap never holds more than one entry a symbol.

use super::Tokenizer;
use crate::format::{Error, Rule, TokenizerKey};

/// No symbol, no token, no place.
const NONE: u32 = u32::MAX;

/// Words of scratch a symbol: a node and a place in the heap.
pub(super) const WORDS_PER_SYMBOL: usize = NODE_WORDS + ENTRY_WORDS;

/// llama2.c starts its search for the best score here: pieces with this score or less never come out of a merge.
const SCORE_FLOOR: f32 = -1e10;

const NODE_WORDS: usize = 5;
const ENTRY_WORDS: usize = 2;

/// A symbol: its token, its neighbours, the token that it and the next would merge into, and where in the heap that pair stands.
type Node = [u32; NODE_WORDS];
const TOKEN: usize = 0;
const PREVIOUS: usize = 1;
const NEXT: usize = 2;
const MERGED: usize = 3;
const PLACE: usize = 4;

/// A pair in the heap: rank of its score, then the number of its left symbol, turned round so that the leftmost is the greatest.
type Entry = [u32; ENTRY_WORDS];

/// Puts the token that begins a text first, if there is one, and returns how many words it takes.
#[inline]
pub(super) fn begin(bos: Option<u32>, scratch: &mut [u32]) -> Result<usize, Error> {
    let found = scratch.len() as u64;
    match (bos, scratch) {
        (None, _) => Ok(0),
        (Some(bos), [first, ..]) => {
            *first = bos;
            Ok(1)
        }
        (Some(_), []) => Err(Error::ScratchTooSmall { needed: 1, found }),
    }
}

/// Encodes `text` into the beginning of `scratch` and returns the number of tokens.
#[inline(never)]
pub(super) fn encode(tokenizer: &Tokenizer<'_>, text: &[u8], bos: Option<u32>, scratch: &mut [u32]) -> Result<usize, Error> {
    let head = begin(bos, scratch)?;
    if text.is_empty() {
        return Ok(head);
    }
    let prefix = usize::from(tokenizer.facts().dummy_prefix);
    let symbols = text.len().saturating_add(prefix);
    let needed = symbols.saturating_mul(WORDS_PER_SYMBOL).saturating_add(head);
    let too_small = Error::ScratchTooSmall { needed: needed as u64, found: scratch.len() as u64 };
    // Symbols are numbered in 32 bits.
    if needed > scratch.len() || symbols >= NONE as usize {
        return Err(too_small);
    }
    match scratch.get_mut(head..) {
        Some(words) => encode_part(tokenizer, text, symbols, words).map(|count| head + count),
        None => Err(too_small),
    }
}

/// Encodes `text`, which has at most `symbols` symbols, into the beginning of `scratch`, which has [`WORDS_PER_SYMBOL`] words for each of them.
#[inline]
pub(super) fn encode_part(tokenizer: &Tokenizer<'_>, text: &[u8], symbols: usize, scratch: &mut [u32]) -> Result<usize, Error> {
    let found = scratch.len() as u64;
    let Some((node_words, heap_words)) = scratch.split_at_mut_checked(symbols.saturating_mul(NODE_WORDS)) else {
        return Err(Error::ScratchTooSmall { needed: symbols.saturating_mul(WORDS_PER_SYMBOL) as u64, found });
    };
    let (nodes, _) = node_words.as_chunks_mut::<NODE_WORDS>();
    let (heap, _) = heap_words.as_chunks_mut::<ENTRY_WORDS>();
    let mut merger = Merger { tokenizer, nodes, heap, pairs: 0 };
    let count = merger.split(text)?;
    merger.merge(count);
    Ok(compact(scratch))
}

/// Writes the tokens that are left one after the other. A node is always read before its words are written over: the n-th token lands no further than the beginning of the n-th node.
fn compact(scratch: &mut [u32]) -> usize {
    let mut count = 0;
    let mut symbol = 0;
    while symbol != NONE {
        let node = scratch.get(symbol as usize * NODE_WORDS..).and_then(|rest| rest.first_chunk::<NODE_WORDS>()).copied();
        let (Some(node), Some(place)) = (node, scratch.get_mut(count)) else { break };
        *place = node[TOKEN];
        count += 1;
        symbol = node[NEXT];
    }
    count
}

struct Merger<'s, 't, 'a> {
    tokenizer: &'t Tokenizer<'a>,
    nodes: &'s mut [Node],
    heap: &'s mut [Entry],
    /// Entries in the heap.
    pairs: usize,
}

impl Merger<'_, '_, '_> {
    /// The symbols of `text` before any merge, linked up: characters that have a token, bytes of those that have none. Returns how many.
    #[inline(never)]
    fn split(&mut self, text: &[u8]) -> Result<usize, Error> {
        let mut count = 0;
        if self.tokenizer.facts().dummy_prefix {
            let Some(space) = self.tokenizer.vocabulary.find(b" ", b"") else {
                return Err(Error::Tokenizer { key: TokenizerKey::DummyPrefix, rule: Rule::Missing, found: 0, allowed: 0 });
            };
            self.append(&mut count, space);
        }
        let mut rest = text;
        let bytewise = self.tokenizer.is_byte_level();
        while let Some((character, tail)) = rest.split_at_checked(if bytewise { 1 } else { character_len(rest) }) {
            let [first, ..] = character else { break };
            if let Some(token) = self.tokenizer.vocabulary.find(character, b"") {
                self.append(&mut count, token);
            } else if self.tokenizer.facts().byte_base == NONE {
                return Err(Error::NoToken { offset: (text.len() - rest.len()) as u64, byte: *first });
            } else {
                for byte in character {
                    self.append(&mut count, self.tokenizer.facts().byte_base.saturating_add(u32::from(*byte)));
                }
            }
            rest = tail;
        }
        if let Some(last) = count.checked_sub(1).and_then(|last| self.nodes.get_mut(last)) {
            last[NEXT] = NONE;
        }
        Ok(count)
    }

    fn append(&mut self, count: &mut usize, token: u32) {
        let symbol = *count as u32;
        if let Some(node) = self.nodes.get_mut(*count) {
            // The first one's neighbour, -1, is NONE.
            *node = [token, symbol.wrapping_sub(1), symbol + 1, NONE, NONE];
            *count += 1;
        }
    }

    /// Merges the first `count` symbols until no pair is a piece.
    #[inline(never)]
    fn merge(&mut self, count: usize) {
        for symbol in 0..count as u32 {
            self.renew(symbol);
        }
        while self.pairs > 0 {
            let Some(&[_, turned]) = self.heap.first() else { return };
            let left = !turned;
            let Some(&[_, previous, right, merged, _]) = self.nodes.get(left as usize) else { return };
            let Some(&[_, _, after, _, _]) = self.nodes.get(right as usize) else { return };
            self.enter(right, None);
            if let Some(node) = self.nodes.get_mut(left as usize) {
                node[TOKEN] = merged;
                node[NEXT] = after;
            }
            if let Some(node) = self.nodes.get_mut(after as usize) {
                node[PREVIOUS] = left;
            }
            self.renew(left);
            if previous != NONE {
                self.renew(previous);
            }
        }
    }

    /// Looks up what `left` and the symbol after it merge into, and enters that in the heap.
    fn renew(&mut self, left: u32) {
        let pair = self.pair(left);
        self.enter(left, pair);
    }

    /// The token that `left` and the symbol after it merge into, with the rank of its score.
    #[inline(never)]
    fn pair(&self, left: u32) -> Option<(u32, u32)> {
        let &[first, _, right, _, _] = self.nodes.get(left as usize)?;
        let &[second, ..] = self.nodes.get(right as usize)?;
        let tokenizer = self.tokenizer;
        #[cfg(feature = "bpe")]
        if tokenizer.is_byte_level() {
            // The lowest rank first: the heap gives the greatest.
            return tokenizer.vocabulary.merge(first, second).map(|(rank, merged)| (merged, !rank));
        }
        if tokenizer.vocabulary.byte_of(first).is_some() || tokenizer.vocabulary.byte_of(second).is_some() {
            return None;
        }
        let (head, tail) = (tokenizer.piece(first), tokenizer.piece(second));
        if head.len() + tail.len() > tokenizer.facts().max_piece_len as usize {
            return None;
        }
        let merged = tokenizer.vocabulary.find(head, tail)?;
        let score = tokenizer.vocabulary.score(merged);
        if score > SCORE_FLOOR { Some((merged, rank(score))) } else { None }
    }

    /// Makes `pair` what the heap holds for the symbol `left`.
    fn enter(&mut self, left: u32, pair: Option<(u32, u32)>) {
        let Some(node) = self.nodes.get_mut(left as usize) else { return };
        let place = node[PLACE] as usize;
        let old = if node[PLACE] == NONE { None } else { self.heap.get(place).copied() };
        match (old, pair) {
            (None, None) => {}
            (None, Some((merged, rank))) => {
                node[MERGED] = merged;
                let end = self.pairs;
                self.pairs += 1;
                self.rise(end, [rank, !left]);
            }
            (Some(old), Some((merged, rank))) => {
                node[MERGED] = merged;
                self.settle(place, old, [rank, !left]);
            }
            (Some(old), None) => {
                node[PLACE] = NONE;
                self.pairs = self.pairs.saturating_sub(1);
                if place < self.pairs
                    && let Some(&last) = self.heap.get(self.pairs)
                {
                    self.settle(place, old, last);
                }
            }
        }
    }

    /// Puts `entry` where `old` was, or above or below.
    fn settle(&mut self, place: usize, old: Entry, entry: Entry) {
        if entry > old {
            self.rise(place, entry);
        } else {
            self.sink(place, entry);
        }
    }

    fn rise(&mut self, mut place: usize, entry: Entry) {
        while place > 0 {
            let parent = (place - 1) / 2;
            let Some(&above) = self.heap.get(parent) else { break };
            if above >= entry {
                break;
            }
            self.put(place, above);
            place = parent;
        }
        self.put(place, entry);
    }

    fn sink(&mut self, mut place: usize, entry: Entry) {
        let held = self.pairs;
        loop {
            let child = 2 * place + 1;
            let Some((below, right)) = self.heap.get(..held).and_then(|heap| Some((*heap.get(child)?, heap.get(child + 1).copied())))
            else {
                break;
            };
            let (child, below) = match right {
                Some(right) if right > below => (child + 1, right),
                _ => (child, below),
            };
            if below <= entry {
                break;
            }
            self.put(place, below);
            place = child;
        }
        self.put(place, entry);
    }

    fn put(&mut self, place: usize, entry: Entry) {
        if let Some(slot) = self.heap.get_mut(place) {
            *slot = entry;
        }
        let [_, turned] = entry;
        if let Some(node) = self.nodes.get_mut(!turned as usize) {
            node[PLACE] = place as u32;
        }
    }
}

/// The length of the character that `text` begins with, as llama2.c splits: a byte of any kind and up to three continuation bytes.
fn character_len(text: &[u8]) -> usize {
    let continuing = text.iter().skip(1).take(3).take_while(|byte| **byte & 0xC0 == 0x80).count();
    text.len().min(1 + continuing)
}

/// A number that orders as `score` does; both zeros are one.
fn rank(score: f32) -> u32 {
    let bits = (score + 0.0).to_bits();
    if bits >> 31 == 0 { bits | 1 << 31 } else { !bits }
}

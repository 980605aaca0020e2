//! Training data by number: which stories belong to which split, and windows of their ids. Called by `train.rs`.

use std::collections::HashSet;

use crate::grammar::story;
use crate::tiny_grammar::line;
use crate::tokenizer::{Encoder, Tokenizer};

/// Id that begins every text of a BPE vocabulary.
pub const BOS: u16 = 1;
/// Byte that begins every text of the tiny model.
pub const TINY_BOS: u16 = 0;

/// What a window is for. Stories of one split never appear in another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Split {
    /// Training.
    Train,
    /// Other stories, from the same combinations of hero and subject.
    Valid,
    /// Stories about combinations that training never sees.
    HeldOut,
}

/// Windows use up to this many seeds each.
const SEEDS: u64 = 1 << 12;

impl Split {
    fn first_seed(self, window: u64) -> u64 {
        let range = match self {
            Self::Train => 0,
            Self::Valid => 1,
            Self::HeldOut => 2,
        };
        (range << 56) + window * SEEDS
    }
}

/// Where texts come from and how they become ids.
#[derive(Debug)]
pub enum Source<'a> {
    /// The story grammar, with a vocabulary.
    Stories(Encoder<'a>),
    /// The grammar of the tiny model, bytes as ids.
    Lines,
}

impl<'a> Source<'a> {
    /// Stories encoded by `tokenizer`.
    pub fn stories(tokenizer: &'a Tokenizer) -> Self {
        Self::Stories(Encoder::new(tokenizer))
    }

    /// Window number `window`: `len` ids, texts one after another, each begun by BOS, the first at the start and the last cut.
    pub fn window(&mut self, split: Split, window: u64, len: usize) -> Vec<u16> {
        let mut ids = Vec::with_capacity(len + 256);
        let mut seed = split.first_seed(window);
        while ids.len() < len {
            match self {
                Self::Stories(encoder) => {
                    let story = story(seed);
                    if story.held_out == (split == Split::HeldOut) {
                        ids.push(BOS);
                        encoder.encode(&story.text, &mut ids);
                    }
                }
                Self::Lines => {
                    let line = line(seed);
                    if held_out_line(&line) == (split == Split::HeldOut) {
                        ids.push(TINY_BOS);
                        ids.extend(line.bytes().map(u16::from));
                    }
                }
            }
            seed += 1;
        }
        ids.truncate(len);
        ids
    }
}

/// The number of different sentences in `texts`.
pub fn distinct_sentences(texts: impl Iterator<Item = String>) -> usize {
    let mut seen = HashSet::new();
    for text in texts {
        for sentence in text.split_inclusive(['.', '!', '?']) {
            seen.insert(sentence.trim_matches([' ', '"', '\n']).to_owned());
        }
    }
    seen.len()
}

/// The tiny grammar has few lines, so whole lines are kept from training: about one in eight, by their letters.
fn held_out_line(line: &str) -> bool {
    line.bytes().fold(0_u32, |sum, b| sum.wrapping_mul(31).wrapping_add(u32::from(b))).is_multiple_of(8)
}

#[cfg(test)]
mod tests {
    use super::{BOS, Source, Split};
    use crate::bpe;
    use crate::grammar::story;

    #[test]
    fn windows_begin_with_bos_repeat_and_differ() {
        let texts: Vec<String> = (0..100).map(|seed| story(seed).text).collect();
        let tokenizer = bpe::train(texts.iter().map(String::as_str), 512);
        let mut source = Source::stories(&tokenizer);
        let first = source.window(Split::Train, 3, 257);
        assert_eq!(first.len(), 257);
        assert_eq!(first[0], BOS);
        assert_eq!(first, source.window(Split::Train, 3, 257));
        assert_ne!(first, source.window(Split::Train, 4, 257));
        assert_ne!(first, source.window(Split::Valid, 3, 257));
    }

    #[test]
    fn no_line_of_training_is_held_out() {
        let mut source = Source::Lines;
        let lines = |ids: &[u16]| -> Vec<Vec<u16>> {
            let mut lines: Vec<Vec<u16>> = ids.split(|&id| id == 0).map(<[u16]>::to_vec).collect();
            lines.pop();
            lines
        };
        let train: Vec<Vec<u16>> = (0..50).flat_map(|w| lines(&source.window(Split::Train, w, 400))).collect();
        for window in 0..20 {
            for line in lines(&source.window(Split::HeldOut, window, 400)) {
                assert!(line.is_empty() || !train.contains(&line));
            }
        }
    }
}

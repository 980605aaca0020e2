//! Learns the pieces of a vocabulary from text. Called by the story recipe.

use std::collections::{BTreeMap, BTreeSet};

use crate::tokenizer::Tokenizer;

/// Control pieces and bytes, which every vocabulary has.
const FIXED: usize = 259;

/// The vocabulary of `size` ids: the most frequent pair of neighbours becomes a piece, again and again, and all single characters are pieces.
pub fn train<'a>(texts: impl Iterator<Item = &'a str>, size: usize) -> Tokenizer {
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for text in texts {
        for run in split(&format!(" {text}")) {
            *counts.entry(run.to_owned()).or_default() += 1;
        }
    }
    let mut characters: BTreeSet<String> = counts.keys().flat_map(|run| run.chars().map(String::from)).collect();
    characters.remove("\n");
    characters.insert(" ".to_owned());
    let mut runs: Vec<(Vec<String>, u64)> = counts.into_iter().map(|(run, n)| (run.chars().map(String::from).collect(), n)).collect();

    let mut learned = Vec::new();
    while FIXED + learned.len() + characters.len() < size {
        let mut pairs: BTreeMap<(&str, &str), u64> = BTreeMap::new();
        for (parts, n) in &runs {
            for pair in parts.windows(2) {
                *pairs.entry((&pair[0], &pair[1])).or_default() += n;
            }
        }
        // The first in order among equals: the result must not depend on chance.
        let Some((pair, _)) = pairs.iter().rev().max_by_key(|(_, n)| **n) else { break };
        let (left, right) = (pair.0.to_owned(), pair.1.to_owned());
        for (parts, _) in &mut runs {
            let mut at = 0;
            while at + 1 < parts.len() {
                if parts[at] == left && parts[at + 1] == right {
                    parts[at].push_str(&right);
                    parts.remove(at + 1);
                }
                at += 1;
            }
        }
        let piece = left + &right;
        if !learned.contains(&piece) {
            learned.push(piece);
        }
    }
    learned.extend(characters);
    Tokenizer::new(&learned)
}

/// Splits before every space and newline and where letters meet other signs; newlines themselves are left to the byte pieces.
fn split(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let mut letters = None;
        for (at, c) in rest.char_indices() {
            if at > 0 && (c == ' ' || c == '\n') {
                let (run, after) = rest.split_at(at);
                rest = after;
                return Some(run);
            }
            if c != ' ' {
                if letters.is_some_and(|l| l != c.is_alphabetic()) || (at > 0 && rest.starts_with('\n')) {
                    let (run, after) = rest.split_at(at);
                    rest = after;
                    return Some(run);
                }
                letters = Some(c.is_alphabetic());
            }
        }
        let run = std::mem::take(&mut rest);
        (!run.is_empty()).then_some(run)
    })
    .filter(|run| *run != "\n")
}

#[cfg(test)]
mod tests {
    use super::{split, train};

    #[test]
    fn runs_keep_the_space_before_them_and_lose_newlines() {
        let runs: Vec<&str> = split(" Oh no, \"Tom\"!\nThe end.").collect();
        assert_eq!(runs, [" Oh", " no", ",", " \"", "Tom", "\"!", "The", " end", "."]);
    }

    #[test]
    fn the_most_frequent_pair_is_learned_first() {
        let tokenizer = train(["abab abab cab"].into_iter(), 259 + 4 + 2);
        // " a"-words: "ab" occurs five times, more than any other pair.
        let ids = tokenizer.encode("ab");
        assert_eq!(tokenizer.len(), 265);
        assert!(ids.contains(&259) || ids.contains(&260), "{ids:?}");
    }
}

//! The little language that the grammars are written in, and its expansion. Called by `grammar.rs` and `tiny_grammar.rs`.
//!
//! `[a|b|c]` is one of several texts (they may nest, and may be empty), `{name}` is a word of this story, `{Name}` the same with a capital,
//! and `a~` becomes "a" or "an" by the letter that follows.

use crate::rng::Rng;

/// The words of one story: what stands for each `{name}`.
#[derive(Debug, Clone, Default)]
pub struct Words(Vec<(&'static str, String)>);

impl Words {
    /// Sets a word; a later value replaces an earlier one.
    pub fn set(&mut self, name: &'static str, value: impl Into<String>) {
        self.0.retain(|(n, _)| *n != name);
        self.0.push((name, value.into()));
    }

    /// The word for `name`.
    ///
    /// # Panics
    /// When the story has no such word: the grammar is wrong, and a test expands all of it.
    pub fn get(&self, name: &str) -> &str {
        self.0.iter().find(|(n, _)| *n == name).map_or_else(|| panic!("the grammar uses {{{name}}} where it is not set"), |(_, v)| v)
    }
}

/// `text` with its first letter made a capital.
pub fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

/// Expands `template`, drawing the alternatives from `rng`.
///
/// # Panics
/// When the template is not well formed or names an unknown word.
pub fn expand(template: &str, words: &Words, rng: &mut Rng) -> String {
    articles(&choose(template, words, rng))
}

fn choose(template: &str, words: &Words, rng: &mut Rng) -> String {
    let mut out = String::new();
    let mut rest = template;
    while let Some(at) = rest.find(['[', '{']) {
        out.push_str(&rest[..at]);
        let inside = &rest[at + 1..];
        if rest[at..].starts_with('{') {
            let end = inside.find('}').expect("a closing brace");
            let name = &inside[..end];
            let lower = name.to_lowercase();
            let word = words.get(&lower);
            out.push_str(&if lower == name { word.to_owned() } else { capital(word) });
            rest = &inside[end + 1..];
        } else {
            let (options, after) = alternatives(inside);
            out.push_str(&choose(options[rng.below(options.len())], words, rng));
            rest = after;
        }
    }
    out.push_str(rest);
    out
}

/// Splits what follows an opening bracket into its alternatives and the text after the closing one.
fn alternatives(text: &str) -> (Vec<&str>, &str) {
    let (mut options, mut depth, mut start) = (Vec::new(), 0, 0);
    for (at, c) in text.char_indices() {
        match c {
            '[' => depth += 1,
            ']' if depth > 0 => depth -= 1,
            ']' => {
                options.push(&text[start..at]);
                return (options, &text[at + 1..]);
            }
            '|' if depth == 0 => {
                options.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    panic!("no closing bracket in {text:?}");
}

fn articles(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("a~") {
        let after = &rest[at + 2..];
        let vowel = after.trim_start().starts_with(['a', 'e', 'i', 'o', 'u']);
        out.push_str(&rest[..at]);
        out.push_str(if vowel { "an" } else { "a" });
        rest = after;
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::{Words, expand};
    use crate::rng::Rng;

    #[test]
    fn alternatives_words_capitals_and_articles_expand() {
        let mut words = Words::default();
        words.set("he", "she");
        words.set("thing", "orange ball");
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..100 {
            seen.insert(expand("{He} had a~ [{thing}|[small|old] cup][|!]", &words, &mut Rng::new(seed)));
        }
        let want = [
            "She had a small cup",
            "She had a small cup!",
            "She had an old cup",
            "She had an old cup!",
            "She had an orange ball",
            "She had an orange ball!",
        ];
        assert!(seen.iter().eq(want), "{seen:?}");
    }

    #[test]
    #[should_panic(expected = "the grammar uses {place}")]
    fn an_unknown_word_stops() {
        expand("in {place}", &Words::default(), &mut Rng::new(0));
    }
}

//! Writes the few simple lines that the tiny model is trained on. Called by `corpus.rs`.

use crate::rng::Rng;
use crate::template::{Words, expand};

const NAMES: &[(&str, &str, &str)] = &[
    ("Tom", "He", "his"),
    ("Ben", "He", "his"),
    ("Sam", "He", "his"),
    ("Max", "He", "his"),
    ("Mia", "She", "her"),
    ("Ann", "She", "her"),
    ("Sue", "She", "her"),
    ("Lily", "She", "her"),
];
const LINES: &[&str] = &[
    "{n} had a {look} {toy}. {P} {did} all day.",
    "{n} had a {look} {toy}. It was in the {place}.",
    "{n} and {his} {pet} {did} in the {place}.",
    "{n} saw a {look} {pet}. {P} was {mood}.",
    "{n} was {mood}. {P} had a new {toy}.",
    "The {pet} was {mood}. {n} {did} with it.",
    "The {look} {pet} sat on the {seat}.",
    "One day, {n} went to the {place}. {P} {did}.",
    "{n} {did} in the {place}. The sun was hot.",
    "A {look} {pet} {did} in the {place}.",
    "{n} lost {his} {toy}. {P} was sad.",
    "{n} gave the {toy} to the {pet}.",
];

/// The line of `seed`: one or two short sentences.
pub fn line(seed: u64) -> String {
    let mut rng = Rng::new(seed);
    let mut words = Words::default();
    let (name, pronoun, his) = NAMES[rng.below(NAMES.len())];
    words.set("n", name);
    words.set("p", pronoun);
    words.set("his", his);
    words.set("look", rng.pick(&["red", "big", "new", "blue", "small"]));
    words.set("toy", rng.pick(&["ball", "hat", "car", "boat", "kite", "doll"]));
    words.set("pet", rng.pick(&["cat", "dog", "bird", "fox", "bear", "duck"]));
    words.set("place", rng.pick(&["park", "sun", "house", "tree", "sea"]));
    words.set("seat", rng.pick(&["mat", "bed", "tree", "box"]));
    words.set("mood", rng.pick(&["happy", "sad", "good", "very big"]));
    words.set("did", rng.pick(&["played", "ran", "sat", "sang"]));
    expand(rng.pick(LINES), &words, &mut rng)
}

#[cfg(test)]
mod tests {
    use super::line;

    #[test]
    fn lines_are_short_ascii_and_many() {
        let mut seen = std::collections::HashSet::new();
        for seed in 0..20_000 {
            let line = line(seed);
            assert!(line.is_ascii() && line.len() < 62 && line.ends_with('.'), "{line}");
            seen.insert(line);
        }
        assert!(seen.len() > 2_000, "{}", seen.len());
    }
}

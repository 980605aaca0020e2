//! Writes the few simple lines that the tiny model is trained on. Called by `corpus.rs`.

use crate::rng::Rng;
use crate::template::{Words, expand};

/// Name, pronoun, possessive.
const NAMES: &[(&str, &str, &str)] = &[
    ("Tom", "He", "his"),
    ("Ben", "He", "his"),
    ("Sam", "He", "his"),
    ("Max", "He", "his"),
    ("Tim", "He", "his"),
    ("Leo", "He", "his"),
    ("Mia", "She", "her"),
    ("Ann", "She", "her"),
    ("Sue", "She", "her"),
    ("Lily", "She", "her"),
    ("Amy", "She", "her"),
    ("Eva", "She", "her"),
];

/// Lines; `{p}` is the pronoun of `{n}`.
const LINES: &[&str] = &[
    "{n} had a~ {look} {toy}. {P} [played|ran|sat] with it all day.",
    "{n} had a~ {look} {toy}. It was in the {place}.",
    "{n} and {his} {pet} {did} in the {place}.",
    "{n} saw a~ {look} {pet}. {P} was {mood}.",
    "{n} was {mood}. {P} had a new {toy}.",
    "{n} was sad. {P} lost {his} {toy}.",
    "The {pet} was {mood}. {n} {did} with it.",
    "The {look} {pet} sat on the {seat}.",
    "One day, {n} went to the {place}. {P} {did} there.",
    "{n} {did} in the {place}. The sun was [hot|up|out].",
    "The {look} {pet} {did} in the {place}. It was {mood}.",
    "{n} lost {his} {toy}. {P} was sad. It was in the {place}.",
    "{n} gave the {toy} to {his} {pet}. It was {mood}.",
    "\"I see a {pet},\" said {n}. It was {look}.",
    "\"Look, a~ {look} {toy}!\" said {n}.",
    "The {pet} ate the {food}. {n} was {mood}.",
    "{n} ate a {food} in the {place}. It was good.",
    "{n} put the {toy} on the {seat}. {P} was {mood}.",
    "It was a hot day. {n} {did} in the {place}.",
    "Can you see the {pet}? It is in the {place}.",
];

/// The line of `seed`: one or two short sentences.
pub fn line(seed: u64) -> String {
    let mut rng = Rng::new(seed);
    let mut words = Words::default();
    let (name, pronoun, his) = NAMES[rng.below(NAMES.len())];
    words.set("n", name);
    words.set("p", pronoun);
    words.set("his", his);
    for (word, choices) in [
        ("look", &["red", "big", "new", "blue", "small", "green", "old", "little"][..]),
        ("toy", &["ball", "hat", "car", "boat", "kite", "doll", "drum", "cup"]),
        ("pet", &["cat", "dog", "bird", "fox", "bear", "duck", "hen", "pig", "frog"]),
        ("place", &["park", "house", "barn", "lake", "yard", "sea", "zoo", "shop"]),
        ("seat", &["mat", "bed", "tree", "box", "log", "wall"]),
        ("mood", &["happy", "sad", "glad", "good", "very cold", "so funny"]),
        ("did", &["played", "ran", "sat", "sang", "slept", "swam", "hid"]),
        ("food", &["cake", "fish", "nut", "pear", "plum"]),
    ] {
        words.set(word, rng.pick(choices));
    }
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
        assert!(seen.len() > 5_000, "{}", seen.len());
    }
}

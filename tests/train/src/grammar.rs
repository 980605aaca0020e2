//! Writes the stories that the story model is trained on. Called by `corpus.rs`.
//!
//! A story is a function of its seed: characters, a place and things are drawn first, then a plot is told about them.

use crate::plots::{self, Needs, OPENINGS, Plot};
use crate::rng::Rng;
use crate::template::{Words, expand};
use crate::words::{ANIMALS, BOYS, BUILDS, DISHES, FEARS, FURS, GIRLS, GROWN, LOOKS, PETS, PLACES, PLANTS, SIZES, TOYS, TRAITS};

/// A story and what of it matters for keeping training and validation apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Story {
    /// The text; paragraphs are separated by one newline.
    pub text: String,
    /// The combination of hero and subject is one of those that training never sees.
    pub held_out: bool,
}

/// Longest text in bytes: with a vocabulary of 512 it fills a context of 256.
const LONGEST: usize = 545;

/// One character.
#[derive(Debug, Clone)]
struct Character {
    /// Index among all characters.
    index: usize,
    name: &'static str,
    /// "girl", "boy" or the animal.
    kind: &'static str,
    she: bool,
}

fn character(index: usize) -> Character {
    let (girls, boys) = (GIRLS.len(), BOYS.len());
    let (name, kind, she) = if index < girls {
        (GIRLS[index], "girl", true)
    } else if index < girls + boys {
        (BOYS[index - girls], "boy", false)
    } else {
        let (kind, name, she) = ANIMALS[index - girls - boys];
        (name, kind, she)
    };
    Character { index, name, kind, she }
}

fn characters() -> usize {
    GIRLS.len() + BOYS.len() + ANIMALS.len()
}

const SHE: [&str; 4] = ["she", "her", "her", "herself"];
const HE: [&str; 4] = ["he", "him", "his", "himself"];

fn forms(she: bool) -> [&'static str; 4] {
    if she { SHE } else { HE }
}

/// Two different indices below `n`.
fn two(rng: &mut Rng, n: usize) -> (usize, usize) {
    let first = rng.below(n);
    (first, (first + 1 + rng.below(n - 1)) % n)
}

/// One index of every thirteen pairs is kept from training.
fn held_out(hero: usize, subject: usize) -> bool {
    (hero * 5 + subject * 7).is_multiple_of(13)
}

/// The story of `seed`.
pub fn story(seed: u64) -> Story {
    let mut rng = Rng::new(seed);
    let rng = &mut rng;
    let all = plots::all();
    let plot = all[rng.below(all.len())];
    let mut words = Words::default();

    let (hero, friend) = two(rng, characters());
    let (hero, friend) = (character(hero), character(friend));
    let [he, him, his, himself] = forms(hero.she);
    for (name, word) in [("h", hero.name), ("kind", hero.kind), ("he", he), ("him", him), ("his", his), ("himself", himself)] {
        words.set(name, word);
    }
    let [fhe, fhim, fhis, _] = forms(friend.she);
    for (name, word) in [("f", friend.name), ("fhe", fhe), ("fhim", fhim), ("fhis", fhis)] {
        words.set(name, word);
    }
    let animal = friend.kind != "girl" && friend.kind != "boy";
    words.set("ff", if animal { format!("{} the {}", friend.name, friend.kind) } else { friend.name.to_owned() });
    let (grown, grown_she) = GROWN[rng.below(GROWN.len())];
    words.set("g", grown);
    words.set("g2", format!("{his} {grown}"));
    words.set("ghe", forms(grown_she)[0]);
    let (first, second) = two(rng, TRAITS.len());
    words.set("trait", TRAITS[first]);
    words.set("trait2", TRAITS[second]);

    let (here, there) = two(rng, PLACES.len());
    let (place, to, at, spots) = PLACES[here];
    for (name, word) in [("place", place), ("to", to), ("at", at), ("place2", PLACES[there].0)] {
        words.set(name, word);
    }
    let first = rng.below(spots.len());
    for (i, name) in ["s1", "s2", "s3"].into_iter().enumerate() {
        words.set(name, spots[(first + i * 2) % spots.len()]);
    }

    let (toy, look, pet) = (toy(rng, plot.needs), rng.below(LOOKS.len()), rng.below(PETS.len()));
    words.set("toy", TOYS[toy].0);
    words.set("look", LOOKS[look]);
    let size = if rng.below(4) < 3 { format!("{} ", rng.pick(SIZES)) } else { String::new() };
    words.set("thing", format!("{size}{} {}", LOOKS[look], TOYS[toy].0));
    words.set("pet", PETS[pet].0);
    words.set("fur", rng.pick(FURS));
    words.set("sound", PETS[pet].1);
    let dish = rng.below(DISHES.len());
    words.set("dish", DISHES[dish].0);
    words.set("missing", DISHES[dish].1);
    let plant = rng.below(PLANTS.len());
    words.set("plant", PLANTS[plant].0);
    words.set("grown", PLANTS[plant].1);
    let build = rng.below(BUILDS.len());
    words.set("build", BUILDS[build].0);
    words.set("material", BUILDS[build].1);
    words.set("crash", BUILDS[build].2);
    let fear = rng.below(FEARS.len());
    words.set("fear", FEARS[fear].0);
    words.set("aid", FEARS[fear].1);
    words.set("calm", FEARS[fear].2);
    words.set(
        "day",
        rng.pick(&[
            "day",
            "sunny day",
            "morning",
            "fine day",
            "sunny morning",
            "afternoon",
            "Sunday",
            "warm day",
            "Monday",
            "windy day",
            "Friday",
            "quiet morning",
        ]),
    );
    words.set("daytime", rng.pick(&["day", "morning", "afternoon"]));
    words.set("night", rng.pick(&["night", "dark night", "cold night", "quiet night"]));

    let subject = match plot.name {
        "cook" => dish,
        "seed" => plant,
        "build" => build,
        "afraid" => {
            words.set("to", FEARS[fear].3);
            fear
        }
        _ if plot.needs == Needs::Nothing => pet,
        _ => toy,
    };
    // Long names and long turns may never fit together; the shortest of some tries does then.
    let mut text = tell(plot, &words, rng);
    for _ in 0..8 {
        if text.len() <= LONGEST {
            break;
        }
        let again = tell(plot, &words, rng);
        if again.len() < text.len() {
            text = again;
        }
    }
    Story { text, held_out: held_out(hero.index, subject) }
}

fn tell(plot: &Plot, words: &Words, rng: &mut Rng) -> String {
    let mut text = expand(rng.pick(OPENINGS), words, rng);
    for part in plot.parts {
        let part = rng.pick(part);
        let (gap, part) = part.strip_prefix('/').map_or((' ', part), |part| ('\n', part));
        text.push(gap);
        text.push_str(&expand(part, words, rng));
    }
    text
}

fn toy(rng: &mut Rng, needs: Needs) -> usize {
    loop {
        let toy = rng.below(TOYS.len());
        if needs != Needs::Flyer || TOYS[toy].1 {
            return toy;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{character, characters, held_out, story};
    use crate::corpus::distinct_sentences;
    use crate::words::{PETS, TOYS};
    use std::collections::HashSet;

    #[test]
    fn a_seed_is_a_story() {
        assert_eq!(story(5), story(5));
        assert_ne!(story(5), story(6));
    }

    #[test]
    fn texts_are_clean() {
        for seed in 0..5_000 {
            let text = story(seed).text;
            assert!(text.is_ascii());
            for bad in ["  ", " \n", "\n ", "{", "}", "[", "]", "|", "~", "/", " .", " ,", "a a", "..", "the the"] {
                let bad_word = format!(" {bad} ");
                let found = if bad.contains(char::is_alphabetic) { text.contains(&bad_word) } else { text.contains(bad) };
                assert!(!found, "{bad:?} in {text}");
            }
            assert_eq!(text.matches('"').count() % 2, 0, "quotes do not pair: {text}");
            assert!(text.ends_with(['.', '!', '"', '?']), "{text}");
            for vowel in [" a apple", " a orange", " a owl", " a old", " an red", " an ball", " an blue"] {
                assert!(!text.contains(vowel), "{vowel} in {text}");
            }
            for sentence in text.split(['\n']).flat_map(|p| p.split(". ")) {
                let first = sentence.trim_start_matches('"').chars().next();
                assert!(first.is_some_and(char::is_uppercase), "{sentence:?} in {text}");
            }
        }
    }

    #[test]
    fn at_most_two_characters_and_one_toy_appear_and_pronouns_are_theirs() {
        let names: Vec<_> = (0..characters()).map(character).collect();
        let distinct: HashSet<_> = names.iter().map(|c| c.name).collect();
        assert_eq!(distinct.len(), names.len(), "two characters share a name");
        for seed in 0..5_000 {
            let text = story(seed).text;
            let words: HashSet<&str> = text.split(|c: char| !c.is_alphabetic()).collect();
            let who: Vec<_> = names.iter().filter(|c| words.contains(c.name)).collect();
            assert!((1..=2).contains(&who.len()), "{who:?} in {text}");
            let grown_she = ["mom", "grandma"].iter().any(|g| words.contains(g));
            let grown_he = ["dad", "grandpa"].iter().any(|g| words.contains(g));
            assert!(!(grown_she && grown_he), "{text}");
            if !grown_she && who.iter().all(|c| !c.she) {
                assert!(!words.contains("she") && !words.contains("She") && !words.contains("her"), "{text}");
            }
            if !grown_he && who.iter().all(|c| c.she) {
                assert!(!words.contains("he") && !words.contains("He") && !words.contains("his"), "{text}");
            }
            let toys = TOYS.iter().filter(|t| !t.0.contains(' ') && words.contains(t.0)).count();
            let pets = PETS.iter().filter(|p| words.contains(p.0)).count();
            assert!(toys <= 1 && pets <= 1, "{text}");
        }
    }

    /// 400,000 stories have 466,624; the command `corpus` counts them.
    #[test]
    fn sentences_keep_being_new() {
        let count = distinct_sentences((0..70_000).map(|seed| story(seed).text));
        assert!(count > 140_000, "{count}");
    }

    #[test]
    fn some_combinations_are_held_out_for_every_hero() {
        for hero in 0..characters() {
            let kept = (0..TOYS.len()).filter(|&toy| held_out(hero, toy)).count();
            assert!((1..=2).contains(&kept), "{hero}: {kept}");
        }
        let share = (0..10_000).filter(|&seed| story(seed).held_out).count();
        assert!((400..1200).contains(&share), "{share}");
    }
}

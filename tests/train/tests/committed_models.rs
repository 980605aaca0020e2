//! The models in `models/` are what the recipes describe, and as good as `models/README.md` says.

use std::path::PathBuf;

use dmexp_train::checkpoint;
use dmexp_train::corpus::{BOS, Source, Split, TINY_BOS};
use dmexp_train::model::{Weights, Worker};
use dmexp_train::networks::tones;
use dmexp_train::recipe::{Recipe, STORY, TINY};
use dmexp_train::sample::{Settings, continue_text};
use dmexp_train::tokenizer::Tokenizer;

/// A little above the validation loss that `models/README.md` gives.
const STORY_BOUND: f64 = 0.20;

fn read(name: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../models").join(name);
    std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Mean loss over a few windows that training never saw.
fn loss(recipe: &Recipe, flat: &[f32], source: &mut Source<'_>, split: Split) -> f64 {
    let (len, windows) = (recipe.shape.seq, 12);
    let weights = Weights::new(recipe.shape, flat);
    let mut worker = Worker::new(&recipe.shape);
    let sum: f64 = (0..windows)
        .map(|window| {
            let ids = source.window(split, window, len + 1);
            worker.evaluate(&weights, &ids[..len], &ids[1..])
        })
        .sum();
    sum / (windows as usize * len) as f64
}

#[test]
fn the_story_model_and_its_vocabulary_fit_the_recipe() {
    let (shape, flat) = checkpoint::from_bytes(&read("story.bin")).expect("a v0 checkpoint");
    assert_eq!(shape, STORY.shape);
    assert!(flat.iter().all(|w| w.is_finite()));
    let tokenizer = Tokenizer::from_bytes(&read("story.tokenizer.bin")).expect("a tokenizer file");
    assert_eq!(tokenizer.len(), shape.vocab);
    let mut source = Source::stories(&tokenizer);
    for split in [Split::Valid, Split::HeldOut] {
        let loss = loss(&STORY, &flat, &mut source, split);
        assert!(loss < STORY_BOUND, "{split:?}: {loss}");
    }
    let mut prompt = vec![BOS];
    prompt.extend(tokenizer.encode("Once upon a time"));
    let greedy = Settings { temperature: 0.0, top_p: 0.9, seed: 0 };
    let text = tokenizer.decode(&continue_text(shape, &flat, &prompt, BOS, greedy)[1..]);
    assert!(text.starts_with("Once upon a time, ") && text.lines().count() >= 3, "{text}");
}

#[test]
fn the_tiny_model_fits_the_recipe_and_ends_its_lines() {
    let (shape, flat) = checkpoint::from_bytes(&read("tiny.bin")).expect("a v0 checkpoint");
    assert_eq!(shape, TINY.shape);
    for split in [Split::Valid, Split::HeldOut] {
        let loss = loss(&TINY, &flat, &mut Source::Lines, split);
        assert!(loss < 0.32, "{split:?}: {loss}");
    }
    for seed in 0..20 {
        let settings = Settings { temperature: 0.8, top_p: 0.9, seed };
        let ids = continue_text(shape, &flat, &[TINY_BOS], TINY_BOS, settings);
        assert!(ids.len() < shape.seq && ids.last() == Some(&u16::from(b'.')), "{ids:?}");
    }
}

#[test]
fn tones_are_told_apart_after_a_tenth_of_the_training() {
    let weights = tones::train(400);
    let accuracy = tones::accuracy(&weights, tones::UNSEEN, 500);
    assert!(accuracy > 0.97, "{accuracy}");
    // The committed file is of this shape: its weights and 600 bytes at most for everything else.
    let file = read("tones.bin");
    assert!(file.len() > 4 * weights.len() && file.len() < 4 * weights.len() + 600);
}

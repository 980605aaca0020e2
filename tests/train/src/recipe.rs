//! The fixed recipes of the two models: everything that decides what `cargo xtask train` gives.

use crate::shape::Shape;

/// How one model is made.
#[derive(Debug, Clone, Copy)]
pub struct Recipe {
    /// The model's name, which its files begin with.
    pub name: &'static str,
    /// Its shape.
    pub shape: Shape,
    /// Seed of the initial weights; the data are numbered and need none.
    pub seed: u64,
    /// Optimiser steps.
    pub steps: usize,
    /// Windows of one whole context in a step.
    pub batch: usize,
    /// Highest learning rate.
    pub rate: f32,
    /// Steps until it is reached.
    pub warmup: usize,
    /// Deviation of the initial weights.
    pub init: f32,
    /// Weight decay of the matrices.
    pub decay: f32,
    /// Steps between two points of the loss curve.
    pub every: usize,
    /// Stories that the vocabulary is learned from; 0 where bytes are the ids.
    pub vocabulary_stories: u64,
}

/// The story model: the shape that llama2.c's smallest published model has.
pub const STORY: Recipe = Recipe {
    name: "story",
    shape: Shape { dim: 64, hidden: 172, layers: 5, heads: 8, kv_heads: 4, vocab: 512, seq: 256 },
    seed: 20_260,
    steps: 30_000,
    batch: 8,
    rate: 3e-3,
    warmup: 300,
    init: 0.06,
    decay: 0.05,
    every: 250,
    vocabulary_stories: 20_000,
};

/// The tiny model, for chips with 16 KB of RAM: ASCII bytes are its ids, and 64 positions of keys and values in f16 take 4,096 bytes.
pub const TINY: Recipe = Recipe {
    name: "tiny",
    shape: Shape { dim: 24, hidden: 36, layers: 2, heads: 3, kv_heads: 1, vocab: 128, seq: 64 },
    seed: 12,
    steps: 6_000,
    batch: 32,
    rate: 5e-3,
    warmup: 300,
    init: 0.1,
    decay: 0.01,
    every: 200,
    vocabulary_stories: 0,
};

#[cfg(test)]
mod tests {
    use super::{STORY, TINY};

    #[test]
    fn the_models_are_as_small_as_promised() {
        assert!(STORY.shape.parameters() <= 300_000);
        assert!(TINY.shape.parameters() <= 12_000, "{}", TINY.shape.parameters());
        let shape = TINY.shape;
        let kv = 2 * shape.layers * shape.seq * shape.kv_dim() * 2;
        let scratch = 4 * (4 * shape.dim + 2 * shape.hidden + shape.heads * shape.seq + shape.vocab);
        assert!(kv + scratch <= 8_000, "{kv} + {scratch}");
    }
}

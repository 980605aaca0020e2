//! The training loop. Called by the binary.

use std::path::Path;
use std::time::Instant;

use crate::checkpoint;
use crate::corpus::{Source, Split};
use crate::curve::Point;
use crate::model::{Weights, Worker};
use crate::optimizer::{AdamW, rate};
use crate::recipe::Recipe;
use crate::rng::Rng;
use crate::tokenizer::Tokenizer;

/// Gradients are added up in this many parts, whatever the number of threads, so that the sum does not depend on it.
const PARTS: usize = 4;
/// Windows of each validation split.
const VALIDATION: u64 = 48;

/// Random weights; norms are 1, and what is added to the residual stream starts smaller the more layers add to it.
pub fn initial(recipe: &Recipe) -> Vec<f32> {
    let mut rng = Rng::new(recipe.seed);
    let mut flat = vec![1.0; recipe.shape.parameters()];
    for range in recipe.shape.matrices() {
        flat[range].fill_with(|| recipe.init * rng.normal());
    }
    let shrink = 1.0 / (2.0 * recipe.shape.layers as f32).sqrt();
    for layer in recipe.shape.layout().layers {
        for range in [layer.wo, layer.w2] {
            for w in &mut flat[range] {
                *w *= shrink;
            }
        }
    }
    flat
}

/// Training in progress.
#[derive(Debug)]
pub struct Trainer<'a> {
    recipe: &'a Recipe,
    steps: usize,
    threads: usize,
    flat: Vec<f32>,
    weights: Weights,
    optimizer: AdamW,
    workers: Vec<(Worker, Source<'a>)>,
}

impl<'a> Trainer<'a> {
    /// Ready for the first of `steps` steps.
    pub fn new(recipe: &'a Recipe, tokenizer: Option<&'a Tokenizer>, steps: usize, threads: usize) -> Self {
        let flat = initial(recipe);
        let source = || tokenizer.map_or(Source::Lines, Source::stories);
        Self {
            recipe,
            steps,
            threads: threads.clamp(1, PARTS),
            weights: Weights::new(recipe.shape, &flat),
            flat,
            optimizer: AdamW::new(recipe),
            workers: (0..PARTS).map(|_| (Worker::new(&recipe.shape), source())).collect(),
        }
    }

    /// Runs `job` for every part, spread over the threads.
    fn parallel(&mut self, job: impl Fn(usize, &Weights, &mut Worker, &mut Source<'a>) + Sync) {
        let (weights, job) = (&self.weights, &job);
        let share = PARTS.div_ceil(self.threads);
        std::thread::scope(|scope| {
            for (chunk, workers) in self.workers.chunks_mut(share).enumerate() {
                scope.spawn(move || {
                    for (i, (worker, source)) in workers.iter_mut().enumerate() {
                        worker.clear();
                        job(chunk * share + i, weights, worker, source);
                    }
                });
            }
        });
    }

    /// Step `step`: its loss in nats a token.
    pub fn step(&mut self, step: usize) -> f64 {
        let (len, batch) = (self.recipe.shape.seq, self.recipe.batch);
        let scale = 1.0 / (batch * len) as f32;
        self.parallel(|part, weights, worker, source| {
            for i in (part..batch).step_by(PARTS) {
                let ids = source.window(Split::Train, (step * batch + i) as u64, len + 1);
                worker.train(weights, &ids[..len], &ids[1..], scale);
            }
        });
        let mut gradient = vec![0.0; self.flat.len()];
        for (worker, _) in &self.workers {
            gradient.iter_mut().zip(&worker.gradient).for_each(|(sum, g)| *sum += g);
        }
        let rate = rate(self.recipe, step, self.steps);
        self.optimizer.step(&mut self.flat, &gradient, rate, self.recipe.decay);
        self.weights.set(&self.flat);
        self.workers.iter().map(|(worker, _)| worker.loss).sum::<f64>() / (batch * len) as f64
    }

    /// Loss over a validation split, in nats a token.
    pub fn validate(&mut self, split: Split) -> f64 {
        let len = self.recipe.shape.seq;
        self.parallel(|part, weights, worker, source| {
            for window in (part as u64..VALIDATION).step_by(PARTS) {
                let ids = source.window(split, window, len + 1);
                worker.loss += worker.evaluate(weights, &ids[..len], &ids[1..]);
            }
        });
        self.workers.iter().map(|(worker, _)| worker.loss).sum::<f64>() / (VALIDATION as usize * len) as f64
    }

    /// The parameters as they are now.
    pub fn parameters(&self) -> &[f32] {
        &self.flat
    }

    /// All steps; `report` gets each point of the curve, with the parameters at that time.
    ///
    /// # Errors
    /// Those of `report`.
    pub fn run(&mut self, mut report: impl FnMut(Point, &[f32]) -> std::io::Result<()>) -> std::io::Result<()> {
        let start = Instant::now();
        let (mut sum, mut count) = (0.0, 0);
        for step in 0..self.steps {
            sum += self.step(step);
            count += 1;
            if (step + 1) % self.recipe.every == 0 || step + 1 == self.steps {
                let point = Point {
                    step: step + 1,
                    seconds: start.elapsed().as_secs(),
                    train: sum / f64::from(count),
                    valid: self.validate(Split::Valid),
                    held_out: self.validate(Split::HeldOut),
                };
                (sum, count) = (0.0, 0);
                report(point, &self.flat)?;
            }
        }
        Ok(())
    }
}

/// Writes `bytes` beside `path` and renames, so that a reader never sees half a file.
///
/// # Errors
/// Those of the file system.
pub fn write(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let part = path.with_extension("part");
    std::fs::write(&part, bytes)?;
    std::fs::rename(part, path)
}

/// Writes the checkpoint of `recipe` into `dir`.
///
/// # Errors
/// Those of the file system.
pub fn save(dir: &Path, recipe: &Recipe, flat: &[f32]) -> std::io::Result<()> {
    write(&dir.join(format!("{}.bin", recipe.name)), &checkpoint::to_bytes(&recipe.shape, flat))
}

#[cfg(test)]
mod tests {
    use super::Trainer;
    use crate::corpus::Split;
    use crate::recipe::{Recipe, TINY};

    #[test]
    fn training_lowers_the_loss_and_is_the_same_with_any_number_of_threads() {
        let recipe = Recipe { batch: 8, warmup: 10, ..TINY };
        let run = |threads| {
            let mut trainer = Trainer::new(&recipe, None, 60, threads);
            let before = trainer.validate(Split::Valid);
            for step in 0..60 {
                trainer.step(step);
            }
            assert!(trainer.validate(Split::Valid) < 0.75 * before);
            trainer.parameters().to_vec()
        };
        assert_eq!(run(1), run(3));
    }
}

//! The trainer's model against the plain one, and its gradient against differences.

use super::{Weights, Worker};
use crate::reference::Reader;
use crate::rng::Rng;
use crate::shape::Shape;

const SHAPE: Shape = Shape { dim: 24, hidden: 36, layers: 2, heads: 6, kv_heads: 3, vocab: 40, seq: 48 };

fn random(rng: &mut Rng) -> Vec<f32> {
    let mut flat = vec![1.0; SHAPE.parameters()];
    for w in &mut flat {
        *w += 0.1 * rng.normal();
    }
    for range in SHAPE.matrices() {
        flat[range].fill_with(|| 0.3 * rng.normal());
    }
    flat
}

fn tokens(rng: &mut Rng, n: usize) -> Vec<u16> {
    (0..n).map(|_| rng.below(SHAPE.vocab) as u16).collect()
}

#[test]
fn the_forward_pass_agrees_with_the_plain_one() {
    let mut rng = Rng::new(1);
    let flat = random(&mut rng);
    let weights = Weights::new(SHAPE, &flat);
    let mut worker = Worker::new(&SHAPE);
    for length in [1, 33, 48, 7] {
        let tokens = tokens(&mut rng, length);
        let logits = worker.forward(&weights, &tokens).to_vec();
        let mut reader = Reader::new(SHAPE, &flat);
        for (row, &token) in logits.chunks_exact(SHAPE.vocab).zip(&tokens) {
            for (got, want) in row.iter().zip(reader.step(token)) {
                assert!((f64::from(*got) - want).abs() < 1e-4, "{got} {want}");
            }
        }
    }
}

/// The loss of the plain model, in f64, so that differences of it mean something.
fn loss(flat: &[f32], tokens: &[u16], targets: &[u16]) -> f64 {
    let mut reader = Reader::new(SHAPE, flat);
    let mut loss = 0.0;
    for (&token, &target) in tokens.iter().zip(targets) {
        let logits = reader.step(token);
        loss += logits.iter().map(|l| l.exp()).sum::<f64>().ln() - logits[target as usize];
    }
    loss
}

#[test]
fn the_gradient_agrees_with_differences_in_every_tensor() {
    let mut rng = Rng::new(2);
    let flat = random(&mut rng);
    let weights = Weights::new(SHAPE, &flat);
    let mut worker = Worker::new(&SHAPE);
    let (input, targets) = (tokens(&mut rng, 37), tokens(&mut rng, 37));
    worker.train(&weights, &input, &targets, 0.5);
    assert!((worker.loss - loss(&flat, &input, &targets)).abs() < 1e-3);

    let layout = SHAPE.layout();
    let mut ranges = SHAPE.matrices();
    ranges.push(layout.final_norm);
    ranges.extend(layout.layers.into_iter().flat_map(|l| [l.att_norm, l.ffn_norm]));
    for range in ranges {
        for _ in 0..6 {
            let at = range.start + rng.below(range.len());
            let moved = |by: f32| {
                let mut flat = flat.clone();
                flat[at] += by;
                (loss(&flat, &input, &targets), f64::from(flat[at]))
            };
            let ((high, above), (low, below)) = (moved(2e-3), moved(-2e-3));
            let want = 0.5 * (high - low) / (above - below);
            let got = f64::from(worker.gradient[at]);
            assert!((got - want).abs() < 1e-3 + 2e-3 * want.abs(), "parameter {at} of {range:?}: {got} {want}");
        }
    }
}

#[test]
fn gradients_of_sequences_add_up_and_clear() {
    let mut rng = Rng::new(3);
    let weights = Weights::new(SHAPE, &random(&mut rng));
    let mut worker = Worker::new(&SHAPE);
    let (input, targets) = (tokens(&mut rng, 20), tokens(&mut rng, 20));
    worker.train(&weights, &input, &targets, 1.0);
    let once = worker.gradient.clone();
    worker.train(&weights, &input, &targets, 1.0);
    assert!(once.iter().zip(&worker.gradient).all(|(a, b)| (2.0 * a - b).abs() <= 1e-3 + 1e-3 * b.abs()));
    worker.clear();
    worker.train(&weights, &input, &targets, 1.0);
    assert_eq!(once, worker.gradient);
}

//! The `AdamW` optimiser with clipping and the learning rate over time. Called by `train.rs`, once a step.

use crate::recipe::Recipe;

const BETA1: f32 = 0.9;
const BETA2: f32 = 0.98;
const EPS: f32 = 1e-9;
/// Longest gradient; longer ones are scaled down to it.
const CLIP: f64 = 1.0;
/// The rate ends at this share of its peak.
const LAST: f32 = 0.01;

/// The state of the optimiser.
#[derive(Debug)]
pub struct AdamW {
    mean: Vec<f32>,
    square: Vec<f32>,
    /// 1 where weights decay (matrices), 0 where not (norms).
    decays: Vec<f32>,
    step: i32,
}

/// The learning rate of `step` (from 0) of `steps`: linear warm-up, then half a cosine.
pub fn rate(recipe: &Recipe, step: usize, steps: usize) -> f32 {
    let warmup = recipe.warmup.min(steps / 4);
    if step < warmup {
        return recipe.rate * (step + 1) as f32 / warmup as f32;
    }
    let done = (step - warmup) as f32 / (steps - warmup).max(1) as f32;
    recipe.rate * (LAST + (1.0 - LAST) * 0.5 * (1.0 + (std::f32::consts::PI * done).cos()))
}

impl AdamW {
    /// Nothing seen yet.
    pub fn new(recipe: &Recipe) -> Self {
        let n = recipe.shape.parameters();
        let mut decays = vec![0.0; n];
        for range in recipe.shape.matrices() {
            decays[range].fill(1.0);
        }
        Self { mean: vec![0.0; n], square: vec![0.0; n], decays, step: 0 }
    }

    /// One step along `gradient`.
    pub fn step(&mut self, weights: &mut [f32], gradient: &[f32], rate: f32, decay: f32) {
        self.step += 1;
        let length = gradient.iter().map(|&g| f64::from(g) * f64::from(g)).sum::<f64>().sqrt();
        let scale = if length > CLIP { (CLIP / length) as f32 } else { 1.0 };
        let (fix1, fix2) = (1.0 - BETA1.powi(self.step), 1.0 - BETA2.powi(self.step));
        let state = self.mean.iter_mut().zip(&mut self.square).zip(&self.decays);
        for (((mean, square), decays), (w, g)) in state.zip(weights.iter_mut().zip(gradient)) {
            let g = g * scale;
            *mean += (1.0 - BETA1) * (g - *mean);
            *square += (1.0 - BETA2) * (g * g - *square);
            let direction = (*mean / fix1) / ((*square / fix2).sqrt() + EPS);
            *w -= rate * (direction + decay * decays * *w);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{AdamW, rate};
    use crate::recipe::TINY;

    #[test]
    fn the_rate_rises_and_falls() {
        let at = |step| rate(&TINY, step, 1000);
        assert!(at(0) < at(100) && at(100) < at(249));
        assert!((at(250) - TINY.rate).abs() < 1e-6);
        assert!(at(600) < at(300) && at(999) < 0.02 * TINY.rate);
    }

    #[test]
    fn the_first_step_goes_the_whole_rate_against_the_sign_whatever_the_length() {
        let n = TINY.shape.parameters();
        let (mut adam, mut weights) = (AdamW::new(&TINY), vec![0.0; n]);
        let mut gradient = vec![100.0; n];
        gradient[1] = -0.5;
        adam.step(&mut weights, &gradient, 0.1, 0.0);
        assert!((weights[0] + 0.1).abs() < 1e-3 && (weights[1] - 0.1).abs() < 1e-3);
    }
}

//! Rotary positions: sines and cosines once a step, then queries and keys rotated in place. Called by the attention layers of the models.

use super::chip;
use super::math::sin_cos;
use crate::format::arch::llama::RopeLayout;

/// Cosines and sines of `position * inv_freq[i]`, each times `factor`; `cos`, `sin` and `inv_freq` all have `head_dim` / 2 elements.
#[inline(never)]
pub fn rotation(cos: &mut [f32], sin: &mut [f32], inv_freq: &[f32], position: u32, factor: f32) {
    let position = position as f32;
    for ((c, s), freq) in cos.iter_mut().zip(sin).zip(inv_freq) {
        let (sine, cosine) = sin_cos(position * *freq);
        *c = cosine * factor;
        *s = sine * factor;
    }
}

/// Rotates every head in `vectors` (a whole number of heads of `head_dim` elements) in place: a pair (a, b) becomes (a*c - b*s, a*s + b*c).
///
/// `cos` and `sin` have `head_dim` / 2 elements, as [`rotation`] makes them.
pub fn rotate(vectors: &mut [f32], head_dim: usize, cos: &[f32], sin: &[f32], layout: RopeLayout) {
    chip::rotate(vectors, head_dim, cos, sin, layout);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::test_rng::Rng;

    #[test]
    fn both_layouts_turn_the_same_pairs() {
        let mut rng = Rng::new(4);
        for head_dim in [2, 8, 48, 64] {
            let half = head_dim / 2;
            let inv_freq: Vec<f32> = (0..half).map(|i| 10_000f64.powf(-(i as f64) / half as f64) as f32).collect();
            for position in [0, 1, 17, 511, 8191] {
                let (mut cos, mut sin) = (vec![0.0; half], vec![0.0; half]);
                rotation(&mut cos, &mut sin, &inv_freq, position, 1.25);
                let heads = rng.floats(3 * head_dim);
                let mut interleaved = heads.clone();
                rotate(&mut interleaved, head_dim, &cos, &sin, RopeLayout::Interleaved);
                let mut halves = vec![0.0; 3 * head_dim];
                for (i, value) in heads.iter().enumerate() {
                    let (head, j) = (i / head_dim, i % head_dim);
                    halves[head * head_dim + j / 2 + (j % 2) * half] = *value;
                }
                rotate(&mut halves, head_dim, &cos, &sin, RopeLayout::Half);
                for (i, value) in interleaved.iter().enumerate() {
                    let (head, j) = (i / head_dim, i % head_dim);
                    assert_eq!(value.to_bits(), halves[head * head_dim + j / 2 + (j % 2) * half].to_bits());
                    let (a, b) = (heads[i & !1], heads[i | 1]);
                    let (c, s) = (cos[j / 2], sin[j / 2]);
                    let expected = if j % 2 == 0 { a * c - b * s } else { a * s + b * c };
                    assert_eq!(value.to_bits(), expected.to_bits());
                    let angle = f64::from(position as f32 * inv_freq[j / 2]);
                    assert!((f64::from(c) - 1.25 * angle.cos()).abs() < 3e-7 && (f64::from(s) - 1.25 * angle.sin()).abs() < 3e-7);
                }
            }
        }
    }

    #[test]
    fn position_0_changes_nothing() {
        let (mut cos, mut sin) = ([0.0; 4], [1.0; 4]);
        rotation(&mut cos, &mut sin, &[1.0, 0.1, 0.01, 0.001], 0, 1.0);
        assert_eq!((cos, sin), ([1.0; 4], [0.0; 4]));
        let mut head = [1.0, -2.0, 3.0, -4.0, 5.0, 6.0, 7.0, 8.0];
        rotate(&mut head, 8, &cos, &sin, RopeLayout::Half);
        assert_eq!(head, [1.0, -2.0, 3.0, -4.0, 5.0, 6.0, 7.0, 8.0]);
        rotate(&mut head, 0, &cos, &sin, RopeLayout::Half);
    }
}

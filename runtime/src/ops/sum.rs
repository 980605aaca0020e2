//! The canonical sum: eight lanes, element i into lane i mod 8, added up by a fixed tree. Called wherever floats are reduced.

use super::convert::{F32, Stored};
use super::{chip, portable};

/// The eight lanes of a sum.
pub(crate) type Lanes = [f32; 8];

/// The lanes added up: `((a0 + a4) + (a2 + a6)) + ((a1 + a5) + (a3 + a7))`.
#[inline(always)]
#[allow(clippy::inline_always, reason = "seven additions")]
pub(crate) fn tree([a0, a1, a2, a3, a4, a5, a6, a7]: Lanes) -> f32 {
    ((a0 + a4) + (a2 + a6)) + ((a1 + a5) + (a3 + a7))
}

/// Eight canonical sums at once: lane `i` of sum `j` is `lanes[i][j]`.
#[cfg(feature = "sequential")]
#[inline]
pub(crate) fn trees(lanes: &[[f32; 8]; 8]) -> [f32; 8] {
    let mut sums = [0.0; 8];
    let [l0, l1, l2, l3, l4, l5, l6, l7] = lanes;
    for (j, sum) in sums.iter_mut().enumerate() {
        let at = |lane: &[f32; 8]| lane.get(j).copied().unwrap_or(0.0);
        *sum = tree([at(l0), at(l1), at(l2), at(l3), at(l4), at(l5), at(l6), at(l7)]);
    }
    sums
}

/// Adds `term(value)` of each value to its lane, the first value to lane 0.
#[inline(always)]
#[allow(clippy::inline_always, reason = "the closure must be inlined into the loop")]
#[cfg_attr(
    all(target_arch = "arm", target_os = "none", target_abi = "eabihf"),
    allow(dead_code, reason = "the kernels there sum by themselves")
)]
pub(crate) fn lanes_of(values: &[f32], term: impl Fn(f32) -> f32) -> Lanes {
    let mut lanes = [0.0; 8];
    let (chunks, rest) = values.as_chunks::<8>();
    for chunk in chunks {
        for (lane, value) in lanes.iter_mut().zip(chunk) {
            *lane += term(*value);
        }
    }
    for (lane, value) in lanes.iter_mut().zip(rest) {
        *lane += term(*value);
    }
    lanes
}

/// The canonical sum of `terms`.
pub fn sum8(terms: &[f32]) -> f32 {
    chip::sum8(terms)
}

/// The canonical sum of the squares of `values`, each square rounded.
pub fn sum8_squares(values: &[f32]) -> f32 {
    chip::sum8_squares(values)
}

/// The canonical sum of the products `w[i] * x[i]`, each rounded; as many as the shorter slice has.
pub fn dot8(w: &[f32], x: &[f32]) -> f32 {
    portable::dot::<F32>(w, x)
}

/// `dot8` of stored elements: the one definition that every kernel repeats.
#[inline(always)]
#[allow(clippy::inline_always, reason = "compiled into each kernel for its element type")]
pub(crate) fn dot_stored<S: Stored>(w: &[S::Item], x: &[f32]) -> f32 {
    let mut lanes = [0.0; 8];
    // Both cut to one length first: tails must pair up.
    let n = w.len().min(x.len());
    let (w, x) = (w.get(..n).unwrap_or(&[]), x.get(..n).unwrap_or(&[]));
    let ((w_chunks, w_rest), (x_chunks, x_rest)) = (w.as_chunks::<8>(), x.as_chunks::<8>());
    for (wc, xc) in w_chunks.iter().zip(x_chunks) {
        for ((lane, w), x) in lanes.iter_mut().zip(wc).zip(xc) {
            *lane += S::widen(*w) * *x;
        }
    }
    for ((lane, w), x) in lanes.iter_mut().zip(w_rest).zip(x_rest) {
        *lane += S::widen(*w) * *x;
    }
    tree(lanes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::test_rng::Rng;

    /// The definition, word by word.
    pub(crate) fn literal(terms: &[f32]) -> f32 {
        let mut a = [0.0f32; 8];
        for i in 0..terms.len() {
            a[i % 8] += terms[i];
        }
        ((a[0] + a[4]) + (a[2] + a[6])) + ((a[1] + a[5]) + (a[3] + a[7]))
    }

    #[test]
    fn sums_are_the_definition_for_every_length() {
        let mut rng = Rng::new(1);
        for n in (0..1000).step_by(if cfg!(miri) { 97 } else { 1 }) {
            let w: Vec<f32> = rng.floats(n);
            let x: Vec<f32> = rng.floats(n);
            let products: Vec<f32> = w.iter().zip(&x).map(|(w, x)| w * x).collect();
            let squares: Vec<f32> = w.iter().map(|w| w * w).collect();
            assert_eq!(sum8(&w).to_bits(), literal(&w).to_bits());
            assert_eq!(sum8_squares(&w).to_bits(), literal(&squares).to_bits());
            assert_eq!(dot8(&w, &x).to_bits(), literal(&products).to_bits());
        }
    }

    #[test]
    fn the_longer_slice_is_cut() {
        let x: Vec<f32> = (1..40).map(|i| i as f32).collect();
        for n in 0..40 {
            assert_eq!(dot8(&x[..n.min(39)], &x), dot8(&x[..n.min(39)], &x[..n.min(39)]));
            assert_eq!(dot8(&x, &x[..n.min(39)]), dot8(&x[..n.min(39)], &x[..n.min(39)]));
        }
    }

    #[test]
    fn an_empty_sum_is_plus_zero_and_negative_zeros_vanish() {
        assert_eq!(sum8(&[]).to_bits(), 0);
        assert_eq!(dot8(&[-0.0; 9], &[1.0; 9]).to_bits(), 0);
    }

    #[test]
    fn products_are_rounded_before_they_are_added() {
        // (1 + 2^-12)^2 = 1 + 2^-11 + 2^-24 rounds to 1 + 2^-11; a fused multiply-add would keep the 2^-24.
        let a = 1.0 + f32::powi(2.0, -12);
        let mut w = [0.0; 9];
        let mut x = [0.0; 9];
        (w[0], x[0]) = (-(1.0 + f32::powi(2.0, -11)), 1.0);
        (w[8], x[8]) = (a, a);
        assert_eq!(dot8(&w, &x), 0.0);
        assert_ne!(w[8].mul_add(x[8], w[0]), 0.0);
    }
}

//! Ternary factors written as their codes: -1, 0 and 1 for `u` and `v`, their sizes in `s`. The same function, and one that narrowing cannot change: bf16 and f16 hold the codes exactly, so no
//! value crosses the threshold between 0 and 1.

use crate::checkpoint::ArrayView;
use crate::error::Result;

/// `u`, `s`, `v` of one layer, rewritten.
pub(super) fn rewrite(u: ArrayView<'_>, s: ArrayView<'_>, v: ArrayView<'_>) -> Result<[Vec<f32>; 3]> {
    let (u, u_scale) = codes(&u.to_vec()?);
    let (v, v_scale) = codes(&v.to_vec()?);
    let s = s.to_vec()?.iter().map(|s| (f64::from(*s) * u_scale * v_scale) as f32).collect();
    Ok([u, s, v])
}

/// The codes of a factor, and its mean magnitude over that of the codes: what the codes are to be multiplied by.
fn codes(factor: &[f32]) -> (Vec<f32>, f64) {
    let mean = |values: &[f32]| values.iter().map(|value| f64::from(value.abs())).sum::<f64>() / values.len().max(1) as f64;
    let size = mean(factor) as f32;
    let threshold = 0.7 * size;
    let codes: Vec<f32> = factor.iter().map(|w| if w.abs() > threshold { w.signum() } else { 0.0 }).collect();
    let of_codes = mean(&codes);
    // No code at all: the layer gives 0, whatever its scale.
    let scale = if of_codes > 0.0 { f64::from(size) / of_codes } else { 0.0 };
    (codes, scale)
}

#[cfg(test)]
mod tests {
    use super::codes;

    #[test]
    fn codes_are_their_own_codes() {
        let factor = [0.5, -0.4, 0.1, 0.0, -0.09, 0.9];
        let (first, scale) = codes(&factor);
        assert_eq!(first, [1.0, -1.0, 0.0, 0.0, 0.0, 1.0]);
        // The mean of the factor over one half, the mean of its codes.
        assert!((scale - 1.99 / 6.0 * 2.0).abs() < 1e-7, "{scale}");
        assert_eq!(codes(&first), (first, 1.0));
        assert_eq!(codes(&[0.0; 3]), (vec![0.0; 3], 0.0));
    }
}

//! Root-mean-square norm: called by the models before each block and before the classifier.

use super::chip;
use super::math::sqrt;
use super::sum::sum8_squares;
use crate::format::TensorView;

/// `out[i] = (x[i] * s) * gain[i]` with `s = 1 / sqrt(sum8(x[i] * x[i]) / n + eps)`.
///
/// `out`, `x` and `gain` all have n elements; `gain` may be of any float type at any address.
pub fn rmsnorm(out: &mut [f32], x: &[f32], gain: &TensorView<'_>, eps: f32) {
    let s = scale(x, eps);
    match gain.as_f32() {
        Some(gain) => chip::norm(out, x, gain, s),
        None => {
            for (i, (y, x)) in out.iter_mut().zip(x).enumerate() {
                *y = (*x * s) * gain.get_float(i);
            }
        }
    }
}

/// [`rmsnorm`] with the result in the place of `x`.
pub fn rmsnorm_in_place(x: &mut [f32], gain: &TensorView<'_>, eps: f32) {
    let s = scale(x, eps);
    match gain.as_f32() {
        Some(gain) => {
            for (x, g) in x.iter_mut().zip(gain) {
                *x = (*x * s) * *g;
            }
        }
        None => {
            for (i, x) in x.iter_mut().enumerate() {
                *x = (*x * s) * gain.get_float(i);
            }
        }
    }
}

fn scale(x: &[f32], eps: f32) -> f32 {
    1.0 / sqrt(sum8_squares(x) / x.len() as f32 + eps)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{DType, Dims};
    use crate::ops::test_rng::Rng;

    #[test]
    fn the_norm_is_the_formula_at_every_address() {
        let mut rng = Rng::new(3);
        for n in [1, 7, 8, 64, 100] {
            let (x, gain) = (rng.floats(n), rng.floats(n));
            let mut a = [0.0f32; 8];
            for i in 0..n {
                a[i % 8] += x[i] * x[i];
            }
            let sum = ((a[0] + a[4]) + (a[2] + a[6])) + ((a[1] + a[5]) + (a[3] + a[7]));
            let s = 1.0 / (sum / n as f32 + 1e-5).sqrt();
            let expected: Vec<u32> = (0..n).map(|i| ((x[i] * s) * gain[i]).to_bits()).collect();
            for offset in 0..4 {
                let mut bytes = vec![0u8; offset];
                bytes.extend(gain.iter().flat_map(|g| g.to_le_bytes()));
                let view = TensorView::new(0, DType::F32, Dims::vector(n as u32), &bytes[offset..]).unwrap();
                let mut out = vec![0.0; n];
                rmsnorm(&mut out, &x, &view, 1e-5);
                assert_eq!(out.iter().map(|v| v.to_bits()).collect::<Vec<_>>(), expected);
                let mut out = x.clone();
                rmsnorm_in_place(&mut out, &view, 1e-5);
                assert_eq!(out.iter().map(|v| v.to_bits()).collect::<Vec<_>>(), expected);
            }
        }
    }
}

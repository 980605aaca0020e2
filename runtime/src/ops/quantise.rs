//! Vectors as integer codes with one scale: what integer matrices, the integer cache and the weights of integer attention are made of.
//!
//! The largest magnitude is found among the bit patterns, so that a NaN counts as the largest: it then stands in the scale, and whatever is computed with it is
//! not finite either, which the logits' check sees.
#![cfg_attr(
    any(all(target_arch = "arm", target_os = "none", target_abi = "eabihf"), not(all(feature = "q8", feature = "q4"))),
    allow(dead_code, reason = "the kernels there take some of this over; builds without integer matrices need little of it")
)]
#![cfg_attr(x86_64_host, allow(clippy::inline_always, reason = "compiled again for other instructions by `chip`"))]

use super::math::MAGIC;
use super::parts::parts;

/// The largest code of an activation, in 16 bits.
pub(crate) const ACTIVATION_LIMIT: i32 = 32_767;
/// The largest code of a cached key or value, in 8 bits.
pub(crate) const CACHE_LIMIT: i32 = 127;

/// The largest magnitude of `x`; NaN if there is one, 0 if there is nothing.
#[cfg_attr(x86_64_host, inline(always))]
pub(crate) fn largest_magnitude(x: &[f32]) -> f32 {
    // Shifted by one, without their signs, patterns are in the order of the magnitudes.
    f32::from_bits(x.iter().map(|x| x.to_bits() << 1).fold(0, u32::max) >> 1)
}

/// `clamp(round(value), +-limit)` for values that are no NaN.
#[inline(always)]
#[allow(clippy::inline_always, reason = "a few instructions, in loops that vectorise")]
pub(crate) fn rounded(value: f32, limit: i32) -> i32 {
    // Past 2^21 the difference is no longer the nearest number, but past every limit as well.
    ((value + MAGIC).to_bits().wrapping_sub(MAGIC.to_bits()) as i32).clamp(-limit, limit)
}

/// The codes of `x` in 16 bits, and zeros after them; returns the scale, `max |x| / 32767`.
#[cfg_attr(x86_64_host, inline(always))]
pub(crate) fn quantise(codes: &mut [i16], x: &[f32]) -> f32 {
    let largest = largest_magnitude(x);
    let inverse = ACTIVATION_LIMIT as f32 / largest;
    let (of_x, padding) = codes.split_at_mut_checked(x.len()).unwrap_or_default();
    padding.fill(0);
    if inverse < f32::INFINITY {
        for (code, x) in of_x.iter_mut().zip(x) {
            *code = rounded(*x * inverse, ACTIVATION_LIMIT) as i16;
        }
    } else {
        quantise_tiny(of_x, x);
    }
    largest / ACTIVATION_LIMIT as f32
}

/// Where the largest magnitude is so small (or zero) that its reciprocal is infinite: every other number has the largest code. (A NaN comes here too; its codes count for nothing.)
#[cold]
pub(crate) fn quantise_tiny(codes: &mut [i16], x: &[f32]) {
    for (code, x) in codes.iter_mut().zip(x) {
        let sign = if *x < 0.0 { -1 } else { i16::from(*x > 0.0) };
        *code = sign.wrapping_mul(ACTIVATION_LIMIT as i16);
    }
}

/// `sums[g]` = the sum of the codes of group g, for groups of `group` codes.
pub(crate) fn group_sums(sums: &mut [i32], codes: &[i16], group: usize) {
    if group > 0 {
        for (sum, codes) in sums.iter_mut().zip(parts(codes, group)) {
            // At most 65,536 codes of 16 bits.
            *sum = codes.iter().fold(0i32, |sum, code| sum.wrapping_add(i32::from(*code)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::test_rng::Rng;

    /// The definition, with the rounding in f64.
    fn code(x: f32, inverse: f32) -> i16 {
        let value = f64::from(x * inverse);
        if value.is_nan() { 0 } else { value.round_ties_even().clamp(-32767.0, 32767.0) as i16 }
    }

    #[test]
    fn codes_are_the_definition() {
        let mut rng = Rng::new(11);
        for n in [0usize, 1, 2, 7, 64, 172, 1000].into_iter().take(if cfg!(miri) { 5 } else { 7 }) {
            for size in [1.0, 1e-3, 1e20, 1e-30, 1e-36, 1e-44] {
                let x: Vec<f32> = rng.floats(n).iter().map(|x| x * size).collect();
                let a = x.iter().fold(0f32, |a, x| a.max(x.abs()));
                let mut codes = vec![5i16; n + 3];
                let scale = quantise(&mut codes, &x);
                assert_eq!(scale.to_bits(), (a / 32767.0).to_bits());
                for (code_found, x) in codes.iter().zip(&x) {
                    assert_eq!(*code_found, if a == 0.0 { 0 } else { code(*x, 32767.0 / a) }, "{x:e} of {a:e}");
                }
                assert_eq!(codes[n..], [0; 3]);
            }
        }
    }

    #[test]
    fn ties_go_to_even_and_zero_vectors_are_zero() {
        let mut codes = [7i16; 6];
        assert_eq!(quantise(&mut codes, &[32767.0, 0.5, 1.5, -2.5, -0.0, -32767.0]), 1.0);
        assert_eq!(codes, [32767, 0, 2, -2, 0, -32767]);
        assert_eq!(quantise(&mut codes, &[0.0, -0.0, 0.0]).to_bits(), 0);
        assert_eq!(codes, [0; 6]);
    }

    #[test]
    fn what_is_not_finite_stands_in_the_scale() {
        let mut codes = [0i16; 3];
        assert!(quantise(&mut codes, &[1.0, f32::NAN, f32::INFINITY]).is_nan());
        assert_eq!(quantise(&mut codes, &[1.0, 2.0, f32::NEG_INFINITY]), f32::INFINITY);
        assert_eq!(codes[..2], [0, 0]);
    }

    #[test]
    fn groups_are_summed_the_last_one_short() {
        let codes: Vec<i16> = (1..=20).collect();
        let mut sums = [9; 4];
        group_sums(&mut sums, &codes, 8);
        assert_eq!(sums, [36, 100, 74, 9]);
        group_sums(&mut sums, &vec![-32767; 65_536], 65_536);
        assert_eq!(sums[0], -2_147_418_112);
        group_sums(&mut sums, &codes, 0);
        assert_eq!(sums[0], -2_147_418_112);
    }
}

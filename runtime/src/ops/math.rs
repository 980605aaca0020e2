//! exp, sine and cosine, rounding, square root, sigmoid and `SiLU`: one definition each, for every machine. Called by the other families.
//!
//! Figures are the worst over every `f32` in the range named, against `f64`: exp 1.357 ulp (at 5.1986647), sine 9.57e-8 and cosine 9.91e-8 up to 100,000 rad,
//! 2.21e-7 up to 800,000. The tests try one bit pattern in 97 and assert the bounds. ("ulp" is the distance between `f32` neighbours at the exact result.)

use super::chip;

/// 2^23 + 2^22: adding and subtracting it rounds to a whole number, and while it is added the number stands in the low bits.
pub(crate) const MAGIC: f32 = 12_582_912.0;

pub(crate) const LOG2_E: f32 = f32::from_bits(0x3fb8_aa3b);
/// ln 2 in two parts; the first has 15 significant bits, so that its product with a whole number below 2^9 is exact.
pub(crate) const LN2_HIGH: f32 = f32::from_bits(0x3f31_7200);
pub(crate) const LN2_LOW: f32 = f32::from_bits(0x35bf_be8e);
/// Coefficients of r^3 .. r^6; those of r^0 .. r^2 are 1, 1 and 1/2.
#[cfg_attr(
    all(feature = "soft-float", target_arch = "arm", target_os = "none", not(target_has_atomic = "32")),
    allow(dead_code, reason = "in assembly there")
)]
pub(crate) const EXP: [f32; 4] =
    [f32::from_bits(0x3e2a_aa93), f32::from_bits(0x3d2a_aa9f), f32::from_bits(0x3c08_eca9), f32::from_bits(0x3ab6_6f79)];
/// The lowest `x` whose exponential is a normal number, and the highest whose exponential is finite.
pub(crate) const EXP_LOWEST: f32 = f32::from_bits(0xc2ae_ac4f);
pub(crate) const EXP_HIGHEST: f32 = f32::from_bits(0x42b1_7217);

/// e to the power of `x`: at most 1.36 ulp from the exact value.
///
/// Where the exact value is below the normal numbers (`x` < -87.33654) the result is +0, not a subnormal; where it is above the largest finite number
/// (`x` > 88.72283) it is +inf. `exp(-inf)` = 0, `exp(+inf)` = +inf, NaN stays NaN, and zero of either sign gives exactly 1.
#[cfg_attr(not(all(target_arch = "arm", target_os = "none")), inline(always))]
#[cfg_attr(all(target_arch = "arm", target_os = "none"), inline(never))]
#[allow(clippy::inline_always, reason = "loops over it vectorise only when it is inlined; a chip has no vectors, but little flash")]
pub fn exp(x: f32) -> f32 {
    let shifted = x * LOG2_E + MAGIC;
    // The same number, where the result counts; a subroutine for the conversion is shorter than one for the difference, which loses most of its digits.
    let n = if chip::SOFT_FLOAT { shifted.to_bits().wrapping_sub(MAGIC.to_bits()) as i32 as f32 } else { shifted - MAGIC };
    let r = x - n * LN2_HIGH;
    let r = r - n * LN2_LOW;
    let p = chip::exp_polynomial(r);
    // n is in the low bits of `shifted`; those above fall out of the shift. p is below 1 only where r < 0, so within the range no exponent leaves 1..=254.
    let scaled = f32::from_bits(p.to_bits().wrapping_add(shifted.to_bits() << 23));
    // One comparison of integers where three of floats may be subroutines: the lowest `x` is nearer to zero than the highest. (Loops of hosts are better off without a branch.)
    if chip::SOFT_FLOAT && x.to_bits() << 1 <= EXP_LOWEST.to_bits() << 1 {
        return scaled;
    }
    let result = if x > EXP_HIGHEST { f32::INFINITY } else { scaled };
    let result = if x < EXP_LOWEST { 0.0 } else { result };
    if x.is_nan() { x } else { result }
}

/// The polynomial of [`exp`], for |r| below 0.36.
#[cfg_attr(
    all(feature = "soft-float", target_arch = "arm", target_os = "none", not(target_has_atomic = "32")),
    allow(dead_code, reason = "in assembly there")
)]
#[inline(always)]
#[allow(clippy::inline_always, reason = "as exp")]
pub(crate) fn exp_polynomial(r: f32) -> f32 {
    let [c3, c4, c5, c6] = EXP;
    let p = c6 * r + c5;
    let p = p * r + c4;
    let p = p * r + c3;
    let p = p * r + 0.5;
    let p = p * r + 1.0;
    p * r + 1.0
}

/// `1 / (1 + exp(-z))`.
#[inline(always)]
#[allow(clippy::inline_always, reason = "as exp")]
pub fn sigmoid(z: f32) -> f32 {
    1.0 / (1.0 + exp(-z))
}

/// `z / (1 + exp(-z))`.
#[inline(always)]
#[allow(clippy::inline_always, reason = "as exp")]
pub fn silu(z: f32) -> f32 {
    z / (1.0 + exp(-z))
}

/// The nearest whole number, ties to even, for |x| <= 2^21 (`(x + 12582912) - 12582912`; zero loses its sign).
#[inline]
pub fn round(x: f32) -> f32 {
    (x + MAGIC) - MAGIC
}

/// The square root, correctly rounded (IEEE); NaN below zero, and -0 stays -0.
#[inline]
pub fn sqrt(x: f32) -> f32 {
    chip::sqrt(x)
}

const TWO_OVER_PI: f32 = f32::from_bits(0x3f22_f983);
/// pi/2 in three parts; the first two have 5 significant bits each, so that their products with whole numbers below 2^19 are exact.
const HALF_PI_1: f32 = 1.562_5;
const HALF_PI_2: f32 = f32::from_bits(0x3c08_0000);
const HALF_PI_3: f32 = f32::from_bits(0xb695_777a);
/// Coefficients of r^3, r^5, r^7.
const SIN: [f32; 3] = [f32::from_bits(0xbe2a_aaa9), f32::from_bits(0x3c08_8613), f32::from_bits(0xb94d_642b)];
/// Coefficients of r^4, r^6, r^8; those of r^0 and r^2 are 1 and -1/2.
const COS: [f32; 3] = [f32::from_bits(0x3d2a_aaaa), f32::from_bits(0xbab6_0968), f32::from_bits(0x37cd_ebc3)];
/// Past the reduction's range the rest may leave [-pi/4, pi/4]; it is held here so that the results stay bounded.
const REST_LIMIT: f32 = 0.875;

/// Sine and cosine of `angle` radians: at most 1.0e-7 from the exact values for |angle| <= 100,000.
///
/// Up to 800,000 rad the error is at most 2.3e-7. Farther out it grows, and in the end the results mean nothing, but they are always finite and at most 1.1 in
/// size. NaN and infinities give NaN.
#[inline]
pub fn sin_cos(angle: f32) -> (f32, f32) {
    let shifted = angle * TWO_OVER_PI + MAGIC;
    let n = shifted - MAGIC;
    let r = angle - n * HALF_PI_1;
    let r = r - n * HALF_PI_2;
    let r = r - n * HALF_PI_3;
    let r = if r > REST_LIMIT { REST_LIMIT } else { r };
    let r = if r < -REST_LIMIT { -REST_LIMIT } else { r };
    let z = r * r;
    let [s3, s5, s7] = SIN;
    let s = s7 * z + s5;
    let s = s * z + s3;
    let s = (s * z) * r + r;
    let [c4, c6, c8] = COS;
    let c = c8 * z + c6;
    let c = c * z + c4;
    let c = c * z - 0.5;
    let c = c * z + 1.0;
    let quadrant = shifted.to_bits();
    let (sin, cos) = if quadrant & 1 == 0 { (s, c) } else { (c, s) };
    // Sine is negative in quadrants 2 and 3, cosine in 1 and 2.
    let sin_sign = (quadrant & 2) << 30;
    let cos_sign = (quadrant.wrapping_add(1) & 2) << 30;
    (f32::from_bits(sin.to_bits() ^ sin_sign), f32::from_bits(cos.to_bits() ^ cos_sign))
}

#[cfg(test)]
#[path = "math_tests.rs"]
mod tests;

//! Hyperbolic tangent, natural logarithm, and what the rarer activations need: one definition each for every machine. Called by dormouse's rarer arms and by small networks.
//!
//! Figures are the worst over every 97th bit pattern of the range named, against `f64`; the tests assert the bounds.

use super::math::exp;

/// Coefficients of x^3 .. x^11 for small arguments.
const TANH: [f32; 5] = [-0.333_332_8, 0.133_314_42, -0.053_739_716, 0.020_639_088, -0.005_704_988_7];
/// Where the polynomial ends.
const TANH_SMALL: f32 = 0.625;

/// The hyperbolic tangent, with at most 2.5e-7 of its size as error.
pub(crate) fn tanh(x: f32) -> f32 {
    let size = x.abs();
    if size < TANH_SMALL {
        let z = x * x;
        let [c3, c5, c7, c9, c11] = TANH;
        let p = c11 * z + c9;
        let p = p * z + c7;
        let p = p * z + c5;
        let p = p * z + c3;
        return (p * z) * x + x;
    }
    let far = 1.0 - 2.0 / (exp(size + size) + 1.0);
    if x < 0.0 { -far } else { far }
}

/// ln 2 in two parts; the first has 16 significant bits, so that its product with an exponent is exact.
const LN2_HIGH: f32 = f32::from_bits(0x3f31_7180);
const LN2_LOW: f32 = f32::from_bits(0x3717_f7d1);
/// Coefficients of s^2, s^4, s^6, s^8 with s = f / (2 + f): those of FreeBSD's logf.
const LN: [f32; 4] = [0.666_666_6, 0.400_009_72, 0.284_987_87, 0.242_790_79];
/// What is added to a bit pattern so that the exponent changes at the square root of 2 instead of at 2.
const TO_ROOT: u32 = 0x3f80_0000 - 0x3f35_04f3;

/// The natural logarithm of a normal number above 0: at most 1 ulp, or 6e-8 near 1. Nothing else is given to it.
pub(crate) fn ln(x: f32) -> f32 {
    let bits = x.to_bits().wrapping_add(TO_ROOT);
    let exponent = (bits >> 23) as i32 - 127;
    let m = f32::from_bits((bits & 0x007f_ffff).wrapping_add(0x3f35_04f3));
    let k = exponent as f32;
    let f = m - 1.0;
    let s = f / (2.0 + f);
    let z = s * s;
    let w = z * z;
    let [c2, c4, c6, c8] = LN;
    let even = w * (c4 + w * c8);
    let odd = z * (c2 + w * c6);
    let r = even + odd;
    let half_square = (0.5 * f) * f;
    let low = s * (half_square + r) + k * LN2_LOW;
    (low - half_square + f) + k * LN2_HIGH
}

/// ln(1 + x) for 0 <= x <= 1: at most 1.3e-7 of its size from the exact value.
#[cfg(any(feature = "sequential", test))]
pub(crate) fn ln1p(x: f32) -> f32 {
    let sum = 1.0 + x;
    // What the sum lost, by the slope of the logarithm there.
    ln(sum) + (x - (sum - 1.0)) / sum
}

/// Coefficients of x^3 .. x^7 for small arguments: those of the series.
#[cfg(any(feature = "sequential", test))]
const EXPM1: [f32; 5] = [0.166_666_67, 0.041_666_668, 0.008_333_334, 0.001_388_889, 0.000_198_412_7];
/// Where the series ends.
#[cfg(any(feature = "sequential", test))]
const EXPM1_SMALL: f32 = 0.5;

/// exp(x) - 1 for x <= 0: at most 3e-7 of its size from the exact value.
#[cfg(any(feature = "sequential", test))]
pub(crate) fn expm1(x: f32) -> f32 {
    if x < -EXPM1_SMALL {
        return exp(x) - 1.0;
    }
    let [c3, c4, c5, c6, c7] = EXPM1;
    let p = c7 * x + c6;
    let p = p * x + c5;
    let p = p * x + c4;
    let p = p * x + c3;
    let p = p * x + 0.5;
    (p * x) * x + x
}

/// Coefficients of t^0 .. t^9 in the exponent of the complementary error function: the Chebyshev fit of W. Press and others, Numerical Recipes, section 6.2.
#[cfg(any(feature = "sequential", test))]
const ERFC: [f32; 10] = [
    -1.265_512_2,
    1.000_023_7,
    0.374_091_96,
    0.096_784_18,
    -0.186_288_06,
    0.278_868_07,
    -1.135_204,
    1.488_515_9,
    -0.822_152_23,
    0.170_872_77,
];

/// The complementary error function, with at most 4.1e-7 as error.
#[cfg(any(feature = "sequential", test))]
pub(crate) fn erfc(x: f32) -> f32 {
    let size = x.abs();
    let t = 1.0 / (1.0 + 0.5 * size);
    let [c0, c1, c2, c3, c4, c5, c6, c7, c8, c9] = ERFC;
    let p = c9 * t + c8;
    let p = p * t + c7;
    let p = p * t + c6;
    let p = p * t + c5;
    let p = p * t + c4;
    let p = p * t + c3;
    let p = p * t + c2;
    let p = p * t + c1;
    let p = p * t + c0;
    let far = t * exp(p - size * size);
    if x < 0.0 { 2.0 - far } else { far }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One pattern in this many is tried; fewer under Miri, which is slow.
    const STEP: u32 = if cfg!(miri) { 9_973_003 } else { 9_973 };

    #[test]
    fn the_rarer_functions_are_what_they_are_called() {
        let mut worst = [0f64; 3];
        let mut bits = 1u32;
        while f32::from_bits(bits) <= 20.0 {
            let x = f32::from_bits(bits);
            let wide = f64::from(x);
            if x <= 1.0 {
                worst[0] = worst[0].max((f64::from(ln1p(x)) - wide.ln_1p()).abs() / wide.ln_1p());
            }
            let exact = (-wide).exp_m1();
            worst[1] = worst[1].max((f64::from(expm1(-x)) - exact).abs() / exact.abs());
            for (x, wide) in [(x, wide), (-x, -wide)] {
                worst[2] = worst[2].max((f64::from(erfc(x)) - libm::erfc(wide)).abs());
            }
            bits += STEP;
        }
        let [ln1p_worst, expm1_worst, erfc_worst] = worst;
        assert!(ln1p_worst <= 1.3e-7 && expm1_worst <= 3e-7 && erfc_worst <= 4.1e-7, "{worst:?}");
        assert_eq!((ln1p(0.0), expm1(0.0), expm1(-1e30), erfc(1e30), erfc(-1e30)), (0.0, 0.0, -1.0, 0.0, 2.0));
    }

    #[test]
    fn tanh_is_the_tangent() {
        let mut bits = 1u32;
        while f32::from_bits(bits) < 20.0 {
            let x = f32::from_bits(bits);
            let exact = f64::from(x).tanh();
            assert!((f64::from(tanh(x)) - exact).abs() <= 2.5e-7 * exact.abs(), "{x:e}");
            assert_eq!(tanh(-x).to_bits(), (-tanh(x)).to_bits());
            bits += STEP;
        }
        assert_eq!((tanh(1e30), tanh(f32::NEG_INFINITY)), (1.0, -1.0));
        assert!(tanh(f32::NAN).is_nan());
    }

    #[test]
    fn ln_is_the_logarithm() {
        let mut bits = f32::MIN_POSITIVE.to_bits();
        while bits < f32::MAX.to_bits() {
            let x = f32::from_bits(bits);
            let exact = f64::from(x).ln();
            let error = (f64::from(ln(x)) - exact).abs();
            assert!(error <= 6e-8 || error <= 1.2e-7 * exact.abs(), "{x:e}: {error:e}");
            bits += STEP;
        }
        assert_eq!(ln(1.0), 0.0);
    }
}

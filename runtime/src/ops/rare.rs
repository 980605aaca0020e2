//! Hyperbolic tangent and natural logarithm, one definition each for every machine: called by dormouse's rarer arms.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tanh_is_the_tangent() {
        let mut bits = 1u32;
        while f32::from_bits(bits) < 20.0 {
            let x = f32::from_bits(bits);
            let exact = f64::from(x).tanh();
            assert!((f64::from(tanh(x)) - exact).abs() <= 2.5e-7 * exact.abs(), "{x:e}");
            assert_eq!(tanh(-x).to_bits(), (-tanh(x)).to_bits());
            bits += 9_973;
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
            bits += 9_973;
        }
        assert_eq!(ln(1.0), 0.0);
    }
}

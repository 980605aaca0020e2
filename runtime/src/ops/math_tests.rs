//! Accuracy of the functions against `f64`, asserted and printed.

use super::*;

/// How far `ours` is from `exact`, in the spacing of `f32` at `exact`.
fn ulps(ours: f32, exact: f64) -> f64 {
    let spacing = f64::from((exact as f32).abs().max(f32::MIN_POSITIVE));
    let exponent = ((spacing.to_bits() >> 52) as i32) - 1023;
    (f64::from(ours) - exact).abs() / f64::powi(2.0, exponent - 23)
}

/// Every `step`th bit pattern from `low` to `high`, both counted.
fn patterns(low: f32, high: f32, step: usize) -> impl Iterator<Item = f32> {
    (low.to_bits()..=high.to_bits()).step_by(step).chain([high.to_bits()]).map(f32::from_bits)
}

/// One pattern in this many is tried: over 20 million for exp, as many for sine and cosine; few under Miri, which looks at what is done and not at its bits. All of them, tried once, gave the figures in `math.rs`.
const STEP: usize = if cfg!(miri) { 3_000_017 } else { 97 };

#[test]
fn exp_is_within_its_stated_error() {
    let mut worst = (0.0, 0.0);
    let tiny = f32::from_bits(1);
    for x in patterns(tiny, EXP_HIGHEST, STEP).chain(patterns(-tiny, EXP_LOWEST, STEP)) {
        let error = ulps(exp(x), libm::exp(f64::from(x)));
        if error > worst.0 {
            worst = (error, x);
        }
    }
    println!("exp: {:.4} ulp at {:e}", worst.0, worst.1);
    assert!(worst.0 <= 1.36, "{worst:?}");
}

#[test]
fn exp_is_defined_everywhere() {
    for x in patterns(0.0, f32::INFINITY, 103 * STEP) {
        let (up, down) = (exp(x), exp(-x));
        assert!(if x > EXP_HIGHEST { up == f32::INFINITY } else { (1.0..f32::INFINITY).contains(&up) }, "{x:e}");
        assert!(if -x < EXP_LOWEST { down.to_bits() == 0 } else { (f32::MIN_POSITIVE..=1.0).contains(&down) }, "{x:e}");
    }
    for x in [EXP_HIGHEST, EXP_HIGHEST.next_down(), EXP_LOWEST, EXP_LOWEST.next_up()] {
        assert!(exp(x).is_normal(), "{x}");
    }
    assert_eq!(exp(EXP_HIGHEST.next_up()), f32::INFINITY);
    assert_eq!(exp(EXP_LOWEST.next_down()).to_bits(), 0);
    assert_eq!((exp(0.0), exp(-0.0)), (1.0, 1.0));
    assert_eq!((exp(f32::INFINITY), exp(f32::NEG_INFINITY)), (f32::INFINITY, 0.0));
    assert!(exp(f32::NAN).is_nan() && exp(-f32::NAN).is_nan());
}

#[test]
fn sine_and_cosine_are_within_their_stated_error() {
    let (mut worst_sin, mut worst_cos) = ((0.0, 0.0), (0.0, 0.0));
    let mut check = |x: f32| {
        let (sin, cos) = sin_cos(x);
        let (exact_sin, exact_cos) = (libm::sin(f64::from(x)), libm::cos(f64::from(x)));
        let error = (f64::from(sin) - exact_sin).abs();
        if error > worst_sin.0 {
            worst_sin = (error, x);
        }
        let error = (f64::from(cos) - exact_cos).abs();
        if error > worst_cos.0 {
            worst_cos = (error, x);
        }
    };
    for x in patterns(0.0, 100_000.0, STEP) {
        check(x);
        check(-x);
    }
    // Angles as they come: whole positions times a frequency of 1.
    for position in (0..=100_000u32).step_by(if cfg!(miri) { 997 } else { 1 }) {
        check(position as f32);
    }
    println!("sin: {:e} at {:e}; cos: {:e} at {:e}", worst_sin.0, worst_sin.1, worst_cos.0, worst_cos.1);
    assert!(worst_sin.0 <= 1.0e-7 && worst_cos.0 <= 1.0e-7, "{worst_sin:?} {worst_cos:?}");
}

#[test]
fn sine_and_cosine_are_bounded_everywhere() {
    for x in patterns(0.0, f32::MAX, 103 * STEP) {
        for x in [x, -x] {
            let (sin, cos) = sin_cos(x);
            assert!(sin.abs() <= 1.1 && cos.abs() <= 1.1, "{x:e}");
        }
    }
    let mut worst = 0.0f64;
    for x in (100_000..800_000u32).step_by(if cfg!(miri) { 9973 } else { 7 }) {
        let (sin, cos) = sin_cos(x as f32);
        worst = worst.max((f64::from(sin) - libm::sin(f64::from(x))).abs()).max((f64::from(cos) - libm::cos(f64::from(x))).abs());
    }
    println!("to 800,000: {worst:e}");
    assert!(worst <= 2.3e-7);
    for x in [f32::INFINITY, f32::NEG_INFINITY, f32::NAN] {
        let (sin, cos) = sin_cos(x);
        assert!(sin.is_nan() && cos.is_nan());
    }
    assert_eq!(sin_cos(0.0), (0.0, 1.0));
}

#[test]
fn rounding_is_to_nearest_even() {
    let limit = 2_097_152.0f32;
    for x in patterns(0.0, limit, 11 * STEP) {
        for x in [x, -x] {
            assert_eq!(round(x), x.round_ties_even(), "{x:e}");
        }
    }
    for x in [0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 0.500_000_06, 2_097_151.5, 2_097_150.5] {
        assert_eq!(round(x), x.round_ties_even(), "{x:e}");
    }
}

#[test]
fn sigmoid_and_silu_are_their_formulas() {
    for x in patterns(0.0, 200.0, 1031 * STEP) {
        for x in [x, -x] {
            assert_eq!(sigmoid(x).to_bits(), (1.0 / (1.0 + exp(-x))).to_bits());
            assert_eq!(silu(x).to_bits(), (x / (1.0 + exp(-x))).to_bits());
        }
    }
    assert_eq!((sigmoid(f32::NEG_INFINITY), sigmoid(0.0), sigmoid(f32::INFINITY)), (0.0, 0.5, 1.0));
    assert_eq!((silu(-1000.0), silu(0.0), silu(1000.0)), (-0.0, 0.0, 1000.0));
}

//! What layers of small networks do to each element at their end: one function an activation, so that firmware holds those alone that its network has.
//!
//! Each takes the values, the length of a row (which the softmax alone asks for) and the activation's own number.

use super::math::{exp, sigmoid, silu};
use super::rare::{erfc, expm1, ln1p, tanh};
use super::sum::sum8;
use super::{chip, parts};

/// An activation of a whole result.
pub type Activate = fn(values: &mut [f32], row: usize, number: f32);

/// Numbers of `selu`.
const SELU_SCALE: f32 = 1.050_701;
const SELU_ALPHA: f32 = 1.673_263_2;
/// sqrt(1/2).
const HALF_ROOT: f32 = core::f32::consts::FRAC_1_SQRT_2;
/// 2 sqrt(2/pi).
const GELU_SLOPE: f32 = 1.595_769_2;
const GELU_CUBE: f32 = 0.044_715;

macro_rules! activations {
    ($($(#[$doc:meta])* $name:ident: |$x:ident, $number:ident| $result:expr;)*) => {
        $($(#[$doc])*
        pub(crate) fn $name(values: &mut [f32], _: usize, $number: f32) {
            let _ = $number;
            for value in values {
                let $x = *value;
                *value = $result;
            }
        })*
    };
}

activations! {
    /// `x <= 0 ? 0 : x`
    relu: |x, number| if x <= 0.0 { 0.0 } else { x };
    /// `1 / (1 + exp(-x))`
    sigmoids: |x, number| sigmoid(x);
    /// The hyperbolic tangent.
    tanhs: |x, number| tanh(x);
    /// `x >= 0 ? x : number * x`
    leaky_relu: |x, number| if x >= 0.0 { x } else { number * x };
    /// `x > 0 ? x : number * expm1(x)`
    elu: |x, number| if x > 0.0 { x } else { number * expm1(x) };
    /// `x > 0 ? scale * x : (scale * alpha) * expm1(x)`
    selu: |x, number| if x > 0.0 { SELU_SCALE * x } else { (SELU_SCALE * SELU_ALPHA) * expm1(x) };
    /// `x > 0 ? x + ln1p(exp(-x)) : ln1p(exp(x))`
    softplus: |x, number| softplus_of(x);
    /// `x / (1 + |x|)`
    softsign: |x, number| x / (1.0 + x.abs());
    /// `clamp(x + 3, 0, 6) / 6`
    hard_sigmoid: |x, number| hard(x + 3.0) / 6.0;
    /// `exp(x)`
    exponential: |x, number| exp(x);
    /// `(x * 0.5) * erfc(-x * sqrt(1/2))`
    gelu: |x, number| (x * 0.5) * erfc(-x * HALF_ROOT);
    /// `x * sigmoid(2 sqrt(2/pi) * (x + 0.044715 * ((x * x) * x)))`
    gelu_tanh: |x, number| x * sigmoid(GELU_SLOPE * (x + GELU_CUBE * ((x * x) * x)));
    /// `x / (1 + exp(-x))`
    silus: |x, number| silu(x);
    /// `x * tanh(softplus(x))`
    mish: |x, number| x * tanh(softplus_of(x));
}

/// Nothing at all.
pub(crate) fn linear(_: &mut [f32], _: usize, _: f32) {}

/// Of each row: the largest is subtracted, then `exp`, then each divided by their canonical sum.
pub(crate) fn softmax(values: &mut [f32], row: usize, _: f32) {
    let mut rest = values;
    while !rest.is_empty() && row > 0 {
        let values = parts::next_mut(&mut rest, row);
        let largest = values.iter().fold(f32::NEG_INFINITY, |largest, value| if *value > largest { *value } else { largest });
        chip::exp_minus(values, largest);
        let sum = sum8(values);
        chip::divide(values, sum);
    }
}

fn softplus_of(x: f32) -> f32 {
    let far = ln1p(exp(-x.abs()));
    if x > 0.0 { x + far } else { far }
}

fn hard(x: f32) -> f32 {
    let x = if x < 0.0 { 0.0 } else { x };
    if x > 6.0 { 6.0 } else { x }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(activate: Activate, x: f32, number: f32) -> f32 {
        let mut values = [x];
        activate(&mut values, 1, number);
        let [value] = values;
        value
    }

    #[test]
    fn activations_are_their_formulas() {
        let softplus64 = |x: f64| if x > 0.0 { x + (-x).exp().ln_1p() } else { x.exp().ln_1p() };
        let sigmoid64 = |x: f64| 1.0 / (1.0 + (-x).exp());
        let cases: [(Activate, &dyn Fn(f64) -> f64); 15] = [
            (linear, &|x| x),
            (relu, &|x| x.max(0.0)),
            (sigmoids, &sigmoid64),
            (tanhs, &f64::tanh),
            (leaky_relu, &|x| if x >= 0.0 { x } else { 0.3 * x }),
            (elu, &|x| if x > 0.0 { x } else { 0.3 * x.exp_m1() }),
            (selu, &|x| 1.050_700_987_355_480_5 * if x > 0.0 { x } else { 1.673_263_242_354_377_2 * x.exp_m1() }),
            (softplus, &softplus64),
            (softsign, &|x| x / (1.0 + x.abs())),
            (hard_sigmoid, &|x| (x + 3.0).clamp(0.0, 6.0) / 6.0),
            (exponential, &f64::exp),
            (gelu, &|x| x * 0.5 * libm::erfc(-x * std::f64::consts::FRAC_1_SQRT_2)),
            (gelu_tanh, &|x| x * sigmoid64(1.595_769_121_605_730_7 * (x + 0.044_715 * x * x * x))),
            (silus, &|x| x * sigmoid64(x)),
            (mish, &|x| x * softplus64(x).tanh()),
        ];
        for (activate, exact) in cases {
            let mut x = -12.0f32;
            while x < 12.0 {
                let (found, exact) = (one(activate, x, 0.3), exact(f64::from(x)));
                assert!((f64::from(found) - exact).abs() <= 1e-6 * exact.abs() + 1e-7, "{x}: {found}, {exact}");
                x += if cfg!(miri) { 1.7 } else { 0.007 };
            }
        }
    }

    #[test]
    fn what_is_no_number_stays_visible() {
        for activate in [relu, sigmoids, tanhs, leaky_relu, elu, selu, softplus, softsign, hard_sigmoid, exponential, gelu, silus, mish] {
            assert!(one(activate, f32::NAN, 1.0).is_nan());
        }
        let mut values = [1.0, f32::NAN];
        softmax(&mut values, 2, 0.0);
        assert!(values.iter().all(|value| value.is_nan()));
    }

    #[test]
    fn rows_of_a_softmax_are_by_themselves() {
        let mut values = [0.0, 0.0, 1000.0, 1000.0, -5.0, -5.0];
        softmax(&mut values, 2, 0.0);
        assert_eq!(values, [0.5; 6]);
    }
}

//! Passes over the values of one group, which the searches for scales, multipliers and offsets are made of. All of them are single IEEE operations in a fixed order, so the same input gives
//! the same codes on every machine.

/// The nearest integer, ties to even, for magnitudes to 2^21 (larger ones are clamped afterwards). A call of the C library on processors without an instruction for it would be slow.
#[inline]
pub(super) fn round(x: f32) -> f32 {
    const MAGIC: f32 = 12_582_912.0;
    (x + MAGIC) - MAGIC
}

/// `x` within `low` and `high`; written so that compilers find the vector instructions.
#[inline]
fn within(x: f32, low: f32, high: f32) -> f32 {
    let x = if x < high { x } else { high };
    if x > low { x } else { low }
}

/// The sum of `term` over the values, in eight lanes.
#[inline]
fn sum(values: &[f32], term: impl Fn(f32) -> f32) -> f32 {
    let mut lanes = [0.0f32; 8];
    let (blocks, rest) = values.as_chunks::<8>();
    for block in blocks {
        for (lane, value) in lanes.iter_mut().zip(block) {
            *lane += term(*value);
        }
    }
    for (lane, value) in lanes.iter_mut().zip(rest) {
        *lane += term(*value);
    }
    let [a, b, c, d, e, f, g, h] = lanes;
    ((a + e) + (c + g)) + ((b + f) + (d + h))
}

/// The largest magnitude.
pub(super) fn max_abs(values: &[f32]) -> f32 {
    values.iter().fold(0.0, |most, value| if value.abs() > most { value.abs() } else { most })
}

/// The integer nearest to `y` among `step` times -127..=127, as that code.
#[inline]
pub(super) fn code_q8(y: f32, inverse: f32) -> f32 {
    within(round(y * inverse), -127.0, 127.0)
}

/// The squared error of `y` as codes of `step`.
pub(super) fn error_q8(y: &[f32], step: f32) -> f32 {
    let inverse = 1.0 / step;
    sum(y, |y| {
        let difference = y - step * code_q8(y, inverse);
        difference * difference
    })
}

/// The code 0..=15 of `y` where codes stand for `step * code + offset`.
#[inline]
pub(super) fn code_q4(y: f32, inverse: f32, offset: f32) -> f32 {
    within(round((y - offset) * inverse), 0.0, 15.0)
}

/// The squared error of `y` as codes of `step` and `offset`.
pub(super) fn error_q4(y: &[f32], step: f32, offset: f32) -> f32 {
    let inverse = 1.0 / step;
    sum(y, |y| {
        let difference = y - (step * code_q4(y, inverse, offset) + offset);
        difference * difference
    })
}

/// Sums over the codes that `step` and `offset` give, for a line through the values by least squares.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fit {
    n: f64,
    codes: f64,
    squares: f64,
    products: f64,
    values: f64,
}

impl Fit {
    pub(super) fn new(y: &[f32], step: f32, offset: f32) -> Self {
        let inverse = 1.0 / step;
        let code = |y| code_q4(y, inverse, offset);
        Self {
            n: y.len() as f64,
            codes: f64::from(sum(y, code)),
            squares: f64::from(sum(y, |y| code(y) * code(y))),
            products: f64::from(sum(y, |y| code(y) * y)),
            values: f64::from(sum(y, |y| y)),
        }
    }

    /// The step of the best line; 0 where all codes are one.
    pub(super) fn step(&self) -> f64 {
        let spread = self.n * self.squares - self.codes * self.codes;
        if spread > 0.0 { (self.n * self.products - self.codes * self.values) / spread } else { 0.0 }
    }

    /// The best offset for this step.
    pub(super) fn offset(&self, step: f64) -> f64 {
        (self.values - step * self.codes) / self.n
    }
}

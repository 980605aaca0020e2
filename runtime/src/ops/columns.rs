//! Vector times matrix where the matrix has its inputs first, as dormouse stores it in format 1, and products with weights that are changed as they are read: ternary factors among floats.
//!
//! Every output is the `dot8` that [`matvec`](super::matvec::matvec) gives for the matrix turned round. Nothing is turned: eight sums are kept for each of a block of columns.
#![cfg_attr(
    not(any(feature = "f32", feature = "f16", feature = "bf16")),
    allow(dead_code, unused_imports, unused_variables, reason = "a build without float matrices has nothing to multiply")
)]

use super::convert::{self, Stored};
use super::parts::parts;
use super::portable::add_up;
use super::sum::{Lanes, tree};
use crate::format::{DType, TensorView};

/// What a stored weight stands for.
pub(crate) trait Weights {
    /// What is found out about a row before its weights are read.
    type Row: Copy;
    /// Looks at a stored row.
    fn row(&self, values: impl Iterator<Item = f32>) -> Self::Row;
    /// The weight.
    fn weight(&self, row: Self::Row, stored: f32) -> f32;
}

/// The weights themselves.
pub(crate) struct AsStored;

/// The codes of a ternary factor: the sign of what is larger than the threshold, else 0.
pub(crate) struct Codes {
    /// 0.7 of the factor's mean magnitude.
    pub(crate) threshold: f32,
}

/// What is left of a row in 8 bits with one scale: dormouse's emulation of training in fp8.
pub(crate) struct Eighths;

impl Weights for AsStored {
    type Row = ();
    #[inline(always)]
    fn row(&self, _: impl Iterator<Item = f32>) {}
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "the innermost step")]
    fn weight(&self, (): (), stored: f32) -> f32 {
        stored
    }
}

impl Weights for Codes {
    type Row = ();
    #[inline(always)]
    fn row(&self, _: impl Iterator<Item = f32>) {}
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "the innermost step")]
    fn weight(&self, (): (), stored: f32) -> f32 {
        let up = if stored > self.threshold { 1.0 } else { 0.0 };
        if stored < -self.threshold { -1.0 } else { up }
    }
}

impl Weights for Eighths {
    /// The largest magnitude.
    type Row = f32;
    fn row(&self, values: impl Iterator<Item = f32>) -> f32 {
        values.fold(0.0, |largest, value| if value.abs() > largest { value.abs() } else { largest })
    }
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "the innermost step")]
    fn weight(&self, largest: f32, stored: f32) -> f32 {
        if largest == 0.0 { 0.0 } else { super::math::round(stored / largest * 127.0) / 127.0 * largest }
    }
}

/// Calls `$body` with the elements of a float tensor as slice and the way in which they are stored; `$other` for types that are not floats or were left out of the build.
macro_rules! with_elements {
    ($w:expr, $stored:ident, $items:ident => $body:expr, $other:expr) => {
        match $w.dtype() {
            #[cfg(feature = "f32")]
            DType::F32 => match $w.as_f32() {
                Some($items) => {
                    type $stored = convert::F32;
                    $body
                }
                None => {
                    type $stored = convert::F32Bytes;
                    let $items = $w.bytes().as_chunks::<4>().0;
                    $body
                }
            },
            #[cfg(feature = "f16")]
            DType::F16 => match $w.as_u16() {
                Some($items) => {
                    type $stored = convert::F16;
                    $body
                }
                None => {
                    type $stored = convert::F16Bytes;
                    let $items = $w.bytes().as_chunks::<2>().0;
                    $body
                }
            },
            #[cfg(feature = "bf16")]
            DType::Bf16 => match $w.as_u16() {
                Some($items) => {
                    type $stored = convert::Bf16;
                    $body
                }
                None => {
                    type $stored = convert::Bf16Bytes;
                    let $items = $w.bytes().as_chunks::<2>().0;
                    $body
                }
            },
            _ => $other,
        }
    };
}

/// `out[o]` = `dot8` over the inputs i of the weight at (i, o) and `x[i]`.
///
/// `w` is (length of `x`, at least `out.len()`), of any float type at any address. `lanes` is scratch, at least 8 elements; the more, the fewer times `x` is gone through. What does not fit gives
/// zeros.
pub(crate) fn vecmat(out: &mut [f32], w: &TensorView<'_>, x: &[f32], weights: &impl Weights, lanes: &mut [f32]) {
    let cols = w.cols();
    if w.rows() != x.len() || cols < out.len() {
        return out.fill(0.0);
    }
    with_elements!(w, S, items => columns::<S, _>(out, items, cols, x, weights, lanes), out.fill(0.0));
}

fn columns<S: Stored, W: Weights>(out: &mut [f32], items: &[S::Item], cols: usize, x: &[f32], weights: &W, lanes: &mut [f32]) {
    let block = lanes.len() / 8;
    let (mut rest, mut first) = (out, 0usize);
    while !rest.is_empty() && block > 0 {
        let n = block.min(rest.len());
        let Some((part, after)) = rest.split_at_mut_checked(n) else { return };
        let Some(lanes) = lanes.get_mut(..n.saturating_mul(8)) else { return };
        lanes.fill(0.0);
        let end = first.saturating_add(n);
        let mut lane = 0usize;
        for (x, row) in x.iter().zip(parts(items, cols)) {
            let found = weights.row(row.iter().map(|item| S::widen(*item)));
            let start = lane.saturating_mul(n);
            let sums = lanes.get_mut(start..start.saturating_add(n)).unwrap_or_default();
            for (sum, item) in sums.iter_mut().zip(row.get(first..end).unwrap_or(&[])) {
                *sum += weights.weight(found, S::widen(*item)) * *x;
            }
            lane = (lane + 1) & 7;
        }
        add_up(part, lanes);
        first = end;
        rest = after;
    }
}

/// `out[r]` = `dot8` of the weights of row r and `x`; rows are as long as `x`.
pub(crate) fn matvec_of(out: &mut [f32], w: &TensorView<'_>, x: &[f32], weights: &impl Weights) {
    if w.cols() != x.len() || w.rows() < out.len() {
        return out.fill(0.0);
    }
    with_elements!(w, S, items => rows::<S, _>(out, items, x, weights), out.fill(0.0));
}

fn rows<S: Stored, W: Weights>(out: &mut [f32], items: &[S::Item], x: &[f32], weights: &W) {
    for (y, row) in out.iter_mut().zip(parts(items, x.len())) {
        let found = weights.row(row.iter().map(|item| S::widen(*item)));
        let mut lanes: Lanes = [0.0; 8];
        let ((row, row_rest), (x, x_rest)) = (row.as_chunks::<8>(), x.as_chunks::<8>());
        for (row, x) in row.iter().zip(x) {
            for ((lane, item), x) in lanes.iter_mut().zip(row).zip(x) {
                *lane += weights.weight(found, S::widen(*item)) * *x;
            }
        }
        for ((lane, item), x) in lanes.iter_mut().zip(row_rest).zip(x_rest) {
            *lane += weights.weight(found, S::widen(*item)) * *x;
        }
        *y = tree(lanes);
    }
}

/// The mean magnitude of a float matrix: the canonical sum over its rows of the canonical sums of their magnitudes, divided by the number of elements. 0 for other types.
pub fn mean_magnitude(w: &TensorView<'_>) -> f32 {
    let cols = w.cols();
    with_elements!(w, S, items => mean_of::<S>(items, cols), 0.0)
}

fn mean_of<S: Stored>(items: &[S::Item], cols: usize) -> f32 {
    let mut lanes: Lanes = [0.0; 8];
    let mut lane = 0usize;
    for row in parts(items, cols) {
        let mut sums: Lanes = [0.0; 8];
        let (eights, rest) = row.as_chunks::<8>();
        for items in eights {
            for (sum, item) in sums.iter_mut().zip(items) {
                *sum += S::widen(*item).abs();
            }
        }
        for (sum, item) in sums.iter_mut().zip(rest) {
            *sum += S::widen(*item).abs();
        }
        if let Some(total) = lanes.get_mut(lane) {
            *total += tree(sums);
        }
        lane = (lane + 1) & 7;
    }
    if items.is_empty() { 0.0 } else { tree(lanes) / items.len() as f32 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Dims;
    use crate::ops::activation::Activation;
    use crate::ops::matvec::matvec;
    use crate::ops::test_rng::Rng;

    fn bytes(values: &[f32], dtype: DType) -> Vec<u8> {
        match dtype {
            DType::F32 => values.iter().flat_map(|v| v.to_le_bytes()).collect(),
            DType::F16 => values.iter().flat_map(|v| half::f16::from_f32(*v).to_le_bytes()).collect(),
            _ => values.iter().flat_map(|v| half::bf16::from_f32(*v).to_le_bytes()).collect(),
        }
    }

    fn bits(values: &[f32]) -> Vec<u32> {
        values.iter().map(|v| v.to_bits()).collect()
    }

    #[test]
    fn inputs_first_gives_the_bits_of_the_matrix_turned_round() {
        let mut rng = Rng::new(31);
        for dtype in [DType::F32, DType::F16, DType::Bf16] {
            for (inputs, outputs) in [(1, 1), (7, 3), (8, 8), (33, 21), (64, 40), (100, 12)] {
                let values = rng.floats(inputs * outputs);
                let turned: Vec<f32> = (0..outputs).flat_map(|o| (0..inputs).map(move |i| i * outputs + o)).map(|at| values[at]).collect();
                let x = rng.floats(inputs);
                for offset in [0, 1] {
                    let stored = [vec![0; offset], bytes(&values, dtype)].concat();
                    let w = TensorView::new(0, dtype, Dims::matrix(inputs as u32, outputs as u32), &stored[offset..]).unwrap();
                    let turned = bytes(&turned, dtype);
                    let turned = TensorView::new(0, dtype, Dims::matrix(outputs as u32, inputs as u32), &turned).unwrap();
                    let mut expected = vec![0.0; outputs];
                    matvec(&mut expected, &turned, &mut Activation::new(&x, &mut []), None);
                    for block in [1, 5, outputs] {
                        for wanted in [outputs, outputs.div_ceil(2)] {
                            let (mut out, mut lanes) = (vec![7.0; wanted], vec![f32::NAN; 8 * block]);
                            vecmat(&mut out, &w, &x, &AsStored, &mut lanes);
                            assert_eq!(bits(&out), bits(&expected[..wanted]), "{dtype} {inputs} x {outputs} + {offset}, {block} at a time");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn codes_are_those_of_the_definition() {
        let values = [0.5f32, -0.5, 0.35, -0.35, 0.36, -0.36, 0.0, 1.0];
        let stored = bytes(&values, DType::F32);
        let w = TensorView::new(0, DType::F32, Dims::matrix(8, 1), &stored).unwrap();
        let mean = mean_magnitude(&w);
        assert!((mean - 3.42 / 8.0).abs() < 1e-7, "{mean}");
        let codes = Codes { threshold: 0.35 };
        let found: Vec<f32> = values.iter().map(|v| codes.weight((), *v)).collect();
        assert_eq!(found, [1.0, -1.0, 0.0, 0.0, 1.0, -1.0, 0.0, 1.0]);
        let row = TensorView::new(0, DType::F32, Dims::matrix(1, 8), &stored).unwrap();
        let mut out = [0.0];
        matvec_of(&mut out, &row, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0], &codes);
        assert_eq!(out, [1.0 - 2.0 + 5.0 - 6.0 + 8.0]);
        let mut out = [0.0; 1];
        vecmat(&mut out, &w, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0], &codes, &mut [0.0; 8]);
        assert_eq!(out, [6.0]);
        // 127 steps up to the largest of a row.
        assert_eq!(Eighths.row([0.5, -2.0].into_iter()), 2.0);
        assert_eq!(Eighths.weight(2.0, -2.0), -2.0);
        assert_eq!(Eighths.weight(127.0, 0.6), 1.0);
        assert_eq!(Eighths.weight(0.0, 0.0), 0.0);
    }

    #[test]
    fn what_does_not_fit_gives_zeros() {
        let stored = [0x40u8; 24];
        let w = TensorView::new(0, DType::F32, Dims::matrix(2, 3), &stored).unwrap();
        for (len, inputs) in [(4, 2), (3, 3), (2, 1)] {
            let mut out = vec![7.0; len];
            vecmat(&mut out, &w, &vec![1.0; inputs], &AsStored, &mut [0.0; 32]);
            assert!(out.iter().all(|y| *y == 0.0));
        }
        let mut out = [7.0; 3];
        matvec_of(&mut out, &w, &[1.0; 3], &AsStored);
        assert_eq!(out, [0.0; 3]);
    }
}

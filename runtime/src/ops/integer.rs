//! Integer matrices (q8, q4) times integer activations, exact to the end of the row, and ternary ones (t2), in plain Rust: for machines without a form of their own in `chip`, and the
//! reference for those forms.
#![cfg_attr(
    any(all(target_arch = "arm", target_os = "none", target_abi = "eabihf"), not(any(feature = "q8", feature = "q4", feature = "t2"))),
    allow(dead_code, unused_imports, reason = "the kernels there take most of this over; builds without integer matrices need none of it")
)]

#[cfg(feature = "t2")]
use super::sum::{Lanes, tree};
use crate::format::{DType, TensorView};

/// An activation vector as integers: what [`Activation`](super::activation::Activation) hands to the kernels.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Integers<'a> {
    /// One code an element, and zeros after them to the next multiple of 8.
    pub(crate) codes: &'a [i16],
    /// q4: the sum of the codes of each of the matrix's groups.
    pub(crate) sums: &'a [i32],
    /// What a code of 1 is worth.
    pub(crate) scale: f32,
}

/// So many products of a q8 code and an activation's fit 32 bits; those of q4 do all the more.
const EXACT_IN_32_BITS: usize = 512;

/// How the codes of a matrix are packed.
trait Packed {
    /// Elements a byte.
    const PER_BYTE: usize;

    /// The sum of the products of the packed codes and `x`, of which there are at most [`EXACT_IN_32_BITS`].
    fn dot(packed: &[u8], x: &[i16]) -> i32;
}

/// Signed bytes.
#[cfg(feature = "q8")]
struct Bytes;
/// Nibbles, the low one of a byte first.
#[cfg(feature = "q4")]
struct Nibbles;

#[cfg(feature = "q8")]
impl Packed for Bytes {
    const PER_BYTE: usize = 1;

    #[inline(always)]
    fn dot(packed: &[u8], x: &[i16]) -> i32 {
        let product = |w: u8, x: i16| i32::from(w.cast_signed()).wrapping_mul(i32::from(x));
        if cfg!(not(target_os = "none")) {
            return packed.iter().zip(x).fold(0, |sum: i32, (w, x)| sum.wrapping_add(product(*w, *x)));
        }
        let ((packed, w_rest), (x, x_rest)) = (packed.as_chunks::<4>(), x.as_chunks::<4>());
        let mut sum = 0i32;
        for ([w0, w1, w2, w3], [x0, x1, x2, x3]) in packed.iter().zip(x) {
            sum = sum.wrapping_add(product(*w0, *x0)).wrapping_add(product(*w1, *x1));
            sum = sum.wrapping_add(product(*w2, *x2)).wrapping_add(product(*w3, *x3));
        }
        w_rest.iter().zip(x_rest).fold(sum, |sum, (w, x)| sum.wrapping_add(product(*w, *x)))
    }
}

#[cfg(feature = "q4")]
impl Packed for Nibbles {
    const PER_BYTE: usize = 2;

    #[inline(always)]
    fn dot(packed: &[u8], x: &[i16]) -> i32 {
        let (pairs, last) = x.as_chunks::<2>();
        let mut sum = 0i32;
        let mut packed = packed.iter();
        for ([even, odd], w) in pairs.iter().zip(&mut packed) {
            let (low, high) = (i32::from(*w & 15), i32::from(*w >> 4));
            sum = sum.wrapping_add(low.wrapping_mul(i32::from(*even))).wrapping_add(high.wrapping_mul(i32::from(*odd)));
        }
        if let ([x], Some(w)) = (last, packed.next()) {
            sum = sum.wrapping_add(i32::from(*w & 15).wrapping_mul(i32::from(*x)));
        }
        sum
    }
}

/// `out[r] = f32(S) * (row_scale[r] * scale)`, S the sum over the groups of multiplier * (sum of the products) and for q4 offset * (sum of the activation's codes); zeros for other types and
/// for too few activations.
#[cfg_attr(not(any(feature = "q8", feature = "q4")), allow(unused_variables, reason = "a build without integer matrices"))]
pub(crate) fn matvec(out: &mut [f32], w: &TensorView<'_>, x: Integers<'_>) {
    match w.dtype() {
        #[cfg(feature = "q8")]
        DType::Q8 => rows::<Bytes>(out, w, x),
        #[cfg(feature = "q4")]
        DType::Q4 => rows::<Nibbles>(out, w, x),
        _ => out.fill(0.0),
    }
}

#[cfg(any(feature = "q8", feature = "q4"))]
fn rows<P: Packed>(out: &mut [f32], w: &TensorView<'_>, x: Integers<'_>) {
    let (planes, group) = (w.planes(), w.group_len());
    let (stride, groups) = (planes.row_stride as usize, planes.groups as usize);
    let Some(codes) = x.codes.get(..w.cols()).filter(|codes| !codes.is_empty() && stride > 0 && groups > 0) else {
        out.fill(0.0);
        return;
    };
    // A row that is one group has no multiplier: it is 1.
    let (multipliers, offsets) = (w.multipliers(), w.offsets().as_chunks::<2>().0);
    let scales = w.scales().as_chunks::<4>().0;
    let mut first = 0usize;
    for ((y, row), scale) in out.iter_mut().zip(w.codes().chunks_exact(stride)).zip(scales) {
        let multipliers = multipliers.get(first..).unwrap_or(&[]);
        let mut sum = if multipliers.is_empty() { group_dot::<P>(row, codes) } else { 0 };
        for ((row, x), multiplier) in row.chunks(group.div_ceil(P::PER_BYTE)).zip(codes.chunks(group)).zip(multipliers) {
            sum += group_dot::<P>(row, x) * i64::from(*multiplier);
        }
        let offsets = offsets.get(first..).unwrap_or(&[]);
        for (offset, group_sum) in offsets.iter().zip(x.sums).take(groups) {
            sum += i64::from(i16::from_le_bytes(*offset)) * i64::from(*group_sum);
        }
        *y = sum as f32 * (f32::from_le_bytes(*scale) * x.scale);
        first = first.wrapping_add(groups);
    }
}

/// The sum of the products of one group, however long.
#[cfg(any(feature = "q8", feature = "q4"))]
#[inline(always)]
#[allow(clippy::inline_always, reason = "compiled into the row loop")]
fn group_dot<P: Packed>(packed: &[u8], x: &[i16]) -> i64 {
    if x.len() <= EXACT_IN_32_BITS {
        return i64::from(P::dot(packed, x));
    }
    long_dot::<P>(packed, x)
}

#[cfg(any(feature = "q8", feature = "q4"))]
#[inline(never)]
fn long_dot<P: Packed>(packed: &[u8], x: &[i16]) -> i64 {
    let parts = packed.chunks(EXACT_IN_32_BITS / P::PER_BYTE).zip(x.chunks(EXACT_IN_32_BITS));
    parts.fold(0, |sum, (packed, x)| sum.wrapping_add(i64::from(P::dot(packed, x))))
}

/// `out[r] = scale * dot8(row r of ternary codes, x)`: the sum first, then the scale.
#[cfg(feature = "t2")]
pub(crate) fn matvec_t2(out: &mut [f32], w: &TensorView<'_>, x: &[f32]) {
    let (stride, scale) = (w.planes().row_stride as usize, w.scale());
    if stride == 0 {
        out.fill(0.0);
        return;
    }
    for (y, row) in out.iter_mut().zip(w.codes().chunks_exact(stride)) {
        let mut lanes: Lanes = [0.0; 8];
        for (pair, x) in row.chunks(2).zip(x.chunks(8)) {
            let codes = pair.iter().rev().fold(0u32, |codes, byte| codes << 8 | u32::from(*byte));
            let mut shift = 0u32;
            for (lane, x) in lanes.iter_mut().zip(x) {
                *lane += ternary(codes >> (shift & 31)) * *x;
                shift = shift.wrapping_add(2);
            }
        }
        *y = scale * tree(lanes);
    }
}

#[cfg(feature = "t2")]
#[inline]
fn ternary(code: u32) -> f32 {
    match code & 3 {
        1 => 1.0,
        2 => -1.0,
        _ => 0.0,
    }
}

/// `out` = row `row` of a quantised matrix, each element its integer times the scale: one rounding.
pub(crate) fn widen_row(out: &mut [f32], w: &TensorView<'_>, row: usize) {
    let scale = if w.dtype() == DType::T2 { w.scale() } else { w.row_scale(row) };
    for (column, y) in out.iter_mut().enumerate() {
        *y = w.integer(row, column) as f32 * scale;
    }
}

//! Integer matrices (q8, q4) times integer activations, exact to the end of the row, and ternary ones (t2), in plain Rust: for machines without a form of their own in `chip`, and the
//! reference for those forms.
#![cfg_attr(
    any(all(target_arch = "arm", target_os = "none", target_abi = "eabihf"), not(any(feature = "q8", feature = "q4"))),
    allow(dead_code, unused_imports, reason = "the kernels there take most of this over; builds without integer matrices need none of it")
)]

#[cfg(any(feature = "q8", feature = "q4"))]
use super::convert::from_i64;
#[cfg(any(feature = "q8", feature = "q4", feature = "t2"))]
use super::parts::parts;
#[cfg(feature = "t2")]
use super::sum::{Lanes, tree};
use crate::format::{DType, Quantised, TensorView};

/// An activation vector as integers: what [`Activation`](super::activation::Activation) hands to the kernels.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Integers<'a> {
    /// One code an element, and zeros after them to the next multiple of 8.
    pub(crate) codes: &'a [i16],
    /// q4: the sum of the codes of each of the matrix's groups.
    pub(crate) sums: &'a [i32],
    /// What a code of 1 is worth.
    pub(crate) scale: f32,
    /// How the codes lie.
    #[cfg(x86_64_host)]
    pub(crate) form: super::chip::Form,
}

/// So many products of a q8 code and an activation's fit 32 bits; those of q4 do all the more.
const EXACT_IN_32_BITS: usize = 512;

/// The type of a matrix: where a build has one type alone, that, so that code for it holds nothing for others. [`is_only`] has been asked.
#[inline(always)]
#[allow(clippy::inline_always, reason = "a constant in firmware with one type of weights")]
pub(crate) fn only(dtype: DType) -> DType {
    const FLOATS: bool = cfg!(any(feature = "f32", feature = "f16", feature = "bf16"));
    match (cfg!(feature = "q8"), cfg!(feature = "q4"), cfg!(feature = "t2")) {
        (true, false, false) if !FLOATS => DType::Q8,
        (false, true, false) if !FLOATS => DType::Q4,
        _ => dtype,
    }
}

/// Whether [`only`] tells the truth.
#[inline(always)]
#[allow(clippy::inline_always, reason = "true in most builds")]
pub(crate) fn is_only(dtype: DType) -> bool {
    only(dtype) == dtype
}

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
    #[allow(clippy::inline_always, reason = "compiled into the row loop")]
    fn dot(packed: &[u8], x: &[i16]) -> i32 {
        if cfg!(target_os = "none") {
            return dot_by_fours(packed, x);
        }
        packed.iter().zip(x).fold(0, |sum: i32, (w, x)| sum.wrapping_add(product(*w, *x)))
    }
}

#[cfg(feature = "q8")]
#[inline(always)]
#[allow(clippy::inline_always, reason = "one multiplication")]
fn product(w: u8, x: i16) -> i32 {
    i32::from(w.cast_signed()).wrapping_mul(i32::from(x))
}

/// The dot product of q8 codes for compilers that do not vectorise it.
#[cfg(feature = "q8")]
#[inline(always)]
#[allow(clippy::inline_always, reason = "compiled into the row loop")]
pub(crate) fn dot_by_fours(packed: &[u8], x: &[i16]) -> i32 {
    // Both as long as the shorter one, or the fours of the one could meet what is left of the other: rows are padded, activations are not.
    let n = packed.len().min(x.len());
    let (packed, x) = (packed.get(..n).unwrap_or(&[]), x.get(..n).unwrap_or(&[]));
    let ((packed, w_rest), (x, x_rest)) = (packed.as_chunks::<4>(), x.as_chunks::<4>());
    let mut sum = 0i32;
    for ([w0, w1, w2, w3], [x0, x1, x2, x3]) in packed.iter().zip(x) {
        sum = sum.wrapping_add(product(*w0, *x0)).wrapping_add(product(*w1, *x1));
        sum = sum.wrapping_add(product(*w2, *x2)).wrapping_add(product(*w3, *x3));
    }
    w_rest.iter().zip(x_rest).fold(sum, |sum, (w, x)| sum.wrapping_add(product(*w, *x)))
}

#[cfg(feature = "q4")]
impl Packed for Nibbles {
    const PER_BYTE: usize = 2;

    #[inline(always)]
    #[allow(clippy::inline_always, reason = "compiled into the row loop")]
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
#[cfg(any(test, not(x86_64_host)))]
#[inline]
pub(crate) fn matvec(out: &mut [f32], w: &TensorView<'_>, x: Integers<'_>) {
    matvec_from(out, w, 0, x);
}

/// The same for the rows from `first` on.
#[cfg_attr(not(any(feature = "q8", feature = "q4")), allow(unused_variables, reason = "a build without integer matrices"))]
pub(crate) fn matvec_from(out: &mut [f32], w: &TensorView<'_>, first: usize, x: Integers<'_>) {
    match w.dtype() {
        #[cfg(feature = "q8")]
        DType::Q8 => rows::<Bytes>(out, w, first, x),
        #[cfg(feature = "q4")]
        DType::Q4 => rows::<Nibbles>(out, w, first, x),
        _ => out.fill(0.0),
    }
}

#[cfg(any(feature = "q8", feature = "q4"))]
fn rows<P: Packed>(out: &mut [f32], w: &TensorView<'_>, first_row: usize, x: Integers<'_>) {
    let Quantised { codes, row_stride, group_len, groups, scales, multipliers, offsets } = w.quantised();
    let Some(x_codes) = x.codes.get(..w.cols()).filter(|x| !x.is_empty() && row_stride > 0) else {
        out.fill(0.0);
        return;
    };
    let offsets = offsets.as_chunks::<2>().0;
    let (codes, scales) =
        (codes.get(first_row.wrapping_mul(row_stride)..).unwrap_or(&[]), scales.get(first_row.wrapping_mul(4)..).unwrap_or(&[]));
    let mut first = first_row.wrapping_mul(groups);
    for ((y, row), scale) in out.iter_mut().zip(parts(codes, row_stride)).zip(scales.as_chunks::<4>().0) {
        let multipliers = multipliers.get(first..).unwrap_or(&[]);
        // A row that is one group has no multiplier: it is 1.
        let mut sum = if multipliers.is_empty() { group_dot::<P>(row, x_codes) } else { 0 };
        for ((row, x), multiplier) in parts(row, group_len.div_ceil(P::PER_BYTE)).zip(parts(x_codes, group_len)).zip(multipliers) {
            sum = sum.wrapping_add(group_dot::<P>(row, x).wrapping_mul(i64::from(*multiplier)));
        }
        let offsets = offsets.get(first..).unwrap_or(&[]);
        for (offset, group_sum) in offsets.iter().zip(x.sums).take(groups) {
            sum = sum.wrapping_add(i64::from(i16::from_le_bytes(*offset)).wrapping_mul(i64::from(*group_sum)));
        }
        *y = from_i64(sum) * (f32::from_le_bytes(*scale) * x.scale);
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
    let parts = parts(packed, EXACT_IN_32_BITS / P::PER_BYTE).zip(parts(x, EXACT_IN_32_BITS));
    parts.fold(0, |sum, (packed, x)| sum.wrapping_add(i64::from(P::dot(packed, x))))
}

/// `out[r] = scale * dot8(row r of ternary codes, x)`: the sum first, then the scale.
#[cfg(feature = "t2")]
pub(crate) fn matvec_t2(out: &mut [f32], w: &TensorView<'_>, x: &[f32]) {
    let Quantised { codes, row_stride, scales, .. } = w.quantised();
    let scale = scale_at(scales, 0);
    if row_stride == 0 {
        out.fill(0.0);
        return;
    }
    for (y, row) in out.iter_mut().zip(parts(codes, row_stride)) {
        let mut lanes: Lanes = [0.0; 8];
        for (pair, x) in row.chunks(2).zip(x.chunks(8)) {
            let codes = pair.iter().rev().fold(0u32, |codes, byte| codes << 8 | u32::from(*byte));
            let mut shift = 0u32;
            for (lane, x) in lanes.iter_mut().zip(x) {
                *lane += ternary(codes >> (shift & 31)) as f32 * *x;
                shift = shift.wrapping_add(2);
            }
        }
        *y = scale * tree(lanes);
    }
}

/// `out` = row `row` of a quantised matrix, each element its integer times the scale: one rounding.
#[inline(never)]
pub(crate) fn widen_row(out: &mut [f32], w: &TensorView<'_>, row: usize) {
    let planes = w.quantised();
    let dtype = only(w.dtype());
    let scale = scale_at(planes.scales, if dtype == DType::T2 { 0 } else { row });
    let mut out = out.iter_mut();
    for_each(dtype, &planes, row, w.cols(), &mut |integer| {
        if let Some(y) = out.next() {
            *y = integer as f32 * scale;
        }
    });
}

/// Calls `f` with the integer of each element of a row: code times multiplier plus offset. For rows that are read seldom or lie badly.
#[inline(never)]
pub(crate) fn for_each(dtype: DType, planes: &Quantised<'_>, row: usize, cols: usize, f: &mut dyn FnMut(i32)) {
    let mut codes = planes.codes.get(row.wrapping_mul(planes.row_stride)..).unwrap_or(&[]).iter();
    let first = row.wrapping_mul(planes.groups);
    let mut multipliers = planes.multipliers.get(first..).unwrap_or(&[]).iter();
    let mut offsets = planes.offsets.as_chunks::<2>().0.get(first..).unwrap_or(&[]).iter();
    let (mut byte, mut multiplier, mut offset, mut left) = (0u8, 1, 0, 0usize);
    for column in 0..cols {
        if left == 0 {
            left = planes.group_len;
            multiplier = multipliers.next().map_or(1, |multiplier| i32::from(*multiplier));
            offset = offsets.next().map_or(0, |offset| i32::from(i16::from_le_bytes(*offset)));
        }
        left = left.wrapping_sub(1);
        let per_byte = match dtype {
            DType::Q8 => 0,
            DType::Q4 => 1,
            _ => 3,
        };
        if column & per_byte == 0 {
            byte = codes.next().copied().unwrap_or(0);
        }
        let code = match dtype {
            DType::Q8 => i32::from(byte.cast_signed()),
            DType::Q4 => i32::from(byte & 15),
            _ => ternary(u32::from(byte)),
        };
        byte >>= if dtype == DType::Q4 { 4 } else { 2 };
        f(code.wrapping_mul(multiplier).wrapping_add(offset));
    }
}

/// A ternary code's number.
fn ternary(code: u32) -> i32 {
    match code & 3 {
        1 => 1,
        2 => -1,
        _ => 0,
    }
}

/// A scale of a plane of them; 0 past the last.
pub(crate) fn scale_at(scales: &[u8], row: usize) -> f32 {
    scales.as_chunks::<4>().0.get(row).map_or(0.0, |scale| f32::from_le_bytes(*scale))
}

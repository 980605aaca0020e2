//! aarch64 hosts: rows of floats and attention with NEON, which all of them have. The compiler makes scalar code of the portable kernels for these; what it does make vectors of is left to it.
//!
//! The eight lanes of a sum are two registers. Rows are summed four at a time, because an addition takes several cycles.
#![allow(
    clippy::wildcard_imports,
    clippy::inline_always,
    reason = "intrinsics by the dozen; what is compiled for several element types must be inlined into its loops"
)]

use crate::format::{DType, KvDType, TensorView};
use crate::ops::convert;
use crate::ops::kv::{KvHead, KvRows, is_built};
use crate::ops::{kv_integer, portable};
use core::arch::aarch64::*;

pub(crate) use super::any::*;

/// The eight lanes of a sum, or eight values.
type Eight = [float32x4_t; 2];

/// Elements as they lie in memory, at any address.
trait Stored {
    /// Bytes of one.
    const BYTES: usize;

    /// Eight of them widened.
    ///
    /// # Safety
    /// There are eight elements at `from`.
    unsafe fn widen8(from: *const u8) -> Eight;

    /// The first `count` of eight, which alone are read, and zeros for the others.
    ///
    /// # Safety
    /// There are `count` elements at `from`, at most eight.
    #[inline(always)]
    unsafe fn widen_part(from: *const u8, count: usize) -> Eight {
        let mut eight = [0u8; 32];
        // SAFETY: the caller's promise; an element has at most 4 bytes.
        unsafe {
            core::ptr::copy_nonoverlapping(from, eight.as_mut_ptr(), count * Self::BYTES);
            Self::widen8(eight.as_ptr())
        }
    }
}

/// Single precision.
struct F32;
/// IEEE half precision.
struct F16;
/// bfloat16.
struct Bf16;

impl Stored for F32 {
    const BYTES: usize = 4;
    #[inline(always)]
    unsafe fn widen8(from: *const u8) -> Eight {
        // SAFETY: the caller's promise.
        unsafe { [vreinterpretq_f32_u8(vld1q_u8(from)), vreinterpretq_f32_u8(vld1q_u8(from.add(16)))] }
    }
}

impl Stored for F16 {
    const BYTES: usize = 2;
    #[inline(always)]
    unsafe fn widen8(from: *const u8) -> Eight {
        // SAFETY: the caller's promise.
        unsafe {
            let halves = vreinterpretq_u16_u8(vld1q_u8(from));
            let widen = |halves| vcvt_f32_f16(vreinterpret_f16_u16(halves));
            [widen(vget_low_u16(halves)), widen(vget_high_u16(halves))]
        }
    }
}

impl Stored for Bf16 {
    const BYTES: usize = 2;
    #[inline(always)]
    unsafe fn widen8(from: *const u8) -> Eight {
        // SAFETY: the caller's promise.
        unsafe {
            let halves = vreinterpretq_u16_u8(vld1q_u8(from));
            let widen = |halves| vreinterpretq_f32_u32(vshlq_n_u32::<16>(vmovl_u16(halves)));
            [widen(vget_low_u16(halves)), widen(vget_high_u16(halves))]
        }
    }
}

/// `sum + a * b`, both rounded.
#[inline(always)]
fn add_product(sum: Eight, a: Eight, b: Eight) -> Eight {
    let ([sum_low, sum_high], [a_low, a_high], [b_low, b_high]) = (sum, a, b);
    // SAFETY: every machine of these targets has NEON.
    unsafe { [vaddq_f32(sum_low, vmulq_f32(a_low, b_low)), vaddq_f32(sum_high, vmulq_f32(a_high, b_high))] }
}

/// The lanes added up: `((a0 + a4) + (a2 + a6)) + ((a1 + a5) + (a3 + a7))`.
#[inline(always)]
fn tree([low, high]: Eight) -> f32 {
    // SAFETY: every machine of these targets has NEON.
    unsafe {
        let fours = vaddq_f32(low, high);
        let pairs = vadd_f32(vget_low_f32(fours), vget_high_f32(fours));
        vget_lane_f32::<0>(pairs) + vget_lane_f32::<1>(pairs)
    }
}

#[inline(always)]
fn zeros() -> Eight {
    // SAFETY: every machine of these targets has NEON.
    unsafe { [vdupq_n_f32(0.0); 2] }
}

/// `dot8` of `x` and each of `R` rows, which are `stride` bytes apart.
///
/// # Safety
/// `R` rows as long as `x` begin at `row`.
#[inline(always)]
unsafe fn dots<S: Stored, const R: usize>(mut row: *const u8, stride: usize, x: &[f32]) -> [f32; R] {
    let mut sums = [zeros(); R];
    let (eights, rest) = x.as_chunks::<8>();
    // SAFETY: no load goes past the end of a row, as the caller promised that they are as long as `x`.
    unsafe {
        for x in eights {
            let x = F32::widen8(x.as_ptr().cast());
            for (r, sum) in sums.iter_mut().enumerate() {
                *sum = add_product(*sum, S::widen8(row.add(r * stride)), x);
            }
            row = row.add(8 * S::BYTES);
        }
        if !rest.is_empty() {
            // Zeros behind the end add +0 to their lanes, which changes no bit.
            let x = F32::widen_part(rest.as_ptr().cast(), rest.len());
            for (r, sum) in sums.iter_mut().enumerate() {
                *sum = add_product(*sum, S::widen_part(row.add(r * stride), rest.len()), x);
            }
        }
    }
    let mut found = [0.0; R];
    for (y, sum) in found.iter_mut().zip(sums) {
        *y = tree(sum);
    }
    found
}

/// Whether `bytes` hold `count` rows of `len` bytes that begin `stride` bytes apart.
fn hold(bytes: &[u8], count: usize, len: usize, stride: usize) -> bool {
    count == 0 || bytes.len().checked_sub(len).is_some_and(|room| room / stride.max(1) >= count - 1)
}

/// `out[r] = dot8(row r, x)`, where row r begins at byte r * `stride`; zeros where there are too few.
#[inline(always)]
fn rows<S: Stored>(out: &mut [f32], rows: &[u8], stride: usize, x: &[f32]) {
    if !hold(rows, out.len(), x.len() * S::BYTES, stride) {
        return out.fill(0.0);
    }
    let mut row = rows.as_ptr();
    let (fours, rest) = out.as_chunks_mut::<4>();
    for four in fours {
        // SAFETY: `hold` found a row for every element.
        *four = unsafe { dots::<S, 4>(row, stride, x) };
        row = row.wrapping_add(4 * stride);
    }
    for y in rest {
        // SAFETY: as above.
        [*y] = unsafe { dots::<S, 1>(row, stride, x) };
        row = row.wrapping_add(stride);
    }
}

/// `out[r] = dot8(row r, x)`; zeros for an element type that was left out of the build.
pub(crate) fn matvec(out: &mut [f32], w: &TensorView<'_>, x: &[f32]) {
    match w.dtype() {
        #[cfg(feature = "f32")]
        DType::F32 => rows::<F32>(out, w.bytes(), 4 * x.len(), x),
        #[cfg(feature = "f16")]
        DType::F16 => rows::<F16>(out, w.bytes(), 2 * x.len(), x),
        #[cfg(feature = "bf16")]
        DType::Bf16 => rows::<Bf16>(out, w.bytes(), 2 * x.len(), x),
        _ => out.fill(0.0),
    }
}

/// As [`any::scores`](super::any::scores).
pub(crate) fn scores(scores: &mut [f32], q: &[f32], keys: &KvRows<'_>, head: KvHead, scale: f32, scratch: &mut [f32]) -> f32 {
    match *keys {
        KvRows::F32(keys) if is_built(KvDType::F32) => rows::<F32>(scores, part(keys, head), 4 * head.stride(), q),
        KvRows::F16(keys) if is_built(KvDType::F16) => rows::<F16>(scores, part(keys, head), 2 * head.stride(), q),
        KvRows::Q8(keys) if is_built(KvDType::Q8) => return kv_integer::scores(scores, q, keys, head, scale, scratch),
        _ => return f32::NEG_INFINITY,
    }
    let mut largest = f32::NEG_INFINITY;
    for score in scores {
        *score *= scale;
        largest = if *score > largest { *score } else { largest };
    }
    largest
}

/// As [`any::mix`](super::any::mix).
pub(crate) fn mix(out: &mut [f32], weights: &mut [f32], values: &KvRows<'_>, head: KvHead, first_lane: usize, lanes: &mut [f32]) {
    // Columns that fill no eight are left to the portable kernel.
    let (stride, offset) = (head.stride(), head.offset());
    match *values {
        KvRows::F32(values) if is_built(KvDType::F32) => {
            let done = mix_eights::<F32>(out, weights, part(values, head), 4 * stride, first_lane);
            let rest = out.get_mut(done..).unwrap_or_default();
            portable::mix::<convert::F32>(rest, weights, values, stride, offset.wrapping_add(done), first_lane, lanes);
        }
        KvRows::F16(values) if is_built(KvDType::F16) => {
            let done = mix_eights::<F16>(out, weights, part(values, head), 2 * stride, first_lane);
            let rest = out.get_mut(done..).unwrap_or_default();
            portable::mix::<convert::F16>(rest, weights, values, stride, offset.wrapping_add(done), first_lane, lanes);
        }
        KvRows::Q8(values) if is_built(KvDType::Q8) => kv_integer::mix(out, weights, values, head),
        _ => out.fill(0.0),
    }
}

/// The bytes of rows from a head's part of the first on.
fn part<T: bytemuck::NoUninit>(elements: &[T], head: KvHead) -> &[u8] {
    bytemuck::cast_slice(elements.get(head.offset()..).unwrap_or(&[]))
}

/// `out[j] = sum8 over t of weights[t] * row t [j]`, where weight 0 belongs to lane `first_lane`, for the whole eights of `out`; returns how many elements those are, 0 where there are not as many rows.
#[inline(always)]
fn mix_eights<S: Stored>(out: &mut [f32], weights: &[f32], values: &[u8], stride: usize, first_lane: usize) -> usize {
    let eights = out.as_chunks_mut::<8>().0;
    let done = eights.len() * 8;
    if !hold(values, weights.len(), done * S::BYTES, stride) {
        return 0;
    }
    // Up to the next multiple of eight positions, then by eights, then what is left.
    let (before, weights) = weights.split_at(weights.len().min((8 - first_lane % 8) % 8));
    let (whole, after) = weights.as_chunks::<8>();
    for (eight, out) in eights.iter_mut().enumerate() {
        let mut at = values.as_ptr().wrapping_add(eight * 8 * S::BYTES);
        let mut sums = [zeros(); 8];
        let mut add = |sum: &mut Eight, weight: f32| {
            // SAFETY: `hold` found a row for every weight, as long as the eights of `out`; every machine of these targets has NEON.
            unsafe { *sum = add_product(*sum, [vdupq_n_f32(weight); 2], S::widen8(at)) };
            at = at.wrapping_add(stride);
        };
        for (weight, sum) in before.iter().zip(sums.iter_mut().skip(first_lane % 8)) {
            add(sum, *weight);
        }
        for weights in whole {
            for (sum, weight) in sums.iter_mut().zip(weights) {
                add(sum, *weight);
            }
        }
        for (sum, weight) in sums.iter_mut().zip(after) {
            add(sum, *weight);
        }
        let [a0, a1, a2, a3, a4, a5, a6, a7] = sums;
        for (half, out) in out.as_chunks_mut::<4>().0.iter_mut().enumerate() {
            // SAFETY: there is room for four floats; every machine of these targets has NEON.
            unsafe {
                let even = vaddq_f32(vaddq_f32(a0[half], a4[half]), vaddq_f32(a2[half], a6[half]));
                let odd = vaddq_f32(vaddq_f32(a1[half], a5[half]), vaddq_f32(a3[half], a7[half]));
                vst1q_f32(out.as_mut_ptr(), vaddq_f32(even, odd));
            }
        }
    }
    done
}

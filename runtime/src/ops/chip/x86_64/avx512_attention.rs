//! Values added up with AVX-512: twice or four times as many columns in a pass as [`avx2_attention`](super::avx2_attention) takes, so that a line of memory is read once.

use super::avx2_attention::{Rows, fetch_next_head};
use super::avx2_floats::{F16, F32, Stored};
use core::arch::x86_64::*;

/// Columns of a register.
const COLUMNS: usize = 16;

/// Elements that are widened sixteen at a time.
pub(super) trait Wide: Stored {
    /// Sixteen of them widened.
    ///
    /// # Safety
    /// There are sixteen elements at `from`, and the machine has AVX-512 F.
    unsafe fn widen16(from: *const u8) -> __m512;
}

impl Wide for F32 {
    #[inline(always)]
    unsafe fn widen16(from: *const u8) -> __m512 {
        // SAFETY: the caller's promise.
        unsafe { _mm512_loadu_ps(from.cast()) }
    }
}

impl Wide for F16 {
    #[inline(always)]
    unsafe fn widen16(from: *const u8) -> __m512 {
        // SAFETY: the caller's promise.
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(from.cast())) }
    }
}

/// As [`mix`](super::avx2_attention::mix), for as many columns as fill `W` registers again and again; returns how many those are.
///
/// # Safety
/// The machine has AVX-512 F.
#[inline(always)]
pub(super) unsafe fn mix<S: Wide, const W: usize>(out: &mut [f32], weights: &[f32], values: Rows<'_>, first_lane: usize) -> usize {
    let done = out.len() / (W * COLUMNS) * (W * COLUMNS);
    if !values.hold(weights.len(), done * S::BYTES) {
        return 0;
    }
    // Up to the next multiple of eight positions, then by eights, then what is left.
    let (before, weights) = weights.split_at(weights.len().min((8 - first_lane % 8) % 8));
    let (whole, after) = weights.as_chunks::<8>();
    for (number, out) in out.chunks_exact_mut(W * COLUMNS).enumerate() {
        // SAFETY: `hold` found a row for every weight, as long as the whole registers of `out`. The rest is the caller's promise.
        unsafe {
            let mut at = values.bytes.as_ptr().wrapping_add(number * W * COLUMNS * S::BYTES);
            let mut sums = [[_mm512_setzero_ps(); W]; 8];
            for (weight, sum) in before.iter().zip(sums.iter_mut().skip(first_lane % 8)) {
                add::<S, W>(sum, *weight, at);
                at = at.wrapping_add(values.stride);
            }
            for weights in whole {
                fetch_next_head::<8>(at, values, W * COLUMNS * S::BYTES);
                for (l, sum) in sums.iter_mut().enumerate() {
                    add::<S, W>(sum, weights[l], at.wrapping_add(l * values.stride));
                }
                at = at.wrapping_add(8 * values.stride);
            }
            for (weight, sum) in after.iter().zip(&mut sums) {
                add::<S, W>(sum, *weight, at);
                at = at.wrapping_add(values.stride);
            }
            for (w, out) in out.as_chunks_mut::<COLUMNS>().0.iter_mut().enumerate() {
                let [a0, a1, a2, a3, a4, a5, a6, a7] = sums.map(|sum| sum[w]);
                let even = _mm512_add_ps(_mm512_add_ps(a0, a4), _mm512_add_ps(a2, a6));
                let odd = _mm512_add_ps(_mm512_add_ps(a1, a5), _mm512_add_ps(a3, a7));
                _mm512_storeu_ps(out.as_mut_ptr(), _mm512_add_ps(even, odd));
            }
        }
    }
    done
}

/// Adds `weight` times as many elements as fill `W` registers.
///
/// # Safety
/// There are so many at `at`, and the machine has AVX-512 F.
#[inline(always)]
unsafe fn add<S: Wide, const W: usize>(sums: &mut [__m512; W], weight: f32, at: *const u8) {
    for (w, sum) in sums.iter_mut().enumerate() {
        // SAFETY: the caller's promise.
        *sum = unsafe { _mm512_add_ps(*sum, _mm512_mul_ps(_mm512_set1_ps(weight), S::widen16(at.wrapping_add(w * COLUMNS * S::BYTES)))) };
    }
}

//! Attention with AVX2 and F16C: scores are rows of keys times a query, four positions at a time; values are added up for eight columns at a time, with a register for each lane of the sum.

use super::avx2_floats::{Stored, lanes, tree, tree4};
use crate::ops::kv_integer::EXACT_IN_32_BITS;
use core::arch::x86_64::*;

/// Bytes that come from memory together.
pub(super) const LINE: usize = 64;

/// Keys or values of a head: the bytes from its part of the first row on, bytes from one row to the next, and bytes from its part of a row to that of the next head.
#[derive(Clone, Copy)]
pub(super) struct Rows<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) stride: usize,
    pub(super) head: usize,
}

impl Rows<'_> {
    /// Those without the first `len` bytes of each row.
    pub(super) fn behind(self, len: usize) -> Self {
        Self { bytes: self.bytes.get(len..).unwrap_or(&[]), ..self }
    }

    /// Whether there are `count` rows of `len` bytes.
    pub(super) fn hold(&self, count: usize, len: usize) -> bool {
        count == 0 || self.bytes.len().checked_sub(len).is_some_and(|room| room / self.stride.max(1) >= count - 1)
    }
}

/// Fetches, of each of `R` rows, the part of the next head that lies `len` bytes long behind the one at `at`: it is wanted when this head is done, and other weights have taken its place in the near
/// caches since the last token.
#[inline(always)]
pub(super) fn fetch_next_head<const R: usize>(at: *const u8, rows: Rows<'_>, len: usize) {
    for r in 0..R {
        for line in (0..len).step_by(LINE) {
            // SAFETY: what is fetched ahead may lie anywhere.
            unsafe { _mm_prefetch::<_MM_HINT_T1>(at.wrapping_add(r * rows.stride + rows.head + line).cast()) };
        }
    }
}

/// `scores[i] = dot8(q, row i) * scale`; returns the largest, NaNs left out. -inf and nothing done where there are not as many rows.
///
/// # Safety
/// The machine has AVX2 and F16C.
#[inline(always)]
pub(super) unsafe fn scores<S: Stored>(scores: &mut [f32], q: &[f32], keys: Rows<'_>, scale: f32) -> f32 {
    if !keys.hold(scores.len(), q.len() * S::BYTES) {
        return f32::NEG_INFINITY;
    }
    let mut row = keys.bytes.as_ptr();
    let (fours, rest) = scores.as_chunks_mut::<4>();
    // SAFETY: `hold` found the rows that are read, each as long as `q`. The rest is the caller's promise.
    unsafe {
        let mut largest = _mm_set1_ps(f32::NEG_INFINITY);
        for four in fours {
            fetch_next_head::<4>(row, keys, keys.head);
            let found = _mm_mul_ps(tree4(lanes::<S, 4, false>(row, keys.stride, q)), _mm_set1_ps(scale));
            _mm_storeu_ps(four.as_mut_ptr(), found);
            // Where one of the two is no number, this takes the second.
            largest = _mm_max_ps(found, largest);
            row = row.wrapping_add(4 * keys.stride);
        }
        let mut four = [0f32; 4];
        _mm_storeu_ps(four.as_mut_ptr(), largest);
        let mut largest = four.into_iter().fold(f32::NEG_INFINITY, |largest, value| if value > largest { value } else { largest });
        for score in rest {
            let [lanes] = lanes::<S, 1, false>(row, keys.stride, q);
            *score = tree(lanes) * scale;
            if *score > largest {
                largest = *score;
            }
            row = row.wrapping_add(keys.stride);
        }
        largest
    }
}

/// `out[j] = sum8 over t of weights[t] * row t [j]`, where weight 0 belongs to lane `first_lane` (below 8), for the whole eights of `out`; returns how many elements those are. None where there are not
/// as many rows.
///
/// # Safety
/// The machine has AVX2 and F16C.
#[inline(always)]
pub(super) unsafe fn mix<S: Stored>(out: &mut [f32], weights: &[f32], values: Rows<'_>, first_lane: usize) -> usize {
    let eights = out.as_chunks_mut::<8>().0;
    let done = eights.len() * 8;
    if !values.hold(weights.len(), done * S::BYTES) {
        return 0;
    }
    // Up to the next multiple of eight positions, then by eights, then what is left.
    let (before, weights) = weights.split_at(weights.len().min((8 - first_lane % 8) % 8));
    let (whole, after) = weights.as_chunks::<8>();
    for (eight, out) in eights.iter_mut().enumerate() {
        // SAFETY: `hold` found a row for every weight, as long as the eights of `out`. The rest is the caller's promise.
        unsafe {
            let place = eight * 8 * S::BYTES;
            let mut at = values.bytes.as_ptr().wrapping_add(place);
            let begins_a_line = place.is_multiple_of(LINE);
            let mut sums = [_mm256_setzero_ps(); 8];
            for (weight, sum) in before.iter().zip(sums.iter_mut().skip(first_lane % 8)) {
                *sum = _mm256_add_ps(*sum, _mm256_mul_ps(_mm256_set1_ps(*weight), S::widen8(at)));
                at = at.wrapping_add(values.stride);
            }
            for weights in whole {
                if begins_a_line {
                    fetch_next_head::<8>(at, values, 1);
                }
                for (l, sum) in sums.iter_mut().enumerate() {
                    *sum = _mm256_add_ps(*sum, _mm256_mul_ps(_mm256_set1_ps(weights[l]), S::widen8(at.wrapping_add(l * values.stride))));
                }
                at = at.wrapping_add(8 * values.stride);
            }
            for (weight, sum) in after.iter().zip(&mut sums) {
                *sum = _mm256_add_ps(*sum, _mm256_mul_ps(_mm256_set1_ps(*weight), S::widen8(at)));
                at = at.wrapping_add(values.stride);
            }
            let [a0, a1, a2, a3, a4, a5, a6, a7] = sums;
            let even = _mm256_add_ps(_mm256_add_ps(a0, a4), _mm256_add_ps(a2, a6));
            let odd = _mm256_add_ps(_mm256_add_ps(a1, a5), _mm256_add_ps(a3, a7));
            _mm256_storeu_ps(out.as_mut_ptr(), _mm256_add_ps(even, odd));
        }
    }
    done
}

/// The sum of the products of a query's codes and a key's, of whole sixteens: as many as 32 bits hold.
#[target_feature(enable = "avx2")]
pub(super) fn dot_codes(q: &[i16], k: &[i8]) -> i32 {
    let mut sums = _mm256_setzero_si256();
    for (q, k) in q.as_chunks::<16>().0.iter().zip(k.as_chunks::<16>().0) {
        // SAFETY: there are 32 bytes at `q` and 16 at `k`.
        let (q, k) = unsafe { (_mm256_loadu_si256(q.as_ptr().cast()), _mm_loadu_si128(k.as_ptr().cast())) };
        sums = _mm256_add_epi32(sums, _mm256_madd_epi16(q, _mm256_cvtepi8_epi16(k)));
    }
    let four = _mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256::<1>(sums));
    let two = _mm_add_epi32(four, _mm_shuffle_epi32::<0b1110>(four));
    _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32::<1>(two)))
}

/// Sixteen columns of values in bytes, each row times its code, added up: as many rows as 32 bits hold the sums of. Those that begin a line fetch the next head's.
///
/// # Panics
/// Never: too few bytes give zeros.
#[target_feature(enable = "avx2")]
pub(super) fn mix_codes(out: &mut [i32; 16], codes: &[i32], values: Rows<'_>, begins_a_line: bool) {
    let mut sums = [_mm256_setzero_si256(); 2];
    if codes.len() <= EXACT_IN_32_BITS && values.hold(codes.len(), 16) {
        let mut at = values.bytes.as_ptr();
        for pair in codes.chunks(2) {
            let (first, second) = (pair.first().copied().unwrap_or(0), pair.get(1).copied().unwrap_or(0));
            let weights = _mm256_set1_epi32((second << 16) | (first & 0xffff));
            if begins_a_line {
                fetch_next_head::<2>(at, values, 1);
            }
            // SAFETY: `hold` found sixteen bytes in each of the rows; the second of a pair that has none is the first again, times 0.
            let (a, b) = unsafe {
                let b = if pair.len() == 2 { at.add(values.stride) } else { at };
                (_mm_loadu_si128(at.cast()), _mm_loadu_si128(b.cast()))
            };
            let (low, high) = (_mm256_cvtepi8_epi16(_mm_unpacklo_epi8(a, b)), _mm256_cvtepi8_epi16(_mm_unpackhi_epi8(a, b)));
            sums[0] = _mm256_add_epi32(sums[0], _mm256_madd_epi16(low, weights));
            sums[1] = _mm256_add_epi32(sums[1], _mm256_madd_epi16(high, weights));
            at = at.wrapping_add(2 * values.stride);
        }
    }
    for (out, sum) in out.as_chunks_mut::<8>().0.iter_mut().zip(sums) {
        // SAFETY: there is room for eight numbers.
        unsafe { _mm256_storeu_si256(out.as_mut_ptr().cast(), sum) };
    }
}

//! Rows of floats times a vector with AVX2 and F16C: the eight lanes of a sum are one register, and four rows are summed at a time, because an addition takes four cycles.
//!
//! The weights come from memory or a cache far away, so what comes next is fetched ahead, and each of the four rows is of another quarter of the matrix: that makes four long runs of addresses, which
//! the machine follows better than rows beside each other (docs/host-speed.md has the figures). Twice as wide registers, which hold two rows, were no faster: the loads are what takes the time.

use core::arch::x86_64::*;

/// How far ahead of what is multiplied its row and those behind it are fetched, in bytes: first to a near cache, then to the nearest.
const FAR: usize = 4096;
const AHEAD: usize = 1024;
/// Weights that the nearest cache holds are not fetched, in bytes.
const NEAR: usize = 16_384;
/// Bytes that come from memory together.
const LINE: usize = 64;

/// Elements as they lie in memory, at any address.
pub(super) trait Stored {
    /// Bytes of one.
    const BYTES: usize;

    /// Eight of them widened.
    ///
    /// # Safety
    /// There are eight elements at `from`, and the machine has AVX2 and F16C.
    unsafe fn widen8(from: *const u8) -> __m256;

    /// The first `count` of eight, which alone are read, and zeros for the others.
    ///
    /// # Safety
    /// There are `count` elements at `from`, at most eight, and the machine has AVX2 and F16C.
    #[inline(always)]
    unsafe fn widen_part(from: *const u8, count: usize) -> __m256 {
        let mut eight = [0u8; 32];
        // SAFETY: the caller's promise; an element has at most 4 bytes.
        unsafe {
            core::ptr::copy_nonoverlapping(from, eight.as_mut_ptr(), count * Self::BYTES);
            Self::widen8(eight.as_ptr())
        }
    }
}

/// Ones in the first `count` of eight lanes, at most eight.
#[target_feature(enable = "avx2")]
#[inline]
fn first(count: usize) -> __m256i {
    let places = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    _mm256_cmpgt_epi32(_mm256_set1_epi32(count as i32), places)
}

/// Single precision.
pub(super) struct F32;
/// IEEE half precision.
pub(super) struct F16;
/// bfloat16.
pub(super) struct Bf16;

impl Stored for F32 {
    const BYTES: usize = 4;
    #[inline(always)]
    unsafe fn widen8(from: *const u8) -> __m256 {
        // SAFETY: the caller's promise.
        unsafe { _mm256_loadu_ps(from.cast()) }
    }

    #[inline(always)]
    unsafe fn widen_part(from: *const u8, count: usize) -> __m256 {
        // SAFETY: the caller's promise; what the mask leaves out is not read.
        unsafe { _mm256_maskload_ps(from.cast(), first(count)) }
    }
}

impl Stored for F16 {
    const BYTES: usize = 2;
    #[inline(always)]
    unsafe fn widen8(from: *const u8) -> __m256 {
        // SAFETY: the caller's promise.
        unsafe { _mm256_cvtph_ps(_mm_loadu_si128(from.cast())) }
    }
}

impl Stored for Bf16 {
    const BYTES: usize = 2;
    #[inline(always)]
    unsafe fn widen8(from: *const u8) -> __m256 {
        // SAFETY: the caller's promise.
        unsafe { _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(_mm_loadu_si128(from.cast())))) }
    }
}

/// Rows of a matrix and what they are multiplied by.
macro_rules! matvec {
    ($name:ident, $stored:ident) => {
        /// `out[r] = dot8(row r, x)`; `rows` are the bytes of at least as many rows as `out` has elements.
        #[target_feature(enable = "avx2,f16c")]
        pub(super) fn $name(out: &mut [f32], rows: &[u8], x: &[f32]) {
            // SAFETY: the function needs AVX2 and F16C as the callee does.
            unsafe { matvec::<$stored>(out, rows, x) }
        }
    };
}

matvec!(matvec_f32, F32);
matvec!(matvec_f16, F16);
matvec!(matvec_bf16, Bf16);

/// # Safety
/// The machine has AVX2 and F16C.
#[inline(always)]
unsafe fn matvec<S: Stored>(out: &mut [f32], rows: &[u8], x: &[f32]) {
    let stride = x.len() * S::BYTES;
    if rows.len() / stride.max(1) < out.len() {
        return out.fill(0.0);
    }
    // SAFETY: the length was compared above. The machine is as the caller promised.
    unsafe {
        if rows.len() > NEAR {
            quarters::<S, true>(out, rows.as_ptr(), stride, x);
        } else {
            quarters::<S, false>(out, rows.as_ptr(), stride, x);
        }
    }
}

/// The rows four at a time, one of each quarter, and what is left one by one; with `STREAM` what follows is fetched meanwhile.
///
/// # Safety
/// There are as many rows as `out` has elements, `stride` bytes each, as long as `x`, and the machine has AVX2 and F16C.
#[inline(always)]
unsafe fn quarters<S: Stored, const STREAM: bool>(out: &mut [f32], rows: *const u8, stride: usize, x: &[f32]) {
    let quarter = out.len() / 4;
    for number in 0..quarter {
        let mut four = [0f32; 4];
        // SAFETY: the caller's promise.
        unsafe { _mm_storeu_ps(four.as_mut_ptr(), tree4(lanes::<S, 4, STREAM>(rows.add(number * stride), quarter * stride, x))) };
        put_apart(out, number, quarter, four);
    }
    for (number, y) in out.iter_mut().enumerate().skip(4 * quarter) {
        // SAFETY: as above.
        unsafe {
            let [lanes] = lanes::<S, 1, STREAM>(rows.add(number * stride), stride, x);
            *y = tree(lanes);
        }
    }
}

/// Puts four sums `apart` elements from each other, the first to element `number`.
#[inline(always)]
pub(super) fn put_apart(out: &mut [f32], number: usize, apart: usize, four: [f32; 4]) {
    for (y, sum) in out.iter_mut().skip(number).step_by(apart.max(1)).zip(four) {
        *y = sum;
    }
}

/// The lanes of the products of `x` with `R` rows, which are `stride` bytes apart. With `STREAM` what follows each of them is fetched meanwhile.
///
/// # Safety
/// `R` rows as long as `x` begin at `row`, and the machine has AVX2 and F16C.
#[inline(always)]
pub(super) unsafe fn lanes<S: Stored, const R: usize, const STREAM: bool>(row: *const u8, stride: usize, x: &[f32]) -> [__m256; R] {
    // SAFETY: no load goes past the end of a row, as the caller promised that they are as long as `x`: all are of whole eights that `x` has too, but for the last, which is of a copy. What is fetched
    // ahead may lie anywhere.
    unsafe {
        let mut sums = [_mm256_setzero_ps(); R];
        let mut at = row;
        let lines = x.chunks_exact(LINE / S::BYTES);
        let rest = lines.remainder();
        for line in lines {
            if STREAM {
                for r in 0..R {
                    fetch(at.wrapping_add(r * stride));
                }
            }
            for eight in line.as_chunks::<8>().0 {
                at = add_products::<S, R>(&mut sums, at, stride, _mm256_loadu_ps(eight.as_ptr()));
            }
        }
        let (eights, rest) = rest.as_chunks::<8>();
        for eight in eights {
            at = add_products::<S, R>(&mut sums, at, stride, _mm256_loadu_ps(eight.as_ptr()));
        }
        if !rest.is_empty() {
            // Zeros behind the end add +0 to their lanes, which changes no bit.
            let x = F32::widen_part(rest.as_ptr().cast(), rest.len());
            for (r, sum) in sums.iter_mut().enumerate() {
                *sum = _mm256_add_ps(*sum, _mm256_mul_ps(S::widen_part(at.add(r * stride), rest.len()), x));
            }
        }
        sums
    }
}

/// Fetches what follows a line.
#[inline(always)]
pub(super) fn fetch(line: *const u8) {
    // SAFETY: what is fetched ahead may lie anywhere.
    unsafe {
        _mm_prefetch::<_MM_HINT_T0>(line.wrapping_add(AHEAD).cast());
        _mm_prefetch::<_MM_HINT_T1>(line.wrapping_add(FAR).cast());
    }
}

/// Adds the products of eight elements of each row and `x`; returns where the rows go on.
///
/// # Safety
/// There are eight elements at `at` and at each of the next `R` - 1 multiples of `stride` behind it, and the machine has AVX2 and F16C.
#[inline(always)]
unsafe fn add_products<S: Stored, const R: usize>(sums: &mut [__m256; R], at: *const u8, stride: usize, x: __m256) -> *const u8 {
    // SAFETY: the caller's promise.
    unsafe {
        for (r, sum) in sums.iter_mut().enumerate() {
            *sum = _mm256_add_ps(*sum, _mm256_mul_ps(S::widen8(at.add(r * stride)), x));
        }
        at.add(8 * S::BYTES)
    }
}

/// The lanes of one sum, added up: `((a0 + a4) + (a2 + a6)) + ((a1 + a5) + (a3 + a7))`.
#[target_feature(enable = "avx2")]
#[inline]
pub(super) fn tree(lanes: __m256) -> f32 {
    let fours = _mm_add_ps(_mm256_castps256_ps128(lanes), _mm256_extractf128_ps::<1>(lanes));
    let pairs = _mm_add_ps(fours, _mm_movehl_ps(fours, fours));
    _mm_cvtss_f32(_mm_add_ss(pairs, _mm_shuffle_ps::<1>(pairs, pairs)))
}

/// The lanes of four sums, each added up as by [`tree`].
#[target_feature(enable = "avx2")]
#[inline]
pub(super) fn tree4(lanes: [__m256; 4]) -> __m128 {
    let [a, b, c, d] = lanes.map(|lanes| _mm_add_ps(_mm256_castps256_ps128(lanes), _mm256_extractf128_ps::<1>(lanes)));
    let ab = _mm_add_ps(_mm_unpacklo_ps(a, b), _mm_unpackhi_ps(a, b));
    let cd = _mm_add_ps(_mm_unpacklo_ps(c, d), _mm_unpackhi_ps(c, d));
    _mm_add_ps(_mm_movelh_ps(ab, cd), _mm_movehl_ps(cd, ab))
}

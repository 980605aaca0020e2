//! Rows of q8 and q4 times codes of 16 bits with AVX2: products are added in pairs of 32 bits, groups in 64.

use super::avx2_floats::{fetch, put_apart};
use super::integer_rows::Rows;
use crate::ops::convert::from_i64;
use crate::ops::integer::Integers;
use core::arch::x86_64::*;

/// Elements of q4 that go through the registers together; groups are whole numbers of them.
pub(super) const BLOCK: usize = 32;
/// The group of q8 that rows are multiplied four at a time for.
const GROUP: usize = 32;
/// So many elements can be added up in pairs of 32 bits, and two such pairs, before one does not fit.
const SEGMENT: usize = 2048;

/// `out[r] = f32(S) * (row_scale[r] * scale)` of q8 rows; the codes of `x` are in their own order.
#[target_feature(enable = "avx2")]
pub(super) fn matvec_q8(out: &mut [f32], w: Rows<'_>, x: Integers<'_>) {
    if w.group_len != GROUP || !w.has_multipliers() {
        let codes = x.codes.get(..w.cols).unwrap_or(&[]);
        for (row, y) in out.iter_mut().enumerate() {
            let [scale, ..] = w.scales_from(row);
            *y = from_i64(dot_groups(w, row, codes)) * (scale * x.scale);
        }
        return;
    }
    for number in 0..w.apart {
        // SAFETY: `Rows` holds as many rows as `out` has elements, and the function has the instructions.
        let four = scaled(unsafe { rows_q8::<4>(w, number, x) }, w.scales_apart(number), x.scale);
        put_apart(out, number, w.apart, four);
    }
    for (number, y) in out.iter_mut().enumerate().skip(4 * w.apart) {
        // SAFETY: as above.
        [*y] = scaled(unsafe { rows_q8::<1>(w, number, x) }, w.scales_from(number), x.scale);
    }
}

/// The same of q4 rows, of which `x` has the codes in [`super::Form::Halves`] and the sums of their groups.
#[target_feature(enable = "avx2")]
pub(super) fn matvec_q4(out: &mut [f32], w: Rows<'_>, x: Integers<'_>) {
    for number in 0..w.apart {
        // SAFETY: `Rows` holds as many rows as `out` has elements, and the function has the instructions.
        let four = scaled(unsafe { rows_q4::<4>(w, number, x) }, w.scales_apart(number), x.scale);
        put_apart(out, number, w.apart, four);
    }
    for (number, y) in out.iter_mut().enumerate().skip(4 * w.apart) {
        // SAFETY: as above.
        [*y] = scaled(unsafe { rows_q4::<1>(w, number, x) }, w.scales_from(number), x.scale);
    }
}

/// Sums in 64-bit lanes added up, converted and scaled.
#[target_feature(enable = "avx2")]
#[inline]
fn scaled<const R: usize>(sums: [__m256i; R], scales: [f32; 4], x_scale: f32) -> [f32; R] {
    let mut out = [0.0; R];
    for ((y, sum), scale) in out.iter_mut().zip(sums).zip(scales) {
        *y = from_i64(total(sum)) * (scale * x_scale);
    }
    out
}

/// The sums over the groups of row `first` and the others of `R` q8 rows, each a quarter further, of multiplier * (sum of the products with `x`), spread over 64-bit lanes.
///
/// # Safety
/// `w` has these rows, in groups of 32, its columns are those of `x`, and the machine has AVX2.
#[inline(always)]
unsafe fn rows_q8<const R: usize>(w: Rows<'_>, first: usize, x: Integers<'_>) -> [__m256i; R] {
    // SAFETY: columns are counted down from what the rows have: each load takes what is left of a row, of its multipliers or of `x`. What is fetched ahead may lie anywhere.
    unsafe {
        let (codes_apart, groups_apart) = (w.apart * w.stride, w.apart * w.groups);
        let (mut codes, mut m, mut x_at) = (w.codes_of(first), w.multipliers_of(first), x.codes.as_ptr());
        let mut left = w.cols;
        let mut sums = [_mm256_setzero_si256(); R];
        while left >= GROUP {
            let (x_low, x_high) = (_mm256_loadu_si256(x_at.cast()), _mm256_loadu_si256(x_at.add(GROUP / 2).cast()));
            for (r, sum) in sums.iter_mut().enumerate() {
                let at = codes.add(r * codes_apart);
                fetch(at);
                let low = _mm256_madd_epi16(_mm256_cvtepi8_epi16(_mm_loadu_si128(at.cast())), x_low);
                let high = _mm256_madd_epi16(_mm256_cvtepi8_epi16(_mm_loadu_si128(at.add(GROUP / 2).cast())), x_high);
                *sum = add_group(*sum, _mm256_add_epi32(low, high), *m.add(r * groups_apart));
            }
            (codes, m, x_at) = (codes.add(GROUP), m.add(1), x_at.add(GROUP));
            left -= GROUP;
        }
        if left > 0 {
            for (r, sum) in sums.iter_mut().enumerate() {
                let products =
                    (0..left).map(|i| i32::from(codes.add(r * codes_apart + i).cast::<i8>().read()) * i32::from(x_at.add(i).read()));
                *sum = add_one(*sum, products.sum(), *m.add(r * groups_apart));
            }
        }
        sums
    }
}

/// The sums over the groups of row `first` and the others of `R` q4 rows, each a quarter further, of multiplier * (sum of the products with `x`) and offset * (sum of the codes of `x`), spread over 64-bit lanes.
///
/// # Safety
/// `w` has these rows, in groups that [`BLOCK`] divides, its columns are those of `x`, and the machine has AVX2.
#[inline(always)]
unsafe fn rows_q4<const R: usize>(w: Rows<'_>, first: usize, x: Integers<'_>) -> [__m256i; R] {
    // SAFETY: as in `rows_q8`.
    unsafe {
        let (codes_apart, groups_apart) = (w.apart * w.stride, w.apart * w.groups);
        let (mut codes, mut m, mut x_at) = (w.codes_of(first), w.multipliers_of(first), x.codes.as_ptr());
        let (mut left, mut in_group) = (w.cols, w.group_len);
        let nibble = _mm256_set1_epi16(15);
        let mut sums = [_mm256_setzero_si256(); R];
        for (r, sum) in sums.iter_mut().enumerate() {
            *sum = dot_offsets(w.offsets_of(first + r * w.apart), x.sums.as_ptr(), w.groups);
        }
        while left >= BLOCK {
            if in_group == 0 {
                (in_group, m) = (w.group_len, m.add(1));
            }
            let (x_even, x_odd) = (_mm256_loadu_si256(x_at.cast()), _mm256_loadu_si256(x_at.add(BLOCK / 2).cast()));
            for (r, sum) in sums.iter_mut().enumerate() {
                let at = codes.add(r * codes_apart);
                fetch(at);
                let bytes = _mm256_cvtepu8_epi16(_mm_loadu_si128(at.cast()));
                let even = _mm256_madd_epi16(_mm256_and_si256(bytes, nibble), x_even);
                let odd = _mm256_madd_epi16(_mm256_srli_epi16::<4>(bytes), x_odd);
                *sum = add_group(*sum, _mm256_add_epi32(even, odd), *m.add(r * groups_apart));
            }
            (codes, x_at) = (codes.add(BLOCK / 2), x_at.add(BLOCK));
            (left, in_group) = (left - BLOCK, in_group - BLOCK);
        }
        // What fills no block is in its own order.
        if left > 0 {
            if in_group == 0 {
                m = m.add(1);
            }
            for (r, sum) in sums.iter_mut().enumerate() {
                let code = |i: usize| i32::from(codes.add(r * codes_apart + i / 2).read() >> (4 * (i % 2)) & 15);
                let products = (0..left).map(|i| code(i) * i32::from(x_at.add(i).read()));
                *sum = add_one(*sum, products.sum(), *m.add(r * groups_apart));
            }
        }
        sums
    }
}

/// `sums` and `multiplier` times what `pairs` hold, in 64 bits.
#[target_feature(enable = "avx2")]
#[inline]
fn add_group(sums: __m256i, pairs: __m256i, multiplier: u8) -> __m256i {
    let pairs = _mm256_add_epi32(pairs, _mm256_srli_epi64::<32>(pairs));
    _mm256_add_epi64(sums, _mm256_mul_epi32(pairs, _mm256_set1_epi64x(i64::from(multiplier))))
}

/// `sums` and `multiplier` times one number.
#[target_feature(enable = "avx2")]
#[inline]
fn add_one(sums: __m256i, product: i32, multiplier: u8) -> __m256i {
    let product = i64::from(product) * i64::from(multiplier);
    _mm256_add_epi64(sums, _mm256_zextsi128_si256(_mm_cvtsi64_si128(product)))
}

#[target_feature(enable = "avx2")]
#[inline]
fn total(sums: __m256i) -> i64 {
    let two = _mm_add_epi64(_mm256_castsi256_si128(sums), _mm256_extracti128_si256::<1>(sums));
    _mm_cvtsi128_si64(two).wrapping_add(_mm_extract_epi64::<1>(two))
}

/// The sum of the products of a q4 row's offsets and the sums of the codes of each group, in 64-bit lanes.
///
/// # Safety
/// There are `groups` at both, and the machine has AVX2.
#[inline(always)]
unsafe fn dot_offsets(offsets: *const u8, sums: *const i32, groups: usize) -> __m256i {
    // SAFETY: no more elements are loaded than there are.
    unsafe {
        let mut products = _mm256_setzero_si256();
        let whole = groups & !3;
        for first in (0..whole).step_by(4) {
            let offsets = _mm256_cvtepi16_epi64(_mm_loadl_epi64(offsets.add(2 * first).cast()));
            let sums = _mm256_cvtepi32_epi64(_mm_loadu_si128(sums.add(first).cast()));
            products = _mm256_add_epi64(products, _mm256_mul_epi32(offsets, sums));
        }
        let rest = (whole..groups).map(|g| i64::from(offsets.add(2 * g).cast::<i16>().read_unaligned()) * i64::from(sums.add(g).read()));
        _mm256_add_epi64(products, _mm256_zextsi128_si256(_mm_cvtsi64_si128(rest.sum())))
    }
}

/// The sum over the groups of a q8 row of multiplier * (sum of the products with `x`), for groups of any length.
#[target_feature(enable = "avx2")]
fn dot_groups(w: Rows<'_>, row: usize, x: &[i16]) -> i64 {
    let (codes, multipliers) = (w.codes_slice(row), w.multipliers_slice(row));
    let one = [1];
    let (multipliers, group_len) = if w.has_multipliers() { (multipliers, w.group_len) } else { (&one[..], x.len()) };
    let mut sums = _mm256_setzero_si256();
    for ((x, codes), multiplier) in x.chunks(group_len.max(1)).zip(codes.chunks(group_len.max(1))).zip(multipliers) {
        for (x, codes) in x.chunks(SEGMENT).zip(codes.chunks(SEGMENT)) {
            let mut pairs = _mm256_setzero_si256();
            let ((whole, rest), (packed, packed_rest)) = (x.as_chunks::<16>(), codes.as_chunks::<16>());
            for (x, codes) in whole.iter().zip(packed) {
                pairs = _mm256_add_epi32(pairs, products(codes, x));
            }
            let packed_rest = packed.get(whole.len()).map_or(packed_rest, |codes| codes.as_slice());
            let (mut last_x, mut last) = ([0i16; 16], [0u8; 16]);
            for (((to_x, to), x), code) in last_x.iter_mut().zip(&mut last).zip(rest).zip(packed_rest) {
                (*to_x, *to) = (*x, *code);
            }
            sums = add_group(sums, _mm256_add_epi32(pairs, products(&last, &last_x)), *multiplier);
        }
    }
    total(sums)
}

/// The products of 16 q8 codes and 16 of `x`, added in pairs.
#[target_feature(enable = "avx2")]
#[inline]
fn products(codes: &[u8; 16], x: &[i16; 16]) -> __m256i {
    // SAFETY: there are as many bytes at both as are loaded.
    let (codes, x) = unsafe { (_mm_loadu_si128(codes.as_ptr().cast()), _mm256_loadu_si256(x.as_ptr().cast())) };
    _mm256_madd_epi16(_mm256_cvtepi8_epi16(codes), x)
}

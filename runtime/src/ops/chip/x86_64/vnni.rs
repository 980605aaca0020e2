//! Rows of q8 and q4 in groups of 32 times codes of 16 bits with VNNI, which multiplies bytes: a code is 256 * its high byte (signed) + its low byte (unsigned).
//!
//! The instruction takes an unsigned byte and a signed one. A q8 code and a low byte are such a pair; for the high bytes the q8 code is made unsigned by adding 128, and what that adds is taken away
//! once a row. A nibble of q4 is both.

use super::avx2_floats::{fetch, put_apart};
use super::integer_rows::Rows;
use crate::ops::integer::Integers;
use core::arch::x86_64::*;

/// The group that the kernels are made for.
pub(super) const GROUP: usize = 32;
/// Elements of q8 that go through the registers together; what is left may fill a half.
const BLOCK_Q8: usize = 64;
/// The same of q4; what is left may fill quarters.
const BLOCK_Q4: usize = 128;
/// Blocks of q4 of which two sums fit 32 bits together: 255 times 30,600 a block.
const SEGMENT_Q4: usize = 128;

/// Sums for [`dot_q8`], of each group that of the high bytes; then the codes in its order: of each block the low bytes before the high ones.
pub(super) fn split_q8(sums: &mut [i32], x: &mut [i16]) {
    for (sum, group) in sums.iter_mut().zip(x.chunks(GROUP)) {
        *sum = group.iter().map(|code| i32::from(*code >> 8)).sum();
    }
    let (blocks, rest) = x.as_chunks_mut::<BLOCK_Q8>();
    for block in blocks {
        split(block, |i| i);
    }
    for block in rest.as_chunks_mut::<GROUP>().0 {
        split(block, |i| i);
    }
}

/// The codes in the order of [`dot_q4`]: of each block the low bytes of the even codes, then those of the odd ones, then the high bytes of both.
pub(super) fn split_q4(x: &mut [i16]) {
    let (blocks, rest) = x.as_chunks_mut::<BLOCK_Q4>();
    for block in blocks {
        split(block, |i| 2 * (i % 64) + i / 64);
    }
    for block in rest.as_chunks_mut::<GROUP>().0 {
        split(block, |i| 2 * (i % 16) + i / 16);
    }
}

fn split<const N: usize>(block: &mut [i16; N], from: impl Fn(usize) -> usize) {
    let natural = *block;
    let (low, high) = bytemuck::cast_slice_mut::<i16, u8>(block).split_at_mut(N);
    for (i, (low, high)) in low.iter_mut().zip(high).enumerate() {
        [*low, *high] = natural.get(from(i)).copied().unwrap_or(0).to_le_bytes();
    }
}

/// A shuffle that puts byte `i` of each 128 bits alone into 64 bits.
const fn alone(i: u8) -> i64 {
    i64::from_le_bytes([i, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80])
}

/// Rows four at a time, one of each quarter, and what is left one by one.
macro_rules! matvec {
    ($(#[$doc:meta])* $name:ident, $rows:ident) => {
        $(#[$doc])*
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
        pub(super) fn $name(out: &mut [f32], w: Rows<'_>, x: Integers<'_>) {
            for number in 0..w.apart {
                // SAFETY: `Rows` holds as many rows as `out` has elements, and the function has the instructions.
                let sums = unsafe { $rows::<4>(w, number, x) };
                put_apart(out, number, w.apart, scaled(sums, w.scales_apart(number), x.scale));
            }
            for (number, y) in out.iter_mut().enumerate().skip(4 * w.apart) {
                // SAFETY: as above.
                let [sums] = unsafe { $rows::<1>(w, number, x) };
                let none = _mm512_setzero_si512();
                [*y, ..] = scaled([sums, none, none, none], w.scales_from(number), x.scale);
            }
        }
    };
}

matvec!(
    /// `out[r] = f32(S) * (row_scale[r] * scale)` of q8 rows; codes and sums of `x` as [`split_q8`] makes them.
    matvec_q8,
    rows_q8
);
matvec!(
    /// The same of q4 rows, of which `x` has the codes as [`split_q4`] makes them and the sums of their groups.
    matvec_q4,
    rows_q4
);

/// Sums in 64-bit lanes added up, converted and scaled.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
fn scaled(sums: [__m512i; 4], scales: [f32; 4], x_scale: f32) -> [f32; 4] {
    let [a, b, c, d] = sums.map(|sum| _mm256_add_epi64(_mm512_castsi512_si256(sum), _mm512_extracti64x4_epi64::<1>(sum)));
    let ab = _mm256_add_epi64(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
    let cd = _mm256_add_epi64(_mm256_unpacklo_epi64(c, d), _mm256_unpackhi_epi64(c, d));
    let sums = _mm256_add_epi64(_mm256_permute2x128_si256::<0x20>(ab, cd), _mm256_permute2x128_si256::<0x31>(ab, cd));
    let mut out = [0.0; 4];
    // SAFETY: there are four floats at both.
    unsafe {
        let scales = _mm_mul_ps(_mm_loadu_ps(scales.as_ptr()), _mm_set1_ps(x_scale));
        _mm_storeu_ps(out.as_mut_ptr(), _mm_mul_ps(_mm256_cvtepi64_ps(sums), scales));
    }
    out
}

/// The sums over the groups of row `first` and the others of `R` q8 rows, each a quarter further, of multiplier * (sum of the products with `x`), spread over 64-bit lanes.
///
/// # Safety
/// `w` has these rows, its columns are those of `x`, and the machine has the instructions.
#[inline(always)]
unsafe fn rows_q8<const R: usize>(w: Rows<'_>, first: usize, x: Integers<'_>) -> [__m512i; R] {
    // SAFETY: columns are counted down from what the rows have: each load takes what is left of a row, of its multipliers or of `x`. What is fetched ahead may lie anywhere.
    unsafe {
        let spread_first = _mm512_inserti64x4::<1>(_mm512_set1_epi64(alone(0)), _mm256_set1_epi64x(alone(1)));
        let spread_second = _mm512_inserti64x4::<1>(_mm512_set1_epi64(alone(2)), _mm256_set1_epi64x(alone(3)));
        let (codes_apart, groups_apart) = (w.apart * w.stride, w.apart * w.groups);
        let (mut codes, mut m, mut x_at) = (w.codes_of(first), w.multipliers_of(first), x.codes.as_ptr());
        let mut left = w.cols;
        let mut sums = [_mm512_setzero_si512(); R];
        for (r, sum) in sums.iter_mut().enumerate() {
            *sum = added_by_128(m.add(r * groups_apart), x.sums.as_ptr(), w.cols / GROUP);
        }
        while left >= 2 * BLOCK_Q8 {
            for (r, sum) in sums.iter_mut().enumerate() {
                let at = codes.add(r * codes_apart);
                fetch(at);
                fetch(at.add(64));
                let m = _mm512_set1_epi32(m.add(r * groups_apart).cast::<i32>().read_unaligned());
                *sum = add_block_q8(*sum, at, x_at, _mm512_shuffle_epi8(m, spread_first));
                *sum = add_block_q8(*sum, at.add(BLOCK_Q8), x_at.add(BLOCK_Q8), _mm512_shuffle_epi8(m, spread_second));
            }
            (codes, m, x_at) = (codes.add(2 * BLOCK_Q8), m.add(4), x_at.add(2 * BLOCK_Q8));
            left -= 2 * BLOCK_Q8;
        }
        if left >= BLOCK_Q8 {
            for (r, sum) in sums.iter_mut().enumerate() {
                let m = m.add(r * groups_apart);
                let m = _mm512_inserti64x4::<1>(_mm512_set1_epi64(i64::from(*m)), _mm256_set1_epi64x(i64::from(*m.add(1))));
                *sum = add_block_q8(*sum, codes.add(r * codes_apart), x_at, m);
            }
            (codes, m, x_at) = (codes.add(BLOCK_Q8), m.add(2), x_at.add(BLOCK_Q8));
            left -= BLOCK_Q8;
        }
        if left >= GROUP {
            let (x_low, x_high) = (_mm256_loadu_si256(x_at.cast()), _mm256_loadu_si256(x_at.add(GROUP / 2).cast()));
            for (r, sum) in sums.iter_mut().enumerate() {
                let w_at = _mm256_loadu_si256(codes.add(r * codes_apart).cast());
                let low = _mm256_dpbusd_epi32(_mm256_setzero_si256(), x_low, w_at);
                let high = _mm256_dpbusd_epi32(_mm256_setzero_si256(), _mm256_xor_si256(w_at, _mm256_set1_epi8(-128)), x_high);
                let fours = _mm512_zextsi256_si512(_mm256_add_epi32(low, _mm256_slli_epi32::<8>(high)));
                let m = _mm512_set1_epi64(i64::from(*m.add(r * groups_apart)));
                *sum = _mm512_add_epi64(*sum, _mm512_mul_epi32(in_pairs(fours), m));
            }
            (codes, m, x_at) = (codes.add(GROUP), m.add(1), x_at.add(GROUP));
            left -= GROUP;
        }
        // What fills no group of 32 is as it was.
        if left > 0 {
            for (r, sum) in sums.iter_mut().enumerate() {
                let products =
                    (0..left).map(|i| i32::from(codes.add(r * codes_apart + i).cast::<i8>().read()) * i32::from(x_at.add(i).read()));
                let rest = i64::from(products.sum::<i32>()) * i64::from(*m.add(r * groups_apart));
                *sum = _mm512_add_epi64(*sum, _mm512_zextsi128_si512(_mm_cvtsi64_si128(rest)));
            }
        }
        sums
    }
}

/// Adds to 64-bit `sums` what a block of q8 codes comes to.
///
/// # Safety
/// There are 64 codes at `w` and at `x`, and the machine has the instructions.
#[inline(always)]
unsafe fn add_block_q8(sums: __m512i, w: *const u8, x: *const i16, multipliers: __m512i) -> __m512i {
    // SAFETY: the caller's promise.
    unsafe {
        let w = _mm512_loadu_si512(w.cast());
        let low = _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_loadu_si512(x.cast()), w);
        let high = _mm512_xor_si512(w, _mm512_set1_epi8(-128));
        let high = _mm512_dpbusd_epi32(_mm512_setzero_si512(), high, _mm512_loadu_si512(x.add(BLOCK_Q8 / 2).cast()));
        let fours = _mm512_add_epi32(low, _mm512_slli_epi32::<8>(high));
        _mm512_add_epi64(sums, _mm512_mul_epi32(in_pairs(fours), multipliers))
    }
}

/// 32-bit lanes added in pairs, in the low halves of 64 bits.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
fn in_pairs(lanes: __m512i) -> __m512i {
    _mm512_add_epi32(lanes, _mm512_srli_epi64::<32>(lanes))
}

/// What the products of high bytes are too large by in `groups` groups, taken from 0, in 64-bit lanes.
///
/// # Safety
/// There are as many at both, and the machine has the instructions.
#[inline(always)]
unsafe fn added_by_128(m: *const u8, high_sums: *const i32, groups: usize) -> __m512i {
    // SAFETY: no more elements are loaded than there are.
    unsafe {
        let mut products = _mm512_setzero_si512();
        for first in (0..groups).step_by(16) {
            let some = first_lanes(groups - first);
            let m = _mm_maskz_loadu_epi8(some, m.add(first).cast());
            // A sum fits 16 bits; a lane gets at most 128 groups of 255 * 4,096.
            products = _mm512_dpwssd_epi32(products, _mm512_cvtepu8_epi32(m), _mm512_maskz_loadu_epi32(some, high_sums.add(first)));
        }
        _mm512_mul_epi32(in_pairs(products), _mm512_set1_epi64(-128 * 256))
    }
}

/// A mask of the first `count` of 16 lanes, or of all.
#[inline]
fn first_lanes(count: usize) -> u16 {
    if count < 16 { (1 << count) - 1 } else { u16::MAX }
}

/// The sums over the groups of row `first` and the others of `R` q4 rows, each a quarter further, of multiplier * (sum of the products with `x`) and offset * (sum of the codes of `x`), spread over 64-bit lanes.
///
/// # Safety
/// `w` has these rows, its columns are those of `x`, and the machine has the instructions.
#[inline(always)]
unsafe fn rows_q4<const R: usize>(w: Rows<'_>, first: usize, x: Integers<'_>) -> [__m512i; R] {
    // SAFETY: as in `rows_q8`.
    unsafe {
        // Multiplier i into each of the four 32-bit lanes of group i.
        let alone = |i: u8| _mm_set1_epi32(i32::from_le_bytes([i, 0x80, 0x80, 0x80]));
        let low = _mm512_castsi256_si512(_mm256_set_m128i(alone(1), alone(0)));
        let spread = _mm512_inserti64x4::<1>(low, _mm256_set_m128i(alone(3), alone(2)));
        let nibble = _mm512_set1_epi8(15);
        let (codes_apart, groups_apart) = (w.apart * w.stride, w.apart * w.groups);
        let (mut codes, mut m, mut x_at) = (w.codes_of(first), w.multipliers_of(first), x.codes.as_ptr());
        let mut left = w.cols;
        let mut sums = [_mm512_setzero_si512(); R];
        for (r, sum) in sums.iter_mut().enumerate() {
            *sum = dot_offsets(w.offsets_of(first + r * w.apart), x.sums.as_ptr(), w.groups);
        }
        while left >= BLOCK_Q4 {
            let (mut lows, mut highs) = ([_mm512_setzero_si512(); R], [_mm512_setzero_si512(); R]);
            for _ in 0..(left / BLOCK_Q4).min(SEGMENT_Q4) {
                let x = [0, 1, 2, 3].map(|i| _mm512_loadu_si512(x_at.add(i * BLOCK_Q4 / 4).cast()));
                for r in 0..R {
                    let at = codes.add(r * codes_apart);
                    fetch(at);
                    let m = _mm512_set1_epi32(m.add(r * groups_apart).cast::<i32>().read_unaligned());
                    let m = _mm512_shuffle_epi8(m, spread);
                    let w = _mm512_loadu_si512(at.cast());
                    let (even, odd) = (_mm512_and_si512(w, nibble), _mm512_and_si512(_mm512_srli_epi16::<4>(w), nibble));
                    let low = _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(_mm512_setzero_si512(), x[0], even), x[1], odd);
                    let high = _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(_mm512_setzero_si512(), even, x[2]), odd, x[3]);
                    // Eight products are at most 30,600: they are in the low halves of their lanes, and the multipliers' high halves are 0.
                    lows[r] = _mm512_dpwssd_epi32(lows[r], low, m);
                    highs[r] = _mm512_dpwssd_epi32(highs[r], high, m);
                }
                (codes, m, x_at) = (codes.add(BLOCK_Q4 / 2), m.add(4), x_at.add(BLOCK_Q4));
                left -= BLOCK_Q4;
            }
            for r in 0..R {
                sums[r] = add_bytes(sums[r], lows[r], highs[r]);
            }
        }
        if left >= GROUP {
            let (mut lows, mut highs) = ([_mm_setzero_si128(); R], [_mm_setzero_si128(); R]);
            while left >= GROUP {
                let x = [0, 1, 2, 3].map(|i| _mm_loadu_si128(x_at.add(i * GROUP / 4).cast()));
                let nibble = _mm_set1_epi8(15);
                for r in 0..R {
                    let m = _mm_set1_epi32(i32::from(*m.add(r * groups_apart)));
                    let w = _mm_loadu_si128(codes.add(r * codes_apart).cast());
                    let (even, odd) = (_mm_and_si128(w, nibble), _mm_and_si128(_mm_srli_epi16::<4>(w), nibble));
                    let low = _mm_dpbusd_epi32(_mm_dpbusd_epi32(_mm_setzero_si128(), x[0], even), x[1], odd);
                    let high = _mm_dpbusd_epi32(_mm_dpbusd_epi32(_mm_setzero_si128(), even, x[2]), odd, x[3]);
                    lows[r] = _mm_dpwssd_epi32(lows[r], low, m);
                    highs[r] = _mm_dpwssd_epi32(highs[r], high, m);
                }
                (codes, m, x_at) = (codes.add(GROUP / 2), m.add(1), x_at.add(GROUP));
                left -= GROUP;
            }
            for r in 0..R {
                sums[r] = add_bytes(sums[r], _mm512_zextsi128_si512(lows[r]), _mm512_zextsi128_si512(highs[r]));
            }
        }
        // What fills no group of 32 is as it was.
        if left > 0 {
            for (r, sum) in sums.iter_mut().enumerate() {
                let code = |i: usize| i32::from(codes.add(r * codes_apart + i / 2).read() >> (4 * (i % 2)) & 15);
                let products = (0..left).map(|i| code(i) * i32::from(x_at.add(i).read()));
                let rest = i64::from(products.sum::<i32>()) * i64::from(*m.add(r * groups_apart));
                *sum = _mm512_add_epi64(*sum, _mm512_zextsi128_si512(_mm_cvtsi64_si128(rest)));
            }
        }
        sums
    }
}

/// Adds to 64-bit `sums` those of low bytes and 256 times those of high bytes.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
fn add_bytes(sums: __m512i, lows: __m512i, highs: __m512i) -> __m512i {
    let sums = _mm512_add_epi64(sums, _mm512_mul_epi32(in_pairs(lows), _mm512_set1_epi64(1)));
    _mm512_add_epi64(sums, _mm512_mul_epi32(in_pairs(highs), _mm512_set1_epi64(256)))
}

/// The sum of the products of a q4 row's offsets and the sums of the codes of each group, in 64-bit lanes.
///
/// # Safety
/// There are `groups` at both, and the machine has the instructions.
#[inline(always)]
unsafe fn dot_offsets(offsets: *const u8, group_sums: *const i32, groups: usize) -> __m512i {
    // SAFETY: no more elements are loaded than there are.
    unsafe {
        let mut products = _mm512_setzero_si512();
        for first in (0..groups).step_by(8) {
            let some = first_lanes(groups - first) as u8;
            let offsets = _mm512_cvtepi16_epi64(_mm_maskz_loadu_epi16(some, offsets.add(2 * first).cast()));
            let sums = _mm512_cvtepi32_epi64(_mm256_maskz_loadu_epi32(some, group_sums.add(first)));
            products = _mm512_add_epi64(products, _mm512_mul_epi32(offsets, sums));
        }
        products
    }
}

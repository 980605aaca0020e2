//! Rows of q8 and q4 in groups of 32 times codes of 16 bits with VNNI, which multiplies bytes: a code is 256 * its high byte (signed) + its low byte (unsigned).
//!
//! The instruction takes an unsigned byte and a signed one. A q8 code and a low byte are such a pair; for the high bytes the q8 code is made unsigned by adding 128, and what that adds is taken away
//! once a row. A nibble of q4 is both.

use super::avx2_integers::{Row, blocks};
use core::arch::x86_64::*;

/// The group that the kernels are made for.
pub(super) const GROUP: usize = 32;
/// Elements of q8 that go through the registers together; what is left may fill a half.
const BLOCK_Q8: usize = 64;
/// The same of q4; what is left may fill quarters.
const BLOCK_Q4: usize = 128;
/// Blocks of q4 of which two sums fit 32 bits together: 255 times 30,600 a block.
const SEGMENT_Q4: usize = 128;
/// How far ahead the codes are fetched, in bytes.
const AHEAD: usize = 1024;

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

/// The sum over the groups of a q8 row of multiplier * (sum of the products with `x`); `x` and `high_sums` as [`split_q8`] makes them.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(super) fn dot_q8(row: Row<'_>, x: &[i16], high_sums: &[i32]) -> i64 {
    let first = _mm512_inserti64x4::<1>(_mm512_set1_epi64(alone(0)), _mm256_set1_epi64x(alone(1)));
    let second = _mm512_inserti64x4::<1>(_mm512_set1_epi64(alone(2)), _mm256_set1_epi64x(alone(3)));
    let mut sums = added_by_128(row.multipliers.get(..x.len() / GROUP).unwrap_or(&[]), high_sums);
    let (x_pairs, x) = x.as_chunks::<{ 2 * BLOCK_Q8 }>();
    let (pairs, codes) = blocks::<{ 2 * BLOCK_Q8 }>(row.codes, x_pairs.len());
    let (fours, multipliers) = blocks::<4>(row.multipliers, x_pairs.len());
    for ((w, x), m) in pairs.iter().zip(x_pairs).zip(fours) {
        let m = _mm512_set1_epi32(i32::from_le_bytes(*m));
        // SAFETY: there are two blocks of codes at `w` and of `x`; what is fetched ahead may lie anywhere.
        unsafe {
            _mm_prefetch::<_MM_HINT_T0>(w.as_ptr().wrapping_add(AHEAD).cast());
            _mm_prefetch::<_MM_HINT_T0>(w.as_ptr().wrapping_add(AHEAD + 64).cast());
            sums = add_block_q8(sums, w.as_ptr(), x.as_ptr(), _mm512_shuffle_epi8(m, first));
            sums = add_block_q8(sums, w.as_ptr().add(BLOCK_Q8), x.as_ptr().add(BLOCK_Q8), _mm512_shuffle_epi8(m, second));
        }
    }
    let mut multipliers = multipliers.iter().map(|m| i64::from(*m));
    let mut next = || multipliers.next().unwrap_or(0);
    let (x_blocks, x) = x.as_chunks::<BLOCK_Q8>();
    let (w_blocks, codes) = blocks::<BLOCK_Q8>(codes, x_blocks.len());
    for (w, x) in w_blocks.iter().zip(x_blocks) {
        let m = _mm512_inserti64x4::<1>(_mm512_set1_epi64(next()), _mm256_set1_epi64x(next()));
        // SAFETY: there is a block of codes at `w` and of `x`.
        sums = unsafe { add_block_q8(sums, w.as_ptr(), x.as_ptr(), m) };
    }
    let (x_halves, x) = x.as_chunks::<GROUP>();
    let (halves, codes) = blocks::<GROUP>(codes, x_halves.len());
    for (w, x) in halves.iter().zip(x_halves) {
        // SAFETY: there are 32 bytes at `w` and 64 at `x`.
        let (w, low, high) = unsafe {
            let x = x.as_ptr().cast::<__m256i>();
            (_mm256_loadu_si256(w.as_ptr().cast()), _mm256_loadu_si256(x), _mm256_loadu_si256(x.add(1)))
        };
        let low = _mm256_dpbusd_epi32(_mm256_setzero_si256(), low, w);
        let high = _mm256_dpbusd_epi32(_mm256_setzero_si256(), _mm256_xor_si256(w, _mm256_set1_epi8(-128)), high);
        let fours = _mm512_zextsi256_si512(_mm256_add_epi32(low, _mm256_slli_epi32::<8>(high)));
        sums = _mm512_add_epi64(sums, _mm512_mul_epi32(in_pairs(fours), _mm512_set1_epi64(next())));
    }
    // What fills no group of 32 is as it was.
    let rest: i32 = codes.iter().zip(x).map(|(w, x)| i32::from(w.cast_signed()) * i32::from(*x)).sum();
    _mm512_reduce_add_epi64(sums) + i64::from(rest) * next()
}

/// Adds to 64-bit `sums` what a block of q8 codes comes to.
///
/// # Safety
/// There are 64 codes at `w` and at `x`, and the machine has the instructions.
#[inline(always)]
unsafe fn add_block_q8(sums: __m512i, w: *const u8, x: *const i16, multipliers: __m512i) -> __m512i {
    // SAFETY: the caller's promise.
    unsafe {
        let (w, x) = (_mm512_loadu_si512(w.cast()), x.cast::<__m512i>());
        let low = _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_loadu_si512(x), w);
        let high = _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_xor_si512(w, _mm512_set1_epi8(-128)), _mm512_loadu_si512(x.add(1)));
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

/// What the products of high bytes are too large by, taken from 0, in 64-bit lanes.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
fn added_by_128(multipliers: &[u8], high_sums: &[i32]) -> __m512i {
    let mut products = _mm512_setzero_si512();
    for (m, sums) in multipliers.chunks(16).zip(high_sums.chunks(16)) {
        let some = first_lanes(m.len().min(sums.len()));
        // SAFETY: no more elements are loaded than there are.
        let (m, sums) = unsafe { (_mm_maskz_loadu_epi8(some, m.as_ptr().cast()), _mm512_maskz_loadu_epi32(some, sums.as_ptr())) };
        // A sum fits 16 bits; a lane gets at most 128 groups of 255 * 4,096.
        products = _mm512_dpwssd_epi32(products, _mm512_cvtepu8_epi32(m), sums);
    }
    _mm512_mul_epi32(in_pairs(products), _mm512_set1_epi64(-128 * 256))
}

/// A mask of the first `count` of 16 lanes.
fn first_lanes(count: usize) -> u16 {
    u16::MAX.checked_shr(16u32.saturating_sub(count as u32)).unwrap_or(0)
}

/// The sum over the groups of a q4 row of multiplier * (sum of the products with `x`), which [`split_q4`] has split, and of offset * sum of the codes.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(super) fn dot_q4(row: Row<'_>, x: &[i16], offsets: &[[u8; 2]], group_sums: &[i32]) -> i64 {
    // Multiplier i into each of the four 32-bit lanes of group i.
    let spread = |i: u8| _mm_set1_epi32(i32::from_le_bytes([i, 0x80, 0x80, 0x80]));
    let low = _mm512_castsi256_si512(_mm256_set_m128i(spread(1), spread(0)));
    let spread = _mm512_inserti64x4::<1>(low, _mm256_set_m128i(spread(3), spread(2)));
    let nibble = _mm512_set1_epi8(15);
    let (x_blocks, x) = x.as_chunks::<BLOCK_Q4>();
    let (w_blocks, codes) = blocks::<{ BLOCK_Q4 / 2 }>(row.codes, x_blocks.len());
    let (fours, multipliers) = blocks::<4>(row.multipliers, x_blocks.len());
    let mut sums = dot_offsets(offsets, group_sums);
    for ((w_blocks, x_blocks), fours) in w_blocks.chunks(SEGMENT_Q4).zip(x_blocks.chunks(SEGMENT_Q4)).zip(fours.chunks(SEGMENT_Q4)) {
        let (mut lows, mut highs) = (_mm512_setzero_si512(), _mm512_setzero_si512());
        for ((w, x), m) in w_blocks.iter().zip(x_blocks).zip(fours) {
            let m = _mm512_shuffle_epi8(_mm512_set1_epi32(i32::from_le_bytes(*m)), spread);
            // SAFETY: there are 64 bytes at `w` and 256 at `x`; what is fetched ahead may lie anywhere.
            unsafe {
                _mm_prefetch::<_MM_HINT_T0>(w.as_ptr().wrapping_add(AHEAD).cast());
                let (w, x) = (_mm512_loadu_si512(w.as_ptr().cast()), x.as_ptr().cast::<__m512i>());
                let (even, odd) = (_mm512_and_si512(w, nibble), _mm512_and_si512(_mm512_srli_epi16::<4>(w), nibble));
                let low = _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_loadu_si512(x), even);
                let low = _mm512_dpbusd_epi32(low, _mm512_loadu_si512(x.add(1)), odd);
                let high = _mm512_dpbusd_epi32(_mm512_setzero_si512(), even, _mm512_loadu_si512(x.add(2)));
                let high = _mm512_dpbusd_epi32(high, odd, _mm512_loadu_si512(x.add(3)));
                // Eight products are at most 30,600: they are in the low halves of their lanes, and the multipliers' high halves are 0.
                lows = _mm512_dpwssd_epi32(lows, low, m);
                highs = _mm512_dpwssd_epi32(highs, high, m);
            }
        }
        sums = add_bytes(sums, lows, highs);
    }
    let (x_blocks, x) = x.as_chunks::<GROUP>();
    let (w_blocks, codes) = blocks::<{ GROUP / 2 }>(codes, x_blocks.len());
    let mut multipliers = multipliers.iter().map(|m| i32::from(*m));
    if !x_blocks.is_empty() {
        let (mut lows, mut highs) = (_mm_setzero_si128(), _mm_setzero_si128());
        for ((w, x), m) in w_blocks.iter().zip(x_blocks).zip(&mut multipliers) {
            let m = _mm_set1_epi32(m);
            // SAFETY: there are 16 bytes at `w` and 64 at `x`.
            unsafe {
                let (w, x) = (_mm_loadu_si128(w.as_ptr().cast()), x.as_ptr().cast::<__m128i>());
                let nibble = _mm_set1_epi8(15);
                let (even, odd) = (_mm_and_si128(w, nibble), _mm_and_si128(_mm_srli_epi16::<4>(w), nibble));
                let low = _mm_dpbusd_epi32(_mm_setzero_si128(), _mm_loadu_si128(x), even);
                let low = _mm_dpbusd_epi32(low, _mm_loadu_si128(x.add(1)), odd);
                let high = _mm_dpbusd_epi32(_mm_setzero_si128(), even, _mm_loadu_si128(x.add(2)));
                let high = _mm_dpbusd_epi32(high, odd, _mm_loadu_si128(x.add(3)));
                lows = _mm_dpwssd_epi32(lows, low, m);
                highs = _mm_dpwssd_epi32(highs, high, m);
            }
        }
        sums = add_bytes(sums, _mm512_zextsi128_si512(lows), _mm512_zextsi128_si512(highs));
    }
    let nibbles = codes.iter().flat_map(|byte| [byte & 15, byte >> 4]);
    let rest: i32 = nibbles.zip(x).map(|(w, x)| i32::from(w) * i32::from(*x)).sum();
    _mm512_reduce_add_epi64(sums) + i64::from(rest) * i64::from(multipliers.next().unwrap_or(0))
}

/// Adds to 64-bit `sums` those of low bytes and 256 times those of high bytes.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
fn add_bytes(sums: __m512i, lows: __m512i, highs: __m512i) -> __m512i {
    let sums = _mm512_add_epi64(sums, _mm512_mul_epi32(in_pairs(lows), _mm512_set1_epi64(1)));
    _mm512_add_epi64(sums, _mm512_mul_epi32(in_pairs(highs), _mm512_set1_epi64(256)))
}

/// The sum of the products of a q4 row's offsets and the sums of the codes of each group, in 64-bit lanes.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
fn dot_offsets(offsets: &[[u8; 2]], group_sums: &[i32]) -> __m512i {
    let mut products = _mm512_setzero_si512();
    for (offsets, sums) in offsets.chunks(8).zip(group_sums.chunks(8)) {
        let some = first_lanes(offsets.len().min(sums.len())) as u8;
        // SAFETY: no more elements are loaded than there are.
        let (offsets, sums) =
            unsafe { (_mm_maskz_loadu_epi16(some, offsets.as_ptr().cast()), _mm256_maskz_loadu_epi32(some, sums.as_ptr())) };
        products = _mm512_add_epi64(products, _mm512_mul_epi32(_mm512_cvtepi16_epi64(offsets), _mm512_cvtepi32_epi64(sums)));
    }
    products
}

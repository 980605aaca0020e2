//! Rows of q8 and q4 times codes of 16 bits with AVX2: products are added in pairs of 32 bits, groups in 64.

use core::arch::x86_64::*;

/// Elements that go through the registers together, in q4.
pub(super) const BLOCK: usize = 32;
/// So many elements can be added up in pairs of 32 bits, and two such pairs, before one does not fit.
const SEGMENT: usize = 2048;

/// One row: its codes, what each group counts, and for q4 what is added.
#[derive(Clone, Copy)]
pub(super) struct Row<'a> {
    pub(super) codes: &'a [u8],
    pub(super) group_len: usize,
    /// None where the row is one group.
    pub(super) multipliers: &'a [u8],
}

/// The first `count` blocks of `codes`, and what follows them: rows are padded, so there may be one more than of activations.
pub(super) fn blocks<const N: usize>(codes: &[u8], count: usize) -> (&[[u8; N]], &[u8]) {
    let (blocks, rest) = codes.split_at_checked(count.saturating_mul(N)).unwrap_or((codes, &[]));
    (blocks.as_chunks::<N>().0, rest)
}

/// The sum over the groups of a q8 row of multiplier * (sum of the products with `x`).
#[target_feature(enable = "avx2")]
pub(super) fn dot_q8(row: Row<'_>, x: &[i16]) -> i64 {
    if row.group_len == 32 && row.multipliers.len() * 32 == x.len() && row.codes.len() >= x.len() {
        let mut sums = _mm256_setzero_si256();
        let (codes, x) = (row.codes.as_chunks::<32>().0, x.as_chunks::<32>().0);
        for ((codes, x), multiplier) in codes.iter().zip(x).zip(row.multipliers) {
            // SAFETY: there are 32 bytes at `codes` and 32 codes at `x`; what is fetched ahead may lie anywhere.
            let pairs = unsafe {
                _mm_prefetch::<_MM_HINT_T0>(codes.as_ptr().wrapping_add(AHEAD).cast());
                let low = products_q8(codes.as_ptr(), x.as_ptr());
                _mm256_add_epi32(low, products_q8(codes.as_ptr().add(16), x.as_ptr().add(16)))
            };
            sums = add_group(sums, pairs, *multiplier);
        }
        return total(sums);
    }
    groups(row, x, |codes, x| {
        // SAFETY: `groups` gives 16 elements in as many bytes.
        unsafe { products_q8(codes, x) }
    })
}

/// The same for a q4 row, and `x` in [`super::Form::Halves`].
#[target_feature(enable = "avx2")]
pub(super) fn dot_q4(row: Row<'_>, x: &[i16]) -> i64 {
    let (x, x_rest) = x.as_chunks::<BLOCK>();
    let (codes, codes_rest) = blocks::<16>(row.codes, x.len());
    let mut sums = _mm256_setzero_si256();
    let blocks_a_group = row.group_len / BLOCK;
    let (mut in_group, mut multipliers) = (0, row.multipliers.iter());
    let mut multiplier = 0;
    for (codes, x) in codes.iter().zip(x) {
        if in_group == 0 {
            in_group = blocks_a_group;
            multiplier = multipliers.next().copied().unwrap_or(0);
        }
        in_group -= 1;
        // SAFETY: there are 16 bytes at `codes` and 32 codes at `x`; what is fetched ahead may lie anywhere.
        let pairs = unsafe {
            _mm_prefetch::<_MM_HINT_T0>(codes.as_ptr().wrapping_add(AHEAD).cast());
            let codes = _mm256_cvtepu8_epi16(_mm_loadu_si128(codes.as_ptr().cast()));
            let even = _mm256_madd_epi16(_mm256_and_si256(codes, _mm256_set1_epi16(15)), _mm256_loadu_si256(x.as_ptr().cast()));
            let odd = _mm256_madd_epi16(_mm256_srli_epi16::<4>(codes), _mm256_loadu_si256(x.as_ptr().add(16).cast()));
            _mm256_add_epi32(even, odd)
        };
        sums = add_group(sums, pairs, multiplier);
    }
    // What fills no block is in its own order; a group that it shares with the last block has that one's multiplier.
    let multiplier = if in_group == 0 { multipliers.next().copied().unwrap_or(0) } else { multiplier };
    let mut rest = 0;
    for (byte, x) in codes_rest.iter().zip(x_rest.chunks(2)) {
        for (code, x) in [byte & 15, byte >> 4].into_iter().zip(x) {
            rest += i32::from(code) * i32::from(*x);
        }
    }
    total(sums) + i64::from(rest) * i64::from(multiplier)
}

/// The sum of the products of a q4 row's offsets and the sums of the codes of each group.
#[target_feature(enable = "avx2")]
pub(super) fn dot_offsets(offsets: &[[u8; 2]], sums: &[i32]) -> i64 {
    let (offsets, offsets_rest) = offsets.as_chunks::<4>();
    let (fours, sums_rest) = sums.as_chunks::<4>();
    let mut products = _mm256_setzero_si256();
    for (offsets, sums) in offsets.iter().zip(fours) {
        // SAFETY: there are 8 bytes at `offsets` and 16 at `sums`.
        let (offsets, sums) = unsafe { (_mm_loadl_epi64(offsets.as_ptr().cast()), _mm_loadu_si128(sums.as_ptr().cast())) };
        products = _mm256_add_epi64(products, _mm256_mul_epi32(_mm256_cvtepi16_epi64(offsets), _mm256_cvtepi32_epi64(sums)));
    }
    let sums_rest = fours.get(offsets.len()).map_or(sums_rest, |sums| sums.as_slice());
    let rest = offsets_rest.iter().zip(sums_rest).map(|(offset, sum)| i64::from(i16::from_le_bytes(*offset)) * i64::from(*sum));
    total(products) + rest.sum::<i64>()
}

/// How far ahead the codes are fetched, in bytes.
const AHEAD: usize = 1024;

/// The products of 16 q8 codes and 16 of `x`, added in pairs.
///
/// # Safety
/// There are as many, and the machine has AVX2.
#[inline(always)]
unsafe fn products_q8(codes: *const u8, x: *const i16) -> __m256i {
    // SAFETY: the caller's promise.
    unsafe { _mm256_madd_epi16(_mm256_cvtepi8_epi16(_mm_loadu_si128(codes.cast())), _mm256_loadu_si256(x.cast())) }
}

/// `sums` and `multiplier` times what `pairs` hold, in 64 bits.
#[target_feature(enable = "avx2")]
#[inline]
fn add_group(sums: __m256i, pairs: __m256i, multiplier: u8) -> __m256i {
    let pairs = _mm256_add_epi32(pairs, _mm256_srli_epi64::<32>(pairs));
    _mm256_add_epi64(sums, _mm256_mul_epi32(pairs, _mm256_set1_epi64x(i64::from(multiplier))))
}

#[target_feature(enable = "avx2")]
#[inline]
fn total(sums: __m256i) -> i64 {
    let two = _mm_add_epi64(_mm256_castsi256_si128(sums), _mm256_extracti128_si256::<1>(sums));
    _mm_cvtsi128_si64(two) + _mm_extract_epi64::<1>(two)
}

/// Groups of any length: `products` gets 16 elements in as many bytes.
#[target_feature(enable = "avx2")]
#[inline]
fn groups(row: Row<'_>, x: &[i16], products: impl Fn(*const u8, *const i16) -> __m256i) -> i64 {
    let one = [1];
    let (multipliers, group_len) = if row.multipliers.is_empty() { (&one[..], x.len()) } else { (row.multipliers, row.group_len) };
    let mut sums = _mm256_setzero_si256();
    for ((x, codes), multiplier) in x.chunks(group_len.max(1)).zip(row.codes.chunks(group_len.max(1))).zip(multipliers) {
        for (x, codes) in x.chunks(SEGMENT).zip(codes.chunks(SEGMENT)) {
            let mut pairs = _mm256_setzero_si256();
            let (whole, rest) = x.as_chunks::<16>();
            let (packed, packed_rest) = codes.split_at(codes.len().min(whole.len() * 16));
            for (x, codes) in whole.iter().zip(packed.chunks_exact(16)) {
                pairs = _mm256_add_epi32(pairs, products(codes.as_ptr(), x.as_ptr()));
            }
            if !rest.is_empty() {
                let (mut x, mut codes) = ([0i16; 16], [0u8; 16]);
                x.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
                codes.iter_mut().zip(packed_rest).for_each(|(to, from)| *to = *from);
                pairs = _mm256_add_epi32(pairs, products(codes.as_ptr(), x.as_ptr()));
            }
            sums = add_group(sums, pairs, *multiplier);
        }
    }
    total(sums)
}

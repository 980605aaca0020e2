//! Rows of q8 and q4 as [`integer_matmul`](super::integer_matmul) takes them: sixteen at a time, widened to 16 bits, two columns of all of them in a register.

use super::integer_rows::Rows;
use crate::format::{DType, TensorView};
use core::arch::x86_64::*;

/// Rows in a block.
pub(super) const LANES: usize = 16;
/// Columns that are packed together.
const BLOCK: usize = 64;
/// The longest segment: the sum of the products of so many codes fits 32 bits, with room to spare.
const LONGEST: usize = 256;

/// How a row is cut: into segments, of which a group has one or several.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    pub(super) cols: usize,
    /// Columns of a segment; the last may have fewer.
    pub(super) segment: usize,
    pub(super) segments: usize,
    /// Segments that have a multiplier in common.
    per_group: usize,
    /// Whether it is q4.
    pub(super) has_offsets: bool,
}

impl Shape {
    /// `None` where a group is longer than a segment and is no whole number of them.
    pub(super) fn new(w: &TensorView<'_>) -> Option<Self> {
        let (cols, group) = (w.cols(), w.group_len());
        let segment = group.min(LONGEST);
        let whole = group >= cols || group.is_multiple_of(segment) && segment.is_multiple_of(4);
        (cols > 0 && group > 0 && whole).then(|| Self {
            cols,
            segment,
            segments: cols.div_ceil(segment),
            per_group: group.div_ceil(segment),
            has_offsets: w.dtype() == DType::Q4,
        })
    }

    /// Fours of columns.
    pub(super) fn steps(self) -> usize {
        self.cols.div_ceil(4)
    }

    /// Columns with those that fill the last four.
    pub(super) fn padded(self) -> usize {
        4 * self.steps()
    }

    /// Bytes that sixteen rows take.
    pub(super) fn block_bytes(self) -> usize {
        128 * self.steps() + self.segment_bytes() * self.segments
    }

    /// Bytes of what belongs to a segment beside its codes.
    fn segment_bytes(self) -> usize {
        if self.has_offsets { 4 * 64 } else { 2 * 64 }
    }
}

/// Sixteen packed rows.
#[derive(Clone, Copy)]
pub(super) struct Packed {
    /// As many bytes as [`Shape::block_bytes`] says.
    pub(super) at: *const u8,
    pub(super) shape: Shape,
}

impl Packed {
    /// The codes of four columns: of the first and the third, and of the others.
    ///
    /// # Safety
    /// There are [`Shape::block_bytes`] bytes, filled by [`pack`], and so many steps.
    #[target_feature(enable = "avx512f")]
    #[inline]
    pub(super) unsafe fn codes(self, step: usize) -> [__m512i; 2] {
        // SAFETY: the caller's promise.
        unsafe { [_mm512_loadu_si512(self.at.add(128 * step).cast()), _mm512_loadu_si512(self.at.add(128 * step + 64).cast())] }
    }

    /// The multipliers of a segment, as what low and high halves of 32 bits are multiplied by.
    ///
    /// # Safety
    /// As [`Packed::codes`], and there are so many segments.
    #[target_feature(enable = "avx512f")]
    #[inline]
    pub(super) unsafe fn multipliers(self, segment: usize) -> [__m512i; 2] {
        // SAFETY: the caller's promise.
        unsafe {
            let at = self.beside(segment);
            [_mm512_loadu_si512(at.cast()), _mm512_loadu_si512(at.add(64).cast())]
        }
    }

    /// The offsets of a segment, eight rows to a register.
    ///
    /// # Safety
    /// As [`Packed::multipliers`], and there are offsets.
    #[target_feature(enable = "avx512f")]
    #[inline]
    pub(super) unsafe fn offsets(self, segment: usize) -> [__m512d; 2] {
        // SAFETY: the caller's promise.
        unsafe {
            let at = self.beside(segment);
            [_mm512_loadu_pd(at.add(128).cast()), _mm512_loadu_pd(at.add(192).cast())]
        }
    }

    fn beside(self, segment: usize) -> *const u8 {
        self.at.wrapping_add(128 * self.shape.steps() + self.shape.segment_bytes() * segment)
    }
}

/// Packs `many` of `rows` from `first` on, sixteen at most, and zeros for the others.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(super) fn pack(to: &mut [u8], rows: Rows<'_>, (first, many): (usize, usize), shape: Shape) {
    let codes = 128 * shape.steps();
    if to.len() < shape.block_bytes() || shape.cols != rows.cols {
        return;
    }
    let (packed, beside) = to.split_at_mut(codes);
    for (number, to) in packed.chunks_mut(2 * BLOCK * LANES).enumerate() {
        let from = number * BLOCK;
        let mut sixteen = [_mm512_setzero_si512(); LANES];
        for (r, row) in sixteen.iter_mut().enumerate().take(many) {
            // SAFETY: `rows` has the row, and it is as long as the shape says.
            *row = unsafe { codes_of(rows, first + r, from, shape) };
        }
        for (to, columns) in to.as_chunks_mut::<128>().0.iter_mut().zip(turned(&sixteen)) {
            let (first, second) = (_mm512_srai_epi16::<8>(_mm512_slli_epi16::<8>(columns)), _mm512_srai_epi16::<8>(columns));
            // SAFETY: there is room for two registers.
            unsafe {
                _mm512_storeu_si512(to.as_mut_ptr().cast(), first);
                _mm512_storeu_si512(to.as_mut_ptr().add(64).cast(), second);
            }
        }
    }
    let (mut multipliers, mut offsets) = (Fours::none(), Fours::none());
    for (segment, beside) in beside.chunks_exact_mut(shape.segment_bytes()).enumerate().take(shape.segments) {
        let group = segment / shape.per_group;
        let multiplier = if rows.has_multipliers() {
            // SAFETY: `rows` has these rows, and a multiplier for each of its groups.
            let four = unsafe { multipliers.holding(group, (rows.multipliers_of(first), rows.groups, many)) };
            _mm512_and_si512(_mm512_srl_epi32(four, _mm_cvtsi32_si128(8 * (group % 4) as i32)), _mm512_set1_epi32(255))
        } else {
            _mm512_set1_epi32(1)
        };
        let mut to = beside.as_chunks_mut::<64>().0.iter_mut();
        for found in [multiplier, _mm512_slli_epi32::<16>(multiplier)] {
            let Some(to) = to.next() else { return };
            // SAFETY: there is room for a register.
            unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), found) };
        }
        if let (Some(low), Some(high)) = (to.next(), to.next()) {
            // SAFETY: `rows` has these rows, and an offset for each of its groups.
            let two = unsafe { offsets.holding(2 * group, (rows.offsets_of(first), 2 * rows.groups, many)) };
            let left = _mm512_sll_epi32(two, _mm_cvtsi32_si128(16 - 16 * (group % 2) as i32));
            let offset = _mm512_srai_epi32::<16>(left);
            // SAFETY: there is room for a register at each.
            unsafe {
                _mm512_storeu_pd(low.as_mut_ptr().cast(), _mm512_cvtepi32_pd(_mm512_castsi512_si256(offset)));
                _mm512_storeu_pd(high.as_mut_ptr().cast(), _mm512_cvtepi32_pd(_mm512_extracti64x4_epi64::<1>(offset)));
            }
        }
    }
}

/// Sixteen rows of bytes, four columns to a register: of 64 columns at a time.
struct Fours {
    columns: [__m512i; LANES],
    /// The first of them.
    from: usize,
}

impl Fours {
    #[target_feature(enable = "avx512f")]
    #[inline]
    fn none() -> Self {
        Self { columns: [_mm512_setzero_si512(); LANES], from: usize::MAX }
    }

    /// The four bytes of each row to which byte `column` belongs.
    ///
    /// # Safety
    /// `many` rows of `len` bytes, which are more than `column`, lie one after the other at `rows`, and the machine has the instructions.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
    #[inline]
    unsafe fn holding(&mut self, column: usize, (rows, len, many): (*const u8, usize, usize)) -> __m512i {
        let from = column - column % BLOCK;
        if self.from != from {
            self.from = from;
            let mut sixteen = [_mm512_setzero_si512(); LANES];
            for (r, row) in sixteen.iter_mut().enumerate().take(many) {
                let some = u64::MAX >> (BLOCK - (len - from).min(BLOCK));
                // SAFETY: the caller's promise; the mask leaves out what lies behind the end of the row.
                *row = unsafe { _mm512_maskz_loadu_epi8(some, rows.add(r * len + from).cast()) };
            }
            self.columns = turned(&sixteen);
        }
        self.columns[column % BLOCK / 4]
    }
}

/// 64 codes of a row from column `from` on, a byte each, and zeros behind its end.
///
/// # Safety
/// `rows` has the row, and the machine has the instructions.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
unsafe fn codes_of(rows: Rows<'_>, row: usize, from: usize, shape: Shape) -> __m512i {
    let left = (shape.cols - from).min(BLOCK);
    let some = u64::MAX >> (BLOCK - left);
    // SAFETY: the caller's promise; the masks leave out what lies behind the end of the row.
    unsafe {
        if !shape.has_offsets {
            return _mm512_maskz_loadu_epi8(some, rows.codes_of(row).add(from).cast());
        }
        let bytes = u32::MAX >> (BLOCK / 2 - left.div_ceil(2));
        let pairs = _mm512_cvtepu8_epi16(_mm256_maskz_loadu_epi8(bytes, rows.codes_of(row).add(from / 2).cast()));
        let nibbles = _mm512_and_si512(_mm512_or_si512(pairs, _mm512_slli_epi16::<4>(pairs)), _mm512_set1_epi8(15));
        _mm512_maskz_mov_epi8(some, nibbles)
    }
}

/// Sixteen rows of sixteen 32-bit lanes as columns.
#[target_feature(enable = "avx512f")]
#[inline]
fn turned(rows: &[__m512i; LANES]) -> [__m512i; LANES] {
    let mut fours = *rows;
    for (to, from) in fours.as_chunks_mut::<4>().0.iter_mut().zip(rows.as_chunks::<4>().0) {
        let [a, b, c, d] = *from;
        let (ab, cd) = (_mm512_unpacklo_epi32(a, b), _mm512_unpacklo_epi32(c, d));
        let (ab_high, cd_high) = (_mm512_unpackhi_epi32(a, b), _mm512_unpackhi_epi32(c, d));
        *to = [
            _mm512_unpacklo_epi64(ab, cd),
            _mm512_unpackhi_epi64(ab, cd),
            _mm512_unpacklo_epi64(ab_high, cd_high),
            _mm512_unpackhi_epi64(ab_high, cd_high),
        ];
    }
    let mut columns = *rows;
    for i in 0..4 {
        let (a, b) = (fours[i], fours[4 + i]);
        let (c, d) = (fours[8 + i], fours[12 + i]);
        let (ab, cd) = (_mm512_shuffle_i32x4::<0x44>(a, b), _mm512_shuffle_i32x4::<0x44>(c, d));
        let (ab_high, cd_high) = (_mm512_shuffle_i32x4::<0xee>(a, b), _mm512_shuffle_i32x4::<0xee>(c, d));
        columns[i] = _mm512_shuffle_i32x4::<0x88>(ab, cd);
        columns[4 + i] = _mm512_shuffle_i32x4::<0xdd>(ab, cd);
        columns[8 + i] = _mm512_shuffle_i32x4::<0x88>(ab_high, cd_high);
        columns[12 + i] = _mm512_shuffle_i32x4::<0xdd>(ab_high, cd_high);
    }
    columns
}

//! q8 and q4 matrices times many vectors with VNNI: a register holds sixteen rows, so that no sum is ever added up across lanes.
//!
//! Rows are packed once for all vectors ([`packed`](super::packed)), with their codes in 16 bits as those of the vectors are. The sum of a segment fits 32 bits; its halves times the multiplier add up in
//! 32 bits each.

use super::Form;
use super::integer_rows::Rows;
use super::packed::{LANES, Packed, Shape, pack};
use crate::executor::Executor;
use crate::format::{DType, TensorView};
use crate::ops::activation::Activation;
use crate::ops::chip::gate::{Columns, share_columns};
use crate::ops::crew::{MOST, Scratch};
use core::arch::x86_64::*;

/// Vectors in a tile.
const VECTORS: usize = 4;
/// Blocks of rows beside them.
const BLOCKS: usize = 2;
/// Bytes that come from memory together.
const LINE: usize = 64;
/// So many products of a half of 16 bits and a multiplier add up in 32.
const MANY: usize = 256;

/// The vectors of a product, split.
#[derive(Clone, Copy)]
struct Inputs<'a> {
    /// Of each vector the codes, in each four of them the second and the third in each other's place, and, for q4, the sum of each segment as `f64`.
    planes: &'a [u8],
    /// Bytes of a vector there.
    stride: usize,
    /// What a code of 1 is worth in each.
    scales: &'a [f32],
}

/// Each row of `out` = `w` times a vector of `x`, all as wide as `w`, which has the rows. False, and nothing done, for groups that it is not made for and with too little scratch.
pub(super) fn matmul(
    executor: Option<&dyn Executor>,
    out: &mut [f32],
    w: &TensorView<'_>,
    x: &mut [Activation<'_>],
    scratch: &mut Scratch<'_>,
    (slots, piece): (usize, usize),
) -> bool {
    let (count, rows) = (x.len(), out.len() / x.len().max(1));
    let Some(shape) = Shape::new(w) else { return false };
    let stride = 2 * shape.padded() + if shape.has_offsets { 8 * shape.segments } else { 0 };
    if scratch.slots.len() / slots.max(1) < BLOCKS * shape.block_bytes() / size_of::<f32>() {
        return false;
    }
    let Some(planes) = bytemuck::cast_slice_mut::<f32, u8>(scratch.planes).get_mut(..stride * count) else { return false };
    let mut scales = [0f32; MOST];
    for ((x, plane), scale) in x.iter_mut().zip(planes.chunks_exact_mut(stride)).zip(&mut scales) {
        let x = x.integers_as(w, Form::Plain);
        let Some(codes) = x.codes.get(..shape.cols) else { return false };
        *scale = x.scale;
        // SAFETY: Level::current says that there is VNNI, and what came before it.
        unsafe { split(plane, codes, shape) };
    }
    let Some(first) = x.first_mut() else { return false };
    let any = first.integers_as(w, Form::Plain);
    let per_byte = if w.dtype() == DType::Q4 { 2 } else { 1 };
    if Rows::new(w, (0, rows), &any, per_byte).is_none() {
        return false;
    }
    let inputs = Inputs { planes, stride, scales: scales.get(..count).unwrap_or(&[]) };
    let row_bytes = w.bytes().len() / w.rows().max(1);
    let piece = (piece / row_bytes.max(1)).next_multiple_of(BLOCKS * LANES).max(BLOCKS * LANES);
    share_columns(executor, out, count, piece, (&mut *scratch.slots, slots), &|first, columns, slot| {
        let Some(rows) = Rows::new(w, (first, columns.len()), &any, per_byte) else { return };
        // SAFETY: as above.
        unsafe { tiles(columns, rows, inputs, shape, bytemuck::cast_slice_mut(slot)) };
    });
    true
}

/// The `codes` in their order and, where the matrix has offsets, the sums of its segments.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
fn split(plane: &mut [u8], codes: &[i16], shape: Shape) {
    let (words, sums) = plane.split_at_mut(2 * shape.padded());
    // Pairs of 16 bits that are multiplied and added go together.
    let order = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15));
    for (to, codes) in words.chunks_mut(LINE).zip(codes.chunks(LINE / 2)) {
        let (written, read) = (u32::MAX >> (32 - to.len() / 2), u32::MAX >> (32 - codes.len()));
        // SAFETY: the masks leave out what lies behind the end of either; what fills the last four is zero.
        unsafe {
            let codes = _mm512_shuffle_epi8(_mm512_maskz_loadu_epi16(read, codes.as_ptr()), order);
            _mm512_mask_storeu_epi16(to.as_mut_ptr().cast(), written, codes);
        }
    }
    for (to, segment) in sums.as_chunks_mut::<8>().0.iter_mut().zip(codes.chunks(shape.segment)) {
        let sum: i32 = segment.iter().map(|code| i32::from(*code)).sum();
        *to = f64::from(sum).to_ne_bytes();
    }
}

/// The columns = as many of `rows` times all vectors.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
fn tiles(mut columns: Columns<'_>, rows: Rows<'_>, x: Inputs<'_>, shape: Shape, slot: &mut [u8]) {
    let (count, vectors, block) = (columns.len(), x.scales.len(), shape.block_bytes());
    if slot.len() < BLOCKS * block || x.planes.len() < x.stride * vectors || vectors == 0 {
        return;
    }
    for first in (0..count).step_by(BLOCKS * LANES) {
        let many = (BLOCKS * LANES).min(count - first);
        for (number, block) in slot.chunks_exact_mut(block).enumerate().take(many.div_ceil(LANES)) {
            let start = number * LANES;
            pack(block, rows, (first + start, LANES.min(many - start)), shape);
        }
        let packed = [0, 1].map(|number| Packed { at: slot.as_ptr().wrapping_add(number * block), shape });
        let row_scales = [scales_of(rows, first), scales_of(rows, first + LANES)];
        // The next rows come from memory while these are multiplied: a part of them beside each tile.
        let mut next = rows.codes_of(first + BLOCKS * LANES);
        let lines_a_tile = (BLOCKS * LANES * rows.stride).div_ceil(LINE).div_ceil(vectors.div_ceil(VECTORS));
        for at in (0..vectors).step_by(VECTORS) {
            for _ in 0..lines_a_tile {
                _mm_prefetch::<_MM_HINT_T1>(next.cast());
                next = next.wrapping_add(LINE);
            }
            // A tile that has fewer vectors has the last one more than once.
            let inputs = [0, 1, 2, 3].map(|v| x.planes.as_ptr().wrapping_add((at + v).min(vectors - 1) * x.stride));
            // SAFETY: the blocks are packed, and `planes` holds all vectors.
            let sums = unsafe {
                if many > LANES {
                    sums::<BLOCKS>(packed, inputs)
                } else {
                    let [first, _] = packed;
                    let [found] = sums::<1>([first], inputs);
                    [found, [[_mm512_setzero_pd(); 2]; VECTORS]]
                }
            };
            for v in 0..VECTORS.min(vectors - at) {
                let out = columns.row(at + v).get_mut(first..first + many).unwrap_or_default();
                for ((out, sums), scales) in out.chunks_mut(LANES).zip(&sums).zip(row_scales) {
                    let [low, high] = sums[v];
                    let sums = _mm512_insertf32x8::<1>(_mm512_castps256_ps512(_mm512_cvtpd_ps(low)), _mm512_cvtpd_ps(high));
                    let found = _mm512_mul_ps(sums, _mm512_mul_ps(scales, _mm512_set1_ps(x.scales[at + v])));
                    // SAFETY: as many lanes are written as there are elements.
                    unsafe { _mm512_mask_storeu_ps(out.as_mut_ptr(), u16::MAX >> (LANES - out.len()), found) };
                }
            }
        }
    }
}

/// The scales of sixteen rows; 0 past the last.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
fn scales_of(rows: Rows<'_>, first: usize) -> __m512 {
    let mut sixteen = [0f32; LANES];
    for (number, four) in sixteen.as_chunks_mut::<4>().0.iter_mut().enumerate() {
        *four = rows.scales_from(first + 4 * number);
    }
    // SAFETY: there are sixteen floats.
    unsafe { _mm512_loadu_ps(sixteen.as_ptr()) }
}

/// The exact sums of `B` blocks of rows times four vectors, each of eight rows to a register: no sum of a row needs more than 47 bits.
///
/// # Safety
/// The blocks are packed, all of one shape; each vector is split by that shape; the machine has the instructions.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
unsafe fn sums<const B: usize>(w: [Packed; B], x: [*const u8; VECTORS]) -> [[[__m512d; 2]; VECTORS]; B] {
    // SAFETY: the caller's promise: steps and segments are those of the shape.
    unsafe {
        let shape = w[0].shape;
        let (padded, steps, a_segment) = (shape.padded(), shape.steps(), shape.segment.div_ceil(4));
        let mut totals = [[[_mm512_setzero_pd(); 2]; VECTORS]; B];
        for first in (0..shape.segments).step_by(MANY) {
            let (mut lows, mut highs) = ([[_mm512_setzero_si512(); VECTORS]; B], [[_mm512_setzero_si512(); VECTORS]; B]);
            for segment in first..shape.segments.min(first + MANY) {
                let of_segment = segment * a_segment..steps.min((segment + 1) * a_segment);
                // Half of what the low half holds is added: with its highest bit turned, the low half is then signed, too.
                let mut sums = [[_mm512_set1_epi32(0x8000); VECTORS]; B];
                for step in of_segment {
                    add_products(&mut sums, w, x, step);
                }
                for b in 0..B {
                    let [multiply_low, multiply_high] = w[b].multipliers(segment);
                    for v in 0..VECTORS {
                        let halves = _mm512_xor_si512(sums[b][v], _mm512_set1_epi32(0x8000));
                        lows[b][v] = _mm512_dpwssd_epi32(lows[b][v], halves, multiply_low);
                        highs[b][v] = _mm512_dpwssd_epi32(highs[b][v], halves, multiply_high);
                    }
                }
            }
            for b in 0..B {
                for v in 0..VECTORS {
                    add_halves(&mut totals[b][v], lows[b][v], highs[b][v]);
                }
            }
        }
        if shape.has_offsets {
            for segment in 0..shape.segments {
                for b in 0..B {
                    let [low, high] = w[b].offsets(segment);
                    for v in 0..VECTORS {
                        let x = _mm512_set1_pd(x[v].add(2 * padded + 8 * segment).cast::<f64>().read_unaligned());
                        let [to_low, to_high] = totals[b][v];
                        // Whole numbers of at most 53 bits: nothing is rounded.
                        totals[b][v] = [_mm512_fmadd_pd(low, x, to_low), _mm512_fmadd_pd(high, x, to_high)];
                    }
                }
            }
        }
        totals
    }
}

/// Adds the products of four columns and each vector.
///
/// # Safety
/// There are so many of each, and the machine has the instructions.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
unsafe fn add_products<const B: usize>(sums: &mut [[__m512i; VECTORS]; B], w: [Packed; B], x: [*const u8; VECTORS], step: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        for half in 0..2 {
            for v in 0..VECTORS {
                let x = _mm512_set1_epi32(x[v].add(8 * step + 4 * half).cast::<i32>().read_unaligned());
                for b in 0..B {
                    sums[b][v] = _mm512_dpwssd_epi32(sums[b][v], w[b].codes(step)[half], x);
                }
            }
        }
    }
}

/// Adds low halves and 65,536 times high ones.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
fn add_halves(totals: &mut [__m512d; 2], lows: __m512i, highs: __m512i) {
    // Whole numbers of at most 53 bits: nothing is rounded.
    let [to_low, to_high] = *totals;
    let (low, high) = (_mm512_castsi512_si256(lows), _mm512_castsi512_si256(highs));
    let to_low = _mm512_add_pd(to_low, _mm512_fmadd_pd(_mm512_cvtepi32_pd(high), _mm512_set1_pd(65_536.0), _mm512_cvtepi32_pd(low)));
    let (low, high) = (_mm512_extracti64x4_epi64::<1>(lows), _mm512_extracti64x4_epi64::<1>(highs));
    let to_high = _mm512_add_pd(to_high, _mm512_fmadd_pd(_mm512_cvtepi32_pd(high), _mm512_set1_pd(65_536.0), _mm512_cvtepi32_pd(low)));
    *totals = [to_low, to_high];
}

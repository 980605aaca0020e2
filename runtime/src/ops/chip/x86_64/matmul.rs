//! A matrix times many vectors: rows and vectors in tiles, whose sums stay in registers. Each sum is the one that a row times a vector gives, bit by bit.
//!
//! Floats, with AVX-512: a register holds the eight lanes of two vectors' sums; rows in 16 bits are widened once for all vectors. Integers, with VNNI: a row becomes 16-bit numbers, multiplier and offset
//! in them, once for all vectors; vectors are split into low and high bytes, so that products of 16 bits add up in 32.

use super::avx2_floats::{Bf16, F16, F32, Stored, tree4};
#[cfg(any(feature = "q8", feature = "q4"))]
use super::{Form, integer_rows::Rows, vnni::scaled};
use crate::executor::Executor;
use crate::format::{DType, TensorView};
use crate::ops::activation::Activation;
use crate::ops::chip::gate::{Columns, share_columns};
#[cfg(any(feature = "q8", feature = "q4"))]
use crate::ops::convert::from_i64;
use crate::ops::crew::{MOST, Scratch};
#[cfg(any(feature = "q8", feature = "q4"))]
use crate::ops::integer;
use crate::simd::Level;
use core::arch::x86_64::*;

/// Rows of floats in a tile.
const ROWS: usize = 8;
/// Vectors beside them.
const VECTORS: usize = 4;
/// Rows of integers in a tile.
const INTEGER_ROWS: usize = 4;
/// Elements of integers that go through the registers together.
const STEP: usize = 32;
/// The longest row of integers whose sums fit 32 bits in each lane.
const LONGEST: usize = 4096;
/// Bytes of weights that a thread takes at a time.
const PIECE: usize = 32_768;

/// Each row of `out` = `w` times a vector of `x`. False, and nothing done, where there is no kernel for it or too little scratch.
pub(crate) fn matmul(
    executor: Option<&dyn Executor>,
    out: &mut [f32],
    w: &TensorView<'_>,
    x: &mut [Activation<'_>],
    scratch: &mut Scratch<'_>,
    slots: usize,
) -> bool {
    let rows = out.len().checked_div(x.len()).unwrap_or(0);
    let fit = w.rows() >= rows && x.iter().all(|x| x.floats().len() == w.cols()) && x.len() <= MOST && w.cols() > 0;
    if !fit || x.len() < 2 {
        return false;
    }
    match w.dtype() {
        DType::F32 | DType::F16 | DType::Bf16 if Level::current() >= Level::Avx512 => floats(executor, out, w, x, scratch, slots),
        #[cfg(any(feature = "q8", feature = "q4"))]
        DType::Q8 | DType::Q4 if Level::current() >= Level::Vnni => integers(executor, out, w, x, scratch, slots),
        _ => false,
    }
}

fn floats(
    executor: Option<&dyn Executor>,
    out: &mut [f32],
    w: &TensorView<'_>,
    x: &[Activation<'_>],
    scratch: &mut Scratch<'_>,
    slots: usize,
) -> bool {
    let n = w.cols();
    if w.dtype() != DType::F32 && scratch.slots.len() / slots < ROWS * n {
        return false;
    }
    let mut inputs: [&[f32]; MOST] = [&[]; MOST];
    for (input, x) in inputs.iter_mut().zip(x) {
        *input = x.floats();
    }
    let inputs = inputs.get(..x.len()).unwrap_or(&[]);
    let row_bytes = w.bytes().len() / w.rows().max(1);
    let piece = (PIECE / row_bytes.max(1)).next_multiple_of(ROWS).max(ROWS);
    share_columns(executor, out, x.len(), piece, (&mut *scratch.slots, slots), &|first, columns, slot| {
        let Some(rows) = w.bytes().get(first * row_bytes..) else { return };
        // SAFETY: Level::current says that there is AVX-512, and what came before it.
        unsafe {
            match w.dtype() {
                DType::F32 => f32s(columns, rows, inputs, slot),
                DType::F16 => f16s(columns, rows, inputs, slot),
                _ => bf16s(columns, rows, inputs, slot),
            }
        }
    });
    true
}

macro_rules! tiles {
    ($name:ident, $stored:ident) => {
        #[target_feature(enable = "avx512f,avx512dq,avx512vl,avx2,f16c")]
        fn $name(columns: Columns<'_>, rows: &[u8], x: &[&[f32]], slot: &mut [f32]) {
            // SAFETY: the function needs what the callee does.
            unsafe { tiles::<$stored>(columns, rows, x, slot) }
        }
    };
}

tiles!(f32s, F32);
tiles!(f16s, F16);
tiles!(bf16s, Bf16);

/// The columns = as many of `rows` times all of `x`.
///
/// # Safety
/// The machine has AVX-512 F, DQ and VL, AVX2 and F16C.
#[inline(always)]
unsafe fn tiles<S: Stored>(mut columns: Columns<'_>, rows: &[u8], x: &[&[f32]], slot: &mut [f32]) {
    let n = x.first().map_or(0, |x| x.len());
    let stride = n * S::BYTES;
    let count = columns.len();
    if rows.len() / stride.max(1) < count || (S::BYTES != 4 && slot.len() < ROWS * n) {
        return;
    }
    for first in (0..count).step_by(ROWS) {
        let many = ROWS.min(count - first);
        // A tile that has fewer rows has the last one more than once.
        let row = |r: usize| rows.as_ptr().wrapping_add((first + r.min(many - 1)) * stride);
        let tile: [*const f32; ROWS] = if S::BYTES == 4 {
            core::array::from_fn(|r| row(r).cast())
        } else {
            for r in 0..many {
                // SAFETY: `rows` has the row, and the slot room for it.
                unsafe { widen::<S>(slot.as_mut_ptr().add(r * n), row(r), n) };
            }
            core::array::from_fn(|r| slot.as_ptr().wrapping_add(r.min(many - 1) * n))
        };
        for at in (0..x.len()).step_by(VECTORS) {
            let vectors = core::array::from_fn(|v| x.get(at + v).or(x.last()).map_or(core::ptr::null(), |x| x.as_ptr()));
            // SAFETY: all rows of the tile and all vectors have n elements.
            let sums = unsafe { tile_sums(tile, vectors, n) };
            for (v, sums) in sums.iter().enumerate().take(x.len() - at) {
                for (y, sum) in columns.row(at + v).iter_mut().skip(first).zip(sums) {
                    *y = *sum;
                }
            }
        }
    }
}

/// A row widened.
///
/// # Safety
/// There are `n` elements at both, and the machine has AVX2 and F16C.
#[inline(always)]
unsafe fn widen<S: Stored>(to: *mut f32, from: *const u8, n: usize) {
    // SAFETY: the caller's promise; the last elements go through a copy.
    unsafe {
        let whole = n & !7;
        for i in (0..whole).step_by(8) {
            _mm256_storeu_ps(to.add(i), S::widen8(from.add(i * S::BYTES)));
        }
        if whole < n {
            let (mut stored, mut wide) = ([0u8; 32], [0f32; 8]);
            core::ptr::copy_nonoverlapping(from.add(whole * S::BYTES), stored.as_mut_ptr(), (n - whole) * S::BYTES);
            _mm256_storeu_ps(wide.as_mut_ptr(), S::widen8(stored.as_ptr()));
            core::ptr::copy_nonoverlapping(wide.as_ptr(), to.add(whole), n - whole);
        }
    }
}

/// `dot8` of every row and vector: the sums of the rows, for each vector.
///
/// # Safety
/// All have `n` elements, and the machine has AVX-512 F, DQ and VL and AVX2.
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx2,f16c")]
#[inline]
unsafe fn tile_sums(rows: [*const f32; ROWS], x: [*const f32; VECTORS], n: usize) -> [[f32; ROWS]; VECTORS] {
    // SAFETY: the caller's promise; the last load of each is masked.
    unsafe {
        let mut sums = [[_mm512_setzero_ps(); ROWS]; VECTORS / 2];
        let pair = |a: __m256, b: __m256| _mm512_insertf32x8::<1>(_mm512_castps256_ps512(a), b);
        let whole = n & !7;
        for i in (0..whole).step_by(8) {
            let x0 = pair(_mm256_loadu_ps(x[0].add(i)), _mm256_loadu_ps(x[1].add(i)));
            let x1 = pair(_mm256_loadu_ps(x[2].add(i)), _mm256_loadu_ps(x[3].add(i)));
            for r in 0..ROWS {
                let w = _mm512_broadcast_f32x8(_mm256_loadu_ps(rows[r].add(i)));
                sums[0][r] = _mm512_add_ps(sums[0][r], _mm512_mul_ps(w, x0));
                sums[1][r] = _mm512_add_ps(sums[1][r], _mm512_mul_ps(w, x1));
            }
        }
        if whole < n {
            // Zeros behind the end add +0 to their lanes, which changes no bit.
            let some = (1u8 << (n - whole)) - 1;
            let load = |from: *const f32| _mm256_maskz_loadu_ps(some, from.wrapping_add(whole));
            let (x0, x1) = (pair(load(x[0]), load(x[1])), pair(load(x[2]), load(x[3])));
            for r in 0..ROWS {
                let w = _mm512_broadcast_f32x8(load(rows[r]));
                sums[0][r] = _mm512_add_ps(sums[0][r], _mm512_mul_ps(w, x0));
                sums[1][r] = _mm512_add_ps(sums[1][r], _mm512_mul_ps(w, x1));
            }
        }
        let mut out = [[0f32; ROWS]; VECTORS];
        for (pair, sums) in out.as_chunks_mut::<2>().0.iter_mut().zip(&sums) {
            for (half, four) in sums.as_chunks::<4>().0.iter().enumerate() {
                let low = four.map(|sum| _mm512_castps512_ps256(sum));
                let high = four.map(|sum| _mm512_extractf32x8_ps::<1>(sum));
                _mm_storeu_ps(pair[0].as_mut_ptr().add(4 * half), tree4(low));
                _mm_storeu_ps(pair[1].as_mut_ptr().add(4 * half), tree4(high));
            }
        }
        out
    }
}

#[cfg(any(feature = "q8", feature = "q4"))]
fn integers(
    executor: Option<&dyn Executor>,
    out: &mut [f32],
    w: &TensorView<'_>,
    x: &mut [Activation<'_>],
    scratch: &mut Scratch<'_>,
    slots: usize,
) -> bool {
    let (n, count, rows) = (w.cols(), x.len(), out.len() / x.len());
    let padded = n.next_multiple_of(STEP);
    let one_group = w.group_len() == n;
    if n > LONGEST || !(one_group || w.group_len().is_multiple_of(STEP)) || scratch.slots.len() / slots < INTEGER_ROWS * padded / 2 {
        return false;
    }
    let planes: &mut [i16] = bytemuck::cast_slice_mut(scratch.planes);
    let Some(planes) = planes.get_mut(..2 * padded * count) else { return false };
    let mut scales = [0f32; MOST];
    for ((x, planes), scale) in x.iter_mut().zip(planes.chunks_exact_mut(2 * padded)).zip(&mut scales) {
        let x = x.integers_as(w, Form::Plain);
        let Some(codes) = x.codes.get(..n) else { return false };
        *scale = x.scale;
        let (low, high) = planes.split_at_mut(padded);
        low.fill(0);
        high.fill(0);
        for ((low, high), code) in low.iter_mut().zip(high).zip(codes) {
            (*low, *high) = (code & 255, code >> 8);
        }
    }
    let Some(first) = x.first_mut() else { return false };
    let any = first.integers_as(w, Form::Plain);
    let per_byte = if w.dtype() == DType::Q4 { 2 } else { 1 };
    if Rows::new(w, (0, rows), &any, per_byte).is_none() {
        return false;
    }
    let (planes, scales, row_bytes) = (&*planes, scales.get(..count).unwrap_or(&[]), w.bytes().len() / w.rows().max(1));
    let piece = (PIECE / row_bytes.max(1)).next_multiple_of(INTEGER_ROWS).max(INTEGER_ROWS);
    share_columns(executor, out, count, piece, (&mut *scratch.slots, slots), &|first, columns, slot| {
        let Some(rows) = Rows::new(w, (first, columns.len()), &any, per_byte) else { return };
        // SAFETY: Level::current says that there is VNNI, and what came before it.
        unsafe { integer_tiles(columns, (w, first), rows, (planes, scales), bytemuck::cast_slice_mut(slot)) };
    });
    true
}

/// The columns = as many of `rows` times all vectors, of which `planes` has the low and then the high bytes, a vector after the other.
#[cfg(any(feature = "q8", feature = "q4"))]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
fn integer_tiles(
    mut columns: Columns<'_>,
    (w, first_row): (&TensorView<'_>, usize),
    rows: Rows<'_>,
    (planes, scales): (&[i16], &[f32]),
    slot: &mut [i16],
) {
    let padded = rows.cols.next_multiple_of(STEP);
    let count = columns.len();
    if slot.len() < INTEGER_ROWS * padded || planes.len() < 2 * padded * scales.len() {
        return;
    }
    for first in (0..count).step_by(INTEGER_ROWS) {
        let many = INTEGER_ROWS.min(count - first);
        let mut fit = true;
        for (r, to) in slot.chunks_exact_mut(padded).enumerate().take(many) {
            fit &= match w.dtype() {
                // SAFETY: `rows` has the row, and there is room for it, padded.
                DType::Q8 => unsafe { unpack_q8(to.as_mut_ptr(), rows, first + r) },
                // SAFETY: as above.
                _ => unsafe { unpack_q4(to.as_mut_ptr(), rows, first + r) },
            };
        }
        let row_scales = rows.scales_from(first);
        for at in (0..scales.len()).step_by(2) {
            let vectors = [at, (at + 1).min(scales.len() - 1)];
            let tile: [*const i16; INTEGER_ROWS] = core::array::from_fn(|r| slot.as_ptr().wrapping_add(r.min(many - 1) * padded));
            // SAFETY: all rows have as many elements as a plane.
            let sums = unsafe { integer_sums(tile, vectors.map(|v| planes.as_ptr().wrapping_add(2 * padded * v)), padded) };
            for (v, sums) in vectors.into_iter().zip(sums) {
                let mut four = [0.0; INTEGER_ROWS];
                scaled(&mut four, sums, row_scales, scales[v]);
                if !fit {
                    let plane = &planes[2 * padded * v..2 * padded * (v + 1)];
                    for (r, (y, scale)) in four.iter_mut().zip(row_scales).enumerate().take(many) {
                        *y = from_i64(one_by_one(w, first_row + first + r, plane)) * (scale * scales[v]);
                    }
                }
                for (y, sum) in columns.row(v).iter_mut().skip(first).zip(four) {
                    *y = sum;
                }
            }
        }
    }
}

/// The integers of a q8 row times their multipliers, and zeros up to a multiple of [`STEP`]; true: all of them fit.
///
/// # Safety
/// `rows` has the row, there is room at `to`, and the machine has the instructions.
#[cfg(any(feature = "q8", feature = "q4"))]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
unsafe fn unpack_q8(to: *mut i16, rows: Rows<'_>, row: usize) -> bool {
    // SAFETY: the caller's promise; the last load of codes is masked.
    unsafe {
        let (codes, m) = (rows.codes_of(row), rows.multipliers_of(row));
        for first in (0..rows.cols).step_by(STEP) {
            let some = u32::MAX >> (STEP - (rows.cols - first).min(STEP));
            let codes = _mm512_cvtepi8_epi16(_mm256_maskz_loadu_epi8(some, codes.add(first).cast()));
            let m = if rows.has_multipliers() { i16::from(*m.add(first / rows.group_len)) } else { 1 };
            _mm512_storeu_si512(to.add(first).cast(), _mm512_mullo_epi16(codes, _mm512_set1_epi16(m)));
        }
        true
    }
}

/// The integers of a q4 row, multiplier and offset in them; false where one does not fit 16 bits.
///
/// # Safety
/// As [`unpack_q8`].
#[cfg(any(feature = "q8", feature = "q4"))]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
unsafe fn unpack_q4(to: *mut i16, rows: Rows<'_>, row: usize) -> bool {
    // SAFETY: the caller's promise; the last load of codes is masked.
    unsafe {
        let (codes, m, offsets) = (rows.codes_of(row), rows.multipliers_of(row), rows.offsets_of(row));
        let mut differ = 0;
        for first in (0..rows.cols).step_by(STEP) {
            let left = (rows.cols - first).min(STEP);
            let some = u16::MAX >> (STEP / 2 - left.div_ceil(2));
            let bytes = _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(some, codes.add(first / 2).cast()));
            let codes = _mm512_and_si512(_mm512_or_si512(bytes, _mm512_slli_epi32::<12>(bytes)), _mm512_set1_epi32(0x000f_000f));
            let group = first / rows.group_len;
            let products = _mm512_mullo_epi16(codes, _mm512_set1_epi16(i16::from(*m.add(group))));
            let offset = _mm512_set1_epi16(offsets.add(2 * group).cast::<i16>().read_unaligned());
            let sums = _mm512_add_epi16(products, offset);
            differ |= _mm512_cmpneq_epi16_mask(sums, _mm512_adds_epi16(products, offset));
            // Behind the end there is no offset either.
            _mm512_storeu_si512(to.add(first).cast(), _mm512_maskz_mov_epi16(u32::MAX >> (STEP - left), sums));
        }
        differ == 0
    }
}

/// The sums of the products of every row and vector, spread over 64-bit lanes.
///
/// # Safety
/// There are `n` elements at each row, a multiple of [`STEP`] and [`LONGEST`] at most, twice as many at each vector, and the machine has the instructions.
#[cfg(any(feature = "q8", feature = "q4"))]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
unsafe fn integer_sums(rows: [*const i16; INTEGER_ROWS], x: [*const i16; 2], n: usize) -> [[__m512i; INTEGER_ROWS]; 2] {
    // SAFETY: the caller's promise.
    unsafe {
        let [x0, x1] = x;
        let (mut lows0, mut highs0) = ([_mm512_setzero_si512(); INTEGER_ROWS], [_mm512_setzero_si512(); INTEGER_ROWS]);
        let (mut lows1, mut highs1) = (lows0, highs0);
        for i in (0..n).step_by(STEP) {
            let (low0, high0) = (_mm512_loadu_si512(x0.add(i).cast()), _mm512_loadu_si512(x0.add(n + i).cast()));
            let (low1, high1) = (_mm512_loadu_si512(x1.add(i).cast()), _mm512_loadu_si512(x1.add(n + i).cast()));
            for r in 0..INTEGER_ROWS {
                let w = _mm512_loadu_si512(rows[r].add(i).cast());
                lows0[r] = _mm512_dpwssd_epi32(lows0[r], w, low0);
                highs0[r] = _mm512_dpwssd_epi32(highs0[r], w, high0);
                lows1[r] = _mm512_dpwssd_epi32(lows1[r], w, low1);
                highs1[r] = _mm512_dpwssd_epi32(highs1[r], w, high1);
            }
        }
        let mut sums = [[_mm512_setzero_si512(); INTEGER_ROWS]; 2];
        for r in 0..INTEGER_ROWS {
            sums[0][r] = low_and_high(lows0[r], highs0[r]);
            sums[1][r] = low_and_high(lows1[r], highs1[r]);
        }
        sums
    }
}

/// Lanes of 32 bits and 256 times others, in 64. Each may need all of its 32 bits, so even and odd ones are widened by themselves.
#[cfg(any(feature = "q8", feature = "q4"))]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
#[inline]
fn low_and_high(low: __m512i, high: __m512i) -> __m512i {
    let (one, many) = (_mm512_set1_epi64(1), _mm512_set1_epi64(256));
    let low = _mm512_add_epi64(_mm512_mul_epi32(low, one), _mm512_mul_epi32(_mm512_srli_epi64::<32>(low), one));
    let high = _mm512_add_epi64(_mm512_mul_epi32(high, many), _mm512_mul_epi32(_mm512_srli_epi64::<32>(high), many));
    _mm512_add_epi64(low, high)
}

/// The sum of the products of a row and a vector for integers of any size.
#[cfg(any(feature = "q8", feature = "q4"))]
#[cold]
fn one_by_one(w: &TensorView<'_>, row: usize, plane: &[i16]) -> i64 {
    let (low, high) = plane.split_at(plane.len() / 2);
    let mut x = low.iter().zip(high).map(|(low, high)| i64::from(*low) + 256 * i64::from(*high));
    let mut sum = 0i64;
    integer::for_each(w.dtype(), &w.quantised(), row, w.cols(), &mut |integer| sum += i64::from(integer) * x.next().unwrap_or(0));
    sum
}

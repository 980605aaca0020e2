//! A matrix times many vectors: rows and vectors in tiles, whose sums stay in registers. Each sum is the one that a row times a vector gives, bit by bit.
//!
//! Floats: a register of AVX2 holds the eight lanes of a sum, one of AVX-512 those of two vectors' sums; rows in 16 bits are widened once for all vectors. Integers: [`integer_matmul`].

use super::avx2_floats::{Bf16, F16, F32, Stored, tree4};
#[cfg(any(feature = "q8", feature = "q4"))]
use super::integer_matmul;
use crate::executor::Executor;
use crate::format::{DType, TensorView};
use crate::ops::activation::Activation;
use crate::ops::chip::gate::{Columns, share_columns};
use crate::ops::crew::{MOST, Scratch};
use crate::simd::Level;
use core::arch::x86_64::*;

/// Rows of floats in a tile, with AVX-512 and with AVX2: as many sums as there are registers for.
const ROWS: usize = 8;
const ROWS_AVX2: usize = 4;
/// Vectors beside them.
const VECTORS: usize = 4;
const VECTORS_AVX2: usize = 2;
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
        DType::F32 | DType::F16 | DType::Bf16 if Level::current() >= Level::Avx2 => floats(executor, out, w, x, scratch, slots),
        #[cfg(any(feature = "q8", feature = "q4"))]
        DType::Q8 | DType::Q4 if Level::current() >= Level::Vnni => integer_matmul::matmul(executor, out, w, x, scratch, (slots, PIECE)),
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
        let kernel = match (w.dtype(), Level::current() >= Level::Avx512) {
            (DType::F32, true) => avx512::f32s,
            (DType::F16, true) => avx512::f16s,
            (_, true) => avx512::bf16s,
            (DType::F32, false) => avx2::f32s,
            (DType::F16, false) => avx2::f16s,
            (_, false) => avx2::bf16s,
        };
        // SAFETY: Level::current says that there is AVX-512, or AVX2, and what came before it.
        unsafe { kernel(columns, rows, inputs, slot) };
    });
    true
}

/// The kernels of a level, one a type.
macro_rules! kernels {
    ($level:ident, $features:literal, $sums:ident) => {
        mod $level {
            use super::{Bf16, Columns, F16, F32, tiles};

            kernels!($features, $sums, f32s: F32, f16s: F16, bf16s: Bf16);
        }
    };
    ($features:literal, $sums:ident, $($name:ident: $stored:ident),*) => {
        $(#[target_feature(enable = $features)]
        pub(super) fn $name(columns: Columns<'_>, rows: &[u8], x: &[&[f32]], slot: &mut [f32]) {
            // SAFETY: the function needs what both callees do; `tiles` calls the second with rows and vectors of `n` elements.
            unsafe { tiles::<$stored, _, _>(columns, rows, x, slot, |rows, x, n| super::$sums(rows, x, n)) }
        })*
    };
}

kernels!(avx512, "avx512f,avx512dq,avx512vl,avx2,f16c", tile_sums);
kernels!(avx2, "avx2,f16c", tile_sums_avx2);

/// The columns = as many of `rows` times all of `x`; `sums` is [`tile_sums`] or its like.
///
/// # Safety
/// The machine has AVX2 and F16C, and what `sums` needs.
#[inline(always)]
unsafe fn tiles<S: Stored, const ROWS: usize, const VECTORS: usize>(
    mut columns: Columns<'_>,
    rows: &[u8],
    x: &[&[f32]],
    slot: &mut [f32],
    sums: impl Fn([*const f32; ROWS], [*const f32; VECTORS], usize) -> [[f32; ROWS]; VECTORS],
) {
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
            // All rows of the tile and all vectors have n elements.
            for (v, sums) in sums(tile, vectors, n).iter().enumerate().take(x.len() - at) {
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

/// [`tile_sums`] with AVX2 alone, of smaller tiles.
///
/// # Safety
/// All have `n` elements, and the machine has AVX2 and F16C.
#[target_feature(enable = "avx2,f16c")]
#[inline]
unsafe fn tile_sums_avx2(rows: [*const f32; ROWS_AVX2], x: [*const f32; VECTORS_AVX2], n: usize) -> [[f32; ROWS_AVX2]; VECTORS_AVX2] {
    // SAFETY: the caller's promise; what is left of each at the end goes through a masked load.
    unsafe {
        let mut sums = [[_mm256_setzero_ps(); ROWS_AVX2]; VECTORS_AVX2];
        let whole = n & !7;
        for i in (0..whole).step_by(8) {
            let x = x.map(|x| _mm256_loadu_ps(x.add(i)));
            for r in 0..ROWS_AVX2 {
                let w = _mm256_loadu_ps(rows[r].add(i));
                for v in 0..VECTORS_AVX2 {
                    sums[v][r] = _mm256_add_ps(sums[v][r], _mm256_mul_ps(w, x[v]));
                }
            }
        }
        if whole < n {
            // Zeros behind the end add +0 to their lanes, which changes no bit.
            let load = |from: *const f32| F32::widen_part(from.add(whole).cast(), n - whole);
            let x = x.map(load);
            for r in 0..ROWS_AVX2 {
                let w = load(rows[r]);
                for v in 0..VECTORS_AVX2 {
                    sums[v][r] = _mm256_add_ps(sums[v][r], _mm256_mul_ps(w, x[v]));
                }
            }
        }
        sums.map(|sums| {
            let mut four = [0f32; ROWS_AVX2];
            _mm_storeu_ps(four.as_mut_ptr(), tree4(sums));
            four
        })
    }
}

//! Rows of q8 matrices on cores without DSP instructions (Armv6-M, Armv7-M, RV32IM with and without F): a kernel in assembly for a few rows at a time, behind a function that checks what the
//! assembly takes for granted. What it does not cover (q4, matrices at odd addresses, long groups) is left to [`integer::matvec`], with the same bits.

use crate::format::{DType, Quantised, TensorView};
use crate::ops::convert::from_i64;
use crate::ops::integer::{self, Integers};
use core::arch::global_asm;

// Armv6-M, which has no Thumb-2, is the one without atomic exchanges too.
#[cfg(all(target_arch = "arm", target_has_atomic = "32"))]
global_asm!(include_str!("thumb2.s"), options(raw));
#[cfg(all(target_arch = "arm", not(target_has_atomic = "32")))]
global_asm!(include_str!("thumb1.s"), options(raw));
#[cfg(target_arch = "riscv32")]
global_asm!(include_str!("riscv32.s"), options(raw));

/// Rows that the kernel takes at a time: a power of two.
const ROWS: usize = if cfg!(target_arch = "riscv32") {
    4
} else if cfg!(target_has_atomic = "32") {
    2
} else {
    1
};

/// Groups up to this length have sums of 32 bits.
const LONGEST_GROUP: usize = 512;
/// So many groups of a row fit the sums of the kernel for Armv6-M.
const MOST_GROUPS: usize = 256;
/// How far the kernels go at a time: columns of x.
const BLOCK: usize = 8;

/// The multiplier of rows that have none.
static ONE: u8 = 1;

/// What the kernel needs besides its registers.
#[repr(C)]
struct Step {
    /// Bytes from one row of codes to the next.
    stride: usize,
    /// Bytes from a row's multipliers to the next row's.
    multipliers: usize,
    /// Bytes of x that go with a group.
    group: usize,
    /// The end of x, a whole number of blocks from its start.
    x_end: *const i16,
}

unsafe extern "C" {
    fn dmexp_rows_q8(codes: *const u8, x: *const i16, multipliers: *const u8, step: &Step, sums: &mut [i64; ROWS]);
}

/// As [`integer::matvec`].
#[inline(never)]
pub(crate) fn matvec_integer(out: &mut [f32], w: &TensorView<'_>, x: Integers<'_>) {
    let Quantised { codes, row_stride, group_len, groups, scales, multipliers, .. } = w.quantised();
    let (rows, scales) = (out.len(), scales.as_chunks::<4>().0);
    let Some(x_codes) = x.codes.get(..w.cols().next_multiple_of(BLOCK)).filter(|x| !x.is_empty()) else { return out.fill(0.0) };
    let single = multipliers.is_empty();
    let group = if single { x_codes.len() } else { group_len };
    let all_there = scales.len() >= rows
        && codes.len() >= rows.saturating_mul(row_stride)
        && row_stride.saturating_add(BLOCK / 2) >= x_codes.len()
        && (single || multipliers.len() >= rows.saturating_mul(groups) && groups.saturating_mul(group) >= w.cols());
    let covered = group <= LONGEST_GROUP && group.is_multiple_of(BLOCK) && group > 0 && groups <= MOST_GROUPS;
    let aligned = (codes.as_ptr().addr() | x_codes.as_ptr().addr() | row_stride).is_multiple_of(4);
    if w.dtype() != DType::Q8 || !all_there || !covered || !aligned {
        return integer::matvec(out, w, x);
    }
    let whole = if ROWS > 1 { rows.wrapping_sub(rows & (ROWS - 1)) } else { 0 };
    let (whole, last) = out.split_at_mut_checked(whole).unwrap_or_default();
    let mut step = Step {
        stride: row_stride,
        multipliers: if single { 0 } else { groups },
        group: group.saturating_mul(size_of::<i16>()),
        x_end: x_codes.as_ptr_range().end,
    };
    let mut sums = [0; ROWS];
    let (mut row, mut multiplier) = (w.bytes().as_ptr(), if single { &raw const ONE } else { multipliers.as_ptr() });
    let mut scales = scales.iter();
    for out in whole.chunks_mut(ROWS) {
        // SAFETY: the matrix has these rows with their multipliers, or `all_there` would be false. A row is a number of whole blocks of 8 codes, the last of which may run 4 bytes past it: into the
        // next row or into the scales, which follow the codes in the bytes of every tensor. Codes and x begin at whole words; x is as long as the row. The kernel writes `sums` alone and keeps to the calling
        // convention.
        unsafe { dmexp_rows_q8(row, x_codes.as_ptr(), multiplier, &step, &mut sums) };
        for ((y, sum), scale) in out.iter_mut().zip(&sums).zip(&mut scales) {
            *y = from_i64(*sum) * (f32::from_le_bytes(*scale) * x.scale);
        }
        row = row.wrapping_add(row_stride.wrapping_mul(ROWS));
        multiplier = multiplier.wrapping_add(step.multipliers.wrapping_mul(ROWS));
    }
    // The rows that are left over are taken for all of a step's, one by one.
    let multipliers = step.multipliers;
    (step.stride, step.multipliers) = (0, 0);
    for (y, scale) in last.iter_mut().zip(scales) {
        // SAFETY: as above, for one row.
        unsafe { dmexp_rows_q8(row, x_codes.as_ptr(), multiplier, &step, &mut sums) };
        let [sum, ..] = sums;
        *y = from_i64(sum) * (f32::from_le_bytes(*scale) * x.scale);
        row = row.wrapping_add(row_stride);
        multiplier = multiplier.wrapping_add(multipliers);
    }
}

//! Integer matrices on cores with the DSP instructions (Cortex-M4F, M7F, M33F; hard-float targets): the kernels of `cortex_m_dsp.s`, each behind a function that checks what the assembly
//! takes for granted. What the kernels do not cover (matrices at odd addresses, groups of more than 512) is done element by element, with the same bits: slower, and small.

use crate::format::{DType, Quantised, TensorView};
use crate::ops::convert::from_i64;
use crate::ops::integer::{Integers, for_each, only, scale_at};
#[cfg(feature = "q4")]
use crate::ops::parts::parts;
use crate::ops::quantise::{ACTIVATION_LIMIT, quantise_tiny, rounded};
use core::arch::global_asm;

global_asm!(include_str!("cortex_m_dsp.s"), options(raw));

/// What the matrix kernels need; from `out` on the assembly's stack frame. Lengths of x in bytes.
#[repr(C)]
struct Rows {
    codes: *const u8,
    multipliers: *const u8,
    scale: f32,
    two_to_24: f32,
    /// From the multiplier after the first row's to the second row's.
    other: isize,
    out: *mut f32,
    scales: *const f32,
    out_end: *mut f32,
    x: *const i16,
    /// Bytes from one row of codes to the next.
    stride: usize,
    /// From the multiplier after the first row's last to the next pair of rows.
    next: isize,
    /// Where whole groups of 32 end; the beginning where groups have another length.
    x_whole: *const i16,
    x_group: usize,
    x_end: *const i16,
    offsets: *const i16,
    sums: *const i32,
    all_sums: *const i32,
}

type MatvecKernel = unsafe extern "C" fn(&Rows);

unsafe extern "C" {
    #[cfg(feature = "q8")]
    fn dmexp_dsp_matvec_q8(rows: &Rows);
    #[cfg(feature = "q4")]
    fn dmexp_dsp_matvec_q4(rows: &Rows);
    #[cfg(feature = "q8")]
    fn dmexp_dsp_quantise_q8(codes: *mut i16, x: *const f32, end: *const f32, inverse: f32);
    #[cfg(feature = "q4")]
    fn dmexp_dsp_quantise_q4(codes: *mut i16, x: *const f32, end: *const f32, inverse: f32);
    #[cfg(feature = "q4")]
    fn dmexp_dsp_sum(codes: *const i16, end: *const i16) -> i32;
}

/// How far the kernels go at a time: columns of x.
const BLOCK: usize = 8;

/// Groups up to this length have sums of 32 bits.
const LONGEST_GROUP: usize = 512;

/// The multiplier of rows that have none.
static ONE: u8 = 1;

/// Where element `index` of a vector lies among its codes.
fn place(dtype: DType, index: usize) -> usize {
    match dtype {
        DType::Q4 => (index & !7) | (index & 3) << 1 | (index >> 2 & 1),
        _ => (index & !3) | (index & 1) << 1 | (index >> 1 & 1),
    }
}

/// The codes of `x` in 16 bits, in the order in which the kernel for this type of matrix wants them, and zeros up to a multiple of 8; returns the scale, `max |x| / 32767`.
#[inline(never)]
pub(crate) fn quantise(codes: &mut [i16], x: &[f32], dtype: DType) -> f32 {
    let (whole, rest) = x.split_at_checked(x.len() & !(BLOCK - 1)).unwrap_or_default();
    let largest = super::largest_magnitude(x);
    let inverse = ACTIVATION_LIMIT as f32 / largest;
    let Some((of_whole, of_rest)) = codes.split_at_mut_checked(whole.len()) else { return 0.0 };
    if inverse < f32::INFINITY {
        if !whole.is_empty() {
            let ends = whole.as_ptr_range();
            let to = of_whole.as_mut_ptr();
            match dtype {
                // SAFETY: reads `whole`, a number of whole blocks, at least one, and writes `of_whole`, as long. `Activation` gives codes at whole words.
                #[cfg(feature = "q4")]
                DType::Q4 => unsafe { dmexp_dsp_quantise_q4(to, ends.start, ends.end, inverse) },
                // SAFETY: as above.
                #[cfg(feature = "q8")]
                _ => unsafe { dmexp_dsp_quantise_q8(to, ends.start, ends.end, inverse) },
                #[cfg(not(feature = "q8"))]
                _ => (),
            }
        }
        if let Some(block) = of_rest.first_chunk_mut::<BLOCK>() {
            *block = [0; BLOCK];
            for (i, x) in rest.iter().enumerate() {
                if let Some(code) = block.get_mut(place(dtype, i)) {
                    *code = rounded(*x * inverse, ACTIVATION_LIMIT) as i16;
                }
            }
        }
    } else {
        codes.fill(0);
        for (i, x) in x.iter().enumerate() {
            if let Some(code) = codes.get_mut(place(dtype, i)) {
                quantise_tiny(core::slice::from_mut(code), core::slice::from_ref(x));
            }
        }
    }
    largest / ACTIVATION_LIMIT as f32
}

/// `sums[g]` = the sum of the codes of group g, for groups of `group` codes.
#[cfg(feature = "q4")]
#[inline(never)]
pub(crate) fn group_sums(sums: &mut [i32], codes: &[i16], group: usize) {
    if group == 0 {
        return;
    }
    for (sum, codes) in sums.iter_mut().zip(parts(codes, group.saturating_add(BLOCK - 1) & !(BLOCK - 1))) {
        // A group that is cut short ends with zeros.
        let ends = codes.as_ptr_range();
        if codes.len().is_multiple_of(BLOCK) {
            // SAFETY: reads `codes`, a number of whole blocks and not none: `parts` gives no empty ones.
            *sum = unsafe { dmexp_dsp_sum(ends.start, ends.end) };
        }
    }
}

/// As [`integer::matvec`](crate::ops::integer::matvec), for codes that [`quantise`] made for this type of matrix.
#[inline(never)]
pub(crate) fn matvec_integer(out: &mut [f32], w: &TensorView<'_>, x: Integers<'_>) {
    let dtype = only(w.dtype());
    let kernel: MatvecKernel = match dtype {
        #[cfg(feature = "q8")]
        DType::Q8 => dmexp_dsp_matvec_q8,
        #[cfg(feature = "q4")]
        DType::Q4 => dmexp_dsp_matvec_q4,
        _ => return out.fill(0.0),
    };
    let Quantised { codes, row_stride, group_len, groups, scales, multipliers, offsets } = w.quantised();
    let cols = w.cols();
    let padded = cols.next_multiple_of(BLOCK);
    let Some(x_codes) = x.codes.get(..padded).filter(|x| !x.is_empty()) else { return out.fill(0.0) };
    let aligned = (codes.as_ptr().addr() | x_codes.as_ptr().addr()).is_multiple_of(4);
    let enough = scales.len() / 4 >= out.len() && (offsets.is_empty() || x.sums.len() >= groups);
    if !aligned || !enough || group_len > LONGEST_GROUP {
        return slow(out, w, x);
    }
    let start = x_codes.as_ptr();
    let (single, next) = if multipliers.is_empty() { (true, -1) } else { (false, groups as isize) };
    // q8 rows are padded to 4 columns, those of q4 to 8.
    let end = if dtype == DType::Q8 { cols.next_multiple_of(4) } else { padded };
    let whole = if group_len == 32 { cols & !31 } else { 0 };
    let mut rows = Rows {
        codes: codes.as_ptr(),
        multipliers: if single { &raw const ONE } else { multipliers.as_ptr() },
        scale: x.scale,
        two_to_24: 16_777_216.0,
        out: out.as_mut_ptr(),
        out_end: out.as_mut_ptr(),
        scales: scales.as_ptr().cast(),
        x: start,
        stride: row_stride,
        other: if single { -1 } else { next.wrapping_sub(1) },
        next,
        x_group: 2 * group_len.next_multiple_of(BLOCK),
        x_end: start.wrapping_add(end),
        x_whole: start.wrapping_add(whole),
        offsets: offsets.as_ptr().cast(),
        sums: x.sums.as_ptr(),
        all_sums: x.sums.as_ptr(),
    };
    let last = out.len() & !1;
    if let Some((paired, odd)) = out.split_at_mut_checked(last) {
        if !paired.is_empty() {
            rows.out_end = paired.as_mut_ptr_range().end;
            // SAFETY: `paired` is a number of whole pairs of rows that the matrix has, at least one; all its planes are there, or `enough` would be false, and begin at whole words. x has
            // codes to the end of a row, and sums for each group where the kernel reads them. The kernel writes `paired` alone and keeps to the calling convention.
            unsafe { kernel(&rows) };
        }
        if let [odd] = odd {
            let mut twice = [0.0; 2];
            let scales = [scale_at(scales, last); 2];
            rows.codes = rows.codes.wrapping_add(last.wrapping_mul(rows.stride));
            if !single {
                rows.multipliers = rows.multipliers.wrapping_add(last.wrapping_mul(groups));
                rows.other = -1;
            }
            rows.offsets = rows.offsets.wrapping_add(last.wrapping_mul(groups));
            (rows.stride, rows.scales) = (0, scales.as_ptr());
            rows.out = twice.as_mut_ptr();
            rows.out_end = twice.as_mut_ptr_range().end;
            // SAFETY: as above; the one row is both rows of the pair.
            unsafe { kernel(&rows) };
            [*odd, _] = twice;
        }
    }
}

/// Any address and group, element by element.
#[cold]
fn slow(out: &mut [f32], w: &TensorView<'_>, x: Integers<'_>) {
    let (planes, dtype) = (w.quantised(), only(w.dtype()));
    for (row, y) in out.iter_mut().enumerate() {
        let (mut sum, mut column) = (0i64, 0usize);
        for_each(dtype, &planes, row, w.cols(), |integer| {
            let code = x.codes.get(place(dtype, column)).copied().unwrap_or(0);
            sum = sum.wrapping_add(i64::from(integer).wrapping_mul(i64::from(code)));
            column = column.wrapping_add(1);
        });
        *y = from_i64(sum) * (scale_at(planes.scales, row) * x.scale);
    }
}

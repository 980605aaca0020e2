//! Integer matrices on cores with the DSP instructions (Cortex-M4F, M7F, M33F; hard-float targets): the kernels of `cortex_m_dsp.s`, each behind a function that checks what the assembly
//! takes for granted. What the kernels do not cover (matrices at odd addresses, groups of more than 512 with multipliers) is done element by element, with the same bits: slower, and small.

use super::cortex_m_quantise::{BLOCK, place};
use crate::format::{DType, Places, TensorView};
use crate::ops::convert::from_i64;
use crate::ops::integer::{Integers, for_each, only, scale_at};

/// What the matrix kernels need; from `scale` on the assembly keeps it in floating-point registers. Lengths of x in bytes.
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
    /// From the multiplier after the first row's last to the next pair of rows.
    next: isize,
    x: *const i16,
    /// Bytes from one row of codes to the next.
    stride: usize,
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
}

/// Groups up to this length have sums of 32 bits.
const LONGEST_GROUP: usize = 512;

/// The multipliers of rows that have none, one for each [`LONGEST_GROUP`] columns.
static ONES: [u8; 16] = [1; 16];

/// As [`integer::matvec`](crate::ops::integer::matvec), for codes that [`quantise`](super::quantise) made for this type of matrix.
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
    let Places { rows: count, cols, row_stride, mut group_len, mut groups, scales, multipliers, grouped, offsets } = w.places();
    let single = grouped == 0;
    if group_len > LONGEST_GROUP && single && cols <= LONGEST_GROUP * ONES.len() {
        (group_len, groups) = (LONGEST_GROUP, cols.div_ceil(LONGEST_GROUP));
    }
    let bytes = w.bytes().as_ptr();
    let padded = cols.next_multiple_of(BLOCK);
    let Some(x_codes) = x.codes.get(..padded).filter(|x| !x.is_empty()) else { return out.fill(0.0) };
    let aligned = (bytes.addr() | x_codes.as_ptr().addr()).is_multiple_of(4);
    let enough = count >= out.len() && (dtype == DType::Q8 || x.sums.len() >= groups);
    if !aligned || !enough || group_len > LONGEST_GROUP {
        return slow(out, w, x);
    }
    let start = x_codes.as_ptr();
    let next = if single { (groups as isize).wrapping_neg() } else { groups as isize };
    // q8 rows are padded to 4 columns, those of q4 to 8.
    let end = if dtype == DType::Q8 { cols.next_multiple_of(4) } else { padded };
    let whole = if group_len == 32 { cols & !31 } else { 0 };
    let mut rows = Rows {
        codes: bytes,
        multipliers: if single { ONES.as_ptr() } else { bytes.wrapping_add(multipliers) },
        scale: x.scale,
        two_to_24: 16_777_216.0,
        out: out.as_mut_ptr(),
        out_end: out.as_mut_ptr(),
        scales: bytes.wrapping_add(scales).cast(),
        x: start,
        stride: row_stride,
        other: if single { -1 } else { next.wrapping_sub(1) },
        next,
        x_group: 2 * group_len.next_multiple_of(BLOCK),
        x_end: start.wrapping_add(end),
        x_whole: start.wrapping_add(whole),
        offsets: bytes.wrapping_add(offsets).cast(),
        sums: x.sums.as_ptr(),
        all_sums: x.sums.as_ptr(),
    };
    let last = out.len() & !1;
    if let Some((paired, odd)) = out.split_at_mut_checked(last) {
        if !paired.is_empty() {
            rows.out_end = paired.as_mut_ptr_range().end;
            // SAFETY: `paired` is a number of whole pairs of rows that the matrix has, at least one; all its planes are there, as `places` says, and begin at whole words. x has
            // codes to the end of a row, and sums for each group where the kernel reads them. The kernel writes `paired` alone and keeps to the calling convention.
            unsafe { kernel(&rows) };
        }
        if let [odd] = odd {
            let mut twice = [0.0; 2];
            let scales = [w.row_scale(last); 2];
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
        for_each(dtype, &planes, row, w.cols(), &mut |integer| {
            let code = x.codes.get(place(dtype, column)).copied().unwrap_or(0);
            sum = sum.wrapping_add(i64::from(integer).wrapping_mul(i64::from(code)));
            column = column.wrapping_add(1);
        });
        *y = from_i64(sum) * (scale_at(planes.scales, row) * x.scale);
    }
}

//! Vectors as integer codes on cores with the DSP instructions, in the orders in which the kernels of `cortex_m_dsp.s` and `cortex_m_kv.s` want them.

use crate::format::DType;
#[cfg(feature = "q4")]
use crate::ops::parts::parts;
use crate::ops::quantise::{ACTIVATION_LIMIT, quantise_tiny};
use core::arch::global_asm;

/// Where the firmware says that the core has the DSP instructions, the assembler is told: the target itself may not promise them.
#[cfg(feature = "dsp")]
macro_rules! core {
    () => {
        ".cpu cortex-m4"
    };
}
#[cfg(not(feature = "dsp"))]
macro_rules! core {
    () => {
        ""
    };
}

// One text: the macros are shared.
global_asm!(core!(), include_str!("cortex_m_dsp.s"), include_str!("cortex_m_kv.s"), options(raw));

unsafe extern "C" {
    fn dmexp_dsp_quantise_q8(codes: *mut i16, x: *const f32, end: *const f32, inverse: f32);
    #[cfg(feature = "q4")]
    fn dmexp_dsp_quantise_q4(codes: *mut i16, x: *const f32, end: *const f32, inverse: f32);
    #[cfg(feature = "q4")]
    fn dmexp_dsp_sum(codes: *const i16, end: *const i16) -> i32;
}

/// How far the kernels go at a time: columns of x.
pub(super) const BLOCK: usize = 8;

/// Where element `index` of a vector lies among its codes.
pub(super) fn place(dtype: DType, index: usize) -> usize {
    match dtype {
        DType::Q4 => (index & !7) | (index & 3) << 1 | (index >> 2 & 1),
        _ => (index & !3) | (index & 1) << 1 | (index >> 1 & 1),
    }
}

/// The codes of `x` in 16 bits, in the order in which the kernel for this type of matrix wants them, and zeros up to a multiple of 8; returns the scale, `max |x| / 32767`.
#[inline(never)]
pub(crate) fn quantise(codes: &mut [i16], x: &[f32], dtype: DType) -> f32 {
    let largest = super::largest_magnitude(x);
    let inverse = ACTIVATION_LIMIT as f32 / largest;
    if inverse < f32::INFINITY {
        let (whole, rest) = x.split_at_checked(x.len() & !(BLOCK - 1)).unwrap_or_default();
        let Some((of_whole, of_rest)) = codes.split_at_mut_checked(whole.len()) else { return 0.0 };
        blocks(of_whole, whole, inverse, dtype);
        if let (false, Some(of_rest)) = (rest.is_empty(), of_rest.get_mut(..BLOCK)) {
            let mut padded = [0.0; BLOCK];
            for (to, x) in padded.iter_mut().zip(rest) {
                *to = *x;
            }
            blocks(of_rest, &padded, inverse, dtype);
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

/// The codes of whole blocks.
#[inline(never)]
fn blocks(codes: &mut [i16], x: &[f32], inverse: f32, dtype: DType) {
    if x.is_empty() || codes.len() < x.len() || !x.len().is_multiple_of(BLOCK) {
        return;
    }
    let (ends, to) = (x.as_ptr_range(), codes.as_mut_ptr());
    match dtype {
        // SAFETY: reads `x`, a number of whole blocks, at least one, and writes as many of `codes`. `Activation` gives codes at whole words.
        #[cfg(feature = "q4")]
        DType::Q4 => unsafe { dmexp_dsp_quantise_q4(to, ends.start, ends.end, inverse) },
        // SAFETY: as above.
        _ => unsafe { dmexp_dsp_quantise_q8(to, ends.start, ends.end, inverse) },
    }
}

/// `sums[g]` = the sum of the codes of group g, for groups of `group` codes.
#[cfg(feature = "q4")]
#[inline(never)]
pub(crate) fn group_sums(sums: &mut [i32], codes: &[i16], group: usize, _: DType) {
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

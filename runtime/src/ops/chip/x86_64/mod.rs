//! x86-64 hosts: kernels for AVX2, AVX-512 and VNNI, chosen while the program runs ([`Level`]); the baseline is the portable code with SSE2.
//!
//! Each function takes what the one of this name in [`portable`](crate::ops::portable) or [`any`] takes and gives the same bits. Calls of kernels are unsafe because a processor without the
//! instructions would stop: [`Level::current`] is never above what [`detect`] found.
#![allow(
    clippy::wildcard_imports,
    clippy::inline_always,
    clippy::cast_ptr_alignment,
    reason = "intrinsics by the dozen; what is compiled for several element types must be inlined into the function that has the instructions; loads are those for any address"
)]

mod attention;
mod avx2_attention;
mod avx2_floats;
#[cfg(any(feature = "q8", feature = "q4"))]
mod avx2_integers;
#[cfg(feature = "sequential")]
mod avx2_tile;
mod avx512_attention;
mod detect;
#[cfg(all(feature = "llama", any(feature = "q8", feature = "q4")))]
mod integer_matmul;
#[cfg(any(feature = "q8", feature = "q4"))]
mod integer_rows;
#[cfg(feature = "llama")]
mod matmul;
#[cfg(all(feature = "llama", any(feature = "q8", feature = "q4")))]
mod packed;
mod spread;
#[cfg(test)]
mod tests;
#[cfg(any(feature = "q8", feature = "q4"))]
mod vnni;

use crate::format::{DType, TensorView};
#[cfg(any(feature = "q8", feature = "q4"))]
use crate::ops::integer::{self, Integers};
#[cfg(any(feature = "q8", feature = "q4"))]
use crate::ops::quantise as portable_quantise;
#[cfg(feature = "sequential")]
use crate::ops::tile;
use crate::simd::Level;
#[cfg(any(feature = "q8", feature = "q4"))]
use integer_rows::Rows;

pub(crate) use super::any::{Prepared, prepare, sqrt, widen_f16};
pub(crate) use attention::{mix, scores};
pub(crate) use detect::detect;
#[cfg(feature = "llama")]
pub(crate) use matmul::matmul;
pub(crate) use spread::{add, argmax, divide, exp_minus, gate, largest_magnitude, narrow_f16, norm, rotate, sum8, sum8_squares};

/// `out[r] = dot8(row r, x)`; zeros for an element type that was left out of the build.
pub(crate) fn matvec(out: &mut [f32], w: &TensorView<'_>, x: &[f32]) {
    if Level::current() < Level::Avx2 {
        return super::any::matvec(out, w, x);
    }
    let rows = w.bytes();
    match w.dtype() {
        // SAFETY: Level::current says that there is AVX2, and F16C with it.
        #[cfg(feature = "f32")]
        DType::F32 => unsafe { avx2_floats::matvec_f32(out, rows, x) },
        // SAFETY: as above.
        #[cfg(feature = "f16")]
        DType::F16 => unsafe { avx2_floats::matvec_f16(out, rows, x) },
        // SAFETY: as above.
        #[cfg(feature = "bf16")]
        DType::Bf16 => unsafe { avx2_floats::matvec_bf16(out, rows, x) },
        _ => out.fill(0.0),
    }
}

/// As [`tile::multiply_tile`].
#[cfg(feature = "sequential")]
pub(crate) fn multiply_tile(out: &mut [f32], step: usize, filters: &[f32], cols: usize, tile: &tile::Tile, x: &[f32]) {
    if Level::current() < Level::Avx2 {
        return tile::multiply_tile(out, step, filters, cols, tile, x);
    }
    // SAFETY: Level::current says that there is AVX2.
    unsafe { avx2_tile::multiply_tile(out, step, filters, cols, tile, x) }
}

/// How the codes of an activation vector lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) enum Form {
    /// In their own order.
    #[default]
    Plain,
    /// In each whole block of 32 the even ones before the odd ones: as the nibbles of q4 come apart.
    Halves,
    /// In bytes, for q8 with VNNI.
    BytesQ8,
    /// In bytes, for q4 with VNNI.
    BytesQ4,
}

/// The form that the kernel for this matrix wants.
#[cfg(any(feature = "q8", feature = "q4"))]
pub(crate) fn form(w: &TensorView<'_>) -> Form {
    let level = Level::current();
    match w.dtype() {
        DType::Q8 if level >= Level::Vnni && w.group() as usize == vnni::GROUP => Form::BytesQ8,
        DType::Q4 if level >= Level::Vnni && w.group() as usize == vnni::GROUP => Form::BytesQ4,
        DType::Q4 if level >= Level::Avx2 && w.group_len().is_multiple_of(avx2_integers::BLOCK) => Form::Halves,
        _ => Form::Plain,
    }
}

/// The codes of `x` in 16 bits, and zeros after them; returns the scale. For forms in bytes they are in their own order still: [`group_sums`] comes next.
#[cfg(any(feature = "q8", feature = "q4"))]
pub(crate) fn quantise(codes: &mut [i16], x: &[f32], form: Form) -> f32 {
    let scale = spread::quantise(codes, x);
    if form == Form::Halves {
        for block in codes.get_mut(..x.len()).unwrap_or_default().as_chunks_mut::<{ avx2_integers::BLOCK }>().0 {
            let natural = *block;
            let (even, odd) = block.split_at_mut(avx2_integers::BLOCK / 2);
            for ((even, odd), [a, b]) in even.iter_mut().zip(odd).zip(natural.as_chunks::<2>().0) {
                (*even, *odd) = (*a, *b);
            }
        }
    }
    scale
}

/// `sums[g]` = the sum of the codes of group g, for groups of `group` codes in this form; for q8 in bytes what [`vnni::dot_q8`] wants instead. Then forms in bytes are made.
#[cfg(any(feature = "q8", feature = "q4"))]
pub(crate) fn group_sums(sums: &mut [i32], codes: &mut [i16], group: usize, form: Form) {
    if form == Form::BytesQ8 {
        return vnni::split_q8(sums, codes);
    }
    // The halves of a block of 32 lie in one group.
    portable_quantise::group_sums(sums, codes, group);
    if form == Form::BytesQ4 {
        vnni::split_q4(codes);
    }
}

/// As [`integer::matvec`], for codes in the form that [`form`] named.
#[cfg(any(feature = "q8", feature = "q4"))]
pub(crate) fn matvec_integer(out: &mut [f32], w: &TensorView<'_>, x: Integers<'_>) {
    matvec_integer_from(out, w, 0, x);
}

/// The same for the rows from `first` on.
#[cfg(any(feature = "q8", feature = "q4"))]
pub(crate) fn matvec_integer_from(out: &mut [f32], w: &TensorView<'_>, first: usize, x: Integers<'_>) {
    if x.form == Form::Plain && (Level::current() < Level::Avx2 || w.dtype() != DType::Q8) {
        return integer::matvec_from(out, w, first, x);
    }
    let per_byte = if w.dtype() == DType::Q4 { 2 } else { 1 };
    let Some(rows) = Rows::new(w, (first, out.len()), &x, per_byte).filter(|rows| rows.cols > 0) else { return out.fill(0.0) };
    // SAFETY: Level::current says that there is AVX2, or said that there is what the form is for when it was named.
    unsafe {
        match x.form {
            Form::BytesQ8 => vnni::matvec_q8(out, rows, x),
            Form::BytesQ4 => vnni::matvec_q4(out, rows, x),
            Form::Halves => avx2_integers::matvec_q4(out, rows, x),
            Form::Plain => avx2_integers::matvec_q8(out, rows, x),
        }
    }
}

//! What the compiler vectorises by itself: the portable code, compiled once more for AVX2.

use crate::format::arch::llama::RopeLayout;
use crate::ops::{convert, portable, quantise as portable_quantise};
use crate::simd::Level;
use core::arch::x86_64::*;

/// Functions of [`portable`] that use AVX2 where there is AVX2.
macro_rules! spread {
    ($($(#[$doc:meta])* $module:ident::$name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?;)*) => {
        $($(#[$doc])*
        pub(crate) fn $name($($argument: $type),*) $(-> $result)? {
            #[target_feature(enable = "avx2,f16c")]
            fn avx2($($argument: $type),*) $(-> $result)? {
                $module::$name($($argument),*)
            }
            if Level::current() >= Level::Avx2 {
                // SAFETY: Level::current says that there is AVX2, and F16C with it.
                unsafe { avx2($($argument),*) }
            } else {
                $module::$name($($argument),*)
            }
        })*
    };
}

spread! {
    /// As [`portable::exp_minus`].
    portable::exp_minus(values: &mut [f32], largest: f32);
    /// As [`portable::divide`].
    portable::divide(values: &mut [f32], divisor: f32);
    /// As [`portable::gate`].
    portable::gate(gate: &mut [f32], up: &[f32]);
    /// As [`portable::add`].
    portable::add(x: &mut [f32], y: &[f32]);
    /// As [`portable::norm`].
    portable::norm(out: &mut [f32], x: &[f32], gain: &[f32], scale: f32);
    /// As [`portable::rotate`].
    portable::rotate(vectors: &mut [f32], head_dim: usize, cos: &[f32], sin: &[f32], layout: RopeLayout);
    /// As [`portable::sum8`].
    portable::sum8(terms: &[f32]) -> f32;
    /// As [`portable::sum8_squares`].
    portable::sum8_squares(values: &[f32]) -> f32;
    /// As [`portable_quantise::largest_magnitude`].
    portable_quantise::largest_magnitude(x: &[f32]) -> f32;
    /// As [`portable_quantise::quantise`].
    portable_quantise::quantise(codes: &mut [i16], x: &[f32]) -> f32;
}

/// Half-precision patterns of `from`, nearest even.
pub(crate) fn narrow_f16(to: &mut [u16], from: &[f32]) {
    #[target_feature(enable = "avx2,f16c")]
    fn avx2(to: &mut [u16], from: &[f32]) {
        for (to, from) in to.chunks_mut(8).zip(from.chunks(8)) {
            let (mut floats, mut halves) = ([0f32; 8], [0u16; 8]);
            floats.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
            // SAFETY: there are eight floats, and room for eight halves.
            unsafe {
                let narrowed = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(_mm256_loadu_ps(floats.as_ptr()));
                _mm_storeu_si128(halves.as_mut_ptr().cast(), narrowed);
            }
            to.iter_mut().zip(halves).zip(from).for_each(|((to, half), _)| *to = half);
        }
    }
    if Level::current() >= Level::Avx2 {
        // SAFETY: Level::current says that there is AVX2, and F16C with it.
        return unsafe { avx2(to, from) };
    }
    for (to, from) in to.iter_mut().zip(from) {
        *to = convert::narrow_f16(*from);
    }
}

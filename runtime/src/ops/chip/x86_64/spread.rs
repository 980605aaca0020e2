//! What the compiler vectorises by itself: the portable code, compiled once more for AVX2 and for AVX-512.

use crate::format::arch::llama::RopeLayout;
use crate::ops::{convert, portable, quantise as portable_quantise};
use crate::simd::Level;
use core::arch::x86_64::*;

/// Functions of [`portable`] that use AVX2 or AVX-512 where there is that.
macro_rules! spread {
    ($($(#[$doc:meta])* $module:ident::$name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?;)*) => {
        $($(#[$doc])*
        pub(crate) fn $name($($argument: $type),*) $(-> $result)? {
            #[target_feature(enable = "avx2,f16c")]
            fn avx2($($argument: $type),*) $(-> $result)? {
                $module::$name($($argument),*)
            }
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,f16c")]
            fn avx512($($argument: $type),*) $(-> $result)? {
                $module::$name($($argument),*)
            }
            if Level::current() >= Level::Avx512 {
                // SAFETY: Level::current says that there is AVX-512, and what came before it.
                unsafe { avx512($($argument),*) }
            } else if Level::current() >= Level::Avx2 {
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
    sixteens::exp_minus(values: &mut [f32], largest: f32);
    /// As [`portable::divide`].
    sixteens::divide(values: &mut [f32], divisor: f32);
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
    /// As [`portable::argmax`].
    sixteens::argmax(values: &[f32]) -> Option<(u32, f32)>;
    /// As [`portable_quantise::largest_magnitude`].
    portable_quantise::largest_magnitude(x: &[f32]) -> f32;
    /// As [`portable_quantise::quantise`].
    portable_quantise::quantise(codes: &mut [i16], x: &[f32]) -> f32;
}

/// Functions of [`portable`] whose vectors have any length: sixteen elements at a time, so that nothing is left over to be done one by one.
mod sixteens {
    use crate::ops::portable;

    #[inline(always)]
    pub(super) fn exp_minus(values: &mut [f32], largest: f32) {
        each(values, |part| portable::exp_minus(part, largest));
    }

    #[inline(always)]
    pub(super) fn divide(values: &mut [f32], divisor: f32) {
        each(values, |part| portable::divide(part, divisor));
    }

    /// The largest value first, and then its place: neither waits for what came before it.
    #[inline(always)]
    pub(super) fn argmax(values: &[f32]) -> Option<(u32, f32)> {
        let (parts, rest) = values.as_chunks::<16>();
        let mut largest = [*values.first()?; 16];
        for part in parts {
            for (largest, value) in largest.iter_mut().zip(part) {
                *largest = if *value > *largest { *value } else { *largest };
            }
        }
        let (_, largest) = portable::argmax(&largest)?;
        let largest = rest.iter().fold(largest, |largest, value| if *value > largest { *value } else { largest });
        // A first value that is no number is below none, and equal to none.
        let number = parts.iter().position(|part| part.iter().filter(|value| **value == largest).count() > 0);
        let first = 16 * number.unwrap_or(parts.len());
        let within = values.get(first..).unwrap_or(&[]).iter().position(|value| *value == largest);
        let at = within.map_or(0, |within| first + within);
        Some((at as u32, *values.get(at)?))
    }

    #[inline(always)]
    fn each(values: &mut [f32], change: impl Fn(&mut [f32; 16])) {
        let (whole, rest) = values.as_chunks_mut::<16>();
        for part in whole {
            change(part);
        }
        if !rest.is_empty() {
            let mut part = [0.0; 16];
            for (to, from) in part.iter_mut().zip(&*rest) {
                *to = *from;
            }
            change(&mut part);
            for (to, from) in rest.iter_mut().zip(part) {
                *to = from;
            }
        }
    }
}

/// Half-precision patterns of `from`, nearest even.
pub(crate) fn narrow_f16(to: &mut [u16], from: &[f32]) {
    #[target_feature(enable = "avx2,f16c")]
    fn avx2(to: &mut [u16], from: &[f32]) {
        let eight = |to: &mut [u16; 8], from: &[f32; 8]| {
            // SAFETY: there are eight floats, and room for eight halves.
            unsafe {
                let narrowed = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(_mm256_loadu_ps(from.as_ptr()));
                _mm_storeu_si128(to.as_mut_ptr().cast(), narrowed);
            }
        };
        let n = to.len().min(from.len());
        let ((to, to_rest), (from, from_rest)) = (to[..n].as_chunks_mut::<8>(), from[..n].as_chunks::<8>());
        for (to, from) in to.iter_mut().zip(from) {
            eight(to, from);
        }
        if !from_rest.is_empty() {
            let (mut floats, mut halves) = ([0f32; 8], [0u16; 8]);
            floats.iter_mut().zip(from_rest).for_each(|(to, from)| *to = *from);
            eight(&mut halves, &floats);
            to_rest.iter_mut().zip(halves).for_each(|(to, half)| *to = half);
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

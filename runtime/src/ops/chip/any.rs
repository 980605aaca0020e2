//! Machines without kernels of their own: the portable ones, and a square-root instruction where it can be reached.

#[cfg(any(feature = "f32", feature = "f16", feature = "bf16"))]
use crate::format::DType;
use crate::format::{KvDType, TensorView};
use crate::ops::convert::{self, F16, F32};
use crate::ops::kv::{KvHead, KvRows, is_built};
use crate::ops::{kv_integer, portable, quantise};

#[cfg(all(feature = "sequential", not(target_os = "none")))]
pub(crate) use crate::ops::tile::multiply_tile;
pub(crate) use portable::{add, argmax, divide, exp_minus, gate, norm, rotate, sum8, sum8_squares};
pub(crate) use quantise::largest_magnitude;

/// The IEEE square root.
#[inline]
pub(crate) fn sqrt(x: f32) -> f32 {
    #[cfg(all(target_arch = "x86_64", target_feature = "sse"))]
    {
        use core::arch::x86_64::{_mm_cvtss_f32, _mm_set_ss, _mm_sqrt_ss};
        // SAFETY: the three intrinsics only need SSE, which the cfg above says every machine of this build has.
        unsafe { _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(x))) }
    }
    #[cfg(not(all(target_arch = "x86_64", target_feature = "sse")))]
    portable::sqrt(x)
}

/// `out[r] = dot8(row r, x)`; zeros for an element type that was left out of the build.
#[cfg_attr(not(any(feature = "f32", feature = "f16", feature = "bf16")), allow(unused_variables, reason = "a build without weights"))]
pub(crate) fn matvec(out: &mut [f32], w: &TensorView<'_>, x: &[f32]) {
    match w.dtype() {
        #[cfg(feature = "f32")]
        DType::F32 => match w.as_f32() {
            Some(rows) => portable::matvec::<F32>(out, rows, x),
            None => portable::matvec::<convert::F32Bytes>(out, w.bytes().as_chunks::<4>().0, x),
        },
        #[cfg(feature = "f16")]
        DType::F16 => match w.as_u16() {
            Some(rows) => portable::matvec::<F16>(out, rows, x),
            None => portable::matvec::<convert::F16Bytes>(out, w.bytes().as_chunks::<2>().0, x),
        },
        #[cfg(feature = "bf16")]
        DType::Bf16 => match w.as_u16() {
            Some(rows) => portable::matvec::<convert::Bf16>(out, rows, x),
            None => portable::matvec::<convert::Bf16Bytes>(out, w.bytes().as_chunks::<2>().0, x),
        },
        _ => out.fill(0.0),
    }
}

/// Half-precision patterns of `from`, nearest even.
pub(crate) fn narrow_f16(to: &mut [u16], from: &[f32]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to = convert::narrow_f16(*from);
    }
}

/// Keys or values as the kernels take them: here as they are.
pub(crate) type Prepared<'a> = KvRows<'a>;

/// Keys or values as the kernels take them.
pub(crate) fn prepare(rows: KvRows<'_>, _: usize, _: KvHead) -> Prepared<'_> {
    rows
}

/// As [`portable::scores`]; the first row of `keys` belongs to the first score. `scratch` has at least half as many elements as `q`.
pub(crate) fn scores(scores: &mut [f32], q: &[f32], keys: &KvRows<'_>, head: KvHead, scale: f32, scratch: &mut [f32]) -> f32 {
    let (stride, offset) = (head.stride(), head.offset());
    match *keys {
        KvRows::F32(keys) if is_built(KvDType::F32) => portable::scores::<F32>(scores, q, keys, stride, offset, scale),
        KvRows::F16(keys) if is_built(KvDType::F16) => portable::scores::<F16>(scores, q, keys, stride, offset, scale),
        KvRows::Q8(keys) if is_built(KvDType::Q8) => kv_integer::scores(scores, q, keys, head, scale, scratch),
        _ => f32::NEG_INFINITY,
    }
}

/// As [`portable::mix`]; the first row of `values` belongs to the first weight. The weights may be lost.
pub(crate) fn mix(out: &mut [f32], weights: &mut [f32], values: &KvRows<'_>, head: KvHead, first_lane: usize, lanes: &mut [f32]) {
    let (stride, offset) = (head.stride(), head.offset());
    match *values {
        KvRows::F32(values) if is_built(KvDType::F32) => portable::mix::<F32>(out, weights, values, stride, offset, first_lane, lanes),
        KvRows::F16(values) if is_built(KvDType::F16) => portable::mix::<F16>(out, weights, values, stride, offset, first_lane, lanes),
        KvRows::Q8(values) if is_built(KvDType::Q8) => kv_integer::mix(out, weights, values, head),
        _ => out.fill(0.0),
    }
}

/// The value of a half-precision pattern, by whatever the kernels use for it.
pub(crate) fn widen_f16(half: u16) -> f32 {
    convert::widen_f16(half)
}

//! Half precision and bfloat16 to and from `f32`, in integer arithmetic and exact additions. Called by the kernels, the KV cache and the self-check.
#![cfg_attr(
    all(target_arch = "arm", target_os = "none", target_abi = "eabihf"),
    allow(dead_code, reason = "only the portable kernels need most of these: see portable.rs")
)]

/// The `f32` of an IEEE half-precision bit pattern: exact, subnormals included. A NaN stays a NaN.
#[inline(always)]
#[allow(clippy::inline_always, reason = "the innermost step of every half-precision kernel")]
pub fn widen_f16(half: u16) -> f32 {
    let half = u32::from(half);
    let sign = (half & 0x8000) << 16;
    let magnitude = half & 0x7fff;
    let shifted = magnitude << 13;
    let bits = if magnitude < 0x400 {
        // Fraction placed below 2^-14, then 2^-14 taken away: exact, and no operand or result is a subnormal `f32`.
        (f32::from_bits(shifted.wrapping_add(113 << 23)) - f32::from_bits(113 << 23)).to_bits()
    } else if magnitude < 0x7c00 {
        shifted.wrapping_add(112 << 23)
    } else {
        shifted.wrapping_add(224 << 23)
    };
    f32::from_bits(bits | sign)
}

/// The half-precision bit pattern nearest to `value`, ties to even, subnormals kept; too large becomes infinity, a NaN the quiet NaN 0x7e00 with its sign.
#[inline]
pub fn narrow_f16(value: f32) -> u16 {
    let bits = value.to_bits();
    let sign = (bits >> 16) & 0x8000;
    let magnitude = bits & 0x7fff_ffff;
    let half = if magnitude > 0x7f80_0000 {
        0x7e00
    } else if magnitude >= 143 << 23 {
        0x7c00
    } else if magnitude >= 113 << 23 {
        // Rounds at bit 13; a carry runs into the exponent, up to infinity, as it should.
        let even = (magnitude >> 13) & 1;
        magnitude.wrapping_sub(112 << 23).wrapping_add(0xfff).wrapping_add(even) >> 13
    } else {
        // Half-precision subnormals are multiples of 2^-24, the spacing of `f32` at 1/2: the addition rounds to them.
        (f32::from_bits(magnitude) + 0.5).to_bits().wrapping_sub(0.5f32.to_bits())
    };
    (half | sign) as u16
}

/// `sum as f32`. On a chip by the conversion of 32 bits, for that of 64 takes a hundred instructions: what does not fit is shifted right until it does, with its last digit set where anything
/// was lost. 28 digits are left at least, so it rounds the same; the shift goes back into the exponent.
#[cfg_attr(target_os = "none", inline(never))]
#[cfg_attr(not(target_os = "none"), inline)]
pub(crate) fn from_i64(sum: i64) -> f32 {
    if cfg!(not(any(test, target_os = "none"))) {
        return sum as f32;
    }
    let (mut rest, mut exponent) = (sum, 0u32);
    loop {
        if let Ok(rest) = i32::try_from(rest) {
            return f32::from_bits((rest as f32).to_bits().wrapping_add(exponent));
        }
        rest = rest >> 4 | i64::from(rest & 15 != 0);
        exponent = exponent.wrapping_add(4 << 23);
    }
}

/// The `f32` of a bfloat16 bit pattern: exact.
#[inline(always)]
#[allow(clippy::inline_always, reason = "the innermost step of every bfloat16 kernel")]
pub const fn widen_bf16(bits: u16) -> f32 {
    f32::from_bits((bits as u32) << 16)
}

/// How the elements of a row are stored: what one of them is in memory, and its value.
pub(crate) trait Stored {
    type Item: Copy;
    fn widen(item: Self::Item) -> f32;
}

/// Aligned `f32`.
pub(crate) struct F32;
/// Aligned IEEE half precision.
pub(crate) struct F16;
/// Aligned bfloat16.
#[cfg(feature = "bf16")]
pub(crate) struct Bf16;
/// Little-endian `f32` at any address.
#[cfg(feature = "f32")]
pub(crate) struct F32Bytes;
/// Little-endian half precision at any address.
#[cfg(feature = "f16")]
pub(crate) struct F16Bytes;
/// Little-endian bfloat16 at any address.
#[cfg(feature = "bf16")]
pub(crate) struct Bf16Bytes;

macro_rules! stored {
    ($name:ident, $item:ty, $value:pat => $widened:expr) => {
        impl Stored for $name {
            type Item = $item;
            #[inline(always)]
            fn widen($value: $item) -> f32 {
                $widened
            }
        }
    };
}

stored!(F32, f32, item => item);
stored!(F16, u16, item => widen_f16(item));
#[cfg(feature = "bf16")]
stored!(Bf16, u16, item => widen_bf16(item));
#[cfg(feature = "f32")]
stored!(F32Bytes, [u8; 4], item => f32::from_le_bytes(item));
#[cfg(feature = "f16")]
stored!(F16Bytes, [u8; 2], item => widen_f16(u16::from_le_bytes(item)));
#[cfg(feature = "bf16")]
stored!(Bf16Bytes, [u8; 2], item => widen_bf16(u16::from_le_bytes(item)));

#[cfg(test)]
mod tests {
    use super::*;

    /// Every pattern is tried; under Miri, which is slow, one in this many.
    const STEP: usize = if cfg!(miri) { 499 } else { 1 };

    #[test]
    fn sums_of_64_bits_are_rounded_once() {
        let mut state = 1u64;
        for shift in 0..64 {
            for _ in 0..if cfg!(miri) { 2 } else { 500 } {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                // Any digits, and those of a tie with up to one beside it.
                for sum in [
                    state >> shift,
                    (state >> 40 | 1) << 40 >> shift,
                    ((state >> 40 | 1) << 40 >> shift).wrapping_add(state & 2).wrapping_sub(1),
                ] {
                    let sum = sum.cast_signed();
                    assert_eq!(from_i64(sum).to_bits(), (sum as f32).to_bits(), "{sum}");
                }
            }
        }
        for sum in [0, 1, -1, i64::MAX, i64::MIN, 1 << 31, -1 << 31, (1 << 31) - 1] {
            assert_eq!(from_i64(sum).to_bits(), (sum as f32).to_bits(), "{sum}");
        }
    }

    #[test]
    fn every_half_widens_exactly() {
        for bits in (0..=u16::MAX).step_by(STEP) {
            let (ours, reference) = (widen_f16(bits), half::f16::from_bits(bits).to_f32());
            assert!(ours.to_bits() == reference.to_bits() || ours.is_nan() && reference.is_nan(), "{bits:#06x}");
            let (ours, reference) = (widen_bf16(bits), half::bf16::from_bits(bits).to_f32());
            assert!(ours.to_bits() == reference.to_bits() || ours.is_nan() && reference.is_nan(), "{bits:#06x}");
        }
    }

    #[test]
    fn every_half_survives_there_and_back() {
        for bits in (0..=u16::MAX).step_by(STEP) {
            let back = narrow_f16(widen_f16(bits));
            assert!(back == bits || widen_f16(bits).is_nan() && widen_f16(back).is_nan(), "{bits:#06x}");
        }
    }

    #[test]
    fn narrowing_rounds_to_nearest_even() {
        // Every boundary between neighbours, and just beside it.
        for bits in (0..0x7c00u16).step_by(STEP) {
            let low = widen_f16(bits);
            let high = if bits == 0x7bff { 65536.0 } else { widen_f16(bits + 1) };
            let middle = f32::midpoint(low, high);
            for near in [middle, middle.next_down(), middle.next_up()] {
                for value in [near, -near] {
                    assert_eq!(narrow_f16(value), half::f16::from_f32(value).to_bits(), "{value:e}");
                }
            }
        }
        let mut bits = 0u32;
        let step = 997 * STEP as u32;
        while bits < u32::MAX - step {
            let value = f32::from_bits(bits);
            let (ours, reference) = (narrow_f16(value), half::f16::from_f32(value).to_bits());
            assert!(ours == reference || value.is_nan() && widen_f16(ours).is_nan(), "{bits:#010x}");
            bits += step;
        }
    }
}

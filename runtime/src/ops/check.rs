//! Eight operations with known results, run once before a session computes: a machine that rounds another way, flushes subnormals or was given other float
//! routines is refused, not trusted.

use super::convert::narrow_f16;
use super::{chip, math};
use crate::format::Error;
use core::hint::black_box;

/// Checks that this machine computes as arithmetic number 1 demands.
///
/// # Errors
/// [`Error::ArithmeticSelfCheck`] with the first operation that differs: 0 and 1 the rounding mode (a tie up to even, a tie down to even below zero), 2 a subnormal result, 3 a subnormal
/// operand, 4 a product fused into a sum, 5 division, 6 square root, 7 half precision (widening its infinity and its smallest subnormal, narrowing a tie).
pub fn self_check() -> Result<(), Error> {
    let one = black_box(1.0f32);
    let half_ulp = black_box(f32::from_bits(0x3380_0000));
    let smallest_normal = black_box(f32::MIN_POSITIVE);
    let subnormal = black_box(f32::from_bits(1));
    let square = black_box(f32::from_bits(0x3f80_0800));

    // 1 + 2^-23 + 2^-24 lies between two neighbours; the even one is 1 + 2^-22.
    expect(0, f32::from_bits(0x3f80_0001) * one + half_ulp, 0x3f80_0002)?;
    expect(1, -one - half_ulp, 0xbf80_0000)?;
    expect(2, smallest_normal * black_box(0.5), 0x0040_0000)?;
    expect(3, subnormal * black_box(16_777_216.0), 0x0100_0000)?;
    // (1 + 2^-12)^2 - (1 + 2^-11) is 0 when the square is rounded first, else 2^-24.
    expect(4, square * square - black_box(f32::from_bits(0x3f80_1000)), 0)?;
    expect(5, one / black_box(3.0), 0x3eaa_aaab)?;
    expect(6, math::sqrt(black_box(2.0)), 0x3fb5_04f3)?;
    expect(7, chip::widen_f16(black_box(0x7c00)), 0x7f80_0000)?;
    expect(7, chip::widen_f16(black_box(0x0001)), 0x3380_0000)?;
    // 1 + 2^-11 is a tie between halves; the even one is 1.
    let mut narrowed = [0];
    chip::narrow_f16(&mut narrowed, &[black_box(f32::from_bits(0x3f80_1000))]);
    let [narrowed] = narrowed;
    expect(7, f32::from_bits(u32::from(narrowed)), 0x3c00)?;
    expect(7, f32::from_bits(u32::from(narrow_f16(black_box(f32::from_bits(0x3380_0000))))), 0x0001)
}

fn expect(operation: u32, value: f32, expected: u32) -> Result<(), Error> {
    let found = black_box(value).to_bits();
    if found == expected { Ok(()) } else { Err(Error::ArithmeticSelfCheck { operation, found, expected }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_passes() {
        assert_eq!(self_check(), Ok(()));
    }
}

//! Operations with known results, run once before a session computes: a machine that rounds another way, flushes subnormals or was given other float
//! routines is refused, not trusted.

use super::convert::narrow_f16;
use super::{chip, math};
use crate::format::Error;
use core::hint::black_box;

/// Checks that this machine computes as arithmetic number 1 demands.
///
/// # Errors
/// [`Error::ArithmeticSelfCheck`] with the first operation that differs: 0 and 1 the rounding mode (a tie up to even, a tie down to even below zero), 2 a subnormal result, 3 a subnormal
/// operand, 4 a product fused into a sum, 5 division, 6 square root, 7 half precision (widening its infinity and its smallest subnormal, narrowing a tie). Where floats are subroutines, each
/// of which may come from elsewhere, subnormals in the others too: 8 in sums, 9 as the result of a division, 10 as its operand, 11 in a comparison.
pub fn self_check() -> Result<(), Error> {
    // 1; half an ulp of it; the smallest normal number and the smallest of all; 1 + 2^-12; 1 + 2^-11, which is also a tie between halves, the even one of which is 1.
    let [one, half_ulp, smallest_normal, subnormal, root, square, half, large] = black_box(&OPERANDS).map(f32::from_bits);
    let mut narrowed = [0; 2];
    chip::narrow_f16(&mut narrowed, &[square, half_ulp]);
    let [tie, smallest] = narrowed;
    // The scales of keys and values in 8 bits are narrowed by themselves.
    let smallest = if cfg!(feature = "kv-q8") { narrow_f16(half_ulp) } else { smallest };
    let [infinity, smallest_half] = black_box([0x7c00, 0x0001]);
    let found = black_box([
        f32::from_bits(one.to_bits() | 1) * one + half_ulp,
        -one - half_ulp,
        smallest_normal * half,
        subnormal * large,
        // (1 + 2^-12)^2 - (1 + 2^-11) is 0 when the square is rounded first, else 2^-24.
        root * root - square,
        one / black_box(3.0),
        math::sqrt(one + one),
        chip::widen_f16(infinity),
        chip::widen_f16(smallest_half),
        f32::from_bits(u32::from(tie)),
        f32::from_bits(u32::from(smallest)),
    ]);
    compare(&found, &EXPECTED, 0, HALF_PRECISION)?;
    #[cfg(not(any(target_abi = "eabihf", target_feature = "f")))]
    compare(
        &black_box([
            (smallest_normal + subnormal) - smallest_normal,
            smallest_normal / (one + one),
            subnormal / smallest_normal,
            if subnormal > 0.0 { one } else { half },
        ]),
        &[1, 0x0040_0000, 0x3400_0000, 0x3f80_0000],
        HALF_PRECISION + 1,
        u32::MAX,
    )?;
    Ok(())
}

/// Refuses the first value that has not the bits expected of it; operations count from `first`, and those past `last` are the last.
fn compare(found: &[f32], expected: &[u32], first: u32, last: u32) -> Result<(), Error> {
    for (number, (value, expected)) in (first..).zip(found.iter().zip(expected)) {
        let found = value.to_bits();
        if found != *expected {
            return Err(Error::ArithmeticSelfCheck { operation: last.min(number), found, expected: *expected });
        }
    }
    Ok(())
}

/// The index of the largest of `values`, the lowest where several are largest, and that value; `None` if there are none. NaN is never larger.
pub fn argmax(values: &[f32]) -> Option<(u32, f32)> {
    chip::argmax(values)
}

/// Whether none of `values` is NaN or infinite.
pub fn all_finite(values: &[f32]) -> bool {
    chip::largest_magnitude(values) < f32::INFINITY
}

static OPERANDS: [u32; 8] = [0x3f80_0000, 0x3380_0000, 0x0080_0000, 1, 0x3f80_0800, 0x3f80_1000, 0x3f00_0000, 0x4b80_0000];

/// The bits of each operation's result, of the last one's four. (1 + 2^-23 + 2^-24 lies between two neighbours; the even one is 1 + 2^-22.)
static EXPECTED: [u32; 11] =
    [0x3f80_0002, 0xbf80_0000, 0x0040_0000, 0x0100_0000, 0, 0x3eaa_aaab, 0x3fb5_04f3, 0x7f80_0000, 0x3380_0000, 0x3c00, 0x0001];

/// Its number among the operations; it has the last four values.
const HALF_PRECISION: u32 = 7;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_passes() {
        assert_eq!(self_check(), Ok(()));
    }
}

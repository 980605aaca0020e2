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
/// operand, 4 a product fused into a sum, or rounded up, 5 division, 6 square root, 7 half precision (widening its infinity and its smallest subnormal, narrowing a tie). Where floats are
/// subroutines, each of which may come from elsewhere, subnormals in the others too: 8 in sums, 9 as the result of a division, 10 as its operand, 11 in a comparison; and how the others round: 12
/// products, 13 quotients, 14 square roots, 15 and 16 whole numbers that become floats.
pub fn self_check() -> Result<(), Error> {
    check::<Machine>()
}

/// The operations of a machine.
#[cfg_attr(
    any(target_abi = "eabihf", target_feature = "f"),
    allow(dead_code, reason = "some are checked where floats are subroutines alone")
)]
trait Floats {
    fn sum(a: f32, b: f32) -> f32;
    fn product(a: f32, b: f32) -> f32;
    /// `a * b - c`, the product rounded first.
    fn product_less(a: f32, b: f32, c: f32) -> f32;
    fn quotient(a: f32, b: f32) -> f32;
    fn root(a: f32) -> f32;
    fn is_positive(a: f32) -> bool;
    fn of_whole(number: i32) -> f32;
    fn widen(half: u16) -> f32;
    /// Two at a time, as rows are.
    fn narrow_pair(halves: &mut [u16; 2], values: [f32; 2]);
    /// By itself, as the scales of keys and values in 8 bits are.
    fn narrow(value: f32) -> u16;
}

/// This machine.
struct Machine;

#[allow(clippy::inline_always, reason = "operators")]
impl Floats for Machine {
    #[inline(always)]
    fn sum(a: f32, b: f32) -> f32 {
        a + b
    }

    #[inline(always)]
    fn product(a: f32, b: f32) -> f32 {
        a * b
    }

    #[inline(always)]
    fn product_less(a: f32, b: f32, c: f32) -> f32 {
        a * b - c
    }

    #[inline(always)]
    fn quotient(a: f32, b: f32) -> f32 {
        a / b
    }

    #[inline(always)]
    fn root(a: f32) -> f32 {
        math::sqrt(a)
    }

    #[inline(always)]
    fn is_positive(a: f32) -> bool {
        a > 0.0
    }

    #[inline(always)]
    fn of_whole(number: i32) -> f32 {
        number as f32
    }

    #[inline(always)]
    fn widen(half: u16) -> f32 {
        chip::widen_f16(half)
    }

    #[inline(always)]
    fn narrow_pair(halves: &mut [u16; 2], values: [f32; 2]) {
        chip::narrow_f16(halves, &values);
    }

    #[inline(always)]
    fn narrow(value: f32) -> u16 {
        narrow_f16(value)
    }
}

fn check<M: Floats>() -> Result<(), Error> {
    // 1; half an ulp of it; the smallest normal number and the smallest of all; 1 + 2^-12; 1 + 2^-11, which is also a tie between halves, the even one of which is 1.
    let [one, half_ulp, smallest_normal, subnormal, root, square, half, large] = black_box(&OPERANDS).map(f32::from_bits);
    let mut narrowed = [0; 2];
    M::narrow_pair(&mut narrowed, [square, half_ulp]);
    let [tie, smallest] = narrowed;
    let smallest = if cfg!(feature = "kv-q8") { M::narrow(half_ulp) } else { smallest };
    let [infinity, smallest_half] = black_box([0x7c00, 0x0001]);
    let next = f32::from_bits(one.to_bits() | 1);
    let found = black_box([
        M::sum(M::product(next, one), half_ulp),
        M::sum(-one, -half_ulp),
        M::product(smallest_normal, half),
        M::product(subnormal, large),
        // (1 + 2^-12)^2 - (1 + 2^-11) is 0 when the square is rounded first, else 2^-24.
        M::product_less(root, root, square),
        M::quotient(one, black_box(3.0)),
        M::root(one + one),
        M::widen(infinity),
        M::widen(smallest_half),
        f32::from_bits(u32::from(tie)),
        f32::from_bits(u32::from(smallest)),
    ]);
    compare(&found, &EXPECTED, 0, HALF_PRECISION)?;
    #[cfg(not(any(target_abi = "eabihf", target_feature = "f")))]
    {
        let [five, three, one_and_half] = black_box([5.0, 3.0, 1.5]);
        let [up, down] = black_box([0x0100_0003, 0x0100_0001]);
        let found = black_box([
            M::sum(M::sum(smallest_normal, subnormal), -smallest_normal),
            M::quotient(smallest_normal, one + one),
            M::quotient(subnormal, smallest_normal),
            if M::is_positive(subnormal) { one } else { half },
            M::product(next, one_and_half),
            M::quotient(five, three),
            M::root(square),
            M::of_whole(up),
            M::of_whole(down),
        ]);
        compare(&found, &EXPECTED_OF_SUBROUTINES, HALF_PRECISION + 1, u32::MAX)?;
    }
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

/// The same, of what is checked where floats are subroutines.
#[cfg(not(any(target_abi = "eabihf", target_feature = "f")))]
static EXPECTED_OF_SUBROUTINES: [u32; 9] =
    [1, 0x0040_0000, 0x3400_0000, 0x3f80_0000, 0x3fc0_0002, 0x3fd5_5555, 0x3f80_0800, 0x4b80_0002, 0x4b80_0000];

/// Its number among the operations; it has the last four values.
const HALF_PRECISION: u32 = 7;

#[cfg(test)]
#[path = "check_tests.rs"]
mod tests;

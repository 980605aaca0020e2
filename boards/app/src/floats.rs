//! Whether a core's float arithmetic is a host's: one number for the results of many operations. Compiled into firmware with the feature `measure` and into xtask, which compare theirs.

use core::hint::black_box;

/// A number in which every bit of the results of sums, differences, products, quotients and conversions of `count` pairs of made-up operands stands, NaNs all alike.
///
/// A quarter of the operands is any pattern, so infinities, NaNs and subnormal numbers occur; a quarter has the exponent of its partner or one nearby; a quarter has few digits, so that ties
/// occur; and a quarter is its partner but for the last digits and the sign, so that differences lose nearly all of theirs.
pub(crate) fn digest(count: u32) -> u32 {
    let (mut state, mut digest) = (0x9e37_79b9u32, 0x811c_9dc5u32);
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state
    };
    for _ in 0..count {
        let (a, b, kind) = (next(), next(), next());
        let b = match kind & 3 {
            0 => b,
            1 => (b & 0x807f_ffff) | ((a >> 23).wrapping_add(kind >> 8 & 31).wrapping_sub(4) & 0xff) << 23,
            2 => b & u32::MAX << (kind >> 8 & 31),
            _ => a ^ (kind >> 8 & 0x1f) ^ (kind & 1 << 31),
        };
        let (x, y) = (black_box(f32::from_bits(a)), black_box(f32::from_bits(b)));
        for result in [x + y, x - y, x * y, x / y, b as i32 as f32] {
            let bits = if result.is_nan() { 0x7fc0_0000 } else { result.to_bits() };
            digest = (digest ^ bits).wrapping_mul(0x0100_0193);
            digest ^= digest >> 15;
        }
    }
    digest
}

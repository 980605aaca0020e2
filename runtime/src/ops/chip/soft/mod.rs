//! Addition, subtraction and multiplication of `f32`, and its conversion from `i32`, by integer instructions, for cores without a floating-point unit (feature `soft-float`): the compiler's own routines, which
//! these take the place of in the whole program, are written for any machine and take two to three times as many instructions. On Armv6-M, which has no long multiplication, division too.
//!
//! Nearly every operand that occurs takes the way in assembly. Infinities, NaNs, subnormal numbers and results that might be one of these come to the functions below, which are complete
//! in themselves: the tests compare them with a host's unit, and `cargo xtask bits` the assembly with the host.

#[cfg(all(target_os = "none", not(target_abi = "eabihf")))]
use core::arch::global_asm;

// Armv6-M, which has no Thumb-2, is the one without atomic exchanges too.
#[cfg(all(target_arch = "arm", target_os = "none", not(target_abi = "eabihf"), target_has_atomic = "32"))]
global_asm!(include_str!("thumb2.s"), options(raw));
#[cfg(all(target_arch = "arm", target_os = "none", not(target_abi = "eabihf"), not(target_has_atomic = "32")))]
global_asm!(include_str!("thumb1.s"), options(raw));
#[cfg(all(target_arch = "riscv32", target_os = "none", not(target_feature = "f")))]
global_asm!(include_str!("riscv32.s"), options(raw));

#[cfg(all(target_arch = "arm", target_os = "none", not(target_has_atomic = "32")))]
unsafe extern "C" {
    fn dmexp_soft_exp_polynomial(r: u32) -> u32;
}

/// The polynomial of `exp` in one routine, in half the instructions of six products and six sums: the signs and, but for one digit, the exponents of all sums are known.
#[cfg(all(target_arch = "arm", target_os = "none", not(target_has_atomic = "32")))]
pub(crate) fn exp_polynomial(r: f32) -> f32 {
    // SAFETY: it reads its argument and a table of its own, writes nothing but its own stack and keeps to the calling convention.
    f32::from_bits(unsafe { dmexp_soft_exp_polynomial(r.to_bits()) })
}

const SIGN: u32 = 1 << 31;
const INFINITY: u32 = 0xff << 23;
const NAN: u32 = 0x7fc0_0000;
/// The leading digit, which normal numbers do not store.
const LEADING: u32 = 1 << 23;

/// The digits of a finite number's magnitude and the exponent field that they go with: 1 for subnormal numbers, whose leading digit is 0.
fn digits(magnitude: u32) -> (u32, i32) {
    let field = (magnitude >> 23) as i32;
    if field == 0 { (magnitude, 1) } else { (magnitude & (LEADING - 1) | LEADING, field) }
}

/// The number with 24 digits and 3 more places in `digits` (the last of which stands for all below it), at most 27 binary digits, the first of them set unless `field` is 1.
fn rounded(sign: u32, field: i32, digits: u32) -> u32 {
    // Digits with the leading one add 1 to the field: a field of 0 stays 0 without it.
    let packed = ((field.wrapping_sub(1) as u32) << 23).wrapping_add(digits >> 3);
    let rest = digits & 7;
    let up = u32::from(rest > 4 || rest == 4 && packed & 1 == 1);
    // Rounding may carry up to infinity, as it should; a field past 254 is infinity as well.
    if field > 254 { sign | INFINITY } else { sign | packed.wrapping_add(up) }
}

/// `digits` shifted right by `count`, the last place set where anything was lost.
fn shifted(digits: u32, count: u32) -> u32 {
    if count > 31 { u32::from(digits != 0) } else { digits >> count | u32::from(digits & !(u32::MAX << count) != 0) }
}

/// The bits of the sum of two numbers given by theirs.
#[cfg_attr(target_os = "none", unsafe(no_mangle))]
#[cold]
extern "C" fn dmexp_soft_add(a: u32, b: u32) -> u32 {
    let (a, b) = if a & !SIGN < b & !SIGN { (b, a) } else { (a, b) };
    let (sign, differ, large, small) = (a & SIGN, (a ^ b) & SIGN != 0, a & !SIGN, b & !SIGN);
    if large >= INFINITY {
        return if large > INFINITY || small == INFINITY && differ { NAN } else { a };
    }
    if small == 0 {
        return if large == 0 { a & b } else { a };
    }
    let ((large, field), (small, small_field)) = (digits(large), digits(small));
    let small = shifted(small << 3, field.wrapping_sub(small_field) as u32);
    if !differ {
        let sum = (large << 3).wrapping_add(small);
        let carry = sum >> 27;
        return rounded(sign, field.wrapping_add(carry as i32), shifted(sum, carry));
    }
    let rest = (large << 3).wrapping_sub(small);
    if rest == 0 {
        return 0;
    }
    let room = field.wrapping_sub(1);
    let shift = (rest.leading_zeros() as i32).wrapping_sub(5).min(room);
    rounded(sign, field.wrapping_sub(shift), rest << (shift & 31))
}

/// The bits of the product of two numbers given by theirs.
#[cfg_attr(target_os = "none", unsafe(no_mangle))]
#[cold]
extern "C" fn dmexp_soft_mul(a: u32, b: u32) -> u32 {
    let (a, b) = if a & !SIGN < b & !SIGN { (b, a) } else { (a, b) };
    let (sign, large, small) = ((a ^ b) & SIGN, a & !SIGN, b & !SIGN);
    if large >= INFINITY {
        return if large > INFINITY || small == 0 { NAN } else { sign | INFINITY };
    }
    if small == 0 {
        return sign;
    }
    let ((large, field), (small, small_field)) = (digits(large), digits(small));
    let product = u64::from(large) * u64::from(small);
    // The product's first digit is put at bit 58 (it is at 47 where both numbers are normal and there is a carry), so that the upper word has 27 digits.
    let zeros = product.leading_zeros() as i32;
    let product = product << (zeros.wrapping_sub(5) & 63);
    let upper = (product >> 32) as u32 | u32::from(product as u32 != 0);
    let field = field.wrapping_add(small_field).wrapping_sub(126).wrapping_sub(zeros.wrapping_sub(16));
    if field >= 1 { rounded(sign, field, upper) } else { rounded(sign, 1, shifted(upper, 1i32.wrapping_sub(field) as u32)) }
}

/// The bits of the quotient of two numbers given by theirs.
#[cfg(any(test, all(target_arch = "arm", not(target_has_atomic = "32"))))]
#[cfg_attr(target_os = "none", unsafe(no_mangle))]
#[cold]
extern "C" fn dmexp_soft_div(a: u32, b: u32) -> u32 {
    let (sign, dividend, divisor) = ((a ^ b) & SIGN, a & !SIGN, b & !SIGN);
    if dividend > INFINITY || divisor > INFINITY || dividend == divisor && (divisor == 0 || divisor == INFINITY) {
        return NAN;
    }
    if dividend == INFINITY || divisor == 0 {
        return sign | INFINITY;
    }
    if dividend == 0 || divisor == INFINITY {
        return sign;
    }
    let normal = |magnitude: u32| {
        let (digits, field) = digits(magnitude);
        let shift = digits.leading_zeros().wrapping_sub(8);
        (digits << (shift & 31), field.wrapping_sub(shift as i32))
    };
    let ((mut rest, field), (divisor, divisor_field)) = (normal(dividend), normal(divisor));
    let mut field = field.wrapping_sub(divisor_field).wrapping_add(127);
    if rest < divisor {
        rest <<= 1;
        field = field.wrapping_sub(1);
    }
    let mut quotient = 0u32;
    for _ in 0..27 {
        quotient <<= 1;
        if rest >= divisor {
            rest = rest.wrapping_sub(divisor);
            quotient |= 1;
        }
        rest <<= 1;
    }
    quotient |= u32::from(rest != 0);
    if field >= 1 { rounded(sign, field, quotient) } else { rounded(sign, 1, shifted(quotient, 1i32.wrapping_sub(field) as u32)) }
}

#[cfg(test)]
mod tests {
    use super::{dmexp_soft_add, dmexp_soft_div, dmexp_soft_mul};

    fn same(found: u32, expected: f32, a: u32, b: u32) {
        let equal = found == expected.to_bits() || f32::from_bits(found).is_nan() && expected.is_nan();
        assert!(equal, "{a:#010x} and {b:#010x} give {found:#010x}, not {:#010x}", expected.to_bits());
    }

    fn check(a: u32, b: u32) {
        let (x, y) = (f32::from_bits(a), f32::from_bits(b));
        same(dmexp_soft_add(a, b), x + y, a, b);
        same(dmexp_soft_mul(a, b), x * y, a, b);
        same(dmexp_soft_div(a, b), x / y, a, b);
    }

    #[test]
    fn edges_with_edges() {
        let mut edges = vec![0u32, 1, 2, 3, 0x003f_ffff, 0x0040_0000, 0x7f7f_ffff, 0x7f80_0000, 0x7f80_0001, 0x7fc0_0000];
        for field in [1u32, 2, 22, 24, 25, 26, 27, 28, 63, 64, 65, 102, 103, 126, 127, 128, 150, 151, 152, 190, 191, 192, 252, 253, 254] {
            for fraction in [0, 1, 2, 3, 0x003f_ffff, 0x0040_0000, 0x0040_0001, 0x007f_fffd, 0x007f_fffe, 0x007f_ffff] {
                edges.push(field << 23 | fraction);
            }
        }
        edges.extend(edges.clone().iter().map(|bits| bits | 1 << 31));
        let step = if cfg!(miri) { 23 } else { 1 };
        for a in edges.iter().step_by(step) {
            for b in edges.iter().step_by(step) {
                check(*a, *b);
            }
        }
    }

    #[test]
    fn random_numbers_with_exponents_near_and_far() {
        let mut state = 0x2545_f491_4f6c_dd1du64;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 16) as u32
        };
        for _ in 0..if cfg!(miri) { 200 } else { 1_000_000 } {
            let (a, b, near) = (next(), next(), next());
            check(a, b);
            // The same exponent, up to 31 apart.
            let field = ((a >> 23 & 0xff) + (near & 31)).min(255);
            check(a, b & !(0xff << 23) | field << 23);
        }
    }
}

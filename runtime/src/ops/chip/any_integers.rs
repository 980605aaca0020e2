//! Integer matrices on machines without the DSP instructions of Arm: a kernel for rows of q8 where there is one, else the portable code; codes are in their own order.

use crate::format::DType;
#[cfg(not(all(feature = "q8", target_os = "none", any(target_arch = "arm", target_arch = "riscv32"))))]
use crate::ops::integer;
use crate::ops::quantise;

#[cfg(all(feature = "q8", target_os = "none", any(target_arch = "arm", target_arch = "riscv32")))]
pub(crate) use super::integer_rows::matvec_integer;
#[cfg(not(all(feature = "q8", target_os = "none", any(target_arch = "arm", target_arch = "riscv32"))))]
pub(crate) use integer::matvec as matvec_integer;
#[cfg(not(target_os = "none"))]
pub(crate) use integer::matvec_from as matvec_integer_from;

/// As [`quantise::group_sums`]; the order is always their own.
#[cfg(feature = "q4")]
pub(crate) fn group_sums(sums: &mut [i32], codes: &[i16], group: usize, _: DType) {
    quantise::group_sums(sums, codes, group);
}

/// The codes of `x` in 16 bits, in the order in which the kernel for this type of matrix wants them: here always their own.
pub(crate) fn quantise(codes: &mut [i16], x: &[f32], _: DType) -> f32 {
    quantise::quantise(codes, x)
}

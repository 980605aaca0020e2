//! The seam between the operations and the machine: one set of kernels, in forms for the instructions at hand. Called by the other files of `ops` alone.
//!
//! Whatever the machine, the kernels take the same arguments and give the same bits as those of [`super::portable`], which stand in where there is no form.
//!
//! On a core with an FPU a multiply-add of floats is two instructions, or with the feature `vmla` one. Measured on an emulated Cortex-M4F at the stories260K shape (dim 64, hidden 172,
//! 5 layers, 8 heads, 4 key/value heads, vocabulary 512), mean of positions 0..31, sampling (greedy) included, instructions a token and cycles by the table of costs: 758,000 and 1,261,000 with
//! weights and cache in f32, with the feature 517,000 and 1,501,000; 554,000 and 797,000 with weights in q8 and the cache in f16. Where vmla takes one cycle, the feature is the faster.

#![allow(unsafe_code, reason = "the one place for it: every block says why it is sound")]

/// Whether floats are computed by subroutines: integers are then the cheaper way to the same bits.
pub(crate) const SOFT_FLOAT: bool = cfg!(all(
    target_os = "none",
    any(all(target_arch = "arm", not(target_abi = "eabihf")), all(target_arch = "riscv32", not(target_feature = "f")))
));

#[cfg(not(all(target_arch = "arm", target_os = "none", target_abi = "eabihf")))]
#[cfg_attr(any(x86_64_host, aarch64_host), allow(dead_code, unused_imports, reason = "the kernels there need a part of it"))]
mod any;
#[cfg(not(any(x86_64_host, aarch64_host, all(target_arch = "arm", target_os = "none", target_abi = "eabihf"))))]
pub(crate) use any::*;
#[cfg(aarch64_host)]
#[cfg_attr(
    not(all(feature = "f32", feature = "f16", feature = "bf16")),
    allow(dead_code, unused_imports, unused_variables, reason = "a build with some of the element types has kernels for all")
)]
mod aarch64;
#[cfg(aarch64_host)]
pub(crate) use aarch64::*;
#[cfg(x86_64_host)]
#[cfg_attr(
    not(all(feature = "llama", feature = "f32", feature = "f16", feature = "bf16", feature = "q8", feature = "q4")),
    allow(dead_code, unused_imports, unused_variables, reason = "a build with some of the element types has kernels for all")
)]
pub(crate) mod x86_64;
#[cfg(x86_64_host)]
pub(crate) use x86_64::*;
#[cfg(all(target_arch = "arm", target_os = "none", target_abi = "eabihf"))]
mod cortex_m4f;
#[cfg(all(target_arch = "arm", target_os = "none", target_abi = "eabihf"))]
pub(crate) use cortex_m4f::*;

#[cfg(not(target_os = "none"))]
pub(crate) mod gate;

// The build script sets `dsp`.
#[cfg(all(dsp, any(feature = "q8", feature = "q4")))]
mod cortex_m_dsp;
#[cfg(all(dsp, feature = "kv-q8"))]
mod cortex_m_kv;
#[cfg(all(dsp, any(feature = "q8", feature = "q4", feature = "kv-q8")))]
mod cortex_m_quantise;
#[cfg(all(dsp, any(feature = "q8", feature = "q4")))]
pub(crate) use {cortex_m_dsp::*, cortex_m_quantise::*};
#[cfg(all(not(dsp), not(x86_64_host), any(feature = "q8", feature = "q4")))]
mod any_integers;
#[cfg(all(not(dsp), not(x86_64_host), any(feature = "q8", feature = "q4")))]
pub(crate) use any_integers::*;
#[cfg(all(not(dsp), feature = "q8", target_os = "none", any(target_arch = "arm", target_arch = "riscv32")))]
mod integer_rows;

/// What the order of an activation's codes depends on, where a machine wants another than their own.
#[cfg(not(x86_64_host))]
pub(crate) type Form = crate::format::DType;
/// The order that the kernel for this matrix wants.
#[cfg(all(not(x86_64_host), any(feature = "q8", feature = "q4")))]
#[inline(always)]
#[allow(clippy::inline_always, reason = "a constant in firmware with one type of weights")]
pub(crate) fn form(w: &crate::format::TensorView<'_>) -> Form {
    super::integer::only(w.dtype())
}
/// Whether kernels for q8 want the sums of an activation's codes, too.
#[cfg(any(feature = "q8", feature = "q4"))]
pub(crate) const SUMS_OF_Q8: bool = cfg!(x86_64_host);

#[cfg(any(
    test,
    all(
        feature = "soft-float",
        target_os = "none",
        any(all(target_arch = "arm", not(target_abi = "eabihf")), all(target_arch = "riscv32", not(target_feature = "f")))
    )
))]
mod soft;

#[cfg(not(all(feature = "soft-float", target_arch = "arm", target_os = "none", not(target_has_atomic = "32"))))]
pub(crate) use super::math::exp_polynomial;
#[cfg(all(feature = "soft-float", target_arch = "arm", target_os = "none", not(target_has_atomic = "32")))]
pub(crate) use soft::exp_polynomial;

//! The seam between the operations and the machine: one set of kernels, in forms for the instructions at hand. Called by the other files of `ops` alone.
//!
//! Whatever the machine, the kernels take the same arguments and give the same bits as those of [`super::portable`], which stand in where there is no form.
//!
//! Measured on an emulated Cortex-M4F at the stories260K shape (dim 64, hidden 172, 5 layers, 8 heads, 4 key/value heads, vocabulary 512), mean of positions 0..31, sampling (greedy)
//! included, instructions a token: 495,000 with weights and cache in f32; with the cache in f16 794,000 in f16, 954,000 in bf16, 579,000 in q8, 620,000 in q4.

#![allow(unsafe_code, reason = "the one place for it: every block says why it is sound")]

#[cfg(not(all(target_arch = "arm", target_os = "none", target_abi = "eabihf")))]
mod any;
#[cfg(not(all(target_arch = "arm", target_os = "none", target_abi = "eabihf")))]
pub(crate) use any::*;

#[cfg(all(target_arch = "arm", target_os = "none", target_abi = "eabihf"))]
mod cortex_m4f;
#[cfg(all(target_arch = "arm", target_os = "none", target_abi = "eabihf", any(feature = "q8", feature = "q4")))]
mod cortex_m_dsp;
#[cfg(all(target_arch = "arm", target_os = "none", target_abi = "eabihf", any(feature = "q8", feature = "q4")))]
pub(crate) use cortex_m_dsp::*;
#[cfg(all(target_arch = "arm", target_os = "none", target_abi = "eabihf"))]
pub(crate) use cortex_m4f::*;
#[cfg(all(feature = "q8", target_os = "none", any(all(target_arch = "arm", not(target_abi = "eabihf")), target_arch = "riscv32")))]
mod integer_rows;
#[cfg(all(feature = "q8", target_os = "none", any(all(target_arch = "arm", not(target_abi = "eabihf")), target_arch = "riscv32")))]
pub(crate) use integer_rows::matvec_integer;

#[cfg(any(
    test,
    all(
        feature = "soft-float",
        target_os = "none",
        any(all(target_arch = "arm", not(target_abi = "eabihf")), all(target_arch = "riscv32", not(target_feature = "f")))
    )
))]
mod soft;

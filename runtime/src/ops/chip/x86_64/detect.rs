//! What this processor can do and the operating system lets it.

use crate::simd::Level;
use core::arch::x86_64::{__cpuid, __cpuid_count, _xgetbv};

/// The highest level whose instructions the processor has and whose registers the system saves.
#[cold]
pub(crate) fn detect() -> Level {
    if cfg!(miri) || __cpuid(0).eax < 7 {
        return Level::Baseline;
    }
    let (one, seven) = (__cpuid(1).ecx, __cpuid_count(7, 0));
    let has = |register: u32, bits: &[u32]| bits.iter().all(|bit| register >> bit & 1 == 1);
    // XSAVE is switched on, AVX, F16C.
    if !has(one, &[27, 28, 29]) {
        return Level::Baseline;
    }
    // SAFETY: the system has switched XSAVE on, which `has` has just seen: so there is the instruction, and register 0.
    let saved = unsafe { saved_registers() } as u32;
    // xmm and ymm are saved; AVX2.
    if !has(saved, &[1, 2]) || !has(seven.ebx, &[5]) {
        return Level::Baseline;
    }
    // Masks, the upper halves of zmm0..15 and zmm16..31 are saved; AVX512 F, DQ, BW, VL.
    if !has(saved, &[5, 6, 7]) || !has(seven.ebx, &[16, 17, 30, 31]) {
        return Level::Avx2;
    }
    // AVX512 VNNI.
    if has(seven.ecx, &[11]) { Level::Vnni } else { Level::Avx512 }
}

/// Extended control register 0: which registers the system saves.
#[target_feature(enable = "xsave")]
fn saved_registers() -> u64 {
    // SAFETY: the function needs XSAVE as the intrinsic does; register 0 is there wherever that is.
    unsafe { _xgetbv(0) }
}

//! Sets `cfg(x86_64_host)` where the kernels for x86-64's vector instructions are built: everywhere but without an operating system, where nobody saves the vector registers.
//!
//! Sets `cfg(aarch64_host)` where those for NEON are: on aarch64 with an operating system.
//!
//! Sets `cfg(dsp)` for hard-float Arm targets that have the DSP instructions (smlad, sxtb16): stable rustc does not say so itself.
//!
//! Armv7E-M (Cortex-M4F, M7F) always has them. Armv8-M may have them: there the firmware says so by the feature `dsp`, or the compiler by its target features where it tells them.

fn main() {
    let is = |name: &str, wanted: &str| std::env::var(name).is_ok_and(|value| value.split(',').any(|word| word == wanted));
    let target = std::env::var("TARGET").unwrap_or_default();
    let told = std::env::var_os("CARGO_FEATURE_DSP").is_some() || is("CARGO_CFG_TARGET_FEATURE", "dsp");
    let kernels = is("CARGO_CFG_TARGET_ARCH", "arm") && is("CARGO_CFG_TARGET_OS", "none") && is("CARGO_CFG_TARGET_ABI", "eabihf");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(dsp)");
    println!("cargo::rustc-check-cfg=cfg(x86_64_host)");
    println!("cargo::rustc-check-cfg=cfg(aarch64_host)");
    if is("CARGO_CFG_TARGET_ARCH", "x86_64") && is("CARGO_CFG_TARGET_FEATURE", "sse2") && !is("CARGO_CFG_TARGET_OS", "none") {
        println!("cargo::rustc-cfg=x86_64_host");
    }
    let neon = is("CARGO_CFG_TARGET_ARCH", "aarch64") && is("CARGO_CFG_TARGET_FEATURE", "neon") && is("CARGO_CFG_TARGET_ENDIAN", "little");
    // Miri knows few of its instructions.
    if neon && !is("CARGO_CFG_TARGET_OS", "none") && std::env::var_os("CARGO_CFG_MIRI").is_none() {
        println!("cargo::rustc-cfg=aarch64_host");
    }
    if kernels && (told || target.starts_with("thumbv7em-")) {
        println!("cargo::rustc-cfg=dsp");
    }
}

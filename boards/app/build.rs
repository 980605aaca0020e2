//! Hands the path of the model to `include_model!` and the target's name to the probe, and compiles again when another is asked for.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=DMEXP_MODEL");
    // Everything called thumb but Armv6-M and the baseline of Armv8-M.
    println!("cargo:rustc-check-cfg=cfg(thumb2)");
    let target = std::env::var("TARGET").unwrap_or_default();
    if target.starts_with("thumb") && !target.starts_with("thumbv6m") && !target.starts_with("thumbv8m.base") {
        println!("cargo:rustc-cfg=thumb2");
    }
    println!("cargo:rustc-env=DMEXP_TARGET={target}");
    let Some(model) = std::env::var_os("DMEXP_MODEL") else {
        println!(
            "cargo:error=set DMEXP_MODEL to the .dmexp file that the firmware is to hold; `cargo xtask qemu BOARD` makes one and does so"
        );
        return;
    };
    println!("cargo:rustc-env=DMEXP_MODEL={}", std::path::Path::new(&model).display());
}

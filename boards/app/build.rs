//! Hands the path of the model to `include_model!`, and compiles again when another is asked for.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=DMEXP_MODEL");
    let Some(model) = std::env::var_os("DMEXP_MODEL") else {
        println!(
            "cargo:error=set DMEXP_MODEL to the .dmexp file that the firmware is to hold; `cargo xtask qemu BOARD` makes one and does so"
        );
        return;
    };
    println!("cargo:rustc-env=DMEXP_MODEL={}", std::path::Path::new(&model).display());
}

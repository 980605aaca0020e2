//! The build script of every board's crate: tells the linker where the board's memory is.

fn main() {
    let here = std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR");
    println!("cargo:rerun-if-changed=memory.x");
    println!("cargo:rustc-link-search={here}");
    // Without page alignment of the segments: a chip has no pages.
    println!("cargo:rustc-link-arg-bins=--nmagic");
    // The script of `riscv-rt` does not ask for this one; that of `cortex-m-rt` does.
    if std::env::var("CARGO_CFG_TARGET_ARCH").is_ok_and(|arch| arch == "riscv32") {
        println!("cargo:rustc-link-arg-bins=-Tmemory.x");
    }
    println!("cargo:rustc-link-arg-bins=-Tlink.x");
}

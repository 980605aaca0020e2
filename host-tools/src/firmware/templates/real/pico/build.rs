//! Tells the linker where the chip's memory is.

fn main() {
    let here = std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR");
    println!("cargo:rerun-if-changed=memory.x");
    println!("cargo:rustc-link-search={here}");
    println!("cargo:rustc-link-arg-bins=--nmagic");
    println!("cargo:rustc-link-arg-bins=-Tlink.x");
    // The second boot stage, which the chip reads its flash with.
    println!("cargo:rustc-link-arg-bins=-Tlink-rp.x");
}

//! How the chip's program is linked.

use std::path::Path;

fn main() {
    // The chip's linker scripts put float routines of its ROM in place of those of the program. Their results are not known to be those of the standard, so scripts without them come first.
    let out = std::env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    let scripts = Path::new(&out).join("rom");
    std::fs::create_dir_all(&scripts).expect("a folder in OUT_DIR can be made");
    for script in ["esp32c6.rom.libgcc.ld", "esp32c6.rom.rvfp.ld"] {
        std::fs::write(scripts.join(script), "/* left out */\n").expect("a file in OUT_DIR can be written");
    }
    println!("cargo:rustc-link-search={out}");
    println!("cargo:rustc-link-arg-bins=-Tlinkall.x");
}

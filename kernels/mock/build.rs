//! Compiles the stand-in with the machine's C++ compiler. Where there is none, the tests that want it are skipped.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    let os = env::var("CARGO_CFG_TARGET_OS").unwrap_or_default();
    let processor = env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    for folder in ["src", "../cpu", "../cuda"] {
        println!("cargo::rerun-if-changed={folder}");
    }
    if os != "linux" || processor != "x86_64" || env::var("HOST") != env::var("TARGET") {
        return;
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo says where"));
    for (name, sources) in
        [("MOCKCUDA_FOLDER", &["src/driver.cpp", "src/kernels.cpp"][..]), ("MOCKCUDA_INCOMPLETE", &["src/incomplete.cpp"])]
    {
        let folder = out.join(name.to_lowercase());
        std::fs::create_dir_all(&folder).expect("a folder for the library");
        if !link(sources, &folder.join("libcuda.so.1")) {
            println!("cargo::warning=no C++ compiler: tests with the stand-in of CUDA's driver are skipped");
            return;
        }
        println!("cargo::rustc-env={name}={}", folder.display());
    }
}

/// Makes a shared library; whether there was a compiler.
///
/// # Panics
/// If the compiler refuses the sources.
fn link(sources: &[&str], library: &Path) -> bool {
    let compiler = cc::Build::new().cpp(true).std("c++17").opt_level(2).warnings(true).try_get_compiler();
    let Ok(compiler) = compiler else { return false };
    let mut command: Command = compiler.to_command();
    // One name for the dynamic linker and for who opens it; no contraction, as on a GPU.
    command.args(["-ffp-contract=off", "-Wno-unknown-pragmas", "-Wno-unused-parameter", "-fPIC", "-shared", "-fvisibility=hidden"]);
    command.arg("-Wl,-soname,libcuda.so.1").args(sources).arg("-o").arg(library);
    match command.status() {
        Ok(status) => {
            assert!(status.success(), "the stand-in of CUDA's driver does not compile");
            true
        }
        Err(_) => false,
    }
}

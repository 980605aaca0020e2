//! A stand-in for NVIDIA's driver: a library of the driver's name with the functions that dmexp calls, which runs the kernels of `dmexp-kernels` on the CPU. For tests on machines without a GPU;
//! nothing that ships uses it.
//!
//! What it is told by the environment, read when it is needed: `MOCKCUDA_INIT` (what `cuInit` returns), `MOCKCUDA_VERSION`, `MOCKCUDA_DEVICES` (how many, of which `CUDA_VISIBLE_DEVICES` hides some),
//! `MOCKCUDA_CAPABILITY` (75 and the like), `MOCKCUDA_MEMORY` (bytes), `MOCKCUDA_PTX` (what loading kernels returns), `MOCKCUDA_LOST` (`N,CODE`: after N launches the context is lost, with this number),
//! `MOCKCUDA_ORDER` (the order of threads: 0 forward, 1 backward, else the beginning of random numbers).

/// The folder with the stand-in, `libcuda.so.1`, for `LD_LIBRARY_PATH`; `None` where there was no C++ compiler, or the system is another than Linux on x86-64.
pub const FOLDER: Option<&str> = option_env!("MOCKCUDA_FOLDER");

/// A folder with a library of the same name that has next to nothing in it.
pub const INCOMPLETE: Option<&str> = option_env!("MOCKCUDA_INCOMPLETE");

/// Opens the stand-in in this process, so that it is found when the driver is looked for. Whether it was: if not, a line says why a test has nothing to do.
///
/// # Panics
/// If it is there and cannot be opened.
pub fn load() -> bool {
    let Some(folder) = FOLDER else {
        println!("skipped: there was no C++ compiler for the stand-in of CUDA's driver");
        return false;
    };
    // SAFETY: the library has no start-up code but that of its own variables.
    match unsafe { libloading::Library::new(format!("{folder}/libcuda.so.1")) } {
        Ok(library) => {
            // The system finds what is open by its name.
            std::mem::forget(library);
            true
        }
        Err(error) => panic!("the stand-in of CUDA's driver cannot be opened: {error}"),
    }
}

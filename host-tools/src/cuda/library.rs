//! The driver's library and its devices, looked at without calling anything that might not be there.

use super::error::CudaError;
use cudarc::driver::{CudaContext, sys};
use std::fmt;

/// The oldest version of CUDA whose driver has all functions that are used, as the driver writes it: 11.4.
pub(super) const OLDEST: u32 = 11_040;

/// The functions that are called, here and by cudarc for it.
const SYMBOLS: [&str; 36] = [
    "cuInit",
    "cuDriverGetVersion",
    "cuDeviceGetCount",
    "cuDeviceGet",
    "cuDeviceGetName",
    "cuDeviceGetUuid_v2",
    "cuDeviceGetAttribute",
    "cuDevicePrimaryCtxRetain",
    "cuDevicePrimaryCtxRelease_v2",
    "cuCtxGetCurrent",
    "cuCtxSetCurrent",
    "cuCtxSynchronize",
    "cuMemGetInfo_v2",
    "cuMemAlloc_v2",
    "cuMemAllocAsync",
    "cuMemFree_v2",
    "cuMemFreeAsync",
    "cuMemsetD8Async",
    "cuMemcpyHtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuStreamCreate",
    "cuStreamDestroy_v2",
    "cuStreamSynchronize",
    "cuStreamBeginCapture_v2",
    "cuStreamEndCapture",
    "cuModuleLoadData",
    "cuModuleLoadDataEx",
    "cuModuleUnload",
    "cuModuleGetFunction",
    "cuFuncSetAttribute",
    "cuLaunchKernel",
    "cuGraphInstantiateWithFlags",
    "cuGraphUpload",
    "cuGraphLaunch",
    "cuGraphExecDestroy",
    "cuGraphDestroy",
];

/// What a device is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Its number among those that the driver shows.
    pub ordinal: u32,
    /// Its name.
    pub name: String,
    /// The number that it has everywhere.
    pub uuid: String,
    /// Compute capability, major and minor.
    pub capability: (u32, u32),
    /// The version of CUDA that the driver is for: 1000 times the major number and 10 times the minor.
    pub driver: u32,
    /// Shared memory that a block of threads may ask for, in bytes.
    pub shared: u32,
}

impl fmt::Display for Facts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (major, minor) = self.capability;
        write!(f, "cuda:{}, {} (compute capability {major}.{minor}, {})", self.ordinal, self.name, self.uuid)?;
        write!(f, ", driver for CUDA {}.{}", self.driver / 1000, self.driver % 1000 / 10)
    }
}

/// The devices that the driver shows, in its order; `CUDA_VISIBLE_DEVICES` hides some.
///
/// # Errors
/// [`CudaError::NoLibrary`], [`CudaError::Incomplete`], [`CudaError::Stub`], [`CudaError::OldDriver`], [`CudaError::NoDevice`], [`CudaError::Failed`].
pub fn devices() -> Result<Vec<Facts>, CudaError> {
    let (count, driver) = start()?;
    (0..count).map(|ordinal| Ok(open(ordinal, driver)?.1)).collect()
}

/// Opens the driver; how many devices it has, and the version of CUDA that it is for.
pub(super) fn start() -> Result<(u32, u32), CudaError> {
    check_library()?;
    match CudaContext::device_count() {
        Ok(count) if count > 0 => Ok((count as u32, driver_version()?)),
        Ok(_) => Err(CudaError::NoDevice),
        Err(error) => match error.0 {
            sys::CUresult::CUDA_ERROR_NO_DEVICE => Err(CudaError::NoDevice),
            sys::CUresult::CUDA_ERROR_STUB_LIBRARY => Err(CudaError::Stub),
            code => Err(CudaError::Failed { doing: "starting the driver", code: code as u32 }),
        },
    }
}

/// Opens a device.
pub(super) fn open(ordinal: u32, driver: u32) -> Result<(std::sync::Arc<CudaContext>, Facts), CudaError> {
    use sys::CUdevice_attribute as Attribute;
    let failed = |error: cudarc::driver::DriverError| CudaError::Failed { doing: "opening the device", code: error.0 as u32 };
    let context = CudaContext::new(ordinal as usize).map_err(failed)?;
    let (major, minor) = context.compute_capability().map_err(failed)?;
    let shared = context.attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN).map_err(failed)?;
    let uuid = context.uuid().map_err(failed)?;
    // The system's char is signed on some processors.
    let hex = format!("{:032x}", u128::from_be_bytes(uuid.bytes.map(|byte| u8::from_ne_bytes(byte.to_ne_bytes()))));
    let parts = [0..8, 8..12, 12..16, 16..20, 20..32].map(|range| hex.get(range).unwrap_or_default());
    let facts = Facts {
        ordinal,
        name: context.name().map_err(failed)?,
        uuid: format!("GPU-{}", parts.join("-")),
        capability: (major.unsigned_abs(), minor.unsigned_abs()),
        driver,
        shared: shared.unsigned_abs(),
    };
    Ok((context, facts))
}

/// Looks for the library and every function in it, since cudarc panics at the call of one that is not there.
#[expect(unsafe_code, reason = "opening a library runs its start-up code, and a symbol has whatever type it is said to have")]
fn check_library() -> Result<(), CudaError> {
    // SAFETY: these open the driver's library by its name, whose start-up code is the system's own.
    let library = unsafe {
        if !sys::is_culib_present() {
            return Err(CudaError::NoLibrary);
        }
        sys::culib()
    };
    for symbol in SYMBOLS {
        // SAFETY: the symbol is looked for and never called by this type.
        let found = unsafe { library.get::<unsafe extern "C" fn()>(symbol.as_bytes()) };
        if found.is_err() {
            return Err(CudaError::Incomplete { symbol });
        }
    }
    match driver_version()? {
        found if found < OLDEST => Err(CudaError::OldDriver { found }),
        _ => Ok(()),
    }
}

/// The version of CUDA that the driver is for. It may be asked before anything else.
#[expect(unsafe_code, reason = "cudarc has no other way to ask")]
fn driver_version() -> Result<u32, CudaError> {
    let mut version = 0;
    // SAFETY: the function is there, and writes one number to where `version` is.
    let result = unsafe { sys::cuDriverGetVersion(&raw mut version) };
    match result {
        sys::CUresult::CUDA_SUCCESS => Ok(version.unsigned_abs()),
        sys::CUresult::CUDA_ERROR_STUB_LIBRARY => Err(CudaError::Stub),
        code => Err(CudaError::Failed { doing: "asking the driver's version", code: code as u32 }),
    }
}

//! What can go wrong with a GPU, in words.

use crate::error::{Class, Error};
use dmexp::format::Error as FormatError;
use dmexp_kernels::Refusal;
use std::fmt;

/// Why a model does not run on a GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CudaError {
    /// No driver is installed, or it is where nobody looks.
    NoLibrary,
    /// The library is not the driver's, or from before the functions that are used.
    Incomplete {
        /// The first function that is not in it.
        symbol: &'static str,
    },
    /// The library is the toolkit's stand-in, which programs are linked with but which does nothing.
    Stub,
    /// The driver is older than CUDA 11.4.
    OldDriver {
        /// The version of CUDA that it is for: 1000 times the major number and 10 times the minor.
        found: u32,
    },
    /// The driver has no device, or may use none.
    NoDevice,
    /// A device of this number is not there.
    Index {
        /// The number that was asked for.
        found: u32,
        /// How many devices there are.
        devices: u32,
    },
    /// The device is older than what the kernels are compiled for.
    OldDevice {
        /// Its name.
        name: String,
        /// Its compute capability, major and minor.
        capability: (u32, u32),
    },
    /// The driver does not take the kernels.
    PtxRefused {
        /// The driver's number for it.
        code: u32,
        /// The version of CUDA that the driver is for.
        driver: u32,
        /// The version of PTX that the kernels are in.
        ptx: String,
        /// What the driver's compiler says.
        log: String,
    },
    /// The memory of the device does not suffice.
    OutOfMemory {
        /// Bytes that the model needs.
        needed: u64,
        /// Bytes that were free.
        free: u64,
        /// Bytes that there are.
        total: u64,
    },
    /// The model does not run on any machine.
    Model(FormatError),
    /// The kernels do not have what the model asks for.
    Refused(Refusal),
    /// The model is none that GPUs run.
    Unsupported(&'static str),
    /// A call of the driver failed.
    Failed {
        /// What it was to do.
        doing: &'static str,
        /// The driver's number for it.
        code: u32,
    },
    /// The system gives no thread, or the driver took it down.
    Thread,
}

/// The number that stands for a thread that is gone.
pub(super) const NO_THREAD: u32 = 0;

/// What a number of the driver means.
pub fn words(code: u32) -> &'static str {
    match code {
        NO_THREAD => "the thread that asks the driver is gone",
        1 => "a value was not valid",
        2 => "there is not enough memory",
        3 | 4 => "the driver is not there any more",
        34 => "the library is a stand-in",
        46 => "the device is used by others",
        100 => "there is no device",
        101 => "there is no such device",
        200 | 218 | 300 => "the kernels are not valid",
        201 | 709 => "the context is gone",
        209 => "there is no code for this device",
        214 => "the memory of the device has an error that cannot be corrected",
        221 => "the driver's compiler is not there",
        222 => "the kernels are in a newer PTX than the driver knows",
        223 => "the driver may not compile",
        500 => "a kernel is missing",
        700 => "a kernel touched an address that is not its own",
        701 => "a kernel asks for more than the device has",
        702 => "a kernel took too long",
        710 | 714..=719 => "a kernel failed",
        802 => "the system is not ready",
        803 => "the driver's parts are of different versions",
        804 => "the driver is newer than this device allows",
        900..=908 => "a graph could not be recorded",
        _ => "the driver does not say more",
    }
}

/// Whether nothing works any more after this number: the context is lost with all that was in it.
const fn loses_the_context(code: u32) -> bool {
    matches!(code, 3 | 4 | 201 | 214 | 700 | 702 | 709 | 710 | 714..=719)
}

/// The error of a session whose accelerator failed with this number.
pub(crate) fn failed(code: u32) -> Error {
    CudaError::Failed { doing: "a step", code }.into()
}

fn version(version: u32) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

impl fmt::Display for CudaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoLibrary => f.write_str("there is no CUDA driver: no library libcuda.so.1 (nvcuda.dll on Windows) was found"),
            Self::Incomplete { symbol } => write!(f, "the CUDA driver that was found is not one, or too old: it has no {symbol}"),
            Self::Stub => f.write_str("the CUDA driver that was found is the toolkit's stand-in, which runs nothing"),
            Self::OldDriver { found } => {
                write!(
                    f,
                    "the CUDA driver is for CUDA {}, and {} is the oldest that will do",
                    version(*found),
                    version(super::library::OLDEST)
                )
            }
            Self::NoDevice => f.write_str("the CUDA driver has no device"),
            Self::Index { found, devices: 1 } => write!(f, "there is no cuda:{found}: the one device is cuda:0"),
            Self::Index { found, devices } => {
                write!(f, "there is no cuda:{found}: there are {devices} devices, cuda:0 to cuda:{}", devices.saturating_sub(1))
            }
            Self::OldDevice { name, capability: (major, minor) } => {
                write!(f, "{name} has compute capability {major}.{minor}, and 7.5 (Turing) is the oldest that will do")
            }
            Self::PtxRefused { code, driver, ptx, log } => {
                let driver = version(*driver);
                write!(
                    f,
                    "the driver, which is for CUDA {driver}, refuses the kernels, which are in PTX {ptx}: {} (error {code})",
                    words(*code)
                )?;
                if log.is_empty() { Ok(()) } else { write!(f, "; its compiler says: {log}") }
            }
            Self::OutOfMemory { needed, free, total } => {
                write!(f, "the model needs {needed} bytes of the device's memory, of which {free} are free of {total}")
            }
            Self::Model(error) => error.fmt(f),
            Self::Refused(refusal) => refusal.fmt(f),
            Self::Unsupported(what) => write!(f, "{what} do not run on a GPU"),
            Self::Failed { doing, code } => write!(f, "the GPU failed in {doing}: {} (CUDA error {code})", words(*code)),
            Self::Thread => f.write_str(words(NO_THREAD)),
        }
    }
}

impl std::error::Error for CudaError {}

impl From<CudaError> for Error {
    fn from(error: CudaError) -> Self {
        if let CudaError::Model(error) = error {
            return error.into();
        }
        let hidden = std::env::var_os("CUDA_VISIBLE_DEVICES").map(|list| format!("CUDA_VISIBLE_DEVICES={}", list.display()));
        let (class, advice) = match &error {
            CudaError::NoLibrary => {
                (Class::Request, "install NVIDIA's driver, put its folder into LD_LIBRARY_PATH, or leave --device out".to_owned())
            }
            CudaError::Incomplete { .. } | CudaError::OldDriver { .. } => {
                (Class::Request, "install a newer driver, or leave --device out".to_owned())
            }
            CudaError::Stub => (Class::Request, "take the folder `stubs` out of LD_LIBRARY_PATH, or leave --device out".to_owned()),
            CudaError::NoDevice | CudaError::Index { .. } => {
                let seen =
                    hidden.map_or_else(|| "nvidia-smi lists what there is".to_owned(), |hidden| format!("{hidden} hides the others"));
                (Class::Request, format!("{seen}; or leave --device out"))
            }
            CudaError::OldDevice { .. } | CudaError::Unsupported(_) | CudaError::Refused(_) | CudaError::Model(_) => {
                (Class::Request, "leave --device out".to_owned())
            }
            CudaError::PtxRefused { .. } => (Class::NotAModel, "install a newer driver".to_owned()),
            CudaError::OutOfMemory { .. } => (
                Class::Request,
                "use a shorter --context, --kv q8, a smaller type of weights or (serve) fewer texts with --parallel, or end what else uses the device".to_owned(),
            ),
            CudaError::Failed { code, .. } if loses_the_context(*code) => {
                (Class::Unreadable, "everything on the device is lost: start again; if it comes again, dmesg says more".to_owned())
            }
            CudaError::Failed { .. } | CudaError::Thread => {
                (Class::Unreadable, "start again; if it comes again, nvidia-smi says more".to_owned())
            }
        };
        Self::new(class, error.to_string()).advise(advice)
    }
}

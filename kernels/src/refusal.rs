//! What a model may ask for that the kernels do not have.

use dmexp_format::KvDType;
use std::fmt;

/// Why a model does not run on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// A tensor that the configuration calls for was not given.
    Missing {
        /// Its number in the file's order.
        tensor: u32,
    },
    /// A tensor is not the one of the configuration.
    Shape {
        /// Its number in the file's order.
        tensor: u32,
    },
    /// A tensor's element type is not one of weights.
    DType {
        /// Its number in the file's order.
        tensor: u32,
    },
    /// No context, or one longer than the model was trained for.
    Context {
        /// Positions that were asked for.
        found: u32,
        /// The model's own.
        allowed: u32,
    },
    /// A type of keys and values that the kernels do not have.
    Kv {
        /// The type.
        kv: KvDType,
    },
    /// An option of a dormouse model that the kernels do not have.
    Option {
        /// Its name in the configuration.
        what: &'static str,
    },
    /// Heads are too wide for the memory that a block of threads has to itself.
    HeadTooWide {
        /// Bytes that one block needs.
        needed: u64,
        /// Bytes that one may have.
        allowed: u32,
    },
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Missing { tensor } => write!(f, "tensor {tensor} of the configuration is not in the file"),
            Self::Shape { tensor } => write!(f, "tensor {tensor} has other dims than the configuration says"),
            Self::DType { tensor } => write!(f, "tensor {tensor} has an element type that is not one of weights"),
            Self::Context { found, allowed } => write!(f, "a context of {found} positions was asked for, the model has 1 to {allowed}"),
            Self::Kv { kv } => write!(f, "the kernels do not have keys and values in {kv}"),
            Self::Option { what } => write!(f, "the kernels do not have {what}"),
            Self::HeadTooWide { needed, allowed } => {
                write!(f, "heads are too wide: attention needs {needed} bytes of shared memory a block, the device has {allowed}")
            }
        }
    }
}

impl std::error::Error for Refusal {}

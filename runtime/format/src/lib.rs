//! The `.dmexp` file and everything about a model that can be known without running it.
//!
//! Read by the runtime (`dmexp`), by the macro `include_model!` (`dmexp-macros`) and by the host tools (`dmexp-tools`), so that one
//! set of checks serves the chip, the compiler and the desk. Without features this crate needs neither a heap nor `std`.
//!
//! - [`mod@file`]: bytes to a checked view, [`file::ModelFile`]
//! - [`arch`]: one module an architecture: its configuration, the checks on it, the tensors it wants
//! - [`layout`]: how much memory a configuration needs, as `const fn`
//! - `host` (feature `std`): the owned header, the writers, and `verify`
#![cfg_attr(not(any(test, feature = "std")), no_std)]
#![deny(unsafe_code)]

pub mod arch;
mod bytes;
pub mod crc32;
mod dtype;
mod error;
mod error_keys;
mod error_text;
pub mod file;
#[cfg(feature = "std")]
pub mod host;
pub mod layout;
pub mod planes;
mod tensor;
pub mod tokenizer;
pub mod utf8;
pub mod vocabulary;

pub use dtype::{DType, KvDType};
pub use error::{Bank, Error, Part, Plane, Rule};
pub use error_keys::{ConfigKey, SamplingKey, TokenizerKey};
pub use planes::{Places, Planes, Quantised};
pub use tensor::{Dims, TensorView, VIEW_BYTES_32};

/// The number of the canonical arithmetic (docs/format/arithmetic.md) that this version computes.
pub const ARITHMETIC: u32 = 1;

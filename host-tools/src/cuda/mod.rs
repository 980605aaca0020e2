//! Models on a GPU: the runtime's sessions, with what they compute computed by the kernels of `dmexp-kernels` through the CUDA driver. Used by every command that takes `--device cuda`.
//!
//! [`Cuda::new`] opens a device, takes all the memory that a model needs and uploads its weights; what it makes is an [`Accelerator`](dmexp::accelerator::Accelerator) for
//! [`Model::with_accelerator`](dmexp::Model::with_accelerator). [`devices`] says what there is. Nothing here needs more than the driver, which is opened while the program runs: without one every
//! call is an error that says so.

pub mod bench;
mod cost;
mod decoder;
mod dormouse;
mod driver;
mod error;
mod family;
mod handle;
mod library;
mod upload;

#[cfg(test)]
mod tests;

pub use cost::{Cost, H200, Machine};
pub(crate) use error::failed;
pub use error::{CudaError, words};
pub use handle::{Cuda, Options};
pub use library::{Facts, devices};

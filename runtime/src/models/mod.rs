//! The networks, one file an architecture: bind names to tensors once, then step.

#[cfg(all(feature = "llama", feature = "files"))]
mod copies;
#[cfg(feature = "dormouse")]
pub mod dormouse;
#[cfg(feature = "llama")]
pub mod llama;
#[cfg(feature = "sequential")]
pub mod sequential;

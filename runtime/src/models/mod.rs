//! The networks, one file an architecture: bind names to tensors once, then step.

#[cfg(feature = "llama")]
pub mod llama;

//! Runs `.dmexp` language models without a heap, with the same bits on every machine.
//!
//! A file is checked once and then borrowed where it lies; a session works in one piece of memory that the caller owns:
//!
//! ```ignore
//! include_model!(Stories = "stories.dmexp", context = 256, kv = f16);
//! static ARENA: ConstStaticCell<Arena<{ Stories::ARENA_LEN }>> = ConstStaticCell::new(Arena::new());
//!
//! let mut session = Session::new(Stories::bind(), ARENA.take(), Sampler::greedy())?;
//! session.generate("Once upon a time", 200, &mut uart)?;
//! ```
//!
//! Small networks of layers (keyword spotting, anomaly detection, gestures) are a [`Predictor`], run by a [`Prediction`].
//!
//! Files that arrive at run time go through [`format::file::ModelFile::open`] and [`Model::bind`].
#![cfg_attr(not(any(test, feature = "std")), no_std)]
#![deny(unsafe_code)]

pub use dmexp_format as format;

#[cfg(all(feature = "macros", any(feature = "llama", feature = "dormouse", feature = "sequential")))]
#[doc(hidden)]
#[path = "macro_support.rs"]
pub mod __macro;
#[cfg(all(not(target_os = "none"), any(feature = "llama", feature = "dormouse")))]
pub mod accelerator;
mod arena;
#[cfg(not(target_os = "none"))]
pub mod executor;
#[cfg(any(feature = "llama", feature = "dormouse"))]
mod model;
pub mod models;
#[cfg(any(feature = "llama", feature = "dormouse"))]
mod network;
pub mod ops;
#[cfg(all(feature = "probe", feature = "llama"))]
pub mod probe;
pub mod sampler;
#[cfg(any(feature = "llama", feature = "dormouse"))]
mod session;
pub mod simd;
mod stop;
pub mod tokenizer;
#[cfg(any(feature = "llama", feature = "dormouse"))]
mod write;

pub use arena::{Arena, Memory};
#[cfg(all(feature = "macros", any(feature = "llama", feature = "dormouse", feature = "sequential")))]
pub use dmexp_macros::include_model;
#[cfg(any(feature = "llama", feature = "dormouse"))]
pub use model::Model;
#[cfg(feature = "sequential")]
pub use models::sequential::{Prediction, Predictor};
#[cfg(any(feature = "llama", feature = "dormouse"))]
pub use network::Network;
pub use sampler::Sampler;
#[cfg(all(feature = "llama", not(target_os = "none")))]
pub use session::{Batch, Fed, Part};
#[cfg(any(feature = "llama", feature = "dormouse"))]
pub use session::{Generated, Session, Step, StopReason};
pub use stop::{STOP_LEN_LIMIT, StopStrings};

//! Small networks of layers, in sequence or as a graph: what keyword spotting, anomaly detection and gestures are made of.
//!
//! A [`Predictor`] is a network bound to its weights; a [`Prediction`] runs it in memory of the caller's, one sample at a time, without a heap. Results share places in that memory where they are
//! never needed at the same time. Every sum is canonical, so results have the same bits on every machine.
#![allow(clippy::unnecessary_wraps, reason = "kernels have one type, and some can fail")]

mod convolution;
mod dense;
mod depthwise;
mod gather;
mod grid;
#[cfg(feature = "std")]
mod known;
mod merge;
mod normalise;
#[cfg(not(target_os = "none"))]
mod padded;
mod pooling;
mod prediction;
mod predictor;
mod recurrent;
mod sets;
mod step;
mod table;
#[cfg(not(target_os = "none"))]
mod tiles;
mod upsampling;
mod walk;

pub use crate::format::arch::sequential::Usage;
pub use prediction::Prediction;
pub use predictor::{Predictor, Program};
pub use step::{Call, Kernel, Step};

//! Exports training checkpoints to `.dmexp`, and runs, checks and inspects them: the library behind the command `dmexp`.
#![deny(unsafe_code)]

pub mod bench;
pub mod chat;
pub mod checkpoint;
pub mod compare;
#[cfg(feature = "cuda")]
pub mod cuda;
pub mod decode;
pub mod device;
pub mod error;
pub mod export;
pub mod export_to;
pub mod firmware;
pub mod folder;
pub mod input;
pub mod logprobs;
pub mod plan;
pub mod predict;
pub mod serve;
pub mod target;
pub mod text;
pub mod weights;

//! Runs `.dmexp` language models without a heap, with the same bits on every machine.
#![cfg_attr(not(any(test, feature = "std")), no_std)]
#![deny(unsafe_code)]

pub use dmexp_format as format;

pub mod ops;
pub mod sampler;
pub mod tokenizer;

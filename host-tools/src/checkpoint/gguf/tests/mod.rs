//! Tests of the GGUF reader, on files that a writer of their own makes.

mod blocks;
mod configuration;
mod container;
pub(crate) mod make;
mod models;
mod tokenizers;

//! Host side: the owned headers, the writers, and every check that needs no running model. For the exporter, `info`, `verify` and `include_model!`.
//!
//! - [`Header`]: the TOML header of format 2; [`HeaderV1`]: that of format 1. `parse` and `to_text` are inverses.
//! - [`derive_index`]: the one function from header to index.
//! - [`Measure`]: first pass over the tensors (checksums, figures, offsets); [`write_v2`] and [`write_v1`]: second pass (the bytes).
//! - [`strip`]: the form for firmware; [`verify`]: every check there is.
//! - [`boards`], [`fit`]: the memories of boards, and what fits them.

pub mod boards;
mod check;
mod dormouse;
mod error;
pub mod fit;
mod header;
mod header_text;
mod header_v1;
mod index;
mod pattern;
pub mod sequential;
mod stats;
mod toml_text;
mod verify;
mod write;

#[cfg(test)]
mod tests;

pub use error::{HeaderError, WriteError};
pub use header::{Config, Golden, GoldenPosition, Header, LlamaSettings, Payload, Provenance, Scalar, TensorEntry, TensorSpec, Tokenizer};
pub use header_v1::{HeaderV1, Padding, TensorV1, llama_config_v1, to_bytes_v1, write_v1};
pub use index::derive_index;
pub use pattern::name_matches;
pub use sequential::SequentialSettings;
pub use stats::{Figures, Measured, TensorMeter};
pub use verify::{GOLDEN_VECTORS, Left, Report, TOKENIZER_ARRAYS, VerifyError, verify, verify_with};
pub use write::{DEFAULT_ALIGNMENT, Measure, TensorSink, rewrite_head, strip, to_bytes, write_v2};

use crate::file::{fixed, index as index_file};

/// The longest TOML header, in bytes.
pub const HEADER_LIMIT: u64 = fixed::HEADER_LIMIT as u64;
/// The longest index, in bytes.
pub const INDEX_LIMIT: u64 = fixed::INDEX_LIMIT as u64;
/// The longest tensor name, in bytes.
pub const NAME_LIMIT: usize = index_file::NAME_LIMIT as usize;
/// The most tensors.
pub const TENSOR_LIMIT: usize = index_file::TENSOR_LIMIT as usize;

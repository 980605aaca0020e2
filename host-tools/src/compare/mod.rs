//! How far one export of a model is from another: figures over the logits of both. Used by `dmexp compare` and by the quality report of quantised exports.

pub mod divergence;
pub mod dtypes;
pub mod heat;
pub mod machines;
mod normaliser;
mod plot;
pub mod side;
pub mod transcript;
pub mod verdict;
mod windows;

pub use divergence::{Divergence, Meter};
pub use dtypes::{Comparison, Measured, Request, Row, dtypes};
pub use normaliser::log_normaliser;
pub use plot::svg;
pub use windows::windows;

//! How far one export of a model is from another: figures over the logits of both. Used by `dmexp compare dtypes` and by the quality report of quantised exports.

pub mod divergence;

pub use divergence::{Divergence, Meter};

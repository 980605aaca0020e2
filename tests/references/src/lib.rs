//! Comparisons with reference crates: see `tests`.

//! Hostile input: every reader of dmexp as a function of bytes, with seeds for it.
//!
//! A [`Target`] reads bytes as far as its part of dmexp goes and says what became of them. It panics where a promise is broken: what opens must run, what is written must be read again, what is
//! refused must be refused in words. `tests/fuzz` runs the targets under libFuzzer, `tests/damaged.rs` over thousands of damaged seeds.

mod checkpoints;
mod files;
mod numbers;
mod probe;
mod requests;
mod sampler;
mod seal;
mod seeds;
mod target;
mod texts;
mod tokenizers;

pub use target::{Outcome, Promise, TARGETS, TIME_LIMIT, Target, by_name};

//! The maths of arithmetic number 1, one file a family; called by the models, never by users' code directly.
//!
//! Every operator written in these files is one IEEE single-precision operation rounded to nearest even, in the order written: no fused multiply-add, no
//! reassociation, no flushing of subnormals. The instruction-specific forms in `chip` give the same bits. Results are defined for every input and nothing
//! here panics: slices that are too short are taken as far as they go.
#![cfg_attr(
    not(any(feature = "f32", feature = "f16", feature = "bf16", feature = "q8", feature = "q4", feature = "t2")),
    allow(dead_code, unused_imports, reason = "a build without weights of any type has no matrices to multiply")
)]

pub mod activation;
pub mod attention;
pub mod check;
pub(crate) mod chip;
#[cfg(any(feature = "dormouse", test))]
pub mod columns;
pub mod convert;
pub mod crew;
#[cfg(feature = "sequential")]
pub mod elementwise;
pub mod ffn;
pub(crate) mod integer;
pub mod kv;
pub(crate) mod kv_integer;
pub mod math;
pub mod matvec;
pub mod norm;
pub(crate) mod parts;
pub(crate) mod portable;
pub(crate) mod quantise;
#[cfg(any(feature = "dormouse", feature = "sequential", test))]
pub(crate) mod rare;
pub mod rope;
pub mod sum;
#[cfg(all(feature = "sequential", not(target_os = "none")))]
pub(crate) mod tile;

#[cfg(test)]
mod golden_tests;
#[cfg(test)]
mod integer_tests;
#[cfg(test)]
mod kv_integer_tests;
#[cfg(test)]
pub(crate) mod test_rng;

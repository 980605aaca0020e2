//! Runs `.dmexp` language models without a heap, with the same bits on every machine.
//!
//! A file is checked once and then borrowed where it lies; a session works in one piece of memory that the caller owns. On a host:
//!
//! ```
//! use dmexp::{Model, Sampler, Session, Step, format::file::ModelFile};
//!
//! let bytes = std::fs::read("examples/tiny.dmexp")?;
//! let model = Model::bind(&ModelFile::open(&bytes)?)?;
//! let mut memory = vec![0; model.arena_len()?.div_ceil(4)];
//! let mut session = Session::new(&model, memory.as_mut_slice(), Sampler::greedy())?;
//! session.prompt(b"Once upon a time")?;
//! let mut story = Vec::<u8>::new();
//! loop {
//!     match session.step()? {
//!         Step::Token { text, .. } => story.extend(text.as_bytes()),
//!         Step::Stop(_) => break,
//!         _ => {}
//!     }
//! }
//! # assert!(!story.is_empty());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! In firmware, the model is part of the program, a bad file does not compile, and the memory is a static of exactly the size that it needs:
//!
//! ```ignore
//! include_model!(Stories = "stories.dmexp", context = 256, kv = f16);
//! static ARENA: ConstStaticCell<Arena<{ Stories::ARENA_LEN }>> = ConstStaticCell::new(Arena::new());
//!
//! let mut session = Session::new(Stories::bind(), ARENA.take(), Sampler::greedy())?;
//! session.generate("Once upon a time", 200, &mut uart)?;
//! ```
//!
//! Files come from the command `dmexp` (`cargo install dmexp-tools`). Small networks of layers (keyword spotting, anomaly detection, gestures) are a [`Predictor`], run by a [`Prediction`].
//! The folder `examples` has programs for a host: `story`, `included` (a model in the program), `predict` (a small network) and `batch` (several texts at once).
//!
//! # Features
//!
//! All but the last six are on by default; firmware turns the defaults off and takes what its model has. A file that needs a feature which was left out is refused with its name.
//!
//! | feature | what it adds |
//! |---|---|
//! | `llama`, `dormouse`, `sequential` | the architectures: Llama's family, dormouse's byte models, small networks |
//! | `f32`, `f16`, `bf16`, `q8`, `q4`, `t2` | types of weights |
//! | `kv-f32`, `kv-f16`, `kv-q8`; `kv` is all of them | types of keys and values |
//! | `macros` | [`include_model!`] |
//! | `files` | files that arrive at run time: [`Model::bind`] |
//! | `bpe` | the tokenizer `byte_level_bpe` with its Unicode tables |
//! | `toml` | files of format 1, whose header is TOML (about 20 KB of flash) |
//! | `probe` | the chip's side of `dmexp compare` |
//! | `soft-float` | faster floats on cores without an FPU |
//! | `vmla`, `dsp` | instructions of some Cortex-M cores |
//! | `std` | for hosts: `toml`, `bpe`, `kv`, and what writes files |
#![cfg_attr(not(any(test, feature = "std")), no_std)]
#![deny(unsafe_code)]

pub use dmexp_format as format;

#[cfg(all(feature = "macros", any(feature = "llama", feature = "dormouse", feature = "sequential")))]
#[doc(hidden)]
#[path = "macro_support.rs"]
pub mod __macro;
#[cfg(all(not(target_os = "none"), any(feature = "llama", feature = "dormouse")))]
pub mod accelerator;
mod arena;
#[cfg(not(target_os = "none"))]
pub mod executor;
#[cfg(any(feature = "llama", feature = "dormouse"))]
mod model;
pub mod models;
#[cfg(any(feature = "llama", feature = "dormouse"))]
mod network;
pub mod ops;
#[cfg(all(feature = "probe", feature = "llama"))]
pub mod probe;
pub mod sampler;
#[cfg(any(feature = "llama", feature = "dormouse"))]
mod session;
pub mod simd;
mod stop;
pub mod tokenizer;
#[cfg(any(feature = "llama", feature = "dormouse"))]
mod write;

pub use arena::{Arena, Memory};
/// ```
/// dmexp::include_model!(Tiny = "$CARGO_MANIFEST_DIR/examples/tiny.dmexp", context = 32, kv = f16);
///
/// assert_eq!(Tiny::CONTEXT, 32);
/// assert_eq!(Tiny::bind().arena_len(), Ok(Tiny::ARENA_LEN));
/// ```
#[cfg(all(feature = "macros", any(feature = "llama", feature = "dormouse", feature = "sequential")))]
pub use dmexp_macros::include_model;
#[cfg(any(feature = "llama", feature = "dormouse"))]
pub use model::Model;
#[cfg(feature = "sequential")]
pub use models::sequential::{Prediction, Predictor};
#[cfg(any(feature = "llama", feature = "dormouse"))]
pub use network::Network;
pub use sampler::Sampler;
#[cfg(all(feature = "llama", not(target_os = "none")))]
pub use session::{Batch, Fed, Part};
#[cfg(any(feature = "llama", feature = "dormouse"))]
pub use session::{Generated, Session, Step, StopReason};
pub use stop::{STOP_LEN_LIMIT, StopStrings};

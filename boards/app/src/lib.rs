//! The application that every board runs: it reads one command, does it, and reports in text. Called by the `main` of each board crate.
//!
//! A board crate says where its memory is and which serial port it has, and nothing else. Free text is for people; a line
//! of the form `@name value` is a figure that `cargo xtask bench` reads. Commands:
//!
//! - `story [SEED]`, or nothing: the story of the built-in model
//! - `info [CONTEXT]`, with the feature of this name: what the model is, and the arena that it needs for so many positions
//!
//! With the feature `probe`:
//!
//! - `probe KV [CONTEXT]`: answers `dmexp compare` on the serial port, and does not end by itself
//!
//! And with the feature `measure`:
//!
//! - `logits KV COUNT`: the logits of COUNT positions of the greedy text, as raw little-endian f32
//! - `bench KV COUNT`: the same steps, each between the counting markers, then the stack used
//! - `kernel DTYPE ROWS COLUMNS GROUP SHIFT`: one product of a made-up matrix between the counting markers, compared with the definition
//! - `attend KV HEADS KV_HEADS WIDTH FIRST LAST`: attention over made-up keys and values, likewise
//!
//! With the feature `network` the firmware holds a small network instead of a language model, and knows:
//!
//! - nothing: names what it hears in each golden vector of the built-in network
//! - `replay`, with the feature `measure`: runs every golden vector between the counting markers, and counts those whose bits differ
//!
//! With the feature `reader`, `file SHIFT LENGTH` before a command takes the model file that was loaded into memory, SHIFT bytes past an aligned address, in place of the built-in one.

#![no_std]

#[cfg(all(feature = "measure", not(feature = "network")))]
mod attend;
#[cfg_attr(feature = "network", allow(dead_code, reason = "the commands of networks have few words"))]
mod command;
#[cfg_attr(target_arch = "arm", path = "cortex_m.rs")]
#[cfg_attr(target_arch = "riscv32", path = "riscv.rs")]
#[cfg_attr(not(feature = "measure"), allow(dead_code, reason = "nothing is counted"))]
mod core_of;
mod entry;
#[cfg(all(feature = "measure", not(feature = "network")))]
mod floats;
#[cfg(not(feature = "network"))]
mod language;
#[cfg_attr(feature = "network", allow(dead_code, reason = "a network in the firmware needs no memory besides"))]
pub mod machine;
#[cfg(all(feature = "measure", not(feature = "network")))]
mod measure;
#[cfg(feature = "network")]
mod network;
#[cfg(all(feature = "probe", not(feature = "network")))]
mod probe;
mod semihost;
#[cfg(any(feature = "measure", feature = "probe"))]
mod stack;
#[cfg(not(feature = "network"))]
mod story;
mod text;
pub mod uart;

#[cfg(target_arch = "riscv32")]
pub use core_of::trap_address;
use embedded_io::{Read, Write};
#[cfg(not(feature = "network"))]
use language::{Command, run};
#[cfg(feature = "network")]
use network::{Command, run};

/// What a board provides to the application.
#[cfg_attr(
    any(feature = "network", not(feature = "measure")),
    allow(dead_code, reason = "nothing is counted, and a network in the firmware needs no memory besides")
)]
trait Board {
    /// Where text goes and requests come from; a UART on real boards.
    type Output: Read + Write;

    /// The writer for everything that is printed.
    fn output(&mut self) -> &mut Self::Output;

    /// Executes the marker instruction at which the counting plugin starts a region.
    #[cfg(feature = "measure")]
    fn count_begin(&self);

    /// Executes the marker instruction at which the counting plugin ends the region.
    #[cfg(feature = "measure")]
    fn count_end(&self);

    /// Bytes of stack used at the deepest point since the stack was painted.
    #[cfg(feature = "measure")]
    fn stack_peak(&self) -> usize;

    /// The memory into which a model file was loaded from outside, and memory besides that nobody uses: taken once, and empty where the board has none.
    fn spare_memory(&mut self) -> (&'static [u8], &'static mut [u32]);
}

/// Exit status of a command that was done.
const DONE: i32 = 0;
/// Exit status where the model was refused, a step failed or the output did not take the text.
const FAILED: i32 = 1;
/// Exit status of a command that the application does not know.
const UNKNOWN: i32 = 2;

//! The model, the memory that a session of it needs, and where text goes.

use core::fmt;
use dmexp::{Arena, include_model};
use static_cell::ConstStaticCell;

// Checked while this compiles: a damaged file does not build, nor one for which Cargo.toml lacks a feature of dmexp.
include_model!(pub(crate) Model = "model.dmexp", context = 256, kv = f16);

/// The memory that a session of this model needs, to the byte. Taken once.
pub(crate) static ARENA: ConstStaticCell<Arena<{ Model::ARENA_LEN }>> = ConstStaticCell::new(Arena::new());

/// A function that sends bytes, and is false where that failed.
pub(crate) struct Line<W>(pub(crate) W);

impl<W: FnMut(&[u8]) -> bool> fmt::Write for Line<W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if (self.0)(text.as_bytes()) { Ok(()) } else { Err(fmt::Error) }
    }
}

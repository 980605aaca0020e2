//! Runs `.dmexp` files on the host. Called by the exporter (golden vectors) and by every command that runs or checks a model.
//!
//! [`Loaded`] owns the mapped file; everything else borrows from it: [`Loaded::model`], and [`Cpu`], which has the memory of one session. [`Decoder`] is what commands are written against that
//! do not mind what runs the model. [`verify_all`] is every check there is.

mod cpu;
mod explain;
pub mod golden;
mod loaded;
pub mod pool;
mod tokenizer;
pub mod verify;

#[cfg(test)]
pub(crate) mod tests;

pub use cpu::{Cpu, CpuOptions, DormouseOptions};
pub use golden::golden_check;
pub use loaded::{Load, Loaded};
pub use pool::{Pool, physical_cores};
pub use tokenizer::TokenizerArrays;
pub use verify::{Check, Outcome, VerifyReport, verify_all};

use crate::error::{Error, Result};
use dmexp::Session;
use std::hash::{BuildHasher, RandomState};

/// A seed from the system's random numbers, of 52 bits: what reads JSON with numbers of 64-bit floats gets it back as it is, and those that follow it too.
pub fn any_seed() -> u64 {
    (RandomState::new().hash_one(std::process::id()) >> 12).max(1)
}

/// Something that runs a model: tokens in, logits out, one text at a time.
pub trait Decoder {
    /// How many tokens there are, and so how many logits.
    fn vocab_size(&self) -> u32;

    /// How many positions a text can have.
    fn context(&self) -> u32;

    /// How many tokens were fed since the text began.
    fn position(&self) -> u32;

    /// Feeds `tokens`, at least one, and returns the logits after the last of them.
    ///
    /// # Errors
    /// [`Class::Request`](crate::error::Class::Request) for no tokens, one outside the vocabulary, or more than the context has room for (nothing is fed then);
    /// [`Class::Damaged`](crate::error::Class::Damaged) for logits that are not finite.
    fn feed(&mut self, tokens: &[u32]) -> Result<&[f32]>;

    /// Begins a new text.
    fn reset(&mut self);

    /// Feeds `tokens`, whatever the model would choose (teacher forcing), and calls `each` with every position and its logits.
    ///
    /// # Errors
    /// Those of [`Decoder::feed`] and of `each`. Whether all tokens fit is known before the first is fed.
    fn logits(&mut self, tokens: &[u32], each: &mut dyn FnMut(u32, &[f32]) -> Result<()>) -> Result<()> {
        let room = self.context().saturating_sub(self.position());
        if tokens.len() as u64 > u64::from(room) {
            return Err(dmexp::format::Error::PromptTooLong { tokens: tokens.len() as u64, room: u64::from(room) }.into());
        }
        for token in tokens {
            let position = self.position();
            each(position, self.feed(&[*token])?)?;
        }
        Ok(())
    }
}

/// Feeds `tokens`, which begin a text, as one window to a session of full decoding, and calls `each` with every position and its logits, for which bytes that come after count too.
///
/// # Errors
/// Those of [`Session::push_tokens`], [`Session::window_logits`] and `each`.
pub fn window_logits(session: &mut Session<'_>, tokens: &[u32], each: &mut dyn FnMut(u32, &[f32]) -> Result<()>) -> Result<()> {
    session.push_tokens(tokens)?;
    for position in 0..tokens.len() as u32 {
        each(position, session.window_logits(position)?)?;
    }
    Ok(())
}

impl Decoder for Session<'_> {
    fn vocab_size(&self) -> u32 {
        self.model().network().vocab_size()
    }

    fn context(&self) -> u32 {
        self.model().context()
    }

    fn position(&self) -> u32 {
        Session::position(self)
    }

    fn feed(&mut self, tokens: &[u32]) -> Result<&[f32]> {
        self.push_tokens(tokens)?;
        Session::logits(self).map_err(Error::from)
    }

    fn reset(&mut self) {
        Session::reset(self);
    }

    fn logits(&mut self, tokens: &[u32], each: &mut dyn FnMut(u32, &[f32]) -> Result<()>) -> Result<()> {
        self.push_tokens(tokens)?;
        self.each_logits(each)
    }
}

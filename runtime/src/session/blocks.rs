//! Known tokens of one session fed at once, on hosts.

use super::{Session, Step, StopReason};
use crate::format::Error;
use crate::network::Network;

impl<'a> Session<'a> {
    /// Feeds all known tokens, at once where the model was made for it ([`Model::with_block`](crate::Model::with_block)), and gives the logits after each to `each`, with its position.
    ///
    /// # Errors
    /// [`Error::NonFiniteLogits`]; those of `each`, after which the tokens that were fed stay fed.
    pub fn each_logits<E: From<Error>>(&mut self, mut each: impl FnMut(u32, &[f32]) -> Result<(), E>) -> Result<(), E> {
        while self.position < self.known {
            let first = self.position;
            if let Some(count) = self.feed_block() {
                self.position = first + count;
                self.parts = 0;
                self.model.network.logits_block(&mut self.state, (first, count), &mut each)?;
                continue;
            }
            let Some(token) = self.next_token()? else { return Ok(()) };
            while !self.is_fed() {
                self.feed_part(token);
            }
            self.compute_logits()?;
            each(first, self.state.for_sampler(self.model.network.vocab_size()).0)?;
        }
        Ok(())
    }

    /// Feeds known tokens at once, where the model was made for it ([`Model::with_block`](crate::Model::with_block)); what is left is for [`Session::step`] or [`Session::logits`], the logits after the last one at least. Returns
    /// how many tokens need not be fed any more.
    pub fn feed_blocks(&mut self) -> u32 {
        let first = self.position;
        while self.feed_block().is_some() {
            if self.is_fed() && self.position + 1 < self.known {
                self.finish();
            }
        }
        self.position - first
    }

    /// A [`Session::step`] that shows `look` the logits before anything of the sampler's changes them, and that feeds all known tokens. Tokens and bits are those of [`Session::step`].
    ///
    /// # Errors
    /// Those of [`Session::step`].
    pub fn step_seen(&mut self, look: impl FnOnce(&[f32])) -> Result<Step<'a>, Error> {
        if let Some(reason) = self.ended {
            return Ok(Step::Stop(reason));
        }
        if self.position >= self.model.context {
            return Ok(self.end(StopReason::ContextFull));
        }
        let fed = self.tokens().last().copied().ok_or(Error::NoPrompt)?;
        look(self.logits()?);
        let token = self.draw()?;
        Ok(self.take(fed, token))
    }

    /// Feeds the next block of known tokens; the session is then at its last one, of which all parts are done. `None`, and nothing done, where there are no two tokens to feed.
    fn feed_block(&mut self) -> Option<u32> {
        let count = (self.known - self.position).min(Network::block(&self.state));
        if self.parts > 0 || count < 2 || self.ended.is_some() {
            return None;
        }
        self.model.network.feed_block(&mut self.state, self.position, count);
        self.position += count - 1;
        self.parts = self.model.network.n_layers() + 1;
        Some(count)
    }
}

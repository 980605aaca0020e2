//! Something else than this processor that computes a network, where there is one (a GPU): who drives it implements [`Accelerator`] and gives it to
//! [`Model::with_accelerator`](crate::Model::with_accelerator). Sessions keep the tokens and choose the next one as ever; weights, keys and values are where the accelerator has them. What it gives must
//! be, bit for bit, what this processor would compute.

use crate::arena::Carve;
use crate::format::Error;
use crate::ops::check::all_finite;

/// What computes a network in place of this processor.
///
/// Positions that were fed before may be fed again, and those after them are then forgotten: that is how a text begins anew.
pub trait Accelerator: Sync {
    /// Begins a session and returns its number, which no other has. It has room for one: sessions that were begun before cannot go on.
    fn begin(&self) -> u64;

    /// The number of the session that was begun last.
    fn current(&self) -> u64;

    /// How many tokens [`Accelerator::feed`] takes at most: 1 or more.
    fn block(&self) -> u32;

    /// Feeds `tokens`, the first of them at `position`, through all layers.
    ///
    /// # Errors
    /// [`Error::Accelerator`].
    fn feed(&self, tokens: &[u32], position: u32) -> Result<(), Error>;

    /// The logits after the tokens that the last call fed, from number `first` of them on: `logits` has room for one row or more, as many as there are at most.
    ///
    /// # Errors
    /// [`Error::Accelerator`].
    fn logits(&self, first: u32, logits: &mut [f32]) -> Result<(), Error>;

    /// Feeds one token and gives the logits after it.
    ///
    /// # Errors
    /// [`Error::Accelerator`].
    fn step(&self, token: u32, position: u32, logits: &mut [f32]) -> Result<(), Error> {
        self.feed(&[token], position)?;
        self.logits(0, logits)
    }

    /// Feeds one token and names the likeliest after it, the lowest where several are; `None`, and nothing done, where it leaves that to the session.
    ///
    /// # Errors
    /// [`Error::Accelerator`]; [`Error::NonFiniteLogits`].
    fn choose(&self, token: u32, position: u32) -> Result<Option<u32>, Error> {
        let _ = (token, position);
        Ok(None)
    }

    /// Does one part of feeding one token, the embedding (0) or a layer (from 1 on), and gives the residual stream after it. Parts come in order; after the last one [`Accelerator::logits`] may follow.
    ///
    /// # Errors
    /// [`Error::Accelerator`].
    fn part(&self, part: u32, token: u32, position: u32, residual: &mut [f32]) -> Result<(), Error>;
}

/// Rows of logits that are fetched at once.
const LOGITS: usize = 8;

/// What a session keeps here of a network that is computed elsewhere.
pub(crate) struct Away<'m> {
    accelerator: &'m dyn Accelerator,
    /// The session's number there.
    number: u64,
    pub(crate) tokens: &'m mut [u32],
    /// [`LOGITS`] rows.
    pub(crate) logits: &'m mut [f32],
    pub(crate) order: &'m mut [u32],
    pub(crate) residual: &'m mut [f32],
    /// The token that is being fed and its position, where it was begun.
    begun: Option<(u32, u32)>,
    /// Parts of feeding it that were asked for, and that were done. A token of which none is done and all are asked for is fed at once.
    asked: u32,
    done: u32,
    /// The number of the last token among those that were fed at once.
    last: u32,
    /// What happened where nobody could be told.
    failed: Option<Error>,
}

impl core::fmt::Debug for Away<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Away").field("begun", &self.begun).field("asked", &self.asked).field("done", &self.done).finish_non_exhaustive()
    }
}

/// Bytes that [`Away::new`] takes.
///
/// # Errors
/// [`Error::TooLargeForTarget`].
pub(crate) fn arena_len(context: u32, vocab_size: u32, dim: u32) -> Result<usize, Error> {
    // Far below 2^64: each is below 2^32.
    let words = u64::from(context) + (LOGITS as u64 + 1) * u64::from(vocab_size) + u64::from(dim);
    let addressable = (isize::MAX as u64) / size_of::<u32>() as u64;
    if words > addressable {
        return Err(Error::TooLargeForTarget { needed: words, addressable });
    }
    Ok(words as usize * size_of::<u32>())
}

impl<'m> Away<'m> {
    /// Carves `memory`.
    ///
    /// # Errors
    /// Those of [`arena_len`]; [`Error::ArenaTooSmall`].
    pub(crate) fn new(
        accelerator: &'m dyn Accelerator,
        (context, vocab_size, dim): (u32, u32, u32),
        memory: &'m mut [u32],
    ) -> Result<Self, Error> {
        let (needed, found) = (arena_len(context, vocab_size, dim)?, size_of_val(memory));
        if found < needed {
            return Err(Error::ArenaTooSmall { needed: needed as u64, found: found as u64 });
        }
        let mut carve = Carve::new(memory);
        let vocab_size = vocab_size as usize;
        Ok(Self {
            accelerator,
            number: accelerator.begin(),
            tokens: carve.words(context as usize),
            logits: carve.floats(LOGITS.saturating_mul(vocab_size)),
            order: carve.words(vocab_size),
            residual: carve.floats(dim as usize),
            begun: None,
            asked: 0,
            done: 0,
            last: 0,
            failed: None,
        })
    }

    /// What computes this session, as long as it does.
    fn accelerator(&self) -> Result<&'m dyn Accelerator, Error> {
        if self.accelerator.current() == self.number { Ok(self.accelerator) } else { Err(Error::AcceleratorBusy) }
    }

    /// How many tokens can be fed at once.
    pub(crate) fn block(&self) -> u32 {
        self.accelerator.block().max(1)
    }

    /// Notes that `part` of feeding `token` is wanted.
    pub(crate) fn feed_part(&mut self, part: u32, token: u32, position: u32) {
        if part == 0 {
            self.flush();
            self.begun = Some((token, position));
            self.last = 0;
        }
        self.asked = part.saturating_add(1);
    }

    /// Feeds tokens at once.
    pub(crate) fn feed_block(&mut self, position: u32, count: u32) {
        self.flush();
        let tokens = self.tokens.get(position as usize..).and_then(|rest| rest.get(..count as usize)).unwrap_or(&[]);
        let fed = self.accelerator().and_then(|accelerator| accelerator.feed(tokens, position));
        self.note(fed);
        self.last = count.saturating_sub(1);
    }

    /// Does the parts that were asked for one by one, and leaves the residual stream after the last of them.
    ///
    /// # Errors
    /// Those of the accelerator.
    pub(crate) fn look(&mut self) -> Result<(), Error> {
        if let Some((token, position)) = self.begun {
            while self.done < self.asked {
                self.accelerator()?.part(self.done, token, position, self.residual)?;
                self.done = self.done.saturating_add(1);
            }
        }
        self.failed.take().map_or(Ok(()), Err)
    }

    /// The logits after the token at `position`, the last that was asked for.
    ///
    /// # Errors
    /// Those of the accelerator; [`Error::NonFiniteLogits`].
    pub(crate) fn compute_logits(&mut self, vocab_size: u32, position: u32) -> Result<(), Error> {
        if self.begun.is_some() && self.done > 0 {
            self.look()?;
        }
        let begun = self.begun.take().filter(|_| core::mem::take(&mut self.done) == 0);
        self.failed.take().map_or(Ok(()), Err)?;
        let accelerator = self.accelerator()?;
        let row = self.logits.get_mut(..vocab_size as usize).unwrap_or_default();
        match begun {
            Some((token, position)) => accelerator.step(token, position, row)?,
            None => accelerator.logits(self.last, row)?,
        }
        if all_finite(row) { Ok(()) } else { Err(Error::NonFiniteLogits { position }) }
    }

    /// The likeliest token after the one that was asked for, where the accelerator finds it and has not begun otherwise.
    ///
    /// # Errors
    /// Those of the accelerator; [`Error::NonFiniteLogits`].
    pub(crate) fn choose(&mut self) -> Result<Option<u32>, Error> {
        let Some((token, position)) = self.begun.filter(|_| self.done == 0 && self.failed.is_none()) else { return Ok(None) };
        let chosen = self.accelerator()?.choose(token, position)?;
        if chosen.is_some() {
            self.begun = None;
        }
        Ok(chosen)
    }

    /// The logits after each of `count` tokens that [`Away::feed_block`] fed from `position` on.
    ///
    /// # Errors
    /// Those of the accelerator and of `each`; [`Error::NonFiniteLogits`].
    pub(crate) fn logits_block<E: From<Error>>(
        &mut self,
        vocab_size: u32,
        (position, count): (u32, u32),
        each: &mut impl FnMut(u32, &[f32]) -> Result<(), E>,
    ) -> Result<(), E> {
        self.failed.take().map_or(Ok(()), Err)?;
        let accelerator = self.accelerator()?;
        let width = (vocab_size as usize).max(1);
        let mut first = 0;
        while first < count {
            let rows = (count - first).min(LOGITS as u32);
            let logits = self.logits.get_mut(..width.saturating_mul(rows as usize)).unwrap_or_default();
            accelerator.logits(first, logits)?;
            for (row, position) in logits.chunks_exact(width).zip(position.saturating_add(first)..) {
                if !all_finite(row) {
                    return Err(Error::NonFiniteLogits { position }.into());
                }
                each(position, row)?;
            }
            first += rows;
        }
        Ok(())
    }

    /// Begins a new text.
    pub(crate) fn reset(&mut self) {
        (self.begun, self.asked, self.done, self.last, self.failed) = (None, 0, 0, 0, None);
    }

    /// Feeds a token that was asked for and whose logits nobody wanted.
    fn flush(&mut self) {
        let Some((token, position)) = self.begun.take() else { return };
        if self.done == 0 {
            let fed = self.accelerator().and_then(|accelerator| accelerator.feed(&[token], position));
            self.note(fed);
        } else {
            self.begun = Some((token, position));
            let done = self.look();
            self.begun = None;
            self.note(done);
        }
        self.done = 0;
    }

    fn note(&mut self, done: Result<(), Error>) {
        if let Err(error) = done {
            self.failed.get_or_insert(error);
        }
    }
}

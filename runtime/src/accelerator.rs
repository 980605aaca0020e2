//! Something else than this processor that computes a network, where there is one (a GPU): who drives it implements [`Accelerator`] and gives it to
//! [`Model::with_accelerator`](crate::Model::with_accelerator). Sessions keep the tokens and choose the next one as ever; weights, keys and values are where the accelerator has them. What it gives must
//! be, bit for bit, what this processor would compute.

use crate::arena::Carve;
use crate::format::Error;
use crate::ops::check::all_finite;
use crate::tokenizer::Tokenizer;

/// A token that is fed, at which position of which session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// The session's number.
    pub session: u64,
    /// The token.
    pub token: u32,
    /// Its position.
    pub position: u32,
}

/// What computes a network in place of this processor.
///
/// Positions that were fed before may be fed again, and those after them are then forgotten: that is how a text begins anew. A call about a session that [`Accelerator::has`] no more is
/// [`Error::AcceleratorBusy`].
pub trait Accelerator: Sync {
    /// Begins a session and returns its number, which no other has. Where there is no room for one more, the one that was begun first cannot go on.
    fn begin(&self) -> u64;

    /// Whether this session can go on.
    fn has(&self, session: u64) -> bool;

    /// How many tokens [`Accelerator::feed`] takes at most: 1 or more.
    fn block(&self) -> u32;

    /// Feeds `rows` through all layers, of one session or of several: those of a session in the order of their positions.
    ///
    /// # Errors
    /// [`Error::Accelerator`].
    fn feed(&self, rows: &[Row]) -> Result<(), Error>;

    /// The logits after the row of `session` at `position` and after those behind it, among the rows that the last call fed: `logits` has room for one row or more. False, and nothing done, where the
    /// last call did something else.
    ///
    /// # Errors
    /// [`Error::Accelerator`].
    fn logits(&self, session: u64, position: u32, logits: &mut [f32]) -> Result<bool, Error>;

    /// Feeds one row and gives the logits after it.
    ///
    /// # Errors
    /// [`Error::Accelerator`].
    fn step(&self, row: Row, logits: &mut [f32]) -> Result<(), Error>;

    /// Feeds one row and names the likeliest token after it, the lowest where several are; `None`, and nothing done, where it leaves that to the session.
    ///
    /// # Errors
    /// [`Error::Accelerator`]; [`Error::NonFiniteLogits`].
    fn choose(&self, row: Row) -> Result<Option<u32>, Error> {
        let _ = row;
        Ok(None)
    }

    /// Does one part of feeding one row, the embedding (0) or a layer (from 1 on), and gives the residual stream after it. Parts come in order, those of several sessions one after another or mixed; after
    /// the last one [`Accelerator::logits`] may follow.
    ///
    /// # Errors
    /// [`Error::Accelerator`].
    fn part(&self, part: u32, row: Row, residual: &mut [f32]) -> Result<(), Error>;
}

/// Tokens that are fed at once, at most.
pub(crate) const ROWS: usize = 64;
/// Rows of logits that are fetched at once.
pub(crate) const LOGITS: usize = 8;

/// What a session keeps here of a network that is computed elsewhere.
pub(crate) struct Away<'m> {
    accelerator: &'m dyn Accelerator,
    /// The session's number there.
    number: u64,
    pub(crate) tokens: &'m mut [u32],
    /// [`LOGITS`] rows at least; prompts are merged there.
    pub(crate) logits: &'m mut [f32],
    pub(crate) order: &'m mut [u32],
    pub(crate) residual: &'m mut [f32],
    /// The token that is being fed and its position, where it was begun.
    begun: Option<(u32, u32)>,
    /// Parts of feeding it that were asked for, and that were done. A token of which none is done and all are asked for is fed at once.
    asked: u32,
    done: u32,
    /// What happened where nobody could be told.
    failed: Option<Error>,
}

impl core::fmt::Debug for Away<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Away").field("begun", &self.begun).field("asked", &self.asked).field("done", &self.done).finish_non_exhaustive()
    }
}

/// Bytes of text for each position that a prompt may have which fills the context, at least. Keys and values, where other sessions merge prompts, are not here.
const BYTES_A_POSITION: usize = 8;

/// Words of the room for logits and for prompts.
fn logits_words(context: u32, vocab_size: u32) -> usize {
    let prompt = Tokenizer::scratch_words((context as usize).saturating_mul(BYTES_A_POSITION));
    LOGITS.saturating_mul(vocab_size as usize).max(prompt)
}

/// Bytes that [`Away::new`] takes.
///
/// # Errors
/// [`Error::TooLargeForTarget`].
pub(crate) fn arena_len(context: u32, vocab_size: u32, dim: u32) -> Result<usize, Error> {
    let others = u64::from(context) + u64::from(vocab_size) + u64::from(dim);
    let words = others.saturating_add(logits_words(context, vocab_size) as u64);
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
        let words = logits_words(context, vocab_size);
        let vocab_size = vocab_size as usize;
        Ok(Self {
            accelerator,
            number: accelerator.begin(),
            tokens: carve.words(context as usize),
            logits: carve.floats(words),
            order: carve.words(vocab_size),
            residual: carve.floats(dim as usize),
            begun: None,
            asked: 0,
            done: 0,
            failed: None,
        })
    }

    /// What computes this session, as long as it does.
    pub(crate) fn accelerator(&self) -> Result<&'m dyn Accelerator, Error> {
        if self.accelerator.has(self.number) { Ok(self.accelerator) } else { Err(Error::AcceleratorBusy) }
    }

    /// A token of this session.
    const fn row(&self, (token, position): (u32, u32)) -> Row {
        Row { session: self.number, token, position }
    }

    /// The known token at `position`.
    pub(crate) fn known_row(&self, position: u32) -> Row {
        self.row((self.tokens.get(position as usize).copied().unwrap_or(0), position))
    }

    /// Whether nothing was begun, and nothing went wrong where nobody could be told.
    #[cfg(feature = "llama")]
    pub(crate) const fn is_idle(&self) -> bool {
        self.begun.is_none() && self.failed.is_none()
    }

    /// How many tokens can be fed at once.
    pub(crate) fn block(&self) -> u32 {
        self.accelerator.block().clamp(1, ROWS as u32)
    }

    /// Notes that `part` of feeding `token` is wanted.
    pub(crate) fn feed_part(&mut self, part: u32, token: u32, position: u32) {
        if part == 0 {
            self.flush();
            self.begun = Some((token, position));
        }
        self.asked = part.saturating_add(1);
    }

    /// Feeds known tokens at once, [`Away::block`] of them at most.
    pub(crate) fn feed_block(&mut self, position: u32, count: u32) {
        self.flush();
        let mut rows = [Row::default(); ROWS];
        for (row, at) in rows.iter_mut().zip(position..position.saturating_add(count)) {
            *row = self.known_row(at);
        }
        let rows = rows.get(..count as usize).unwrap_or_default();
        let fed = self.accelerator().and_then(|accelerator| accelerator.feed(rows));
        self.note(fed);
    }

    /// Does the parts that were asked for one by one, and leaves the residual stream after the last of them.
    ///
    /// # Errors
    /// Those of the accelerator.
    pub(crate) fn look(&mut self) -> Result<(), Error> {
        if let Some((token, position)) = self.begun {
            while self.done < self.asked {
                let row = self.row((token, position));
                self.accelerator()?.part(self.done, row, self.residual)?;
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
        let (accelerator, number) = (self.accelerator()?, self.number);
        let fed = begun.map_or_else(|| self.known_row(position), |begun| self.row(begun));
        let logits = self.logits.get_mut(..vocab_size as usize).unwrap_or_default();
        // What another session fed since then took the place of what this one had fed: it is fed again.
        if begun.is_some() || !accelerator.logits(number, position, logits)? {
            accelerator.step(fed, logits)?;
        }
        if all_finite(logits) { Ok(()) } else { Err(Error::NonFiniteLogits { position }) }
    }

    /// The likeliest token after the one that was asked for, where the accelerator finds it and has not begun otherwise.
    ///
    /// # Errors
    /// Those of the accelerator; [`Error::NonFiniteLogits`].
    pub(crate) fn choose(&mut self) -> Result<Option<u32>, Error> {
        let Some((token, position)) = self.begun.filter(|_| self.done == 0 && self.failed.is_none()) else { return Ok(None) };
        let chosen = self.accelerator()?.choose(self.row((token, position)))?;
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
        let (accelerator, number) = (self.accelerator()?, self.number);
        let width = (vocab_size as usize).max(1);
        let mut first = 0;
        while first < count {
            let mut rows = (count - first).min(LOGITS as u32);
            let at = position.saturating_add(first);
            let fed = self.known_row(at);
            let logits = self.logits.get_mut(..width.saturating_mul(rows as usize)).unwrap_or_default();
            if !accelerator.logits(number, at, logits)? {
                // As in `compute_logits`.
                accelerator.step(fed, logits.get_mut(..width).unwrap_or_default())?;
                rows = 1;
            }
            for (row, position) in logits.chunks_exact(width).take(rows as usize).zip(at..) {
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
        (self.begun, self.asked, self.done, self.failed) = (None, 0, 0, None);
    }

    /// Feeds a token that was asked for and whose logits nobody wanted.
    fn flush(&mut self) {
        let Some((token, position)) = self.begun.take() else { return };
        if self.done == 0 {
            let fed = self.accelerator().and_then(|accelerator| accelerator.feed(&[self.row((token, position))]));
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

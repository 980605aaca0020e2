//! Several sessions of one model fed at once, on hosts: each matrix is read once for the next positions of all of them, whatever else they are at. Each gets the bits that it gets alone.

use super::{Session, away};
use crate::arena::{Carve, Memory};
use crate::format::Error;
use crate::model::Model;
use crate::models::llama::Llama;
use crate::models::llama::block::{Block, BlockLayout, Run};
use crate::network::State;
use crate::ops::check::all_finite;
use crate::ops::crew::MOST;
use core::array::from_fn;
use core::convert::Infallible;

/// Memory in which several sessions of a model are fed at once.
///
/// Sessions of another [`Model`] value and those of a dormouse model are fed one after the other, those that an accelerator computes as many at once as it takes: the results are the same.
///
/// ```
/// # use dmexp::{Batch, Model, Part, Sampler, Session, format::file::ModelFile};
/// # let bytes = std::fs::read("examples/tiny.dmexp")?;
/// # let model = Model::bind(&ModelFile::open(&bytes)?)?;
/// # let mut memories = vec![vec![0; model.arena_len()?.div_ceil(4)]; 2];
/// # let mut sessions = Vec::new();
/// # for memory in &mut memories {
/// #     sessions.push(Session::new(&model, memory.as_mut_slice(), Sampler::greedy())?);
/// # }
/// sessions[0].prompt(b"The bird")?;
/// sessions[1].prompt(b"Tom")?;
/// let mut memory = vec![0; Batch::arena_len(&model, 32, 2)?.div_ceil(4)];
/// let mut batch = Batch::new(&model, 32, 2, memory.as_mut_slice())?;
/// let mut parts: Vec<_> = sessions.iter_mut().map(|session| Part { count: session.waiting(), session, every: false }).collect();
/// let rows = std::sync::atomic::AtomicU32::new(0);
/// batch.feed(&mut parts, &|fed| {
///     // The logits after the last token of each.
///     assert!(fed.logits.is_ok_and(|logits| logits.len() == 128));
///     rows.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
/// })?;
/// assert_eq!(rows.into_inner(), 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Batch<'a> {
    model: &'a Model<'a>,
    /// None of a dormouse model, or where an accelerator computes.
    block: Option<Block<'a>>,
    /// Rows of logits, where an accelerator computes.
    logits: &'a mut [f32],
}

/// What a session takes part with.
#[derive(Debug)]
pub struct Part<'s, 'a> {
    /// The session. Behind [`Session::push_tokens`] it has tokens that wait to be fed.
    pub session: &'s mut Session<'a>,
    /// How many of them are fed: at least one.
    pub count: u32,
    /// Whether the logits after each of them are wanted, not only those after the last one known.
    pub every: bool,
}

/// A token that was fed, and the logits after it.
#[derive(Debug)]
pub struct Fed<'f> {
    /// The place of its part among the parts.
    pub part: usize,
    /// Its position.
    pub position: u32,
    /// All tokens that its session knows.
    pub tokens: &'f [u32],
    /// The logits, which may be changed and are lost afterwards. [`Error::NonFiniteLogits`] in their place is about this session alone.
    pub logits: Result<&'f mut [f32], Error>,
}

impl<'a> Batch<'a> {
    /// Bytes of memory for `positions` at once, 128 at most, of up to `texts` sessions.
    ///
    /// # Errors
    /// [`Error::TooLargeForTarget`].
    pub fn arena_len(model: &Model<'_>, positions: u32, texts: u32) -> Result<usize, Error> {
        if model.is_away() {
            return away::arena_len(model);
        }
        Ok(Self::layout(model, positions, texts)?.map_or(0, |layout| layout.bytes()))
    }

    fn layout(model: &Model<'_>, positions: u32, texts: u32) -> Result<Option<BlockLayout>, Error> {
        let layout = |network: &Llama<'_>| {
            BlockLayout::new(network.config(), model.context, (positions.max(1), texts as usize), network.crew.slots())
        };
        model.network.llama().filter(|_| !model.is_away()).map(layout).transpose()
    }

    /// A batch for `model`, in `memory` of [`Batch::arena_len`] bytes for as many positions and texts. The threads are those of the model.
    ///
    /// # Errors
    /// Those of [`Batch::arena_len`]; [`Error::ArenaTooSmall`].
    pub fn new<M: Memory + ?Sized>(model: &'a Model<'a>, positions: u32, texts: u32, memory: &'a mut M) -> Result<Self, Error> {
        let (layout, words) = (Self::layout(model, positions, texts)?, memory.words());
        let (needed, found) = (Self::arena_len(model, positions, texts)? as u64, size_of_val(words) as u64);
        if found < needed {
            return Err(Error::ArenaTooSmall { needed, found });
        }
        let mut carve = Carve::new(words);
        let block = layout.map(|layout| Block::new(&layout, &mut carve));
        let logits = carve.floats(if model.is_away() { needed as usize / size_of::<f32>() } else { 0 });
        Ok(Self { model, block, logits })
    }

    /// The most positions that are fed at once.
    pub fn positions(&self) -> u32 {
        self.block.as_ref().map_or(MOST as u32, Block::positions)
    }

    /// Feeds what `parts` say, and gives logits to `each`: those after a session's last known token, or after every token that was fed, where that was asked for.
    ///
    /// It is called once for each (where an accelerator fails, an error may follow), on any of the model's threads and on several at a time, in any order: what is done with logits is shared as the computation is.
    ///
    /// A session that was fed all that it knew waits for [`Session::push_tokens`].
    ///
    /// # Errors
    /// [`Error::NoPrompt`] for a part without tokens or with more than wait to be fed, [`Error::PromptTooLong`] for more than [`Batch::positions`] together. Nothing is done then.
    pub fn feed(&mut self, parts: &mut [Part<'_, '_>], each: &(dyn Fn(Fed<'_>) + Sync)) -> Result<(), Error> {
        let mut total = 0u64;
        for part in &*parts {
            if part.count == 0 || part.count > part.session.waiting() {
                return Err(Error::NoPrompt);
            }
            total = total.saturating_add(u64::from(part.count));
        }
        if total > u64::from(self.positions()) {
            return Err(Error::PromptTooLong { tokens: total, room: u64::from(self.positions()) });
        }
        let takes = |part: &Part<'_, '_>| {
            let whole = part.session.parts == 0 && core::ptr::eq(part.session.model, self.model);
            whole && matches!(part.session.state, State::Llama(_))
        };
        let positions = parts.iter().filter(|part| takes(part)).fold(0u32, |sum, part| sum.saturating_add(part.count));
        // One position alone is a step, which is faster.
        let together = |part: &Part<'_, '_>| positions > 1 && takes(part);
        if let (Some(block), Some(network)) = (&mut self.block, self.model.network.llama()) {
            feed_together(network, block, parts, together, each);
        }
        away::feed(self.model, parts, self.logits, each);
        for (place, part) in parts.iter_mut().enumerate().filter(|(_, part)| !together(part) && !away::is_away(self.model, part)) {
            part.feed_alone(place, each);
        }
        Ok(())
    }
}

/// Feeds those of `parts` that `together` says yes to.
fn feed_together(
    network: &Llama<'_>,
    block: &mut Block<'_>,
    parts: &mut [Part<'_, '_>],
    together: impl Fn(&Part<'_, '_>) -> bool,
    each: &(dyn Fn(Fed<'_>) + Sync),
) {
    let mut chosen = parts.iter_mut().filter(|part| together(part));
    let mut runs: [Option<Run<'_, '_>>; MOST] = from_fn(|_| chosen.next()?.run());
    if network.feed_runs(block, &mut runs) == 0 {
        return;
    }
    // The rows whose logits are wanted go to the front.
    let (mut owners, mut kept, mut row) = ([None; MOST], 0usize, 0usize);
    for (place, part) in parts.iter_mut().enumerate().filter(|(_, part)| together(part)) {
        let session = &mut *part.session;
        for _ in 0..part.count {
            let position = session.position;
            session.finish();
            if part.every || session.position == session.known {
                block.move_row(row, kept, network.config().dim as usize);
                if let Some(owner) = owners.get_mut(kept) {
                    *owner = Some((place, position));
                }
                kept = kept.wrapping_add(1);
            }
            row = row.wrapping_add(1);
        }
    }
    let parts = &*parts;
    let owners = owners.map(|owner| owner.and_then(|(place, position)| Some((place, position, parts.get(place)?.session.tokens()))));
    let (width, mut first) = ((network.config().vocab_size as usize).max(1), 0usize);
    let given: Result<(), Infallible> = network.logits_rows(block, kept, &mut |rows| {
        let owners = owners.get(first..).unwrap_or(&[]);
        first = first.saturating_add(rows.len() / width);
        network.crew.each_row(rows, width, &|row, logits| {
            if let Some(Some((part, position, tokens))) = owners.get(row).copied() {
                let logits = if all_finite(logits) { Ok(logits) } else { Err(Error::NonFiniteLogits { position }) };
                each(Fed { part, position, tokens, logits });
            }
        });
        Ok(())
    });
    let Ok(()) = given;
}

impl<'a> Part<'_, 'a> {
    fn run(&mut self) -> Option<Run<'_, 'a>> {
        let State::Llama(state) = &mut self.session.state else { return None };
        Some(state.run(self.session.position, self.count))
    }

    /// Feeds it as steps do.
    fn feed_alone(&mut self, place: usize, each: &(dyn Fn(Fed<'_>) + Sync)) {
        let session = &mut *self.session;
        for _ in 0..self.count {
            let position = session.position;
            let Ok(Some(token)) = session.next_token() else { return };
            while !session.is_fed() {
                session.feed_part(token);
            }
            if !self.every && position.saturating_add(1) < session.known {
                session.finish();
                continue;
            }
            let computed = session.compute_logits();
            let (logits, _, tokens) = session.state.for_sampler(session.model.network.vocab_size());
            let tokens = tokens.get(..session.known as usize).unwrap_or(&[]);
            each(Fed { part: place, position, tokens, logits: computed.map(|()| logits) });
        }
    }
}

impl Session<'_> {
    /// Known tokens that are not fed yet.
    pub fn waiting(&self) -> u32 {
        self.known.saturating_sub(self.position)
    }

    /// Forgets all but the first `count` known tokens; what was computed for those stays, as far as the architecture lets it: a dormouse model computes it again.
    pub fn truncate(&mut self, count: u32) {
        if count >= self.known {
            return;
        }
        self.known = count;
        self.ended = None;
        self.stops.reset();
        if count > self.position || (count == self.position && self.parts == 0) {
            return;
        }
        self.parts = 0;
        self.position = if self.model.network.llama().is_some() { count } else { 0 };
        self.state.reset();
    }
}

//! Which positions are computed when, and the logits.
//!
//! The recurrence of an iteration starts where that of the iteration before ended, behind the last byte. So every new byte changes all positions of all iterations but the first, by less and
//! less: the exact decoder computes old positions again, from the first, until the state is bit for bit the one it had there before and no later input has changed.

use super::block::{self, Place};
use super::experts::rank;
use super::kda::Wanted;
use super::linear::Net;
use super::state::{Past, State, Work};
use super::{Dormouse, split};
use crate::format::Error;
use crate::format::arch::dormouse::layout::{Decoding, saved_place, saved_states};
use crate::format::arch::dormouse::tensors::{Layer, Role};
use crate::ops::check::all_finite;
use crate::ops::norm::rmsnorm;
use crate::ops::sum::{Lanes, tree};

impl Dormouse<'_> {
    /// Computes what is missing up to the `known`th token, so that [`Dormouse::logits`] gives the logits after it.
    ///
    /// The caller has checked that the tokens are in the vocabulary and as many as the context at most.
    pub fn advance(&self, state: &mut State<'_>, known: u32) {
        while state.done < known {
            if !state.is_begun() {
                self.begin(state, known);
            }
            self.iterate(state);
        }
    }

    /// Begins to compute what is missing up to the `known`th token: the stream is then that of its embedding. What was begun before is finished first.
    #[inline(never)]
    pub(crate) fn begin(&self, state: &mut State<'_>, known: u32) {
        while state.is_begun() {
            self.iterate(state);
        }
        if known > state.done {
            // Old positions stay as they are then, so every new one goes through all iterations by itself.
            state.goal = if state.decoding == Decoding::Fast { state.done.saturating_add(1) } else { known };
            self.run(state).begin_last();
        }
    }

    /// One more iteration of what was begun; the stream is then that of the last position.
    #[inline(never)]
    pub(crate) fn iterate(&self, state: &mut State<'_>) {
        let (decoding, iteration, changed) = (state.decoding, state.iteration, state.changed);
        let mut run = self.run(state);
        let (again, changed) = match decoding {
            Decoding::Full => run.everything(iteration),
            Decoding::Exact => run.exactly(iteration, changed),
            _ => run.new_alone(iteration),
        };
        state.again = state.again.saturating_add(u64::from(again));
        state.changed = changed;
        state.iteration = iteration.saturating_add(1);
        if state.iteration >= self.config.max_iter {
            state.done = state.goal;
            state.iteration = 0;
            state.changed = 0;
        }
    }

    fn run<'r, 'm>(&'r self, state: &'r mut State<'m>) -> Run<'r, 'm, 'r, 'r> {
        let State { facts, work, past, outs, context, done, goal, tokens, .. } = state;
        Run { net: facts.net(self), work, past, outs, tokens: tokens.get(..*goal as usize).unwrap_or(&[]), context: *context, done: *done }
    }

    /// The logits after the last position, or with [`Decoding::Full`] after any: they are in the state then.
    ///
    /// # Errors
    /// [`Error::NonFiniteLogits`]: the weights are damaged.
    pub fn logits(&self, state: &mut State<'_>, position: u32) -> Result<(), Error> {
        let config = &self.config;
        let (d, vocab, loops) = (config.d_model as usize, config.vocab as usize, config.max_iter as usize);
        let State { facts, work, outs, decoding, logits, .. } = state;
        let net = facts.net(self);
        let row = if *decoding == Decoding::Full { position as usize } else { 0 };
        let len = d.saturating_add(1).saturating_mul(loops);
        let start = len.saturating_mul(row);
        let (results, scores) = split(outs.get_mut(start..start.saturating_add(len)).unwrap_or_default(), d.saturating_mul(loops));
        let Work { arm, tools, .. } = work;
        let (mean, rest) = split(arm, d);
        let (normed, inner) = split(rest, d);
        let counts = |iteration: usize| !config.use_mor || rank(scores, iteration) < config.mor_k as usize;
        let number = if config.use_mor { config.mor_k } else { config.max_iter };
        for (j, mean) in mean.iter_mut().enumerate() {
            let mut lanes: Lanes = [0.0; 8];
            for (iteration, result) in results.chunks_exact(d.max(1)).enumerate() {
                if let (Some(lane), Some(value)) = (lanes.get_mut(iteration & 7), result.get(j))
                    && counts(iteration)
                {
                    *lane += *value;
                }
            }
            *mean = tree(lanes) / number as f32;
        }
        rmsnorm(normed, mean, &net.tensor(Role::Norm), config.norm_eps);
        let (logits, _) = split(logits, vocab);
        net.project(logits, Layer::LmHead, normed, inner, tools);
        if all_finite(logits) { Ok(()) } else { Err(Error::NonFiniteLogits { position }) }
    }
}

/// One iteration of what was begun.
struct Run<'r, 'm, 'n, 'a> {
    net: Net<'n, 'a>,
    work: &'r mut Work<'m>,
    past: &'r mut Past<'m>,
    outs: &'r mut [f32],
    /// Those up to the one that is computed last.
    tokens: &'r [u32],
    context: u32,
    /// Positions that were computed before.
    done: u32,
}

impl<'r> Run<'r, '_, '_, '_> {
    fn known(&self) -> u32 {
        self.tokens.len() as u32
    }

    fn place(&self, position: u32) -> Place<'r> {
        Place { tokens: self.tokens.get(..=position as usize).unwrap_or(&[]), context: self.context }
    }

    fn iterate(&mut self, iteration: u32, position: u32, wanted: Wanted) {
        let place = self.place(position);
        block::iterate(&self.net, self.work, iteration, place, wanted);
    }

    fn begin(&mut self, position: u32) {
        let place = self.place(position);
        block::begin(&self.net, self.work, place);
    }

    /// Keeps the result of the iteration that just ran, in row `row`.
    fn keep_result(&mut self, iteration: u32, row: u32) {
        let config = self.net.config();
        let (d, loops) = (config.d_model as usize, config.max_iter as usize);
        let start = d.saturating_add(1).saturating_mul(loops).saturating_mul(row as usize);
        let (results, scores) = split(self.outs.get_mut(start..).unwrap_or_default(), d.saturating_mul(loops));
        let place = d.saturating_mul(iteration as usize);
        let out = results.get_mut(place..place.saturating_add(d)).unwrap_or_default();
        if let Some(score) = scores.get_mut(iteration as usize) {
            block::result(&self.net, self.work, iteration, out, score);
        }
    }

    /// The last position before its first iteration.
    fn begin_last(&mut self) {
        self.begin(self.known().saturating_sub(1));
    }

    /// The new position alone. For models without a recurrence that is all there is to do.
    fn new_alone(&mut self, iteration: u32) -> (u32, u32) {
        self.load_end(if self.done == 0 { iteration.checked_sub(1) } else { Some(iteration) });
        self.iterate(iteration, self.done, Wanted::Results);
        self.store_end(iteration);
        self.keep_result(iteration, 0);
        (0, 0)
    }

    /// Every position.
    fn everything(&mut self, iteration: u32) -> (u32, u32) {
        if iteration == 0 {
            self.work.state.fill(0.0);
        }
        for position in 0..self.known() {
            if iteration == 0 {
                self.begin(position);
            } else {
                self.load_stream(0, position);
            }
            self.iterate(iteration, position, Wanted::Results);
            self.store_stream(0, position);
            self.keep_result(iteration, position);
        }
        (0, 0)
    }

    /// The new positions, and of the old ones those that changed. Old positions before `changed` have another input for this iteration than they had. Returns how many were computed again,
    /// and `changed` for the next iteration.
    fn exactly(&mut self, iteration: u32, changed: u32) -> (u32, u32) {
        let last = iteration.saturating_add(1) == self.net.config().max_iter;
        let (again, changed) = match iteration.checked_sub(1) {
            None => {
                self.load_end(if self.done > 0 { Some(0) } else { None });
                (0, 0)
            }
            Some(before) => {
                self.load_end(Some(before));
                let (again, changed) = self.old_positions(iteration, changed, last);
                if again < self.done {
                    self.load_end(Some(iteration));
                }
                (again, changed)
            }
        };
        for position in self.done..self.known() {
            match iteration.checked_sub(1) {
                None => self.begin(position),
                Some(before) => self.load_stream(before, position),
            }
            self.iterate(iteration, position, Wanted::Results);
            if !last {
                self.store_stream(iteration, position);
            }
            self.keep_state(iteration, position);
            if position.saturating_add(1) == self.known() {
                self.keep_result(iteration, 0);
            }
        }
        self.store_end(iteration);
        (again, changed)
    }

    /// Computes old positions again until nothing changes any more: returns how many, and how many of them, from the first, may have changed the next iteration's input.
    fn old_positions(&mut self, iteration: u32, changed: u32, last: bool) -> (u32, u32) {
        let (mut position, mut changes, mut same) = (0, 0, false);
        while position < self.done && !(same && position >= changed) {
            self.load_stream(iteration - 1, position);
            if last {
                self.iterate(iteration, position, Wanted::State);
            } else {
                self.iterate(iteration, position, Wanted::Results);
                if self.store_stream(iteration, position) {
                    changes = position.saturating_add(1);
                }
            }
            same = self.keep_state(iteration, position);
            position = position.saturating_add(1);
        }
        (position, changes)
    }

    /// The running state becomes that behind the last position of an iteration, or that of the beginning.
    fn load_end(&mut self, iteration: Option<u32>) {
        match iteration {
            Some(iteration) => {
                let range = row(iteration, self.work.state.len());
                copy(self.work.state, self.past.ends.get(range).unwrap_or(&[]));
            }
            None => self.work.state.fill(0.0),
        }
    }

    fn store_end(&mut self, iteration: u32) {
        let range = row(iteration, self.work.state.len());
        copy(self.past.ends.get_mut(range).unwrap_or_default(), self.work.state);
    }

    fn stream_place(&self, table: u32, position: u32) -> core::ops::Range<usize> {
        let table = (self.context as usize).saturating_mul(table as usize);
        let start = table.saturating_add(position as usize).saturating_mul(self.work.stream.len());
        start..start.saturating_add(self.work.stream.len())
    }

    fn load_stream(&mut self, table: u32, position: u32) {
        let range = self.stream_place(table, position);
        copy(self.work.stream, self.past.streams.get(range).unwrap_or(&[]));
    }

    /// Keeps the stream; says whether it is another than the one that was kept.
    fn store_stream(&mut self, table: u32, position: u32) -> bool {
        let range = self.stream_place(table, position);
        replace(self.past.streams.get_mut(range).unwrap_or_default(), self.work.stream)
    }

    /// Keeps the running state if it is one of those that are kept; says whether it is, and the same as before.
    fn keep_state(&mut self, iteration: u32, position: u32) -> bool {
        let (Some(table), Some(place)) = (iteration.checked_sub(1), saved_place(position)) else { return false };
        let number = saved_states(self.context).saturating_mul(table).saturating_add(place);
        let range = row(number, self.work.state.len());
        !replace(self.past.saved.get_mut(range).unwrap_or_default(), self.work.state)
    }
}

fn row(number: u32, len: usize) -> core::ops::Range<usize> {
    let start = len.saturating_mul(number as usize);
    start..start.saturating_add(len)
}

fn copy(to: &mut [f32], from: &[f32]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to = *from;
    }
}

/// Copies, and says whether any bit changed.
fn replace(to: &mut [f32], from: &[f32]) -> bool {
    let mut changed = 0;
    for (to, from) in to.iter_mut().zip(from) {
        changed |= to.to_bits() ^ from.to_bits();
        *to = *from;
    }
    changed != 0
}

//! The steps of texts of a dormouse model on a device: which launches each call of a session comes to, and what is copied.
//!
//! Tokens that are fed are computed when something is asked for that depends on them: many at once where only the last counts, one after the other where the logits of each are wanted, which are
//! those of the text up to it. Each text has memory of its own for everything but the weights.

mod cost;
mod upload;

#[cfg(test)]
mod tests;

use super::decoder::{launched, up_to_logits, words};
use super::driver::Device;
use super::error::CudaError;
use super::family::Steps;
use cudarc::driver::CudaGraph;
use dmexp::accelerator::Row;
use dmexp_kernels::dormouse::{Plan, place};
use dmexp_kernels::plan::NOT_FINITE;
use dmexp_kernels::{Contents, Launch, Step};

pub(super) use cost::{a_step, cost_of, shapes};
pub(super) use upload::Weights;

/// The most tokens that are fed at once.
pub(super) const BLOCK: u32 = 64;
/// Tokens that are chosen one after the other before they are read.
const CHUNK: u32 = 32;

/// A model on a device.
pub(super) struct Decoder {
    // Before the device: graphs go before what they were recorded on.
    texts: Vec<Text>,
    device: Device,
    plan: Plan,
}

/// A text, and its memory.
struct Text {
    graphs: Option<Graphs>,
    addresses: Vec<u64>,
    step: Step,
    /// How many pieces of other texts come before its own.
    before: usize,
    /// The session whose text it is, and that text.
    session: u64,
    tokens: Vec<u32>,
    /// Positions of it that were computed.
    done: u32,
    /// The row of which parts are done, and how many.
    parts: Option<(Row, u32)>,
}

/// One launch a step, in place of some tens.
struct Graphs {
    /// A token, up to its logits.
    logits: CudaGraph,
    /// The same, and the choice of the next.
    choice: CudaGraph,
}

impl Decoder {
    /// A model whose pieces are filled but for the tables of products: the weights are at the first of `addresses`, and everything else of each of `texts` texts follows. With `graphs` the launches
    /// of a step are recorded once.
    pub(super) fn new(mut device: Device, plan: Plan, addresses: &[u64], texts: usize, graphs: bool) -> Result<Self, CudaError> {
        let (weights, others) = addresses.split_at_checked(plan.weight_pieces()).unwrap_or_default();
        let pieces = plan.pieces().len().saturating_sub(weights.len()).max(1);
        let mut all = Vec::new();
        for (number, own) in others.chunks_exact(pieces).take(texts).enumerate() {
            let addresses = [weights, own].concat();
            let (step, before) = (plan.step(&addresses, 1), number * pieces);
            if let Some(table) = plan.pieces().iter().position(|piece| piece.contents == Contents::Table) {
                device.fill(table + before, &plan.table(&addresses))?;
            }
            device.wait()?;
            let graphs = if graphs {
                Some(Graphs { logits: device.record(up_to_logits(&step))?, choice: device.record(step.launches())? })
            } else {
                None
            };
            all.push(Text { graphs, addresses, step, before, session: 0, tokens: Vec::new(), done: 0, parts: None });
        }
        Ok(Self { texts: all, device, plan })
    }

    /// The text of a session, with what it is on.
    fn of(&mut self, session: u64) -> Result<(&mut Text, On<'_>), CudaError> {
        let number = session % (self.texts.len() as u64).max(1);
        // There is memory for one text at least.
        let text = self.texts.get_mut(number as usize).ok_or(CudaError::Failed { doing: "a step", code: 1 })?;
        Ok((text, On { device: &mut self.device, plan: &self.plan }))
    }
}

impl Steps for Decoder {
    fn feed(&mut self, rows: &[Row]) -> Result<(), CudaError> {
        rows.iter().try_for_each(|row| {
            let (text, mut on) = self.of(row.session)?;
            text.tell(&mut on, *row)
        })
    }

    fn logits(&mut self, session: u64, position: u32, rows: u32) -> Result<Option<Vec<f32>>, CudaError> {
        let (text, mut on) = self.of(session)?;
        let end = u64::from(position) + u64::from(rows);
        if rows == 0 || session != text.session || end > text.tokens.len() as u64 {
            return Ok(None);
        }
        let mut all = Vec::new();
        for known in (position + 1..).take(rows as usize) {
            if text.done > known {
                text.done = 0;
            }
            text.compute(&mut on, known)?;
            text.set_state(&mut on, known - 1)?;
            on.launch(&text.step.head)?;
            all.extend(text.logits(&on)?);
        }
        Ok(Some(all))
    }

    fn step(&mut self, row: Row) -> Result<Vec<f32>, CudaError> {
        let (text, mut on) = self.of(row.session)?;
        text.begin(&mut on, row)?;
        match &text.graphs {
            Some(graphs) => launched(&graphs.logits)?,
            None => on.launch(up_to_logits(&text.step))?,
        }
        text.done = row.position + 1;
        text.logits(&on)
    }

    /// The tokens stay on the device but for the end of every [`CHUNK`].
    fn run(&mut self, row: Row, count: u32) -> Result<Vec<u32>, CudaError> {
        let (text, mut on) = self.of(row.session)?;
        let (mut chosen, mut next) = (Vec::new(), row);
        while (chosen.len() as u64) < u64::from(count) {
            let found = text.choose(&mut on, next, (count - chosen.len() as u32).min(CHUNK))?;
            let last = found.last().copied().unwrap_or(NOT_FINITE);
            next = Row { token: last, position: next.position + found.len() as u32, ..row };
            chosen.extend(found);
            if last == NOT_FINITE {
                break;
            }
        }
        Ok(chosen)
    }

    fn part(&mut self, part: u32, row: Row) -> Result<Vec<f32>, CudaError> {
        let (text, mut on) = self.of(row.session)?;
        let done = text.parts.filter(|(of, done)| *of == row && *done <= part).map_or(0, |(_, done)| done);
        if done == 0 {
            text.begin(&mut on, row)?;
        }
        for part in done..=part {
            match part.checked_sub(1) {
                None => on.launch(&text.step.embed)?,
                Some(iteration) => on.launch(text.step.layers.get(iteration as usize).into_iter().flatten())?,
            }
        }
        text.parts = Some((row, part + 1));
        if part >= on.plan.config().max_iter {
            text.done = row.position + 1;
        }
        let d = on.plan.config().d_model as usize;
        let padded = d.next_multiple_of(128);
        let stored = on.floats(text.before + on.plan.stream(part), padded * row.position as usize, padded)?;
        Ok((0..d).map(|i| stored.get(place(i)).copied().unwrap_or(f32::NAN)).collect())
    }
}

/// What texts are computed on.
struct On<'d> {
    device: &'d mut Device,
    plan: &'d Plan,
}

impl On<'_> {
    fn launch<'l>(&self, launches: impl IntoIterator<Item = &'l Launch>) -> Result<(), CudaError> {
        launches.into_iter().try_for_each(|launch| self.device.launch(launch))
    }

    fn floats(&self, piece: usize, first: usize, count: usize) -> Result<Vec<f32>, CudaError> {
        let mut bytes = vec![0; 4 * count];
        self.device.read(piece, 4 * first, &mut bytes)?;
        Ok(bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect())
    }
}

impl Text {
    /// Makes ready for the launches of one row: what comes before it is computed.
    fn begin(&mut self, on: &mut On<'_>, row: Row) -> Result<(), CudaError> {
        self.tell(on, row)?;
        self.compute(on, row.position)?;
        self.set_state(on, row.position)
    }

    /// So many steps from `row` on, each of which feeds what the one before it chose; what each chose.
    fn choose(&mut self, on: &mut On<'_>, row: Row, steps: u32) -> Result<Vec<u32>, CudaError> {
        self.begin(on, row)?;
        for _ in 0..steps {
            match &self.graphs {
                Some(graphs) => launched(&graphs.choice)?,
                None => on.launch(self.step.launches())?,
            }
        }
        self.done = row.position + steps;
        let mut bytes = vec![0; 4 * steps as usize];
        on.device.read(self.before + on.plan.picks(), 4 * row.position as usize, &mut bytes)?;
        let chosen: Vec<u32> = bytes.as_chunks().0.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect();
        self.tokens.extend(chosen.iter().take((steps as usize).saturating_sub(1)));
        Ok(chosen)
    }

    /// Notes a token, and puts it where the kernels read it. What was known from its position on is forgotten.
    fn tell(&mut self, on: &mut On<'_>, row: Row) -> Result<(), CudaError> {
        self.leave_parts(on);
        if row.session != self.session {
            (self.session, self.done) = (row.session, 0);
            self.tokens.clear();
        }
        if self.tokens.len() < row.position as usize {
            // Nobody feeds a token whose forerunners are not known.
            return Err(CudaError::Failed { doing: "a step", code: 1 });
        }
        self.tokens.truncate(row.position as usize);
        self.tokens.push(row.token);
        if self.done > row.position {
            // The states are those behind positions that are known no more: all is computed anew when it is needed.
            self.done = 0;
        }
        on.device.write(self.before + on.plan.tokens(), 4 * row.position as usize, &words(&[row.token]))
    }

    /// Gives up a row that was begun: some iterations' states are behind it already.
    fn leave_parts(&mut self, on: &On<'_>) {
        if self.parts.take().is_some_and(|(_, done)| (2..=on.plan.config().max_iter).contains(&done)) {
            self.done = 0;
        }
    }

    /// Computes what is missing up to the `known`th token.
    fn compute(&mut self, on: &mut On<'_>, known: u32) -> Result<(), CudaError> {
        if self.done < known {
            self.leave_parts(on);
        }
        let at_once = on.plan.settings().exact || on.plan.config().is_causal();
        while self.done < known {
            // Decoded fast, old positions stay as they are, so every new one goes through all iterations by itself.
            let count = if at_once { known - self.done } else { 1 };
            self.set_state(on, self.done)?;
            if count == 1 {
                on.launch(self.step.embed.iter().chain(self.step.layers.iter().flatten()))?;
            } else {
                let step = on.plan.step(&self.addresses, count);
                on.launch(step.embed.iter().chain(step.layers.iter().flatten()))?;
            }
            self.done += count;
        }
        Ok(())
    }

    /// So many positions were computed, and the token of the next one is given.
    fn set_state(&self, on: &mut On<'_>, position: u32) -> Result<(), CudaError> {
        on.device.write(self.before + on.plan.state(), 0, &words(&[position, position + 1, 0, 0]))
    }

    fn logits(&self, on: &On<'_>) -> Result<Vec<f32>, CudaError> {
        on.floats(self.before + on.plan.logits(), 0, on.plan.config().vocab as usize)
    }
}

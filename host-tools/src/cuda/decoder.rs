//! The steps of one text on a device: which launches each call of the session comes to, and what is copied.

use super::driver::Device;
use super::error::CudaError;
use cudarc::driver::CudaGraph;
use dmexp_kernels::plan::NOT_FINITE;
use dmexp_kernels::{COLUMNS, Launch, Plan, Step};
use std::collections::VecDeque;

/// The most tokens that are chosen ahead of the session.
const AHEAD: u32 = 32;

/// A model on a device.
pub(super) struct Decoder {
    // Before the device: graphs go before what they were recorded on.
    graphs: Option<Graphs>,
    device: Device,
    plan: Plan,
    addresses: Vec<u64>,
    step: Step,
    vocab_size: u32,
    dim: u32,
    /// Where the logits are that can be asked for.
    last: Last,
    /// Tokens that were chosen and not asked for yet: position, the token there, the likeliest after it.
    ahead: VecDeque<(u32, u32, u32)>,
    /// How many are chosen at once next time.
    chunk: u32,
    /// The first failure. After it nothing is tried any more: what is on the device may be lost.
    failed: Option<CudaError>,
}

/// One launch a step, in place of some tens.
struct Graphs {
    /// A token, up to its logits.
    logits: CudaGraph,
    /// The same, and the choice of the next.
    choice: CudaGraph,
}

/// What was fed last.
#[derive(Clone, Copy, PartialEq)]
enum Last {
    /// A token by itself, whose logits are not computed.
    Token,
    /// This many at once.
    Block(u32),
}

impl Decoder {
    /// A model whose pieces are filled. With `graphs` the launches of a step are recorded once.
    pub(super) fn new(
        device: Device,
        plan: Plan,
        addresses: Vec<u64>,
        (vocab_size, dim): (u32, u32),
        graphs: bool,
    ) -> Result<Self, CudaError> {
        let step = plan.step(&addresses);
        device.wait()?;
        let graphs = if graphs {
            let logits = step.embed.iter().chain(step.layers.iter().flatten()).chain(&step.head);
            Some(Graphs { logits: device.record(logits)?, choice: device.record(step.launches())? })
        } else {
            None
        };
        let (last, ahead) = (Last::Token, VecDeque::new());
        Ok(Self { graphs, device, plan, addresses, step, vocab_size, dim, last, ahead, chunk: 1, failed: None })
    }

    /// Does `act` unless something failed before, and remembers a failure.
    pub(super) fn attempt<R>(&mut self, act: impl FnOnce(&mut Self) -> Result<R, CudaError>) -> Result<R, CudaError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let done = act(self);
        if let Err(error) = &done {
            self.failed = Some(error.clone());
        }
        done
    }

    /// Feeds tokens from `position` on.
    pub(super) fn feed(&mut self, tokens: &[u32], position: u32) -> Result<(), CudaError> {
        self.place(tokens, position)?;
        let count = tokens.len() as u32;
        if count == 1 {
            self.last = Last::Token;
            self.launch(self.step.embed.iter().chain(self.step.layers.iter().flatten()))?;
        } else {
            self.last = Last::Block(count);
            self.launch(&self.plan.block(&self.addresses, count.min(COLUMNS)))?;
        }
        self.device.wait()
    }

    /// The logits of `rows` tokens of those that were fed last, from number `first` on.
    pub(super) fn logits(&mut self, first: u32, rows: u32) -> Result<Vec<f32>, CudaError> {
        match self.last {
            Last::Token => self.launch(&self.step.head)?,
            Last::Block(_) => self.launch(&self.plan.block_logits(&self.addresses, first, rows))?,
        }
        self.read_floats(self.plan.logits(), rows as usize * self.vocab_size as usize)
    }

    /// Feeds one token; its logits.
    pub(super) fn step(&mut self, token: u32, position: u32) -> Result<Vec<f32>, CudaError> {
        self.place(&[token], position)?;
        self.last = Last::Token;
        match &self.graphs {
            Some(graphs) => graphs.logits.launch().map_err(|error| CudaError::Failed { doing: "a step", code: error.0 as u32 })?,
            None => self.launch(self.step.embed.iter().chain(self.step.layers.iter().flatten()).chain(&self.step.head))?,
        }
        self.read_floats(self.plan.logits(), self.vocab_size as usize)
    }

    /// Feeds one token; the likeliest after it, [`NOT_FINITE`] where a logit is no number. More are chosen ahead: the session mostly asks for them next.
    pub(super) fn choose(&mut self, token: u32, position: u32) -> Result<u32, CudaError> {
        self.last = Last::Token;
        match self.ahead.pop_front() {
            Some((at, fed, chosen)) if (at, fed) == (position, token) => return Ok(chosen),
            // Not what was foreseen: a new text, or another token in the place of the one that was chosen.
            Some(_) => self.chunk = 1,
            None => self.chunk = (2 * self.chunk).min(AHEAD),
        }
        self.place(&[token], position)?;
        let count = self.chunk.min(self.plan.context().saturating_sub(position)).max(1);
        self.choose_on_device(count)?;
        let mut fed = token;
        for (at, chosen) in (position..).zip(self.read_words(self.plan.picks(), position, count)?) {
            self.ahead.push_back((at, fed, chosen));
            if chosen == NOT_FINITE {
                break;
            }
            fed = chosen;
        }
        Ok(self.ahead.pop_front().map_or(NOT_FINITE, |(_, _, chosen)| chosen))
    }

    /// Feeds one token and `count - 1` more, each the likeliest after the one before it; the likeliest after each.
    pub(super) fn run(&mut self, token: u32, position: u32, count: u32) -> Result<Vec<u32>, CudaError> {
        self.last = Last::Token;
        self.place(&[token], position)?;
        let (mut chosen, mut done) = (Vec::new(), 0);
        while done < count {
            let chunk = (count - done).min(AHEAD);
            self.choose_on_device(chunk)?;
            chosen.extend(self.read_words(self.plan.picks(), position + done, chunk)?);
            done += chunk;
        }
        Ok(chosen)
    }

    /// One part of feeding a token; the residual stream after it.
    pub(super) fn part(&mut self, part: u32, token: u32, position: u32) -> Result<Vec<f32>, CudaError> {
        self.last = Last::Token;
        let launches = match part.checked_sub(1) {
            None => {
                self.place(&[token], position)?;
                Some(&self.step.embed)
            }
            Some(layer) => self.step.layers.get(layer as usize),
        };
        self.launch(launches.into_iter().flatten())?;
        self.read_floats(self.plan.x(), self.dim as usize)
    }

    /// So many steps, each of which feeds what the one before it chose.
    fn choose_on_device(&self, steps: u32) -> Result<(), CudaError> {
        (0..steps).try_for_each(|_| match &self.graphs {
            Some(graphs) => graphs.choice.launch().map_err(|error| CudaError::Failed { doing: "a step", code: error.0 as u32 }),
            None => self.launch(self.step.launches()),
        })
    }

    /// Puts tokens where the kernels read them, and the position before the first of them.
    fn place(&mut self, tokens: &[u32], position: u32) -> Result<(), CudaError> {
        self.ahead.clear();
        self.device.write(self.plan.tokens(), 4 * position as usize, &words(tokens))?;
        self.device.write(self.plan.state(), 0, &words(&[position, position + tokens.len() as u32, 0, 0]))
    }

    fn launch<'l>(&self, launches: impl IntoIterator<Item = &'l Launch>) -> Result<(), CudaError> {
        launches.into_iter().try_for_each(|launch| self.device.launch(launch))
    }

    fn read_floats(&self, piece: usize, count: usize) -> Result<Vec<f32>, CudaError> {
        let mut bytes = vec![0; 4 * count];
        self.device.read(piece, 0, &mut bytes)?;
        Ok(bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect())
    }

    fn read_words(&self, piece: usize, first: u32, count: u32) -> Result<Vec<u32>, CudaError> {
        let mut bytes = vec![0; 4 * count as usize];
        self.device.read(piece, 4 * first as usize, &mut bytes)?;
        Ok(bytes.as_chunks().0.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect())
    }
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

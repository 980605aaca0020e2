//! Models of either family on a device, behind one face: what memory they take, what it holds, and what a session asks of them.

use super::cost::{Cost, Machine};
use super::driver::Device;
use super::error::CudaError;
use super::{decoder, dormouse, upload};
use dmexp::Model;
use dmexp::accelerator::Row;
use dmexp::models::llama::Llama;
use dmexp_format::layout::Decoding;
use dmexp_kernels::plan::{NOT_FINITE, bytes_of};
use dmexp_kernels::{COLUMNS, Contents, Piece};
use std::collections::VecDeque;

/// The most tokens that are chosen ahead of the session.
const AHEAD: u32 = 32;

/// A model's weights, as its kernels read them.
pub(super) enum Weights<'n, 'a> {
    Llama(&'n Llama<'a>),
    Dormouse(dormouse::Weights<'n, 'a>),
}

/// The memory of a model, and which kernels run on it.
#[derive(Clone, Debug)]
pub(super) enum Plan {
    Llama(Box<dmexp_kernels::Plan>),
    /// The plan of one text, how many there are, and the pieces for all of them.
    Dormouse(Box<dmexp_kernels::dormouse::Plan>, u32, Vec<Piece>),
}

impl<'n, 'a> Weights<'n, 'a> {
    /// Those of `model`.
    pub(super) fn new(model: &'n Model<'a>) -> Result<Self, CudaError> {
        match (model.network().llama(), model.network().dormouse()) {
            (Some(network), _) => Ok(Self::Llama(network)),
            (_, Some(_)) if model.decoding() == Decoding::Full => Err(CudaError::Unsupported("--decoding full and --convention full")),
            (_, Some(network)) => dormouse::Weights::new(network).map(Self::Dormouse),
            _ => Err(CudaError::Unsupported("models of this architecture")),
        }
    }

    /// The plan for sessions of `model`, as many at a time as `texts` and the family allow.
    pub(super) fn plan(&self, model: &Model<'_>, texts: u32, shared: u32) -> Result<Plan, CudaError> {
        match self {
            Self::Llama(network) => {
                let tensor = |number| upload::tensor(network, number);
                let plan = dmexp_kernels::Plan::for_texts(texts, *network.config(), tensor, (model.context(), model.kv()), shared);
                plan.map(|plan| Plan::Llama(Box::new(plan))).map_err(CudaError::Refused)
            }
            Self::Dormouse(weights) => weights.plan(model).map(|plan| {
                // Each text has everything but the weights.
                let (weights, own) = plan.pieces().split_at(plan.weight_pieces().min(plan.pieces().len()));
                let pieces = weights.iter().chain((0..texts.max(1)).flat_map(|_| own)).cloned().collect();
                Plan::Dormouse(Box::new(plan), texts.max(1), pieces)
            }),
        }
    }

    /// The bytes of a piece; `None` for zeros.
    pub(super) fn bytes(&self, plan: &Plan, contents: Contents) -> Result<Option<Vec<u8>>, CudaError> {
        match (self, plan) {
            (Self::Llama(network), Plan::Llama(plan)) => upload::bytes(network, plan, contents),
            (Self::Dormouse(weights), Plan::Dormouse(plan, ..)) => weights.bytes(plan, contents),
            _ => Ok(None),
        }
    }
}

impl Plan {
    pub(super) fn pieces(&self) -> &[Piece] {
        match self {
            Self::Llama(plan) => plan.pieces(),
            Self::Dormouse(_, _, pieces) => pieces,
        }
    }

    pub(super) fn bytes(&self, alignment: u64) -> u64 {
        match self {
            Self::Llama(plan) => plan.bytes(alignment),
            Self::Dormouse(_, _, pieces) => bytes_of(pieces, alignment),
        }
    }

    pub(super) fn context(&self) -> u32 {
        match self {
            Self::Llama(plan) => plan.context(),
            Self::Dormouse(plan, ..) => plan.settings().context,
        }
    }

    /// Sessions that there is memory for at the same time.
    pub(super) fn texts(&self) -> u32 {
        match self {
            Self::Llama(plan) => plan.texts(),
            Self::Dormouse(_, texts, _) => *texts,
        }
    }

    /// Tokens that are fed at once, at most.
    pub(super) const fn block(&self) -> u32 {
        match self {
            Self::Llama(_) => COLUMNS,
            Self::Dormouse(..) => dormouse::BLOCK,
        }
    }

    /// What a step at `position` should cost on `machine`.
    pub(super) fn cost(&self, position: u32, machine: &Machine) -> Cost {
        match self {
            Self::Llama(plan) => Cost::new(plan, position, machine),
            Self::Dormouse(plan, ..) => Cost::of(dormouse::a_step(plan), machine),
        }
    }

    /// A model whose memory is filled: the sizes of logits and residual stream, and whether there are graphs.
    pub(super) fn decoder(self, device: Device, addresses: Vec<u64>, sizes: (u32, u32), graphs: bool) -> Result<Decoder, CudaError> {
        let context = self.context();
        let steps: Box<dyn Steps> = match self {
            Self::Llama(plan) => Box::new(decoder::Decoder::new(device, *plan, addresses, sizes, graphs)?),
            Self::Dormouse(plan, texts, _) => Box::new(dormouse::Decoder::new(device, *plan, &addresses, texts as usize, graphs)?),
        };
        Ok(Decoder { steps, context, ahead: VecDeque::new(), chunk: 1, failed: None })
    }
}

/// What the families do each in their way.
pub(super) trait Steps {
    /// Feeds rows, of one session or of several.
    fn feed(&mut self, rows: &[Row]) -> Result<(), CudaError>;

    /// So many rows of logits, from the one after the row of `session` at `position` on, among those that were fed last; `None` where that is not there.
    fn logits(&mut self, session: u64, position: u32, rows: u32) -> Result<Option<Vec<f32>>, CudaError>;

    /// Feeds one row; its logits.
    fn step(&mut self, row: Row) -> Result<Vec<f32>, CudaError>;

    /// Feeds one row and `count - 1` more, each the likeliest after the one before it; the likeliest after each, [`NOT_FINITE`] where a logit is no number.
    fn run(&mut self, row: Row, count: u32) -> Result<Vec<u32>, CudaError>;

    /// One part of feeding a row; the residual stream after it. What another row left of the parts before it is done anew.
    fn part(&mut self, part: u32, row: Row) -> Result<Vec<f32>, CudaError>;
}

/// A model on a device.
pub(super) struct Decoder {
    steps: Box<dyn Steps>,
    context: u32,
    /// Tokens that were chosen and not asked for yet: the row, and the likeliest after it.
    ahead: VecDeque<(Row, u32)>,
    /// How many are chosen at once next time.
    chunk: u32,
    /// The first failure. After it nothing is tried any more: what is on the device may be lost.
    failed: Option<CudaError>,
}

impl Decoder {
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

    /// What the family does, which is something else than what was done ahead.
    pub(super) fn steps(&mut self) -> &mut dyn Steps {
        self.ahead.clear();
        self.steps.as_mut()
    }

    /// Feeds one row; the likeliest token after it, [`NOT_FINITE`] where a logit is no number. More are chosen ahead: the session mostly asks for them next.
    pub(super) fn choose(&mut self, row: Row) -> Result<u32, CudaError> {
        match self.ahead.pop_front() {
            Some((foreseen, chosen)) if foreseen == row => return Ok(chosen),
            // Not what was foreseen: a new text, or another token in the place of the one that was chosen.
            Some(_) => self.chunk = 1,
            None => self.chunk = (2 * self.chunk).min(AHEAD),
        }
        let count = self.chunk.min(self.context.saturating_sub(row.position)).max(1);
        let mut fed = row;
        for (position, chosen) in (row.position..).zip(self.steps().run(row, count)?) {
            self.ahead.push_back((Row { position, ..fed }, chosen));
            if chosen == NOT_FINITE {
                break;
            }
            fed.token = chosen;
        }
        Ok(self.ahead.pop_front().map_or(NOT_FINITE, |(_, chosen)| chosen))
    }
}

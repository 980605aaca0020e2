//! What a session of a dormouse model keeps in memory, carved from the arena by [`DormouseLayout`].

use super::Dormouse;
use super::linear::{Net, Tools};
use crate::arena::{Carve, banks};
use crate::format::arch::dormouse::layout::{Decoding, DormouseLayout};
use crate::format::arch::dormouse::tensors::Role;
use crate::format::arch::dormouse::{Attention, DormouseConfig};
use crate::format::{Error, KvDType};
use crate::ops::columns::mean_magnitude;
use crate::ops::kv::is_built;
use crate::ops::math::exp;

/// The memory of a session.
#[derive(Debug)]
pub struct State<'m> {
    pub(super) facts: Facts<'m>,
    pub(super) work: Work<'m>,
    pub(super) past: Past<'m>,
    /// The results of every iteration, then their scores: of the last position, or of all.
    pub(super) outs: &'m mut [f32],
    pub(super) decoding: Decoding,
    pub(super) context: u32,
    /// Positions that were computed.
    pub(super) done: u32,
    /// Positions that will be once what was begun is finished; more than `done` until then.
    pub(super) goal: u32,
    /// Iterations of it that are finished.
    pub(super) iteration: u32,
    /// Old positions before this one have another input for the next iteration than they had.
    pub(super) changed: u32,
    /// Positions that were computed again since the beginning, over all iterations.
    pub(super) again: u64,
    pub(crate) logits: &'m mut [f32],
    pub(crate) tokens: &'m mut [u32],
    prompt: &'m mut [u32],
}

/// What was found out when the session began.
#[derive(Debug)]
pub(super) struct Facts<'m> {
    places: &'m mut [u32],
    means: &'m mut [f32],
    decay: &'m mut [f32],
    inv_freq: &'m mut [f32],
}

/// Room for one iteration at one position.
#[derive(Debug)]
pub(super) struct Work<'m> {
    /// What the iteration begins with, and then ends with.
    pub(super) stream: &'m mut [f32],
    /// The running state of the recurrence.
    pub(super) state: &'m mut [f32],
    pub(super) kv: &'m mut [f32],
    pub(super) rotation: &'m mut [f32],
    pub(super) vectors: &'m mut [f32],
    pub(super) raw: &'m mut [f32],
    pub(super) arm: &'m mut [f32],
    pub(super) tools: Tools<'m>,
}

/// What is kept of the positions before.
#[derive(Debug)]
pub(super) struct Past<'m> {
    pub(super) streams: &'m mut [f32],
    pub(super) ends: &'m mut [f32],
    pub(super) saved: &'m mut [f32],
}

impl<'m> State<'m> {
    /// Carves `memory` (or, for what is kept of the positions before, `memory`, and for the rest `work`) for `model` by `layout`, which is the one for `context` positions and `decoding`. Reads every ternary factor of a format-1 file once.
    ///
    /// # Errors
    /// [`Error::ArenaTooSmall`], [`Error::BankTooSmall`]; [`Error::KvNotBuilt`] for a model with plain attention in a build without `kv-f32`.
    #[inline(never)]
    pub fn new(
        model: &Dormouse<'_>,
        layout: &DormouseLayout,
        (context, decoding): (u32, Decoding),
        memory: &'m mut [u32],
        work: Option<&'m mut [u32]>,
    ) -> Result<Self, Error> {
        if model.config.attention == Attention::Plain && !is_built(KvDType::F32) {
            return Err(Error::KvNotBuilt { kv: KvDType::F32 });
        }
        let (past, work) = banks((layout.past_bytes(), layout.total_bytes), memory, work)?;
        let (mut past, mut carve) = (Carve::new(past), Carve::new(work));
        let places = carve.words(layout.places);
        let means = carve.floats(layout.means);
        let decay = carve.floats(layout.decay);
        let third = layout.rotation / 3;
        let mut state = Self {
            facts: Facts { places, means, decay, inv_freq: carve.floats(third) },
            work: Work {
                rotation: carve.floats(layout.rotation - third),
                stream: carve.floats(layout.stream),
                state: carve.floats(layout.state),
                kv: past.floats(layout.kv),
                vectors: carve.floats(layout.vectors),
                raw: carve.floats(layout.raw),
                arm: carve.floats(layout.arm),
                tools: Tools { lanes: carve.floats(layout.lanes), activation: carve.floats(layout.activation) },
            },
            past: Past { streams: past.floats(layout.streams), ends: past.floats(layout.ends), saved: past.floats(layout.saved) },
            outs: past.floats(layout.outs),
            decoding: if model.config.is_causal() { Decoding::Fast } else { decoding },
            context,
            done: 0,
            goal: 0,
            iteration: 0,
            changed: 0,
            again: 0,
            logits: carve.floats(layout.logits),
            tokens: carve.words(layout.tokens / 2),
            prompt: carve.words(layout.tokens / 2),
        };
        state.facts.fill(model);
        Ok(state)
    }

    /// Forgets the text.
    pub fn reset(&mut self) {
        self.done = 0;
        self.goal = 0;
        self.iteration = 0;
        self.changed = 0;
        self.again = 0;
    }

    /// How many times a position was computed again in an iteration, since the text began.
    pub fn computed_again(&self) -> u64 {
        self.again
    }

    /// Whether some iterations of what was begun are left to do.
    pub(crate) fn is_begun(&self) -> bool {
        self.goal > self.done
    }

    /// How many positions will have been computed once what was begun is finished.
    pub(crate) fn goal(&self) -> u32 {
        self.goal
    }

    /// How old positions are treated; [`Decoding::Fast`] where that is exact.
    pub(crate) fn decoding(&self) -> Decoding {
        self.decoding
    }

    /// The stream of the position that was computed last.
    pub(crate) fn stream(&self) -> &[f32] {
        self.work.stream
    }

    /// Room to encode a prompt in, and the tokens.
    pub(crate) fn for_prompt(&mut self) -> (&mut [u32], &mut [u32]) {
        (self.prompt, self.tokens)
    }

    /// The logits that were computed last, the sampler's room for an order of them, and the tokens.
    pub(crate) fn for_sampler(&mut self, vocab: u32) -> (&mut [f32], &mut [u32], &[u32]) {
        let (logits, order) = super::split(self.logits, vocab as usize);
        (logits, bytemuck::cast_slice_mut(order), self.tokens)
    }
}

impl Facts<'_> {
    fn fill(&mut self, model: &Dormouse<'_>) {
        model.find(self.places);
        let config = &model.config;
        if !model.is_turned() {
            for (number, mean) in (0..).zip(self.means.iter_mut()) {
                if let Some(spec) = config.tensor(number)
                    && spec.form.is_factor()
                {
                    *mean = mean_magnitude(&model.tensor(self.places, spec.role));
                }
            }
        }
        if config.attention == Attention::Kda {
            let logs = model.tensor(self.places, Role::DecayLog);
            for (head, factor) in self.decay.iter_mut().enumerate() {
                *factor = decay_factor(logs.get_float(head));
            }
        }
        frequencies(config, self.inv_freq);
    }

    /// The model with what was found out about it.
    pub(super) fn net<'n, 'a>(&'n self, model: &'n Dormouse<'a>) -> Net<'n, 'a> {
        Net { model, places: self.places, means: self.means, decay: self.decay, inv_freq: self.inv_freq }
    }
}

/// What a head's decay is multiplied by: the exponential of its logarithm, within bounds.
pub(super) fn decay_factor(log: f32) -> f32 {
    let log = if log > 20.0 { 20.0 } else { log };
    exp(if log < -10.0 { -10.0 } else { log })
}

/// 10000 to the power of -2 i / `head_dim`. In double precision, which every machine computes alike, from products of one root: the relative error is below 1e-13, so nearly every
/// frequency is the nearest `f32`.
fn frequencies(config: &DormouseConfig, out: &mut [f32]) {
    // ln(10000) / (head_dim / 2).
    let step = 9.210_340_371_976_184 / f64::from(config.head_dim / 2);
    let root = exp_of_small(-step);
    let mut power = 1.0f64;
    for frequency in out {
        *frequency = power as f32;
        power *= root;
    }
}

/// e to the power of `x`, for -10 < x <= 0: the series of x / 1024, squared ten times.
fn exp_of_small(x: f64) -> f64 {
    let r = x / 1024.0;
    // Below 1e-2, so that the ninth power is below 1e-18 of the whole.
    let mut series = 1.0;
    for n in [8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0] {
        series = 1.0 + series * (r / n);
    }
    for _ in 0..10 {
        series *= series;
    }
    series
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frequencies_are_those_of_the_formula() {
        for head_dim in [2, 8, 64, 128, 130] {
            let config = DormouseConfig { head_dim, ..DormouseConfig::DEFAULT };
            let mut out = vec![0.0; head_dim as usize / 2];
            frequencies(&config, &mut out);
            for (i, found) in out.iter().enumerate() {
                let exact = 10_000f64.powf(-2.0 * i as f64 / f64::from(head_dim));
                assert!((f64::from(*found) - exact).abs() <= 6.1e-8 * exact, "{i} of {head_dim}: {found:e}");
            }
        }
    }
}

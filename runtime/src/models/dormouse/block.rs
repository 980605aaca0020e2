//! One iteration of the loop at one position.

use super::act_quant::{Grid, round_to};
use super::kda::Wanted;
use super::linear::Net;
use super::state::Work;
use super::{attention, experts, kda, memory, residual, split};
use crate::format::arch::dormouse::tensors::{Layer, Role};
use crate::format::arch::dormouse::{Attention, Residual};
use crate::ops::math::sigmoid;
use crate::ops::matvec::widen_row;
use crate::ops::norm::rmsnorm;
use crate::ops::sum::dot8;

/// The position that is computed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place<'t> {
    /// The tokens up to it, and itself.
    pub(super) tokens: &'t [u32],
    /// Positions of the context.
    pub(super) context: u32,
}

impl Place<'_> {
    fn position(&self) -> u32 {
        (self.tokens.len() as u32).saturating_sub(1)
    }

    fn token(&self) -> usize {
        self.tokens.last().map_or(usize::MAX, |token| *token as usize)
    }
}

/// The stream of a position before its first iteration.
pub(super) fn begin(net: &Net<'_, '_>, work: &mut Work<'_>, place: Place<'_>) {
    let (embedding, _) = split(work.vectors, net.config().d_model as usize);
    widen_row(embedding, &net.tensor(Role::Embedding), place.token());
    residual::begin(net, work.stream, embedding);
}

/// Runs iteration `iteration`: the stream before it becomes the stream after it, and the recurrence's state goes on by one position. With [`Wanted::State`] the stream is left as it is.
#[inline(never)]
pub(super) fn iterate(net: &Net<'_, '_>, work: &mut Work<'_>, iteration: u32, place: Place<'_>, wanted: Wanted) {
    let config = net.config();
    let d = config.d_model as usize;
    let Work { stream, state, kv, rotation, vectors, raw, arm, tools } = work;
    let (h, rest) = split(vectors, d);
    let (x, rest) = split(rest, d);
    let (rounded, rest) = split(rest, d);
    let (y, both) = split(rest, d);
    // The controller reads what the iteration begins with and the embedding, one after the other.
    {
        let (context, embedding) = split(both, d);
        widen_row(embedding, &net.tensor(Role::Embedding), place.token());
        residual::read(net, iteration, stream, embedding, h, arm, tools);
        let added = net.tensor(Role::IterEmbed);
        let start = d.saturating_mul(iteration as usize);
        for (j, (context, h)) in context.iter_mut().zip(h.iter()).enumerate() {
            *context = *h + added.get_float(start.saturating_add(j));
        }
        if config.residual == Residual::Gr {
            x.iter_mut().zip(context.iter()).for_each(|(x, context)| *x = *context);
        } else {
            rmsnorm(x, context, &net.tensor(Role::LoopNorm), config.norm_eps);
        }
    }
    let for_attention = match Grid::of_attention(config.act_quant) {
        Some(grid) => {
            round_to(rounded, x, grid, config.act_group as usize);
            &*rounded
        }
        None => &*x,
    };
    y.fill(0.0);
    if wanted == Wanted::State {
        return kda::attend(net, for_attention, state, arm, tools, wanted);
    }
    net.matrix(raw, Role::Controller, both, tools);
    let (gates, scores) = split(raw, 3);
    let [attention_weight, memory_weight, experts_weight] = [0, 1, 2].map(|gate| gates.get(gate).map_or(0.0, |gate| sigmoid(*gate)));
    match config.attention {
        Attention::None => (),
        Attention::Kda => kda::attend(net, for_attention, state, arm, tools, wanted),
        Attention::Plain => {
            let of_iteration = kv.len().checked_div(config.max_iter as usize).unwrap_or(0);
            let start = of_iteration.saturating_mul(iteration as usize);
            let kv = kv.get_mut(start..start.saturating_add(of_iteration)).unwrap_or_default();
            attention::attend(net, for_attention, (place.position(), place.context), kv, rotation, arm, tools);
        }
    }
    if config.attention != Attention::None {
        for (y, attended) in y.iter_mut().zip(arm.iter()) {
            *y += attention_weight * *attended;
        }
    }
    let (context, _) = split(both, d);
    if config.use_engram {
        memory::recall(net, place.tokens, context, (x, memory_weight), y, arm, tools);
    }
    let for_experts = match Grid::of_experts(config.act_quant) {
        Some(grid) => {
            round_to(rounded, x, grid, config.act_group as usize);
            &*rounded
        }
        None => &*x,
    };
    let (scores, _) = split(scores, config.n_experts as usize);
    experts::mix(net, for_experts, scores, experts_weight, y, arm, tools);
    residual::write(net, iteration, stream, context, y, arm, tools);
}

/// What the iteration that just ran gives to the mean, and its score where iterations are chosen by score.
pub(super) fn result(net: &Net<'_, '_>, work: &mut Work<'_>, iteration: u32, out: &mut [f32], score: &mut f32) {
    let config = net.config();
    let d = config.d_model as usize;
    let Work { stream, vectors, arm, tools, .. } = work;
    let (h, rest) = split(vectors, d);
    let (normed, rest) = split(rest, d);
    let (_, rest) = split(rest, 2 * d);
    let (context, embedding) = split(rest, d);
    if config.use_mor {
        let weights = net.tensor(Role::MorRouter(0));
        normed.iter_mut().enumerate().for_each(|(j, weight)| *weight = weights.get_float(j));
        *score = dot8(normed, context) + net.number(Role::MorRouter(1), 0);
    }
    residual::read(net, iteration.saturating_add(1), stream, embedding, h, arm, tools);
    net.project(out, Layer::OutProj, h, arm, tools);
}

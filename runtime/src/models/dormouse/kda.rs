//! The delta-rule attention: every head keeps a matrix of associations between keys and values, which fades channel by channel.
//!
//! Per position: S = diag(decay) S; S = S + k (beta (v - S^T k))^T; the result is S^T q times a scale. (Kimi Delta Attention, in the form that dormouse gives it: the decay is bounded, queries and
//! keys are normed over all heads together, results pass a gate.)

use super::linear::{Net, Tools};
use super::split;
use crate::format::arch::dormouse::tensors::Role;
use crate::ops::math::{exp, sigmoid, silu, sqrt};
use crate::ops::portable::add_up;
use crate::ops::sum::sum8_squares;

/// Added under the root of the norm of queries and keys.
const QK_EPS: f32 = 1e-6;
/// Added under the root of the norm of a head's results.
const RESULT_EPS: f32 = 1e-5;
/// The lowest logarithm of a decay.
const LOWEST: f32 = -5.0;

/// How much is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// The results and the new state.
    Results,
    /// The new state alone.
    State,
}

/// Runs one position on `state`. With [`Wanted::Results`] the projected results are the first `d_model` numbers of `arm` then.
#[inline(never)]
pub(super) fn attend(net: &Net<'_, '_>, x: &[f32], state: &mut [f32], arm: &mut [f32], tools: &mut Tools<'_>, wanted: Wanted) {
    let config = net.config();
    let (d, width, head_dim) = (config.d_model as usize, config.width() as usize, config.head_dim as usize);
    let (projected, rest) = split(arm, d);
    let (q, rest) = split(rest, width);
    let (k, rest) = split(rest, width);
    let (v, rest) = split(rest, width);
    let (decay, rest) = split(rest, width);
    let (gate, rest) = split(rest, width);
    let (results, rest) = split(rest, width);
    let (beta, rest) = split(rest, config.n_heads as usize);
    let (inner, rest) = split(rest, head_dim);
    let (change, _) = split(rest, head_dim);

    if wanted == Wanted::Results {
        unit(net, q, Role::Qkv(0), x, tools);
        net.matrix(gate, Role::OGate, x, tools);
        for gate in gate.iter_mut() {
            *gate = sigmoid(*gate);
        }
    }
    unit(net, k, Role::Qkv(1), x, tools);
    net.matrix(v, Role::Qkv(2), x, tools);
    for v in v.iter_mut() {
        *v = silu(*v);
    }
    net.matrix(inner, Role::DecayUp, x, tools);
    net.matrix(decay, Role::DecayDown, inner, tools);
    let bias = net.tensor(Role::DecayBias);
    let factors = net.decay.iter().flat_map(|factor| core::iter::repeat_n(*factor, head_dim));
    for (i, (z, factor)) in decay.iter_mut().zip(factors).enumerate() {
        *z = exp(LOWEST * sigmoid(factor * (*z + bias.get_float(i))));
    }
    net.matrix(beta, Role::Beta, x, tools);
    for beta in beta.iter_mut() {
        *beta = sigmoid(*beta);
    }

    let mut position = Position { q, k, v, decay, beta, results };
    position.run(state, head_dim, change, tools.lanes, wanted);
    if wanted == Wanted::State {
        return;
    }
    let gain = net.tensor(Role::ONorm);
    for (head, gate) in position.results.chunks_exact_mut(head_dim.max(1)).zip(gate.chunks_exact(head_dim.max(1))) {
        for o in head.iter_mut() {
            *o *= net.model.kda_scale;
        }
        let s = 1.0 / sqrt(sum8_squares(head) / head_dim as f32 + RESULT_EPS);
        for (i, (o, gate)) in head.iter_mut().zip(gate).enumerate() {
            *o = ((*o * s) * *gate) * gain.get_float(i);
        }
    }
    net.matrix(projected, Role::OProj, position.results, tools);
}

/// `out` = `SiLU` of a projection of `x`, over its length.
fn unit(net: &Net<'_, '_>, out: &mut [f32], role: Role, x: &[f32], tools: &mut Tools<'_>) {
    net.matrix(out, role, x, tools);
    for y in out.iter_mut() {
        *y = silu(*y);
    }
    let s = 1.0 / sqrt(sum8_squares(out) + QK_EPS);
    for y in out.iter_mut() {
        *y *= s;
    }
}

/// The vectors of one position, all heads.
struct Position<'p> {
    q: &'p mut [f32],
    k: &'p mut [f32],
    v: &'p mut [f32],
    /// What every key channel of the state is multiplied by.
    decay: &'p mut [f32],
    beta: &'p mut [f32],
    results: &'p mut [f32],
}

impl Position<'_> {
    /// The recurrence, head by head: `state` is head x key channel x value channel, `change` scratch for one head, `lanes` for eight.
    fn run(&mut self, state: &mut [f32], head_dim: usize, change: &mut [f32], lanes: &mut [f32], wanted: Wanted) {
        let square = head_dim.saturating_mul(head_dim);
        let Some(lanes) = lanes.get_mut(..head_dim.saturating_mul(8)) else { return };
        if square == 0 {
            return;
        }
        let heads = state.chunks_exact_mut(square).zip(self.q.chunks_exact(head_dim)).zip(self.k.chunks_exact(head_dim));
        let heads = heads.zip(self.v.chunks_exact(head_dim)).zip(self.decay.chunks_exact(head_dim));
        let heads = heads.zip(self.beta.iter()).zip(self.results.chunks_exact_mut(head_dim));
        for ((((((state, q), k), v), decay), beta), result) in heads {
            lanes.fill(0.0);
            for (i, ((row, k), decay)) in state.chunks_exact_mut(head_dim).zip(k).zip(decay).enumerate() {
                let start = (i & 7).saturating_mul(head_dim);
                let sums = lanes.get_mut(start..start.saturating_add(head_dim)).unwrap_or_default();
                for (s, sum) in row.iter_mut().zip(sums) {
                    *s *= *decay;
                    *sum += *s * *k;
                }
            }
            add_up(change, lanes);
            for (change, v) in change.iter_mut().zip(v) {
                *change = *beta * (*v - *change);
            }
            lanes.fill(0.0);
            for (i, ((row, k), q)) in state.chunks_exact_mut(head_dim).zip(k).zip(q).enumerate() {
                let start = (i & 7).saturating_mul(head_dim);
                let sums = lanes.get_mut(start..start.saturating_add(head_dim)).unwrap_or_default();
                if wanted == Wanted::State {
                    for (s, change) in row.iter_mut().zip(change.iter()) {
                        *s += *k * *change;
                    }
                    continue;
                }
                for ((s, change), sum) in row.iter_mut().zip(change.iter()).zip(sums) {
                    *s += *k * *change;
                    *sum += *s * *q;
                }
            }
            if wanted == Wanted::Results {
                add_up(result, lanes);
            }
        }
    }
}

//! The mixture of experts: all of them blended by a softmax, or the best few.

use super::linear::{Net, Tools};
use super::split;
use crate::format::arch::dormouse::tensors::Layer;
use crate::ops::math::{exp, sigmoid, silu};
use crate::ops::portable::add_up;
use crate::ops::rare::tanh;
use crate::ops::sum::sum8;

/// What the gate and the values are capped at with `use_situ`.
const GATE_CAP: f32 = 4.0;
const VALUE_CAP: f32 = 25.0;

/// `y = y + weight * (sum over the experts of blend * expert(x))`; `scores` are the experts' logits.
#[inline(never)]
pub(super) fn mix(net: &Net<'_, '_>, x: &[f32], scores: &[f32], weight: f32, y: &mut [f32], arm: &mut [f32], tools: &mut Tools<'_>) {
    let config = net.config();
    let (d, ffn) = (config.d_model as usize, config.d_ffn as usize);
    let (blend, rest) = split(arm, scores.len());
    let (sums, rest) = split(rest, d.saturating_mul(8));
    let (down, rest) = split(rest, d);
    let (hidden, inner) = split(rest, config.sizes(Layer::GateUp(0)).1 as usize);
    softmax(blend, scores);
    if config.moe_topk > 0 {
        keep_largest(blend, scores, config.moe_topk as usize);
    }
    sums.fill(0.0);
    for (expert, blend) in (0u32..).zip(blend.iter()) {
        // Nothing of it would be left.
        if *blend == 0.0 {
            continue;
        }
        net.project(hidden, Layer::GateUp(expert), x, inner, tools);
        if config.use_situ {
            let (gate, value) = split(hidden, ffn);
            for (gate, value) in gate.iter_mut().zip(value.iter()) {
                *gate = ((GATE_CAP * tanh(*gate / GATE_CAP)) * sigmoid(*gate)) * (VALUE_CAP * tanh(*value / VALUE_CAP));
            }
        } else {
            for value in hidden.iter_mut() {
                *value = silu(*value);
            }
        }
        net.project(down, Layer::Down(expert), hidden.get(..ffn).unwrap_or(&[]), inner, tools);
        let start = (expert as usize & 7).saturating_mul(d);
        for (sum, down) in sums.get_mut(start..start.saturating_add(d)).unwrap_or_default().iter_mut().zip(down.iter()) {
            *sum += *blend * *down;
        }
    }
    add_up(down, sums);
    for (y, mixed) in y.iter_mut().zip(down.iter()) {
        *y += weight * *mixed;
    }
}

/// `out` = the softmax of `scores`.
pub(super) fn softmax(out: &mut [f32], scores: &[f32]) {
    let largest = scores.iter().fold(f32::NEG_INFINITY, |largest, score| if *score > largest { *score } else { largest });
    for (weight, score) in out.iter_mut().zip(scores) {
        *weight = exp(*score - largest);
    }
    let total = sum8(out);
    for weight in out.iter_mut() {
        *weight /= total;
    }
}

/// Zeros all weights but those of the `count` largest scores, ties to the first, and divides what is left by its sum.
fn keep_largest(weights: &mut [f32], scores: &[f32], count: usize) {
    for (place, weight) in weights.iter_mut().enumerate() {
        if rank(scores, place) >= count {
            *weight = 0.0;
        }
    }
    let total = sum8(weights);
    for weight in weights.iter_mut() {
        *weight /= total;
    }
}

/// How many scores come before the one at `place`: the larger ones, and the same ones with a lower place.
pub(super) fn rank(scores: &[f32], place: usize) -> usize {
    let own = scores.get(place).copied().unwrap_or(f32::NEG_INFINITY);
    scores.iter().enumerate().filter(|(other, score)| **score > own || **score == own && *other < place).count()
}

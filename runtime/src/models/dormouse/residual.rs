//! How an iteration reads the stream and how its result joins it, in four ways.

use super::experts::softmax;
use super::linear::{Net, Tools};
use super::split;
use crate::format::TensorView;
use crate::format::arch::dormouse::Residual;
use crate::format::arch::dormouse::tensors::{Layer, Role};
use crate::ops::math::{exp, sigmoid, silu, sqrt};
use crate::ops::norm::rmsnorm;
use crate::ops::rare::ln;
use crate::ops::sum::{Lanes, sum8, sum8_squares, tree};

/// Branches of the gated residual.
const BRANCHES: usize = 4;
const GR_EPS: f32 = 1e-3;
const ATTNRES_EPS: f32 = 1e-5;
const MHC_EPS: f32 = 1e-20;
/// Times that rows and columns are made to sum up to 1.
const ROUNDS: u32 = 20;

/// The stream before the first iteration: `embedding`, in whatever form the arm keeps it.
pub(super) fn begin(net: &Net<'_, '_>, stream: &mut [f32], embedding: &[f32]) {
    if net.config().residual == Residual::AttnRes {
        // No result yet; what is there would be another position's.
        return stream.fill(0.0);
    }
    for branch in stream.chunks_exact_mut(embedding.len().max(1)) {
        copy(branch, embedding);
    }
}

/// `h` = what the stream holds after `iterations` of them.
#[inline(never)]
pub(super) fn read(
    net: &Net<'_, '_>,
    iterations: u32,
    stream: &[f32],
    embedding: &[f32],
    h: &mut [f32],
    arm: &mut [f32],
    tools: &mut Tools<'_>,
) {
    match net.config().residual {
        Residual::ReZero | Residual::Mhc => copy(h, stream),
        Residual::Gr => gates(net, stream, h, arm, tools),
        Residual::AttnRes => match iterations.checked_sub(1) {
            Some(last) => attend(net, last, stream, embedding, h, arm),
            None => copy(h, embedding),
        },
    }
}

/// Puts the result `y` of iteration `iteration` into the stream; `context` is what the iteration began with.
#[inline(never)]
pub(super) fn write(
    net: &Net<'_, '_>,
    iteration: u32,
    stream: &mut [f32],
    context: &[f32],
    y: &[f32],
    arm: &mut [f32],
    tools: &mut Tools<'_>,
) {
    match net.config().residual {
        Residual::ReZero => {
            let factor = net.number(Role::ResidualScale, 0);
            for ((h, context), y) in stream.iter_mut().zip(context).zip(y) {
                *h = *context + factor * *y;
            }
        }
        Residual::Gr => write_gates(net, stream, y, arm, tools),
        Residual::AttnRes => {
            let start = y.len().saturating_mul(iteration as usize);
            copy(stream.get_mut(start..start.saturating_add(y.len())).unwrap_or_default(), y);
        }
        Residual::Mhc => mix_streams(net, stream, context, y, arm, tools),
    }
}

/// The branches normed, one after the other.
fn norm_branches(net: &Net<'_, '_>, normed: &mut [f32], stream: &[f32]) {
    let d = net.config().d_model.max(1) as usize;
    for ((branch, out), x) in (0..).zip(normed.chunks_exact_mut(d)).zip(stream.chunks_exact(d)) {
        rmsnorm(out, x, &net.tensor(Role::GrNorm(branch)), GR_EPS);
    }
}

/// A quarter of the sum of the normed branches, each through its gate.
fn gates(net: &Net<'_, '_>, stream: &[f32], h: &mut [f32], arm: &mut [f32], tools: &mut Tools<'_>) {
    let d = h.len();
    let (normed, rest) = split(arm, d.saturating_mul(BRANCHES));
    let (gates, rest) = split(rest, d.saturating_mul(BRANCHES));
    let (hidden, inner) = split(rest, net.config().sizes(Layer::GrDown).1 as usize);
    norm_branches(net, normed, stream);
    net.project(hidden, Layer::GrDown, normed, inner, tools);
    for value in hidden.iter_mut() {
        *value = silu(*value / 4.0);
    }
    net.project(gates, Layer::GrUp, hidden, inner, tools);
    for (gate, value) in gates.iter_mut().zip(normed.iter()) {
        *gate = sigmoid(*gate) * *value;
    }
    for (j, h) in h.iter_mut().enumerate() {
        let mut lanes: Lanes = [0.0; 8];
        for (lane, gated) in lanes.iter_mut().zip(gates.iter().skip(j).step_by(d.max(1))) {
            *lane += *gated;
        }
        *h = tree(lanes) / 4.0;
    }
}

fn write_gates(net: &Net<'_, '_>, stream: &mut [f32], y: &[f32], arm: &mut [f32], tools: &mut Tools<'_>) {
    let (normed, rest) = split(arm, stream.len());
    let (scales, inner) = split(rest, BRANCHES);
    norm_branches(net, normed, stream);
    net.project(scales, Layer::GrWrite, normed, inner, tools);
    for (branch, scale) in stream.chunks_exact_mut(y.len().max(1)).zip(scales.iter()) {
        let scale = 2.0 * sigmoid(*scale / 4.0);
        for (r, y) in branch.iter_mut().zip(y) {
            *r += scale * *y;
        }
    }
}

/// A softmax over the embedding and the results so far, asked by the query of iteration `last`.
fn attend(net: &Net<'_, '_>, last: u32, stream: &[f32], embedding: &[f32], h: &mut [f32], arm: &mut [f32]) {
    let d = h.len();
    let query = net.tensor(Role::AttnResQuery(last));
    let gain = net.config().attnres_gain.then(|| net.tensor(Role::AttnResGain(last)));
    let count = last as usize + 2;
    let (scores, rest) = split(arm, count);
    let results = || core::iter::once(embedding).chain(stream.chunks_exact(d.max(1))).take(count);
    for (score, source) in scores.iter_mut().zip(results()) {
        *score = fit(&query, gain.as_ref(), source);
    }
    let (weights, _) = split(rest, count);
    softmax(weights, scores);
    for (j, h) in h.iter_mut().enumerate() {
        let mut lanes: Lanes = [0.0; 8];
        for (i, (weight, source)) in weights.iter().zip(results()).enumerate() {
            if let (Some(lane), Some(value)) = (lanes.get_mut(i & 7), source.get(j)) {
                *lane += *weight * *value;
            }
        }
        *h = tree(lanes);
    }
}

/// `dot8` of the query (times its gain) and a normed source.
fn fit(query: &TensorView<'_>, gain: Option<&TensorView<'_>>, source: &[f32]) -> f32 {
    let s = 1.0 / sqrt(sum8_squares(source) / source.len() as f32 + ATTNRES_EPS);
    let mut lanes: Lanes = [0.0; 8];
    for (j, value) in source.iter().enumerate() {
        let query = query.get_float(j);
        let query = gain.map_or(query, |gain| gain.get_float(j) * query);
        if let Some(lane) = lanes.get_mut(j & 7) {
            *lane += query * (*value * s);
        }
    }
    tree(lanes)
}

/// Streams: those of `context` mixed by a matrix whose rows and columns sum up to 1, plus those of `y`, each times a factor.
fn mix_streams(net: &Net<'_, '_>, stream: &mut [f32], context: &[f32], y: &[f32], arm: &mut [f32], tools: &mut Tools<'_>) {
    let n = net.config().mhc_streams as usize;
    let (normed, rest) = split(arm, context.len());
    let (factors, rest) = split(rest, n);
    let (terms, rest) = split(rest, n);
    let (column, rest) = split(rest, n);
    let (matrix, _) = split(rest, n.saturating_mul(n));
    let s = 1.0 / sqrt(sum8_squares(context) / context.len() as f32 + MHC_EPS);
    for (normed, x) in normed.iter_mut().zip(context) {
        *normed = *x * s;
    }
    net.matrix(factors, Role::Mhc(1), normed, tools);
    affine(net, factors, Role::Mhc(4), Role::Mhc(7));
    for factor in factors.iter_mut() {
        *factor = 2.0 * sigmoid(*factor);
    }
    net.matrix(matrix, Role::Mhc(2), normed, tools);
    affine(net, matrix, Role::Mhc(5), Role::Mhc(8));
    for _ in 0..ROUNDS {
        for row in matrix.chunks_exact_mut(n.max(1)) {
            let total = log_sum_exp(row, terms);
            for m in row.iter_mut() {
                *m -= total;
            }
        }
        for j in 0..n {
            for (value, m) in column.iter_mut().zip(matrix.iter().skip(j).step_by(n.max(1))) {
                *value = *m;
            }
            let total = log_sum_exp(column, terms);
            for m in matrix.iter_mut().skip(j).step_by(n.max(1)) {
                *m -= total;
            }
        }
    }
    for m in matrix.iter_mut() {
        *m = exp(*m);
    }
    let width = context.len().checked_div(n).unwrap_or(0).max(1);
    let outputs = stream.chunks_exact_mut(width).zip(matrix.chunks_exact(n.max(1))).zip(factors.iter()).zip(y.chunks_exact(width));
    for (((out, row), factor), y) in outputs {
        for (c, (h, y)) in out.iter_mut().zip(y).enumerate() {
            let mut lanes: Lanes = [0.0; 8];
            for (i, (m, x)) in row.iter().zip(context.iter().skip(c).step_by(width)).enumerate() {
                if let Some(lane) = lanes.get_mut(i & 7) {
                    *lane += *m * *x;
                }
            }
            *h = tree(lanes) + *factor * *y;
        }
    }
}

/// `values[i] = alpha * values[i] + b[i]`.
fn affine(net: &Net<'_, '_>, values: &mut [f32], alpha: Role, b: Role) {
    let (alpha, b) = (net.number(alpha, 0), net.tensor(b));
    for (i, value) in values.iter_mut().enumerate() {
        *value = alpha * *value + b.get_float(i);
    }
}

/// The logarithm of the sum of the exponentials; `scratch` is at least as long as `values`.
fn log_sum_exp(values: &[f32], scratch: &mut [f32]) -> f32 {
    let largest = values.iter().fold(f32::NEG_INFINITY, |largest, value| if *value > largest { *value } else { largest });
    let (terms, _) = split(scratch, values.len());
    for (term, value) in terms.iter_mut().zip(values) {
        *term = exp(*value - largest);
    }
    largest + ln(sum8(terms))
}

fn copy(to: &mut [f32], from: &[f32]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to = *from;
    }
}

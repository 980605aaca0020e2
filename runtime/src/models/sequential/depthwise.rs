//! Depthwise and separable convolutions: a filter for each channel and multiplier, whose results are `dot8` over the taps, those outside the input being zero.
//!
//! Eight filters are taken at a time over all places, with their weights widened once: quantised weights too are used as floats here, scale times integer.

use super::dense::{add, product};
use super::grid::{Grid, Place};
#[cfg(not(target_os = "none"))]
use super::padded::Padded;
use super::step::Call;
use crate::format::{Error, TensorView};
use crate::ops::matvec::widen_row;
use crate::ops::parts::next_mut;
use crate::ops::sum::trees;

/// Filters that are taken at a time.
pub(super) const BLOCK: usize = 8;
/// The most taps whose weights are kept at hand.
pub(super) const TAPS: usize = 32;

/// A depthwise convolution.
pub(super) fn run(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let grid = Grid::new(&call.step.layer, call.input, call.output);
    let (kernel, bias) = (call.tensor(0), call.tensor(1));
    filters(call.out, call.x, &grid, &kernel);
    let mut rest = &mut *call.out;
    while !rest.is_empty() && kernel.rows() > 0 {
        add(next_mut(&mut rest, kernel.rows()), &bias);
    }
    call.activate();
    Ok(())
}

/// A depthwise convolution, then one of one tap.
pub(super) fn run_separable(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let grid = Grid::new(&call.step.layer, call.input, call.output);
    let (depthwise, pointwise, bias) = (call.tensor(0), call.tensor(1), call.tensor(2));
    let places = grid.output.into_iter().fold(1, usize::saturating_mul);
    let needed = places.saturating_mul(depthwise.rows());
    let too_short = call.too_short(needed);
    let (middle, codes) = call.scratch.split_at_mut_checked(needed).ok_or(too_short)?;
    filters(middle, call.x, &grid, &depthwise);
    let mut rest = &mut *call.out;
    for x in crate::ops::parts::parts(middle, depthwise.rows()) {
        product(next_mut(&mut rest, pointwise.rows()), &pointwise, x, codes, &bias);
    }
    call.activate();
    Ok(())
}

/// `out[place][filter]` for every filter of `kernel`, (channels * multiplier, taps).
fn filters(out: &mut [f32], x: &[f32], grid: &Grid, kernel: &TensorView<'_>) {
    let count = kernel.rows();
    let Some(multiplier) = count.checked_div(grid.channels).filter(|multiplier| *multiplier > 0) else { return };
    #[cfg(not(target_os = "none"))]
    let mut padded = Padded::of(grid);
    let mut weights = [[0.0; BLOCK]; TAPS];
    let mut first = 0;
    while first < count {
        keep(&mut weights, kernel, first);
        let channels = channels_of(first, count, multiplier);
        // What is outside is read there too, which makes no difference where weights are finite.
        #[cfg(not(target_os = "none"))]
        let padded = padded.as_mut().filter(|_| weights.as_flattened().iter().all(|weight| weight.is_finite())).map(|padded| {
            padded.fill(x, grid, &channels);
            &*padded
        });
        for (number, place) in grid.places().enumerate() {
            let general = || window(x, grid, place, &channels, Weights::Kernel { kept: &weights, kernel, first });
            #[cfg(not(target_os = "none"))]
            let sums = padded.map_or_else(general, |padded| padded.window(grid, place, &weights));
            #[cfg(target_os = "none")]
            let sums = general();
            let start = number.wrapping_mul(count).wrapping_add(first);
            for (y, sum) in out.get_mut(start..).unwrap_or_default().iter_mut().zip(&sums).take(count.saturating_sub(first)) {
                *y = *sum;
            }
        }
        first = first.saturating_add(BLOCK);
    }
}

/// The filters of a kernel from `first` on, tap by tap, where they have no more taps than are kept; zeros for filters that are not there.
fn keep(weights: &mut [[f32; BLOCK]; TAPS], kernel: &TensorView<'_>, first: usize) {
    let mut row = [0.0; TAPS];
    let Some(row) = row.get_mut(..kernel.cols()) else {
        for (tap, weights) in weights.iter_mut().enumerate() {
            *weights = weights_of(kernel, first, tap);
        }
        return;
    };
    for j in 0..BLOCK {
        let filter = first.wrapping_add(j);
        if filter < kernel.rows() {
            widen_row(row, kernel, filter);
        } else {
            row.fill(0.0);
        }
        for (weights, value) in weights.iter_mut().zip(&*row) {
            if let Some(weight) = weights.get_mut(j) {
                *weight = *value;
            }
        }
    }
}

#[inline(never)]
fn weights_of(kernel: &TensorView<'_>, first: usize, tap: usize) -> [f32; BLOCK] {
    let mut weights = [0.0; BLOCK];
    for (j, weight) in weights.iter_mut().enumerate() {
        let filter = first.wrapping_add(j);
        *weight = if filter < kernel.rows() { kernel.get_f32(filter.wrapping_mul(kernel.cols()).wrapping_add(tap)) } else { 0.0 };
    }
    weights
}

/// The channels that a block of filters reads.
#[derive(Clone, Copy)]
pub(super) enum Channels {
    /// Eight that lie one after the other.
    Run(usize),
    /// Any; of a filter that is not there, the first.
    Any([usize; BLOCK]),
}

/// The channels of the filters from `first` on, of `count`, each channel having `multiplier` of them.
pub(super) fn channels_of(first: usize, count: usize, multiplier: usize) -> Channels {
    if multiplier == 1 && first.saturating_add(BLOCK) <= count {
        return Channels::Run(first);
    }
    let mut channels = [0; BLOCK];
    for (j, channel) in channels.iter_mut().enumerate() {
        let filter = first.saturating_add(j);
        *channel = if filter < count { filter.checked_div(multiplier).unwrap_or(0) } else { 0 };
    }
    Channels::Any(channels)
}

/// What the taps of eight filters weigh.
#[derive(Clone, Copy)]
pub(super) enum Weights<'w> {
    /// 1.
    Ones,
    /// The filters of a kernel from `first` on; `kept` are those of the first taps.
    Kernel { kept: &'w [[f32; BLOCK]; TAPS], kernel: &'w TensorView<'w>, first: usize },
}

/// For eight filters: `sum8` over the taps of the window at `place` of weight and input.
pub(super) fn window(x: &[f32], grid: &Grid, place: Place, channels: &Channels, weights: Weights<'_>) -> [f32; BLOCK] {
    let mut lanes = [[0.0f32; BLOCK]; 8];
    grid.for_taps(place, |tap, at| {
        let start = at.wrapping_mul(grid.channels);
        let computed;
        let weights = match weights {
            Weights::Ones => &[1.0; BLOCK],
            Weights::Kernel { kept, kernel, first } => {
                if let Some(kept) = kept.get(tap) {
                    kept
                } else {
                    computed = weights_of(kernel, first, tap);
                    &computed
                }
            }
        };
        let Some(lane) = lanes.get_mut(tap & 7) else { return };
        match channels {
            Channels::Run(first) => {
                if let Some(values) = x.get(start.wrapping_add(*first)..).and_then(|x| x.first_chunk()) {
                    multiply_add(lane, weights, values);
                }
            }
            Channels::Any(_) => multiply_add(lane, weights, &values(x, start, channels)),
        }
    });
    trees(&lanes)
}

/// `sums[j] = sums[j] + weights[j] * values[j]`, written out: firmware is compiled for size, and a loop over three arrays would call a function for each element.
#[inline(always)]
#[allow(clippy::inline_always, reason = "the innermost loop")]
fn multiply_add(
    [s0, s1, s2, s3, s4, s5, s6, s7]: &mut [f32; BLOCK],
    [w0, w1, w2, w3, w4, w5, w6, w7]: &[f32; BLOCK],
    [x0, x1, x2, x3, x4, x5, x6, x7]: &[f32; BLOCK],
) {
    *s0 += *w0 * *x0;
    *s1 += *w1 * *x1;
    *s2 += *w2 * *x2;
    *s3 += *w3 * *x3;
    *s4 += *w4 * *x4;
    *s5 += *w5 * *x5;
    *s6 += *w6 * *x6;
    *s7 += *w7 * *x7;
}

/// The inputs of eight filters at the place that begins at `start`.
#[inline(always)]
#[allow(clippy::inline_always, reason = "a load in the innermost loop")]
pub(super) fn values(x: &[f32], start: usize, channels: &Channels) -> [f32; BLOCK] {
    match channels {
        Channels::Run(first) => x.get(start.wrapping_add(*first)..).and_then(|x| x.first_chunk()).copied().unwrap_or_default(),
        Channels::Any([c0, c1, c2, c3, c4, c5, c6, c7]) => {
            let at = |channel: &usize| x.get(start.wrapping_add(*channel)).copied().unwrap_or(0.0);
            [at(c0), at(c1), at(c2), at(c3), at(c4), at(c5), at(c6), at(c7)]
        }
    }
}

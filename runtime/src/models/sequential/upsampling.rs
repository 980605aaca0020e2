//! Upsampling: repeats along one to three axes, and resampling in the plane.

use super::depthwise::trees;
use super::gather::take;
use super::step::Call;
use super::walk::{Walk, strides};
use crate::format::arch::sequential::resample_from;
use crate::format::{Error, TensorView};
use crate::ops::parts::next_mut;
use crate::ops::sum::{Lanes, tree};

/// Every element again and again.
pub(super) fn repeat(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let ([a, b, c, d], [sa, sb, sc, sd]) = (call.input.padded().map(|size| size as usize), strides(call.input.padded()));
    let [fa, fb, fc] = call.step.layer.window().map(|factor| factor.max(1) as usize);
    let walk = [(d, sd, 1), (c, sc, fc), (b, sb, fb), (a, sa, fa)];
    let walk = walk.into_iter().fold(Walk::new(0), |walk, (size, step, factor)| walk.slower(factor, 0).slower(size, step));
    take(call.out, call.x, walk);
    Ok(())
}

/// More than the taps of any interpolation.
const TAPS: usize = 16;

/// `out[c]` = `sum8` over the taps of weight times element c of each neighbour, which begin `out.len()` elements apart in `x`; those that are not there keep their places.
fn mix(out: &mut [f32], x: &[f32], weights: &TensorView<'_>, row: u32, factor: u32) {
    let taps = weights.cols();
    let from = resample_from(row, factor, taps as u32);
    let step = out.len();
    let first_weight = (row as usize).wrapping_mul(taps);
    let mut copied = [0.0f32; TAPS];
    let weights = if let Some(weights) = weights.as_f32() {
        weights.get(first_weight..first_weight.wrapping_add(taps)).unwrap_or(&[])
    } else {
        for (tap, to) in copied.iter_mut().enumerate().take(taps) {
            *to = weights.get_float(first_weight.wrapping_add(tap));
        }
        copied.get(..taps).unwrap_or(&[])
    };
    let neighbours =
        || (0usize..).zip(weights.iter().zip(from..)).filter_map(|(tap, (weight, at))| Some((tap & 7, *weight, usize::try_from(at).ok()?)));
    let (eights, rest) = out.as_chunks_mut::<8>();
    let mut first = 0usize;
    for eight in eights {
        let mut lanes = [[0.0f32; 8]; 8];
        for (lane, weight, at) in neighbours() {
            let x = x.get(at.wrapping_mul(step).wrapping_add(first)..).and_then(|x| x.first_chunk::<8>());
            if let (Some(lane), Some(x)) = (lanes.get_mut(lane), x) {
                for (sum, x) in lane.iter_mut().zip(x) {
                    *sum += weight * *x;
                }
            }
        }
        *eight = trees(lanes);
        first = first.wrapping_add(8);
    }
    for (y, c) in rest.iter_mut().zip(first..) {
        let mut lanes: Lanes = [0.0; 8];
        for (lane, weight, at) in neighbours() {
            if let (Some(lane), Some(x)) = (lanes.get_mut(lane), x.get(at.wrapping_mul(step).wrapping_add(c))) {
                *lane += weight * *x;
            }
        }
        *y = tree(lanes);
    }
}

/// Resampling of rows, then of columns, by weights that are in the file.
pub(super) fn resample(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let [height, width, channels, _] = call.input.padded();
    let [down, across, _] = call.step.layer.window();
    let (rows, columns) = (call.tensor(0), call.tensor(1));
    let (channels, row_len) = (channels as usize, (width as usize).saturating_mul(channels as usize));
    let Some(middle) = call.scratch.get_mut(..row_len) else { return Ok(()) };
    let mut rest = &mut *call.out;
    for row in 0..height.saturating_mul(down) {
        mix(middle, call.x, &rows, row, down);
        for column in 0..width.saturating_mul(across) {
            mix(next_mut(&mut rest, channels), middle, &columns, column, across);
        }
    }
    Ok(())
}

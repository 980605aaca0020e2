//! Upsampling: repeats along one to three axes, and resampling in the plane.

use super::gather::take;
use super::step::Call;
use super::walk::{Walk, strides};
use crate::format::arch::sequential::resample_from;
use crate::format::{Error, TensorView};
use crate::ops::parts::next_mut;
use crate::ops::sum::{Lanes, tree, trees};

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
    if out.len() >= 8 {
        // Hosts have a loop of its own for each interpolation.
        #[cfg(not(target_os = "none"))]
        match taps {
            2 => return mix_vectors::<2>(out, x, weights, from),
            4 => return mix_vectors::<4>(out, x, weights, from),
            6 => return mix_vectors::<6>(out, x, weights, from),
            10 => return mix_vectors::<10>(out, x, weights, from),
            _ => {}
        }
        return mix_vectors::<TAPS>(out, x, weights, from);
    }
    for (c, y) in out.iter_mut().enumerate() {
        let mut lanes: Lanes = [0.0; 8];
        for (lane, weight, at) in neighbours() {
            if let (Some(lane), Some(x)) = (lanes.get_mut(lane), x.get(at.wrapping_mul(step).wrapping_add(c))) {
                *lane += weight * *x;
            }
        }
        *y = tree(lanes);
    }
}

/// [`mix`] of at least eight elements.
#[inline]
fn mix_vectors<const MOST: usize>(out: &mut [f32], x: &[f32], weights: &[f32], from: i64) {
    let (step, last) = (out.len(), out.len().saturating_sub(8));
    let mut first = 0usize;
    while first < step {
        // The last eight may be in part those before once more.
        let start = first.min(last);
        let mut lanes = [[0.0f32; 8]; 8];
        for ((tap, weight), at) in (0..MOST).zip(weights).zip(from..) {
            let Ok(at) = usize::try_from(at) else { continue };
            let x = x.get(at.wrapping_mul(step).wrapping_add(start)..).and_then(|x| x.first_chunk::<8>());
            if let (Some(lane), Some(x)) = (lanes.get_mut(tap & 7), x) {
                for (sum, x) in lane.iter_mut().zip(x) {
                    *sum += weight * *x;
                }
            }
        }
        if let Some(eight) = out.get_mut(start..).and_then(|out| out.first_chunk_mut()) {
            *eight = trees(&lanes);
        }
        first = first.saturating_add(8);
    }
}

/// Resampling of rows, then of columns, by weights that are in the file.
pub(super) fn resample(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let [height, width, channels, _] = call.input.padded();
    let [down, across, _] = call.step.layer.window();
    let (rows, columns) = (call.tensor(0), call.tensor(1));
    let (channels, row_len) = (channels as usize, (width as usize).saturating_mul(channels as usize));
    let Some(middle) = call.scratch.get_mut(..row_len) else { return Err(call.too_short(row_len)) };
    #[cfg(not(target_os = "none"))]
    if channels < ROWS && row_len.saturating_mul(ROWS) <= BLOCK {
        resample_by_eight(call.out, call.x, middle, (&rows, down), (&columns, across));
        return Ok(());
    }
    let mut rest = &mut *call.out;
    for row in 0..height.saturating_mul(down) {
        mix(middle, call.x, &rows, row, down);
        for column in 0..width.saturating_mul(across) {
            mix(next_mut(&mut rest, channels), middle, &columns, column, across);
        }
    }
    Ok(())
}

/// Rows that hosts resample at a time.
#[cfg(not(target_os = "none"))]
const ROWS: usize = 8;
/// Elements of those rows at most.
#[cfg(not(target_os = "none"))]
const BLOCK: usize = 2048;

/// The same for fewer channels than make a vector: eight rows lie side by side, and their columns are taken as one of eight times the channels.
#[cfg(not(target_os = "none"))]
fn resample_by_eight(
    out: &mut [f32],
    x: &[f32],
    middle: &mut [f32],
    (rows, down): (&TensorView<'_>, u32),
    (columns, across): (&TensorView<'_>, u32),
) {
    let (height, width) = (rows.rows(), columns.rows());
    let out_len = out.len().checked_div(height).unwrap_or(0);
    let channels = out_len.checked_div(width).unwrap_or(0);
    let (mut block, mut mixed) = ([0.0; BLOCK], [0.0; ROWS * ROWS]);
    let (Some(block), Some(mixed)) = (block.get_mut(..middle.len().wrapping_mul(ROWS)), mixed.get_mut(..channels.wrapping_mul(ROWS)))
    else {
        return;
    };
    let mut rest = out;
    let mut row = 0u32;
    while !rest.is_empty() {
        let eight = next_mut(&mut rest, out_len.saturating_mul(ROWS));
        for (row, lane) in (row..).zip(0..ROWS).take(height.saturating_sub(row as usize)) {
            mix(middle, x, rows, row, down);
            for (to, from) in block.iter_mut().skip(lane).step_by(ROWS).zip(&*middle) {
                *to = *from;
            }
        }
        for (column, first) in (0..width as u32).zip((0usize..).step_by(channels.max(1))) {
            mix(mixed, block, columns, column, across);
            for (values, first) in mixed.as_chunks::<ROWS>().0.iter().zip(first..) {
                let mut at = first;
                for value in values {
                    if let Some(y) = eight.get_mut(at) {
                        *y = *value;
                    }
                    at = at.wrapping_add(out_len);
                }
            }
        }
        row = row.wrapping_add(ROWS as u32);
    }
}

//! Pooling: the largest and the mean of windows and of whole channels. What lies outside the input does not count.

use super::depthwise::{BLOCK, Weights, channels_of, window};
use super::grid::Grid;
use super::step::Call;
use crate::format::Error;
use crate::ops::parts::next_mut;

/// The largest of each window; a NaN counts as the largest.
pub(super) fn largest(call: &mut Call<'_, '_>) -> Result<(), Error> {
    largest_of(call, &Grid::new(&call.step.layer, call.input, call.output))
}

/// The largest of each channel.
pub(super) fn largest_of_all(call: &mut Call<'_, '_>) -> Result<(), Error> {
    largest_of(call, &whole(call))
}

/// The mean of each window: the canonical sum of its taps within the input, divided by their number.
pub(super) fn mean(call: &mut Call<'_, '_>) -> Result<(), Error> {
    mean_of(call, &Grid::new(&call.step.layer, call.input, call.output))
}

/// The mean of each channel: the canonical sum over its places, divided by their number.
pub(super) fn mean_of_all(call: &mut Call<'_, '_>) -> Result<(), Error> {
    mean_of(call, &whole(call))
}

/// One window over everything.
fn whole(call: &Call<'_, '_>) -> Grid {
    Grid::new(&call.step.layer, call.input, call.output).whole()
}

fn largest_of(call: &mut Call<'_, '_>, grid: &Grid) -> Result<(), Error> {
    let channels = grid.channels;
    let mut rest = &mut *call.out;
    for place in grid.places() {
        let out = next_mut(&mut rest, channels);
        let mut first = true;
        grid.for_taps(place, |_, at| {
            let start = at.wrapping_mul(channels);
            let found = call.x.get(start..start.wrapping_add(channels)).unwrap_or(&[]);
            for (largest, value) in out.iter_mut().zip(found) {
                if first || *value > *largest || value.is_nan() {
                    *largest = *value;
                }
            }
            first = false;
        });
    }
    call.activate();
    Ok(())
}

fn mean_of(call: &mut Call<'_, '_>, grid: &Grid) -> Result<(), Error> {
    let count = grid.channels;
    let mut rest = &mut *call.out;
    for place in grid.places() {
        let out = next_mut(&mut rest, count);
        let mut taps = 0u32;
        grid.for_taps(place, |_, _| taps = taps.wrapping_add(1));
        let mut first = 0;
        for out in out.chunks_mut(BLOCK) {
            let sums = window(call.x, grid, place, &channels_of(first, count, 1), Weights::Ones);
            for (y, sum) in out.iter_mut().zip(&sums) {
                *y = *sum / taps as f32;
            }
            first = first.wrapping_add(BLOCK);
        }
    }
    call.activate();
    Ok(())
}

//! Depthwise convolutions on hosts: eight filters' inputs are copied once, with zeros around them, so that every window has all of its taps, each equally far from its first.

use super::depthwise::{BLOCK, Channels, TAPS, values};
use super::grid::Grid;
use crate::ops::sum::trees;

/// Places of the copy at most.
const PLACES: usize = 512;

/// A copy of what eight filters read.
pub(super) struct Padded {
    memory: [[f32; BLOCK]; PLACES],
    /// Places along each axis.
    sizes: [usize; 3],
    /// How far each tap lies from the first.
    taps: [usize; TAPS],
    used: usize,
}

impl Padded {
    /// For the windows of a grid; `None` where taps or places are many.
    pub(super) fn of(grid: &Grid) -> Option<Self> {
        let mut sizes = [0; 3];
        let axes = grid.output.into_iter().zip(grid.stride).zip(grid.window.into_iter().zip(grid.dilation));
        for (size, ((out, stride), (window, dilation))) in sizes.iter_mut().zip(axes) {
            let last = out.checked_sub(1)?.checked_mul(stride)?;
            *size = window.checked_sub(1)?.checked_mul(dilation)?.checked_add(last)?.checked_add(1)?;
        }
        let places = sizes.into_iter().fold(1usize, usize::saturating_mul);
        let used = grid.window.into_iter().fold(1usize, usize::saturating_mul);
        if places > PLACES || used > TAPS {
            return None;
        }
        let mut padded = Self { memory: [[0.0; BLOCK]; PLACES], sizes, taps: [0; TAPS], used };
        let [a, b, c] = grid.window;
        let [da, db, dc] = grid.dilation;
        let all = (0..a).flat_map(|x| (0..b).flat_map(move |y| (0..c).map(move |z| [x, y, z])));
        for (to, [x, y, z]) in padded.taps.iter_mut().zip(all) {
            *to = at(sizes, [x.wrapping_mul(da), y.wrapping_mul(db), z.wrapping_mul(dc)]);
        }
        Some(padded)
    }

    /// Copies the inputs of eight filters.
    pub(super) fn fill(&mut self, x: &[f32], grid: &Grid, channels: &Channels) {
        let ([a, b, c], [before_a, before_b, before_c]) = (grid.input, grid.before);
        let [size_a, size_b, size_c] = self.sizes;
        let inside = size_c.saturating_sub(before_c).min(c);
        for (row_a, row_b) in (0..a).flat_map(|row_a| (0..b).map(move |row_b| (row_a, row_b))) {
            let (to_a, to_b) = (row_a.wrapping_add(before_a), row_b.wrapping_add(before_b));
            if to_a >= size_a || to_b >= size_b {
                continue;
            }
            let first = at(self.sizes, [to_a, to_b, before_c]);
            let mut start = row_a.wrapping_mul(b).wrapping_add(row_b).wrapping_mul(c).wrapping_mul(grid.channels);
            for to in self.memory.iter_mut().skip(first).take(inside) {
                *to = values(x, start, channels);
                start = start.wrapping_add(grid.channels);
            }
        }
    }

    /// `dot8` of each of the eight filters with the window at `place`.
    #[inline]
    pub(super) fn window(&self, grid: &Grid, place: [usize; 3], weights: &[[f32; BLOCK]; TAPS]) -> [f32; BLOCK] {
        let ([x, y, z], [a, b, c]) = (place, grid.stride);
        let first = at(self.sizes, [x.wrapping_mul(a), y.wrapping_mul(b), z.wrapping_mul(c)]);
        let mut lanes = [[0.0f32; BLOCK]; 8];
        let mut multiply = |taps: &[usize], weights: &[[f32; BLOCK]]| {
            for ((lane, tap), weights) in lanes.iter_mut().zip(taps).zip(weights) {
                if let Some(values) = self.memory.get(first.wrapping_add(*tap)) {
                    for ((sum, weight), value) in lane.iter_mut().zip(weights).zip(values) {
                        *sum += weight * value;
                    }
                }
            }
        };
        let (taps, rest) = self.taps.get(..self.used).unwrap_or(&[]).as_chunks::<8>();
        let (weights, last) = weights.get(..self.used).unwrap_or(&[]).as_chunks::<8>();
        for (taps, weights) in taps.iter().zip(weights) {
            multiply(taps, weights);
        }
        multiply(rest, last);
        trees(&lanes)
    }
}

/// Where a place lies in an array of these sizes.
fn at([_, b, c]: [usize; 3], [x, y, z]: [usize; 3]) -> usize {
    x.wrapping_mul(b).wrapping_add(y).wrapping_mul(c).wrapping_add(z)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::TensorView;
    use crate::models::sequential::depthwise::{Weights, channels_of, window};
    use crate::ops::test_rng::Rng;

    #[test]
    fn windows_of_a_copy_have_the_bits_of_windows_of_the_input() {
        let mut rng = Rng::new(11);
        let mut copies = 0;
        for (window_size, stride, dilation, before) in [
            ([1, 3, 3], [1, 1, 1], [1, 1, 1], [0, 1, 1]),
            ([1, 5, 4], [1, 2, 1], [1, 1, 2], [0, 2, 3]),
            ([1, 1, 7], [1, 1, 3], [1, 1, 1], [0, 0, 6]),
            ([2, 4, 4], [1, 3, 2], [1, 1, 1], [0, 0, 0]),
            ([1, 6, 6], [1, 1, 1], [1, 1, 1], [0, 3, 3]),
        ] {
            for (input, output, channels, multiplier) in
                [([3, 6, 5], [2, 4, 3], 8, 1), ([2, 9, 11], [2, 3, 9], 5, 2), ([2, 40, 9], [1, 40, 9], 11, 1)]
            {
                let grid = Grid { input, output, window: window_size, stride, dilation, before, channels, transposed: false };
                let Some(mut padded) = Padded::of(&grid) else { continue };
                copies += 1;
                let x = rng.floats(input.iter().product::<usize>() * channels);
                let weights: [[f32; BLOCK]; TAPS] = core::array::from_fn(|_| rng.floats(BLOCK).try_into().unwrap());
                for first in (0..channels * multiplier).step_by(BLOCK) {
                    let channels = channels_of(first, channels * multiplier, multiplier);
                    padded.fill(&x, &grid, &channels);
                    for place in grid.places() {
                        let kept = Weights::Kernel { kept: &weights, kernel: &TensorView::EMPTY, first };
                        let wanted = window(&x, &grid, place, &channels, kept);
                        assert_eq!(
                            padded.window(&grid, place, &weights).map(f32::to_bits),
                            wanted.map(f32::to_bits),
                            "{grid:?} at {place:?}"
                        );
                    }
                }
            }
        }
        // Those of 36 taps have none, nor those that need more than 512 places.
        assert_eq!(copies, 8);
    }
}

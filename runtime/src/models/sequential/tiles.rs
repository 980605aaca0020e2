//! Convolutions with small filters on hosts, eight places of a row at a time.
//!
//! The input is copied once so that what a tap sees from place to place lies side by side: each row as planes, one a channel (of a convolution with a stride, one a channel and position modulo
//! it), with zeros around. A window is then a list of places in those planes, the same for all places of a row whose windows reach the same taps.

use super::grid::{Grid, Place};
use crate::format::TensorView;
use crate::ops::chip::multiply_tile;
use crate::ops::matvec::add_vector;
use crate::ops::parts::{next_mut, parts};
use crate::ops::tile::{ELEMENTS, PLACES, Tile};

/// Filters at most: with more of them, the way of `dot8` is the faster one.
const FILTERS: usize = 8;
/// Elements of all planes at most.
const PLANES: usize = 4096;

/// `out[place][filter] = dot8(filter, window at place) + bias`; `false`, and nothing is done, where filters are not floats that can be read as they lie, are large or many, or are not finite (rows outside
/// the input are left out, which only then makes a difference), and where the input is large.
pub(super) fn run(out: &mut [f32], x: &[f32], grid: &Grid, kernel: &TensorView<'_>, bias: &TensorView<'_>) -> bool {
    let (count, cols) = (kernel.rows(), kernel.cols());
    let Some(weights) = kernel.as_f32().filter(|weights| cols <= ELEMENTS && count <= FILTERS && are_finite(weights)) else { return false };
    let mut memory = [0.0; PLANES];
    let Some(planes) = Planes::of(grid) else { return false };
    let Some(memory) = memory.get_mut(..planes.size(grid)) else { return false };
    planes.fill(memory, x, grid);
    let [a, b, width] = grid.output;
    let mut rest = &mut *out;
    let mut tile = Tile::default();
    for (x_out, y_out) in (0..a).flat_map(|x| (0..b).map(move |y| (x, y))) {
        let row = next_mut(&mut rest, width.wrapping_mul(count));
        for phase in 0..planes.apart {
            tile.clear();
            planes.for_elements(grid, [x_out, y_out, phase], |element, at| tile.push(element, at));
            for (number, place) in (phase..width).step_by(planes.apart.wrapping_mul(PLACES)).enumerate() {
                let out = row.get_mut(place.wrapping_mul(count)..).unwrap_or_default();
                let seen = memory.get(number.wrapping_mul(PLACES)..).unwrap_or(&[]);
                multiply_tile(out, planes.apart.wrapping_mul(count), weights, cols, &tile, seen);
            }
        }
    }
    let mut rest = out;
    while !rest.is_empty() && !bias.bytes().is_empty() {
        let row = next_mut(&mut rest, count);
        match bias.as_f32() {
            Some(bias) => row.iter_mut().zip(bias).for_each(|(y, bias)| *y += bias),
            None => add_vector(row, bias),
        }
    }
    true
}

/// By the largest magnitude: a loop without a way out is one of vectors.
fn are_finite(values: &[f32]) -> bool {
    let magnitudes = values.iter().map(|value| value.abs().to_bits().cast_signed());
    magnitudes.fold(0, |largest, magnitude| if magnitude > largest { magnitude } else { largest }) < f32::INFINITY.to_bits().cast_signed()
}

/// How the planes of an input lie.
struct Planes {
    /// Length of one.
    len: usize,
    /// Zeros before the first element of a row.
    front: usize,
    /// Planes of a channel: the stride of a convolution.
    split: usize,
    /// How far apart places are whose windows reach the same taps: the stride of a transposed convolution.
    apart: usize,
}

impl Planes {
    fn of(grid: &Grid) -> Option<Self> {
        let ([_, _, width], [_, _, taps], [_, _, dilation]) = (grid.output, grid.window, grid.dilation);
        let ([_, _, stride], [_, _, before]) = (grid.stride, grid.before);
        let reach = taps.checked_sub(1)?.checked_mul(dilation)?;
        let (split, apart) = if grid.transposed { (1, stride) } else { (stride, 1) };
        let places = width.div_ceil(apart).checked_next_multiple_of(PLACES)?;
        let (front, after) = if grid.transposed {
            (reach.div_ceil(stride), before.div_ceil(stride).wrapping_add(1))
        } else {
            (before, reach.checked_div(stride)?)
        };
        let len = if grid.transposed { front } else { 0 }.checked_add(places)?.checked_add(after)?;
        Some(Self { len, front, split, apart })
    }

    /// Elements of all planes; more than there can be where that is no number.
    fn size(&self, grid: &Grid) -> usize {
        let [a, b, _] = grid.input;
        [a, b, self.split, grid.channels].into_iter().fold(self.len, usize::saturating_mul)
    }

    /// Puts the input into planes that hold zeros.
    fn fill(&self, planes: &mut [f32], x: &[f32], grid: &Grid) {
        let ([_, _, width], channels) = (grid.input, grid.channels);
        let mut rest = planes;
        for row in parts(x, width.wrapping_mul(channels)) {
            let planes = next_mut(&mut rest, self.len.wrapping_mul(self.split).wrapping_mul(channels));
            let (mut part, mut at) = (0usize, 0usize);
            for place in (0..width.wrapping_add(self.front)).map(|place| place.checked_sub(self.front)) {
                if at >= self.len {
                    break;
                }
                if let Some(found) = place.and_then(|place| row.get(place.wrapping_mul(channels)..)) {
                    let mut to = part.wrapping_mul(channels).wrapping_mul(self.len).wrapping_add(at);
                    for value in found.iter().take(channels) {
                        if let Some(y) = planes.get_mut(to) {
                            *y = *value;
                        }
                        to = to.wrapping_add(self.len);
                    }
                }
                part = part.wrapping_add(1);
                if part == self.split {
                    (part, at) = (0, at.wrapping_add(1));
                }
            }
        }
    }

    /// Calls `each` with the number of every element, channels fastest, of the window at `out` that may lie within the input, and where in the planes it lies.
    fn for_elements(&self, grid: &Grid, out: Place, mut each: impl FnMut(usize, usize)) {
        let ([taps_a, taps_b, taps_c], [_, _, z], channels) = (grid.window, out, grid.channels);
        let ([_, _, dilation], [_, _, stride], [_, _, before]) = (grid.dilation, grid.stride, grid.before);
        for (a, b) in (0..taps_a).flat_map(|a| (0..taps_b).map(move |b| (a, b))) {
            let Some(row) = grid.row(out, a, b) else { continue };
            let first = a.wrapping_mul(taps_b).wrapping_add(b).wrapping_mul(taps_c);
            for c in 0..taps_c {
                let reach = c.wrapping_mul(dilation);
                let (part, place) = if grid.transposed {
                    // Counted from the first zero on, so that it is not negative.
                    let place = z.wrapping_add(before).wrapping_add(self.front.wrapping_mul(stride)).wrapping_sub(reach) as u32;
                    if place.checked_rem(stride as u32) != Some(0) {
                        continue;
                    }
                    (0, place.checked_div(stride as u32).unwrap_or(0) as usize)
                } else {
                    let (reach, stride) = (reach as u32, stride as u32);
                    let part = reach.checked_rem(stride).unwrap_or(0) as usize;
                    (part, z.wrapping_add(reach.checked_div(stride).unwrap_or(0) as usize))
                };
                let plane = row.wrapping_mul(self.split).wrapping_add(part).wrapping_mul(channels);
                let mut at = plane.wrapping_mul(self.len).wrapping_add(place);
                let first = first.wrapping_add(c).wrapping_mul(channels);
                for element in first..first.wrapping_add(channels) {
                    each(element, at);
                    at = at.wrapping_add(self.len);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{DType, Dims};
    use crate::ops::sum::dot8;
    use crate::ops::test_rng::Rng;
    use crate::simd::Level;

    #[test]
    fn tiles_have_the_bits_of_patches() {
        let mut rng = Rng::new(7);
        for (transposed, width, stride, taps) in [false, true]
            .into_iter()
            .flat_map(|t| [1usize, 3, 8, 21].map(|w| [1, 2, 3].map(|s| [1, 2, 4].map(|n| (t, w, s, n)))))
            .flatten()
            .flatten()
        {
            for (channels, count, dilation, before) in [(1, 1, 1, 0), (3, 6, 2, 1), (2, 7, 1, 2), (5, 8, 3, 0)] {
                let reach = if transposed { width * stride } else { width.div_ceil(stride) + 1 };
                let (input, output) = ([2, 3, width], if transposed { [2, 6, reach] } else { [2, 2, reach] });
                let (window, stride) = ([1, 2, taps], [1, 2, stride]);
                let grid = Grid { input, output, window, stride, dilation: [1, 1, dilation], before: [0, 1, before], channels, transposed };
                let cols = 2 * taps * channels;
                let (x, weights, biases) = (rng.floats(6 * width * channels), rng.floats(count * cols), rng.floats(count));
                let dims = Dims::matrix(count as u32, cols as u32);
                let kernel = TensorView::new(0, DType::F32, dims, bytemuck::cast_slice(&weights)).unwrap();
                let bias = TensorView::new(0, DType::F32, Dims::vector(count as u32), bytemuck::cast_slice(&biases)).unwrap();
                let mut patch = vec![0.0; cols];
                let mut wanted = Vec::new();
                for place in grid.places() {
                    let patch = grid.patch(&x, place, &mut patch);
                    wanted.extend(weights.chunks(cols).zip(&biases).map(|(filter, bias)| (dot8(filter, patch) + bias).to_bits()));
                }
                let mut out = vec![f32::NAN; wanted.len()];
                assert!(run(&mut out, &x, &grid, &kernel, &bias));
                assert!(out.iter().map(|y| y.to_bits()).eq(wanted.iter().copied()), "{grid:?} at {}", Level::current().name());
                let mut tile = Tile::default();
                tile.push(0, 0);
                let (mut one, mut other) = ([0.0f32; 8], [0.0f32; 8]);
                let mut seen = [1.5f32; 8];
                seen.iter_mut().zip(&x).for_each(|(to, from)| *to = *from);
                multiply_tile(&mut one, 1, &weights[..cols], cols, &tile, &seen);
                crate::ops::tile::multiply_tile(&mut other, 1, &weights[..cols], cols, &tile, &seen);
                assert_eq!(one, other);
            }
        }
        let (weights, mut out) = ([f32::INFINITY], [0.0f32]);
        let kernel = TensorView::new(0, DType::F32, Dims::matrix(1, 1), bytemuck::cast_slice(&weights)).unwrap();
        let one = [1; 3];
        let grid =
            Grid { input: one, output: one, window: one, stride: one, dilation: one, before: [0; 3], channels: 1, transposed: false };
        assert!(!run(&mut out, &[0.0], &grid, &kernel, &TensorView::EMPTY));
    }
}

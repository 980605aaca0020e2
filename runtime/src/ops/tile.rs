//! Windows of eight places at a time under several filters: each place in a lane of the machine's vectors, so that no sum is taken across one. The bits are those of `dot8`.

use super::parts::parts;
use super::sum::trees;

/// Places of a tile.
pub(crate) const PLACES: usize = 8;
/// The most elements of a window that one lane of its sums takes.
const DEPTH: usize = 16;
/// The most elements of a window.
pub(crate) const ELEMENTS: usize = DEPTH * 8;

/// Where the elements of a window lie, by the lane of the canonical sum that each goes to. What is not there counts as zero.
#[derive(Debug, Default)]
pub(crate) struct Tile([Lane; 8]);

/// What goes to one lane: the number of each element, and where it lies.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Lane {
    used: usize,
    elements: [(u16, u16); DEPTH],
}

impl Tile {
    pub(crate) fn clear(&mut self) {
        for lane in &mut self.0 {
            lane.used = 0;
        }
    }

    /// Adds an element, whose number is above those of all before and below [`ELEMENTS`], and which lies at `at`, a number of 16 bits.
    #[inline]
    pub(crate) fn push(&mut self, element: usize, at: usize) {
        let Some(lane) = self.0.get_mut(element & 7) else { return };
        if let Some(place) = lane.elements.get_mut(lane.used) {
            *place = (element as u16, at as u16);
            lane.used = lane.used.wrapping_add(1);
        }
    }

    #[inline]
    pub(crate) const fn lanes(&self) -> &[Lane; 8] {
        &self.0
    }
}

impl Lane {
    /// Number and place of each element.
    #[inline]
    pub(crate) fn elements(&self) -> impl Iterator<Item = (usize, usize)> {
        self.elements.iter().map(|(element, at)| (usize::from(*element), usize::from(*at))).take(self.used)
    }
}

/// `out[p * step + filter] = dot8(filter, window p)` for filters of `cols` finite elements each, and as many of the eight windows as `out` has room for. An element of window p lies p further in `x`
/// than that of window 0.
pub(crate) fn multiply_tile(out: &mut [f32], step: usize, filters: &[f32], cols: usize, tile: &Tile, x: &[f32]) {
    for (number, filter) in parts(filters, cols).enumerate() {
        let mut lanes = [[0.0f32; PLACES]; 8];
        for (sums, lane) in lanes.iter_mut().zip(tile.lanes()) {
            let mut own = [0.0f32; PLACES];
            for (element, at) in lane.elements() {
                if let (Some(weight), Some(values)) = (filter.get(element), x.get(at..).and_then(|x| x.first_chunk::<PLACES>())) {
                    for (sum, value) in own.iter_mut().zip(values) {
                        *sum += *weight * *value;
                    }
                }
            }
            *sums = own;
        }
        put(out, step, number, trees(&lanes));
    }
}

/// The results of one filter.
#[inline]
pub(crate) fn put(out: &mut [f32], step: usize, filter: usize, sums: [f32; PLACES]) {
    let mut at = filter;
    for sum in sums {
        if let Some(y) = out.get_mut(at) {
            *y = sum;
        }
        at = at.wrapping_add(step);
    }
}

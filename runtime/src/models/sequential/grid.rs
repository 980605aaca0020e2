//! Windows over space: where each lies in the input, for one, two and three spatial axes alike.

use crate::format::Dims;
use crate::format::arch::sequential::{Layer, Padding, pad_before};
use crate::ops::parts::{copy, next_mut};

/// The spatial axes of a layer, filled up to three in front, so that the last is always the innermost.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grid {
    pub(super) input: [usize; 3],
    pub(super) output: [usize; 3],
    pub(super) window: [usize; 3],
    pub(super) stride: [usize; 3],
    pub(super) dilation: [usize; 3],
    pub(super) before: [usize; 3],
    pub(super) channels: usize,
    /// Whether windows belong to a transposed convolution: they then lie where this one's results would.
    pub(super) transposed: bool,
}

/// A place in the output, or in the input.
pub(super) type Place = [usize; 3];

/// Places, the last axis fastest: without the state of nested iterators, which firmware would copy for each.
#[derive(Clone, Debug)]
pub(super) struct Places {
    sizes: Place,
    next: Place,
    left: usize,
}

impl Iterator for Places {
    type Item = Place;

    fn next(&mut self) -> Option<Place> {
        self.left = self.left.checked_sub(1)?;
        let found = self.next;
        let ([x, y, z], [_, b, c]) = (&mut self.next, self.sizes);
        *z = z.wrapping_add(1);
        if *z == c {
            (*z, *y) = (0, y.wrapping_add(1));
            if *y == b {
                (*y, *x) = (0, x.wrapping_add(1));
            }
        }
        Some(found)
    }
}

impl Grid {
    /// The windows of a convolution or a pool.
    pub(super) fn new(layer: &Layer, input: Dims, output: Dims) -> Self {
        Self::of(layer, input, output, false)
    }

    /// The windows of a transposed convolution.
    pub(super) fn transposed(layer: &Layer, input: Dims, output: Dims) -> Self {
        Self::of(layer, input, output, true)
    }

    fn of(layer: &Layer, input: Dims, output: Dims, transposed: bool) -> Self {
        let axes = usize::from(layer.spatial).min(3);
        let mut grid = Self {
            input: [1; 3],
            output: [1; 3],
            window: [1; 3],
            stride: [1; 3],
            dilation: [1; 3],
            before: [0; 3],
            channels: input.cols() as usize,
            transposed,
        };
        let set = |to: &mut [usize; 3], from: &[u32]| {
            for (to, from) in to.iter_mut().skip(3usize.saturating_sub(axes)).zip(from) {
                *to = (*from).max(1) as usize;
            }
        };
        let (sizes, results) = (input.padded(), output.padded());
        set(&mut grid.input, &sizes);
        set(&mut grid.output, &results);
        set(&mut grid.window, &layer.window());
        set(&mut grid.stride, &layer.strides());
        set(&mut grid.dilation, &layer.dilation());
        let mut before = [0u32; 3];
        let rows = layer.window().into_iter().zip(layer.strides()).zip(layer.dilation());
        for ((before, (n, out)), ((window, stride), dilation)) in before.iter_mut().zip(sizes.into_iter().zip(results)).zip(rows).take(axes)
        {
            // Of a transposed convolution: that of the one whose input is this one's result.
            let (n, out) = if transposed { (out, n) } else { (n, out) };
            *before = if transposed && layer.padding == Padding::Valid {
                0
            } else {
                pad_before(n, out, window, stride, dilation.max(1), layer.padding)
            };
        }
        for (to, from) in grid.before.iter_mut().skip(3usize.saturating_sub(axes)).zip(before) {
            *to = from as usize;
        }
        grid
    }

    /// Every place of the output, in its order.
    pub(super) fn places(&self) -> Places {
        Places { sizes: self.output, next: [0; 3], left: self.output.into_iter().fold(1, usize::saturating_mul) }
    }

    /// One window over the whole input.
    pub(super) const fn whole(self) -> Self {
        Self { output: [1; 3], window: self.input, ..self }
    }

    /// Where tap `tap` of the window at `out` lies along an axis; `None` outside the input.
    #[inline]
    fn along(&self, axis: usize, out: usize, tap: usize) -> Option<usize> {
        let of = |values: &[usize; 3]| values.get(axis).copied().unwrap_or(1);
        let (n, stride, before) = (of(&self.input), of(&self.stride), self.before.get(axis).copied().unwrap_or(0));
        let reach = tap.wrapping_mul(of(&self.dilation));
        let place = if self.transposed {
            // Sizes are below 2^24; the shorter division is the faster one on hosts.
            let (place, stride) = (out.wrapping_add(before).checked_sub(reach)? as u32, stride as u32);
            let within = place.checked_div(stride)?;
            if within.wrapping_mul(stride) != place {
                return None;
            }
            within as usize
        } else {
            out.wrapping_mul(stride).wrapping_add(reach).checked_sub(before)?
        };
        if place < n { Some(place) } else { None }
    }

    /// The row of the input, without its last axis, that taps (a, b) of the window at `out` lie in: its number.
    #[inline]
    pub(super) fn row(&self, [x, y, _]: Place, a: usize, b: usize) -> Option<usize> {
        let [_, rows, _] = self.input;
        Some(self.along(0, x, a)?.wrapping_mul(rows).wrapping_add(self.along(1, y, b)?))
    }

    /// Calls `each` with the number of every tap of the window at `out` that lies within the input, and the number of its place there.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "the closure must be inlined into the loop")]
    pub(super) fn for_taps(&self, out: Place, mut each: impl FnMut(usize, usize)) {
        let ([_, _, width], [taps_a, taps_b, taps_c], [_, _, z]) = (self.input, self.window, out);
        for a in 0..taps_a {
            for b in 0..taps_b {
                let Some(row) = self.row(out, a, b) else { continue };
                let first = a.wrapping_mul(taps_b).wrapping_add(b).wrapping_mul(taps_c);
                for c in 0..taps_c {
                    if let Some(place) = self.along(2, z, c) {
                        each(first.wrapping_add(c), row.wrapping_mul(width).wrapping_add(place));
                    }
                }
            }
        }
    }

    /// The input under the window at `out`, all channels of one tap after those of the other, with zeros for what lies outside: a part of `x` where that is what it is, else copied to `patch`.
    #[inline]
    pub(super) fn patch<'p>(&self, x: &'p [f32], out: Place, patch: &'p mut [f32]) -> &'p [f32] {
        let ([_, _, width], [taps_a, taps_b, taps_c], [_, _, z]) = (self.input, self.window, out);
        let (channels, [_, _, dilation], [_, _, stride], [_, _, before]) = (self.channels, self.dilation, self.stride, self.before);
        let (row_len, run) = (width.wrapping_mul(channels), taps_c.wrapping_mul(channels));
        let contiguous = !self.transposed && (dilation == 1 || taps_c == 1);
        // Along the last axis: how many taps lie before the input, and where the others begin.
        let start = z.wrapping_mul(stride);
        let outside = before.saturating_sub(start).min(taps_c);
        let start = start.saturating_sub(before);
        let inside = width.saturating_sub(start).min(taps_c.saturating_sub(outside));
        if contiguous && inside == taps_c && taps_a.wrapping_mul(taps_b) == 1 {
            let first = self.row(out, 0, 0).map(|row| row.wrapping_mul(row_len).wrapping_add(start.wrapping_mul(channels)));
            if let Some(part) = first.and_then(|first| x.get(first..first.wrapping_add(run))) {
                return part;
            }
        }
        let mut rest = &mut *patch;
        for a in 0..taps_a {
            for b in 0..taps_b {
                let taps = next_mut(&mut rest, run);
                let row =
                    self.row(out, a, b).map(|row| row.wrapping_mul(row_len)).and_then(|first| x.get(first..first.wrapping_add(row_len)));
                let Some(row) = row else {
                    taps.fill(0.0);
                    continue;
                };
                if contiguous {
                    let mut taps = taps;
                    next_mut(&mut taps, outside.wrapping_mul(channels)).fill(0.0);
                    let first = start.wrapping_mul(channels);
                    let found = row.get(first..first.wrapping_add(inside.wrapping_mul(channels))).unwrap_or(&[]);
                    copy(next_mut(&mut taps, found.len()), found);
                    taps.fill(0.0);
                    continue;
                }
                let mut taps = taps;
                for c in 0..taps_c {
                    let tap = next_mut(&mut taps, channels);
                    let first = self.along(2, z, c).map(|place| place.wrapping_mul(channels));
                    match first.and_then(|first| row.get(first..first.wrapping_add(channels))) {
                        Some(found) => copy(tap, found),
                        None => tap.fill(0.0),
                    }
                }
            }
        }
        patch
    }
}

//! Walks over the elements of an array with any strides: what permutations, broadcasts and statistics over axes are made of.

/// Axes of a walk at most: those of a shape, and each of three more for what is repeated along it.
const AXES: usize = 8;

/// The offsets of elements, the last axis fastest.
#[derive(Clone, Debug)]
pub(super) struct Walk {
    /// Size and stride, the last axis first.
    axes: [(usize, isize); AXES],
    used: usize,
    counts: [usize; AXES],
    next: Option<isize>,
}

impl Walk {
    /// From `start` on, with no axes: one element.
    pub(super) fn new(start: isize) -> Self {
        Self { axes: [(1, 0); AXES], used: 0, counts: [0; AXES], next: Some(start) }
    }

    /// With one more axis, slower than those before.
    #[must_use]
    pub(super) fn slower(mut self, size: usize, stride: isize) -> Self {
        if let Some(axis) = self.axes.get_mut(self.used).filter(|_| size != 1) {
            *axis = (size, stride);
            self.used = self.used.wrapping_add(1);
        }
        if size == 0 {
            self.next = None;
        }
        self
    }

    /// With axes of these sizes and strides, the last fastest.
    #[must_use]
    pub(super) fn axes(self, axes: impl DoubleEndedIterator<Item = (usize, isize)>) -> Self {
        axes.rev().fold(self, |walk, (size, stride)| walk.slower(size, stride))
    }
}

impl Iterator for Walk {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        let found = self.next?;
        let mut offset = found;
        self.next = None;
        for ((size, stride), count) in self.axes.iter().take(self.used).zip(&mut self.counts) {
            *count = count.wrapping_add(1);
            offset = offset.wrapping_add(*stride);
            if *count < *size {
                self.next = Some(offset);
                break;
            }
            offset = offset.wrapping_sub(stride.wrapping_mul(size.cast_signed()));
            *count = 0;
        }
        Some(found.cast_unsigned())
    }

    /// The same elements in the same order, the fastest axis in a loop of its own.
    #[inline]
    fn fold<B, F: FnMut(B, usize) -> B>(mut self, init: B, mut f: F) -> B {
        let mut folded = init;
        let [(size, stride), slower @ ..] = self.axes;
        if self.used == 0 || self.counts.iter().any(|count| *count != 0) {
            for at in self {
                folded = f(folded, at);
            }
            return folded;
        }
        self.used = self.used.wrapping_sub(1);
        for (to, from) in self.axes.iter_mut().zip(slower) {
            *to = from;
        }
        for start in self {
            let mut at = start;
            for _ in 0..size {
                folded = f(folded, at);
                at = at.wrapping_add_signed(stride);
            }
        }
        folded
    }
}

/// The strides of a row-major array of these sizes.
pub(super) fn strides(sizes: [u32; 4]) -> [isize; 4] {
    let [_, b, c, d] = sizes.map(|size| size as isize);
    let cd = c.wrapping_mul(d);
    [b.wrapping_mul(cd), cd, d, 1]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_axis_is_the_fastest() {
        let walk = Walk::new(1).axes([(2, 10), (1, 7), (3, -1)].into_iter());
        assert_eq!(walk.collect::<Vec<_>>(), [1, 0, usize::MAX, 11, 10, 9]);
        assert_eq!(Walk::new(5).collect::<Vec<_>>(), [5]);
        let folded = |walk: Walk| {
            let mut all = Vec::new();
            walk.for_each(|at| all.push(at));
            all
        };
        let mut walk = Walk::new(1).axes([(2, 10), (1, 7), (3, -1)].into_iter());
        assert_eq!(folded(walk.clone()), [1, 0, usize::MAX, 11, 10, 9]);
        assert_eq!((walk.next(), folded(walk)), (Some(1), vec![0, usize::MAX, 11, 10, 9]));
        assert_eq!((folded(Walk::new(5)), folded(Walk::new(5).slower(0, 1))), (vec![5], vec![]));
        assert_eq!(Walk::new(5).slower(0, 1).count(), 0);
        assert_eq!(strides([2, 3, 4, 1]), [12, 4, 1, 1]);
    }
}

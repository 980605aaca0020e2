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

    /// Calls `each` with the offsets, the fastest axis in a loop of its own; of a walk that has not begun.
    #[inline]
    pub(super) fn visit(&self, mut each: impl FnMut(usize)) {
        let [(size, stride), slower @ ..] = &self.axes;
        let (mut next, mut outer) = (self.next, None);
        while let Some(start) = next {
            let mut at = start;
            for _ in 0..*size {
                each(at.cast_unsigned());
                at = at.wrapping_add(*stride);
            }
            if self.used < 2 {
                return;
            }
            let outer = outer.get_or_insert_with(|| {
                let mut outer = Self { used: self.used.wrapping_sub(1), ..Self::new(start) };
                for (to, from) in outer.axes.iter_mut().zip(slower) {
                    *to = *from;
                }
                outer.next();
                outer
            });
            next = outer.next().map(usize::cast_signed);
        }
    }

    /// How many elements a walk has that has not begun.
    pub(super) fn len(&self) -> usize {
        let sizes = self.axes.iter().take(self.used).map(|(size, _)| *size);
        sizes.fold(usize::from(self.next.is_some()), usize::saturating_mul)
    }

    /// Whether the offsets are those from 0 on, each one more than that before.
    #[cfg(not(target_os = "none"))]
    pub(super) fn is_block(&self) -> bool {
        let mut len = 1isize;
        let steady = self.axes.iter().take(self.used).all(|(size, stride)| {
            let fits = *stride == len;
            len = len.wrapping_mul(size.cast_signed());
            fits
        });
        steady && self.next == Some(0)
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
            walk.clone().for_each(|at| all.push(at));
            let mut visited = Vec::new();
            walk.visit(|at| visited.push(at));
            assert!(visited == all || walk.counts != [0; AXES]);
            all
        };
        let mut walk = Walk::new(1).axes([(2, 10), (1, 7), (3, -1)].into_iter());
        assert_eq!(folded(walk.clone()), [1, 0, usize::MAX, 11, 10, 9]);
        assert_eq!((walk.next(), folded(walk)), (Some(1), vec![0, usize::MAX, 11, 10, 9]));
        assert_eq!((folded(Walk::new(5)), folded(Walk::new(5).slower(0, 1))), (vec![5], vec![]));
        assert_eq!(Walk::new(5).slower(0, 1).count(), 0);
        assert_eq!(strides([2, 3, 4, 1]), [12, 4, 1, 1]);
        let blocks = [[(2, 6), (3, 2), (2, 1)], [(1, 9), (5, 1), (1, 9)], [(2, 3), (1, 7), (3, 1)], [(1, 0); 3]];
        let others = [[(2, 2), (3, 2), (2, 1)], [(1, 9), (5, 2), (1, 9)], [(2, 1), (1, 7), (3, 2)], [(1, 1), (1, 1), (3, -1)]];
        let of = |axes: [(usize, isize); 3]| Walk::new(0).axes(axes.into_iter());
        assert_eq!(blocks.map(|axes| (of(axes).is_block(), of(axes).len())), [(true, 12), (true, 5), (true, 6), (true, 1)]);
        assert_eq!(others.map(|axes| (of(axes).is_block(), of(axes).len())), [(false, 12), (false, 5), (false, 6), (false, 3)]);
        assert_eq!(
            [Walk::new(1).slower(3, 1), Walk::new(0).slower(0, 1)].map(|walk| (walk.is_block(), walk.len())),
            [(false, 3), (false, 0)]
        );
    }
}

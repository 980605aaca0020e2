//! Slices cut into parts of a length known at run time, without the division and the panic that `chunks` has for it.

/// The parts of a slice, one after the other; the last may be short. A length of 0 gives none.
#[derive(Clone, Debug)]
pub(crate) struct Parts<'a, T> {
    rest: &'a [T],
    len: usize,
}

/// `slice` in parts of `len`.
#[inline]
pub(crate) fn parts<T>(slice: &[T], len: usize) -> Parts<'_, T> {
    Parts { rest: slice, len }
}

impl<'a, T> Iterator for Parts<'a, T> {
    type Item = &'a [T];

    #[inline]
    fn next(&mut self) -> Option<&'a [T]> {
        let (part, rest) = self.rest.split_at_checked(self.len).unwrap_or((self.rest, &[]));
        self.rest = rest;
        if part.is_empty() { None } else { Some(part) }
    }
}

/// The next `len` elements of `rest`, which is then what follows them; fewer where there are no more.
#[cfg_attr(not(feature = "sequential"), allow(dead_code, reason = "networks of layers alone cut their memory so"))]
#[inline]
#[allow(clippy::mut_mut, reason = "what is left is written back")]
pub(crate) fn next_mut<'a, T>(rest: &mut &'a mut [T], len: usize) -> &'a mut [T] {
    let all = core::mem::take(rest);
    let at = len.min(all.len());
    let (part, after) = all.split_at_mut_checked(at).unwrap_or_default();
    *rest = after;
    part
}

/// The elements of `from` in those of `to`, as far as both go: without the panic that `copy_from_slice` has for other lengths.
#[cfg(feature = "sequential")]
#[inline]
pub(crate) fn copy<T: Copy>(to: &mut [T], from: &[T]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to = *from;
    }
}

#[cfg(test)]
mod tests {
    use super::{next_mut, parts};

    #[test]
    fn parts_to_write_come_one_after_the_other() {
        let mut all = [1, 2, 3, 4, 5];
        let mut rest = &mut all[..];
        assert_eq!((next_mut(&mut rest, 2), next_mut(&mut rest, 0)), (&mut [1, 2][..], &mut [][..]));
        assert_eq!(next_mut(&mut rest, 9), [3, 4, 5]);
        assert!(next_mut(&mut rest, 1).is_empty());
    }

    #[test]
    fn parts_are_chunks() {
        let all: Vec<u8> = (0..23).collect();
        for n in 0..24 {
            for len in 1..30 {
                assert!(parts(&all[..n], len).eq(all[..n].chunks(len)));
            }
            assert_eq!(parts(&all[..n], 0).count(), 0);
        }
    }
}

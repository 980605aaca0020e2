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

#[cfg(test)]
mod tests {
    use super::parts;

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

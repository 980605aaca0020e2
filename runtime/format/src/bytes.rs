//! Reading little-endian numbers out of bytes without a way to panic, also in constants.

/// The `N` bytes at `offset`, if they are there.
pub(crate) const fn array<const N: usize>(bytes: &[u8], offset: usize) -> Option<[u8; N]> {
    match bytes.split_at_checked(offset) {
        Some((_, rest)) => match rest.first_chunk::<N>() {
            Some(found) => Some(*found),
            None => None,
        },
        None => None,
    }
}

/// The `u16` at `offset`; 0 past the end (callers check lengths first).
pub(crate) const fn u16_at(bytes: &[u8], offset: usize) -> u16 {
    match array::<2>(bytes, offset) {
        Some(b) => u16::from_le_bytes(b),
        None => 0,
    }
}

/// The `u32` at `offset`; 0 past the end (callers check lengths first).
pub(crate) const fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    match array::<4>(bytes, offset) {
        Some(b) => u32::from_le_bytes(b),
        None => 0,
    }
}

/// The `u64` at `offset`; 0 past the end (callers check lengths first).
pub(crate) const fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    match array::<8>(bytes, offset) {
        Some(b) => u64::from_le_bytes(b),
        None => 0,
    }
}

/// `len` bytes from `offset`, if they are there.
pub(crate) const fn part(bytes: &[u8], offset: usize, len: usize) -> Option<&[u8]> {
    match bytes.split_at_checked(offset) {
        Some((_, rest)) => match rest.split_at_checked(len) {
            Some((found, _)) => Some(found),
            None => None,
        },
        None => None,
    }
}

/// How many whole words of 32 bits there are.
pub(crate) const fn word_count(bytes: &[u8]) -> u32 {
    (bytes.len() / 4) as u32
}

/// Whether both are the same bytes (`==`, also in constants).
pub(crate) const fn same(mut a: &[u8], mut b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    while let ([x, a_rest @ ..], [y, b_rest @ ..]) = (a, b) {
        if *x != *y {
            return false;
        }
        a = a_rest;
        b = b_rest;
    }
    true
}

/// The next multiple of `alignment`, a power of two, at or after `offset`; wraps past the end of 64 bits. (A division by a value that may be 0 would be a panic path.)
pub(crate) const fn align_up(offset: u64, alignment: u64) -> u64 {
    let mask = alignment.wrapping_sub(1);
    offset.wrapping_add(mask) & !mask
}

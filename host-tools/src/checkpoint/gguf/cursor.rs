//! Reads GGUF's primitives one after the other, never past the end: every length is compared with the bytes that are left before anything is made of it.

use crate::error::{Error, Result};

/// The bytes of a file and how far they were read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8], at: usize) -> Self {
        Self { bytes, at }
    }

    /// The place of the next byte.
    pub(super) fn at(&self) -> usize {
        self.at
    }

    /// How many bytes are left.
    pub(super) fn left(&self) -> u64 {
        self.bytes.len().saturating_sub(self.at) as u64
    }

    /// The next `len` bytes, which errors call `what`.
    pub(super) fn take(&mut self, len: u64, what: &str) -> Result<&'a [u8]> {
        let taken = usize::try_from(len).ok().and_then(|len| self.bytes.get(self.at..self.at.checked_add(len)?));
        let Some(taken) = taken else {
            let what = format!("the file ends within {what}: {len} bytes are called for, {} are left", self.left());
            return Err(Error::damaged(what).at(format!("byte {}", self.at)).advise(COPY));
        };
        self.at += taken.len();
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N]> {
        let bytes = self.take(N as u64, what)?;
        Ok(bytes.first_chunk().copied().unwrap_or([0; N]))
    }

    pub(super) fn u32(&mut self, what: &str) -> Result<u32> {
        self.array(what).map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self, what: &str) -> Result<u64> {
        self.array(what).map(u64::from_le_bytes)
    }

    /// A string: its length, then its bytes.
    pub(super) fn bytes(&mut self, what: &str) -> Result<&'a [u8]> {
        let len = self.u64(what)?;
        self.take(len, what)
    }

    /// A string that has to be UTF-8.
    pub(super) fn text(&mut self, what: &str) -> Result<&'a str> {
        let at = self.at;
        let bytes = self.bytes(what)?;
        std::str::from_utf8(bytes).map_err(|_| Error::damaged(format!("{what} is not UTF-8")).at(format!("byte {at}")).advise(COPY))
    }
}

/// What to do about a file that is cut or overwritten.
pub(super) const COPY: &str = "copy or download it again";

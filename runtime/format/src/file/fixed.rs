//! The fixed part at a file's start (24 bytes in format 1, 32 in format 2): magic, version, lengths, checksum. Read by [`super::ModelFile::open`].

use crate::bytes::{align_up, array, u32_at, u64_at};
use crate::{Error, Part, Rule};

/// The first seven bytes of every file.
pub const MAGIC: [u8; 7] = *b"DMEXPRT";
/// Bytes of the fixed part of format 1.
pub const FIXED_LEN_1: usize = 24;
/// Bytes of the fixed part of format 2.
pub const FIXED_LEN_2: usize = 32;
/// The longest TOML header.
pub const HEADER_LIMIT: u32 = 16 << 20;
/// The longest index.
pub const INDEX_LIMIT: u32 = 64 << 20;
/// The smallest alignment of a format-2 payload.
pub const ALIGNMENT_MIN: u32 = 16;
/// The largest alignment of a format-2 payload.
pub const ALIGNMENT_MAX: u32 = 4096;

/// The fixed part, checked by itself: every length within its limit, and all of them together within 64 bits and this target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fixed {
    /// 1 or 2.
    pub version: u8,
    /// Bytes of the TOML header; 0 in a format-2 file that was stripped for firmware.
    pub header_len: u32,
    /// Bytes of the index; 0 in format 1.
    pub index_len: u32,
    /// Every tensor starts at a multiple of this; 1 in format 1.
    pub alignment: u32,
    /// Bytes from the first tensor to the file's end.
    pub payload_len: u64,
    /// Format 1: the CRC-32 of the payload. Format 2: that of all before it but this field.
    pub checksum: u32,
}

impl Fixed {
    /// Reads the fixed part from a file's first bytes (more may follow).
    ///
    /// # Errors
    /// [`Error::NotDmexp`], [`Error::Version`], [`Error::TomlNotBuilt`], [`Error::Truncated`], [`Error::Layout`] for a length or alignment that is not allowed,
    /// [`Error::TooLargeForTarget`].
    #[inline(never)]
    pub const fn parse(bytes: &[u8]) -> Result<Self, Error> {
        let version = match version(bytes) {
            Ok(version) => version,
            Err(error) => return Err(error),
        };
        let one = cfg!(feature = "toml") && version == 1;
        let needed = if one { FIXED_LEN_1 } else { FIXED_LEN_2 };
        if bytes.len() < needed {
            return Err(truncated(Part::Fixed, needed as u64, bytes));
        }
        let fixed = Self {
            version,
            header_len: u32_at(bytes, 8),
            payload_len: u64_at(bytes, 12),
            checksum: u32_at(bytes, 20),
            index_len: if one { 0 } else { u32_at(bytes, 24) },
            alignment: if one { 1 } else { u32_at(bytes, 28) },
        };
        if fixed.header_len > HEADER_LIMIT {
            return Err(wrong(Part::Header, Rule::TooLarge, 8, fixed.header_len, HEADER_LIMIT));
        }
        if one && fixed.header_len == 0 {
            return Err(wrong(Part::Header, Rule::NotZero, 8, 0, 1));
        }
        if !one {
            if fixed.index_len > INDEX_LIMIT {
                return Err(wrong(Part::Index, Rule::TooLarge, 24, fixed.index_len, INDEX_LIMIT));
            }
            if !fixed.alignment.is_power_of_two() {
                return Err(wrong(Part::Fixed, Rule::PowerOfTwo, 28, fixed.alignment, ALIGNMENT_MIN));
            }
            if fixed.alignment < ALIGNMENT_MIN {
                return Err(wrong(Part::Fixed, Rule::TooSmall, 28, fixed.alignment, ALIGNMENT_MIN));
            }
            if fixed.alignment > ALIGNMENT_MAX {
                return Err(wrong(Part::Fixed, Rule::TooLarge, 28, fixed.alignment, ALIGNMENT_MAX));
            }
        }
        match fixed.payload_start().checked_add(fixed.payload_len) {
            None => Err(Error::Layout {
                part: Part::Payload,
                rule: Rule::TooLarge,
                offset: 12,
                found: fixed.payload_len,
                allowed: u64::MAX - fixed.payload_start(),
            }),
            Some(needed) if needed > isize::MAX as u64 => Err(Error::TooLargeForTarget { needed, addressable: isize::MAX as u64 }),
            Some(_) => Ok(fixed),
        }
    }

    /// Whether this is a format-1 file; without the feature `toml` none gets this far.
    pub(super) const fn is_format_1(&self) -> bool {
        cfg!(feature = "toml") && self.version == 1
    }

    /// Where the TOML header starts: the length of the fixed part.
    pub const fn header_start(&self) -> u64 {
        if self.is_format_1() { FIXED_LEN_1 as u64 } else { FIXED_LEN_2 as u64 }
    }

    /// Where the header ends and the index starts.
    pub const fn index_start(&self) -> u64 {
        self.header_start() + self.header_len as u64
    }

    /// Where the index ends and the zero bytes before the payload start.
    pub const fn index_end(&self) -> u64 {
        self.index_start() + self.index_len as u64
    }

    /// Where the payload starts: the next multiple of the alignment (format 1: right after the header).
    #[inline(never)]
    pub const fn payload_start(&self) -> u64 {
        align_up(self.index_end(), self.alignment as u64)
    }

    /// Where the file ends. `parse` made sure that this fits.
    pub const fn file_len(&self) -> u64 {
        self.payload_start().saturating_add(self.payload_len)
    }

    /// Checks that the file is exactly as long as its fixed part says.
    ///
    /// # Errors
    /// [`Error::Truncated`] with the first part that does not fit, or [`Error::TrailingBytes`].
    #[inline(never)]
    pub const fn check_len(&self, bytes: &[u8]) -> Result<(), Error> {
        let found = bytes.len() as u64;
        if self.index_start() > found {
            return Err(truncated(Part::Header, self.index_start(), bytes));
        }
        if self.index_end() > found {
            return Err(truncated(Part::Index, self.index_end(), bytes));
        }
        if self.file_len() > found {
            return Err(truncated(Part::Payload, self.file_len(), bytes));
        }
        if self.file_len() < found {
            return Err(Error::TrailingBytes { expected: self.file_len(), found });
        }
        Ok(())
    }
}

/// The version byte, once the magic was found.
const fn version(bytes: &[u8]) -> Result<u8, Error> {
    let mut first = [0u8; 8];
    let (mut rest, mut place): (&[u8], &mut [u8]) = (bytes, &mut first);
    while let ([byte, bytes @ ..], [slot, slots @ ..]) = (rest, place) {
        *slot = *byte;
        rest = bytes;
        place = slots;
    }
    let (mut rest, mut magic): (&[u8], &[u8]) = (bytes, &MAGIC);
    while let ([byte, bytes @ ..], [expected, expecteds @ ..]) = (rest, magic) {
        if *byte != *expected {
            return Err(Error::NotDmexp { first });
        }
        rest = bytes;
        magic = expecteds;
    }
    match array::<1>(bytes, MAGIC.len()) {
        // What is there is the beginning of the magic: a file cut short, or an empty one.
        None => Err(truncated(Part::Fixed, FIXED_LEN_1 as u64, bytes)),
        Some([1]) if !cfg!(feature = "toml") => Err(Error::TomlNotBuilt),
        Some([version @ (1 | 2)]) => Ok(version),
        Some([found]) => Err(Error::Version { found }),
    }
}

#[cold]
#[inline(never)]
const fn truncated(part: Part, needed: u64, bytes: &[u8]) -> Error {
    Error::Truncated { part, needed, found: bytes.len() as u64 }
}

#[cold]
#[inline(never)]
const fn wrong(part: Part, rule: Rule, offset: u32, found: u32, allowed: u32) -> Error {
    Error::Layout { part, rule, offset: offset as u64, found: found as u64, allowed: allowed as u64 }
}

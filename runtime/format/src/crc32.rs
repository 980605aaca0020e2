//! CRC-32 (IEEE 802.3: reflected 0xEDB88320, initial value and final xor all ones), the checksum of every part of a file.
//!
//! Hosts use `crc32fast`; targets without `std` a table of 16 entries' worth of flash (`crc`). Both give the same numbers.

#[cfg(not(feature = "std"))]
const CRC: crc::Crc<u32, crc::NoTable> = crc::Crc::<u32, crc::NoTable>::new(&crc::CRC_32_ISO_HDLC);

/// The checksum of `parts`, one after the other.
#[cfg(not(feature = "std"))]
pub fn checksum(parts: &[&[u8]]) -> u32 {
    let mut digest = CRC.digest();
    for part in parts {
        digest.update(part);
    }
    digest.finalize()
}

/// The checksum of `parts`, one after the other.
#[cfg(feature = "std")]
pub fn checksum(parts: &[&[u8]]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    for part in parts {
        hasher.update(part);
    }
    hasher.finalize()
}

/// The checksum of `bytes`, with `read` told each piece once it has been read: whoever mapped a large file can give the memory back.
#[cfg(feature = "std")]
pub fn checksum_in_pieces(bytes: &[u8], read: &mut dyn FnMut(&[u8])) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    for piece in bytes.chunks(1 << 20) {
        hasher.update(piece);
        read(piece);
    }
    hasher.finalize()
}

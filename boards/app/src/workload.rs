//! The arithmetic that the application runs to show that a board computes and counts: CRC-32 (reflected, polynomial
//! 0xEDB88320, as in zlib), bit by bit. Called by the commands in `lib.rs`.

/// The message whose checksum every catalogue of CRCs gives as the check value.
pub(crate) const MESSAGE: &[u8] = b"123456789";

/// The check value of CRC-32/ISO-HDLC for [`MESSAGE`].
pub(crate) const MESSAGE_CRC32: u32 = 0xCBF4_3926;

/// CRC-32/ISO-HDLC of `bytes`.
#[inline(never)]
pub(crate) fn crc32(bytes: &[u8]) -> u32 {
    #[cfg(feature = "seeded-panic")]
    core::hint::black_box(bytes[core::hint::black_box(3)]);
    let mut crc = u32::MAX;
    for &byte in bytes {
        crc ^= u32::from(byte);
        for _ in 0..8 {
            let mask = 0u32.wrapping_sub(crc & 1);
            crc = (crc >> 1) ^ (0xEDB8_8320 & mask);
        }
    }
    !crc
}

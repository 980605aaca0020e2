//! Changes to files of format 2, after which every checksum is right again, so that a checksum alone cannot refuse them.

use dmexp::format::crc32::checksum;

/// The word at a place.
///
/// # Panics
/// Past the end.
pub fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(*bytes[at..].first_chunk().expect("four bytes"))
}

/// Puts bytes at a place.
///
/// # Panics
/// Past the end.
pub fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

/// Where the index starts.
pub fn index_start(bytes: &[u8]) -> usize {
    32 + word(bytes, 8) as usize
}

/// Where the payload starts.
pub fn payload_start(bytes: &[u8]) -> usize {
    (index_start(bytes) + word(bytes, 24) as usize).next_multiple_of(word(bytes, 28) as usize)
}

/// Where the record of a tensor starts.
pub fn record(bytes: &[u8], tensor: usize) -> usize {
    let index = index_start(bytes);
    index + word(bytes, index + 12) as usize + 56 * tensor
}

/// Makes the checksum of fixed part, header and index right.
///
/// # Panics
/// If the lengths reach past the end.
pub fn seal(bytes: &mut [u8]) {
    let end = index_start(bytes) + word(bytes, 24) as usize;
    let crc = checksum(&[&bytes[..20], &bytes[24..end]]);
    put(bytes, 20, &crc.to_le_bytes());
}

/// Makes the checksums of every tensor, of the payload and of the index right.
///
/// # Panics
/// If the records reach past the end.
pub fn seal_payload(bytes: &mut [u8]) {
    let (index, payload) = (index_start(bytes), payload_start(bytes));
    for tensor in 0..word(bytes, index + 8) as usize {
        let record = record(bytes, tensor);
        let start = payload + word(bytes, record + 32) as usize;
        let crc = checksum(&[&bytes[start..start + word(bytes, record + 40) as usize]]);
        put(bytes, record + 28, &crc.to_le_bytes());
    }
    let crc = checksum(&[&bytes[payload..]]);
    put(bytes, index + 48, &crc.to_le_bytes());
    seal(bytes);
}

/// Replaces text of the same length, once.
///
/// # Panics
/// If it is not there.
pub fn replace(bytes: &mut [u8], from: &str, to: &str) {
    assert_eq!(from.len(), to.len(), "a text of the same length");
    let at = bytes.windows(from.len()).position(|window| window == from.as_bytes()).expect("the text is there");
    put(bytes, at, to.as_bytes());
}

/// The file with another header (none if it is empty), the same index and payload, and the checksum of both made right.
///
/// # Panics
/// If the lengths reach past the end.
pub fn with_header(bytes: &[u8], header: &str) -> Vec<u8> {
    let (index, payload) = (index_start(bytes), payload_start(bytes));
    let mut made = bytes[..32].to_vec();
    put(&mut made, 8, &(header.len() as u32).to_le_bytes());
    made.extend(header.bytes());
    made.extend(&bytes[index..index + word(bytes, 24) as usize]);
    made.resize(payload_start(&made), 0);
    made.extend(&bytes[payload..]);
    seal(&mut made);
    made
}

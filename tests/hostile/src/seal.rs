//! Checksums made right again, wherever there is one: what was damaged is then refused for what it says, or is another input. Nothing here refuses: what cannot be found is left as it is.

use dmexp_format::crc32::checksum;

fn word(bytes: &[u8], at: usize) -> Option<usize> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?) as usize)
}

fn put(bytes: &mut [u8], at: usize, value: u32) {
    if let Some(place) = bytes.get_mut(at..).and_then(|rest| rest.first_chunk_mut()) {
        *place = value.to_le_bytes();
    }
}

/// A `.dmexp` file: those of its tensors, of the payload and of the head.
pub(crate) fn file(bytes: &mut [u8]) {
    if bytes.get(7) == Some(&1) {
        let Some(header) = word(bytes, 8) else { return };
        let Some(payload) = header.checked_add(24).and_then(|start| bytes.get(start..)) else { return };
        let sum = checksum(&[payload]);
        put(bytes, 20, sum);
    } else {
        format_2(bytes);
    }
}

fn format_2(bytes: &mut [u8]) -> Option<()> {
    let index = word(bytes, 8)?.checked_add(32)?;
    let end = index.checked_add(word(bytes, 24)?)?;
    let alignment = word(bytes, 28).filter(|alignment| alignment.is_power_of_two())?;
    let payload = end.checked_next_multiple_of(alignment)?;
    tensors(bytes, index, end, payload);
    if let Some(payload) = bytes.get(payload..) {
        let sum = checksum(&[payload]);
        put(bytes.get_mut(index..end)?, 48, sum);
    }
    let sum = checksum(&[bytes.get(..20)?, bytes.get(24..end)?]);
    put(bytes, 20, sum);
    Some(())
}

fn tensors(bytes: &mut [u8], index: usize, end: usize, payload: usize) -> Option<()> {
    let records = index.checked_add(word(bytes, index.checked_add(12)?)?)?;
    for number in 0..word(bytes, index.checked_add(8)?)? {
        let record = records.checked_add(number.checked_mul(56)?)?;
        if record.checked_add(56)? > end {
            return None;
        }
        let start = payload.checked_add(word(bytes, record + 32)?)?;
        if let Some(tensor) = start.checked_add(word(bytes, record + 40)?).and_then(|end| bytes.get(start..end)) {
            let sum = checksum(&[tensor]);
            put(bytes, record + 28, sum);
        }
    }
    Some(())
}

/// A zip archive of stored members: the checksum of each, where it lies and in the directory.
pub(crate) fn zip(bytes: &mut [u8]) {
    let mut at = 0;
    while let Some(found) = bytes.get(at..).and_then(|rest| rest.windows(4).position(|four| four == b"PK\x01\x02")) {
        at += found + 4;
        let entry = at - 4;
        let half = |bytes: &[u8], at: usize| Some(usize::from(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?)));
        let place = |bytes: &[u8]| {
            let (size, local) = (word(bytes, entry + 20)?, word(bytes, entry + 42)?);
            let start = local
                .checked_add(30)?
                .checked_add(half(bytes, local.checked_add(26)?)?)?
                .checked_add(half(bytes, local.checked_add(28)?)?)?;
            Some((local, checksum(&[bytes.get(start..start.checked_add(size)?)?])))
        };
        if let Some((local, sum)) = place(bytes) {
            put(bytes, entry + 16, sum);
            put(bytes, local + 14, sum);
        }
    }
}

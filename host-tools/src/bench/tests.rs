//! The figure in the middle, and what reads memory.

use super::*;

#[test]
fn the_median_is_the_value_in_the_middle() {
    assert_eq!(median(&[]), None);
    assert_eq!(median(&[3.0]), Some(3.0));
    assert_eq!(median(&[5.0, 1.0]), Some(3.0));
    assert_eq!(median(&[9.0, 1.0, 2.0]), Some(2.0));
}

#[test]
fn the_yardstick_reads_every_byte() {
    let bytes: Vec<u8> = (0..2000u32).map(|i| ((i * 37) >> 2) as u8).collect();
    for bytes in (0..bytes.len()).map(|len| &bytes[..len]) {
        let (lines, rest) = bytes.as_chunks::<64>();
        let words = lines.as_flattened().as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word));
        let expected = words.chain(rest.iter().map(|byte| u64::from(*byte))).fold(0, u64::wrapping_add);
        assert_eq!(machine::sum(bytes), expected, "{} bytes", bytes.len());
    }
}

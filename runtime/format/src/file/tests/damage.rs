//! Damage that checksums and lengths must catch, whatever it hits.

use super::make;
use crate::file::ModelFile;

fn passes(bytes: &[u8]) -> bool {
    ModelFile::open(bytes).is_ok_and(|file| file.verify_payload().is_ok())
}

#[test]
fn class_01_a_cut_at_any_offset_is_refused() {
    let bytes = make::file().build();
    for len in (0..bytes.len()).step_by(if cfg!(miri) { 97 } else { 1 }) {
        assert!(ModelFile::open(&bytes[..len]).is_err(), "{len}");
    }
}

#[test]
fn class_17_any_flipped_bit_is_refused() {
    let bytes = make::file().build();
    assert!(passes(&bytes));
    for at in (0..bytes.len()).step_by(if cfg!(miri) { 499 } else { 1 }) {
        for bit in 0..8 {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << bit;
            assert!(!passes(&damaged), "byte {at}, bit {bit}");
        }
    }
}

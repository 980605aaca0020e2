//! Nothing panics and nothing is taken for another model: files cut at every offset and changed at random.

use super::made::SHAPE;
use crate::checkpoint::{Checkpoint, from_bytes, not_a_dmexp, recognise};
use std::path::Path;

struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % limit
    }
}

fn files() -> [(Vec<u8>, usize); 5] {
    [(SHAPE.v0(Some(1e4)), 28), (SHAPE.v0(None), 28), (SHAPE.untied().v0(Some(1e4)), 28), (SHAPE.v1(), 256), (SHAPE.v2(4).0, 256)]
}

fn read_all(checkpoint: &Checkpoint) {
    for array in checkpoint.arrays() {
        // A damaged scale is an error; anything but a panic will do.
        let _ = array.to_vec();
    }
}

#[test]
fn a_file_cut_at_any_offset_is_refused() {
    for (bytes, header) in files() {
        // Without the tables a tied file of version 0 is whole.
        let bare = bytes.len() - SHAPE.tables(1e4).len();
        let sampled = (header..bytes.len()).filter(|cut| cut % 7 == 0 || bytes.len() - cut < 300);
        for cut in (0..=header).chain(sampled) {
            let result = from_bytes(Path::new("cut.bin"), bytes[..cut].to_vec());
            let whole = cut == bare && bytes == SHAPE.v0(Some(1e4));
            assert_eq!(result.is_ok(), whole, "{cut} of {}: {:?}", bytes.len(), result.err().map(|error| error.to_string()));
        }
    }
}

#[test]
fn two_thousand_changed_headers_panic_nowhere() {
    let mut random = Random(0x5eed);
    let mut opened = 0;
    for round in 0..2000 {
        let files = files();
        let (mut bytes, header) = files[round % files.len()].clone();
        for _ in 0..=random.below(4) {
            let place = random.below(header.min(48));
            bytes[place] = [0, 1, 2, 0x7f, 0x80, 0xff, random.below(256) as u8, bytes[place] ^ 1 << random.below(8)][random.below(8)];
        }
        recognise(&bytes);
        match from_bytes(Path::new("changed.bin"), bytes) {
            Ok(checkpoint) => {
                opened += 1;
                read_all(&checkpoint);
            }
            Err(error) => {
                let text = error.to_string();
                assert!(text.starts_with("changed.bin: ") && !text.contains('\n'), "{text}");
            }
        }
    }
    // Those in which a change put back what was there, or changed what a length cannot tell (heads, context without tables).
    assert!((10..600).contains(&opened), "{opened}");
}

#[test]
fn random_bytes_panic_nowhere() {
    let mut random = Random(7);
    for length in 0..2000 {
        let mut bytes: Vec<u8> = (0..length % 400).map(|_| random.below(256) as u8).collect();
        // Half of them with small numbers, as headers have.
        if length % 2 == 0 {
            for word in bytes.chunks_mut(4) {
                for byte in word.iter_mut().skip(1) {
                    *byte = 0;
                }
            }
        }
        if let Ok(checkpoint) = from_bytes(Path::new("random.bin"), bytes) {
            read_all(&checkpoint);
        }
    }
}

#[test]
fn a_missing_file_is_no_kind_at_all() {
    let text = not_a_dmexp(Path::new("no such folder/model.bin")).to_string();
    assert!(text.starts_with("no such folder/model.bin: cannot be read: "), "{text}");
}

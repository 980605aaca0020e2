//! Malformed containers: each refusal names what is wrong and where, nothing panics, and nothing is allocated by a number from the file.

use super::make::{self, Gguf, TINY, Value, refusal};
use crate::checkpoint::{self, Kind};
use crate::error::Class;

#[track_caller]
fn says(bytes: Vec<u8>, parts: &[&str]) {
    let error = refusal(bytes);
    assert!(error.starts_with("made.gguf: "), "{error}");
    for part in parts {
        assert!(error.contains(part), "{part:?} is not in: {error}");
    }
}

fn changed(change: impl FnOnce(&mut Gguf)) -> Vec<u8> {
    let mut file = make::model(&TINY);
    change(&mut file);
    file.bytes()
}

/// The file with these bytes instead of the ones at `at`.
fn patched(at: usize, with: &[u8]) -> Vec<u8> {
    let mut bytes = make::model(&TINY).bytes();
    bytes[at..at + with.len()].copy_from_slice(with);
    bytes
}

#[test]
fn a_made_file_of_either_version_opens() {
    for (version, importer) in [(2, "GGUF v2"), (3, "GGUF v3")] {
        let checkpoint = make::open(changed(|file| file.version = version)).unwrap();
        assert_eq!(checkpoint.provenance.importer, importer);
        assert_eq!(checkpoint.arrays().count(), 2 * 9 + 2);
    }
    assert_eq!(checkpoint::recognise(&make::model(&TINY).bytes()), Kind::Gguf);
}

#[test]
fn versions_that_are_not_read_are_named() {
    says(patched(4, &1u32.to_le_bytes()), &["GGUF file of version 1", "byte 4"]);
    says(patched(4, &4u32.to_le_bytes()), &["version 4"]);
    says(patched(4, &0u32.to_le_bytes()), &["version 0"]);
    says(patched(4, &3u32.to_be_bytes()), &["version 3", "big-endian", "gguf_convert_endian"]);
    assert_eq!(make::open(patched(4, &1u32.to_le_bytes())).unwrap_err().class(), Class::NotAModel);
}

#[test]
fn counts_that_the_file_has_no_room_for_are_refused_before_anything_is_allocated() {
    for count in [u64::MAX, 1 << 40, 60_000] {
        says(patched(8, &count.to_le_bytes()), &["tensors", &count.to_string(), "byte 8"]);
        says(patched(16, &count.to_le_bytes()), &["metadata keys", &count.to_string(), "byte 16"]);
    }
}

#[test]
fn strings_and_arrays_that_the_file_has_no_room_for_are_refused() {
    says(patched(24, &u64::MAX.to_le_bytes()), &["the file ends within a metadata key", "18446744073709551615", "byte 32"]);
    let list = |kind: u32, len: u64| {
        let head = [kind.to_le_bytes().as_slice(), &len.to_le_bytes()].concat();
        changed(|file| file.keys.insert(0, ("a.list".to_owned(), Value::Raw(9, head))))
    };
    for kind in [0, 5, 6, 8, 12] {
        for len in [u64::MAX, u64::MAX / 4, 1 << 33] {
            says(list(kind, len), &["a.list", &len.to_string(), "bytes are left"]);
        }
    }
    says(list(9, 1), &["a.list", "array of arrays"]);
    says(list(13, 1), &["a.list", "kind 13"]);
    says(changed(|file| file.keys.push(("a.key".to_owned(), Value::Raw(13, vec![0; 8])))), &["a.key", "kind 13"]);
    says(changed(|file| file.keys.push(("a.key".to_owned(), Value::Raw(7, vec![2])))), &["boolean", "2"]);
    says(changed(|file| file.keys.push(("a.key".to_owned(), Value::Raw(8, u64::MAX.to_le_bytes().to_vec())))), &["a.key", "the file ends"]);
}

#[test]
fn keys_and_tensors_that_are_there_twice_are_refused() {
    says(changed(|file| file.keys.push(("general.architecture".to_owned(), "llama".into()))), &["general.architecture", "twice"]);
    says(changed(|file| file.tensors.push(file.tensors[3].clone())), &["blk.0.attn_k.weight", "twice"]);
}

#[test]
fn names_that_cannot_be_are_refused() {
    for name in ["", "a\nb", &"x".repeat(300)] {
        says(changed(|file| file.keys.insert(0, (name.to_owned(), 1u32.into()))), &["metadata key", "byte 24"]);
        says(changed(|file| name.clone_into(&mut file.tensors[0].name)), &["tensor's name"]);
    }
}

#[test]
fn alignments_are_powers_of_two() {
    for alignment in [0u32, 3, 48, u32::MAX] {
        says(changed(|file| _ = file.set("general.alignment", alignment)), &["general.alignment", &alignment.to_string(), "power of two"]);
    }
    says(changed(|file| _ = file.set("general.alignment", "32")), &["general.alignment", "whole number"]);
    for alignment in [1u32, 8, 64, 4096] {
        let bytes = changed(|file| {
            file.alignment = u64::from(alignment);
            file.set("general.alignment", alignment);
        });
        let checkpoint = make::open(bytes).unwrap();
        assert_eq!(make::arrays(&checkpoint), make::arrays(&make::open(make::model(&TINY).bytes()).unwrap()));
    }
}

#[test]
fn offsets_are_aligned_within_the_file_and_apart() {
    let at = |offset: u64| changed(move |file| file.named("blk.0.attn_q.weight").offset = Some(offset));
    says(at(8), &["blk.0.attn_q.weight", "no multiple of the alignment 32"]);
    says(at(0), &["lies on"]);
    says(at(1 << 40), &["blk.0.attn_q.weight", "the file has"]);
    says(at(u64::MAX - 31), &["blk.0.attn_q.weight", "the file has"]);
    // A hole: the second half of the tensors one step further on.
    let holed = changed(|file| {
        file.named("blk.0.ffn_up.weight").data.resize(TINY.dim as usize * TINY.hidden as usize * 4 + 64, 0);
    });
    says(holed, &["leaves a gap behind blk.0.ffn_up.weight"]);
}

#[test]
fn sizes_are_possible() {
    let sized = |sizes: &[u64]| {
        let sizes = sizes.to_vec();
        changed(move |file| file.named("token_embd.weight").sizes = sizes)
    };
    says(sized(&[0, 16]), &["token_embd.weight", "0"]);
    says(sized(&[u64::MAX, 2]), &["token_embd.weight", "past 2^64"]);
    says(sized(&[1 << 62, 2]), &["token_embd.weight", "past 2^64"]);
    says(sized(&[]), &["token_embd.weight", "0 dims"]);
    says(sized(&[2, 2, 2, 4, 4]), &["token_embd.weight", "5 dims"]);
    says(changed(|file| file.named("token_embd.weight").kind = 12), &["token_embd.weight", "Q4_K", "multiple of 256"]);
}

#[test]
fn types_that_are_not_read_are_named() {
    for (number, name) in
        [(9, "Q8_1"), (20, "IQ4_NL"), (23, "IQ4_XS"), (24, "I8"), (39, "MXFP4"), (15, "Q8_K"), (4, "Q4_2"), (77, "unknown type 77")]
    {
        let bytes = changed(|file| file.named("blk.1.ffn_up.weight").kind = number);
        assert_eq!(make::open(bytes.clone()).unwrap_err().class(), Class::NotAModel);
        says(bytes, &["blk.1.ffn_up.weight", name, "Q2_K to Q6_K"]);
    }
}

#[test]
fn bytes_behind_the_last_tensor_are_refused() {
    let mut bytes = make::model(&TINY).bytes();
    bytes.extend([0; 64]);
    says(bytes, &["64 bytes are left over"]);
}

#[test]
fn a_file_cut_anywhere_is_refused() {
    let bytes = make::model(&TINY).bytes();
    for len in 4..bytes.len() {
        let error = make::open(bytes[..len].to_vec()).expect_err("it is cut").to_string();
        assert!(error.starts_with("made.gguf: "), "{len}: {error}");
    }
}

#[test]
fn no_flipped_bit_in_the_head_panics() {
    let bytes = make::model(&TINY).bytes();
    let weights: usize = make::model(&TINY).tensors.iter().map(|tensor| tensor.data.len().next_multiple_of(32)).sum();
    let mut opened = 0;
    for place in 4..bytes.len() - weights {
        for bit in [0, 3, 7] {
            let mut flipped = bytes.clone();
            flipped[place] ^= 1 << bit;
            // Text that is no text and numbers within what is possible may open; then every array can be read.
            if let Ok(checkpoint) = make::open(flipped) {
                opened += checkpoint.arrays().filter(|array| array.to_vec().is_ok()).count().min(1);
            }
        }
    }
    assert!(opened > 0, "some flips change numbers that may be others");
}

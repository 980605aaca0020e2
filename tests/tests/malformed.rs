//! Malformed files on the real command: each is refused with exit code 1 and one line, nothing panics, and nothing is written.
//!
//! The reader's own tests (`runtime/format/src/file/tests`) have every class in detail; here a sample of each goes through the commands. Archives (class 18), the wire (21) and HTTP (22) belong to parts
//! that do not exist yet, but for files that are recognised and refused by name.

use dmexp_tests::damage::{index_start, payload_start, put, record, replace, seal, seal_payload, word};
use dmexp_tests::{files, folder, line, root, story, tiny};
use std::fs;
use std::path::Path;

/// A right file of the tiny model, in format 2.
fn good(folder: &Path) -> Vec<u8> {
    fs::read(tiny().export(folder, "good.dmexp", "--dtype f32")).unwrap()
}

/// That `generate` and `export verify` refuse `bytes`, that the refusal has all of `parts`, and that no file appears.
#[track_caller]
fn refused(bytes: &[u8], parts: &[&str]) {
    let folder = folder();
    fs::write(folder.path().join("bad.dmexp"), bytes).unwrap();
    let before = files(folder.path());
    line(folder.path(), "generate --export bad.dmexp --steps 1 --check").refused(&["bad.dmexp"]);
    let verify = line(folder.path(), "export verify bad.dmexp");
    assert_eq!(verify.code, Some(1), "{verify:?}");
    let said = format!("{}{}", verify.text(), verify.err);
    assert!(!said.contains("panicked"), "{said}");
    for part in parts {
        assert!(said.contains(part), "{part:?} is not in: {said}");
    }
    assert_eq!(files(folder.path()), before);
}

/// That an edit of a right file is refused.
#[track_caller]
fn edit_refused(edit: impl Fn(&mut Vec<u8>), parts: &[&str]) {
    let folder = folder();
    let mut bytes = good(folder.path());
    edit(&mut bytes);
    refused(&bytes, parts);
}

/// That the exporter refuses an edit of the tiny checkpoint, and leaves no file.
#[track_caller]
fn checkpoint_refused(edit: impl Fn(&mut Vec<u8>), parts: &[&str]) {
    let folder = folder();
    let mut bytes = fs::read(root().join("models/tiny.bin")).unwrap();
    edit(&mut bytes);
    fs::write(folder.path().join("bad.bin"), bytes).unwrap();
    line(folder.path(), "export run --checkpoint bad.bin --tokenizer bytes --out m.dmexp").refused(parts);
    assert_eq!(files(folder.path()), ["bad.bin"]);
}

/// That the exporter refuses an edit of the story model's tokenizer, and leaves no file.
#[track_caller]
fn tokenizer_refused(edit: impl Fn(&mut Vec<u8>), parts: &[&str]) {
    let folder = folder();
    let mut bytes = fs::read(root().join("models/story.tokenizer.bin")).unwrap();
    edit(&mut bytes);
    fs::write(folder.path().join("bad.tok"), bytes).unwrap();
    let checkpoint = story().checkpoint.display().to_string();
    let words = ["export", "run", "--checkpoint", &checkpoint, "--tokenizer", "bad.tok", "--out", "m.dmexp"];
    dmexp_tests::run(folder.path(), &words).refused(parts);
    assert_eq!(files(folder.path()), ["bad.tok"]);
}

/// Word `at` of a checkpoint's header becomes `value`.
fn header(at: usize, value: i32) -> impl Fn(&mut Vec<u8>) {
    move |bytes| put(bytes, 4 * at, &value.to_le_bytes())
}

#[test]
fn class_01_cut_files() {
    for len in [1, 7, 8, 23, 31, 100, 5_000, 50_000] {
        edit_refused(|bytes| bytes.truncate(len), &[]);
    }
    refused(&[], &[]);
    for len in [1, 27, 28, 1_000, 47_867] {
        checkpoint_refused(|bytes| bytes.truncate(len), &["bad.bin"]);
    }
}

#[test]
fn class_02_other_files() {
    for (begin, name) in [
        (&b"GGUF\x03\0\0\0"[..], "GGUF"),
        (b"PK\x03\x04", "zip"),
        (b"\x80\x02}q\0", "pickle"),
        (b"<!DOCTYPE html><html>", "HTML"),
        (b"version https://git-lfs.github.com/spec/v1\n", "LFS"),
    ] {
        let mut bytes = begin.to_vec();
        bytes.resize(4_000, b' ');
        let folder = folder();
        fs::write(folder.path().join("bad"), &bytes).unwrap();
        line(folder.path(), "generate --export bad --steps 1").refused(&["bad", name]);
        line(folder.path(), "export run --checkpoint bad --out m.dmexp").refused(&["bad", name]);
        assert_eq!(files(folder.path()), ["bad"]);
    }
}

#[test]
fn class_03_versions() {
    edit_refused(|bytes| bytes[7] = 0, &["version 0"]);
    edit_refused(|bytes| bytes[7] = 9, &["version 9"]);
}

#[test]
fn class_04_lengths_of_the_parts() {
    edit_refused(|bytes| put(bytes, 8, &u32::MAX.to_le_bytes()), &["header"]);
    edit_refused(|bytes| put(bytes, 12, &u64::MAX.to_le_bytes()), &[]);
    edit_refused(|bytes| put(bytes, 8, &60_000u32.to_le_bytes()), &["header"]);
}

#[test]
fn class_05_trailing_bytes() {
    edit_refused(|bytes| bytes.push(0), &["should end at byte"]);
    checkpoint_refused(|bytes| bytes.push(0), &["bad.bin"]);
}

#[test]
fn class_06_counts() {
    for count in [0u32, 1, 70_000] {
        edit_refused(
            |bytes| {
                let index = index_start(bytes);
                put(bytes, index + 8, &count.to_le_bytes());
                seal(bytes);
            },
            &[],
        );
    }
}

#[test]
fn class_07_dims() {
    for size in [0u32, 1, u32::MAX] {
        edit_refused(
            |bytes| {
                let at = record(bytes, 2) + 8;
                put(bytes, at, &size.to_le_bytes());
                seal(bytes);
            },
            &["tensor 2"],
        );
    }
}

#[test]
fn class_08_offsets() {
    for offset in [0u64, 1, 1 << 40, u64::MAX - 63] {
        edit_refused(
            |bytes| {
                let at = record(bytes, 3) + 32;
                put(bytes, at, &offset.to_le_bytes());
                seal(bytes);
            },
            &["tensor 3"],
        );
    }
}

#[test]
fn class_09_alignment() {
    for alignment in [0u32, 3, 8, 8192] {
        edit_refused(|bytes| put(bytes, 28, &alignment.to_le_bytes()), &[]);
    }
}

#[test]
fn class_10_names() {
    edit_refused(
        |bytes| {
            let start = index_start(bytes);
            let at = start + bytes[start..].windows(4).position(|name| name == b"tok_").unwrap();
            bytes[at] = 7;
            seal(bytes);
        },
        &["ASCII"],
    );
}

#[test]
fn class_11_types() {
    edit_refused(
        |bytes| {
            let at = record(bytes, 1) + 6;
            bytes[at] = 77;
            seal(bytes);
        },
        &["tensor 1"],
    );
}

#[test]
fn class_12_numbers() {
    for eps in [0.0f32, -0.0, f32::NAN, f32::INFINITY] {
        edit_refused(
            |bytes| {
                let at = index_start(bytes) + 64 + 32;
                put(bytes, at, &eps.to_le_bytes());
                seal(bytes);
            },
            &["norm_eps"],
        );
    }
}

#[test]
fn class_13_configurations() {
    // dim, hidden, layers, heads, kv heads, vocabulary, context: through the exporter and the reader.
    for (at, value) in
        [(0, 0), (0, 25), (1, 0), (2, 0), (2, 2_000_000_000), (3, 0), (3, 5), (4, 0), (4, 2), (5, 0), (5, i32::MIN), (6, 0), (6, 1 << 30)]
    {
        checkpoint_refused(header(at, value), &["bad.bin"]);
    }
    for (place, value) in [(0, 0u32), (8, 0), (8, 1 << 20), (12, 0), (16, 2), (20, 7), (24, 0), (28, 0), (28, 1 << 30)] {
        edit_refused(
            |bytes| {
                let at = index_start(bytes) + 64 + place;
                put(bytes, at, &value.to_le_bytes());
                seal(bytes);
            },
            &[],
        );
    }
}

#[test]
fn class_14_tokenizers() {
    // The longest piece, a score, a length, and pieces that are missing.
    tokenizer_refused(|bytes| put(bytes, 0, &1u32.to_le_bytes()), &["bad.tok"]);
    tokenizer_refused(|bytes| put(bytes, 4, &f32::NAN.to_le_bytes()), &["bad.tok"]);
    for len in [-1, 0, 1 << 30] {
        tokenizer_refused(|bytes| put(bytes, 8, &i32::to_le_bytes(len)), &["bad.tok"]);
    }
    tokenizer_refused(|bytes| bytes.truncate(bytes.len() - 1), &["bad.tok"]);
    tokenizer_refused(|bytes| bytes.extend_from_slice(&[0, 0, 0, 0, 1, 0, 0, 0, b'x']), &["bad.tok", "512"]);
    tokenizer_refused(Vec::clear, &["bad.tok"]);
}

#[test]
fn class_15_headers() {
    for (from, to) in
        [("n_layers = 2", "n_layers = x"), ("[config]", "[[onfig]"), ("format = 2", "format = 3"), ("qkv_bias = false", "qkv_bias = faLse")]
    {
        edit_refused(
            |bytes| {
                replace(bytes, from, to);
                seal(bytes);
            },
            &[],
        );
    }
}

#[test]
fn class_16_an_index_that_is_not_the_headers() {
    edit_refused(
        |bytes| {
            replace(bytes, "max_seq_len = 64", "max_seq_len = 63");
            seal(bytes);
        },
        &["index"],
    );
}

#[test]
fn class_17_checksums() {
    for part in [40, 20] {
        edit_refused(|bytes| bytes[part] ^= 1, &["checksum"]);
    }
    edit_refused(
        |bytes| {
            let at = payload_start(bytes);
            bytes[at] ^= 1;
        },
        &["checksum"],
    );
}

#[test]
fn class_19_weights_that_are_not_finite() {
    for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let folder = folder();
        good(folder.path());
        line(folder.path(), "export strip good.dmexp --out stripped.dmexp").ok();
        let mut bytes = fs::read(folder.path().join("stripped.dmexp")).unwrap();
        let at = payload_start(&bytes) + word(&bytes, record(&bytes, 2) + 32) as usize + 20;
        put(&mut bytes, at, &value.to_le_bytes());
        seal_payload(&mut bytes);
        refused(&bytes, &["element 5"]);
        checkpoint_refused(|bytes| put(bytes, 28 + 400, &value.to_le_bytes()), &["tok_embeddings.weight", "element 100"]);
    }
}

#[test]
fn class_20_a_vocabulary_that_is_not_the_tokenizers() {
    let folder = folder();
    let tokenizer = root().join("models/story.tokenizer.bin").display().to_string();
    let checkpoint = root().join("models/tiny.bin").display().to_string();
    let words = ["export", "run", "--checkpoint", &checkpoint, "--tokenizer", &tokenizer, "--out", "m.dmexp"];
    dmexp_tests::run(folder.path(), &words).refused(&["512", "128"]);
    assert_eq!(files(folder.path()), [""; 0]);
}

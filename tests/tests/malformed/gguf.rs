//! Class 18, GGUF: counts, strings, arrays, alignments and places that cannot be, through the real command.

use dmexp_tests::{files, folder, line};
use std::fs;

/// A string as GGUF has it.
fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat()
}

/// A file with these counts and this behind them.
fn file(tensors: u64, keys: u64, rest: &[u8]) -> Vec<u8> {
    [b"GGUF\x03\0\0\0", &tensors.to_le_bytes()[..], &keys.to_le_bytes(), rest].concat()
}

/// A key with a value of this kind.
fn key(name: &str, kind: u32, value: &[u8]) -> Vec<u8> {
    [&text(name), &kind.to_le_bytes()[..], value].concat()
}

/// The list's entry of a vector of 8 f32 at `offset`.
fn tensor(name: &str, offset: u64) -> Vec<u8> {
    [&text(name), &1u32.to_le_bytes()[..], &8u64.to_le_bytes(), &0u32.to_le_bytes(), &offset.to_le_bytes()].concat()
}

#[test]
fn class_18_gguf() {
    let array = |kind: u32, len: u64| key("a.list", 9, &[&kind.to_le_bytes()[..], &len.to_le_bytes()].concat());
    let alignment = |alignment: u32| key("general.alignment", 4, &alignment.to_le_bytes());
    let two = |second: u64| [tensor("a", 0), tensor("b", second), vec![0; 96]].concat();
    let cases: [(&str, Vec<u8>, &[&str]); 12] = [
        ("a giant count of keys", file(0, u64::MAX, &[0; 64]), &["18446744073709551615 metadata keys", "byte 16"]),
        ("a giant count of tensors", file(1 << 60, 0, &[0; 64]), &["1152921504606846976 tensors", "byte 8"]),
        ("a giant name", file(0, 1, &[0xff; 64]), &["a metadata key", "18446744073709551615 bytes"]),
        ("a giant string", file(0, 1, &key("a.text", 8, &(1u64 << 40).to_le_bytes())), &["a.text", "1099511627776 bytes"]),
        ("a giant array", file(0, 1, &array(6, 1 << 61)), &["a.list", "2305843009213693952"]),
        ("a giant array of strings", file(0, 1, &array(8, 1 << 40)), &["a.list", "1099511627776"]),
        ("alignment 0", file(0, 1, &alignment(0)), &["general.alignment is 0"]),
        ("alignment 24", file(0, 1, &alignment(24)), &["general.alignment is 24"]),
        ("data that is not aligned", file(2, 0, &two(40)), &["b begins at 40", "alignment 32"]),
        ("data on other data", file(2, 0, &two(0)), &["b begins at byte", "lies on a"]),
        ("data past the end", file(2, 0, &two(1 << 50)), &["b takes 32 bytes", "the file has"]),
        ("version 1", [b"GGUF\x01\0\0\0".to_vec(), vec![0; 64]].concat(), &["GGUF file of version 1"]),
    ];
    for (what, bytes, parts) in cases {
        let folder = folder();
        fs::write(folder.path().join("bad.gguf"), bytes).unwrap();
        println!("{what}");
        line(folder.path(), "export run --checkpoint bad.gguf --out m.dmexp").refused(&[&["bad.gguf"], parts].concat());
        assert_eq!(files(folder.path()), ["bad.gguf"]);
    }
}

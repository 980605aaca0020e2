//! The tables are what the general categories of `regex-syntax` give; with `DMEXP_WRITE_TABLES=1` they are written anew.

use crate::tokenizer::byte_level::classes::{Class, of};
use regex_syntax::hir::{Class as HirClass, HirKind};
use std::fmt::Write as _;

/// Runs between two entries of the index.
const BLOCK: usize = 32;
const LIMIT: u32 = 0x11_0000;

/// First and last character of each range of a general category.
fn ranges(category: &str) -> Vec<(u32, u32)> {
    let hir = regex_syntax::parse(&format!(r"\p{{{category}}}")).unwrap();
    let HirKind::Class(HirClass::Unicode(class)) = hir.kind() else { panic!("not a class: {hir:?}") };
    class.ranges().iter().map(|range| (range.start().into(), range.end().into())).collect()
}

/// Runs of one class each, in order: first character past the run, class.
fn runs() -> Vec<(u32, u32)> {
    let mut marked: Vec<_> = ranges("L").into_iter().map(|range| (range, 1)).collect();
    marked.extend(ranges("N").into_iter().map(|range| (range, 2)));
    marked.sort_unstable();
    let mut runs = Vec::new();
    let mut end = 0;
    for ((first, last), class) in marked {
        if first > end {
            runs.push((first, 0));
        }
        runs.push((last + 1, class));
        end = last + 1;
    }
    runs.push((LIMIT, 0));
    runs
}

fn source() -> String {
    let (mut bytes, mut starts, mut offsets, mut start) = (Vec::new(), Vec::new(), Vec::new(), 0);
    for (number, (end, class)) in runs().into_iter().enumerate() {
        if number % BLOCK == 0 {
            starts.push(start);
            offsets.push(bytes.len() as u32);
        }
        let mut rest = (end - start) << 2 | class;
        while rest >= 0x80 {
            bytes.push(rest & 0x7F | 0x80);
            rest >>= 7;
        }
        bytes.push(rest);
        start = end;
    }
    let mut text = "//! Letters and numbers of Unicode as runs of characters, written by the tests of this module (`DMEXP_WRITE_TABLES=1`): not to be edited.\n".to_owned();
    let mut add = |about: &str, name: &str, kind: &str, values: &[u32]| {
        write!(text, "\n/// {about}\n#[rustfmt::skip]\npub(super) static {name}: [{kind}; {}] = [", values.len()).unwrap();
        for (place, value) in values.iter().enumerate() {
            write!(text, "{}{value},", if place % 32 == 0 { "\n    " } else { " " }).unwrap();
        }
        text.push_str("\n];\n");
    };
    add("The first character of every 32nd run.", "STARTS", "u32", &starts);
    add("Where those runs are in [`RUNS`].", "OFFSETS", "u16", &offsets);
    add(
        "Length times 4 plus class (0 other, 1 letter, 2 number) of each run: seven bits a byte, the lowest first, the top bit where more follow.",
        "RUNS",
        "u8",
        &bytes,
    );
    text
}

#[test]
fn tables_are_the_general_categories() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/tokenizer/byte_level/tables.rs");
    let source = source();
    if std::env::var_os("DMEXP_WRITE_TABLES").is_some() {
        std::fs::write(path, &source).unwrap();
    }
    assert!(include_str!("../tables.rs") == source, "run this test with DMEXP_WRITE_TABLES=1, then again");
}

#[test]
fn every_character_has_its_class() {
    let (letters, numbers) = (ranges("L"), ranges("N"));
    let is_in = |ranges: &[(u32, u32)], code: u32| ranges.iter().any(|(first, last)| (*first..=*last).contains(&code));
    for character in ('\0'..=char::MAX).step_by(if cfg!(miri) { 9973 } else { 1 }) {
        let code = character as u32;
        let expected = if character.is_whitespace() {
            Class::Space
        } else if is_in(&letters, code) {
            Class::Letter
        } else if is_in(&numbers, code) {
            Class::Number
        } else {
            Class::Other
        };
        assert_eq!(of(character), expected, "{code:x}");
    }
}

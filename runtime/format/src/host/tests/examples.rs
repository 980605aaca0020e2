//! The dumps of docs/format: what is printed there is what the writers write. `DMEXP_WRITE_EXAMPLES=1` writes the dumps anew.

use super::{quantised, tiny, v1};
use crate::file::ModelFile;
use crate::host::verify;
use crate::{DType, Dims, TensorView};
use std::fmt::Write as _;
use std::path::Path;

/// Offset, sixteen bytes, the same as text.
fn dump(bytes: &[u8]) -> String {
    let mut text = String::new();
    for (line, chunk) in bytes.chunks(16).enumerate() {
        let hex: Vec<_> = chunk.chunks(4).map(|word| word.iter().fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"))).collect();
        let shown: String = chunk.iter().map(|byte| if matches!(byte, b' '..=b'~') { char::from(*byte) } else { '.' }).collect();
        writeln!(text, "{:06x}  {:<35}  {shown}", line * 16, hex.join(" ")).unwrap();
    }
    text
}

/// The bytes of a dump.
fn undump(text: &str) -> Vec<u8> {
    let digits: String = text.lines().flat_map(|line| line[8..43].split_whitespace()).collect();
    (0..digits.len() / 2).map(|n| u8::from_str_radix(&digits[2 * n..2 * n + 2], 16).unwrap()).collect()
}

fn documented(name: &str, bytes: &[u8]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/format").join(name);
    let text = dump(bytes);
    if std::env::var_os("DMEXP_WRITE_EXAMPLES").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let stored = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        stored == text,
        "{} is not what the writer gives now; run this test with DMEXP_WRITE_EXAMPLES=1 if the change is meant",
        path.display()
    );
    assert_eq!(undump(&stored), bytes);
}

/// The places that docs/format/examples.md names.
#[test]
fn the_parts_lie_where_the_page_says() {
    let bytes = tiny::tiny(DType::Bf16).file();
    let fixed = ModelFile::open(&bytes).unwrap().fixed();
    assert_eq!((fixed.index_start(), fixed.index_end(), fixed.payload_start(), fixed.file_len()), (0x1090, 0x1664, 0x1670, 0x1840));
    let bytes = v1::example();
    let fixed = ModelFile::open(&bytes).unwrap().fixed();
    assert_eq!((fixed.payload_start(), fixed.file_len()), (0x570, 0x7a0));
}

#[test]
fn the_documented_format_2_file_is_what_is_written() {
    let bytes = tiny::tiny(DType::Bf16).file();
    verify(&bytes).unwrap();
    documented("example-v2.hex", &bytes);
}

#[test]
fn the_documented_format_1_file_is_what_is_written() {
    let bytes = v1::example();
    verify(&bytes).unwrap();
    documented("example-v1.hex", &bytes);
}

#[test]
fn the_documented_q8_tensor_is_what_is_written_and_stands_for_what_the_page_says() {
    let bytes = quantised::example();
    documented("example-q8.hex", &bytes);
    let view = TensorView::grouped(0, DType::Q8, Dims::matrix(3, 20), 8, &bytes).unwrap();
    assert_eq!((view.planes().scales, view.planes().multipliers, view.bytes().len()), (0x40, 0x50, 0x59));
    let element = 2 * 20 + 17;
    assert_eq!((view.integer(2, 17), view.get_f32(element)), (9 * 27, 0.25 * 243.0));
}

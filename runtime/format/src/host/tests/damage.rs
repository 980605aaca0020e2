//! Hostile and damaged headers (TOML bombs, wrong types), and an index that disagrees with its header, whichever of the two was changed.

use super::tiny::{Tiny, tiny};
use crate::bytes::u32_at;
use crate::host::{Header, HeaderError, VerifyError, verify};
use crate::{DType, Error, Part};

/// How deep and how long hostile text is; less under Miri, which is slow.
const MANY: usize = if cfg!(miri) { 1_000 } else { 100_000 };

/// The file with one text in its header replaced by another of the same length, its checksum made right.
fn with_header(model: &Tiny, from: &str, to: &str) -> Vec<u8> {
    assert_eq!(from.len(), to.len());
    let mut bytes = model.file();
    let at = bytes.windows(from.len()).position(|window| window == from.as_bytes()).unwrap();
    bytes[at..at + to.len()].copy_from_slice(to.as_bytes());
    seal(&mut bytes);
    bytes
}

/// The file with a byte of its index changed, its checksum made right.
fn with_index(model: &Tiny, at: usize, byte: u8) -> Vec<u8> {
    let mut bytes = model.file();
    let index = 32 + u32_at(&bytes, 8) as usize;
    assert_ne!(bytes[index + at], byte);
    bytes[index + at] = byte;
    seal(&mut bytes);
    bytes
}

fn seal(bytes: &mut [u8]) {
    let end = 32 + u32_at(bytes, 8) as usize + u32_at(bytes, 24) as usize;
    let crc = crate::crc32::checksum(&[&bytes[..20], &bytes[24..end]]);
    bytes[20..24].copy_from_slice(&crc.to_le_bytes());
}

#[test]
fn a_header_edited_after_the_index_was_derived_is_refused() {
    let model = tiny(DType::F32);
    // norm_eps at byte 32 of the configuration record, which begins at 64; its lowest byte differs.
    let bytes = with_header(&model, "norm_eps = 0.000009999999747378752", "norm_eps = 0.000009999999747378752".replace('9', "8").as_str());
    assert_eq!(verify(&bytes), Err(VerifyError::File(Error::IndexMismatch { offset: 96 })));
    let bytes = with_header(&model, "\nbos = 1\n", "\nbos = 3\n");
    assert!(matches!(verify(&bytes), Err(VerifyError::File(Error::IndexMismatch { offset: 140 }))));
}

#[test]
fn an_index_edited_after_it_was_derived_is_refused() {
    let model = tiny(DType::F32);
    // rope layout; bos; a tensor's checksum; a transposed flag.
    for (at, byte) in [(100, 1), (140, 3), (224 + 28, 0xa5), (224 + 48, 1)] {
        let bytes = with_index(&model, at, byte);
        assert!(crate::file::ModelFile::open(&bytes).is_ok(), "{at}");
        assert_eq!(verify(&bytes), Err(VerifyError::File(Error::IndexMismatch { offset: at as u64 })), "{at}");
    }
}

#[test]
fn figures_that_the_payload_does_not_have_are_refused() {
    let model = tiny(DType::F32);
    for change in 0..3 {
        let mut model = Tiny { header: model.header.clone(), tensors: model.tensors.clone() };
        let figures = model.header.tensors[2].figures.as_mut().unwrap();
        match change {
            0 => figures.max_abs *= 2.0,
            1 => figures.min_nonzero_abs /= 2.0,
            _ => figures.subnormal += 1,
        }
        match verify(&model.file()) {
            Err(VerifyError::Figures { key, stored, measured }) => {
                assert!(
                    key.contains(["max_abs", "min_nonzero_abs", "subnormal"][change]) && key.contains("layers.0.attention.wq.weight"),
                    "{key}"
                );
                assert_ne!(stored, measured);
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_flipped_bit_of_the_payload_is_refused_by_its_tensor() {
    let model = tiny(DType::Bf16);
    let mut bytes = model.file();
    let last = bytes.len() - 1;
    bytes[last] ^= 0x10;
    let refused = verify(&bytes);
    assert!(matches!(refused, Err(VerifyError::File(Error::Checksum { part: Part::TensorBytes, tensor: 15, .. }))), "{refused:?}");
}

#[test]
fn hostile_toml_is_refused() {
    let text = tiny(DType::F32).header.to_text();
    let toml = |text: &str| matches!(Header::parse(text), Err(HeaderError::Toml { .. }));
    assert!(toml(&format!("deep = {}{}\n{text}", "[".repeat(MANY), "]".repeat(MANY))));
    assert!(toml(&format!("deep = {}1{}\n{text}", "{a=".repeat(MANY), "}".repeat(MANY))));
    assert!(toml(&format!("{}\n{text}", vec!["a"; MANY].join(".") + " = 1")));
    assert!(toml(&text.replace("format = 2", "format = 2\nformat = 2")), "a key twice");
    assert!(toml(&text.replace("[provenance]", "[config]")), "a table twice");
    assert!(toml(&text.replace("arithmetic = 1", "arithmetic = 1_")));
    assert!(toml(&text.replace("arithmetic = 1", "arithmetic = 99999999999999999999")));
    assert!(toml("\u{0}"));
    for (from, to, key, found) in [
        ("norm_eps = 0.000009999999747378752", "norm_eps = nan", "config.norm_eps", "nan"),
        ("norm_eps = 0.000009999999747378752", "norm_eps = -inf", "config.norm_eps", "-inf"),
        ("norm_eps = 0.000009999999747378752", "norm_eps = 1e300", "config.norm_eps", "1000000"),
        ("norm_eps = 0.000009999999747378752", "norm_eps = 1", "config.norm_eps", "1"),
        ("dim = 4", "dim = 4.0", "config.dim", "4.0"),
        ("dim = 4", "dim = -4", "config.dim", "-4"),
        ("dim = 4", "dim = 4294967296", "config.dim", "4294967296"),
        ("dim = 4", "dim = \"4\"", "config.dim", "\"4\""),
        ("dim = 4", "dim = 2026-01-01", "config.dim", "2026-01-01"),
        ("dim = 4\n", "", "config.dim", "nothing"),
        ("tied_embeddings = true", "tied_embeddings = 1", "config.tied_embeddings", "1"),
        ("eos = [2]", "eos = [2, \"3\"]", "tokenizer.eos", "\"3\""),
        ("rope_theta = 10000.0", "rope_theta = -1.0", "config.rope_theta", "-1"),
    ] {
        assert!(text.contains(from), "{from}");
        let refused = Header::parse(&text.replacen(from, to, 1)).unwrap_err().to_string();
        assert!(refused.contains(key) && refused.contains(found), "{to}: {refused}");
    }
    let long = Header::parse(&text.replacen("dim = 4", &format!("dim = \"{}\"", "x".repeat(MANY)), 1)).unwrap_err().to_string();
    assert!(long.len() < 300, "{} bytes of message", long.len());
}

/// What TOML allows means the same, however it is spelled.
#[test]
fn other_spellings_of_the_same_header_are_taken() {
    let text = tiny(DType::F32).header.to_text();
    let header = tiny(DType::F32).header;
    for other in
        [text.replace('\n', "\r\n"), format!("\u{feff}{text}"), text.replacen("dim = 4", "'dim' = +4 # width", 1), format!("{text}\n\n\n")]
    {
        assert_eq!(Header::parse(&other).unwrap(), (header.clone(), vec![]));
    }
}

/// The checksum covers every byte before the padding.
#[test]
fn no_changed_byte_of_the_head_passes() {
    let bytes = tiny(DType::Bf16).file();
    let end = 32 + u32_at(&bytes, 8) as usize + u32_at(&bytes, 24) as usize;
    for at in (0..end).step_by(if cfg!(miri) { 211 } else { 1 }) {
        let mut bytes = bytes.clone();
        bytes[at] ^= 0x20;
        assert!(verify(&bytes).is_err(), "byte {at}");
    }
}

//! Sentencepiece models made here, field by field.

use super::{Sort, parse};
use crate::checkpoint::TokenizerSource;
use crate::checkpoint::tokenizer_settings::Settings;
use crate::error::{Class, Result};
use dmexp_format::tokenizer::NO_TOKEN;

fn varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn number(field: u64, value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    varint(field << 3, &mut out);
    varint(value, &mut out);
    out
}

fn bytes(field: u64, value: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    varint(field << 3 | 2, &mut out);
    varint(value.len() as u64, &mut out);
    out.extend(value);
    out
}

fn piece(text: &str, score: f32, sort: Sort) -> Vec<u8> {
    let sort =
        [Sort::Normal, Sort::Unknown, Sort::Control, Sort::UserDefined, Sort::Unused, Sort::Byte].iter().position(|s| *s == sort).unwrap()
            + 1;
    let score = [vec![2 << 3 | 5], score.to_le_bytes().to_vec()].concat();
    bytes(1, &[bytes(1, text.as_bytes()), score, number(3, sort as u64)].concat())
}

fn pieces() -> Vec<Vec<u8>> {
    let mut pieces = vec![piece("<unk>", 0.0, Sort::Unknown), piece("<s>", 0.0, Sort::Control), piece("</s>", 0.0, Sort::Control)];
    pieces.extend((0..=255).map(|byte| piece(&format!("<0x{byte:02X}>"), 0.0, Sort::Byte)));
    for (place, text) in ["\u{2581}a", "ab", "\u{2581}", "a", "b"].iter().enumerate() {
        pieces.push(piece(text, -(place as f32), Sort::Normal));
    }
    pieces
}

fn trainer() -> Vec<u8> {
    bytes(2, &[number(3, 2), number(41, 1), number(42, 2), number(43, u64::MAX)].concat())
}

fn normalizer() -> Vec<u8> {
    bytes(3, &[bytes(1, b"identity"), number(3, 1), number(4, 0), number(5, 1)].concat())
}

fn file() -> Vec<u8> {
    [pieces().concat(), trainer(), normalizer()].concat()
}

fn read(bytes: &[u8]) -> Result<TokenizerSource> {
    parse(bytes, None, &Settings::default())
}

#[test]
fn a_model_is_read() {
    let source = read(&file()).unwrap();
    let facts = &source.facts;
    assert_eq!((facts.n_pieces, facts.bos, facts.eos[0], facts.pad, facts.unk, facts.byte_base), (264, 1, 2, NO_TOKEN, 0, 3));
    assert!(facts.add_bos && facts.dummy_prefix);
    assert_eq!((source.special.as_slice(), source.pieces[259].as_slice(), source.scores[260]), (&[1, 2][..], &b" a"[..], -1.0));
    let more = parse(&file(), Some(266), &Settings { add_bos: Some(false), ..Settings::default() }).unwrap();
    assert_eq!((more.facts.n_pieces, more.special.as_slice(), more.facts.add_bos), (266, &[1, 2, 264, 265][..], false));
    let error = parse(&file(), Some(263), &Settings::default()).unwrap_err();
    assert!(error.class() == Class::Mismatch && error.to_string().contains("has 264 pieces, the model has 263 tokens"), "{error}");
}

#[test]
fn what_is_not_done_here_is_refused_by_name() {
    let with = |trainer: Vec<u8>, normalizer: Vec<u8>| [pieces().concat(), trainer, normalizer].concat();
    let kind = |kind: u64| bytes(2, &number(3, kind));
    let rule = |fields: &[Vec<u8>]| bytes(3, &[bytes(1, b"nmt_nfkc"), number(4, 0), fields.concat()].concat());
    let extra = |extra: Vec<u8>| [pieces().concat(), extra, trainer(), normalizer()].concat();
    for (bytes, said) in [
        (with(kind(1), normalizer()), "the type UNIGRAM"),
        (with(Vec::new(), normalizer()), "the type UNIGRAM"),
        (with(kind(3), normalizer()), "the type WORD"),
        (with(kind(4), normalizer()), "the type CHAR"),
        (with(trainer(), rule(&[bytes(2, b"rules")])), "its normalizer \"nmt_nfkc\" changes text by rules"),
        (with(trainer(), Vec::new()), "remove_extra_whitespaces"),
        (with(trainer(), rule(&[number(5, 0)])), "escape_whitespaces is false"),
        (with([trainer(), bytes(2, &number(24, 1))].concat(), normalizer()), "treat_whitespace_as_suffix is true"),
        (extra(piece("mark", 0.0, Sort::UserDefined)), "piece 264, \"mark\", is defined by the user"),
        (extra(piece("old", 0.0, Sort::Unused)), "piece 264, \"old\", is unused"),
        (extra(piece("<0x00>", 0.0, Sort::Byte)), "more than 256 byte tokens"),
        (extra(piece("x", f32::NAN, Sort::Normal)), "a score is NaN"),
        (extra(piece("", 0.0, Sort::Normal)), "a piece is empty"),
        (b"{}".to_vec(), "is a JSON text, not a sentencepiece model"),
    ] {
        let error = read(&bytes).unwrap_err().to_string();
        assert!(error.contains(said), "{said}: {error}");
    }
}

#[test]
fn cut_and_flipped_files_never_panic() {
    let whole = file();
    for cut in (0..whole.len()).step_by(5) {
        assert!(read(&whole[..cut]).is_err(), "{cut}");
    }
    for place in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[place] ^= 1 << (place % 8);
        let _ = read(&bytes);
    }
}

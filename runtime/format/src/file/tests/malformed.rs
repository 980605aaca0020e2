//! Format-2 files that are wrong in one thing alone, class by class; every checksum is made right again after the edit.

use super::make::{self, File, index_start, payload_start, put_u16, put_u32, put_u64, seal, seal_payload};
use crate::file::ModelFile;
use crate::tokenizer::{NO_TOKEN, Normalizer, PreTokenizer, TokenizerKind};
use crate::{ConfigKey, Error, Part, Rule, TokenizerKey};

/// The error of the right file after an edit of its fixed part, header, index or padding.
fn refused(edit: impl FnOnce(&mut Vec<u8>)) -> Error {
    let mut bytes = make::file().build();
    edit(&mut bytes);
    seal(&mut bytes);
    ModelFile::open(&bytes).unwrap_err()
}

/// The same, with the index's start given.
fn index_refused(edit: impl FnOnce(&mut Vec<u8>, usize)) -> Error {
    refused(|bytes| {
        let start = index_start(bytes);
        edit(bytes, start);
    })
}

/// The error of the right file after a change to what it is built from.
fn built_refused(change: impl FnOnce(&mut File)) -> Error {
    let mut file = make::file();
    change(&mut file);
    ModelFile::open(&file.build()).unwrap_err()
}

/// Part and rule of a layout error.
fn layout(error: Error) -> (Part, Rule) {
    match error {
        Error::Layout { part, rule, .. } => (part, rule),
        other => panic!("{other:?}"),
    }
}

/// Number and rule of a tensor error.
fn tensor(error: Error) -> (u32, Rule) {
    match error {
        Error::Tensor { tensor, rule, .. } => (tensor, rule),
        other => panic!("{other:?}"),
    }
}

fn tokenizer(error: Error) -> (TokenizerKey, Rule) {
    match error {
        Error::Tokenizer { key, rule, .. } => (key, rule),
        other => panic!("{other:?}"),
    }
}

fn config(error: Error) -> (ConfigKey, Rule) {
    match error {
        Error::Config { key, rule, .. } => (key, rule),
        other => panic!("{other:?}"),
    }
}

/// Where the record of a tensor starts.
fn record(start: usize, number: usize) -> usize {
    start + 224 + 56 * number
}

#[test]
fn class_01_an_empty_or_short_file_says_what_is_missing() {
    for len in [0, 1, 7] {
        let error = ModelFile::open(&b"DMEXPRT\x02"[..len]).unwrap_err();
        assert_eq!(error, Error::Truncated { part: Part::Fixed, needed: 24, found: len as u64 });
    }
    let bytes = make::file().build();
    let part_at = |len: usize| match ModelFile::open(&bytes[..len]) {
        Err(Error::Truncated { part, needed, found }) => (part, needed, found),
        other => panic!("{other:?}"),
    };
    let (index, payload) = (index_start(&bytes), payload_start(&bytes));
    assert_eq!(part_at(31), (Part::Fixed, 32, 31));
    assert_eq!(part_at(33), (Part::Header, index as u64, 33));
    assert_eq!(part_at(index + 1).0, Part::Index);
    assert_eq!(part_at(payload), (Part::Payload, bytes.len() as u64, payload as u64));
}

#[test]
fn class_02_another_format_is_named_by_its_first_bytes() {
    let others: [&[u8]; 8] = [
        b"GGUF\x03\0\0\0",
        b"PK\x03\x04",
        b"{\"a\":1}",
        b"\x80\x02",
        b"<!DOCTYPE html>",
        b"version https://git-lfs",
        b"DMEXPRS\x02",
        b"\0",
    ];
    for other in others {
        let mut first = [0; 8];
        first[..other.len().min(8)].copy_from_slice(&other[..other.len().min(8)]);
        assert_eq!(ModelFile::open(other).unwrap_err(), Error::NotDmexp { first });
    }
}

#[test]
fn class_03_other_versions_are_refused() {
    for found in [0, 3, 255] {
        assert_eq!(refused(|bytes| bytes[7] = found), Error::Version { found });
    }
}

#[test]
fn class_04_lengths_past_limits_and_file_are_refused() {
    assert_eq!(layout(refused(|b| put_u32(b, 8, u32::MAX))), (Part::Header, Rule::TooLarge));
    assert_eq!(layout(refused(|b| put_u32(b, 8, (16 << 20) + 1))), (Part::Header, Rule::TooLarge));
    assert!(matches!(refused(|b| put_u32(b, 8, 16 << 20)), Error::Truncated { part: Part::Header, .. }));
    assert_eq!(layout(refused(|b| put_u32(b, 24, u32::MAX))), (Part::Index, Rule::TooLarge));
    assert_eq!(layout(refused(|b| put_u32(b, 24, (64 << 20) + 1))), (Part::Index, Rule::TooLarge));
    assert!(matches!(refused(|b| put_u32(b, 24, 64 << 20)), Error::Truncated { part: Part::Index, .. }));
    assert_eq!(layout(refused(|b| put_u64(b, 12, u64::MAX))), (Part::Payload, Rule::TooLarge));
    assert!(matches!(refused(|b| put_u64(b, 12, 1 << 63)), Error::TooLargeForTarget { .. }));
    assert!(matches!(refused(|b| put_u64(b, 12, 1 << 30)), Error::Truncated { part: Part::Payload, .. }));
    // An index of no bytes, or of fewer than its fixed parts.
    for len in [0, 64, 220] {
        let bytes = refused(|b| {
            let start = index_start(b);
            b.drain(start + len..);
            put_u32(b, 24, len as u32);
            put_u64(b, 12, 0);
            b.resize((start + len).next_multiple_of(16), 0);
        });
        assert_eq!(layout(bytes), (Part::Index, Rule::TooSmall));
    }
}

#[test]
fn class_05_trailing_bytes_and_holes_are_refused() {
    assert!(matches!(refused(|b| b.push(0)), Error::TrailingBytes { .. }));
    // A hole of one unit of alignment before a tensor.
    let hole = index_refused(|b, start| {
        let at = record(start, 15) + 32;
        let offset = crate::bytes::u64_at(b, at);
        put_u64(b, at, offset + 16);
        b.extend([0; 16]);
        let len = crate::bytes::u64_at(b, 12);
        put_u64(b, 12, len + 16);
    });
    assert_eq!(tensor(hole), (15, Rule::Overlap));
    // A payload that goes on past the last tensor.
    let longer = refused(|b| {
        b.extend([0; 16]);
        let len = crate::bytes::u64_at(b, 12);
        put_u64(b, 12, len + 16);
    });
    assert_eq!(layout(longer), (Part::Payload, Rule::Length));
    // Padding before the payload and gaps between tensors must be zero; the first is read by `open`, the second by `verify_payload`.
    let padding = refused(|b| {
        let at = payload_start(b) - 1;
        assert!(at >= index_start(b) + crate::bytes::u32_at(b, 24) as usize, "this file has no padding");
        b[at] = 1;
    });
    assert_eq!(layout(padding), (Part::Padding, Rule::Zero));
    let mut bytes = make::file().build();
    let (start, payload) = (index_start(&bytes), payload_start(&bytes));
    let end =
        payload + (crate::bytes::u64_at(&bytes, record(start, 8) + 32) + crate::bytes::u64_at(&bytes, record(start, 8) + 40)) as usize;
    assert!(!end.is_multiple_of(16), "this tensor has no gap after it");
    bytes[end] = 1;
    seal_payload(&mut bytes);
    assert_eq!(layout(ModelFile::open(&bytes).unwrap().verify_payload().unwrap_err()), (Part::Payload, Rule::Zero));
}

#[test]
fn class_06_tensor_counts_are_checked() {
    assert_eq!(layout(index_refused(|b, at| put_u32(b, at + 8, 0))), (Part::Index, Rule::NotZero));
    assert_eq!(layout(index_refused(|b, at| put_u32(b, at + 8, 65_537))), (Part::Index, Rule::TooLarge));
    for count in [15, 17, 65_536] {
        assert_eq!(layout(index_refused(|b, at| put_u32(b, at + 8, count))), (Part::Golden, Rule::Overlap));
    }
    let error = index_refused(|b, at| put_u64(b, at + 52, 1));
    let allowed = make::CONFIG.num_params();
    assert_eq!(error, Error::Config { key: ConfigKey::NumParams, rule: Rule::Equal, found: 1, allowed });
}

#[test]
fn class_07_dims_are_checked() {
    let dims = |rank: u8, sizes: [u32; 4]| {
        tensor(index_refused(|b, start| {
            b[record(start, 3) + 7] = rank;
            for (axis, size) in sizes.into_iter().enumerate() {
                put_u32(b, record(start, 3) + 8 + 4 * axis, size);
            }
        }))
    };
    assert_eq!(dims(0, [1, 1, 1, 1]), (3, Rule::Rank));
    assert_eq!(dims(5, [4, 4, 1, 1]), (3, Rule::Rank));
    assert_eq!(dims(2, [0, 4, 1, 1]), (3, Rule::NotZero));
    assert_eq!(dims(2, [4, 0, 1, 1]), (3, Rule::NotZero));
    // Past the element limit, past 32 and past 64 bits, and only together with the size of an element.
    assert_eq!(dims(2, [1 << 16, 1 << 17, 1, 1]), (3, Rule::Length));
    assert_eq!(dims(2, [u32::MAX, u32::MAX, 1, 1]), (3, Rule::TooLarge));
    assert_eq!(dims(4, [u32::MAX, u32::MAX, u32::MAX, u32::MAX]), (3, Rule::TooLarge));
    assert_eq!(dims(3, [1 << 31, 1 << 31, 4, 1]), (3, Rule::TooLarge));
    assert_eq!(dims(2, [1 << 24, 1 << 24, 1, 1]), (3, Rule::Length));
    // An axis past the last.
    assert_eq!(dims(1, [16, 2, 1, 1]), (3, Rule::Rank));
    // Other dims of another size.
    assert_eq!(dims(2, [4, 3, 1, 1]), (3, Rule::Length));
}

#[test]
fn class_08_offsets_are_checked() {
    let offset = |value: u64| tensor(index_refused(|b, start| put_u64(b, record(start, 2) + 32, value)));
    assert_eq!(offset(49), (2, Rule::Multiple));
    assert_eq!(offset(0), (2, Rule::Overlap));
    assert_eq!(offset(1 << 40), (2, Rule::Overlap));
    assert_eq!(offset(u64::MAX - 15), (2, Rule::Overlap));
    assert_eq!(offset(u64::MAX), (2, Rule::Multiple));
    // The last tensor goes past the payload's end.
    let past = refused(|b| {
        let len = crate::bytes::u64_at(b, 12);
        put_u64(b, 12, len - 1);
        b.pop();
    });
    assert_eq!(tensor(past), (15, Rule::Range));
    let bytes = |value: u64| tensor(index_refused(|b, start| put_u64(b, record(start, 2) + 40, value)));
    assert_eq!(bytes(0), (2, Rule::Length));
    assert_eq!(bytes(u64::MAX), (2, Rule::Length));
}

#[test]
fn class_09_the_alignment_is_checked() {
    for (value, rule) in
        [(0, Rule::PowerOfTwo), (48, Rule::PowerOfTwo), (8, Rule::TooSmall), (8192, Rule::TooLarge), (1 << 31, Rule::TooLarge)]
    {
        assert_eq!(layout(refused(|b| put_u32(b, 28, value))), (Part::Fixed, rule), "{value}");
    }
    for alignment in [16, 32, 64, 128, 256, 512, 1024, 2048, 4096] {
        let mut file = make::file();
        file.alignment = alignment;
        ModelFile::open(&file.build()).unwrap().verify_payload().unwrap();
    }
}

#[test]
fn class_10_names_are_checked() {
    let named = |name: &[u8]| built_refused(|file| file.tensors[1].name = name.to_vec());
    assert_eq!(tensor(named(b"")), (1, Rule::NotZero));
    assert_eq!(tensor(named(&[b'a'; 129])), (1, Rule::TooLarge));
    for name in ["a\nb", "a\0b", "\u{e9}", "\u{7f}"] {
        assert_eq!(tensor(named(name.as_bytes())), (1, Rule::Ascii));
    }
    assert_eq!(tensor(named(b"\xff\xfe")), (1, Rule::Ascii));
    assert_eq!(named(b"tok_embeddings.weight"), Error::DuplicateName { first: 0, second: 1 });
    let mut file = make::file();
    file.tensors[1].name = vec![b'~'; 128];
    assert!(ModelFile::open(&file.build()).is_ok());
    // Names that overlap, leave a hole, or end before or past their part.
    assert_eq!(layout(index_refused(|b, start| put_u32(b, record(start, 1), 0))), (Part::Names, Rule::Overlap));
    assert_eq!(layout(index_refused(|b, start| put_u32(b, record(start, 1), u32::MAX))), (Part::Names, Rule::Overlap));
    assert_eq!(layout(index_refused(|b, start| put_u16(b, record(start, 15) + 4, 1))), (Part::Names, Rule::Length));
    assert_eq!(layout(index_refused(|b, start| put_u16(b, record(start, 15) + 4, 128))), (Part::Names, Rule::Length));
    let padding = index_refused(|b, start| {
        let end = start + crate::bytes::u32_at(b, 24) as usize;
        b[end - 1] = 1;
    });
    assert_eq!(layout(padding), (Part::Names, Rule::Zero));
}

#[test]
fn class_10_many_names_are_checked_too() {
    let many = |duplicate: Option<(usize, usize)>| {
        let mut file = make::file();
        let mut tensors: Vec<_> =
            (0..40).map(|n| make::Made { name: format!("t{n}").into(), dtype: 0, dims: vec![1], group: 0, bytes: vec![0; 4] }).collect();
        if let Some((first, second)) = duplicate {
            tensors[second].name = tensors[first].name.clone();
        }
        file.tensors.splice(..11, tensors);
        for array in &mut file.facts.arrays {
            *array += 29;
        }
        ModelFile::open(&file.build()).map(|_| ())
    };
    assert_eq!(many(None), Ok(()));
    for (first, second) in [(0, 1), (0, 39), (14, 15), (15, 16), (16, 17), (3, 31), (31, 32), (38, 39)] {
        assert_eq!(many(Some((first, second))), Err(Error::DuplicateName { first: first as u32, second: second as u32 }));
    }
}

#[test]
fn class_11_types_and_groups_are_checked() {
    for code in [8, 255] {
        assert_eq!(tensor(index_refused(|b, start| b[record(start, 4) + 6] = code)), (4, Rule::DType));
    }
    // Known types whose planes are not as many bytes.
    for code in [4, 5] {
        assert_eq!(tensor(index_refused(|b, start| b[record(start, 4) + 6] = code)), (4, Rule::Length));
    }
    assert_eq!(tensor(index_refused(|b, start| put_u32(b, record(start, 4) + 24, 32))), (4, Rule::Zero));
    assert_eq!(tensor(index_refused(|b, start| put_u32(b, record(start, 4) + 48, 4))), (4, Rule::Unknown));
    assert_eq!(tensor(index_refused(|b, start| put_u32(b, record(start, 4) + 52, 1))), (4, Rule::Zero));
}

#[test]
fn class_12_numbers_of_the_configuration_are_checked() {
    for (value, rule) in [(0.0, Rule::Positive), (-0.0, Rule::Positive), (f32::NAN, Rule::Finite), (f32::INFINITY, Rule::Finite)] {
        assert_eq!(config(built_refused(|file| file.config.norm_eps = value)), (ConfigKey::NormEps, rule));
        assert_eq!(config(built_refused(|file| file.config.attention_factor = value)), (ConfigKey::AttentionFactor, rule));
        // What a rotation base of 0, NaN or infinity would leave in the frequencies.
        let mut file = make::file();
        file.tensors[11].bytes = make::f32s(&[1.0, value]);
        let bytes = file.build();
        let error = ModelFile::open(&bytes).unwrap().rope_inv_freq(&mut [0.0; 2]).unwrap_err();
        assert_eq!(config(error), (ConfigKey::RopeInvFreq, rule));
    }
}

#[test]
fn class_12_rotation_frequencies_must_be_the_tensor_of_that_name_type_and_length() {
    let wrong = |change: fn(&mut make::Made)| {
        let mut file = make::file();
        change(&mut file.tensors[11]);
        let bytes = file.build();
        config(ModelFile::open(&bytes).unwrap().rope_inv_freq(&mut [0.0; 2]).unwrap_err())
    };
    assert_eq!(wrong(|t| t.dtype = 7), (ConfigKey::RopeInvFreq, Rule::DType));
    assert_eq!(wrong(|t| t.dims = vec![2, 1]), (ConfigKey::RopeInvFreq, Rule::Length));
    assert_eq!(wrong(|t| (t.dims, t.bytes) = (vec![1], vec![0; 4])), (ConfigKey::RopeInvFreq, Rule::Length));
    assert_eq!(wrong(|t| t.name = b"tokenizer.inv_freq".to_vec()), (ConfigKey::RopeInvFreq, Rule::Missing));
}

#[test]
fn class_13_a_configuration_that_fails_validation_is_refused() {
    assert_eq!(config(built_refused(|file| file.config.n_heads = 0)), (ConfigKey::NHeads, Rule::NotZero));
    assert_eq!(config(built_refused(|file| file.config.head_dim = 3)), (ConfigKey::HeadDim, Rule::Even));
    assert_eq!(config(index_refused(|b, start| put_u32(b, start + 64 + 36, 2))), (ConfigKey::RopeLayout, Rule::Unknown));
    assert_eq!(config(index_refused(|b, start| put_u32(b, start + 64 + 40, 4))), (ConfigKey::Other, Rule::Unknown));
    assert_eq!(config(index_refused(|b, start| put_u32(b, start + 64 + 60, 1))), (ConfigKey::Other, Rule::Zero));
}

#[test]
fn class_14_the_tokenizer_record_is_checked() {
    let facts = |change: fn(&mut crate::tokenizer::TokenizerFacts)| tokenizer(built_refused(|file| change(&mut file.facts)));
    assert_eq!(facts(|f| f.n_pieces = 7), (TokenizerKey::VocabSize, Rule::Equal));
    assert_eq!(facts(|f| f.bos = 6), (TokenizerKey::Bos, Rule::TooLarge));
    assert_eq!(facts(|f| f.bos = NO_TOKEN), (TokenizerKey::Bos, Rule::Missing));
    assert_eq!(facts(|f| f.eos[0] = 6), (TokenizerKey::Eos, Rule::TooLarge));
    assert_eq!(facts(|f| f.eos[2] = 1), (TokenizerKey::Eos, Rule::Order));
    assert_eq!(facts(|f| f.max_piece_len = 257), (TokenizerKey::MaxPieceLen, Rule::Range));
    assert_eq!(facts(|f| f.byte_base = 0), (TokenizerKey::ByteBase, Rule::TooLarge));
    assert_eq!(tokenizer(index_refused(|b, start| put_u32(b, start + 128, 4))), (TokenizerKey::Kind, Rule::Unknown));
    assert_eq!(tokenizer(index_refused(|b, start| put_u32(b, start + 216, 1))), (TokenizerKey::Kind, Rule::Zero));
    // The arrays: not there, another tensor, another type, another length, of a tokenizer that has none.
    assert_eq!(facts(|f| f.arrays[0] = NO_TOKEN), (TokenizerKey::Pieces, Rule::Missing));
    assert_eq!(facts(|f| f.arrays[1] = 16), (TokenizerKey::Offsets, Rule::Missing));
    assert_eq!(facts(|f| f.arrays.swap(1, 3)), (TokenizerKey::Offsets, Rule::Missing));
    let array = |change: fn(&mut make::Made)| tokenizer(built_refused(|file| change(&mut file.tensors[14])));
    assert_eq!(array(|t| t.dtype = 7), (TokenizerKey::Scores, Rule::DType));
    assert_eq!(array(|t| t.dims = vec![6, 1]), (TokenizerKey::Scores, Rule::Rank));
    assert_eq!(array(|t| (t.dims, t.bytes) = (vec![5], vec![0; 20])), (TokenizerKey::Scores, Rule::Length));
    let none = |f: &mut crate::tokenizer::TokenizerFacts| (f.kind, f.n_pieces) = (crate::tokenizer::TokenizerKind::None, 0);
    assert_eq!(tokenizer(built_refused(|file| none(&mut file.facts))), (TokenizerKey::Pieces, Rule::Equal));
}

#[cfg(feature = "bpe")]
#[test]
fn class_14_a_byte_level_tokenizer_is_checked() {
    // `< a`, `a b`: the two merges of a tokenizer with the pieces of `file()`.
    let byte_level = |change: fn(&mut make::File)| {
        tokenizer(built_refused(|file| {
            file.facts.kind = TokenizerKind::ByteLevelBpe;
            let merges = &mut file.tensors[14];
            (merges.name, merges.dtype, merges.dims) = ("tokenizer.merges".into(), 7, vec![2, 4]);
            merges.bytes = [1, 3, 1, 5, 3, 4, 0, 5].into_iter().flat_map(u32::to_le_bytes).collect();
            change(file);
        }))
    };
    assert_eq!(byte_level(|f| f.facts.dummy_prefix = true), (TokenizerKey::DummyPrefix, Rule::Zero));
    assert_eq!(byte_level(|f| f.facts.byte_base = 3), (TokenizerKey::ByteBase, Rule::Equal));
    assert_eq!(byte_level(|f| f.facts.max_piece_len = 0), (TokenizerKey::MaxPieceLen, Rule::Range));
    assert_eq!(byte_level(|f| f.facts.n_special = 7), (TokenizerKey::Special, Rule::TooLarge));
    assert_eq!(byte_level(|f| f.tensors[14].name = "tokenizer.scores".into()), (TokenizerKey::Merges, Rule::Missing));
    assert_eq!(byte_level(|f| f.tensors[14].dtype = 0), (TokenizerKey::Merges, Rule::DType));
    assert_eq!(byte_level(|f| f.tensors[14].dims = vec![8]), (TokenizerKey::Merges, Rule::Rank));
    assert_eq!(byte_level(|f| f.tensors[14].dims = vec![4, 2]), (TokenizerKey::Merges, Rule::Length));
    // What only this kind has, with another.
    let facts = |change: fn(&mut crate::tokenizer::TokenizerFacts)| tokenizer(built_refused(|file| change(&mut file.facts)));
    assert_eq!(facts(|f| f.pre_tokenizer = PreTokenizer::Gpt2), (TokenizerKey::PreTokenizer, Rule::Zero));
    assert_eq!(facts(|f| f.ignore_merges = true), (TokenizerKey::Kind, Rule::Unknown));
    assert_eq!(facts(|f| f.normalizer = Normalizer::Nfc), (TokenizerKey::Kind, Rule::Unknown));
    assert_eq!(tokenizer(index_refused(|b, start| put_u32(b, start + 208, 5))), (TokenizerKey::PreTokenizer, Rule::Unknown));
}

#[test]
fn class_14_golden_vectors_are_checked() {
    let golden = |change: fn(&mut Vec<u32>)| layout(built_refused(|file| change(&mut file.golden)));
    assert_eq!(golden(|g| g[0] = 3), (Part::Golden, Rule::Unknown));
    assert_eq!(golden(|g| g[1] = 0), (Part::Golden, Rule::Range));
    assert_eq!(golden(|g| g[1] = u32::MAX), (Part::Golden, Rule::Length));
    assert_eq!(golden(|g| g[2] = u32::MAX), (Part::Golden, Rule::Length));
    assert_eq!(golden(|g| g.truncate(19)), (Part::Golden, Rule::Length));
    assert_eq!(golden(|g| *g = vec![0, 1, 0, 1]), (Part::Golden, Rule::NotZero));
    assert_eq!(golden(|g| g[3] = 6), (Part::Golden, Rule::TooLarge));
    assert_eq!(golden(|g| g[6] = 3), (Part::Golden, Rule::TooLarge));
    assert_eq!(golden(|g| g[13] = 0), (Part::Golden, Rule::Order));
    assert_eq!(golden(|g| g[8] = 6), (Part::Golden, Rule::TooLarge));
    // More tokens than the model has positions.
    let long: fn(&mut Vec<u32>) = |g| *g = [0, 9, 1].into_iter().chain([1; 9]).chain([0, 0, 0, 1, 2, 3, 4]).collect();
    assert_eq!(golden(long), (Part::Golden, Rule::Range));
}

#[test]
fn class_16_parts_of_the_index_that_disagree_are_refused() {
    assert_eq!(layout(index_refused(|b, at| put_u16(b, at, 2))), (Part::Index, Rule::Equal));
    assert_eq!(index_refused(|b, at| put_u16(b, at + 2, 9)), Error::UnknownArchitecture { code: 9 });
    // A model of dormouse has another configuration record.
    assert_eq!(layout(index_refused(|b, at| put_u16(b, at + 2, 2))), (Part::Config, Rule::Overlap));
    assert_eq!(index_refused(|b, at| put_u32(b, at + 4, 2)), Error::Arithmetic { found: 2, expected: 1 });
    assert_eq!(layout(index_refused(|b, at| put_u32(b, at + 60, 1))), (Part::Index, Rule::Zero));
    let fields =
        [(12, Part::Tensors), (16, Part::Config), (20, Part::Config), (24, Part::Tokenizer), (28, Part::Tokenizer), (32, Part::Names)];
    for (field, part) in fields {
        for value in [0, 4, u32::MAX] {
            assert_eq!(layout(index_refused(|b, at| put_u32(b, at + field, value))), (part, Rule::Overlap), "{field}");
        }
    }
    assert_eq!(layout(index_refused(|b, at| put_u32(b, at + 40, 4))), (Part::Golden, Rule::Overlap));
    assert_eq!(layout(index_refused(|b, at| put_u32(b, at + 44, 2))), (Part::Golden, Rule::Multiple));
    assert_eq!(layout(index_refused(|b, at| put_u32(b, at + 44, 0))), (Part::Names, Rule::Overlap));
    assert_eq!(layout(index_refused(|b, at| put_u32(b, at + 36, u32::MAX))), (Part::Index, Rule::Length));
    // An index that goes on, and one that is no multiple of 4.
    let longer = |more: usize| {
        layout(refused(|b| {
            let (len, end) = (crate::bytes::u32_at(b, 24), index_start(b) + crate::bytes::u32_at(b, 24) as usize);
            let payload = b.split_off(payload_start(b));
            b.truncate(end);
            b.resize(end + more, 0);
            put_u32(b, 24, len + more as u32);
            b.resize(b.len().next_multiple_of(16), 0);
            b.extend(payload);
        }))
    };
    assert_eq!(longer(4), (Part::Index, Rule::Length));
    assert_eq!(longer(2), (Part::Index, Rule::Multiple));
}

#[test]
fn class_15_a_header_that_is_not_text_is_refused() {
    assert_eq!(refused(|b| b[33] = 0xff), Error::Toml { offset: 33, rule: Rule::Utf8 });
}

#[test]
fn class_17_each_checksum_is_checked() {
    let bytes = make::file().build();
    let payload = payload_start(&bytes);
    // Fixed part, header and index: one checksum, without sealing.
    for at in [20, 24 + 8, index_start(&bytes) + 48] {
        let mut bytes = bytes.clone();
        bytes[at] ^= 1;
        assert!(matches!(ModelFile::open(&bytes), Err(Error::Checksum { part: Part::Fixed, tensor: u32::MAX, .. })), "{at}");
    }
    // A byte of the first tensor.
    let mut damaged = bytes.clone();
    damaged[payload] ^= 1;
    let error = ModelFile::open(&damaged).unwrap().verify_payload().unwrap_err();
    assert!(matches!(error, Error::Checksum { part: Part::TensorBytes, tensor: 0, .. }));
    // The payload's checksum alone.
    let mut damaged = bytes.clone();
    let at = index_start(&bytes) + 48;
    damaged[at] ^= 1;
    seal(&mut damaged);
    let error = ModelFile::open(&damaged).unwrap().verify_payload().unwrap_err();
    assert!(matches!(error, Error::Checksum { part: Part::Payload, tensor: u32::MAX, .. }));
}

#[test]
fn class_19_weights_that_are_not_finite_are_named() {
    // The embedding is bf16, the norm f32.
    for (number, offset, bits, element) in [(0, 2, vec![0x80, 0x7f], 1), (0, 4, vec![0x81, 0xff], 2), (1, 8, vec![0, 0, 0xc0, 0x7f], 2)] {
        let mut bytes = make::file().build();
        let start = payload_start(&bytes) + crate::bytes::u64_at(&bytes, record(index_start(&bytes), number) + 32) as usize + offset;
        bytes[start..start + bits.len()].copy_from_slice(&bits);
        seal_payload(&mut bytes);
        let error = ModelFile::open(&bytes).unwrap().verify_payload().unwrap_err();
        assert_eq!(error, Error::NonFinite { tensor: number as u32, element });
    }
    let mut file = make::file();
    (file.tensors[2].dtype, file.tensors[2].bytes) = (1, vec![0; 64]);
    file.tensors[2].dims = vec![8, 4];
    file.tensors[2].bytes[6..8].copy_from_slice(&[0, 0x7c]);
    let error = ModelFile::open(&file.build()).map(|file| file.verify_payload()).unwrap();
    assert_eq!(error, Err(Error::NonFinite { tensor: 2, element: 3 }));
}

#[test]
fn class_20_a_vocabulary_that_is_not_its_tokenizers_is_refused() {
    let error = tokenizer(built_refused(|file| {
        file.config.vocab_size = 7;
        file.tensors[0].dims = vec![7, 4];
        file.tensors[0].bytes = vec![0; 56];
    }));
    assert_eq!(error, (TokenizerKey::VocabSize, Rule::Equal));
}

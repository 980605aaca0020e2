//! tokenizer.bin: what is read, the arrays that are made of it, and every lie it can tell.

use super::data;
use crate::checkpoint::tokenizer_bin::{parse, read};
use crate::checkpoint::{TokenizerSource, recognise};
use crate::error::{Class, Error};
use dmexp_format::tokenizer::{NO_TOKEN, TokenizerKind};

/// A tokenizer.bin of these pieces, the score of each the negative of its id.
fn file(pieces: &[&str]) -> Vec<u8> {
    let longest = pieces.iter().map(|piece| piece.len()).max().unwrap_or(0) as u32;
    let mut bytes = longest.to_le_bytes().to_vec();
    for (id, piece) in pieces.iter().enumerate() {
        bytes.extend((-(id as f32)).to_le_bytes());
        bytes.extend((piece.len() as i32).to_le_bytes());
        bytes.extend(piece.as_bytes());
    }
    bytes
}

/// The first three pieces, 256 bytes, and these.
fn whole(more: &[&str]) -> Vec<String> {
    let specials = ["<unk>", "\n<s>\n", "\n</s>\n"].map(str::to_owned);
    specials.into_iter().chain((0..256).map(|byte| format!("<0x{byte:02X}>"))).chain(more.iter().map(|piece| (*piece).to_owned())).collect()
}

fn strs(pieces: &[String]) -> Vec<&str> {
    pieces.iter().map(String::as_str).collect()
}

fn refusal(bytes: &[u8], vocab_size: u32) -> Error {
    parse(bytes, vocab_size).unwrap_err()
}

/// Where piece `id` stands.
fn place(pieces: &[&str], id: usize) -> usize {
    4 + pieces[..id].iter().map(|piece| 8 + piece.len()).sum::<usize>()
}

#[test]
fn the_shared_tokenizer_is_read_whole() {
    let Some(path) = data("stories260K/tok512.bin") else { return };
    let source = read(&path, 512).unwrap();
    assert_eq!(source.pieces.len(), 512);
    assert_eq!(source.pieces[1], b"\n<s>\n");
    assert_eq!(source.pieces[410], b" ");
    assert_eq!(source.file_name, "tok512.bin");
    assert_eq!(source.notes, [""; 0]);
    let facts = source.facts;
    assert_eq!((facts.kind, facts.n_pieces, facts.max_piece_len), (TokenizerKind::SentencepieceBpe, 512, 7));
    assert_eq!((facts.bos, facts.unk, facts.pad, facts.byte_base), (1, 0, NO_TOKEN, 3));
    assert_eq!((facts.eos[0], facts.eos[1], facts.add_bos, facts.dummy_prefix), (2, NO_TOKEN, true, true));
    // The arrays hold all that the file does.
    let [pieces, offsets, scores, sorted] = source.arrays();
    let offsets: Vec<usize> = offsets.chunks(4).map(|word| u32::from_le_bytes(word.try_into().unwrap()) as usize).collect();
    assert_eq!((offsets.len(), scores.len(), sorted.len()), (513, 2048, 2048));
    let mut again = 7u32.to_le_bytes().to_vec();
    for id in 0..512 {
        let piece = &pieces[offsets[id]..offsets[id + 1]];
        again.extend(&scores[4 * id..4 * id + 4]);
        again.extend((piece.len() as u32).to_le_bytes());
        again.extend(piece);
    }
    assert_eq!(again, std::fs::read(path).unwrap());
}

#[test]
fn ids_are_sorted_by_bytes_and_then_by_id() {
    let pieces = whole(&[" ", "b", "a", "ab", "a", "\u{e9}"]);
    let source = parse(&file(&strs(&pieces)), 265).unwrap();
    let sorted: Vec<u32> = source.arrays()[3].chunks(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect();
    let mut expected: Vec<u32> = (0..265).collect();
    expected.sort_by(|a, b| pieces[*a as usize].as_bytes().cmp(pieces[*b as usize].as_bytes()).then(a.cmp(b)));
    assert_eq!(sorted, expected);
    let a: Vec<&u32> = sorted.iter().filter(|id| pieces[**id as usize] == "a").collect();
    assert_eq!(a, [&261, &263]);
}

#[test]
fn report_20_lies_are_refused() {
    let pieces = whole(&[" ", "x", "yes"]);
    let pieces = strs(&pieces);
    let good = file(&pieces);
    let vocab = pieces.len() as u32;
    parse(&good, vocab).unwrap();
    let edited = |place: usize, word: [u8; 4]| {
        let mut bytes = good.clone();
        bytes[place..place + 4].copy_from_slice(&word);
        bytes
    };
    // The longest piece.
    for stated in [0u32, 1, 5, 7, 1 << 31, u32::MAX] {
        let error = refusal(&edited(0, stated.to_le_bytes()), vocab);
        assert_eq!(error.class(), Class::Damaged);
        assert!(error.to_string().contains(&format!("has {stated} bytes; it has 6")), "{error}");
    }
    // Lengths, in the first piece, one in the middle, and the last.
    for id in [0, 100, pieces.len() - 1] {
        for len in [0i32, -1, i32::MIN, 257, 1 << 30, i32::MAX] {
            let error = refusal(&edited(place(&pieces, id) + 4, len.to_le_bytes()), vocab);
            assert_eq!(error.class(), Class::Damaged);
            let at = place(&pieces, id);
            assert_eq!(error.to_string(), format!("the length of piece {id} is {len}; it can be 1 to 256 (at byte {at})"));
        }
        for score in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let error = refusal(&edited(place(&pieces, id), score.to_le_bytes()), vocab);
            assert!(error.to_string().contains(&format!("the score of piece {id} is {score}")), "{error}");
        }
    }
    let error = refusal(&edited(place(&pieces, pieces.len() - 1) + 4, 200i32.to_le_bytes()), vocab).to_string();
    assert!(error.contains("ends within the bytes of piece 261"), "{error}");
}

#[test]
fn report_20_a_tokenizer_without_a_space_is_refused() {
    let pieces = whole(&["x", "  "]);
    assert!(refusal(&file(&strs(&pieces)), 261).to_string().contains("no piece \" \""));
}

#[test]
fn report_20_byte_tokens_are_all_there_or_not_used() {
    let small = ["<unk>", "\n<s>\n", "\n</s>\n", " ", "a", "b"];
    let source = parse(&file(&small), 6).unwrap();
    assert_eq!(source.facts.byte_base, NO_TOKEN);
    assert_eq!(source.notes.len(), 1);
    assert!(source.notes[0].contains("no byte tokens"));

    let mut pieces = whole(&[" "]);
    pieces[100] = "zz".to_owned();
    let error = refusal(&file(&strs(&pieces)), 260).to_string();
    assert!(error.contains("piece 100 is \"zz\"") && error.contains("<0x61>"), "{error}");
    // The first of them and nothing more.
    let error = refusal(&file(&["<unk>", "\n<s>\n", "\n</s>\n", "<0x00>", "<0x01>"]), 5).to_string();
    assert!(error.contains("no piece \" \""), "{error}");
    let error = refusal(&file(&["<unk>", "\n<s>\n", " ", "<0x00>", "<0x01>"]), 5).to_string();
    assert!(error.contains("has 2 of 256 byte tokens"), "{error}");
}

#[test]
fn every_cut_is_refused() {
    let pieces = whole(&[" ", "x"]);
    let good = file(&strs(&pieces));
    for cut in 0..good.len() {
        let error = refusal(&good[..cut], 261);
        assert!(matches!(error.class(), Class::Damaged | Class::Mismatch), "{cut}: {error}");
    }
    assert_eq!(refusal(&[good, vec![0; 5]].concat(), 261).class(), Class::Damaged);
}

#[test]
fn tokenizers_with_too_few_pieces_are_refused() {
    for count in 1..3 {
        let pieces = [" ", "a"];
        let error = refusal(&file(&pieces[..count]), count as u32);
        assert!(error.to_string().contains("at least 3"), "{error}");
    }
    assert_eq!(refusal(&0u32.to_le_bytes(), 0).class(), Class::Damaged);
}

#[test]
fn something_else_is_named() {
    for (bytes, says) in [
        (b"GGUF\x03\0\0\0".to_vec(), "is a GGUF file, not a tokenizer.bin"),
        (b"{\"version\": \"1.0\"}".to_vec(), "is a JSON text"),
        (super::made::SHAPE.v0(None), "is a llama2.c checkpoint, version 0"),
    ] {
        let error = refusal(&bytes, 512);
        assert_eq!(error.class(), Class::NotAModel);
        assert!(error.to_string().contains(says), "{error} {:?}", recognise(&bytes));
    }
}

#[test]
fn bytes_as_tokens() {
    let source = TokenizerSource::bytes(256, None).unwrap();
    assert_eq!((source.facts.kind, source.facts.n_pieces, source.facts.add_bos), (TokenizerKind::Bytes, 256, false));
    assert_eq!(source.facts.check(256), Ok(()));
    assert_eq!(source.arrays(), [const { Vec::<u8>::new() }; 4]);
    assert_eq!(source.notes, [""; 0]);
    let source = TokenizerSource::bytes(128, Some(0)).unwrap();
    assert_eq!((source.facts.bos, source.facts.add_bos, source.notes.len()), (0, true, 1));
    assert_eq!(source.facts.check(128), Ok(()));
    for (vocab_size, bos) in [(0, None), (257, None), (512, None), (100, Some(100))] {
        assert_eq!(TokenizerSource::bytes(vocab_size, bos).unwrap_err().class(), Class::Mismatch);
    }
}

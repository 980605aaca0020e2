//! What [`Tokenizer::check`] refuses.

use super::{Vocab, encode};
use crate::format::tokenizer::{NO_TOKEN, TokenizerFacts};
use crate::format::{Error, Rule, TensorView, TokenizerKey};
use crate::tokenizer::Tokenizer;

type Break = fn(&mut Vocab);

/// Each edit makes one fact wrong; `check` names it.
#[test]
fn check_refuses_each_lie() {
    let tokenizer = |key, rule, found, allowed| Error::Tokenizer { key, rule, found, allowed };
    let good = || {
        let mut vocab = Vocab::of(&[" ", "a", "ab", "b"]);
        vocab.facts.dummy_prefix = true;
        vocab
    };
    good().arrays(0).tokenizer().check().unwrap();
    let lies: [(&str, Break, Error); 19] = [
        ("longest piece too small", |v| v.facts.max_piece_len = 1, tokenizer(TokenizerKey::MaxPieceLen, Rule::Equal, 1, 6)),
        ("longest piece too large", |v| v.facts.max_piece_len = 7, tokenizer(TokenizerKey::MaxPieceLen, Rule::Equal, 7, 6)),
        ("longest piece 2^31", |v| v.facts.max_piece_len = 1 << 31, tokenizer(TokenizerKey::MaxPieceLen, Rule::Range, 1 << 31, 256)),
        ("longest piece 0", |v| v.facts.max_piece_len = 0, tokenizer(TokenizerKey::MaxPieceLen, Rule::Range, 0, 256)),
        ("a piece of length -1", |v| v.offsets[4] = v.offsets[3] - 1, tokenizer(TokenizerKey::Offsets, Rule::Order, 11, 12)),
        ("an empty piece", |v| v.offsets[1] = 0, tokenizer(TokenizerKey::Offsets, Rule::Order, 0, 0)),
        ("a piece of 2^30 bytes", |v| v.offsets[263] = 1 << 30, tokenizer(TokenizerKey::Pieces, Rule::Length, 1553, 1 << 30)),
        ("a last piece cut", |v| drop(v.pieces.pop()), tokenizer(TokenizerKey::Pieces, Rule::Length, 1552, 1553)),
        ("a first offset", |v| v.offsets[0] = 1, tokenizer(TokenizerKey::Offsets, Rule::Zero, 1, 0)),
        ("an offset missing", |v| v.offsets.truncate(263), tokenizer(TokenizerKey::Offsets, Rule::Length, 263, 264)),
        ("a score missing", |v| v.scores.truncate(262), tokenizer(TokenizerKey::Scores, Rule::Length, 262, 263)),
        ("a score NaN", |v| v.scores[9] = f32::NAN, tokenizer(TokenizerKey::Scores, Rule::Finite, 0x7FC0_0000, 9)),
        ("a score infinite", |v| v.scores[9] = f32::NEG_INFINITY, tokenizer(TokenizerKey::Scores, Rule::Finite, 0xFF80_0000, 9)),
        ("a sorted token twice", |v| v.sorted[1] = v.sorted[0], tokenizer(TokenizerKey::Sorted, Rule::Order, 259, 259)),
        ("sorted out of order", |v| v.sorted.swap(1, 2), tokenizer(TokenizerKey::Sorted, Rule::Order, 2, 3)),
        ("a sorted token too large", |v| v.sorted[262] = 263, tokenizer(TokenizerKey::Sorted, Rule::TooLarge, 263, 263)),
        ("bytes elsewhere", |v| v.facts.byte_base = 4, tokenizer(TokenizerKey::ByteBase, Rule::Equal, 4, 0)),
        ("bytes past the end", |v| v.facts.byte_base = 8, tokenizer(TokenizerKey::ByteBase, Rule::TooLarge, 8, 7)),
        (
            "no space for the prefix",
            |v| {
                v.pieces[259] = b"!".to_vec();
                v.sorted = Vocab::of(&["!", "a", "ab", "b"]).sorted;
            },
            tokenizer(TokenizerKey::DummyPrefix, Rule::Missing, 0, 1),
        ),
    ];
    for (name, edit, error) in lies {
        for shift in [0, 3] {
            let mut vocab = good();
            edit(&mut vocab);
            let arrays = vocab.arrays(shift);
            assert_eq!(arrays.tokenizer().check(), Err(error), "{name}");
            // Not to be used, but it does not panic.
            let _ = encode(&arrays.tokenizer(), "abab é <s>".as_bytes(), true);
            for token in 0..270 {
                let _ = arrays.tokenizer().decode(1, token);
            }
        }
    }
}

#[test]
fn check_refuses_special_tokens_past_the_end_and_wrong_types() {
    let mut vocab = Vocab::of(&["a"]);
    vocab.facts.bos = 260;
    let error = Error::Tokenizer { key: TokenizerKey::Bos, rule: Rule::TooLarge, found: 260, allowed: 260 };
    assert_eq!(vocab.arrays(0).tokenizer().check(), Err(error));

    let vocab = Vocab::of(&["a"]);
    let arrays = vocab.arrays(0);
    let [pieces, _, scores, sorted] = arrays.views();
    let swapped = Tokenizer::from_parts(arrays.facts, [pieces, scores, scores, sorted]);
    let error = Error::Tokenizer { key: TokenizerKey::Offsets, rule: Rule::Length, found: 0, allowed: 261 };
    assert_eq!(swapped.check(), Err(error));
    let empty = Tokenizer::from_parts(
        TokenizerFacts {
            n_pieces: 0,
            byte_base: NO_TOKEN,
            bos: NO_TOKEN,
            unk: NO_TOKEN,
            add_bos: false,
            eos: [NO_TOKEN; 8],
            ..vocab.facts
        },
        [TensorView::EMPTY; 4],
    );
    assert_eq!(empty.check(), Err(Error::Tokenizer { key: TokenizerKey::VocabSize, rule: Rule::NotZero, found: 0, allowed: 1 }));
}

//! What [`Tokenizer::check`](crate::tokenizer::Tokenizer::check) refuses of a byte-level vocabulary.

use super::{Made, made};
use crate::format::tokenizer::PreTokenizer;
use crate::format::{Error, Rule, TokenizerKey};

type Break = fn(&mut Made);

/// Each edit makes one fact wrong; `check` names it.
#[test]
fn check_refuses_each_lie() {
    let tokenizer = |key, rule, found, allowed| Error::Tokenizer { key, rule, found, allowed };
    made(PreTokenizer::Gpt2).encode(b"").unwrap();
    let lies: [(&str, Break, Error); 15] = [
        ("no merges", |m| m.merges.clear(), tokenizer(TokenizerKey::Merges, Rule::Length, 0, 1)),
        ("a merge of what is not there", |m| m.merges[4][1] = 262, tokenizer(TokenizerKey::Merges, Rule::TooLarge, 262, 262)),
        ("a merge into what is not there", |m| m.merges[0][3] = 262, tokenizer(TokenizerKey::Merges, Rule::TooLarge, 262, 262)),
        ("a rank past the last", |m| m.merges[0][2] = 5, tokenizer(TokenizerKey::Merges, Rule::TooLarge, 5, 5)),
        ("merges out of order", |m| m.merges.swap(1, 2), tokenizer(TokenizerKey::Merges, Rule::Order, 2, 5)),
        ("a merge twice", |m| m.merges[2] = m.merges[1], tokenizer(TokenizerKey::Merges, Rule::Duplicate, 2, 5)),
        ("a merge into another piece", |m| m.merges[0][3] = 256, tokenizer(TokenizerKey::Merges, Rule::Equal, 256, 0)),
        ("a merge into a special token", |m| m.merges[2][3] = 261, tokenizer(TokenizerKey::Merges, Rule::Unsupported, 261, 2)),
        ("more special tokens than there are", |m| m.facts.n_special = 263, tokenizer(TokenizerKey::Special, Rule::TooLarge, 263, 262)),
        ("two pieces that are equal", |m| m.facts.n_special = 0, tokenizer(TokenizerKey::Sorted, Rule::Order, 261, 255)),
        ("a special token among the others", |m| m.sorted[261] = 5, tokenizer(TokenizerKey::Special, Rule::Duplicate, 5, 5)),
        ("a space before the text", |m| m.facts.dummy_prefix = true, tokenizer(TokenizerKey::DummyPrefix, Rule::Zero, 1, 0)),
        ("byte tokens by number", |m| m.facts.byte_base = 0, tokenizer(TokenizerKey::ByteBase, Rule::Equal, 0, u64::from(u32::MAX))),
        ("a sorted token missing", |m| m.sorted.truncate(261), tokenizer(TokenizerKey::Sorted, Rule::Length, 261, 262)),
        ("an empty piece", |m| m.offsets[1] = 0, tokenizer(TokenizerKey::Offsets, Rule::Order, 0, 0)),
    ];
    for (what, lie, expected) in lies {
        let mut made = made(PreTokenizer::Gpt2);
        lie(&mut made);
        assert_eq!(made.encode(b"").unwrap_err(), expected, "{what}");
    }
}

/// Two ordinary pieces that are equal, in the order that would be right for pieces that may be.
#[test]
fn equal_pieces_are_refused() {
    let mut made = made(PreTokenizer::Gpt2);
    made.facts.n_special = 0;
    made.sorted.sort_by_key(|id| (made.pieces[made.offsets[*id as usize] as usize..made.offsets[*id as usize + 1] as usize].to_vec(), *id));
    let expected = Error::Tokenizer { key: TokenizerKey::Pieces, rule: Rule::Duplicate, found: 261, allowed: 256 };
    assert_eq!(made.encode(b"").unwrap_err(), expected);
}

//! What [`ByteLevelBpe::build`] makes and refuses.

use crate::checkpoint::byte_level::{ByteLevelBpe, character_of};
use crate::decode::TokenizerArrays;
use crate::error::Class;
use dmexp_format::tokenizer::{NO_TOKEN, PreTokenizer};

/// All bytes, `ab`, ` ab`, and two special tokens.
fn made() -> ByteLevelBpe {
    let mut pieces: Vec<String> = (0..=255).map(|byte| character_of(byte).to_string()).collect();
    pieces.extend(["ab", "Ġab", "<|im start|>", "<|end|>"].map(str::to_owned));
    let merges = [("a", "b"), ("Ġ", "ab")].map(|(left, right)| (left.to_owned(), right.to_owned())).to_vec();
    let (special, eos) = (vec![258], vec![259]);
    ByteLevelBpe { pieces, merges, special, eos, pre_tokenizer: PreTokenizer::Gpt2, ..ByteLevelBpe::default() }
}

#[test]
fn a_vocabulary_becomes_bytes() {
    let mut made = made();
    made.fill(262);
    let source = made.build().unwrap();
    assert_eq!(source.pieces.iter().take(256).flatten().copied().collect::<Vec<u8>>(), (0..=255).collect::<Vec<u8>>());
    assert_eq!(source.pieces[257], b" ab");
    assert_eq!(source.pieces[258], b"<|im start|>");
    assert_eq!((source.special.as_slice(), source.facts.n_pieces, source.facts.n_special), ([258, 259, 260, 261].as_slice(), 262, 4));
    assert!(source.notes.is_empty(), "{:?}", source.notes);
    let arrays = TokenizerArrays::new(&source);
    let tokenizer = arrays.tokenizer().unwrap();
    let mut scratch = [0; 200];
    let count = tokenizer.encode(b"ab ab<|end|>\xFF", true, &mut scratch).unwrap();
    let tokens: Vec<_> = scratch[..count].to_vec();
    assert_eq!(tokens[..2], [256, 257]);
    assert_eq!(
        tokens.iter().flat_map(|token| tokenizer.decode(NO_TOKEN, *token).as_bytes().to_vec()).collect::<Vec<_>>(),
        b"ab ab<|end|>\xFF"
    );
}

#[test]
fn bytes_without_a_token_are_noted() {
    let mut made = made();
    made.pieces[7] = "aa".to_owned();
    let source = made.build().unwrap();
    assert_eq!(source.notes, ["the vocabulary has no token for 1 of the 256 bytes (07): text with them is refused"]);
}

#[test]
fn what_does_not_fit_together_is_named() {
    type Break = fn(&mut ByteLevelBpe);
    let lies: [(Break, &str); 13] = [
        (|v| v.merges.clear(), "has no merges"),
        (|v| v.merges[1].0 = "xy".into(), r#"merge 1 ("xy" with "ab"): its left side "xy" is not a piece"#),
        (|v| v.merges[0].1 = "<|end|>".into(), r#"merge 0 ("a" with "<|end|>"): its right side "<|end|>" is not a piece"#),
        (|v| v.merges[0].1 = "c".into(), r#"what it makes, "ac" is not a piece"#),
        (|v| v.merges[1] = v.merges[0].clone(), r#"merges 0 and 1 are both "a" with "b""#),
        (|v| v.pieces[3] = "ab".into(), r#"tokens 3 and 256 are both "ab""#),
        (|v| v.pieces[259] = "<|im start|>".into(), r#"tokens 258 and 259 are both "<|im start|>""#),
        (|v| v.pieces[9] = String::new(), "token 9 has no text"),
        (|v| v.pieces[9] = "a".repeat(257), "token 9 has 257 bytes; at most 256 are carried"),
        (|v| v.pieces[9] = "a b".into(), r#"token 9 is "a b", where ' ' (character 1) stands for no byte"#),
        (|v| v.special.push(260), "names token 260 as a special one; the vocabulary has 260"),
        (|v| v.pad = Some(300), "names token 300 as a special one; the vocabulary has 260"),
        (|v| v.eos = (0..9).collect(), "has 9 tokens that end a text; at most 8 are carried"),
    ];
    for (lie, expected) in lies {
        let mut made = made();
        lie(&mut made);
        let error = made.build().unwrap_err();
        assert_eq!(error.class(), Class::Damaged);
        assert!(error.to_string().contains(expected), "{error}\n{expected}");
    }
}

//! Tests of byte-level BPE on a made vocabulary; equality with `tokenizers` is shown in `tests/references`.

mod check;
mod tables;

use crate::format::tokenizer::{NO_TOKEN, PreTokenizer, TokenizerFacts, TokenizerKind};
use crate::format::{DType, Dims, Error, TensorView};
use crate::tokenizer::Tokenizer;
use crate::tokenizer::byte_level::split::Parts;
use proptest::prelude::*;

/// The 256 bytes, then what the merges make, then a special token with the text of an ordinary one.
#[derive(Clone, Debug)]
struct Made {
    facts: TokenizerFacts,
    pieces: Vec<u8>,
    offsets: Vec<u32>,
    merges: Vec<[u32; 4]>,
    sorted: Vec<u32>,
}

impl Made {
    fn new(pre_tokenizer: PreTokenizer, merges: &[(&[u8], &[u8])]) -> Self {
        let mut all: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).collect();
        let mut rows = Vec::new();
        for (rank, (left, right)) in merges.iter().enumerate() {
            let find = |wanted: &[u8]| all.iter().position(|piece| piece == wanted).unwrap() as u32;
            rows.push([find(left), find(right), rank as u32, all.len() as u32]);
            all.push([*left, *right].concat());
        }
        rows.sort_unstable();
        let special = all.len() as u32;
        all.push(b"ab".to_vec());
        let mut sorted: Vec<u32> = (0..special).collect();
        sorted.sort_by_key(|id| all[*id as usize].clone());
        sorted.push(special);
        let mut offsets = vec![0];
        for piece in &all {
            offsets.push(offsets.last().unwrap() + piece.len() as u32);
        }
        let facts = TokenizerFacts {
            kind: TokenizerKind::ByteLevelBpe,
            n_pieces: all.len() as u32,
            n_special: 1,
            max_piece_len: all.iter().map(Vec::len).max().unwrap() as u32,
            pre_tokenizer,
            ..TokenizerFacts::NONE
        };
        Self { facts, pieces: all.concat(), offsets, merges: rows, sorted }
    }

    /// Lets `work` use the tokenizer.
    fn with<T>(&self, work: impl FnOnce(&Tokenizer<'_>) -> T) -> T {
        let bytes = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
        let (offsets, merges, sorted) = (bytes(&self.offsets), bytes(self.merges.as_flattened()), bytes(&self.sorted));
        let words = |bytes| TensorView::new(0, DType::U32, Dims::vector((<[u8]>::len(bytes) / 4) as u32), bytes).unwrap();
        let pieces = TensorView::new(0, DType::U8, Dims::vector(self.pieces.len() as u32), &self.pieces).unwrap();
        work(&Tokenizer::from_parts(self.facts, [pieces, words(&offsets), words(&merges), words(&sorted)]))
    }

    fn encode(&self, text: &[u8]) -> Result<Vec<u32>, Error> {
        self.with(|tokenizer| {
            tokenizer.check()?;
            let mut scratch = vec![0; Tokenizer::scratch_words(text.len())];
            let count = tokenizer.encode(text, true, &mut scratch)?;
            scratch.truncate(count);
            Ok(scratch)
        })
    }

    fn decode(&self, tokens: &[u32]) -> Vec<u8> {
        self.with(|tokenizer| tokens.iter().flat_map(|token| tokenizer.decode(NO_TOKEN, *token).as_bytes().to_vec()).collect())
    }
}

/// `a b`, `ab c`, `b c`, `space a`, `a a`, in this order of ranks.
fn made(pre_tokenizer: PreTokenizer) -> Made {
    Made::new(pre_tokenizer, &[(b"a", b"b"), (b"ab", b"c"), (b"b", b"c"), (b" ", b"a"), (b"a", b"a")])
}

fn parts(pre_tokenizer: PreTokenizer, text: &str) -> Vec<&str> {
    Parts::new(pre_tokenizer, text.as_bytes()).map(|(_, part)| std::str::from_utf8(part).unwrap()).collect()
}

#[test]
fn texts_are_split_as_the_expressions_say() {
    let text = "I'll  go\t\n 12345 'S\u{17F}x'\u{17F} --\r\n\n  é²x\u{301}  ";
    let gpt2 =
        ["I", "'ll", " ", " go", "\t\n", " 12345", " '", "S\u{17F}x", "'", "\u{17F}", " --", "\r\n\n ", " é", "²", "x", "\u{301}", "  "];
    assert_eq!(parts(PreTokenizer::Gpt2, text), gpt2);
    let smollm = [
        "I",
        "'ll",
        " ",
        " go",
        "\t\n ",
        "1",
        "2",
        "3",
        "4",
        "5",
        " '",
        "S\u{17F}x",
        "'",
        "\u{17F}",
        " --",
        "\r\n\n ",
        " é",
        "²",
        "x",
        "\u{301}",
        "  ",
    ];
    assert_eq!(parts(PreTokenizer::Smollm, text), smollm);
    let llama = [
        "I",
        "'ll",
        " ",
        " go",
        "\t\n",
        " ",
        "123",
        "45",
        " '",
        "S\u{17F}x",
        "'\u{17F}",
        " --\r\n\n",
        " ",
        " é",
        "²",
        "x",
        "\u{301}",
        "  ",
    ];
    assert_eq!(parts(PreTokenizer::LlamaBpe, text), llama);
    let qwen2 = [
        "I",
        "'ll",
        " ",
        " go",
        "\t\n",
        " ",
        "1",
        "2",
        "3",
        "4",
        "5",
        " '",
        "S\u{17F}x",
        "'\u{17F}",
        " --\r\n\n",
        " ",
        " é",
        "²",
        "x",
        "\u{301}",
        "  ",
    ];
    assert_eq!(parts(PreTokenizer::Qwen2, text), qwen2);
    assert_eq!(parts(PreTokenizer::None, text), [text]);
}

#[test]
fn the_lowest_rank_merges_first_and_the_leftmost_among_equals() {
    let made = made(PreTokenizer::None);
    assert_eq!(made.encode(b"abc").unwrap(), [257]);
    assert_eq!(made.encode(b"aaa").unwrap(), [260, u32::from(b'a')]);
    assert_eq!(made.encode(b"bc aab").unwrap(), [258, 259, 256]);
    assert!(made.encode(b"").unwrap().is_empty());
}

#[test]
fn a_part_that_is_a_piece_is_that_piece_where_merges_are_ignored() {
    // `a b` comes before `c a`, which alone leads to "cab".
    let mut made = Made::new(PreTokenizer::Gpt2, &[(b"a", b"b"), (b"c", b"a"), (b"ca", b"b")]);
    assert_eq!(made.encode(b"cab").unwrap(), [u32::from(b'c'), 256]);
    made.facts.ignore_merges = true;
    assert_eq!(made.encode(b"cab").unwrap(), [258]);
    // The special token has the text "ab", and is not found by it.
    assert_eq!(made.encode(b"ab").unwrap(), [256]);
}

#[test]
fn begin_of_text_goes_first_and_special_tokens_have_no_text() {
    let mut made = made(PreTokenizer::Gpt2);
    (made.facts.add_bos, made.facts.bos) = (true, 261);
    assert_eq!(made.encode(b"ab c").unwrap(), [261, 256, 32, u32::from(b'c')]);
    assert_eq!(made.decode(&[261, 256, 32]), b"ab ");
}

#[test]
fn a_byte_without_a_token_is_named_by_its_place_in_the_text() {
    let mut made = made(PreTokenizer::Gpt2);
    // Byte 7 becomes special: the vocabulary has no token for it any more.
    let at = made.sorted.iter().position(|id| *id == 7).unwrap();
    made.sorted.remove(at);
    made.sorted.insert(made.sorted.len() - 1, 7);
    made.facts.n_special = 2;
    assert_eq!(made.encode(b"ab ab\x07").unwrap_err(), Error::NoToken { offset: 5, byte: 7 });
}

#[test]
fn scratch_that_is_too_small_is_refused_with_what_is_needed() {
    made(PreTokenizer::Gpt2).with(|tokenizer| {
        let needed = 7 * 4;
        assert_eq!(tokenizer.encode(b"ab c", false, &mut [0; 27]).unwrap_err(), Error::ScratchTooSmall { needed, found: 27 });
        assert_eq!(tokenizer.encode(b"ab c", false, &mut [0; 28]).unwrap(), 3);
    });
}

/// 100 KB of one letter, of white space, and of line ends with a word behind them: in no time where the work is n log n, in minutes where it is quadratic.
#[test]
fn long_runs_take_no_time() {
    let len = if cfg!(miri) { 100 } else { 100_000 };
    let started = std::time::Instant::now();
    for pre_tokenizer in PreTokenizer::ALL {
        let made = made(pre_tokenizer);
        for text in [b"a".repeat(len), b" ".repeat(len), [b"\n ".repeat(len / 2).as_slice(), b"x"].concat(), b"1".repeat(len)] {
            assert_eq!(made.decode(&made.encode(&text).unwrap()), text);
        }
    }
    assert!(started.elapsed().as_secs() < 60, "{:?}", started.elapsed());
}

fn any_pre_tokenizer() -> impl Strategy<Value = PreTokenizer> {
    proptest::sample::select(PreTokenizer::ALL.to_vec())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 2 } else { 512 }, failure_persistence: None, ..ProptestConfig::default() })]

    /// Any bytes, UTF-8 or not, come back as they were; parts are the text.
    #[test]
    fn any_bytes_come_back(pre_tokenizer in any_pre_tokenizer(), text in proptest::collection::vec(prop_oneof![any::<u8>(), proptest::sample::select(b"abc '\n\xC3\xA9\xE4\xB8\xADs1".to_vec())], 0..80)) {
        let made = made(pre_tokenizer);
        prop_assert_eq!(made.decode(&made.encode(&text).unwrap()), text.clone());
        let parts: Vec<_> = Parts::new(pre_tokenizer, &text).collect();
        prop_assert!(parts.iter().all(|(start, part)| text[*start..].starts_with(part) && !part.is_empty()));
        prop_assert_eq!(parts.iter().flat_map(|(_, part)| part.to_vec()).collect::<Vec<_>>(), text);
    }
}

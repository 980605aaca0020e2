//! Tests of the tokenizers on the reference's vectors, on made vocabularies and on random ones.

mod check;

use proptest::prelude::*;

use super::{Piece, Tokenizer, Utf8Stream};
use crate::format::tokenizer::{NO_TOKEN, TokenizerFacts, TokenizerKind};
use crate::format::{DType, Dims, Error, Rule, TensorView, TokenizerKey};

/// A vocabulary with its arrays as bytes, `shift` bytes from an aligned address.
#[derive(Clone, Debug)]
struct Vocab {
    facts: TokenizerFacts,
    pieces: Vec<Vec<u8>>,
    scores: Vec<f32>,
    offsets: Vec<u32>,
    sorted: Vec<u32>,
}

struct Arrays {
    facts: TokenizerFacts,
    bytes: [Vec<u8>; 4],
    counts: [usize; 4],
    shift: usize,
}

impl Vocab {
    fn new(pieces: Vec<(Vec<u8>, f32)>) -> Self {
        let (pieces, scores): (Vec<_>, Vec<_>) = pieces.into_iter().unzip();
        let mut sorted: Vec<u32> = (0..pieces.len() as u32).collect();
        sorted.sort_by_key(|id| (pieces[*id as usize].clone(), *id));
        let mut offsets = vec![0];
        for piece in &pieces {
            offsets.push(offsets.last().unwrap() + piece.len() as u32);
        }
        let facts = TokenizerFacts {
            kind: TokenizerKind::SentencepieceBpe,
            n_pieces: pieces.len() as u32,
            max_piece_len: pieces.iter().map(Vec::len).max().unwrap_or(0) as u32,
            ..TokenizerFacts::NONE
        };
        Self { facts, pieces, scores, offsets, sorted }
    }

    /// `<unk>`, begin, end and the bytes as Llama has them, then `pieces`.
    fn llama(pieces: impl IntoIterator<Item = (Vec<u8>, f32)>) -> Self {
        let mut all = vec![(b"<unk>".to_vec(), 0.0), (b"<s>".to_vec(), 0.0), (b"</s>".to_vec(), 0.0)];
        all.extend((0..=255u8).map(|byte| (format!("<0x{byte:02X}>").into_bytes(), 0.0)));
        all.extend(pieces);
        let mut vocab = Self::new(all);
        vocab.facts = TokenizerFacts { add_bos: true, bos: 1, unk: 0, byte_base: 3, ..vocab.facts };
        vocab.facts.eos[0] = 2;
        vocab
    }

    fn of(pieces: &[&str]) -> Self {
        Self::llama(pieces.iter().enumerate().map(|(rank, piece)| (piece.as_bytes().to_vec(), -(rank as f32))))
    }

    fn arrays(&self, shift: usize) -> Arrays {
        let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
        let scores: Vec<u32> = self.scores.iter().map(|score| score.to_bits()).collect();
        let bytes = [self.pieces.concat(), words(&self.offsets), words(&scores), words(&self.sorted)];
        let counts = [bytes[0].len(), self.offsets.len(), scores.len(), self.sorted.len()];
        let bytes = bytes.map(|bytes| [vec![0; shift], bytes].concat());
        Arrays { facts: self.facts, bytes, counts, shift }
    }

    /// llama2.c's algorithm, word for word, with the reserved tokens left out: quadratic.
    fn encode_slowly(&self, text: &[u8], at_start: bool) -> Result<Vec<u32>, usize> {
        let facts = &self.facts;
        let is_byte = |id: u32| facts.byte_base != NO_TOKEN && (facts.byte_base..facts.byte_base + 256).contains(&id);
        let find = |wanted: &[u8]| {
            let free = |id: u32| id != facts.bos && id != facts.pad && id != facts.unk && !facts.eos.contains(&id) && !is_byte(id);
            (0..facts.n_pieces).find(|id| self.pieces[*id as usize] == wanted && free(*id))
        };
        let mut ids = Vec::new();
        if at_start && facts.add_bos {
            ids.push(facts.bos);
        }
        let head = ids.len();
        if facts.dummy_prefix && !text.is_empty() {
            ids.push(find(b" ").unwrap());
        }
        let mut at = 0;
        while at < text.len() {
            let mut end = at + 1;
            while end < text.len() && text[end] & 0xC0 == 0x80 && end - at < 4 {
                end += 1;
            }
            match find(&text[at..end]) {
                Some(id) => ids.push(id),
                None if facts.byte_base == NO_TOKEN => return Err(at),
                None => ids.extend(text[at..end].iter().map(|byte| facts.byte_base + u32::from(*byte))),
            }
            at = end;
        }
        loop {
            let (mut best_score, mut best) = (-1e10, None);
            for (left, pair) in ids.windows(2).enumerate().skip(head) {
                if pair.iter().any(|id| is_byte(*id)) {
                    continue;
                }
                let joined = [&self.pieces[pair[0] as usize][..], &self.pieces[pair[1] as usize]].concat();
                if let Some(id) = find(&joined)
                    && self.scores[id as usize] > best_score
                {
                    (best_score, best) = (self.scores[id as usize], Some((left, id)));
                }
            }
            let Some((left, id)) = best else { return Ok(ids) };
            ids[left] = id;
            ids.remove(left + 1);
        }
    }
}

impl Arrays {
    fn tokenizer(&self) -> Tokenizer<'_> {
        Tokenizer::from_parts(self.facts, self.views())
    }

    fn views(&self) -> [TensorView<'_>; 4] {
        let dtypes = [DType::U8, DType::U32, DType::F32, DType::U32];
        let mut views = [TensorView::EMPTY; 4];
        for (((view, bytes), count), dtype) in views.iter_mut().zip(&self.bytes).zip(self.counts).zip(dtypes) {
            *view = TensorView::new(0, dtype, Dims::vector(count as u32), &bytes[self.shift..]).unwrap();
        }
        views
    }
}

fn encode(tokenizer: &Tokenizer<'_>, text: &[u8], at_start: bool) -> Result<Vec<u32>, Error> {
    let mut scratch = vec![0xDEAD_BEEF; Tokenizer::scratch_words(text.len())];
    let count = tokenizer.encode(text, at_start, &mut scratch)?;
    scratch.truncate(count);
    Ok(scratch)
}

fn decode(tokenizer: &Tokenizer<'_>, ids: &[u32]) -> Vec<u8> {
    let mut previous = NO_TOKEN;
    let mut text = Vec::new();
    for &id in ids {
        text.extend_from_slice(tokenizer.decode(previous, id).as_bytes());
        previous = id;
    }
    text
}

fn data(path: &str) -> Option<Vec<u8>> {
    let path = format!("{}/../../shared/data/{path}", env!("CARGO_MANIFEST_DIR"));
    let bytes = std::fs::read(&path).ok();
    if bytes.is_none() {
        println!("skipped: {path} is not there");
    }
    bytes
}

/// llama2.c's tokenizer.bin of the 512-piece vocabulary.
fn tok512() -> Option<Vocab> {
    let bytes = data("stories260K/tok512.bin")?;
    let (longest, mut rest) = bytes.split_first_chunk::<4>()?;
    let mut pieces = Vec::new();
    while let Some((score, tail)) = rest.split_first_chunk::<4>() {
        let (len, tail) = tail.split_first_chunk::<4>()?;
        let (piece, tail) = tail.split_at(u32::from_le_bytes(*len) as usize);
        pieces.push((piece.to_vec(), f32::from_le_bytes(*score)));
        rest = tail;
    }
    let mut vocab = Vocab::new(pieces);
    assert_eq!(vocab.facts.max_piece_len, u32::from_le_bytes(*longest));
    vocab.facts = TokenizerFacts { add_bos: true, dummy_prefix: true, bos: 1, unk: 0, byte_base: 3, ..vocab.facts };
    vocab.facts.eos[0] = 2;
    Some(vocab)
}

/// All 31 strings as run.c has them; none holds U+2581, the one character that sentencepiece treats otherwise.
#[test]
fn encodes_the_reference_strings_as_llama2c() {
    let (Some(vocab), Some(vectors)) = (tok512(), data("ref/tokenizer_encode_vectors.json")) else { return };
    let vectors: serde_json::Value = serde_json::from_slice(&vectors).unwrap();
    let vectors = vectors.as_array().unwrap();
    assert_eq!(vectors.len(), 31);
    for shift in 0..4 {
        let arrays = vocab.arrays(shift);
        let tokenizer = arrays.tokenizer();
        tokenizer.check().unwrap();
        for vector in vectors {
            let hex = vector["bytes_hex"].as_str().unwrap();
            let text: Vec<u8> = (0..hex.len() / 2).map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap()).collect();
            let expected: Vec<u32> = vector["run_c_tok512"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect();
            let ids = encode(&tokenizer, &text, true).unwrap();
            assert_eq!(ids, expected, "{hex}");
            assert_eq!(decode(&tokenizer, &ids), text, "{hex}");
        }
    }
}

/// A typed U+2581 is encoded as its bytes, as run.c does; sentencepiece would make it a space.
#[test]
fn the_space_symbol_of_sentencepiece_stays_itself() {
    let Some(vocab) = tok512() else { return };
    let arrays = vocab.arrays(0);
    let ids = encode(&arrays.tokenizer(), "▁".as_bytes(), true).unwrap();
    assert_eq!(ids, [1, 410, 3 + 0xE2, 3 + 0x96, 3 + 0x81]);
    assert_eq!(decode(&arrays.tokenizer(), &ids), "▁".as_bytes());
}

#[test]
fn bytes_that_are_not_text_are_encoded_one_by_one() {
    let vocab = Vocab::of(&["a", "é"]);
    let arrays = vocab.arrays(1);
    let tokenizer = arrays.tokenizer();
    tokenizer.check().unwrap();
    assert_eq!(encode(&tokenizer, &[0x80; 1000], false).unwrap(), [3 + 0x80; 1000]);
    assert_eq!(encode(&tokenizer, &[0xFF], false).unwrap(), [3 + 0xFF]);
    assert_eq!(encode(&tokenizer, b"a\0a", false).unwrap(), [259, 3, 259]);
    assert_eq!(encode(&tokenizer, &[0xF0, 0x9F, 0x98], false).unwrap(), [3 + 0xF0, 3 + 0x9F, 3 + 0x98]);
    assert_eq!(encode(&tokenizer, "é".as_bytes(), false).unwrap(), [260]);
    assert_eq!(encode(&tokenizer, &[0xC3], false).unwrap(), [3 + 0xC3]);
    // A continuation byte more than "é" has makes another character of it.
    assert_eq!(encode(&tokenizer, &[0xC3, 0xA9, 0xA9], false).unwrap(), [3 + 0xC3, 3 + 0xA9, 3 + 0xA9]);
}

#[test]
fn typed_control_tokens_stay_text() {
    let vocab = Vocab::of(&[
        "<", "<s", "<s>", "s", ">", "/", "</", "</s", "</s>", "<0", "<0x", "<0x0", "<0x0A", "0", "x", "A", "u", "n", "k", "<u", "<un",
        "<unk", "<s></s>",
    ]);
    let arrays = vocab.arrays(0);
    let tokenizer = arrays.tokenizer();
    tokenizer.check().unwrap();
    for text in ["<s>", "</s>", "<s></s>", "<unk>", "<0x0A>", "a<0x0A>"] {
        let ids = encode(&tokenizer, text.as_bytes(), true).unwrap();
        assert!(ids[1..].iter().all(|id| *id > 258 || ids[0] == 1 && *id == 3 + u32::from(b'a')), "{text}: {ids:?}");
        assert_eq!(decode(&tokenizer, &ids), text.as_bytes());
    }
    // The vocabulary's second "<s>" is not the control token: it may be used.
    assert_eq!(encode(&tokenizer, b"<s>", false).unwrap(), [261]);
}

#[test]
fn a_character_without_token_and_bytes_is_an_error() {
    let vocab = Vocab::new(vec![(b"a".to_vec(), 0.0), (b"b".to_vec(), 0.0)]);
    let arrays = vocab.arrays(0);
    let tokenizer = arrays.tokenizer();
    tokenizer.check().unwrap();
    assert_eq!(encode(&tokenizer, "abé".as_bytes(), true), Err(Error::NoToken { offset: 2, byte: 0xC3 }));
    assert_eq!(encode(&tokenizer, b"ab", true).unwrap(), [0, 1]);
}

#[test]
fn bytes_kind_is_the_byte() {
    let facts = TokenizerFacts { kind: TokenizerKind::Bytes, n_pieces: 128, ..TokenizerFacts::NONE };
    let tokenizer = Tokenizer::from_parts(facts, [TensorView::EMPTY; 4]);
    tokenizer.check().unwrap();
    let ids = encode(&tokenizer, b"Hi\0", true).unwrap();
    assert_eq!(ids, [72, 105, 0]);
    assert_eq!(decode(&tokenizer, &ids), b"Hi\0");
    assert_eq!(encode(&tokenizer, b"Hi\x80", true), Err(Error::NoToken { offset: 2, byte: 0x80 }));
    assert_eq!(tokenizer.decode(0, 128), Piece::EMPTY);
    assert_eq!(tokenizer.encode(b"Hi", true, &mut [0]), Err(Error::ScratchTooSmall { needed: 2, found: 1 }));

    let with_bos = Tokenizer::from_parts(TokenizerFacts { add_bos: true, bos: 1, ..facts }, [TensorView::EMPTY; 4]);
    assert_eq!(encode(&with_bos, b"Hi", true).unwrap(), [1, 72, 105]);
    assert_eq!(encode(&with_bos, b"Hi", false).unwrap(), [72, 105]);
    assert_eq!(encode(&with_bos, b"", true).unwrap(), [1]);
    assert_eq!(decode(&with_bos, &[1, 72, 105]), b"Hi");
}

#[test]
fn a_byte_whose_token_means_something_else_is_not_text() {
    let mut eos = TokenizerFacts::NONE.eos;
    eos[0] = 2;
    let facts = TokenizerFacts { kind: TokenizerKind::Bytes, n_pieces: 128, bos: 0, pad: 1, eos, add_bos: true, ..TokenizerFacts::NONE };
    let tokenizer = Tokenizer::from_parts(facts, [TensorView::EMPTY; 4]);
    for byte in 0..128u8 {
        let ids = encode(&tokenizer, &[b'a', byte], true);
        if byte < 3 {
            assert_eq!(ids, Err(Error::NoToken { offset: 1, byte }));
        } else {
            assert_eq!(decode(&tokenizer, &ids.unwrap()), [b'a', byte]);
        }
    }
}

#[test]
fn no_tokenizer_says_so() {
    let error = Error::Tokenizer { key: TokenizerKey::Kind, rule: Rule::Missing, found: 0, allowed: 0 };
    assert_eq!(Tokenizer::NONE.encode(b"a", true, &mut [0; 64]), Err(error));
    assert_eq!(Tokenizer::NONE.decode(NO_TOKEN, 0), Piece::EMPTY);
    Tokenizer::NONE.check().unwrap();
}

#[test]
fn one_space_is_dropped_at_the_start_and_nowhere_else() {
    let mut vocab = Vocab::of(&[" ", "a", " a", "  "]);
    vocab.facts.dummy_prefix = true;
    let arrays = vocab.arrays(0);
    let tokenizer = arrays.tokenizer();
    for (previous, expected) in [(1, &b"a"[..]), (NO_TOKEN, b"a"), (2, b" a"), (0, b" a"), (260, b" a")] {
        assert_eq!(tokenizer.decode(previous, 261).as_bytes(), expected, "after {previous}");
    }
    assert_eq!(tokenizer.decode(1, 262).as_bytes(), b" ");
    for text in ["  two", " ", "a", " a a"] {
        let ids = encode(&tokenizer, text.as_bytes(), true).unwrap();
        assert_eq!(decode(&tokenizer, &ids), text.as_bytes(), "{ids:?}");
    }
    let mut without = vocab.clone();
    without.facts.dummy_prefix = false;
    assert_eq!(without.arrays(0).tokenizer().decode(1, 261).as_bytes(), b" a");
}

#[test]
fn control_tokens_have_no_text_and_bytes_are_bytes() {
    let mut vocab = Vocab::of(&["<0x41>", "a"]);
    vocab.facts.pad = 260;
    let arrays = vocab.arrays(0);
    let tokenizer = arrays.tokenizer();
    let text = |id| tokenizer.decode(5, id).as_bytes().to_vec();
    assert_eq!(text(0), b"<unk>");
    assert_eq!((text(1), text(2), text(260)), (vec![], vec![], vec![]));
    assert_eq!((text(3), text(258)), (vec![0], vec![255]));
    assert_eq!(text(259), b"<0x41>");
    assert_eq!((text(261), text(NO_TOKEN)), (vec![], vec![]));
    assert!(tokenizer.ends_text(2) && !tokenizer.ends_text(1) && !tokenizer.ends_text(NO_TOKEN));
}

#[test]
fn scratch_one_word_short_is_refused_up_front() {
    let mut vocab = Vocab::of(&["a", "b", "ab", " "]);
    vocab.facts.dummy_prefix = true;
    let arrays = vocab.arrays(0);
    let needed = Tokenizer::scratch_words(4);
    assert_eq!(needed, 36);
    let mut scratch = vec![7; needed];
    assert_eq!(arrays.tokenizer().encode(b"abab", true, &mut scratch[1..]), Err(Error::ScratchTooSmall { needed: 36, found: 35 }));
    assert_eq!(arrays.tokenizer().encode(b"abab", true, &mut scratch), Ok(4));
    assert_eq!(scratch[..4], [1, 262, 261, 261]);
    assert_eq!(arrays.tokenizer().encode(b"", true, &mut []), Err(Error::ScratchTooSmall { needed: 1, found: 0 }));
    assert_eq!(arrays.tokenizer().encode(b"", false, &mut []), Ok(0));
    assert_eq!(Tokenizer::scratch_words(usize::MAX), usize::MAX);
}

#[test]
fn equal_scores_merge_leftmost_first_and_low_scores_never() {
    let vocab =
        Vocab::llama([(b"a".to_vec(), 0.0), (b"aa".to_vec(), -1.0), (b"b".to_vec(), 0.0), (b"ab".to_vec(), -1.0), (b"ba".to_vec(), -1e10)]);
    let arrays = vocab.arrays(0);
    let tokenizer = arrays.tokenizer();
    assert_eq!(encode(&tokenizer, b"aaa", false).unwrap(), [260, 259]);
    assert_eq!(encode(&tokenizer, b"aab", false).unwrap(), [260, 261]);
    assert_eq!(encode(&tokenizer, b"ba", false).unwrap(), [261, 259]);
    // -0.0 is no less than 0.0.
    let vocab = Vocab::llama([(b"a".to_vec(), 0.0), (b"b".to_vec(), 0.0), (b"ab".to_vec(), -0.0), (b"ba".to_vec(), 0.0)]);
    assert_eq!(encode(&vocab.arrays(0).tokenizer(), b"aba", false).unwrap(), [261, 259]);
}

#[test]
fn equal_pieces_mean_the_lowest_token() {
    let vocab = Vocab::of(&["b", "a", "a", "ab", "ab"]);
    let arrays = vocab.arrays(0);
    arrays.tokenizer().check().unwrap();
    assert_eq!(encode(&arrays.tokenizer(), b"aab", false).unwrap(), [260, 262]);
}

/// Small alphabets, so that merges, duplicates, equal scores and broken characters come up all the time.
fn vocabularies() -> impl Strategy<Value = Vocab> {
    let byte = prop::sample::select(vec![b'a', b'b', b'c', b' ', 0xC3, 0xA9, 0x80, 0xF0, 0]);
    let piece = prop::collection::vec(byte, 1..6);
    let score = prop::sample::select(vec![0.0, -0.0, -1.0, -2.0, -3.0, 5.0, -1e10, -1e9, 1e-40]);
    let pieces = prop::collection::vec((piece, score), 1..60);
    (pieces, any::<bool>(), any::<bool>(), 0u32..40, prop::bool::weighted(0.8)).prop_map(
        |(mut pieces, llama, dummy_prefix, special, singles)| {
            if singles {
                pieces.extend([&b"a"[..], b"b", b"c", b" ", b"\xC3\xA9"].map(|piece| (piece.to_vec(), 0.0)));
            }
            if dummy_prefix {
                pieces.push((b" ".to_vec(), -1.0));
                pieces.push((b" ".to_vec(), -1.0));
            }
            let mut vocab = if llama { Vocab::llama(pieces) } else { Vocab::new(pieces) };
            if !llama && special < vocab.facts.n_pieces {
                vocab.facts.bos = special;
                vocab.facts.add_bos = true;
            }
            vocab.facts.dummy_prefix = dummy_prefix;
            vocab
        },
    )
}

fn texts() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop::sample::select(vec![b'a', b'a', b'b', b'b', b'c', b' ', 0xC3, 0xA9, 0x80, 0xF0, 0, b'z']);
    prop_oneof![3 => prop::collection::vec(byte, 0..80), 1 => prop::collection::vec(any::<u8>(), 0..40)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 4000 }))]

    #[test]
    fn encodes_as_the_slow_algorithm(vocab in vocabularies(), text in texts(), at_start: bool, shift in 0usize..4) {
        let arrays = vocab.arrays(shift);
        let tokenizer = arrays.tokenizer();
        prop_assert_eq!(tokenizer.check(), Ok(()));
        match (encode(&tokenizer, &text, at_start), vocab.encode_slowly(&text, at_start)) {
            (Ok(found), Ok(expected)) => {
                prop_assert_eq!(&found, &expected);
                prop_assert_eq!(decode(&tokenizer, &found), text);
            }
            (Err(Error::NoToken { offset, byte }), Err(expected)) => {
                prop_assert_eq!(offset, expected as u64);
                prop_assert_eq!(byte, text[expected]);
            }
            (found, expected) => prop_assert!(false, "{:?}, not {:?}", found, expected),
        }
    }

    /// Arrays of rubbish never panic, whatever they give.
    #[test]
    fn unchecked_arrays_do_not_panic(pieces in prop::collection::vec(any::<u8>(), 1..64), words in prop::collection::vec(prop_oneof![0u32..70, any::<u32>()], 30), n in 0u32..12, text in texts(), dummy_prefix: bool) {
        let words: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let view = |dtype, bytes: &[u8]| TensorView::new(0, dtype, Dims::vector(if dtype == DType::U8 { bytes.len() } else { bytes.len() / 4 } as u32), bytes).map(|_| ()).is_ok();
        prop_assert!(view(DType::U8, &pieces));
        let facts = TokenizerFacts { kind: TokenizerKind::SentencepieceBpe, n_pieces: n, max_piece_len: 64, byte_base: 0, dummy_prefix, ..TokenizerFacts::NONE };
        let tokenizer = Tokenizer::from_parts(facts, [
            TensorView::new(0, DType::U8, Dims::vector(pieces.len() as u32), &pieces).unwrap(),
            TensorView::new(0, DType::U32, Dims::vector(10), &words[..40]).unwrap(),
            TensorView::new(0, DType::F32, Dims::vector(10), &words[40..80]).unwrap(),
            TensorView::new(0, DType::U32, Dims::vector(10), &words[80..]).unwrap(),
        ]);
        let _ = tokenizer.check();
        let _ = encode(&tokenizer, &text, true);
        for token in 0..14 {
            let _ = tokenizer.decode(NO_TOKEN, token);
        }
    }

    #[test]
    fn any_bytes_come_back_from_tok512(text in prop::collection::vec(any::<u8>(), 0..200), words in "[ a-zA-Z.,!\n]{0,200}", at_start: bool) {
        if let Some(vocab) = tok512() {
            let arrays = vocab.arrays(0);
            let tokenizer = arrays.tokenizer();
            for text in [&text[..], words.as_bytes()] {
                let ids = encode(&tokenizer, text, at_start).unwrap();
                let back = decode(&tokenizer, &ids);
                prop_assert_eq!(&back, &text);
                prop_assert_eq!(encode(&tokenizer, &back, at_start).unwrap(), ids);
            }
        }
    }

    #[test]
    fn utf8_stream_equals_from_utf8_lossy(text in prop_oneof![
        prop::collection::vec(any::<u8>(), 0..60),
        prop::collection::vec(prop::sample::select(vec![b'a', 0x80, 0xBF, 0xC3, 0xC0, 0xE2, 0xE0, 0x9F, 0xA0, 0xED, 0xF0, 0x90, 0xF4, 0x8F, 0xF8, 0xFF]), 0..60),
        any::<String>().prop_map(String::into_bytes),
    ], cuts in prop::collection::vec(0usize..6, 0..80)) {
        let mut stream = Utf8Stream::new();
        let mut shown = String::new();
        let mut rest = &text[..];
        for cut in cuts.into_iter().chain([usize::MAX]) {
            let (now, later) = rest.split_at(cut.min(rest.len()));
            stream.push(now, |part| { prop_assert!(!part.is_empty()); shown.push_str(part); Ok(()) })?;
            let so_far = &text[..text.len() - later.len()];
            let held = stream.held_len();
            prop_assert!(String::from_utf8_lossy(&so_far[..so_far.len() - held]) == shown.as_str());
            rest = later;
        }
        stream.finish(|part| { shown.push_str(part); Ok::<(), TestCaseError>(()) })?;
        prop_assert_eq!(String::from_utf8_lossy(&text), shown.as_str());
        stream.finish(|_| -> Result<(), TestCaseError> { unreachable!("nothing is held after the end") })?;
    }
}

#[test]
fn utf8_stream_stops_where_the_sink_fails() {
    let mut stream = Utf8Stream::new();
    assert_eq!(stream.push(b"ab\xFFcd", |part| if part.is_ascii() { Ok(()) } else { Err(part.len()) }), Err(3));
    assert_eq!(stream.push(b"\xF0\x9F\x98", |_| Err(())), Ok(()));
    assert_eq!(stream.push(b"\x80", |part| Err(part.to_owned())), Err("😀".to_owned()));
    assert_eq!(stream.finish(|_| Err(())), Ok(()));
}

/// A megabyte in well under the time of a test: the merge is not quadratic.
#[test]
fn a_long_text_is_no_trouble() {
    let Some(vocab) = tok512() else { return };
    let arrays = vocab.arrays(0);
    let tokenizer = arrays.tokenizer();
    let len = if cfg!(miri) { 200 } else { 1_000_000 };
    let sentence = "Once upon a time, there was a little girl named Lily. She loved to play outside in the park; \"Hello!\" said Tom. ";
    let text = sentence.repeat(len / sentence.len() + 1);
    let mut scratch = vec![0; Tokenizer::scratch_words(text.len())];
    for text in [text.as_bytes(), "a".repeat(len).as_bytes()] {
        let start = std::time::Instant::now();
        let count = tokenizer.encode(text, true, &mut scratch).unwrap();
        println!("{} bytes, {count} tokens: {:?}", text.len(), start.elapsed());
        assert_eq!(decode(&tokenizer, &scratch[..count]), text);
    }
}

//! Byte-level BPE gives the tokens that Hugging Face's `tokenizers` gives, for every pre-tokenizer: on a vocabulary trained here, and on SmolLM2's where `DMEXP_SMOLLM2` names its GGUF file.

use dmexp::tokenizer::Tokenizer;
use dmexp_format::tokenizer::{NO_TOKEN, Normalizer, PreTokenizer};
use dmexp_tools::checkpoint::TokenizerSource;
use dmexp_tools::checkpoint::byte_level::{ByteLevelBpe, character_of};
use dmexp_tools::decode::TokenizerArrays;
use dmexp_tools::text;
use serde_json::{Value, json};
use std::path::Path;
use tokenizers::models::bpe::{BPE, BpeTrainer};
use tokenizers::normalizers::NFC;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::{DecoderWrapper, NormalizedString, NormalizerWrapper, PostProcessorWrapper, PreTokenizerWrapper, TokenizerImpl};

type Reference = TokenizerImpl<BPE, NormalizerWrapper, PreTokenizerWrapper, PostProcessorWrapper, DecoderWrapper>;

/// Strings compared for each pre-tokenizer.
const STRINGS: usize = 12_000;

/// What real `tokenizer.json` files have: GPT-2's, SmolLM2's, Llama 3's, Qwen 2's.
fn pre_tokenizer(which: PreTokenizer) -> PreTokenizerWrapper {
    let byte_level =
        |use_regex: bool| json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": use_regex});
    let split = |numbers: &str| {
        let pattern = format!(
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{numbers}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
        );
        json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false})
    };
    let sequence = |first: Value, last: Value| json!({"type": "Sequence", "pretokenizers": [first, last]});
    let config = match which {
        PreTokenizer::Gpt2 => byte_level(true),
        PreTokenizer::Smollm => sequence(json!({"type": "Digits", "individual_digits": true}), byte_level(true)),
        PreTokenizer::LlamaBpe => sequence(split("{1,3}"), byte_level(false)),
        PreTokenizer::Qwen2 => sequence(split(""), byte_level(false)),
        _ => byte_level(false),
    };
    serde_json::from_value(config).unwrap()
}

/// Numbers that look random and are the same every time (xorshift64*).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        ((self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % limit as u64) as usize
    }

    fn pick<'a, T: ?Sized>(&mut self, from: &[&'a T]) -> &'a T {
        from[self.below(from.len())]
    }
}

const PIECES: &[&str] = &[
    "the",
    " the",
    "Hello",
    " world",
    "ing",
    "tion",
    "a",
    "B",
    "Z",
    "é",
    "ß",
    "ſ",
    "İ",
    "ı",
    "ﬁ",
    "ﬆ",
    "Ǆ",
    "ʰ",
    "ª",
    "Ω",
    "дом",
    "שלום",
    "مرحبا",
    "สวัสดี",
    "हिन्दी",
    "日本語",
    "한국어",
    "中",
    "ꙮ",
    "0",
    "1",
    "12",
    "123",
    "1234",
    "1234567",
    "²",
    "½",
    "Ⅻ",
    "①",
    "٣",
    "३",
    "〇",
    "𝟗",
    "𐄐",
    "'s",
    "'t",
    "'re",
    "'ve",
    "'m",
    "'ll",
    "'d",
    "'S",
    "'T",
    "'RE",
    "'Ve",
    "'M",
    "'lL",
    "'D",
    "'ſ",
    "'",
    "''",
    "’s",
    " ",
    "  ",
    "   ",
    "        ",
    "\t",
    "\n",
    "\r",
    "\r\n",
    "\n\n",
    "\n\n\n",
    " \n",
    "\n ",
    "\u{B}",
    "\u{C}",
    "\u{1C}",
    "\u{1F}",
    "\u{85}",
    "\u{A0}",
    "\u{1680}",
    "\u{180E}",
    "\u{2003}",
    "\u{200B}",
    "\u{2028}",
    "\u{2029}",
    "\u{202F}",
    "\u{205F}",
    "\u{3000}",
    "\u{FEFF}",
    ".",
    ",",
    "!",
    "?",
    "...",
    "—",
    "$",
    "€",
    "+",
    "=",
    "<|endoftext|>",
    "<s>",
    "{",
    "}",
    "()",
    "#",
    "_",
    "__",
    "\\n",
    "e\u{301}",
    "\u{301}",
    "\u{94D}",
    "\u{20DD}",
    "\u{200D}",
    "👍",
    "👩‍👩‍👧",
    "🇩🇪",
    "☃",
    "\u{0}",
    "\u{7F}",
    "\u{FFFD}",
    "\u{FFFF}",
    "\u{E000}",
    "\u{10FFFF}",
    "\u{F0000}",
    "𠀀",
    "\u{2FA1D}",
    "\u{E0041}",
    "𞤀",
    "fn main() {\n    let x = 1;\n}\n",
];

fn strings() -> Vec<String> {
    let mut numbers = Numbers(0x5EED);
    let mut strings: Vec<String> = PIECES.iter().map(|piece| (*piece).to_owned()).collect();
    // Pairs of all pieces: what stands next to what decides the splits.
    strings.extend(PIECES.iter().flat_map(|first| PIECES.iter().map(move |second| format!("{first}{second}"))).step_by(4));
    // Every plane: scalars from anywhere in it, with a neighbour or two.
    for plane in 0..17u32 {
        for _ in 0..60 {
            let scalars =
                (0..=numbers.below(6)).filter_map(|_| char::from_u32(plane << 16 | numbers.below(0x1_0000) as u32)).collect::<String>();
            strings.push(format!("{}{scalars}{}", numbers.pick(PIECES), numbers.pick(PIECES)));
        }
    }
    strings.push(" ".repeat(5000));
    strings.push("a".repeat(20_000));
    strings.push("1".repeat(5000));
    strings.push(format!("{}x", "\n \t".repeat(500)));
    while strings.len() < STRINGS {
        strings.push((0..=numbers.below(24)).map(|_| numbers.pick(PIECES)).collect());
    }
    strings
}

fn encode(tokenizer: &Tokenizer<'_>, text: &[u8]) -> Result<Vec<u32>, dmexp_format::Error> {
    let mut scratch = vec![0; Tokenizer::scratch_words(text.len())];
    let count = tokenizer.encode(text, false, &mut scratch)?;
    scratch.truncate(count);
    Ok(scratch)
}

fn decode(tokenizer: &Tokenizer<'_>, tokens: &[u32]) -> Vec<u8> {
    tokens.iter().flat_map(|token| tokenizer.decode(NO_TOKEN, *token).as_bytes().to_vec()).collect()
}

/// A tokenizer of 2,000 tokens, trained on what the strings are made of and on this project's pages.
fn trained(which: PreTokenizer) -> Reference {
    let mut numbers = Numbers(7);
    let mut texts: Vec<String> = (0..3000).map(|_| (0..12).map(|_| numbers.pick(PIECES)).collect()).collect();
    texts.extend(include_str!("../../../README.md").lines().map(str::to_owned));
    let mut reference = Reference::new(BPE::default());
    reference.with_pre_tokenizer(Some(pre_tokenizer(which)));
    let mut trainer =
        BpeTrainer::builder().vocab_size(2000).initial_alphabet(ByteLevel::alphabet().into_iter().collect()).show_progress(false).build();
    reference.train(&mut trainer, texts.iter()).unwrap();
    reference
}

/// What a reader of `tokenizer.json` would hand over.
fn source(reference: &Reference, which: PreTokenizer) -> TokenizerSource {
    let model = serde_json::to_value(reference.get_model()).unwrap();
    let vocabulary = model["vocab"].as_object().unwrap();
    let mut pieces = vec![String::new(); vocabulary.len()];
    for (piece, id) in vocabulary {
        pieces[id.as_u64().unwrap() as usize].clone_from(piece);
    }
    let pair = |merge: &Value| match merge {
        Value::Array(pair) => (pair[0].as_str().unwrap().to_owned(), pair[1].as_str().unwrap().to_owned()),
        text => text.as_str().unwrap().split_once(' ').map(|(left, right)| (left.to_owned(), right.to_owned())).unwrap(),
    };
    let merges = model["merges"].as_array().unwrap().iter().map(pair).collect();
    ByteLevelBpe { pieces, merges, pre_tokenizer: which, ..ByteLevelBpe::default() }.build().unwrap()
}

/// The model of a `tokenizer.json`; its reader borrows from text.
fn model_of(value: &Value) -> BPE {
    serde_json::from_str(&value.to_string()).unwrap()
}

const ALL: [PreTokenizer; 5] = [PreTokenizer::None, PreTokenizer::Gpt2, PreTokenizer::Smollm, PreTokenizer::LlamaBpe, PreTokenizer::Qwen2];

#[test]
fn tokens_are_those_of_the_reference() {
    let strings = strings();
    for which in ALL {
        let reference = trained(which);
        let source = source(&reference, which);
        assert!(source.merges.len() > 1500, "{} merges", source.merges.len());
        let arrays = TokenizerArrays::new(&source);
        let tokenizer = arrays.tokenizer().unwrap();
        for text in &strings {
            let expected = reference.encode(text.as_str(), false).unwrap();
            let tokens = encode(&tokenizer, text.as_bytes()).unwrap();
            assert_eq!(tokens, expected.get_ids(), "{} {text:?}", which.name());
            assert_eq!(decode(&tokenizer, &tokens), text.as_bytes());
        }
        println!("{}: {} strings are equal ({} merges)", which.name(), strings.len(), source.merges.len());
    }
}

/// Llama 3's way with parts that are pieces.
#[test]
fn ignored_merges_are_those_of_the_reference() {
    let which = PreTokenizer::LlamaBpe;
    let trained = trained(which);
    let mut source = source(&trained, which);
    source.facts.ignore_merges = true;
    // Merges are taken away, so that not all pieces can be reached by merging.
    source.merges.truncate(source.merges.len() / 2);
    let mut model = serde_json::to_value(trained.get_model()).unwrap();
    model["ignore_merges"] = json!(true);
    let merges = model["merges"].as_array_mut().unwrap();
    merges.truncate(merges.len() / 2);
    let mut reference = Reference::new(model_of(&model));
    reference.with_pre_tokenizer(Some(pre_tokenizer(which)));
    let arrays = TokenizerArrays::new(&source);
    let tokenizer = arrays.tokenizer().unwrap();
    for text in strings() {
        assert_eq!(encode(&tokenizer, text.as_bytes()).unwrap(), reference.encode(text.as_str(), false).unwrap().get_ids(), "{text:?}");
    }
}

/// Texts of characters taken apart: all that there are, and random ones with marks in any order, older and newer than the tables of the reference.
fn apart() -> Vec<String> {
    let mut numbers = Numbers(0xACC);
    let decomposed = |text: &str| {
        let mut text = NormalizedString::from(text);
        text.nfd();
        text.get().to_owned()
    };
    let all: Vec<String> =
        (0..=0x0010_FFFF).filter_map(char::from_u32).map(String::from).filter(|text| decomposed(text) != *text).collect();
    assert!(all.len() > 13_000, "{}", all.len());
    let mut texts: Vec<String> = all.chunks(40).map(|some| decomposed(&some.concat())).collect();
    texts.extend(all.chunks(40).map(<[String]>::concat));
    // Marks of Unicode 9 and before, Hangul's letters, and characters that came later: a composing letter (16), marks (10, 11, 14).
    let marks = [
        "\u{301}",
        "\u{323}",
        "\u{308}",
        "\u{327}",
        "\u{345}",
        "\u{5B0}",
        "\u{3099}",
        "\u{93C}",
        "\u{9BE}",
        "\u{1161}",
        "\u{11A8}",
        "\u{16D67}",
        "\u{1DF9}",
        "\u{10D24}",
        "\u{1DFA}",
    ];
    let bases =
        ["a", "E", "o", "s", "\u{3B1}", "\u{5D0}", "\u{304B}", "\u{9C7}", "\u{1100}", "\u{16D63}", "\u{AC00}", " ", "1", "\u{FFFD}", ""];
    for _ in 0..8000 {
        let mut text = String::new();
        for _ in 0..=numbers.below(6) {
            text.push_str(numbers.pick(&bases));
            for _ in 0..numbers.below(4) {
                text.push_str(numbers.pick(&marks));
            }
        }
        texts.push(text);
    }
    texts
}

/// Qwen 2's way: composed first.
#[test]
fn composed_text_has_the_tokens_of_the_reference() {
    let which = PreTokenizer::Qwen2;
    let mut reference = trained(which);
    let mut source = source(&reference, which);
    reference.with_normalizer(Some(NormalizerWrapper::NFC(NFC)));
    let plain = TokenizerArrays::new(&source);
    source.facts.normalizer = Normalizer::Nfc;
    let arrays = TokenizerArrays::new(&source);
    let (plain, tokenizer) = (plain.tokenizer().unwrap(), arrays.tokenizer().unwrap());
    let texts: Vec<String> = strings().into_iter().chain(apart()).collect();
    let mut differ = 0;
    for text in &texts {
        let expected = reference.encode(text.as_str(), false).unwrap();
        let tokens = text::encode(&tokenizer, text.as_bytes(), false).unwrap();
        assert_eq!(tokens, expected.get_ids(), "{text:?}");
        differ += usize::from(encode(&plain, text.as_bytes()).unwrap() != tokens);
    }
    println!("{} texts are equal; {differ} have other tokens where they are not composed", texts.len());
    assert!(differ > 4000, "{differ}");
}

#[test]
fn what_is_not_utf8_comes_back_as_it_was() {
    let mut numbers = Numbers(11);
    for which in ALL {
        let source = source(&trained(which), which);
        let arrays = TokenizerArrays::new(&source);
        let tokenizer = arrays.tokenizer().unwrap();
        for text in strings().iter().take(2000) {
            let mut bytes = text.clone().into_bytes();
            for _ in 0..=numbers.below(4) {
                let at = numbers.below(bytes.len().max(1));
                bytes.insert(at, [0x80, 0xBF, 0xC0, 0xC3, 0xE4, 0xED, 0xF0, 0xF5, 0xFF][numbers.below(9)]);
            }
            bytes.truncate(1 + numbers.below(bytes.len()));
            assert_eq!(decode(&tokenizer, &encode(&tokenizer, &bytes).unwrap()), bytes);
        }
    }
}

/// SmolLM2's own vocabulary, in which 21 bytes have no token: `tokenizers` drops them, we name them.
#[test]
fn smollm2_gives_the_tokens_of_the_reference() {
    let Some(path) = std::env::var_os("DMEXP_SMOLLM2") else {
        println!("skipped: DMEXP_SMOLLM2 does not name SmolLM2-135M-Instruct.Q4_1.gguf");
        return;
    };
    let checkpoint = dmexp_tools::checkpoint::open(Path::new(&path)).unwrap();
    let source = checkpoint.tokenizer.unwrap();
    let written = |piece: &[u8]| piece.iter().map(|byte| character_of(*byte)).collect::<String>();
    let name = |id: u32| written(&source.pieces[id as usize]);
    let vocabulary: serde_json::Map<_, _> = (0u32..).zip(&source.pieces).map(|(id, piece)| (written(piece), json!(id))).collect();
    let merges: Vec<_> = source.merges.iter().map(|(left, right)| json!([name(*left), name(*right)])).collect();
    let model = model_of(&json!({"type": "BPE", "vocab": vocabulary, "merges": merges}));
    let mut equal = 0;
    for which in ALL {
        let mut source = source.clone();
        source.facts.pre_tokenizer = which;
        let arrays = TokenizerArrays::new(&source);
        let tokenizer = arrays.tokenizer().unwrap();
        let mut reference = Reference::new(model.clone());
        reference.with_pre_tokenizer(Some(pre_tokenizer(which)));
        for text in strings() {
            match encode(&tokenizer, text.as_bytes()) {
                Ok(tokens) => {
                    assert_eq!(tokens, reference.encode(text.as_str(), false).unwrap().get_ids(), "{} {text:?}", which.name());
                    equal += 1;
                }
                Err(error) => assert!(matches!(error, dmexp_format::Error::NoToken { .. }), "{error}"),
            }
        }
    }
    println!("{equal} strings are equal");
    assert!(equal >= 5 * 10_000, "{equal}");
}

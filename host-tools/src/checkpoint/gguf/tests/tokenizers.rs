//! Tokenizers in GGUF files: both kinds carried whole, and what decides how text becomes tokens refused where it is not known.

use super::make::{self, Gguf, Shape, TINY, Value, refusal};
use crate::checkpoint::{TokenizerSource, byte_level};
use crate::decode::TokenizerArrays;
use crate::error::Class;
use crate::export::tests::{export, options};
use crate::export::{Format, Report};
use dmexp_format::DType;
use dmexp_format::host::Header;
use dmexp_format::tokenizer::{NO_TOKEN, Normalizer, PreTokenizer, TokenizerKind};

const UNKNOWN: i32 = 2;
const CONTROL: i32 = 3;
const USER: i32 = 4;
const BYTE: i32 = 6;

fn texts(texts: impl IntoIterator<Item = String>) -> Value {
    Value::Texts(texts.into_iter().map(String::into_bytes).collect())
}

fn tokenizer(file: &Gguf) -> TokenizerSource {
    make::open(file.bytes()).unwrap().tokenizer.expect("it carries one")
}

/// A sentencepiece vocabulary: unknown, begin, end, the bytes, a space, and these pieces with their types; scores fall.
fn sentencepiece(more: &[(&str, i32)]) -> Gguf {
    let mut tokens: Vec<(String, i32)> = vec![("<unk>".into(), UNKNOWN), ("<s>".into(), CONTROL), ("</s>".into(), CONTROL)];
    tokens.extend((0..256).map(|byte| (format!("<0x{byte:02X}>"), BYTE)));
    tokens.push(("\u{2581}".into(), 1));
    tokens.extend(more.iter().map(|(piece, kind)| ((*piece).to_owned(), *kind)));
    let mut file = make::model(&Shape { vocab: tokens.len() as u64, ..TINY });
    file.set("tokenizer.ggml.model", "llama")
        .set("tokenizer.ggml.scores", Value::F32s((0..tokens.len()).map(|token| -(token as f32)).collect()))
        .set("tokenizer.ggml.token_type", Value::I32s(tokens.iter().map(|(_, kind)| *kind).collect()))
        .set("tokenizer.ggml.tokens", texts(tokens.into_iter().map(|(piece, _)| piece)))
        .set("tokenizer.ggml.bos_token_id", 1u32)
        .set("tokenizer.ggml.eos_token_id", 2u32)
        .set("tokenizer.ggml.unknown_token_id", 0u32);
    file
}

/// A byte-level vocabulary: end and turns as control tokens, one of the users' own, the 256 bytes, and two merges.
fn byte_level() -> Gguf {
    let mut tokens: Vec<(String, i32)> = vec![
        ("<|endoftext|>".into(), CONTROL),
        ("<|im_start|>".into(), CONTROL),
        ("<|im_end|>".into(), CONTROL),
        ("<tool call>".into(), USER),
    ];
    tokens.extend((0..=255).map(|byte| (byte_level::character_of(byte).to_string(), 1)));
    tokens.extend([("\u{120}t".into(), 1), ("\u{120}th".into(), 1)]);
    let mut file = make::model(&Shape { vocab: tokens.len() as u64, ..TINY });
    file.set("tokenizer.ggml.model", "gpt2")
        .set("tokenizer.ggml.pre", "smollm")
        .set("tokenizer.ggml.token_type", Value::I32s(tokens.iter().map(|(_, kind)| *kind).collect()))
        .set("tokenizer.ggml.tokens", texts(tokens.into_iter().map(|(piece, _)| piece)))
        .set("tokenizer.ggml.merges", texts(["\u{120} t".to_owned(), "\u{120}t h".to_owned()]))
        .set("tokenizer.ggml.bos_token_id", 1u32)
        .set("tokenizer.ggml.eos_token_id", 2u32)
        .set("tokenizer.ggml.padding_token_id", 2u32)
        .set("tokenizer.ggml.add_bos_token", false)
        .set("tokenizer.ggml.add_space_prefix", false)
        .set("tokenizer.chat_template", "{{ '<|im_start|>' }}");
    file
}

#[test]
fn a_file_without_a_tokenizer_says_nothing_of_one() {
    assert_eq!(make::open(make::model(&TINY).bytes()).unwrap().tokenizer, None);
    let mut none = make::model(&TINY);
    none.set("tokenizer.ggml.model", "no_vocab");
    assert_eq!(make::open(none.bytes()).unwrap().tokenizer, None);
}

#[test]
fn sentencepiece_pieces_scores_and_ids_arrive() {
    let source = tokenizer(&sentencepiece(&[("\u{2581}the", 1), ("\n\u{2581}\u{2581}", 1), ("<pad>", CONTROL)]));
    let facts = source.facts;
    assert_eq!((facts.kind, facts.n_pieces, facts.byte_base), (TokenizerKind::SentencepieceBpe, 263, 3));
    assert_eq!((facts.bos, facts.eos[0], facts.unk, facts.pad), (1, 2, 0, NO_TOKEN));
    assert!(facts.add_bos && facts.dummy_prefix, "llama.cpp's defaults");
    assert_eq!(source.pieces[259..], [b" ".to_vec(), b" the".to_vec(), b"\n  ".to_vec(), b"<pad>".to_vec()]);
    assert_eq!(source.pieces[1], b"<s>");
    assert_eq!((source.scores[260], source.special.as_slice()), (-260.0, [1, 2, 262].as_slice()));
    let arrays = TokenizerArrays::new(&source);
    let tokenizer = arrays.tokenizer().unwrap();
    let mut scratch = [0; 200];
    let count = tokenizer.encode(b"x <pad>", true, &mut scratch).unwrap();
    assert!(count > 3 && !scratch[..count].contains(&262), "text never becomes a control token");
    let mut plain = sentencepiece(&[]);
    plain.set("tokenizer.ggml.add_space_prefix", false).set("tokenizer.ggml.add_bos_token", false);
    let facts = self::tokenizer(&plain).facts;
    assert!(!facts.add_bos && !facts.dummy_prefix);
}

#[test]
fn tokens_of_the_users_own_stay_text_unless_the_chat_template_writes_them() {
    let mut file = sentencepiece(&[("[INST]", USER), ("<|user|>", USER), ("mine", USER)]);
    let source = tokenizer(&file);
    assert_eq!(source.special, [1, 2, 261]);
    assert!(source.notes.iter().any(|note| note.starts_with("2 of the tokens are user-defined")), "{:?}", source.notes);
    file.set("tokenizer.chat_template", "{{ '[INST]' }}");
    let source = tokenizer(&file);
    assert_eq!(source.special, [1, 2, 260, 261]);
    assert_eq!(source.chat_template.as_deref(), Some("{{ '[INST]' }}"));
}

#[test]
fn byte_level_pieces_merges_and_ids_arrive() {
    let source = tokenizer(&byte_level());
    let facts = source.facts;
    assert_eq!((facts.kind, facts.n_pieces, facts.pre_tokenizer), (TokenizerKind::ByteLevelBpe, 262, PreTokenizer::Smollm));
    assert_eq!((facts.bos, facts.pad, facts.add_bos, facts.ignore_merges), (1, 2, false, false));
    // The end of a turn as the file says, and the end of a document, which ends a text in every model that has it.
    assert_eq!(facts.eos[..3], [2, 0, NO_TOKEN]);
    assert!(source.notes.iter().any(|note| note.contains("<|endoftext|>")), "{:?}", source.notes);
    assert_eq!(source.special, [0, 1, 2]);
    assert_eq!(source.pieces[3], b"<tool call>");
    for byte in 0..=255u8 {
        assert_eq!(source.pieces[4 + usize::from(byte)], [byte]);
    }
    assert_eq!((source.pieces[261].as_slice(), source.merges.as_slice()), (&b" th"[..], [(36, 120), (260, 108)].as_slice()));
    assert_eq!(source.chat_template.as_deref(), Some("{{ '<|im_start|>' }}"));
}

#[test]
fn pre_tokenizers_are_known_by_name() {
    for (name, pre_tokenizer, ignore_merges, add_bos) in [
        ("gpt-2", PreTokenizer::Gpt2, false, false),
        ("default", PreTokenizer::Gpt2, false, false),
        ("smollm", PreTokenizer::Smollm, false, false),
        ("llama-bpe", PreTokenizer::LlamaBpe, true, true),
        ("qwen2", PreTokenizer::Qwen2, false, false),
        ("deepseek-r1-qwen", PreTokenizer::Qwen2, false, false),
    ] {
        let mut file = byte_level();
        file.set("tokenizer.ggml.pre", name).unset("tokenizer.ggml.add_bos_token");
        let facts = tokenizer(&file).facts;
        assert_eq!((facts.pre_tokenizer, facts.ignore_merges, facts.add_bos), (pre_tokenizer, ignore_merges, add_bos), "{name}");
        assert_eq!(facts.normalizer == Normalizer::Nfc, pre_tokenizer == PreTokenizer::Qwen2, "{name}");
    }
    let mut file = byte_level();
    file.set("tokenizer.ggml.pre", "deepseek-llm");
    assert_eq!(make::open(file.bytes()).unwrap_err().class(), Class::NotAModel);
    assert!(refusal(file.bytes()).contains("\"deepseek-llm\""));
    file.unset("tokenizer.ggml.pre");
    assert!(tokenizer(&file).notes.iter().any(|note| note.contains("names no pre-tokenizer")));
}

/// A file, what is changed in it, and a part of the refusal.
type Case = (Gguf, &'static dyn Fn(&mut Gguf), &'static str);

#[test]
fn vocabularies_that_cannot_be_are_refused_by_name() {
    let changed = |base: Gguf, change: &dyn Fn(&mut Gguf)| {
        let mut file = base;
        change(&mut file);
        refusal(file.bytes())
    };
    let cases: [Case; 17] = [
        (byte_level(), &|file| _ = file.set("tokenizer.ggml.model", "bert"), "\"bert\""),
        (byte_level(), &|file| _ = file.unset("tokenizer.ggml.tokens"), "no tokenizer.ggml.tokens"),
        (byte_level(), &|file| _ = file.unset("tokenizer.ggml.merges"), "no tokenizer.ggml.merges"),
        (
            byte_level(),
            &|file| _ = file.set("tokenizer.ggml.tokens", texts(["a".to_owned()])),
            "262 rows in token_embd.weight, but tokenizer.ggml.tokens has 1",
        ),
        (byte_level(), &|file| _ = file.set("tokenizer.ggml.token_type", Value::I32s(vec![1, 1])), "2 entries"),
        (byte_level(), &|file| _ = file.set("tokenizer.ggml.token_type", Value::I32s(vec![9; 262])), "token 0 is 9"),
        (byte_level(), &|file| _ = file.set("tokenizer.ggml.merges", texts(["ab".to_owned()])), "merge 0"),
        (byte_level(), &|file| _ = file.set("tokenizer.ggml.merges", texts(["a b".to_owned()])), "not a piece"),
        (byte_level(), &|file| _ = file.set("tokenizer.ggml.merges", Value::I32s(vec![1])), "not an array of texts"),
        (byte_level(), &|file| _ = file.set("tokenizer.ggml.eos_token_id", 262u32), "eos_token_id is 262"),
        (byte_level(), &|file| _ = file.set("tokenizer.ggml.precompiled_charsmap", Value::I32s(vec![1])), "precompiled_charsmap"),
        (byte_level(), &|file| _ = file.set("tokenizer.ggml.something_new", "on"), "something_new"),
        (byte_level(), &|file| _ = file.set("tokenizer.ggml.remove_extra_whitespaces", true), "remove_extra_whitespaces"),
        (sentencepiece(&[]), &|file| _ = file.unset("tokenizer.ggml.scores"), "no tokenizer.ggml.scores"),
        (sentencepiece(&[]), &|file| _ = file.set("tokenizer.ggml.scores", Value::F32s(vec![f32::NAN; 260])), "token 0 is NaN"),
        (sentencepiece(&[("", 1)]), &|_| (), "token 260 of tokenizer.ggml.tokens has 0 bytes"),
        (sentencepiece(&[("<0x00>", BYTE)]), &|_| (), "257 tokens stand for bytes"),
    ];
    for (base, change, part) in cases {
        let error = changed(base, change);
        assert!(error.contains(part), "{part:?} is not in: {error}");
    }
    let mut off = byte_level();
    off.set("tokenizer.ggml.remove_extra_whitespaces", false).set("tokenizer.ggml.fim_pre_token_id", 1u32);
    assert!(make::open(off.bytes()).is_ok(), "what is off changes nothing");
    let mut mixed = sentencepiece(&[]);
    let Some((_, Value::Texts(tokens))) = mixed.keys.iter_mut().find(|(key, _)| key == "tokenizer.ggml.tokens") else { panic!() };
    tokens.swap(5, 6);
    assert!(refusal(mixed.bytes()).contains("where <0x02> was expected"));
}

#[test]
fn the_exported_file_carries_template_special_tokens_and_licence() {
    let folder = tempfile::TempDir::new().unwrap();
    for mut file in [byte_level(), sentencepiece(&[("[INST]", USER)])] {
        file.set("general.license", "apache-2.0").set("tokenizer.chat_template", "{{ '[INST]' }}");
        let checkpoint = make::open(file.bytes()).unwrap();
        let report: Report = export(&checkpoint, &options(&folder, DType::Bf16, Format::V2)).unwrap();
        let loaded = crate::decode::Loaded::open(&report.out).unwrap();
        let (header, _) = Header::parse(loaded.file().unwrap().header_text().unwrap()).unwrap();
        let source = checkpoint.tokenizer.unwrap();
        assert_eq!((&header.tokenizer.special, header.tokenizer.kind), (&source.special, source.facts.kind));
        assert_eq!(header.tokenizer.chat_template.as_deref(), Some("{{ '[INST]' }}"));
        assert_eq!(header.provenance.licence.as_deref(), Some("apache-2.0"));
        assert!(crate::decode::verify_all(&report.out).unwrap().passed());
    }
}

#[test]
fn a_vocabulary_that_its_own_settings_do_not_fit_is_refused_as_the_files_fault() {
    // A space is put before every text, and there is no piece for one.
    let mut file = sentencepiece(&[]);
    let mut tokens: Vec<String> = ["<unk>", "<s>", "</s>"].map(str::to_owned).to_vec();
    tokens.extend((0..256).map(|byte| format!("<0x{byte:02X}>")));
    tokens.push("a".to_owned());
    file.set("tokenizer.ggml.tokens", texts(tokens));
    let error = refusal(file.bytes());
    assert!(error.contains("DummyPrefix"), "{error}");
}

//! Files of tokenizer.json made here: what is read, and what is refused by name.

use super::parse;
use crate::checkpoint::TokenizerSource;
use crate::checkpoint::byte_level::character_of;
use crate::checkpoint::tokenizer_settings::Settings;
use crate::decode::TokenizerArrays;
use crate::error::{Class, Error, Result};
use dmexp::tokenizer::Tokenizer;
use dmexp_format::tokenizer::{NO_TOKEN, Normalizer, PreTokenizer, TokenizerKind};
use serde_json::{Map, Value, json};

const SPACE: &str = "\u{2581}";

/// A sentencepiece-style file: control tokens, bytes, letters, and pieces whose cuts are all merges, in the order of the pieces.
fn sentencepiece() -> Value {
    let mut texts: Vec<String> = ["<unk>", "<s>", "</s>"].map(str::to_owned).into();
    texts.extend((0..=255).map(|byte| format!("<0x{byte:02X}>")));
    let letters = [SPACE, "a", "b", "c", "d"];
    texts.extend(letters.map(str::to_owned));
    let pieces = ["ab", "abc", "\u{2581}ab", "cd", "\u{2581}abc"];
    texts.extend(pieces.map(str::to_owned));
    let has = |text: &str| texts.iter().any(|other| other == text);
    let mut merges = Vec::new();
    for piece in pieces {
        for (cut, _) in piece.char_indices().skip(1) {
            let (left, right) = piece.split_at(cut);
            if has(left) && has(right) {
                merges.push(json!(format!("{left} {right}")));
            }
        }
    }
    let vocab: Map<String, Value> = texts.iter().enumerate().map(|(id, text)| (text.clone(), json!(id))).collect();
    let added = |id: u32, text: &str| json!({"id": id, "content": text, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true});
    json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": [added(0, "<unk>"), added(1, "<s>"), added(2, "</s>")],
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": SPACE},
            {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
        ]},
        "pre_tokenizer": null,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}
        },
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": SPACE}, "content": " "},
            {"type": "ByteFallback"},
            {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0}
        ]},
        "model": {"type": "BPE", "dropout": null, "unk_token": "<unk>", "continuing_subword_prefix": null, "end_of_word_suffix": null,
            "fuse_unk": true, "byte_fallback": true, "ignore_merges": false, "vocab": vocab, "merges": merges}
    })
}

/// A byte-level file: all bytes, two merges, an end of text and a mark of templates.
fn byte_level() -> Value {
    let mut vocab: Map<String, Value> = (0..=255u8).map(|byte| (character_of(byte).to_string(), json!(byte))).collect();
    for (id, text) in [(256, "he"), (257, "\u{120}he"), (258, "<|end|>")] {
        vocab.insert(text.to_owned(), json!(id));
    }
    json!({
        "added_tokens": [
            {"id": 258, "content": "<|end|>", "special": true},
            {"id": 259, "content": "<tool>", "special": false}
        ],
        "normalizer": null,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Digits", "individual_digits": true},
            {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true}
        ]},
        "post_processor": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": false, "use_regex": true},
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "byte_fallback": false, "ignore_merges": false, "vocab": vocab,
            "merges": [["h", "e"], ["\u{120}", "he"]]}
    })
}

fn read(value: &Value) -> Result<TokenizerSource> {
    parse(value.to_string().as_bytes(), None, &Settings::default())
}

fn refused(value: &Value) -> Error {
    read(value).unwrap_err()
}

fn encode(source: &TokenizerSource, text: &str) -> Vec<u32> {
    let arrays = TokenizerArrays::new(source);
    let mut scratch = vec![0; Tokenizer::scratch_words(text.len())];
    let count = arrays.tokenizer().unwrap().encode(text.as_bytes(), true, &mut scratch).unwrap();
    scratch.truncate(count);
    scratch
}

#[test]
fn sentencepiece_style_merges_are_those_of_the_list() {
    let source = read(&sentencepiece()).unwrap();
    let facts = &source.facts;
    assert_eq!((facts.kind, facts.n_pieces, facts.bos, facts.unk, facts.byte_base), (TokenizerKind::SentencepieceBpe, 269, 1, 0, 3));
    assert!(facts.add_bos && facts.dummy_prefix);
    assert_eq!(source.special, [1, 2]);
    assert_eq!(source.pieces[259], b" ");
    // The ids: 259 space, a b c d, then ab 264, abc 265, " ab" 266, cd 267, " abc" 268.
    assert_eq!(encode(&source, "abcd"), [1, 268, 263]);
    assert_eq!(encode(&source, "cd"), [1, 259, 267]);
    assert_eq!(encode(&source, "a<s>"), [1, 259, 260, 3 + 0x3C, 3 + 0x73, 3 + 0x3E]);
    assert_eq!(encode(&source, "\u{e9}"), [1, 259, 3 + 0xC3, 3 + 0xA9]);
}

#[test]
fn byte_level_files_are_read() {
    let source = read(&byte_level()).unwrap();
    assert_eq!((source.facts.kind, source.facts.pre_tokenizer), (TokenizerKind::ByteLevelBpe, PreTokenizer::Smollm));
    assert_eq!((source.facts.bos, source.facts.add_bos, source.facts.n_pieces), (NO_TOKEN, false, 260));
    assert_eq!(source.special, [258]);
    assert_eq!(source.pieces[257], b" he");
    assert_eq!(source.pieces[259], b"<tool>");
    assert_eq!(encode(&source, "he he1"), [256, 257, u32::from(b'1')]);
    assert_eq!(encode(&source, "<tool>").len(), 6);
    assert_eq!(source.merges, [(u32::from(b'h'), u32::from(b'e')), (u32::from(b' '), 256)]);
    assert!(source.notes.iter().any(|note| note.contains("1 added tokens in angle or square brackets")), "{:?}", source.notes);
}

#[test]
fn the_pre_tokenizers_of_llama_3_and_qwen_2_are_known_by_their_expressions() {
    let digits = |n: &str| {
        format!(
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{n}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
        )
    };
    let split = |regex: String| {
        json!({"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": false},
            {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}
        ]})
    };
    let with = |stage: Value| {
        let mut file = byte_level();
        file["pre_tokenizer"] = stage;
        read(&file).map(|source| source.facts.pre_tokenizer)
    };
    assert_eq!(with(split(digits("{1,3}"))).unwrap(), PreTokenizer::LlamaBpe);
    assert_eq!(with(split(digits(""))).unwrap(), PreTokenizer::Qwen2);
    assert_eq!(with(json!({"type": "ByteLevel", "add_prefix_space": false, "use_regex": true})).unwrap(), PreTokenizer::Gpt2);
    let error = with(split(digits("{1,2}"))).unwrap_err();
    assert!(error.to_string().contains("its pre_tokenizer is \"Sequence\""), "{error}");
    assert!(with(json!({"type": "ByteLevel", "add_prefix_space": true, "use_regex": true})).is_err());
}

#[test]
fn composing_text_first_is_carried() {
    let mut file = byte_level();
    assert_eq!(read(&file).unwrap().facts.normalizer, Normalizer::None);
    for stage in [json!({"type": "NFC"}), json!({"type": "Sequence", "normalizers": [{"type": "NFC"}]})] {
        file["normalizer"] = stage;
        let source = read(&file).unwrap();
        assert_eq!(source.facts.normalizer, Normalizer::Nfc);
        let arrays = TokenizerArrays::new(&source);
        let tokens = |text: &str| crate::text::encode(&arrays.tokenizer().unwrap(), text.as_bytes(), true).unwrap();
        assert_eq!(tokens("e\u{301}"), tokens("\u{e9}"));
        assert_ne!(encode(&source, "e\u{301}"), encode(&source, "\u{e9}"));
    }
    file["normalizer"] = json!({"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Lowercase"}]});
    assert!(refused(&file).to_string().contains("its normalizer is \"Sequence\""));
}

#[test]
fn stages_that_are_not_done_exactly_are_refused_by_name() {
    let nfkc = json!({"type": "NFKC"});
    for (file, key, value, said) in [
        (byte_level(), "normalizer", nfkc.clone(), "its normalizer is \"NFKC\""),
        (sentencepiece(), "normalizer", nfkc, "its normalizer is \"NFKC\""),
        (byte_level(), "decoder", json!({"type": "WordPiece"}), "its decoder is \"WordPiece\""),
        (sentencepiece(), "decoder", json!({"type": "ByteLevel"}), "its decoder is \"ByteLevel\""),
        (sentencepiece(), "decoder", Value::Null, "it has no decoder"),
        (sentencepiece(), "pre_tokenizer", json!({"type": "Whitespace"}), "its pre_tokenizer is \"Whitespace\""),
        (sentencepiece(), "truncation", json!({"max_length": 8}), "truncation is"),
        (sentencepiece(), "padding", json!({"strategy": "BatchLongest"}), "padding is"),
        (byte_level(), "post_processor", json!({"type": "RobertaProcessing"}), "its post_processor is \"RobertaProcessing\""),
    ] {
        let mut file = file;
        file[key] = value;
        let error = refused(&file);
        assert!(error.to_string().contains(said) && error.class() == Class::NotAModel, "{said}: {error}");
    }
    let mut file = sentencepiece();
    file["post_processor"]["single"] = json!([{"Sequence": {"id": "A"}}, {"SpecialToken": {"id": "</s>"}}]);
    assert!(refused(&file).to_string().contains("its post_processor is \"TemplateProcessing\""));
    let mut file = sentencepiece();
    file["normalizer"] = Value::Null;
    file["pre_tokenizer"] = json!({"type": "Metaspace", "replacement": SPACE, "prepend_scheme": "first", "split": false});
    assert!(refused(&file).to_string().contains("name the model's tokenizer.model instead"));
    file["pre_tokenizer"]["prepend_scheme"] = json!("never");
    file["decoder"]["decoders"].as_array_mut().unwrap().pop();
    assert!(!read(&file).unwrap().facts.dummy_prefix);
}

#[test]
fn models_of_other_kinds_are_refused_by_name() {
    for (key, value, said) in [
        ("type", json!("Unigram"), "its model is \"Unigram\""),
        ("type", json!("WordPiece"), "its model is \"WordPiece\""),
        ("dropout", json!(0.1), "model.dropout is not 0"),
        ("continuing_subword_prefix", json!("##"), "model.continuing_subword_prefix is \"##\""),
        ("end_of_word_suffix", json!("</w>"), "model.end_of_word_suffix is \"</w>\""),
        ("ignore_merges", json!(true), "model.ignore_merges is true"),
        ("vocab", Value::Null, "has no model.vocab"),
        ("merges", Value::Null, "has no model.merges"),
    ] {
        let mut file = sentencepiece();
        file["model"][key] = value;
        let error = refused(&file).to_string();
        assert!(error.contains(said), "{key}: {error}");
    }
    assert!(refused(&json!({"a": 1})).to_string().contains("without a model"));
}

#[test]
fn class_14_vocabularies_and_merges_that_cannot_be_are_refused() {
    let edit = |base: Value, edit: &dyn Fn(&mut Value)| {
        let mut file = base;
        edit(&mut file);
        refused(&file).to_string()
    };
    let merge = |merge: Value| edit(sentencepiece(), &|file| file["model"]["merges"].as_array_mut().unwrap().push(merge.clone()));
    assert!(merge(json!("x y")).contains("\"x\" is not a piece"));
    assert!(merge(json!("a c")).contains("\"ac\" is not a piece"));
    assert!(merge(json!("a b")).contains("(\"a\" with \"b\") stands twice"));
    assert!(merge(json!("ab")).contains("it can be two pieces"));
    assert!(merge(json!(["a", 1])).contains("it can be two pieces"));
    // Without one of its cuts a piece would be made where the list does not make it.
    let error = edit(sentencepiece(), &|file| file["model"]["merges"].as_array_mut().unwrap().retain(|merge| merge != "\u{2581} abc"));
    assert!(error.contains("\"\u{2581}\" and \"abc\" are pieces and so is \"\u{2581}abc\", but no merge"), "{error}");
    let error = edit(sentencepiece(), &|file| {
        let merges = file["model"]["merges"].as_array_mut().unwrap();
        let place = merges.iter().position(|merge| merge == "\u{2581} abc").unwrap();
        let merge = merges.remove(place);
        merges.insert(0, merge);
    });
    assert!(error.contains("stands apart from other merges"), "{error}");
    let error = edit(sentencepiece(), &|file| file["model"]["vocab"]["e"] = json!(5));
    assert!(error.contains("have one id, 5"), "{error}");
    let error = edit(sentencepiece(), &|file| file["model"]["vocab"]["e"] = json!(-5));
    assert!(error.contains("the piece \"e\" has the id -5"), "{error}");
    let error = edit(sentencepiece(), &|file| file["model"]["vocab"]["e"] = json!(4_000_000_000u32));
    assert!(error.contains("the ids go up to 4000000000"), "{error}");
    let error = edit(sentencepiece(), &|file| file["model"]["vocab"]["a b"] = json!(269));
    assert!(error.contains("the piece \"a b\" has a space"), "{error}");
    let error = edit(sentencepiece(), &|file| {
        file["model"]["vocab"].as_object_mut().unwrap().remove("<0x41>");
    });
    assert!(error.contains("none for <0x41>"), "{error}");
    let error = edit(sentencepiece(), &|file| file["added_tokens"][1]["content"] = json!("<t>"));
    assert!(error.contains("token 1 is the piece \"<s>\" and the added token \"<t>\""), "{error}");
    let error = edit(sentencepiece(), &|file| file["added_tokens"][1]["id"] = json!(300));
    assert!(error.contains("\"<s>\" has two ids, 1 and 300"), "{error}");
    let error = edit(byte_level(), &|file| file["added_tokens"][1]["content"] = json!("  "));
    assert!(error.contains("the added token 259, \"  \", is cut out of any text"), "{error}");
    let error = edit(byte_level(), &|file| file["model"]["vocab"]["\u{4e2d}"] = json!(260));
    assert!(error.contains('\u{4e2d}'), "{error}");
}

#[test]
fn class_20_sizes_are_compared_and_rows_without_pieces_are_filled() {
    let text = sentencepiece().to_string();
    let parsed = |vocab_size| parse(text.as_bytes(), Some(vocab_size), &Settings::default());
    let error = parsed(268).unwrap_err();
    assert!(
        error.class() == Class::Mismatch && error.to_string().contains("has 269 tokens (the last is \"\u{2581}abc\"), the model has 268"),
        "{error}"
    );
    let source = parsed(272).unwrap();
    assert_eq!((source.facts.n_pieces, source.special.as_slice()), (272, &[1, 2, 269, 270, 271][..]));
    assert!(source.notes.iter().any(|note| note.starts_with("3 of the model's 272 tokens have no piece")));
    assert_eq!(encode(&source, "abcd"), encode(&read(&sentencepiece()).unwrap(), "abcd"));
}

#[test]
fn settings_beside_the_file_are_followed() {
    let text = sentencepiece().to_string();
    let with = |settings: Settings| parse(text.as_bytes(), None, &settings);
    let named = |text: &str| Some(text.to_owned());
    let source =
        with(Settings { eos_ids: vec![2, 0], chat_template: named("{{ x }}"), pad: named("<unk>"), ..Settings::default() }).unwrap();
    assert_eq!((&source.facts.eos[..3], source.facts.pad, source.chat_template.as_deref()), (&[2, 0, NO_TOKEN][..], 0, Some("{{ x }}")));
    let off = Settings { class: named("LlamaTokenizer"), add_bos: Some(false), bos: named("<s>"), ..Settings::default() };
    assert!(!with(off.clone()).unwrap().facts.add_bos);
    // Other classes of the library do not look at the setting.
    assert!(with(Settings { class: named("PreTrainedTokenizerFast"), ..off }).unwrap().facts.add_bos);
    for (settings, said) in [
        (Settings { bos: named("<bos>"), ..Settings::default() }, "bos_token is \"<bos>\", which the tokenizer does not have"),
        (Settings { bos: named("</s>"), ..Settings::default() }, "puts token 1 before text, but bos_token is token 2"),
        (Settings { add_eos: Some(true), ..Settings::default() }, "add_eos_token is true"),
        (Settings { eos_ids: (0..9).collect(), ..Settings::default() }, "9 tokens end a text; this version has room for 8"),
        (Settings { eos_ids: vec![269], ..Settings::default() }, "269"),
    ] {
        let error = with(settings).unwrap_err().to_string();
        assert!(error.contains(said), "{said}: {error}");
    }
}

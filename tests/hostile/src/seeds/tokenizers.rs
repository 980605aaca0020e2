//! Tokenizers of every kind, texts and tokens for them.

use crate::checkpoints::put;
use dmexp_tools::checkpoint::byte_level::character_of;
use dmexp_tools::checkpoint::{TokenizerSource, tokenizer_file};
use serde_json::{Map, Value, json};
use std::sync::LazyLock;

pub(crate) fn tokenizer_bins() -> Vec<Vec<u8>> {
    let piece = |text: &[u8], score: f32| [&score.to_le_bytes(), &(text.len() as u32).to_le_bytes(), text].concat();
    let mut pieces = vec![piece(b"<unk>", 0.0), piece(b"\n<s>\n", 0.0), piece(b"\n</s>\n", 0.0)];
    pieces.extend((0..256).map(|byte| piece(format!("<0x{byte:02X}>").as_bytes(), 0.0)));
    pieces.extend([" ", "a", "b", " a", "ab"].iter().zip(0u8..).map(|(text, place)| piece(text.as_bytes(), -f32::from(place))));
    vec![[6u32.to_le_bytes().to_vec(), pieces.concat()].concat(), include_bytes!("../../../../models/story.tokenizer.bin").to_vec()]
}

/// A `tokenizer.json` of the kind that sentencepiece's are turned into.
fn sentencepiece_json() -> Value {
    let texts: Vec<String> = ["<unk>", "<s>", "</s>"]
        .map(str::to_owned)
        .into_iter()
        .chain((0..256).map(|byte| format!("<0x{byte:02X}>")))
        .chain(["\u{2581}", "a", "b", "ab", "\u{2581}ab"].map(str::to_owned))
        .collect();
    let vocab: Map<String, Value> = texts.iter().enumerate().map(|(id, text)| (text.clone(), json!(id))).collect();
    let added = |id: u32, text: &str| json!({"id": id, "content": text, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true});
    json!({
        "version": "1.0",
        "added_tokens": [added(0, "<unk>"), added(1, "<s>"), added(2, "</s>")],
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": "\u{2581}"}, {"type": "Replace", "pattern": {"String": " "}, "content": "\u{2581}"}
        ]},
        "pre_tokenizer": null,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [], "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}
        },
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "\u{2581}"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0}
        ]},
        "model": {"type": "BPE", "dropout": null, "unk_token": "<unk>", "continuing_subword_prefix": null, "end_of_word_suffix": null,
            "fuse_unk": true, "byte_fallback": true, "ignore_merges": false, "vocab": vocab, "merges": ["a b", "\u{2581} ab"]}
    })
}

/// A byte-level `tokenizer.json` that splits text in this way, after this normalizer.
fn byte_level_json(pre_tokenizer: &Value, normalizer: &Value) -> Value {
    let mut vocab: Map<String, Value> = (0..=255u8).map(|byte| (character_of(byte).to_string(), json!(byte))).collect();
    for (id, text) in [(256, "he"), (257, "\u{120}he"), (258, "<|end|>")] {
        vocab.insert(text.to_owned(), json!(id));
    }
    let byte_level = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true});
    json!({
        "added_tokens": [{"id": 258, "content": "<|end|>", "special": true}, {"id": 259, "content": "<tool>", "special": false}],
        "normalizer": normalizer, "pre_tokenizer": pre_tokenizer, "post_processor": byte_level, "decoder": byte_level,
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "byte_fallback": false, "ignore_merges": false, "vocab": vocab,
            "merges": [["h", "e"], ["\u{120}", "he"]]}
    })
}

pub(crate) fn tokenizer_jsons() -> Vec<Vec<u8>> {
    let byte_level = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true});
    let digits = json!({"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": true}, byte_level]});
    let files = [sentencepiece_json(), byte_level_json(&byte_level, &Value::Null), byte_level_json(&digits, &json!({"type": "NFC"}))];
    files.iter().map(|file| file.to_string().into_bytes()).collect()
}

pub(crate) fn tokenizer_models() -> Vec<Vec<u8>> {
    let varint = |mut value: u64| {
        let mut out = Vec::new();
        while value >= 0x80 {
            out.push(value as u8 | 0x80);
            value >>= 7;
        }
        out.push(value as u8);
        out
    };
    let number = |field: u64, value: u64| [varint(field << 3), varint(value)].concat();
    let bytes = |field: u64, value: &[u8]| [varint(field << 3 | 2), varint(value.len() as u64), value.to_vec()].concat();
    let piece = |text: &str, score: f32, sort: u64| {
        bytes(1, &[bytes(1, text.as_bytes()), vec![2 << 3 | 5], score.to_le_bytes().to_vec(), number(3, sort)].concat())
    };
    let mut pieces = vec![piece("<unk>", 0.0, 2), piece("<s>", 0.0, 3), piece("</s>", 0.0, 3)];
    pieces.extend((0..256).map(|byte| piece(&format!("<0x{byte:02X}>"), 0.0, 6)));
    pieces.extend(["\u{2581}a", "ab", "\u{2581}", "a", "b"].iter().zip(0u8..).map(|(text, place)| piece(text, -f32::from(place), 1)));
    let trainer = bytes(2, &[number(3, 2), number(41, 1), number(42, 2), number(43, u64::MAX)].concat());
    let normalizer = bytes(3, &[bytes(1, b"identity"), number(3, 1), number(4, 0), number(5, 1)].concat());
    vec![[pieces.concat(), trainer, normalizer].concat()]
}

/// One tokenizer of each kind that has every byte.
pub(crate) fn tokenizers() -> &'static [TokenizerSource] {
    static MADE: LazyLock<Vec<TokenizerSource>> = LazyLock::new(|| {
        let files = [tokenizer_bins(), tokenizer_jsons(), tokenizer_models()].concat();
        let read = |file: &Vec<u8>| tokenizer_file::read(&put("seed.tokenizer", file), None).expect("a seed can be read");
        files.iter().map(read).chain([TokenizerSource::bytes(256, None).expect("256 bytes")]).collect()
    });
    &MADE
}

pub(crate) fn texts() -> Vec<Vec<u8>> {
    let texts = [
        "Once upon a time, there were 1234 he's!",
        "  \n\n\t x\u{e9} e\u{301} \u{1f600}\u{2581}",
        "aaaaaaaaaaaaaaaaab ab ab",
        "<s> <|end|> </s>",
    ];
    let count = tokenizers().len();
    (0..count as u8).zip(texts.iter().cycle()).map(|(first, text)| [&[first], text.as_bytes()].concat()).collect()
}

pub(crate) fn ids() -> Vec<Vec<u8>> {
    let count = tokenizers().len() as u8;
    (0..count)
        .map(|first| {
            std::iter::once(first)
                .chain([1u32, 260, 40, 258, u32::MAX, 3 + 0xc3, 3 + 0xa9].into_iter().flat_map(u32::to_le_bytes))
                .collect()
        })
        .collect()
}

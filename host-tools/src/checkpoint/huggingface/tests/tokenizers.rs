//! The tokenizer that lies in the folder: found, carried with its template and ends, and refused without refusing the model.

use super::made::{VOCAB, llama};
use crate::checkpoint::{Checkpoint, open};
use crate::decode::Loaded;
use crate::error::Class;
use crate::export::Format;
use crate::export::tests::{export, options};
use dmexp_format::DType;
use serde_json::{Map, Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A sentencepiece-style tokenizer without byte tokens for the letters a to z.
fn tokenizer() -> Value {
    let space = "\u{2581}";
    let mut texts: Vec<String> = ["<unk>", "<s>", "</s>", space].map(str::to_owned).into();
    texts.extend(('a'..='z').map(String::from));
    texts.push("\u{2581}a".to_owned());
    let vocab: Map<String, Value> = texts.iter().enumerate().map(|(id, text)| (text.clone(), json!(id))).collect();
    let special = |id: u32, text: &str| json!({"id": id, "content": text, "special": true});
    json!({
        "added_tokens": [special(0, "<unk>"), special(1, "<s>"), special(2, "</s>")],
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": space},
            {"type": "Replace", "pattern": {"String": " "}, "content": space}
        ]},
        "pre_tokenizer": null,
        "post_processor": null,
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": space}, "content": " "},
            {"type": "ByteFallback"},
            {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0}
        ]},
        "model": {"type": "BPE", "unk_token": "<unk>", "fuse_unk": true, "byte_fallback": false, "vocab": vocab, "merges": [[space, "a"]]}
    })
}

fn folder(files: &[(&str, Value)]) -> (TempDir, PathBuf) {
    let folder = TempDir::new().unwrap();
    let path = llama().save(&folder);
    for (name, value) in files {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        fs::write(path.join(name), text).unwrap();
    }
    (folder, path)
}

fn header(checkpoint: &Checkpoint) -> dmexp_format::host::Tokenizer {
    let out = TempDir::new().unwrap();
    let report = export(checkpoint, &options(&out, DType::F32, Format::V2)).unwrap();
    let loaded = Loaded::open(&report.out).unwrap();
    let file = loaded.file().unwrap();
    dmexp_format::host::Header::parse(file.header_text().unwrap()).unwrap().0.tokenizer
}

#[test]
fn tokenizer_template_and_ends_travel() {
    let config = json!({"tokenizer_class": "LlamaTokenizer", "add_bos_token": true, "bos_token": "<s>", "eos_token": {"content": "</s>"},
        "chat_template": [{"name": "tool_use", "template": "no"}, {"name": "default", "template": "{{ messages }}\n\"x\""}]});
    let (_folder, path) = folder(&[
        ("tokenizer.json", tokenizer()),
        ("tokenizer_config.json", config),
        ("generation_config.json", json!({"eos_token_id": [2, 5]})),
    ]);
    let checkpoint = open(&path).unwrap();
    let tokenizer = header(&checkpoint);
    assert_eq!((tokenizer.n_pieces, tokenizer.bos, tokenizer.eos), (VOCAB as u32, Some(1), vec![2, 5]));
    assert!(tokenizer.add_bos && tokenizer.dummy_prefix);
    assert_eq!(tokenizer.chat_template.as_deref(), Some("{{ messages }}\n\"x\""));
    let notes = &checkpoint.tokenizer.as_ref().unwrap().notes;
    assert!(notes.iter().any(|note| note.contains("named tool_use: only the one named default is carried")), "{notes:?}");
}

#[test]
fn a_template_in_a_file_of_its_own_goes_before() {
    let (_folder, path) = folder(&[
        ("tokenizer.json", tokenizer()),
        ("tokenizer_config.json", json!({"chat_template": "old"})),
        ("chat_template.jinja", json!("new")),
    ]);
    assert_eq!(open(&path).unwrap().tokenizer.unwrap().chat_template.as_deref(), Some("new"));
    fs::write(path.join("chat_template.jinja"), "x".repeat((1 << 20) + 1)).unwrap();
    let error = open(&path).unwrap().refused_tokenizer.unwrap().to_string();
    assert!(error.contains("chat_template.jinja: the chat template has 1048577 bytes; it can have 1048576"), "{error}");
}

#[test]
fn a_tokenizer_that_is_refused_refuses_the_export_unless_it_is_left_out() {
    let mut other = tokenizer();
    other["model"]["type"] = json!("Unigram");
    let (_folder, path) = folder(&[("tokenizer.json", other)]);
    let mut checkpoint = open(&path).unwrap();
    let out = TempDir::new().unwrap();
    let error = export(&checkpoint, &options(&out, DType::F32, Format::V2)).unwrap_err();
    assert_eq!(error.class(), Class::NotAModel);
    let text = error.to_string();
    assert!(text.contains("tokenizer.json: its model is \"Unigram\"") && text.contains("--tokenizer none leaves it out"), "{text}");
    assert!(fs::read_dir(out.path()).unwrap().next().is_none());
    checkpoint.refused_tokenizer = None;
    assert_eq!(header(&checkpoint).n_pieces, 0);
}

#[test]
fn settings_that_cannot_be_are_refused_with_their_file() {
    let said = |name: &str, value: Value| {
        let (_folder, path) = folder(&[("tokenizer.json", tokenizer()), (name, value)]);
        open(Path::new(&path)).unwrap().refused_tokenizer.unwrap().to_string()
    };
    for (name, value, wanted) in [
        ("tokenizer_config.json", json!({"bos_token": 1}), "tokenizer_config.json: bos_token is 1"),
        ("tokenizer_config.json", json!({"bos_token": "<bos>"}), "bos_token is \"<bos>\", which the tokenizer does not have"),
        ("tokenizer_config.json", json!({"chat_template": 7}), "chat_template is 7"),
        ("tokenizer_config.json", json!({"chat_template": [{"name": "default"}]}), "chat_template has an entry"),
        ("tokenizer_config.json", json!("{"), "is not the JSON"),
        ("generation_config.json", json!({"eos_token_id": "2"}), "generation_config.json: eos_token_id is \"2\""),
        ("generation_config.json", json!({"eos_token_id": [2, 4000]}), "token 4000"),
    ] {
        let error = said(name, value.clone());
        assert!(error.contains(wanted), "{value}: {error}");
    }
}

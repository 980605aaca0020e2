//! Files of weights: what safetensors and indices can get wrong, each refused by name and place.

use super::made::{Made, Tensor, file, llama, safetensors};
use crate::checkpoint::{ArrayView, open};
use crate::error::{Class, Error};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use tempfile::TempDir;

fn refusal(folder: &Path) -> Error {
    open(folder).unwrap_err()
}

/// Opens a model whose weights are these bytes.
fn with_weights(bytes: &[u8]) -> Error {
    let folder = TempDir::new().unwrap();
    let path = llama().save(&folder);
    fs::write(path.join("model.safetensors"), bytes).unwrap();
    refusal(&path)
}

/// A file of two small tensors whose header's entries are these.
fn with_entries(entries: &str) -> Error {
    with_weights(&file(&format!("{{{entries}}}"), &[0; 16]))
}

#[test]
fn class_18_headers_that_lie_are_refused() {
    let a = r#""a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}"#;
    for (entries, said) in [
        (format!(r#"{a},"b":{{"dtype":"F32","shape":[2],"data_offsets":[4,12]}}"#), "b does not begin where the tensor before it ends"),
        (format!(r#"{a},"b":{{"dtype":"F32","shape":[1],"data_offsets":[12,16]}}"#), "b does not begin where"),
        (format!(r#"{a},"b":{{"dtype":"F32","shape":[2],"data_offsets":[16,8]}}"#), "b does not begin where"),
        (
            format!(r#"{a},"b":{{"dtype":"F32","shape":[3],"data_offsets":[8,16]}}"#),
            "b has not as many bytes as its shape and type call for",
        ),
        // A size past what the target can count is refused while the header is read.
        (
            format!(r#"{a},"b":{{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[8,16]}}"#),
            if cfg!(target_pointer_width = "32") { "4294967296" } else { "b has not as many bytes" },
        ),
        (a.to_owned(), "the tensors do not end where the file does, at byte"),
        (format!(r#"{a},"b":{{"dtype":"F32","shape":[4],"data_offsets":[8,24]}}"#), "the tensors do not end where the file does"),
        (format!("{a},{a}"), "the key \"a\" stands twice"),
        (format!(r#"{a},"b":{{"dtype":"F33","shape":[2],"data_offsets":[8,16]}}"#), "F33"),
        (format!(r#"{a},"b":{{"dtype":"I32","shape":[2],"data_offsets":[8,16]}}"#), "b is stored as I32"),
        (format!(r#"{a},"b":{{"dtype":"F8_E4M3","shape":[8],"data_offsets":[8,16]}}"#), "b is stored as F8_E4M3"),
        (
            format!(
                r#"{a},"b":{{"dtype":"F32","shape":[],"data_offsets":[8,12]}},"c":{{"dtype":"F32","shape":[1],"data_offsets":[12,16]}}"#
            ),
            "the shape []",
        ),
        (format!(r#"{a},"b":{{"dtype":"F32","shape":[1,1,1,1,2],"data_offsets":[8,16]}}"#), "1 to 4 axes"),
        (
            format!(
                r#"{a},"b":{{"dtype":"F32","shape":[0],"data_offsets":[8,8]}},"c":{{"dtype":"F32","shape":[2],"data_offsets":[8,16]}}"#
            ),
            "the shape [0]",
        ),
        (format!(r#"{a},"b":{{"dtype":"F32","shape":[-2],"data_offsets":[8,16]}}"#), "invalid"),
        (format!(r#"{a},"b":[]"#), "invalid"),
    ] {
        let error = with_entries(&entries);
        assert!(error.to_string().contains(said) && error.to_string().contains("model.safetensors"), "{entries}: {error}");
    }
}

#[test]
fn class_18_headers_of_impossible_length_are_refused() {
    let whole = safetensors(&llama().tensors);
    for (length, said) in
        [(u64::MAX, "18446744073709551615 bytes"), (100_000_001, "it can have 100000000"), (1 << 20, "but has"), (3, "JSON")]
    {
        let mut bytes = whole.clone();
        bytes[..8].copy_from_slice(&length.to_le_bytes());
        let error = with_weights(&bytes);
        assert!(error.to_string().contains(said) && error.class() == Class::Damaged, "{length}: {error}");
    }
    let header = 8 + u64::from_le_bytes(*whole.first_chunk().unwrap()) as usize;
    let cuts = (0..header).step_by(7).chain((header..whole.len()).step_by(211)).chain([1, 7, 8, 9, header, whole.len() - 1]);
    for cut in cuts {
        let error = with_weights(&whole[..cut]);
        assert!(error.to_string().contains("model.safetensors"), "{cut}: {error}");
    }
    assert!(with_weights(&[whole.as_slice(), b"x"].concat()).to_string().contains("do not end where the file does"));
}

#[test]
fn flipped_bits_never_panic() {
    let folder = TempDir::new().unwrap();
    let path = llama().save(&folder).join("model.safetensors");
    let whole = fs::read(&path).unwrap();
    let header = 8 + u64::from_le_bytes(*whole.first_chunk().unwrap()) as usize;
    for place in (0..header).step_by(3) {
        let mut bytes = whole.clone();
        bytes[place] ^= 1 << (place % 8);
        fs::write(&path, bytes).unwrap();
        if let Ok(checkpoint) = open(folder.path()) {
            assert!(checkpoint.arrays().all(|array| array.to_vec().is_ok()));
        }
    }
}

#[test]
fn weights_in_parts_are_those_in_one_file() {
    let made = llama();
    let (one, three) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let (whole, parts) = (open(&made.save(&one)).unwrap(), open(&made.save_parts(&three, 3)).unwrap());
    assert_eq!(parts.files().len(), 4);
    assert_eq!(parts.provenance.file_name, "model.safetensors.index.json");
    assert_eq!(whole.config, parts.config);
    let values = |array: ArrayView<'_>| (array.name().to_owned(), array.dims(), array.to_vec().unwrap());
    assert!(whole.arrays().map(values).eq(parts.arrays().map(values)));
    let named = open(&one.path().join("model.safetensors")).unwrap();
    assert!(whole.arrays().map(values).eq(named.arrays().map(values)));
    let error = refusal(&three.path().join("model-00001-of-00003.safetensors"));
    assert!(error.to_string().contains("there is no tensor lm_head.weight"), "{error}");
}

fn edit_index(folder: &Path, edit: impl FnOnce(&mut Value)) -> Error {
    let path = folder.join("model.safetensors.index.json");
    let mut index: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    edit(&mut index);
    fs::write(&path, index.to_string()).unwrap();
    refusal(folder)
}

#[test]
fn class_18_indices_that_lie_are_refused() {
    let parts = |edit: &dyn Fn(&mut Value)| {
        let folder = TempDir::new().unwrap();
        llama().save_parts(&folder, 3);
        edit_index(folder.path(), |index| edit(index)).to_string()
    };
    let norm = "model.norm.weight";
    for place in ["../model-00003-of-00003.safetensors", "/etc/passwd", "..", ".", "", "a/b", "a\\b", "C:b"] {
        let error = parts(&|index| index["weight_map"][norm] = json!(place));
        assert!(error.contains("weight_map.model.norm.weight is") && error.contains("in the same folder"), "{place}: {error}");
    }
    let error = parts(&|index| index["weight_map"][norm] = json!("model-00001-of-00003.safetensors"));
    assert!(error.contains("model.norm.weight, which the index says is in model-00001-of-00003.safetensors"), "{error}");
    let error = parts(&|index| index["weight_map"][norm] = json!("model-00000-of-00003.safetensors"));
    assert!(error.contains("model-00000-of-00003.safetensors: cannot be read"), "{error}");
    let error = parts(&|index| index["weight_map"]["ghost"] = json!("model-00001-of-00003.safetensors"));
    assert!(error.contains("says that ghost is in model-00001-of-00003.safetensors, where it is not"), "{error}");
    let error = parts(&|index| {
        index["weight_map"].as_object_mut().unwrap().remove(norm);
    });
    assert!(error.contains("has a tensor model.norm.weight, which is not in the index"), "{error}");
    let error = parts(&|index| index["weight_map"] = json!({}));
    assert!(error.contains("weight_map is empty"), "{error}");
    let error = parts(&|index| index["weight_map"] = json!([]));
    assert!(error.contains("weight_map is []"), "{error}");
    let error = parts(&|index| *index = json!({}));
    assert!(error.contains("has no weight_map"), "{error}");
}

#[test]
fn class_18_a_tensor_in_two_parts_is_refused() {
    let folder = TempDir::new().unwrap();
    let made = llama();
    made.save_parts(&folder, 2);
    let twice: Vec<Tensor> = made.tensors[made.tensors.len().div_ceil(2)..].iter().chain(&made.tensors[..1]).cloned().collect();
    fs::write(folder.path().join("model-00002-of-00002.safetensors"), safetensors(&twice)).unwrap();
    let error = refusal(folder.path()).to_string();
    assert!(
        error.contains("model-00002-of-00002.safetensors: has a tensor model.embed_tokens.weight, which the index says is in model-00001"),
        "{error}"
    );
}

#[test]
fn folders_without_weights_or_configuration_say_so() {
    let folder = TempDir::new().unwrap();
    let path = llama().save(&folder);
    fs::write(path.join("pytorch_model.bin"), "old").unwrap();
    let checkpoint = open(&path).unwrap();
    assert_eq!(checkpoint.notes, ["pytorch_model.bin was not read: the weights are those of model.safetensors"]);
    fs::rename(path.join("model.safetensors"), path.join("other.bin")).unwrap();
    fs::remove_file(path.join("pytorch_model.bin")).unwrap();
    assert!(refusal(&path).to_string().contains("has a config.json, but none of model.safetensors"));
    fs::rename(path.join("other.bin"), path.join("model.safetensors")).unwrap();
    fs::remove_file(path.join("config.json")).unwrap();
    let error = refusal(&path.join("model.safetensors"));
    assert!(error.to_string().contains("without a config.json beside it") && error.class() == Class::NotAModel, "{error}");
    fs::write(path.join("config.json"), "{\"a\": 1,}").unwrap();
    assert!(refusal(&path).to_string().contains("config.json: is not the JSON that it should be"));
    fs::write(path.join("config.json"), "[]").unwrap();
    assert!(refusal(&path).to_string().contains("config.json: is a list, not a JSON object"));
}

#[test]
fn an_adapter_beside_the_weights_is_not_passed_over() {
    let folder = TempDir::new().unwrap();
    let path = llama().save(&folder);
    fs::write(path.join("adapter_config.json"), "{}").unwrap();
    let error = refusal(&path);
    assert!(error.class() == Class::NotAModel && error.to_string().contains("has an adapter_config.json"), "{error}");
}

#[test]
fn no_file_of_the_model_counts_as_free_to_write() {
    let folder = TempDir::new().unwrap();
    let path = llama().save_parts(&folder, 2);
    let sources = open(&path).unwrap().sources();
    for name in [
        "config.json",
        "generation_config.json",
        "tokenizer.json",
        "tokenizer.model",
        "tokenizer_config.json",
        "special_tokens_map.json",
        "chat_template.jinja",
        "model.safetensors.index.json",
        "model-00002-of-00002.safetensors",
    ] {
        assert!(sources.contains(&path.join(name)), "{name}: {sources:?}");
    }
    assert!(!sources.contains(&path.join("model.bf16.dmexp")));
}

#[test]
fn weights_that_are_something_else_are_named() {
    for (bytes, said) in [
        (&b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n"[..], "Git LFS pointer"),
        (b"<!DOCTYPE html>", "a web page"),
        (b"", "has 0 bytes"),
    ] {
        let error = with_weights(bytes);
        assert!(error.to_string().contains(said), "{error}");
    }
}

#[test]
fn half_precision_is_read_to_the_bit() {
    let made = Made { tensors: llama().tensors, ..llama() };
    for (name, size, narrow) in [
        ("F16", 2, (|value: f32| half::f16::from_f32(value).to_le_bytes().to_vec()) as fn(f32) -> Vec<u8>),
        ("BF16", 2, |value| half::bf16::from_f32(value).to_le_bytes().to_vec()),
    ] {
        let folder = TempDir::new().unwrap();
        made.save(&folder);
        let mut header = serde_json::Map::new();
        let mut data = Vec::new();
        for (tensor, shape, values) in &made.tensors {
            let start = data.len();
            data.extend(values.iter().flat_map(|value| narrow(*value)));
            assert_eq!(data.len(), start + size * values.len());
            header.insert(tensor.clone(), json!({"dtype": name, "shape": shape, "data_offsets": [start, data.len()]}));
        }
        // A header of any length: values need not be aligned.
        fs::write(folder.path().join("model.safetensors"), file(&format!("{} ", Value::Object(header)), &data)).unwrap();
        let source = open(folder.path()).unwrap();
        let found = source.array("output.weight").unwrap().to_vec().unwrap();
        let wide = |value: &f32| if name == "F16" { half::f16::from_f32(*value).to_f32() } else { half::bf16::from_f32(*value).to_f32() };
        assert!(found.iter().copied().eq(made.tensor("lm_head.weight").iter().map(wide)));
    }
}

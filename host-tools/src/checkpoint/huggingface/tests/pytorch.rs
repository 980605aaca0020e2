//! Folders whose weights are `pytorch_model.bin`, whole and in parts: the tensors of the safetensors folder of the same model.

use super::made::{Made, llama};
use crate::checkpoint::tests::torch::{BFLOAT16, FLOAT, HALF, Torch};
use crate::checkpoint::{Checkpoint, open};
use crate::error::{Class, Error};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use tempfile::TempDir;

type Round = fn(f32) -> f32;

const INDEX: &str = "pytorch_model.bin.index.json";

fn torch(made: &Made, class: &'static str, names: impl Fn(&str) -> bool) -> Torch {
    let mut torch = Torch::empty();
    for (name, shape, values) in made.tensors.iter().filter(|(name, ..)| names(name)) {
        torch.add_as(class, name, shape, values);
    }
    torch
}

/// Writes the folder with the weights in three files: odd layers, even layers, and the rest.
fn save_parts(made: &Made, class: &'static str, folder: &Path) {
    fs::write(folder.join("config.json"), made.config.to_string()).unwrap();
    let part = |name: &str| if name.contains("layers.0.") { 1 } else { 2 + usize::from(!name.contains("layers.")) };
    let file = |number: usize| format!("pytorch_model-{number:05}-of-00003.bin");
    for number in 1..4 {
        fs::write(folder.join(file(number)), torch(made, class, |name| part(name) == number).state_zip()).unwrap();
    }
    let map: serde_json::Map<String, Value> = made.tensors.iter().map(|(name, ..)| (name.clone(), json!(file(part(name))))).collect();
    fs::write(folder.join(INDEX), json!({"metadata": {"total_size": 1}, "weight_map": map}).to_string()).unwrap();
}

fn bits(checkpoint: &Checkpoint, round: Round) -> Vec<(String, Vec<u32>)> {
    let bits = |values: Vec<f32>| values.into_iter().map(|value| round(value).to_bits()).collect();
    checkpoint.arrays().map(|array| (array.name().to_owned(), bits(array.to_vec().unwrap()))).collect()
}

#[test]
fn weights_of_pytorch_are_those_of_safetensors() {
    let made = llama();
    let whole = TempDir::new().unwrap();
    let whole = open(&made.save(&whole)).unwrap();
    for (class, round) in [
        (FLOAT, (|value| value) as Round),
        (HALF, |value| half::f16::from_f32(value).to_f32()),
        (BFLOAT16, |value| half::bf16::from_f32(value).to_f32()),
    ] {
        let one = TempDir::new().unwrap();
        fs::write(one.path().join("config.json"), made.config.to_string()).unwrap();
        let all = torch(&made, class, |_| true);
        for bytes in [all.state_zip(), all.state_legacy()] {
            fs::write(one.path().join("pytorch_model.bin"), bytes).unwrap();
            let found = open(one.path()).unwrap();
            assert!(bits(&found, |v| v) == bits(&whole, round), "{class}");
            assert_eq!(found.config, whole.config);
            assert_eq!(found.provenance.file_name, "pytorch_model.bin");
        }
        let parts = TempDir::new().unwrap();
        save_parts(&made, class, parts.path());
        let found = open(parts.path()).unwrap();
        assert!(bits(&found, |v| v) == bits(&whole, round), "{class} in parts");
        assert_eq!(found.config, whole.config);
        assert_eq!((found.provenance.file_name.as_str(), found.files().len()), (INDEX, 4));
    }
}

#[test]
fn class_18_indices_of_pytorch_files_that_lie_are_refused() {
    let refused = |edit: &dyn Fn(&Path, &mut Value)| -> Error {
        let folder = TempDir::new().unwrap();
        save_parts(&llama(), FLOAT, folder.path());
        let path = folder.path().join(INDEX);
        let mut index: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        edit(folder.path(), &mut index);
        fs::write(&path, index.to_string()).unwrap();
        open(folder.path()).unwrap_err()
    };
    let norm = "model.norm.weight";
    let error = refused(&|_, index| index["weight_map"][norm] = json!("../pytorch_model-00003-of-00003.bin")).to_string();
    assert!(error.contains(INDEX) && error.contains("weight_map.model.norm.weight is") && error.contains("in the same folder"), "{error}");
    let error = refused(&|_, index| index["weight_map"][norm] = json!("pytorch_model-00001-of-00003.bin")).to_string();
    assert!(error.contains("model.norm.weight, which the index says is in pytorch_model-00001-of-00003.bin"), "{error}");
    let error = refused(&|_, index| index["weight_map"]["ghost"] = json!("pytorch_model-00001-of-00003.bin")).to_string();
    assert!(error.contains("says that ghost is in pytorch_model-00001-of-00003.bin, where it is not"), "{error}");
    let error = refused(&|folder, _| fs::remove_file(folder.join("pytorch_model-00002-of-00003.bin")).unwrap());
    assert!(error.class() == Class::Unreadable && error.to_string().contains("pytorch_model-00002-of-00003.bin"), "{error}");
    let error = refused(&|folder, _| {
        let path = folder.join("pytorch_model-00002-of-00003.bin");
        let bytes = fs::read(&path).unwrap();
        fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    });
    assert!(error.class() == Class::Damaged && error.to_string().contains("pytorch_model-00002-of-00003.bin"), "{error}");
}

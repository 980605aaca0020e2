//! The models of the shared data, in both formats: every array bit for bit, and what is known of it.

use super::super::{RustyMl, open};
use crate::checkpoint::tests::data;
use crate::checkpoint::{Checkpoint, Config};
use dmexp_format::arch::sequential::Op;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Every model with the description beside it.
pub(super) fn models() -> Vec<(PathBuf, PathBuf)> {
    let Some(folder) = data("rustyml") else { return Vec::new() };
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut models: Vec<_> = files.filter(|path| path.extension().is_some_and(|end| end == "bin")).collect();
    models.sort();
    models.into_iter().map(|path| (path.clone(), path.with_extension("json"))).collect()
}

/// The values of an array as `RustyML` has them: row-major in its own shape.
fn in_source_order(checkpoint: &Checkpoint, name: &str, shape: &[u64]) -> Vec<f32> {
    let Config::Sequential(source) = &checkpoint.config else { panic!("it is sequential") };
    let array = checkpoint.array(name).unwrap_or_else(|| panic!("{name}"));
    let stored = array.to_vec().unwrap();
    let (layer, role) = name.split_once('.').unwrap();
    let op = source.settings.layers[layer.parse::<usize>().unwrap()].layer.op;
    if !role.ends_with("kernel") {
        return stored;
    }
    let cols = array.dims().cols() as usize;
    let rows = stored.len() / cols;
    // Places are worked out one by one, from the last two axes of the shape and the taps before them.
    let (a, b) = (shape[shape.len() - 2] as usize, shape[shape.len() - 1] as usize);
    let taps = stored.len() / a / b;
    let mut values = Vec::new();
    for tap in 0..taps {
        for i in 0..a {
            for j in 0..b {
                let (row, col) = match (op, role) {
                    (Op::ConvTranspose, _) => (i, tap * b + j),
                    (Op::DepthwiseConv, _) | (_, "depthwise_kernel") => (i * b + j, tap),
                    _ => (j, tap * a + i),
                };
                assert!(row < rows && col < cols, "{name}");
                values.push(stored[row * cols + col]);
            }
        }
    }
    values
}

#[test]
fn every_array_is_the_files_bit_for_bit() {
    for (path, json) in models() {
        let known: Value = serde_json::from_str(&std::fs::read_to_string(&json).unwrap()).unwrap();
        let checkpoint = open(&path, &json).unwrap_or_else(|error| panic!("{error}"));
        let bytes = std::fs::read(&path).unwrap();
        let roster = RustyMl::open(&path).unwrap();
        assert_eq!(u64::from(roster.version()), known["format_version"].as_u64().unwrap());
        let weights = known["weights"].as_array().unwrap();
        assert_eq!(checkpoint.arrays().count(), weights.len(), "{}", path.display());
        for weight in weights {
            let name = weight["path"].as_str().unwrap();
            let shape: Vec<u64> = weight["shape"].as_array().unwrap().iter().map(|size| size.as_u64().unwrap()).collect();
            let values = in_source_order(&checkpoint, name, &shape);
            let found = roster.model.layers.iter().enumerate().find_map(|(number, layer)| {
                let array = layer.arrays.iter().find(|array| format!("{number}.{}", array.name) == name)?;
                Some((array.offset as usize, array.shape.clone()))
            });
            let (offset, stored_shape) = found.unwrap();
            assert_eq!(stored_shape, shape, "{name} of {}", path.display());
            let source: Vec<u32> =
                bytes[offset..].as_chunks::<4>().0.iter().take(values.len()).map(|word| u32::from_le_bytes(*word)).collect();
            let found: Vec<u32> = values.iter().map(|value| value.to_bits()).collect();
            assert_eq!(found, source, "{name} of {}", path.display());
            for (value, head) in values.iter().zip(weight["head"].as_array().unwrap()) {
                assert_eq!(*value, head.as_f64().unwrap() as f32, "{name} of {}", path.display());
            }
            let sum: f64 = values.iter().map(|value| f64::from(*value)).sum();
            assert!((sum - weight["sum"].as_f64().unwrap()).abs() < 1e-6, "{name} of {}: {sum}", path.display());
        }
    }
}

#[test]
fn what_the_architecture_leaves_out_is_taken_from_the_file() {
    for (path, json) in models() {
        let mut known: Value = serde_json::from_str(&std::fs::read_to_string(&json).unwrap()).unwrap();
        let whole = open(&path, &json).unwrap();
        let arch = known["arch"].as_object_mut().unwrap();
        for layer in arch["layers"].as_array_mut().unwrap() {
            for key in ["units", "filters", "kernel_size", "depth_multiplier", "input_dim", "output_dim"] {
                layer.as_object_mut().unwrap().remove(key);
            }
        }
        let folder = tempfile::tempdir().unwrap();
        let short = folder.path().join("arch.json");
        std::fs::write(&short, serde_json::to_string(arch).unwrap()).unwrap();
        assert_eq!(open(&path, &short).unwrap_or_else(|error| panic!("{}: {error}", path.display())).config, whole.config);
    }
}

#[test]
fn both_spellings_of_an_architecture_are_one() {
    let Some(path) = data("rustyml/kws_cnn1d.bin") else { return };
    let toml = r#"
[model]
kind = "sequential"
[[layer]]
type = "Conv1D"
stride = 2
padding = "same"
use_bias = false
[[layer]]
type = "BatchNormalization"
epsilon = 1e-3
[[layer]]
type = "ReLU"
[[layer]]
type = "MaxPooling1D"
pool_size = 2
[[layer]]
type = "Conv1D"
activation = "relu"
[[layer]]
type = "AveragePooling1D"
pool_size = 3
stride = 2
padding = "same"
[[layer]]
type = "SpatialDropout1D"
[[layer]]
type = "GlobalAveragePooling1D"
[[layer]]
type = "Dense"
activation = "softmax"
[meta]
author = "nobody"
"#;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("kws.arch.toml");
    std::fs::write(&file, toml).unwrap();
    let (a, b) = (open(&path, &file).unwrap(), open(&path, Path::new(&path.with_extension("json"))).unwrap());
    assert_eq!(a.config, b.config);
    std::fs::write(&file, format!("{toml}classes = {:?}\n", (0..12).map(|n| format!("word {n}")).collect::<Vec<_>>())).unwrap();
    let Config::Sequential(labelled) = open(&path, &file).unwrap().config else { panic!("it is sequential") };
    assert_eq!(labelled.settings.labels.len(), 12);
    std::fs::write(&file, format!("{toml}classes = [\"yes\", \"no\"]\n")).unwrap();
    assert!(open(&path, &file).unwrap_err().to_string().contains("labels"));
}

//! `PyTorch` checkpoints: the arrays of every container against those of llama2.c's own format, and what is refused.

use super::data;
use super::llama2c::source;
use super::made::SHAPE;
use super::torch::{BFLOAT16, FLOAT, HALF, Made, Torch, float, int, small, text};
use crate::checkpoint::{Checkpoint, from_bytes, open};
use crate::error::{Class, Error};
use half::{bf16, f16};
use std::path::Path;

type Round = fn(f32) -> f32;

fn read(bytes: Vec<u8>) -> Result<Checkpoint, Error> {
    from_bytes(Path::new("ckpt.pt"), bytes)
}

/// The names and bits of all arrays, the values rounded by `round` first.
fn arrays(checkpoint: &Checkpoint, round: Round) -> Vec<(String, Vec<u32>)> {
    let bits = |values: Vec<f32>| values.into_iter().map(|value| round(value).to_bits()).collect();
    checkpoint.arrays().map(|array| (array.name().to_owned(), bits(array.to_vec().unwrap()))).collect()
}

fn refused(torch: &Torch, class: Class, parts: &[&str]) {
    for bytes in [torch.zip(), torch.legacy()] {
        let error = read(bytes).map(|_| torch).unwrap_err();
        let text = error.to_string();
        assert_eq!(error.class(), class, "{text}");
        assert!(text.starts_with("ckpt.pt: "), "{text}");
        for part in parts {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}

#[test]
fn every_reference_container_has_the_arrays_of_version_0() {
    let exact: Round = |value| value;
    let (to_bf16, to_f16): (Round, Round) = (|value| bf16::from_f32(value).to_f32(), |value| f16::from_f32(value).to_f32());
    for (folder, file, round, importer) in [
        ("llama2c-made/mha_tied", "ckpt.pt", exact, "llama2.c ckpt.pt"),
        ("llama2c-made/mha_tied", "ckpt_legacy_nonzip.pt", exact, "llama2.c ckpt.pt"),
        ("llama2c-made/mha_tied", "ckpt_bf16.pt", to_bf16, "llama2.c ckpt.pt"),
        ("llama2c-made/mha_tied", "ckpt_fp16.pt", to_f16, "llama2.c ckpt.pt"),
        ("llama2c-made/mha_tied", "meta", to_bf16, "Meta"),
        ("llama2c-made/gqa_untied", "ckpt.pt", exact, "llama2.c ckpt.pt"),
        ("llama2c-made/gqa_untied", "meta", to_bf16, "Meta"),
        ("llama2c-made/mqa_odd", "ckpt.pt", exact, "llama2.c ckpt.pt"),
        ("stories260K-derived", "stories260K_rebuilt_ckpt.pt", exact, "llama2.c ckpt.pt"),
    ] {
        let Some(folder) = data(folder) else { return };
        let reference = if folder.ends_with("stories260K-derived") {
            folder.parent().unwrap().join("stories260K/stories260K.bin")
        } else {
            folder.join("model_v0.bin")
        };
        let (made, reference) = (open(&folder.join(file)).unwrap(), open(&reference).unwrap());
        assert!(arrays(&made, exact) == arrays(&reference, round), "{file}");
        let (mut config, expected) = (source(&made).config, source(&reference).config);
        if importer == "Meta" {
            assert_eq!(config.max_seq_len, 2048);
            config.max_seq_len = expected.max_seq_len;
        }
        assert_eq!(config, expected, "{file}");
        assert_eq!(source(&made).inv_freq, source(&reference).inv_freq);
        assert_eq!(made.provenance.importer, importer);
        println!("{}/{file}: {} arrays equal to those of version 0", folder.display(), made.arrays().count());
    }
}

#[test]
fn the_made_checkpoint_is_read_from_both_containers() {
    for shape in [SHAPE, SHAPE.untied()] {
        let torch = Torch::new(shape);
        let reference = from_bytes(Path::new("v0.bin"), shape.v0(None)).unwrap();
        for bytes in [torch.zip(), torch.legacy()] {
            let made = read(bytes).unwrap();
            assert_eq!(source(&made).config, source(&reference).config);
            assert!(arrays(&made, |v| v) == arrays(&reference, |v| v));
        }
    }
}

#[test]
fn half_precision_storages_are_read_to_the_bit() {
    let to_f16: Round = |value| f16::from_f32(value).to_f32();
    let to_bf16: Round = |value| bf16::from_f32(value).to_f32();
    for shape in [SHAPE, SHAPE.untied()] {
        for (class, round) in [(HALF, to_f16), (BFLOAT16, to_bf16)] {
            let whole = read(Torch::new(shape).zip()).unwrap();
            let mut torch = Torch::new(shape);
            let names: Vec<String> = torch.tensors.iter().map(|tensor| tensor.name.clone()).collect();
            for name in names.iter().filter(|name| !(shape.tied && *name == "output.weight")) {
                torch.narrow(name, class);
            }
            if shape.tied {
                torch.tensor("output.weight").class = class;
            }
            for bytes in [torch.zip(), torch.legacy()] {
                let made = read(bytes).unwrap();
                assert!(arrays(&made, |v| v) == arrays(&whole, round), "{class}");
                assert_eq!(source(&made).config, source(&whole).config);
            }
        }
    }
    // Each tensor has its own type: norms often stay in f32.
    let mut torch = Torch::new(SHAPE.untied());
    torch.narrow("layers.1.feed_forward.w2.weight", HALF);
    torch.narrow("output.weight", BFLOAT16);
    let (made, whole) = (read(torch.zip()).unwrap(), read(Torch::new(SHAPE.untied()).zip()).unwrap());
    for ((name, found), (_, wanted)) in arrays(&made, |v| v).into_iter().zip(arrays(&whole, |v| v)) {
        let round = match name.as_str() {
            "layers.1.feed_forward.w2.weight" => to_f16,
            "output.weight" => to_bf16,
            _ => |value| value,
        };
        assert_eq!(found, wanted.into_iter().map(|bits| round(f32::from_bits(bits)).to_bits()).collect::<Vec<_>>(), "{name}");
    }
    // A storage shorter than its type calls for is damaged, not read past.
    torch.storages.last_mut().unwrap().1.pop();
    let error = read(torch.zip()).unwrap_err();
    assert!(error.class() == Class::Damaged && error.to_string().contains("storage"), "{error}");
}

#[test]
fn prefixes_of_the_compiler_are_taken_off_and_values_that_are_equal_tie() {
    let mut torch = small();
    for tensor in &mut torch.tensors {
        tensor.name.insert_str(0, "_orig_mod.");
    }
    // A copy of the embedding in a storage of its own.
    let bytes = torch.storages[0].1.clone();
    torch.storages.push(("copy".to_owned(), bytes));
    torch.tensor("_orig_mod.output.weight").storage = "copy".to_owned();
    let made = read(torch.zip()).unwrap();
    assert!(source(&made).config.tied_embeddings);
    assert!(made.array("output.weight").is_none());
    // One value of it another: then it is a classifier of its own, and stays one.
    torch.storages.last_mut().unwrap().1[0] ^= 1;
    let made = read(torch.zip()).unwrap();
    assert!(!source(&made).config.tied_embeddings);
    let differing = made.array("output.weight").unwrap().to_vec().unwrap()[0];
    assert_ne!(differing.to_bits(), made.array("tok_embeddings.weight").unwrap().to_vec().unwrap()[0].to_bits());
    let twice = Made { name: "norm.weight".to_owned(), ..torch.tensor("_orig_mod.norm.weight").clone() };
    torch.tensors.push(twice);
    refused(&torch, Class::Mismatch, &["two tensors norm.weight"]);
}

#[test]
fn views_into_shared_storages_are_followed() {
    let expected = arrays(&read(small().zip()).unwrap(), |v| v);
    let mut torch = small();
    // All storages in one, the matrices transposed in it.
    let mut all: Vec<u8> = vec![0xee; 4 * 5];
    for tensor in &mut torch.tensors {
        let bytes = torch.storages.iter().find(|(key, _)| *key == tensor.storage).unwrap().1.clone();
        tensor.offset = all.len() / 4;
        if let [rows, cols] = tensor.sizes[..] {
            tensor.strides = vec![1, rows];
            all.extend((0..rows * cols).flat_map(|place| bytes[4 * (place % rows * cols + place / rows)..][..4].to_vec()));
        } else {
            all.extend(bytes);
        }
    }
    let count = all.len() / 4;
    for tensor in &mut torch.tensors {
        (tensor.storage, tensor.count) = ("all".to_owned(), count);
    }
    torch.storages = vec![("all".to_owned(), all)];
    for bytes in [torch.zip(), torch.legacy()] {
        assert!(arrays(&read(bytes).unwrap(), |v| v) == expected);
    }
    let last = torch.tensor("norm.weight");
    last.offset = count - 11;
    refused(&torch, Class::Damaged, &["norm.weight", "reaches past its storage"]);
}

#[test]
fn tensors_that_are_missing_left_over_or_of_other_sizes_are_named() {
    let all: Vec<String> = small().tensors.iter().map(|tensor| tensor.name.clone()).collect();
    for name in all {
        let mut torch = small();
        torch.tensors.retain(|tensor| tensor.name != name);
        refused(&torch, Class::Mismatch, &["has no tensor", &name]);
    }
    let mut torch = small();
    torch.add("layers.0.attention.wq.bias", &[12], &[0.0; 12]);
    refused(&torch, Class::Mismatch, &["layers.0.attention.wq.bias"]);
    let mut torch = small();
    torch.tensor("layers.1.attention.wk.weight").sizes = vec![3, 12];
    refused(&torch, Class::Mismatch, &["layers.1.attention.wk.weight [3, 12]", "[4, 12]"]);
    let mut torch = small();
    torch.tensor("norm.weight").class = "IntStorage";
    refused(&torch, Class::Mismatch, &["norm.weight", "int32"]);
    let mut torch = small();
    torch.tensor("norm.weight").sizes = vec![];
    torch.tensor("norm.weight").strides = vec![];
    refused(&torch, Class::Mismatch, &["norm.weight", "0 axes"]);
    let mut torch = small();
    torch.tensor("norm.weight").storage = "nowhere".to_owned();
    assert!(read(torch.zip()).unwrap_err().to_string().contains("storage \"nowhere\" is not in the file"));
}

#[test]
fn arguments_are_compared_and_unknown_ones_named() {
    for (key, value, class, parts) in [
        ("dim", None, Class::Mismatch, ["model_args", "has no dim"]),
        ("dim", Some(int(-12)), Class::Mismatch, ["dim", "-12"]),
        ("dim", Some(text("12")), Class::Mismatch, ["dim", "a string"]),
        ("n_heads", Some(int(5)), Class::Mismatch, ["12", "n_heads 5"]),
        ("n_heads", Some(int(4)), Class::Mismatch, ["head_dim", "3"]),
        ("n_kv_heads", Some(int(2)), Class::Mismatch, ["n_kv_heads", "2"]),
        ("n_layers", Some(int(3)), Class::Mismatch, ["has no tensor", "layers.2.attention_norm.weight"]),
        ("n_layers", Some(int(1)), Class::Mismatch, ["layers.1", "does not have"]),
        ("vocab_size", Some(int(8)), Class::Mismatch, ["vocab_size is 8", "7 rows"]),
        ("hidden_dim", Some(int(24)), Class::Mismatch, ["hidden_dim is 24", "20 rows"]),
        // 12 * 8 / 3 = 32, rounded up to 32.
        ("hidden_dim", None, Class::Mismatch, ["hidden_dim is 32", "20 rows"]),
        ("norm_eps", Some(float(0.0)), Class::Mismatch, ["norm_eps", "positive"]),
        ("norm_eps", Some(float(f64::NAN)), Class::Mismatch, ["norm_eps", "positive"]),
        ("window", Some(int(4)), Class::NotAModel, ["\"window\"", "not known"]),
    ] {
        let mut torch = small();
        torch.arg(key, value);
        refused(&torch, class, &parts);
    }
    let mut torch = small();
    torch.arg("norm_eps", Some(float(1e-6)));
    torch.arg("rope_theta", Some(float(500_000.0)));
    torch.arg("window", Some(b"N".to_vec()));
    torch.arg("n_kv_heads", Some(int(1)));
    let made = read(torch.zip()).unwrap();
    assert_eq!((source(&made).config.norm_eps, source(&made).rope_theta), (1e-6, 500_000.0));
    assert_eq!(source(&made).inv_freq, crate::checkpoint::rope::inv_freq(500_000.0, 4));
    assert!(source(&made).fixed.iter().all(|fixed| fixed.key != "norm_eps" && fixed.key != "rope_theta"));
}

#[test]
fn tables_of_another_rotation_are_refused() {
    let angle = |theta: f32, place: usize| (place / 2) as f32 * theta.powf(-((place % 2) as f32) / 2.0);
    let table = |function: fn(f32) -> f32, theta| (0..18).map(|place| function(angle(theta, place))).collect::<Vec<_>>();
    let mut torch = small();
    torch.add("freqs_cos", &[9, 2], &table(f32::cos, 1e4));
    torch.add("freqs_sin", &[9, 2], &table(f32::sin, 1e4));
    torch.add("rope.freqs", &[2], &[1.0, 0.01]);
    assert!(arrays(&read(torch.zip()).unwrap(), |v| v) == arrays(&read(small().zip()).unwrap(), |v| v));
    let mut torch = small();
    torch.add("freqs_sin", &[9, 2], &table(f32::sin, 50.0));
    refused(&torch, Class::Mismatch, &["freqs_sin", "pair 1", "theta of 10000"]);
    let mut torch = small();
    torch.add("rope.freqs", &[2], &[1.0, 0.0125]);
    refused(&torch, Class::Mismatch, &["rope.freqs", "0.0125"]);
    let mut torch = small();
    torch.add("rope.freqs", &[3], &[1.0, 0.01, 0.0]);
    refused(&torch, Class::Mismatch, &["rope.freqs [3]", "half a head are 2"]);
}

#[test]
fn other_files_of_pytorch_are_told_what_to_name() {
    for (name, advice) in
        [("tok_embeddings.weight", "params.json"), ("model.embed_tokens.weight", "config.json"), ("layer.weight", "\"layer.weight\"")]
    {
        let mut torch = small();
        torch.tensors.truncate(1);
        torch.tensors[0].name = name.to_owned();
        let pickle = super::torch::pickled(&torch.state(false));
        let error = read(super::torch::zip(&pickle, &torch.storages)).unwrap_err();
        assert_eq!(error.class(), Class::NotAModel);
        assert!(error.to_string().contains(advice), "{error}");
    }
    assert_eq!(small().tensors[0].class, FLOAT);
}

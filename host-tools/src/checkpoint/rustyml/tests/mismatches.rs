//! Architectures that do not belong to the file: named with path and both sides before a number is computed.

use super::super::open;
use crate::checkpoint::tests::data;
use crate::error::Class;
use serde_json::{Value, json};

/// What is said of `model` with its architecture edited.
fn refused(model: &str, edit: impl Fn(&mut Value)) -> Option<String> {
    let path = data(&format!("rustyml/{model}.bin"))?;
    let text = std::fs::read_to_string(path.with_extension("json")).unwrap();
    let mut known: Value = serde_json::from_str(&text).unwrap();
    edit(&mut known["arch"]);
    let folder = tempfile::tempdir().unwrap();
    let arch = folder.path().join("arch.json");
    std::fs::write(&arch, known["arch"].to_string()).unwrap();
    let error = open(&path, &arch).expect_err(model);
    assert_eq!(error.class(), Class::Mismatch, "{error}");
    Some(error.to_string())
}

#[test]
fn wrong_hyper_parameters_are_found_where_the_next_layer_was_built() {
    // Model, layer, key, wrong value, what must be said.
    let table: [(&str, usize, &str, Value, &[&str]); 18] = [
        ("kws_cnn1d", 0, "stride", json!(3), &["layer 1", "(None, 17, 16)", "(None, 25, 16)", "layer 0 makes", "stride = 3"]),
        ("kws_cnn1d", 0, "padding", json!("valid"), &["layer 1", "(None, 23, 16)", "(None, 25, 16)", "padding = \"valid\""]),
        ("kws_cnn1d", 3, "pool_size", json!(3), &["layer 4", "(None, 8, 16)", "(None, 12, 16)", "pool_size = 3"]),
        ("kws_cnn1d", 5, "stride", json!(3), &["layer 6", "layer 5 makes", "stride = 3"]),
        ("kws_cnn1d", 0, "kernel_size", json!(7), &["0.kernel", "[7, 10, 16]", "[5, 10, 16]"]),
        ("kws_cnn1d", 0, "filters", json!(8), &["0.kernel", "[5, 10, 8]", "[5, 10, 16]"]),
        ("kws_cnn1d", 0, "use_bias", json!(true), &["layer 0", "[\"kernel\", \"bias\"]", "[\"kernel\"]"]),
        ("kws_cnn1d", 1, "center", json!(false), &["layer 1", "\"beta\""]),
        ("kws_cnn1d", 8, "units", json!(10), &["8.kernel", "[24, 10]", "[24, 12]"]),
        ("lstm_har", 0, "return_sequences", json!(false), &["layer[1]", "(None, 12)"]),
        ("mnist_cnn2d", 3, "strides", json!([1, 1]), &["layer 4", "layer 3 makes", "strides = [1, 1]"]),
        ("mnist_cnn2d", 4, "padding", json!("valid"), &["layer 5", "padding = \"valid\""]),
        ("mnist_cnn2d", 4, "pool_size", json!([7, 7]), &["layer[4]", "(None, 6, 6, 16)"]),
        ("autoencoder2d", 3, "padding", json!("same"), &["layer 4", "layer 3 makes"]),
        ("autoencoder2d", 6, "cropping", json!([[1, 1], [1, 2]]), &["layer 7", "cropping = [[1, 1], [1, 2]]"]),
        ("autoencoder2d", 5, "size", json!([2, 2]), &["layer 6", "size = [2, 2]"]),
        ("resize2d", 0, "padding", json!([[1, 1], [0, 1]]), &["layer 1", "padding = [[1, 1], [0, 1]]"]),
        ("ds_cnn2d", 3, "depth_multiplier", json!(1), &["3.kernel", "[3, 3, 8, 1]", "[3, 3, 8, 2]"]),
    ];
    for (model, layer, key, value, parts) in table {
        let Some(text) = refused(model, |arch| arch["layers"][layer][key] = value.clone()) else { return };
        for part in parts {
            assert!(text.contains(part), "{model} {layer}.{key} = {value}: {text}");
        }
    }
}

/// `RustyML` records two axes for a dense layer whatever its input has: what it gets is said, for nothing can check it.
#[test]
fn what_the_file_cannot_tell_is_said() {
    let Some(path) = data("rustyml/lstm_har.bin") else { return };
    let mut known: Value = serde_json::from_str(&std::fs::read_to_string(path.with_extension("json")).unwrap()).unwrap();
    assert!(open(&path, &path.with_extension("json")).unwrap().notes.is_empty());
    known["arch"]["layers"][1]["return_sequences"] = json!(true);
    let folder = tempfile::tempdir().unwrap();
    let arch = folder.path().join("arch.json");
    std::fs::write(&arch, known["arch"].to_string()).unwrap();
    let notes = open(&path, &arch).unwrap().notes;
    assert!(notes.iter().any(|note| note.contains("layer 2") && note.contains("(None, 24, 8)")), "{notes:?}");
}

#[test]
fn other_layers_and_wiring_are_refused() {
    type Edit = fn(&mut Value);
    let table: [(&str, Edit, &[&str]); 7] = [
        ("mlp", |arch| drop(arch["layers"].as_array_mut().unwrap().pop()), &["2 layers", "has 3"]),
        ("mlp", |arch| arch["layers"][1] = json!({ "type": "ReLU" }), &["layer 1", "`ReLU`", "`Dense`"]),
        ("mlp", |arch| arch["input_shape"] = json!([5]), &["layer 0", "(None, 5)", "(None, 4)"]),
        ("mlp", |arch| arch["layers"][1]["activation"] = json!("swish"), &["layer[1].activation", "swish"]),
        ("mlp", |arch| arch["layers"][1]["rate"] = json!(0.5), &["layer[1].rate", "units"]),
        ("graph_residual", |arch| arch["nodes"][9]["inputs"] = json!([6]), &["layer[9]", "(None, 8, 8)"]),
        ("graph_residual", |arch| arch["layers"][9]["axis"] = json!(3), &["layer[9].axis"]),
    ];
    for (model, edit, parts) in table {
        let Some(text) = refused(model, edit) else { return };
        for part in parts {
            assert!(text.contains(part), "{model}: {text}");
        }
    }
}

#[test]
fn architecture_files_that_are_none_are_refused_in_their_order() {
    let Some(path) = data("rustyml/mlp.bin") else { return };
    let folder = tempfile::tempdir().unwrap();
    let arch = folder.path().join("arch.toml");
    assert_eq!(open(&path, &arch).unwrap_err().class(), Class::Unreadable);
    for (text, class) in [
        (b"\xff\xfe".as_slice(), Class::Damaged),
        (b"[model", Class::Damaged),
        (b"{\"kind\": 1,", Class::Damaged),
        (b"{\"kind\": \"graph\", \"kind\": \"sequential\"}", Class::Damaged),
        (b"", Class::Mismatch),
        (b"model = 1", Class::Mismatch),
        (b"[model]\nkind = \"sequential\"", Class::Mismatch),
    ] {
        std::fs::write(&arch, text).unwrap();
        let error = open(&path, &arch).unwrap_err();
        assert_eq!(error.class(), class, "{error}");
        assert!(error.to_string().contains("arch.toml"), "{error}");
    }
    // What is wrong, not the whole of it.
    std::fs::write(&arch, "a=".to_owned() + &"[".repeat(100_000)).unwrap();
    let error = open(&path, &arch).unwrap_err().to_string();
    assert!(error.contains("(at byte ") && error.len() < 400, "{error}");
    std::fs::write(&arch, "model = 1").unwrap();
    // The model file comes first.
    let error = open(&arch, &arch).unwrap_err();
    assert_eq!(error.class(), Class::NotAModel, "{error}");
    assert!(error.to_string().contains("0x524d4c4d"), "{error}");
    let missing = folder.path().join("missing.bin");
    assert_eq!(open(&missing, &arch).unwrap_err().class(), Class::Unreadable);
}

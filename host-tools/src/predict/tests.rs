//! Numbers in and out as files, what is refused of them, and folding and sampling on the shared models.

use super::*;
use crate::checkpoint::rustyml;
use crate::error::Class;
use crate::export::{Format, Options, run};
use dmexp_format::DType;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

fn data(name: &str) -> Option<PathBuf> {
    crate::export::tests::data(&format!("rustyml/{name}"))
}

/// An export of a shared model, and the samples that come with it.
fn exported(name: &str, change: impl FnOnce(&mut Options)) -> Option<(Loaded, Vec<Sample>, crate::export::Report)> {
    let source = data(&format!("{name}.bin"))?;
    let arch = source.with_extension("json");
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("model.dmexp");
    let mut options = Options { dtype: DType::F32, format: Format::V2, ..Options::new(&out) };
    change(&mut options);
    let report = run(&rustyml::open(&source, &arch).unwrap(), &options, &AtomicBool::new(false), &mut |_| ()).unwrap();
    let bytes = std::fs::read(&out).unwrap();
    let known = samples(&std::fs::read_to_string(&arch).unwrap()).unwrap();
    Some((Loaded::from_bytes(&out, bytes).unwrap(), known, report))
}

const SEQUENTIAL: [&str; 3] = ["mlp_batchnorm.v4", "ds_cnn2d", "lstm_har"];

#[test]
fn an_array_survives_numpys_file_and_other_types_are_read() {
    let tensor = Tensor::new(vec![2, 3], vec![1.0, -0.5, f32::MIN_POSITIVE, 3.25, 1e30, -0.0]).unwrap();
    let bytes = write_npy(&tensor);
    assert_eq!((bytes.len() - 24) % 64, 0);
    assert_eq!(read_npy(&bytes).unwrap(), (tensor, None));
    let made = |descr: &str, fortran: &str, shape: &str, values: &[u8]| {
        let header = format!("{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {shape}, }}\n");
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend((header.len() as u16).to_le_bytes());
        bytes.extend(header.bytes());
        bytes.extend(values);
        bytes
    };
    // numpy.asfortranarray([[0, 1, 2], [3, 4, 5]]).
    let (turned, _) = read_npy(&made("|u1", "True", "(2, 3)", &[0, 3, 1, 4, 2, 5])).unwrap();
    assert_eq!((turned.shape, turned.data), (vec![2, 3], vec![0.0, 1.0, 2.0, 3.0, 4.0, 5.0]));
    let wide: Vec<u8> = [0.1f64, -2.0].iter().flat_map(|value| value.to_le_bytes()).collect();
    let (narrowed, note) = read_npy(&made("<f8", "False", "(2,)", &wide)).unwrap();
    assert_eq!((narrowed.data, note.is_some()), (vec![0.1, -2.0], true));
    let (one, _) = read_npy(&made("<i8", "False", "()", &(-7i64).to_le_bytes())).unwrap();
    assert_eq!((one.shape, one.data), (vec![], vec![-7.0]));
    for (bytes, class, words) in [
        (b"PK\x03\x04".to_vec(), Class::NotAModel, "no .npy"),
        (b"\x93NUMPY\x04\x00\x00\x00".to_vec(), Class::NotAModel, "format 4"),
        (b"\x93NUMPY\x01\x00\xff".to_vec(), Class::Damaged, "within its header"),
        (b"\x93NUMPY\x02\x00\xff\xff\xff\x7f".to_vec(), Class::Damaged, "at most 65536"),
        (made("<f4", "False", "(2,", &[0; 8]), Class::Damaged, "header"),
        (made("<f4", "Maybe", "(2,)", &[0; 8]), Class::Damaged, "header"),
        (made("<f4", "False", "(2,)", &[0; 7]), Class::Damaged, "7 bytes"),
        (made("<f4", "False", "(4611686018427387904, 4)", &[]), Class::Damaged, "0 bytes"),
        (made("<f8", "False", "(1,)", &1e300f64.to_le_bytes()), Class::Unrepresentable, "element 0"),
        (made("<i8", "False", "(1,)", &16_777_217i64.to_le_bytes()), Class::Unrepresentable, "element 0"),
        (made("|O", "False", "(1,)", &[0; 8]), Class::Request, "\"|O\""),
        (made("<c8", "False", "(1,)", &[0; 8]), Class::Request, "float32"),
    ] {
        let error = read_npy(&bytes).unwrap_err();
        assert!(error.class() == class && error.to_string().contains(words), "{words}: {error}");
    }
    // Every cut is refused.
    let whole = write_npy(&Tensor::new(vec![1, 2], vec![1.0, 2.0]).unwrap());
    for len in 0..whole.len() {
        assert!(read_npy(&whole[..len]).is_err(), "{len}");
    }
}

#[test]
fn lines_of_numbers_are_samples_or_rows_of_one() {
    let shape = |sizes: &[u32]| dmexp_format::arch::sequential::shape(sizes.iter().copied()).unwrap();
    let read = |text: &str, sizes: &[u32]| read_csv(text, shape(sizes), false);
    assert_eq!(read("# a comment\n1, 2,3\n\n4;5;6\n", &[3]).unwrap().shape, [2, 3]);
    assert_eq!(read("1 2\n3 4\n5 6\n7 8", &[2, 2]).unwrap().shape, [2, 2, 2]);
    assert_eq!(read("1\t2\t3\t4\n", &[2, 2]).unwrap().shape, [1, 2, 2]);
    for (text, words) in [
        ("", "no numbers"),
        ("a,b\n1,2", "line 1, column 1"),
        ("1,2\n3,", "line 2, column 2"),
        ("1,2\n3", "line 2"),
        ("1,nan", "column 2"),
        ("1,1e39", "column 2"),
        ("1,2,3", "has 1 line of 3 numbers;"),
        ("1\n2", "has 2 lines of 1 number;"),
        ("1,2\n\u{feff}3,4", "line 2, column 1"),
    ] {
        let error = read(text, &[2]).unwrap_err().to_string();
        assert!(error.contains(words), "{words}: {error}");
    }
    assert_eq!(read("\u{feff}1,2\n3,4\n", &[2]).unwrap(), read("1,2\n3,4\n", &[2]).unwrap());
    assert_eq!(read("\u{feff}# a comment\n3 4\n", &[2]).unwrap().data, [3.0, 4.0]);
    assert!(read("1 2\n3 4\n5 6", &[2, 2]).unwrap_err().to_string().contains("2 lines of 2"));
    assert_eq!(write_csv(&Tensor::new(vec![2, 2], vec![1.0, 0.1, -3.5e-9, 2.0]).unwrap()), "1,0.1\n-0.0000000035,2\n");
}

#[test]
fn lines_of_a_sequence_of_any_length_are_one_sample() {
    let shape = |sizes: &[u32]| dmexp_format::arch::sequential::shape(sizes.iter().copied()).unwrap();
    let read = |text: &str, sizes: &[u32]| read_csv(text, shape(sizes), true);
    // As many lines as the file's length, fewer, more, twice as many.
    for lines in 1..9 {
        assert_eq!(read(&"1 2\n".repeat(lines), &[4, 2]).unwrap().shape, [1, lines, 2]);
        assert_eq!(read(&format!("\n\n{}", "1 2\n".repeat(lines)), &[1, 2]).unwrap().shape, [1, lines, 2]);
    }
    assert_eq!(read("1 2\n3 4\n# a comment\n5 6\n\n\n7 8\n9 0\n1 2\n\n", &[4, 2]).unwrap().shape, [2, 3, 2]);
    assert_eq!(read("1 2 3 4\n\n5 6 7 8\n", &[2, 2]).unwrap().shape, [2, 2, 2]);
    assert_eq!(read("1 2 3\n3 4 5\n", &[7]).unwrap().shape, [2, 3]);
    for (text, words) in [
        ("1 2\n3 4\n\n5 6\n", "a sample of 1 line begins, and those before it have 2 (at line 4)"),
        ("1 2 3\n", "2 numbers a line, a line a step"),
    ] {
        let error = read(text, &[4, 2]).unwrap_err().to_string();
        assert!(error.contains(words), "{words}: {error}");
    }
    for (name, free) in [("lstm_har", true), ("gru_anomaly", true), ("kws_cnn1d", false), ("mlp", false), ("graph_residual", false)] {
        let Some((loaded, ..)) = exported(name, |_| ()) else { return };
        assert_eq!(length_is_free(&predictor(&loaded).unwrap()), free, "{name}");
    }
}

#[test]
fn json_that_is_something_else_is_refused() {
    assert_eq!(read_json(r#"[{"shape": [2], "data": [1, 2]}]"#).unwrap(), read_json(r#"{"shape": [2], "data": [1, 2]}"#).unwrap());
    assert_eq!(read_json(r#"{"inputs": [{"shape": [1], "data": [0.5]}]}"#).unwrap()[0].data, [0.5]);
    for (text, words) in [
        ("[", "no JSON"),
        ("[1, 2]", "shape"),
        (r#"[{"shape": [2], "data": [1, null]}]"#, "null"),
        (r#"[{"shape": [2], "data": [1, "2"]}]"#, "quotes"),
        (r#"[{"shape": [-2], "data": [1, 2]}]"#, "shape"),
        (r#"[{"shape": [3], "data": [1, 2]}]"#, "input 0 has 2 numbers"),
        (r#"[{"shape": [4294967296, 4294967296, 4294967296], "data": []}]"#, "0 numbers"),
        (r#"[{"shape": [2], "data": [1, 2], "dtype": "f4"}]"#, "shape"),
    ] {
        let error = read_json(text).unwrap_err().to_string();
        assert!(error.contains(words), "{words}: {error}");
    }
    for (text, words) in [(r#"{"samples": []}"#, "no samples"), (r#"[{"outputs": []}]"#, "sample 0"), ("3", "no list")] {
        let error = samples(text).unwrap_err().to_string();
        assert!(error.contains(words), "{words}: {error}");
    }
}

#[test]
fn a_batch_has_the_bits_of_its_rows_alone() {
    for name in SEQUENTIAL {
        let Some((loaded, known, _)) = exported(name, |_| ()) else { return };
        let predictor = predictor(&loaded).unwrap();
        let mut batch = Tensor::default();
        let mut alone = Vec::new();
        for sample in &known {
            let [input] = sample.inputs.as_slice() else { panic!("{name} has one input") };
            batch.shape = std::iter::once(known.len()).chain(input.shape[1..].iter().copied()).collect();
            batch.data.extend(&input.data);
            alone.extend(predict(&predictor, std::slice::from_ref(input)).unwrap().remove(0).data);
        }
        let together = predict(&predictor, &[batch]).unwrap().remove(0);
        let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
        assert_eq!((together.shape[0], bits(&together.data)), (known.len(), bits(&alone)), "{name}");
    }
}

#[test]
fn inputs_that_do_not_fit_are_refused_with_both_shapes() {
    let Some((loaded, known, _)) = exported("kws_cnn1d", |_| ()) else { return };
    let predictor = predictor(&loaded).unwrap();
    let input = known[0].inputs[0].clone();
    let shaped = |shape: &[usize]| Tensor { shape: shape.to_vec(), data: vec![0.5; shape.iter().product()] };
    let with = |place: usize, value: f32| {
        let mut input = input.clone();
        input.data[place] = value;
        input
    };
    for (inputs, words) in [
        (vec![], "gives 0 inputs, but the model takes 1"),
        (vec![input.clone(), input.clone()], "gives 2 inputs"),
        (vec![shaped(&[1, 49, 9])], "(1, 49, 9); the model takes (None, 49, 10)"),
        (vec![shaped(&[490])], "(490,)"),
        (vec![shaped(&[10, 49])], "(10, 49)"),
        (vec![shaped(&[0, 49, 10])], "is empty"),
        (vec![shaped(&[1, 1, 49, 10])], "(1, 1, 49, 10)"),
        (vec![with(7, f32::NAN)], "element 7 is NaN"),
        (vec![with(0, f32::INFINITY)], "element 0 is inf"),
    ] {
        let error = predict(&predictor, &inputs).unwrap_err().to_string();
        assert!(error.contains(words), "{words}: {error}");
    }
    let without_batch = Tensor { shape: input.shape[1..].to_vec(), ..input.clone() };
    assert_eq!(predict(&predictor, &[without_batch]).unwrap(), predict(&predictor, &[input]).unwrap());
}

#[test]
fn folded_normalisations_change_nothing_but_rounding() {
    for (name, words) in [
        ("mlp_batchnorm", "batch normalisations"),
        ("kws_cnn1d", "folded 1 of 1 batch normalisations: layer 1 into layer 0"),
        ("ds_cnn2d", "batch normalisations"),
        ("autoencoder2d", "batch normalisation"),
    ] {
        let Some(arch) = data(&format!("{name}.json")) else { return };
        let Some((loaded, known, report)) = exported(name, |options| {
            options.fold_batch_norm = true;
            options.samples = Some(arch);
        }) else {
            return;
        };
        println!("{name}: {}", report.warnings.join("; "));
        assert!(report.warnings.iter().any(|warning| warning.contains(words)), "{name}: {:?}", report.warnings);
        assert_eq!((report.golden, report.samples.map(|compared| compared.known)), (known.len(), Some(known.len())));
        assert_eq!(replay(&loaded).unwrap(), known.len() as u32);
        let paths = crate::weights::weight_paths(&loaded).unwrap();
        if name == "kws_cnn1d" {
            assert!(paths.iter().any(|info| info.path == "0.bias") && !paths.iter().any(|info| info.path.starts_with("1.")), "{paths:?}");
        }
    }
}

#[test]
fn golden_vectors_are_replayed_bit_for_bit() {
    let Some(arch) = data("mlp.json") else { return };
    let Some((loaded, ..)) = exported("mlp", |options| options.samples = Some(arch)) else { return };
    assert_eq!(replay(&loaded).unwrap(), 5);
    // The last bit of the last stored output.
    let mut bytes = loaded.bytes().to_vec();
    let place = bytes.len() - 4;
    bytes[place] ^= 1;
    let error = replay(&Loaded::from_bytes(loaded.path(), bytes).unwrap()).unwrap_err().to_string();
    assert!(error.contains("golden vector 4: output 0, element 2"), "{error}");
}

#[test]
fn every_array_is_what_the_checkpoint_has() {
    for name in ["mlp", "graph_residual", "autoencoder2d", "lstm_har.v4", "resize2d", "ds_cnn2d.v4"] {
        let Some((loaded, ..)) = exported(name, |_| ()) else { return };
        let text = std::fs::read_to_string(data(&format!("{name}.json")).unwrap()).unwrap();
        let known: serde_json::Value = serde_json::from_str(&text).unwrap();
        let known = known["weights"].as_array().unwrap();
        let paths = crate::weights::weight_paths(&loaded).unwrap();
        assert!(paths.iter().map(|info| info.path.as_str()).eq(known.iter().map(|weight| weight["path"].as_str().unwrap())), "{name}");
        for expected in known {
            let (info, values) = crate::weights::weight(&loaded, expected["path"].as_str().unwrap()).unwrap();
            assert_eq!(serde_json::json!(info.shape), expected["shape"], "{name} {}", info.path);
            let head = expected["head"].as_array().unwrap();
            let head: Vec<f32> = head.iter().map(|value| value.as_f64().unwrap() as f32).collect();
            assert_eq!(values[..head.len()], head, "{name} {}", info.path);
            let sum: f64 = values.iter().map(|value| f64::from(*value)).sum();
            assert!((sum - expected["sum"].as_f64().unwrap()).abs() < 1e-6, "{name} {}: {sum}", info.path);
        }
    }
    let Some((loaded, ..)) = exported("mlp", |_| ()) else { return };
    let error = crate::weights::weight(&loaded, "0.kernels").unwrap_err().to_string();
    assert!(error.contains("there are 0.kernel, 0.bias"), "{error}");
}

//! Weights onto a file that is there: `RustyML`'s load cases as files, Llama checkpoints, and what a refusal leaves.

use super::*;
use crate::checkpoint::roster::LoadReport;
use crate::checkpoint::rustyml::{RustyMl, of_table, to_rustyml};
use crate::error::Class;
use crate::export::{Loading, Weights, onto};
use dmexp_format::host::{
    Config as FileConfig, Header, Measure, Provenance, SequentialSettings, TensorSpec, Tokenizer as NoTokenizer, to_bytes,
};
use serde_json::Value;

/// A `.dmexp` of this architecture with zeros as weights.
fn zeros(settings: &SequentialSettings, dtype: DType) -> Vec<u8> {
    let mut measure = Measure::new(64).unwrap();
    let mut tensors = Vec::new();
    for wanted in settings.tensors().unwrap() {
        let spec = TensorSpec {
            name: wanted.to_string(),
            dtype: if wanted.role.is_matrix() { dtype } else { DType::F32 },
            dims: wanted.dims,
            group: 0,
            trainable: wanted.role.is_trainable(),
            transposed: wanted.role.is_transposed(),
        };
        let bytes = vec![0; spec.bytes() as usize];
        measure.tensor(spec, &bytes, 0).unwrap();
        tensors.push(bytes);
    }
    let config = FileConfig::Sequential(settings.clone());
    let header = Header::new(config, NoTokenizer::NONE, Provenance::default(), measure.finish()).unwrap();
    to_bytes(&header, 64, &tensors.iter().map(Vec::as_slice).collect::<Vec<_>>()).unwrap()
}

fn load(weights: &Path, base: &Path, partially: bool, out: &Path) -> Result<Loading> {
    onto(Weights::open(weights)?, base, partially, out, &AtomicBool::new(false), &mut |_| ())
}

fn values(path: &Path) -> Vec<(String, Vec<f32>)> {
    let loaded = Loaded::open(path).unwrap();
    let file = loaded.file().unwrap();
    let all = file
        .tensors()
        .map(|tensor| (tensor.name.to_owned(), (0..tensor.view.dims().count() as usize).map(|n| tensor.view.get_f32(n)).collect()));
    all.collect()
}

fn list(value: &Value) -> Vec<String> {
    value.as_array().unwrap().iter().map(|path| path.as_str().unwrap().to_owned()).collect()
}

#[test]
fn every_load_case_writes_what_fits_and_nothing_else() {
    for name in ["load_cases.json", "load_cases.v4.json"] {
        let Some(path) = data(&format!("rustyml/cases/{name}")) else { return };
        let all: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        for case in all["cases"].as_array().unwrap() {
            let folder = tempfile::tempdir().unwrap();
            let (base, out) = (folder.path().join("base.dmexp"), folder.path().join("out.dmexp"));
            let settings = of_table(serde_json::from_value(case["target"].clone()).unwrap()).unwrap();
            if settings.tensors().unwrap().is_empty() {
                continue;
            }
            let dtype = if case["case"] == "array_shape" { DType::Bf16 } else { DType::F32 };
            std::fs::write(&base, zeros(&settings, dtype)).unwrap();
            let file = path.with_file_name(case["file"].as_str().unwrap());
            let strict = load(&file, &base, false, &out);
            assert_eq!(
                strict.as_ref().err().map(crate::error::Error::class),
                (!case["strict_error"].is_null()).then_some(Class::Mismatch),
                "{case}: {strict:?}"
            );
            assert_eq!(out.exists(), strict.is_ok(), "{case}");
            let known = &case["partial"];
            let expected =
                LoadReport { applied: list(&known["applied"]), missing: list(&known["missing"]), unused: list(&known["unused"]) };
            let loaded = load(&file, &base, true, &out);
            if expected.applied.is_empty() {
                let error = loaded.unwrap_err();
                assert!(error.class() == Class::Mismatch && !out.exists(), "{case}: {error}");
                let said = format!("missing {}; unused {}", expected.missing.join(", "), expected.unused.join(", "));
                assert!(error.to_string().contains(&said), "{case}: {error}");
                continue;
            }
            let lists = loaded.unwrap().lists;
            assert_eq!(lists, expected, "{case}");
            for (name, values) in values(&out) {
                let zero = values.iter().all(|value| *value == 0.0);
                // RustyML begins with biases and means of zero.
                let begins = ["bias", "beta", "moving_mean"].iter().any(|end| name.ends_with(end));
                assert!(zero != lists.applied.contains(&name) || begins, "{case}: {name}");
            }
        }
    }
}

#[test]
fn a_model_goes_onto_itself_bit_for_bit_and_over_its_base() {
    for name in ["mlp", "lstm_har", "autoencoder2d", "graph_residual.v4"] {
        let Some(path) = data(&format!("rustyml/{name}.bin")) else { return };
        let folder = tempfile::tempdir().unwrap();
        let arch: Value = serde_json::from_str(&std::fs::read_to_string(path.with_extension("json")).unwrap()).unwrap();
        let settings = of_table(serde_json::from_value(arch["arch"].clone()).unwrap()).unwrap();
        let base = folder.path().join("base.dmexp");
        std::fs::write(&base, zeros(&settings, DType::F32)).unwrap();
        let loading = load(&path, &base, false, &base).unwrap();
        assert_eq!((loading.lists.missing.len(), loading.lists.unused.len()), (0, 0));
        let back = to_rustyml(&Loaded::open(&base).unwrap(), if name.ends_with("v4") { 4 } else { 3 }).unwrap();
        assert_eq!(back, std::fs::read(&path).unwrap(), "{name}");
    }
}

#[test]
fn rustyml_files_come_back_byte_for_byte() {
    let Some(folder) = data("rustyml") else { return };
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|end| end != "bin") {
            continue;
        }
        let checkpoint = checkpoint::rustyml::open(&path, &path.with_extension("json")).unwrap();
        let made = tempfile::tempdir().unwrap();
        let options = options(&made, DType::F32, Format::V2);
        export(&checkpoint, &options).unwrap();
        let loaded = Loaded::open(&options.out).unwrap();
        let version = RustyMl::open(&path).unwrap().version();
        assert_eq!(to_rustyml(&loaded, version).unwrap(), std::fs::read(&path).unwrap(), "{}", path.display());
        // The other format has the same layers.
        let other = to_rustyml(&loaded, 7 - version).unwrap();
        let file = made.path().join("other.bin");
        std::fs::write(&file, other).unwrap();
        assert_eq!(RustyMl::open(&file).unwrap().roster(), RustyMl::open(&path).unwrap().roster());
        assert_eq!(to_rustyml(&loaded, 2).unwrap_err().class(), Class::Request);
        count += 1;
    }
    assert_eq!(count, 26);
}

#[test]
fn llama_layers_of_another_width_are_left_and_others_taken() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, shape: Shape, sign: f32| {
        let path = folder.path().join(name);
        let mut random = random();
        std::fs::write(&path, shape.v0(|_| sign * random() * 0.6)).unwrap();
        path
    };
    let (a, b) = (write("a.bin", SMALL, 1.0), write("b.bin", SMALL, -1.0));
    let deeper = write("deeper.bin", Shape { n_layers: 3, hidden_dim: 32, ..SMALL }, -1.0);
    let base = folder.path().join("base.dmexp");
    export(&checkpoint::open(&a).unwrap(), &Options { dtype: DType::F32, ..Options::new(&base) }).unwrap();
    let out = folder.path().join("out.dmexp");

    let whole = load(&b, &base, false, &out).unwrap();
    assert_eq!((whole.lists.applied.len(), whole.lists.missing.len()), (20, 0));
    let expected = folder.path().join("expected.dmexp");
    export(&checkpoint::open(&b).unwrap(), &Options { dtype: DType::F32, ..Options::new(&expected) }).unwrap();
    assert_eq!(values(&out), values(&expected));
    let tokens: Vec<u32> = (0..20).collect();
    assert_eq!(bits(&file_logits(&out, &tokens, KvDType::F16)), bits(&file_logits(&expected, &tokens, KvDType::F16)));

    let before = std::fs::read(&out).unwrap();
    let error = load(&deeper, &base, false, &out).unwrap_err();
    assert!(error.class() == Class::Mismatch && error.to_string().contains("4 layers, the file has 5"), "{error}");
    assert_eq!(std::fs::read(&out).unwrap(), before);
    let lists = load(&deeper, &base, true, &out).unwrap().lists;
    let ends = ["w1.weight", "w2.weight", "w3.weight"];
    assert!(lists.missing.len() == 6 && lists.missing.iter().all(|path| ends.iter().any(|end| path.ends_with(end))), "{lists:?}");
    assert_eq!(lists.applied.len(), 14);
    assert_eq!(lists.unused.len(), 6 + 9);
    assert!(lists.unused.contains(&"layers.2.attention.wq.weight".to_owned()));

    let narrower = write("narrower.bin", Shape { n_heads: 8, n_kv_heads: 4, ..SMALL }, 1.0);
    let lists = load(&narrower, &base, true, &out).unwrap().lists;
    assert_eq!(lists.applied, ["tok_embeddings.weight", "norm.weight"]);
}

#[test]
fn bases_that_cannot_be_are_refused_and_nothing_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let llama = folder.path().join("a.bin");
    std::fs::write(&llama, SMALL.random()).unwrap();
    let out = folder.path().join("out.dmexp");
    let one = folder.path().join("one.dmexp");
    let format_1 = Options { dtype: DType::F32, format: Format::V1, golden: false, ..Options::new(&one) };
    export(&checkpoint::open(&llama).unwrap(), &format_1).unwrap();
    let settings = "kind = \"sequential\"\ninput_shape = [4]\n[[layer]]\ntype = \"Dense\"\nunits = 2".parse().unwrap();
    let settings = SequentialSettings::from_table("", settings).unwrap();
    let sequential = folder.path().join("sequential.dmexp");
    std::fs::write(&sequential, zeros(&settings, DType::F32)).unwrap();
    let stripped = folder.path().join("stripped.dmexp");
    std::fs::write(&stripped, dmexp_format::host::strip(&zeros(&settings, DType::F32)).unwrap()).unwrap();
    for (base, class, part) in [
        (&one, Class::Request, "format 1"),
        (&stripped, Class::Request, "stripped"),
        (&sequential, Class::Mismatch, "sequential"),
        (&llama, Class::NotAModel, "llama2.c"),
    ] {
        let error = load(&llama, base, true, &out).unwrap_err();
        assert!(error.class() == class && error.to_string().contains(part), "{error}");
        assert!(!out.exists());
    }
    let error = to_rustyml(&Loaded::open(&stripped).unwrap(), 4).unwrap_err();
    assert!(error.to_string().contains("stripped"), "{error}");
}

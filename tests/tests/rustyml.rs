//! `RustyML` models through the real command: in, listed, verified, stripped, refused where they cannot run, and onto a file that is there.

use dmexp::format::DType;
use dmexp::format::host::{Config, Header, Measure, Provenance, SequentialSettings, TensorSpec, Tokenizer, to_bytes};
use dmexp_tests::{data, files, folder, line, run};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};

/// The export of a model of the shared data in `folder`.
fn export(folder: &Path, name: &str, out: &str) -> Option<PathBuf> {
    let source = data(&format!("rustyml/{name}.bin"))?;
    let arch = source.with_extension("json");
    let words = ["export", "run", "--checkpoint", source.to_str()?, "--arch", arch.to_str()?, "--dtype", "f32", "--out", out, "--quiet"];
    run(folder, &words).ok();
    Some(source)
}

#[test]
fn every_model_goes_in_is_verified_and_listed_and_takes_no_text() {
    let mut names: Vec<String> = Vec::new();
    let Some(shared) = data("rustyml/mlp.bin") else { return };
    for name in files(shared.parent().unwrap()) {
        names.extend(name.strip_suffix(".bin").map(str::to_owned));
    }
    assert_eq!(names.len(), 26);
    for name in names {
        let folder = folder();
        export(folder.path(), &name, "model.dmexp").unwrap();
        line(folder.path(), "export verify model.dmexp").ok();
        line(folder.path(), "export strip model.dmexp --out small.dmexp").ok();
        line(folder.path(), "export verify small.dmexp").ok();
        let info = line(folder.path(), "export info model.dmexp --json").json();
        assert_eq!((info["architecture"].as_str(), info["runs_here"].as_bool()), (Some("sequential"), Some(true)), "{name}");
        let small = line(folder.path(), "export info small.dmexp --json").json();
        assert_eq!(info["fingerprint"], small["fingerprint"], "{name}");
        assert_eq!(info["layers"]["outputs"], small["layers"]["outputs"], "{name}");
        let known: Value = serde_json::from_str(&fs::read_to_string(shared.with_file_name(format!("{name}.json"))).unwrap()).unwrap();
        let nodes = info["layers"]["nodes"].as_array().unwrap();
        let expected = known["arch"]["nodes"].as_array().map_or_else(|| known["arch"]["layers"].as_array().unwrap().len() + 1, Vec::len);
        assert_eq!(nodes.len(), expected, "{name}");
        // Samples know the shapes of what goes in and comes out, batch first.
        let sample = &known["samples"][0];
        for (place, output) in info["layers"]["outputs"].as_array().unwrap().iter().enumerate() {
            let shape = &nodes[output.as_u64().unwrap() as usize]["shape"];
            let wanted = sample["outputs"][place]["shape"].as_array().unwrap();
            assert_eq!(shape.as_array().unwrap().as_slice(), &wanted[1..], "{name} output {place}");
        }
        let refused = line(folder.path(), "generate --export model.dmexp --prompt a");
        assert!(refused.code == Some(1) && refused.err.contains("sequential"), "{name}: {refused:?}");
        let format = if name.contains(".v4") { "rustyml" } else { "rustyml-v3" };
        line(folder.path(), &format!("export to --format {format} model.dmexp --out back.bin")).ok();
        let back = fs::read(folder.path().join("back.bin")).unwrap();
        assert_eq!(back, fs::read(shared.with_file_name(format!("{name}.bin"))).unwrap(), "{name}");
        let refused = line(folder.path(), "export to --format llama2c-v0 model.dmexp --out no.bin");
        assert!(refused.code == Some(1) && refused.err.contains("sequential"), "{name}: {refused:?}");
        let text = line(folder.path(), "export info model.dmexp").succeeded();
        assert!(text.text().contains("layers:") && text.text().contains("(None, "), "{name}: {text:?}");
    }
}

#[test]
fn a_model_without_its_architecture_is_refused_with_the_command() {
    let Some(source) = data("rustyml/mlp.bin") else { return };
    let folder = folder();
    let refused = run(folder.path(), &["export", "run", "--checkpoint", source.to_str().unwrap(), "--out", "a.dmexp"]);
    assert!(refused.code == Some(1) && refused.err.contains("--arch"), "{refused:?}");
    let arch = folder.path().join("arch.toml");
    fs::write(&arch, "[model]\nkind = \"sequential\"\n[[layer]]\ntype = \"Dense\"\n").unwrap();
    let refused =
        run(folder.path(), &["export", "run", "--checkpoint", source.to_str().unwrap(), "--arch", "arch.toml", "--out", "a.dmexp"]);
    assert!(refused.code == Some(1) && refused.err.contains("has 1 layers, the file has 3"), "{refused:?}");
    assert_eq!(files(folder.path()), ["arch.toml"]);
}

#[test]
fn damaged_files_have_their_class_in_the_order_of_the_stages() {
    let Some(source) = data("rustyml/cases/load_cases.json") else { return };
    let folder = folder();
    let arch = folder.path().join("arch.json");
    let all: Value = serde_json::from_str(&fs::read_to_string(&source).unwrap()).unwrap();
    fs::write(&arch, all["damaged_target"].to_string()).unwrap();
    for case in all["damaged"].as_array().unwrap() {
        let file = source.with_file_name(case["file"].as_str().unwrap());
        let ran = run(folder.path(), &["export", "run", "--checkpoint", file.to_str().unwrap(), "--arch", "arch.json", "--out", "a.dmexp"]);
        let expected = case["strict_error"].as_str();
        assert_eq!(ran.code, Some(i32::from(expected.is_some())), "{case}: {ran:?}");
        assert_eq!(folder.path().join("a.dmexp").exists(), expected.is_none(), "{case}");
        let word = match expected {
            None => "passed over",
            Some(text) if text.contains("too short") => "too short",
            Some(text) if text.contains("magic") => "0x524d4c4d",
            Some(text) if text.contains("version") => "versions 3 and 4",
            Some(text) if text.contains("structure") => "11",
            Some(_) => "byte",
        };
        assert!(ran.err.contains(word), "{case}: {ran:?}");
        let _ = fs::remove_file(folder.path().join("a.dmexp"));
    }
}

#[test]
fn weights_go_onto_a_base_strictly_or_as_far_as_they_fit() {
    let folder = folder();
    let Some(source) = export(folder.path(), "mlp", "base.dmexp") else { return };
    let words = |more: &str| format!("export run --checkpoint {} --onto base.dmexp --out out.dmexp {more}", source.display());
    let whole = line(folder.path(), &words("--json")).json();
    let all = json!(["0.kernel", "0.bias", "1.kernel", "1.bias", "2.kernel", "2.bias"]);
    assert_eq!((&whole["applied"], &whole["missing"], &whole["unused"]), (&all, &json!([]), &json!([])));
    let other = data("rustyml/mlp_batchnorm.bin").unwrap();
    let words = |more: &str| format!("export run --checkpoint {} --onto base.dmexp --out other.dmexp {more}", other.display());
    let refused = line(folder.path(), &words(""));
    assert!(
        refused.code == Some(1) && refused.err.contains("3 layers, the file has 10") && refused.err.contains("--partial"),
        "{refused:?}"
    );
    assert!(!folder.path().join("other.dmexp").exists());
    line(folder.path(), &words("--partial")).refused(&["mlp_batchnorm.bin", "no weights that fit base.dmexp", "missing 0.kernel, 0.bias"]);
    assert!(!folder.path().join("other.dmexp").exists());
    // A matrix in q8 is not replaced by itself, strictly or leniently.
    let arch = source.with_extension("json");
    let q8 = format!("export run --checkpoint {} --arch {} --dtype q8 --out q8.dmexp --quiet", source.display(), arch.display());
    line(folder.path(), &q8).ok();
    for more in ["", "--partial"] {
        let words = format!("export run --checkpoint {} --onto q8.dmexp --out other.dmexp {more}", source.display());
        line(folder.path(), &words).refused(&["0.kernel as q8", "f32, f16 or bf16"]);
        assert!(!folder.path().join("other.dmexp").exists());
    }
    let usage = line(folder.path(), &words("--dtype f16"));
    assert_eq!(usage.code, Some(2), "{usage:?}");
    let usage = line(folder.path(), &format!("export run --checkpoint {} --partial", other.display()));
    assert_eq!(usage.code, Some(2), "{usage:?}");
}

/// A `.dmexp` of this architecture with zeros as weights.
fn zeros(arch: &Value) -> Vec<u8> {
    let layers = toml::Value::try_from(&arch["layers"]).unwrap();
    let shape = toml::Value::try_from(&arch["input_shape"]).unwrap();
    let keys = [("kind", "sequential".into()), ("input_shape", shape), ("layer", layers)];
    let table = keys.into_iter().map(|(key, value): (&str, toml::Value)| (key.to_owned(), value)).collect();
    let settings = SequentialSettings::from_table("", table).unwrap();
    let (mut measure, mut tensors) = (Measure::new(64).unwrap(), Vec::new());
    for wanted in settings.tensors().unwrap() {
        let (trainable, transposed) = (wanted.role.is_trainable(), wanted.role.is_transposed());
        let spec = TensorSpec { name: wanted.to_string(), dtype: DType::F32, dims: wanted.dims, group: 0, trainable, transposed };
        let bytes = vec![0; spec.bytes() as usize];
        measure.tensor(spec, &bytes, 0).unwrap();
        tensors.push(bytes);
    }
    let header = Header::new(Config::Sequential(settings), Tokenizer::NONE, Provenance::default(), measure.finish()).unwrap();
    to_bytes(&header, 64, &tensors.iter().map(Vec::as_slice).collect::<Vec<_>>()).unwrap()
}

#[test]
fn lenient_loads_take_what_rustyml_takes() {
    for list in ["load_cases.json", "load_cases.v4.json"] {
        let Some(path) = data(&format!("rustyml/cases/{list}")) else { return };
        let known: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        let folder = folder();
        let load = |case: &Value, target: &Value| {
            fs::write(folder.path().join("base.dmexp"), zeros(target)).unwrap();
            let source = path.with_file_name(case["file"].as_str().unwrap());
            let words = format!("export run --checkpoint {} --onto base.dmexp --partial --out out.dmexp --json", source.display());
            line(folder.path(), &words)
        };
        let out = folder.path().join("out.dmexp");
        let (mut loaded, mut refused) = (0, 0);
        for case in known["cases"].as_array().unwrap() {
            let lists = &case["partial"];
            if ["applied", "missing"].iter().all(|key| lists[key] == json!([])) {
                // A model without weights is no .dmexp.
                continue;
            }
            let ran = load(case, &case["target"]);
            if lists["applied"] == json!([]) {
                let told = ran.refused(&["no weights that fit base.dmexp"]);
                let missing = lists["missing"].as_array().unwrap().iter().chain(lists["unused"].as_array().unwrap());
                assert!(missing.map(|path| path.as_str().unwrap()).all(|path| told.contains(path)) && !out.exists(), "{case}: {told}");
                refused += 1;
                continue;
            }
            let report = ran.json();
            for key in ["applied", "missing", "unused"] {
                assert_eq!(report[key], lists[key], "{key}: {case}");
            }
            line(folder.path(), "export verify out.dmexp").ok();
            fs::remove_file(&out).unwrap();
            loaded += 1;
        }
        assert!(loaded >= 9 && refused == 1, "{list}: {loaded} and {refused}");
        for case in known["damaged"].as_array().unwrap() {
            let (told, ran) = (case["partial"].as_str().unwrap(), load(case, &known["damaged_target"]));
            let Some(lists) = told.strip_prefix("LoadReport ") else {
                ran.refused(&[case["file"].as_str().unwrap()]);
                assert!(!out.exists(), "{case}");
                continue;
            };
            // As the compiler prints a report: `{ applied: ["0.bias"], missing: [], unused: [] }`.
            let keys = ["applied", "missing", "unused"];
            let lists = keys.iter().fold(lists.to_owned(), |lists, key| lists.replace(&format!("{key}:"), &format!("{key:?}:")));
            let (lists, report): (Value, _) = (serde_json::from_str(&lists).unwrap(), ran.json());
            assert!(keys.iter().all(|key| report[key] == lists[key]), "{case}: {report}");
            fs::remove_file(&out).unwrap();
        }
    }
}

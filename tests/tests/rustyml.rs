//! `RustyML` models through the real command: in, listed, verified, stripped, refused where they cannot run, and onto a file that is there.

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
    let partial = line(folder.path(), &words("--partial --json")).json();
    assert_eq!((&partial["applied"], &partial["missing"]), (&json!([]), &all));
    let text = line(folder.path(), &words("--partial")).succeeded();
    assert!(text.text().contains("applied: none") && text.text().contains("missing: 0.kernel, 0.bias"), "{text:?}");
    // Nothing was applied: the weights are the base's.
    line(folder.path(), "export verify other.dmexp").ok();
    let crc = |file: &str| line(folder.path(), &format!("export info {file} --json")).json()["payload"]["crc32"].clone();
    assert_eq!(crc("other.dmexp"), crc("base.dmexp"));
    let usage = line(folder.path(), &words("--dtype f16"));
    assert_eq!(usage.code, Some(2), "{usage:?}");
    let usage = line(folder.path(), &format!("export run --checkpoint {} --partial", other.display()));
    assert_eq!(usage.code, Some(2), "{usage:?}");
}

//! Small networks through the real command: samples in, golden vectors replayed, numbers predicted, weights listed, and wrong architectures and damaged files refused.

use dmexp_tests::{Ran, data, files, folder, json, line, piped, run};
use serde_json::{Value, json as value};
use std::fs;
use std::path::{Path, PathBuf};

/// The shared models by name, or none where they are not here.
fn models() -> Vec<(String, PathBuf)> {
    let Some(shared) = data("rustyml/mlp.bin") else { return Vec::new() };
    let names = files(shared.parent().unwrap()).into_iter().filter_map(|name| name.strip_suffix(".bin").map(str::to_owned));
    names.map(|name| (name.clone(), shared.with_file_name(format!("{name}.bin")))).collect()
}

fn export(folder: &Path, source: &Path, arch: &Path, more: &str) -> Ran {
    let mut words =
        ["export", "run", "--checkpoint", source.to_str().unwrap(), "--arch", arch.to_str().unwrap(), "--out", "m.dmexp"].to_vec();
    words.extend(more.split_whitespace());
    run(folder, &words)
}

/// What the command says of `inputs`.
fn predict(folder: &Path, inputs: &Value) -> Value {
    fs::write(folder.join("in.json"), inputs.to_string()).unwrap();
    line(folder, "predict --export m.dmexp --input in.json --json").json()
}

#[test]
fn every_model_predicts_what_rustyml_predicted_and_replays_its_samples() {
    for (name, source) in models() {
        let folder = folder();
        let arch = source.with_extension("json");
        let known = json(&arch);
        let samples = known["samples"].as_array().unwrap();
        let report = export(folder.path(), &source, &arch, &format!("--dtype f32 --json --samples {}", arch.display())).json();
        assert_eq!((&report["golden"], &report["samples"]["compared"]), (&value!(samples.len()), &value!(samples.len())), "{name}");
        let part = report["samples"]["tolerance_used"].as_f64().unwrap();
        assert!(part <= 1.0, "{name}: {part}");
        let verified = line(folder.path(), "export verify m.dmexp").succeeded();
        assert!(verified.text().contains(&format!("golden vectors: {} replayed", samples.len())), "{name}: {verified:?}");
        line(folder.path(), "export strip m.dmexp --out small.dmexp").ok();
        line(folder.path(), "export verify small.dmexp").ok();
        for sample in samples.iter().take(2) {
            let found = predict(folder.path(), &sample["inputs"]);
            for (found, expected) in found["outputs"].as_array().unwrap().iter().zip(sample["outputs"].as_array().unwrap()) {
                assert_eq!(found["shape"], expected["shape"], "{name}");
                for (found, expected) in found["data"].as_array().unwrap().iter().zip(expected["data"].as_array().unwrap()) {
                    let (found, expected) = (found.as_f64().unwrap(), expected.as_f64().unwrap());
                    assert!((found - expected).abs() <= 1e-5 + 1e-5 * expected.abs(), "{name}: {found}, not {expected}");
                }
            }
        }
    }
}

#[test]
fn samples_find_what_no_shape_shows() {
    let edits: [(&str, &str, Value); 12] = [
        ("mlp", "/layers/0/activation", value!("tanh")),
        ("mlp", "/layers/2/activation", value!("sigmoid")),
        ("mlp_batchnorm", "/layers/1/epsilon", value!(0.1)),
        ("norms", "/layers/0/epsilon", value!(0.05)),
        ("norms", "/layers/7/num_groups", value!(4)),
        ("lstm_har", "/layers/0/activation", value!("sigmoid")),
        ("lstm_har", "/layers/1/go_backwards", value!(true)),
        ("gru_anomaly", "/layers/0/activation", value!("relu")),
        ("resize2d", "/layers/1/interpolation", value!("nearest")),
        ("mnist_cnn2d", "/layers/0/scale", value!(0.25)),
        ("graph_residual", "/nodes/6/inputs/0", value!(0)),
        ("activations", "/layers/0/activation", value!("relu")),
    ];
    for (name, pointer, to) in edits {
        let Some(source) = data(&format!("rustyml/{name}.bin")) else { return };
        let folder = folder();
        let known = json(&source.with_extension("json"));
        let mut arch = known["arch"].clone();
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        match arch.pointer_mut(parent).unwrap() {
            Value::Array(list) => list[key.parse::<usize>().unwrap()] = to,
            table => table[key] = to,
        }
        assert_ne!(arch, known["arch"], "{name}{pointer}");
        check_refused(folder.path(), &source, &arch, &known, &format!("{name}{pointer}"));
    }
}

/// That an export with this architecture is refused where the samples disagree, or sooner, and leaves nothing.
fn check_refused(folder: &Path, source: &Path, arch: &Value, known: &Value, what: &str) {
    fs::write(folder.join("arch.json"), arch.to_string()).unwrap();
    fs::write(folder.join("samples.json"), value!({ "samples": known["samples"] }).to_string()).unwrap();
    let arch = folder.join("arch.json");
    for dtype in ["f32", "q8"] {
        let ran = export(folder, source, &arch, &format!("--dtype {dtype} --samples samples.json --quiet"));
        let error = ran.refused(&[]);
        assert!(error.contains("sample 0: output") || error.contains("arch.json"), "{what}: {error}");
        assert!(!folder.join("m.dmexp").exists(), "{what}");
    }
}

#[test]
fn load_cases_are_judged_as_rustyml_judges_them_and_samples_find_the_silent_ones() {
    for list in ["load_cases.json", "load_cases.v4.json"] {
        let Some(path) = data(&format!("rustyml/cases/{list}")) else { return };
        for case in json(&path)["cases"].as_array().unwrap() {
            let folder = folder();
            let source = path.with_file_name(case["file"].as_str().unwrap());
            let write = |name: &str, arch: &Value| {
                fs::write(folder.path().join(name), arch.to_string()).unwrap();
                folder.path().join(name)
            };
            let (saved, target) = (write("saved.json", &case["saved"]), write("target.json", &case["target"]));
            let ran = export(folder.path(), &source, &target, "--dtype f32 --quiet");
            let Some(error) = case["strict_error"].as_str() else {
                ran.ok();
                if !case["case"].as_str().unwrap().starts_with("silent") {
                    continue;
                }
                // What the saved model gives for a made input is not what the target's gives.
                export(folder.path(), &source, &saved, "--dtype f32 --quiet").ok();
                let shape: Vec<u64> = case["saved"]["input_shape"].as_array().unwrap().iter().map(|size| size.as_u64().unwrap()).collect();
                let count: u64 = shape.iter().product();
                let numbers: Vec<f64> = (0..count).map(|place| f64::from((place * 7 % 5) as u32) / 2.0 - 0.75).collect();
                let inputs = value!([{ "shape": shape, "data": numbers }]);
                let outputs = predict(folder.path(), &inputs)["outputs"].clone();
                let samples = value!([{ "inputs": inputs, "outputs": outputs }]);
                fs::write(folder.path().join("samples.json"), samples.to_string()).unwrap();
                export(folder.path(), &source, &saved, "--dtype f32 --quiet --samples samples.json").ok();
                let refused = export(folder.path(), &source, &target, "--dtype f32 --quiet --samples samples.json");
                refused.refused(&["sample 0: output 0, element", "the model gives"]);
                continue;
            };
            let told = ran.refused(&[]);
            // Layers, paths, types and shapes that RustyML names.
            for word in error.split(['`', '"']).skip(1).step_by(2).filter(|word| !word.chars().all(|c| c.is_ascii_digit())) {
                assert!(told.contains(word), "{}: {word:?} is not in: {told}", case["case"]);
            }
            assert!(!folder.path().join("m.dmexp").exists());
        }
    }
}

#[test]
fn numbers_go_in_and_out_in_every_form_with_the_same_bits() {
    let Some(source) = data("rustyml/kws_cnn1d.bin") else { return };
    let arch = source.with_extension("json");
    let folder = folder();
    let classes = "yes,no,up,down,left,right,on,off,stop,go,silence,unknown";
    export(folder.path(), &source, &arch, &format!("--dtype f32 --quiet --classes {classes}")).ok();
    let sample = json(&arch)["samples"][0].clone();
    let found = predict(folder.path(), &sample["inputs"]);
    let numbers: Vec<f64> = found["outputs"][0]["data"].as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect();
    let best = (0..numbers.len()).max_by(|a, b| numbers[*a].total_cmp(&numbers[*b])).unwrap();
    assert_eq!(found["classes"], value!([classes.split(',').nth(best).unwrap()]));
    let text = line(folder.path(), "predict --export m.dmexp --input in.json").succeeded();
    assert!(text.text().starts_with(&format!("{} {}", classes.split(',').nth(best).unwrap(), numbers[best] as f32)), "{text:?}");
    // Ten numbers a line, 49 lines a sample, two samples.
    let data: Vec<String> =
        sample["inputs"][0]["data"].as_array().unwrap().iter().map(|number| (number.as_f64().unwrap() as f32).to_string()).collect();
    let lines: Vec<String> = data.chunks(10).map(|row| row.join(",")).collect();
    fs::write(folder.path().join("in.csv"), format!("{0}\n{0}\n", lines.join("\n"))).unwrap();
    line(folder.path(), "predict --export m.dmexp --input in.csv --out out.json").ok();
    let twice = json(&folder.path().join("out.json"));
    assert_eq!(twice["outputs"][0]["shape"], value!([2, 12]));
    assert_eq!(twice["classes"].as_array().unwrap(), &vec![found["classes"][0].clone(); 2]);
    let rows = twice["outputs"][0]["data"].as_array().unwrap().clone();
    assert!(rows[..12] == rows[12..] && value!(rows[..12]) == found["outputs"][0]["data"]);
    line(folder.path(), "predict --export m.dmexp --input in.csv --out out.npy").ok();
    line(folder.path(), "predict --export m.dmexp --input in.csv --out out.csv").ok();
    let bytes = fs::read(folder.path().join("out.npy")).unwrap();
    let floats: Vec<f32> = bytes[bytes.len() - 96..].as_chunks::<4>().0.iter().map(|word| f32::from_le_bytes(*word)).collect();
    let expected: Vec<f32> = rows.iter().map(|number| number.as_f64().unwrap() as f32).collect();
    assert_eq!(floats, expected);
    let csv = fs::read_to_string(folder.path().join("out.csv")).unwrap();
    assert_eq!(csv.split(['\n', ',']).filter_map(|number| number.parse::<f32>().ok()).collect::<Vec<_>>(), expected);
    for (words, parts) in [
        ("--input in.wav", &["in.wav", ".npy, .csv or .json"][..]),
        ("--input missing.csv", &["missing.csv", "cannot be read"]),
        ("--input in.json --out out.txt.gz", &["out.txt.gz"]),
        ("--input in.json --out m.dmexp.json/x.csv", &["folder"]),
        ("--input in.csv --out in.csv", &["in.csv"]),
    ] {
        line(folder.path(), &format!("predict --export m.dmexp {words}")).refused(parts);
    }
    for (text, parts) in [
        ("1,2\n3,4\n", &["in2.csv", "2 lines of 2 numbers", "490 numbers a line"][..]),
        ("1,x\n", &["in2.csv", "line 1, column 2"]),
        ("1,2\n3\n", &["in2.csv", "line 2"]),
    ] {
        fs::write(folder.path().join("in2.csv"), text).unwrap();
        line(folder.path(), "predict --export m.dmexp --input in2.csv").refused(parts);
    }
    let refused = export(folder.path(), &source, &arch, "--dtype f32 --quiet --classes yes,no");
    refused.refused(&["as many classes"]);
    line(folder.path(), "new firmware --model m.dmexp --board microbit made").refused(&["sequential", "include_model!"]);
    // What would say nothing to this model is not passed over.
    for words in ["--preset small", "--set n_layers=2"] {
        assert_eq!(export(folder.path(), &source, &arch, words).code, Some(2), "{words}");
    }
}

#[test]
fn weights_are_listed_and_given_as_numpys_file() {
    let Some(source) = data("rustyml/graph_residual.v4.bin") else { return };
    let arch = source.with_extension("json");
    let folder = folder();
    export(folder.path(), &source, &arch, "--dtype f32 --quiet").ok();
    let listed = line(folder.path(), "export get m.dmexp --json").json();
    let known = json(&arch)["weights"].clone();
    let paths =
        |list: &Value| list.as_array().unwrap().iter().map(|weight| (weight["path"].clone(), weight["shape"].clone())).collect::<Vec<_>>();
    assert_eq!(paths(&listed), paths(&known));
    let text = line(folder.path(), "export get m.dmexp 0.kernel --npy k.npy").succeeded();
    assert!(text.text().starts_with("0.kernel: ("), "{text:?}");
    let bytes = fs::read(folder.path().join("k.npy")).unwrap();
    assert!(bytes.starts_with(b"\x93NUMPY\x01\x00"));
    line(folder.path(), "export get m.dmexp 99.kernel").refused(&["99.kernel", "lists all"]);
    line(folder.path(), "export get m.dmexp 0.gamma").refused(&["0.gamma", "0.kernel"]);
}

#[test]
fn kernels_in_fewer_bits_have_their_error_stated() {
    println!("| model | f16 | bf16 | q8 | q8, one group a row |\n|---|---|---|---|---|");
    for (name, source) in models().into_iter().filter(|(name, _)| name.contains(".v4")) {
        let folder = folder();
        let arch = source.with_extension("json");
        let error = |words: &str| {
            let report = export(folder.path(), &source, &arch, &format!("{words} --json --samples {}", arch.display())).json();
            line(folder.path(), "export verify m.dmexp").ok();
            report["samples"]["max_abs_error"].as_f64().unwrap()
        };
        let [half, brain, small, row] = ["--dtype f16", "--dtype bf16", "--dtype q8", "--dtype q8 --group 0"].map(error);
        println!("| {} | {half:.1e} | {brain:.1e} | {small:.1e} | {row:.1e} |", name.trim_end_matches(".v4"));
        assert!(half < 0.02 && brain < 0.1 && small < 0.1 && row < 0.1, "{name}: {half} {brain} {small} {row}");
    }
}

#[test]
fn damaged_sequential_files_are_refused() {
    let Some(source) = data("rustyml/mlp_batchnorm.bin") else { return };
    let arch = source.with_extension("json");
    let folder = folder();
    export(folder.path(), &source, &arch, &format!("--dtype f32 --quiet --samples {}", arch.display())).ok();
    let bytes = fs::read(folder.path().join("m.dmexp")).unwrap();
    fs::write(folder.path().join("in.csv"), "1,2,3,4,5,6,7,8\n").unwrap();
    let bad = folder.path().join("bad.dmexp");
    for len in (0..bytes.len()).step_by(bytes.len() / 20) {
        fs::write(&bad, &bytes[..len]).unwrap();
        line(folder.path(), "predict --export bad.dmexp --input in.csv").refused(&["bad.dmexp"]);
    }
    // A flipped bit anywhere is found before anything is computed.
    for at in (0..bytes.len()).step_by(bytes.len() / 20) {
        let mut flipped = bytes.clone();
        flipped[at] ^= 0x10;
        fs::write(&bad, &flipped).unwrap();
        let ran = line(folder.path(), "export verify bad.dmexp");
        assert_eq!(ran.code, Some(1), "byte {at}: {ran:?}");
        line(folder.path(), "predict --export bad.dmexp --input in.csv").refused(&["bad.dmexp"]);
        line(folder.path(), "predict --export bad.dmexp --watch").refused(&["bad.dmexp"]);
    }
}

#[test]
fn numbers_that_the_model_cannot_take_are_no_fault_of_its_file() {
    for (name, shape, numbers, words) in [
        ("embed_rnn", 3, "0,1,20", "number 2 is 20, the embedding has rows 0 to 19"),
        ("mlp", 4, "3e38,3e38,3e38,3e38", "element 0 of output 0 is not finite"),
    ] {
        let Some(source) = data(&format!("rustyml/{name}.bin")) else { return };
        let folder = folder();
        export(folder.path(), &source, &source.with_extension("json"), "--dtype f32 --quiet").ok();
        fs::write(folder.path().join("in.json"), format!("{{\"shape\": [{shape}], \"data\": [{numbers}]}}")).unwrap();
        let said = line(folder.path(), "predict --export m.dmexp --input in.json").refused(&["in.json", words, "row 0"]);
        assert!(!said.contains("export it again"), "{said}");
    }
}

#[test]
fn recurrent_models_take_a_step_a_line_and_keep_their_state() {
    let Some(source) = data("rustyml/lstm_har.bin") else { return };
    let arch = source.with_extension("json");
    let folder = folder();
    export(folder.path(), &source, &arch, "--dtype f32 --quiet").ok();
    let sample = json(&arch)["samples"][0].clone();
    let whole = predict(folder.path(), &sample["inputs"]);
    let numbers: Vec<String> = sample["inputs"][0]["data"].as_array().unwrap().iter().map(ToString::to_string).collect();
    let lines: String = numbers.chunks(6).map(|row| row.join(" ") + "\n").collect();
    let words = ["predict", "--export", "m.dmexp", "--watch", "--json"];
    let ran = piped(folder.path(), &words, lines.as_bytes()).succeeded();
    let results: Vec<Value> = ran.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(results.len(), 24);
    // The state after the last step is that of the whole sequence.
    assert_eq!(results[23]["outputs"], whole["outputs"]);
    assert_ne!(results[0]["outputs"], whole["outputs"]);
    piped(folder.path(), &words, b"1 2 3\n").refused(&["line 1", "3 numbers", "6"]);
    let backwards = data("rustyml/gru_anomaly.bin").unwrap();
    export(folder.path(), &backwards, &backwards.with_extension("json"), "--dtype f32 --quiet").ok();
    piped(folder.path(), &words, b"1 2 3 4\n").refused(&["layer 0 (Gru)", "--input"]);
}

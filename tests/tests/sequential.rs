//! Small networks through the runtime: every model of the shared data gives the results that RustyML gave, in one piece of memory of the planned size.

use dmexp::format::file::ModelFile;
use dmexp::{Prediction, Predictor};
use dmexp_tests::{data, files, folder, run};
use serde_json::Value;
use std::fs;

/// The elements of a list of numbers.
fn floats(list: &Value) -> Vec<f32> {
    list.as_array().unwrap().iter().map(|number| number.as_f64().unwrap() as f32).collect()
}

#[test]
fn every_model_predicts_what_rustyml_predicted() {
    let Some(shared) = data("rustyml/mlp.bin") else { return };
    let names: Vec<_> =
        files(shared.parent().unwrap()).into_iter().filter_map(|name| name.strip_suffix(".bin").map(str::to_owned)).collect();
    for name in names {
        let folder = folder();
        let (source, arch) = (shared.with_file_name(format!("{name}.bin")), shared.with_file_name(format!("{name}.json")));
        let words = ["export", "run", "--checkpoint", source.to_str().unwrap(), "--arch", arch.to_str().unwrap()];
        run(folder.path(), &[&words[..], &["--dtype", "f32", "--out", "model.dmexp", "--quiet"]].concat()).ok();
        let bytes = fs::read(folder.path().join("model.dmexp")).unwrap();
        let predictor = Predictor::bind(&ModelFile::open(&bytes).unwrap()).unwrap();
        let mut memory = vec![u32::MAX; predictor.arena_len().unwrap() / 4];
        let mut prediction = Prediction::new(predictor, memory.as_mut_slice()).unwrap();
        let known: Value = serde_json::from_str(&fs::read_to_string(&arch).unwrap()).unwrap();
        let mut worst = 0f64;
        for sample in known["samples"].as_array().unwrap() {
            for (number, input) in (0..).zip(sample["inputs"].as_array().unwrap()) {
                prediction.input_mut(number).copy_from_slice(&floats(&input["data"]));
            }
            prediction.run().unwrap();
            for (number, output) in (0..).zip(sample["outputs"].as_array().unwrap()) {
                let (found, expected) = (prediction.output(number), floats(&output["data"]));
                assert_eq!(found.len(), expected.len(), "{name}");
                for (found, expected) in found.iter().zip(expected) {
                    let error = f64::from((found - expected).abs()) / (1e-5 + 1e-5 * f64::from(expected.abs()));
                    worst = worst.max(error);
                    assert!(error <= 1.0, "{name}: output {number}: {found}, not {expected}");
                }
            }
        }
        println!("{name}: {worst:.3} of the tolerance, arena {} bytes", predictor.arena_len().unwrap());
    }
}

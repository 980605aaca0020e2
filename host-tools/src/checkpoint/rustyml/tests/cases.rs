//! The saved and target pairs and the damaged files of the shared data, in both formats: the same verdict and the same lists as `RustyML`.

use super::super::architecture::of_table;
use super::super::{RustyMl, model_roster};
use crate::checkpoint::roster::{LoadReport, partial, strict};
use crate::checkpoint::tests::data;
use crate::error::Class;
use serde_json::Value;
use std::path::Path;

/// Our class for `RustyML`'s words; `None` where it loads.
fn class(verdict: &Value) -> Option<Class> {
    let text = verdict.as_str()?;
    Some(match text.split_once(':')?.0 {
        "model structure mismatch" => Class::Mismatch,
        "serialization error" => Class::Damaged,
        "unsupported model format" => Class::NotAModel,
        "I/O error" => Class::Unreadable,
        other => panic!("{other}"),
    })
}

/// The lists of a report, as they stand in the data: an object, or `RustyML`'s debug print; `None` for an error.
fn lists(partial: &Value) -> Option<LoadReport> {
    if let Value::Object(lists) = partial {
        let list = |key: &str| lists[key].as_array().unwrap().iter().map(|path| path.as_str().unwrap().to_owned()).collect();
        return Some(LoadReport { applied: list("applied"), missing: list("missing"), unused: list("unused") });
    }
    let text = partial.as_str()?.strip_prefix("LoadReport {")?;
    let list = |key: &str| {
        let from = text.split_once(&format!("{key}: ["))?.1.split_once(']')?.0;
        Some(from.split('"').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>())
    };
    Some(LoadReport { applied: list("applied")?, missing: list("missing")?, unused: list("unused")? })
}

fn same(folder: &Path, case: &Value, target: &Value) {
    let name = case["case"].as_str().unwrap();
    let target = model_roster(&of_table(serde_json::from_value(target.clone()).unwrap()).unwrap());
    let opened = RustyMl::open(&folder.join(case["file"].as_str().unwrap()));
    let verdict = match &opened {
        Ok(file) => strict(&target, &file.roster()).err().map(|error| error.class()),
        Err(error) => Some(error.class()),
    };
    assert_eq!(verdict, class(&case["strict_error"]), "{name}: {opened:?}");
    let report = opened.ok().map(|file| partial(&target, &file.roster()));
    assert_eq!(report, lists(&case["partial"]), "{name}");
    let Some(report) = report else { return };
    let count = |list: &[String]| list.len();
    let wanted: usize = target.positions.iter().map(|position| position.arrays.len()).sum();
    assert_eq!(count(&report.applied) + count(&report.missing), wanted, "{name}");
}

#[test]
fn every_case_has_the_verdict_and_the_lists_of_rustyml() {
    for name in ["load_cases.json", "load_cases.v4.json"] {
        let Some(path) = data(&format!("rustyml/cases/{name}")) else { return };
        let folder = path.parent().unwrap();
        let all: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        for case in all["cases"].as_array().unwrap() {
            same(folder, case, &case["target"]);
        }
        for case in all["damaged"].as_array().unwrap() {
            same(folder, case, &all["damaged_target"]);
        }
    }
}

#[test]
fn strict_messages_name_the_path_and_both_sides() {
    let Some(path) = data("rustyml/cases/load_cases.json") else { return };
    let all: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    for (name, parts) in [
        ("layer_count", vec!["2 layers", "has 1"]),
        ("layer_type", vec!["layer 1", "`Tanh`", "`ReLU`"]),
        ("reverse_axis_in_type", vec!["layer 0", "`Reverse(-2)`", "`Reverse(1)`"]),
        ("build_shape_conv", vec!["layer 0", "Conv1D", "(None, 24, 2)", "(None, 20, 2)"]),
        ("array_count_bias", vec!["layer 0", "[\"kernel\", \"bias\"]", "[\"kernel\"]"]),
        ("array_shape", vec!["1.kernel", "[3, 5]", "[3, 2]"]),
    ] {
        let case = all["cases"].as_array().unwrap().iter().find(|case| case["case"] == name).unwrap();
        let target = model_roster(&of_table(serde_json::from_value(case["target"].clone()).unwrap()).unwrap());
        let file = RustyMl::open(&path.with_file_name(case["file"].as_str().unwrap())).unwrap();
        let text = strict(&target, &file.roster()).unwrap_err().to_string();
        for part in parts {
            assert!(text.contains(part), "{name}: {text}");
        }
    }
}

//! dormouse's own files, and what a second implementation computes for made models (references.json, made by references.py).

use super::made::Made;
use super::{Decoding, Dormouse, bits, largest_difference, logits_after, window};
use crate::format::arch::dormouse::{ActQuant, Attention, DormouseConfig, Residual};
use crate::format::file::ModelFile;
use serde_json::Value;
use std::fmt::Write;
use std::path::Path;

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect()
}

fn tokens(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|number| number.as_u64().unwrap() as u32).collect()
}

/// Step by step and all at once give the logits of the last position; the window gives those of the first, and the last ones once more. The three agree to the bit where they compute the same.
fn compare(name: &str, model: &Dormouse<'_>, text: &[u32], last: &[f64], first: &[f64], allowed: f64) {
    let ends: Vec<usize> = (1..=text.len()).collect();
    let steps = logits_after(model, text, Decoding::Exact, &ends);
    let at_once = logits_after(model, text, Decoding::Exact, &[text.len()]);
    let full = window(model, text);
    assert_eq!(bits(&steps[text.len() - 1]), bits(&at_once[0]), "{name}: step by step and at once");
    if !model.config().is_causal() {
        assert_eq!(bits(&at_once[0]), bits(&full[text.len() - 1]), "{name}: exact and full");
    }
    let (last_off, first_off) =
        (largest_difference(&at_once[0], last), largest_difference(if model.config().is_causal() { &steps[0] } else { &full[0] }, first));
    println!("{name}: last position off by {last_off:.1e}, first by {first_off:.1e}");
    assert!(last_off <= allowed && first_off <= allowed, "{name}: last position off by {last_off:e}, first by {first_off:e}");
}

#[test]
fn files_of_dormouse_give_the_logits_stated_beside_them() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/dormouse");
    if !folder.is_dir() {
        println!("{} is not here: dormouse's own files were not run", folder.display());
        return;
    }
    let mut count = 0;
    // The largest models of all tests: under Miri one of them.
    let files = if cfg!(miri) { 1 } else { 8 };
    for (folder, stem) in
        [("", "default"), ("", "nokda"), ("", "dense"), ("", "mor"), ("", "gr"), ("", "mhc"), ("", "plain"), ("ckpt", "expected")]
            .into_iter()
            .take(files)
    {
        let expected: Value = serde_json::from_slice(&std::fs::read(folder_of(folder).join(format!("{stem}.json"))).unwrap()).unwrap();
        let bytes = std::fs::read(folder_of(folder).join(format!("{stem}.f32.dmexp"))).unwrap();
        let model = Dormouse::bind(&ModelFile::open(&bytes).unwrap()).unwrap();
        let text = tokens(&expected["input"]);
        compare(stem, &model, &text, &numbers(&expected["last_logits"]), &numbers(&expected["logits_pos0"]), 1e-5);
        count += 1;
    }
    assert_eq!(count, files);
}

fn folder_of(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/dormouse").join(name)
}

/// What the changes of a reference mean, and their text.
fn configured(changes: &Value, attnres_gain: bool) -> (String, DormouseConfig) {
    let mut text = String::new();
    let mut config = DormouseConfig { attnres_gain, ..DormouseConfig::DEFAULT };
    for (key, value) in changes.as_object().unwrap() {
        writeln!(text, "{key} = {value}").unwrap();
        let size = value.as_u64().unwrap_or(0) as u32;
        let number = value.as_f64().unwrap_or(0.0) as f32;
        match key.as_str() {
            "d_model" => config.d_model = size,
            "n_heads" => config.n_heads = size,
            "head_dim" => config.head_dim = size,
            "d_ffn" => config.d_ffn = size,
            "vocab" => config.vocab = size,
            "rank" => config.rank = size,
            "max_seq_len" => config.max_seq_len = size,
            "max_iter" => config.max_iter = size,
            "n_experts" => config.n_experts = size,
            "moe_topk" => config.moe_topk = size,
            "engram_rows" => config.engram_rows = size,
            "engram_dim" => config.engram_dim = size,
            "mor_k" => config.mor_k = size,
            "mhc_streams" => config.mhc_streams = size,
            "act_group" => config.act_group = size,
            "norm_eps" => config.norm_eps = number,
            "engram_lam_max" => config.engram_lam_max = number,
            "act_quant" => config.act_quant = ActQuant::from_name(value.as_str().unwrap()).unwrap(),
            "use_tsct" => config.use_tsct = value == true,
            "use_engram" => config.use_engram = value == true,
            "use_mor" => config.use_mor = value == true,
            "use_situ" => config.use_situ = value == true,
            "use_kda" => config.attention = Attention::None,
            "use_gr" => config.residual = Residual::Gr,
            "use_attnres" => config.residual = Residual::AttnRes,
            "use_mhc" => config.residual = Residual::Mhc,
            "use_plain_attn" | "aux_fb_weight" => (),
            other => panic!("{other}"),
        }
    }
    if changes.get("use_plain_attn").is_some() {
        config.attention = Attention::Plain;
    }
    (text, config)
}

#[test]
fn made_models_give_the_logits_of_the_second_implementation() {
    let references: Vec<Value> = serde_json::from_str(include_str!("references.json")).unwrap();
    assert_eq!(references.len(), 20);
    for reference in references.iter().step_by(if cfg!(miri) { 19 } else { 1 }) {
        let name = reference["name"].as_str().unwrap();
        let (text, config) = configured(&reference["config"], reference["attnres_gain"] == true);
        let aux =
            reference["aux"].as_array().unwrap().iter().map(|entry| (entry[0].as_str().unwrap().to_owned(), tokens(&entry[1]))).collect();
        let bytes = Made { text, config, aux }.file();
        let file = ModelFile::open(&bytes).unwrap();
        assert_eq!(
            (u64::from(file.num_tensors()), file.num_params()),
            (reference["tensors"].as_u64().unwrap(), reference["params"].as_u64().unwrap())
        );
        let model = Dormouse::bind(&file).unwrap();
        assert_eq!(*model.config(), config, "{name}");
        // f32 against f64, and logits of 4 in one of them.
        let allowed = 1e-5 * reference["largest"].as_f64().unwrap().max(1.0);
        compare(name, &model, &tokens(&reference["text"]), &numbers(&reference["last"]), &numbers(&reference["first"]), allowed);
    }
}

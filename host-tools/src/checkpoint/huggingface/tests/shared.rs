//! The Hugging Face folders of ../shared/data: every tensor against the llama2.c file of the same model, bit for bit, and logits against the references.

use crate::checkpoint::{self, Config};
use crate::error::Class;
use crate::export::Format;
use crate::export::tests::{data, export, file_logits, options};
use dmexp_format::{DType, KvDType};
use std::fs;
use std::path::Path;
use tempfile::TempDir;

/// Reports 39 and 40: the exports of two containers of one model have the same payload.
fn same_payload(hugging_face: &Path, llama2c: &Path) {
    let folder = TempDir::new().unwrap();
    let mut payloads = Vec::new();
    for path in [hugging_face, llama2c] {
        let source = checkpoint::open(path).unwrap();
        let report = export(&source, &options(&folder, DType::F32, Format::V1)).unwrap();
        payloads.push(report.tensors.iter().map(|tensor| (tensor.spec.clone(), tensor.crc32)).collect::<Vec<_>>());
        let arrays: Vec<(String, Vec<u32>)> = source
            .arrays()
            .map(|array| (array.name().to_owned(), array.to_vec().unwrap().into_iter().map(f32::to_bits).collect()))
            .collect();
        assert!(!arrays.is_empty());
    }
    assert_eq!(payloads[0], payloads[1], "{}", hugging_face.display());
}

#[test]
fn report_39_every_tensor_equals_the_llama2c_files() {
    let (Some(made), Some(stories)) = (data("llama2c-made"), data("stories260K")) else { return };
    let Some(derived) = data("stories260K-derived") else { return };
    same_payload(&made.join("gqa_untied/hf_safetensors"), &made.join("gqa_untied/model_v0.bin"));
    same_payload(&made.join("mha_tied/hf_safetensors"), &made.join("mha_tied/model_v0.bin"));
    same_payload(&made.join("mha_tied/hf_export_by_llama2c"), &made.join("mha_tied/model_v0.bin"));
    same_payload(&derived.join("hf_safetensors"), &stories.join("stories260K.bin"));
}

/// Exports in f32 and compares with reference logits, all positions and those from 20 on.
fn meets(folder: &Path, tokens: &Path, reference: &Path) {
    let json: serde_json::Value = serde_json::from_slice(&fs::read(tokens).unwrap()).unwrap();
    let list = json.get("tokens").or(json.get("fed_tokens")).and_then(|list| list.as_array()).unwrap();
    let wanted: Vec<f32> = fs::read(reference).unwrap().as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
    let out = TempDir::new().unwrap();
    let source = checkpoint::open(folder).unwrap();
    let Config::Llama(llama) = &source.config else { panic!("it is a Llama") };
    let vocab = llama.config.vocab_size as usize;
    let tokens: Vec<u32> = list.iter().take(wanted.len() / vocab).map(|token| token.as_u64().unwrap() as u32).collect();
    assert!(tokens.len() > 20);
    let largest = wanted.iter().fold(0.0f32, |most, value| most.max(value.abs()));
    for format in [Format::V1, Format::V2] {
        let report = export(&source, &options(&out, DType::F32, format)).unwrap();
        let found = file_logits(&report.out, &tokens, KvDType::F32);
        let worst = |from: usize| {
            found
                .iter()
                .zip(wanted.chunks(vocab))
                .skip(from)
                .flat_map(|(a, b)| a.iter().zip(b))
                .fold(0.0f32, |most, (a, b)| most.max((a - b).abs()))
        };
        println!("{}: worst {:e} of {largest}, from position 20 on {:e}", folder.display(), worst(0), worst(20));
        assert!(worst(0) <= 1e-4 * largest, "{}: {} of {largest}", folder.display(), worst(0));
    }
}

#[test]
fn report_40_41_reference_logits_are_met_at_every_position() {
    let Some(made) = data("llama2c-made") else { return };
    let gqa = made.join("gqa_untied");
    meets(&gqa.join("hf_safetensors"), &gqa.join("ref.json"), &gqa.join("ref_logits_torch_f32.f32"));
    meets(
        &gqa.join("hf_safetensors_bf16_sharded"),
        &gqa.join("ref.json"),
        &gqa.join("hf_safetensors_bf16_sharded/ref_logits_f32_compute.f32"),
    );
    let mha = made.join("mha_tied");
    meets(&mha.join("hf_safetensors"), &mha.join("ref.json"), &mha.join("ref_logits_torch_f32.f32"));
    meets(&mha.join("hf_export_by_llama2c"), &mha.join("ref.json"), &mha.join("ref_logits_torch_f32.f32"));
    let linear = made.join("hf_linear_rope_scaling");
    meets(&linear, &linear.join("ref.json"), &linear.join("ref_logits_torch_f32.f32"));
    let (Some(stories), Some(reference)) = (data("stories260K-derived/hf_safetensors"), data("ref")) else { return };
    meets(&stories, &reference.join("stories260K_greedy.json"), &reference.join("stories260K_greedy_logits_f64.f32"));
}

#[test]
fn report_42_biases_that_are_not_carried_are_refused() {
    let Some(path) = data("llama2c-made/hf_attention_bias") else { return };
    let error = checkpoint::open(&path).unwrap_err();
    assert_eq!(error.class(), Class::NotAModel);
    assert!(
        error.to_string().contains("config.json: attention_bias is true: the output projection of attention (o_proj) has a bias"),
        "{error}"
    );
}

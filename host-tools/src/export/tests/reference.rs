//! Exports of the reference checkpoints: their logits against those of other programs.

use super::*;
use crate::decode::verify_all;
use std::fs;

fn floats(path: &Path) -> Vec<f32> {
    fs::read(path).unwrap().as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

fn token_list(json: &serde_json::Value) -> Vec<u32> {
    json.as_array().unwrap().iter().map(|token| token.as_u64().unwrap() as u32).collect()
}

#[test]
fn stories260k_reproduces_the_source_bit_for_bit_and_the_reference_closely() {
    let (Some(model), Some(greedy), Some(logits)) =
        (data("stories260K/stories260K.bin"), data("ref/stories260K_greedy.json"), data("ref/stories260K_greedy_logits_f64.f32"))
    else {
        return;
    };
    let folder = TempDir::new().unwrap();
    let source = checkpoint::open(&model).unwrap();
    let json: serde_json::Value = serde_json::from_slice(&fs::read(greedy).unwrap()).unwrap();
    let reference = floats(&logits);
    let tokens = token_list(&json["fed_tokens"]);
    assert_eq!(reference.len(), tokens.len() * 512);
    let expected = source_logits(&source, &tokens, KvDType::F32);
    for format in [Format::V1, Format::V2] {
        let report = export(&source, &options(&folder, DType::F32, format)).unwrap();
        assert!(verify_all(&report.out).unwrap().passed());
        assert!(bits(&file_logits(&report.out, &tokens, KvDType::F32)) == bits(&expected));
    }
    let worst = expected.iter().flatten().zip(&reference).fold(0.0f32, |most, (a, b)| most.max((a - b).abs()));
    println!("stories260K: {} positions, worst difference to f64 {worst:e}", tokens.len());
    assert!(worst <= 3e-5, "{worst}");
    for dtype in [DType::F16, DType::Bf16] {
        let report = export(&source, &options(&folder, dtype, Format::V2)).unwrap();
        let found = file_logits(&report.out, &tokens, KvDType::F32);
        let worst = found.iter().flatten().zip(&reference).fold(0.0f32, |most, (a, b)| most.max((a - b).abs()));
        println!("stories260K {dtype}: {} bytes of {}, worst difference to f64 {worst}", report.file_bytes, report.source_bytes);
        assert!(worst < if dtype == DType::F16 { 0.05 } else { 0.5 }, "{worst}");
    }
}

#[test]
fn checkpoints_of_every_version_give_their_reference_logits() {
    let folder = TempDir::new().unwrap();
    for name in ["mha_tied", "gqa_untied", "mqa_odd"] {
        let Some(base) = data(&format!("llama2c-made/{name}")) else { return };
        let json: serde_json::Value = serde_json::from_slice(&fs::read(base.join("ref.json")).unwrap()).unwrap();
        let tokens = token_list(&json["tokens"]);
        for (file, reference) in [
            ("model_v0.bin", "ref_logits_f64.f32"),
            ("model_v1.bin", "ref_logits_f64.f32"),
            ("model_v2_q80.bin", "ref_logits_q80_weights_only_f64.f32"),
        ] {
            let source = checkpoint::open(&base.join(file)).unwrap();
            let reference = floats(&base.join(reference));
            let largest = reference.iter().fold(0.0f32, |most, value| most.max(value.abs()));
            for format in [Format::V1, Format::V2] {
                let report = export(&source, &options(&folder, DType::F32, format)).unwrap();
                let found = file_logits(&report.out, &tokens, KvDType::F32);
                assert_eq!(found.len() * found[0].len(), reference.len());
                let worst = found.iter().flatten().zip(&reference).fold(0.0f32, |most, (a, b)| most.max((a - b).abs()));
                println!("{name}/{file}, format {}: worst difference {worst:e}, largest logit {largest}", format.number());
                assert!(worst <= 1e-4 * largest, "{name}/{file}: {worst} of {largest}");
            }
        }
    }
}

#[test]
fn pytorch_checkpoints_give_their_reference_logits_at_every_position() {
    let folder = TempDir::new().unwrap();
    for (model, file, reference) in [
        ("mha_tied", "ckpt.pt", "ref_logits_f64.f32"),
        ("mha_tied", "ckpt_legacy_nonzip.pt", "ref_logits_f64.f32"),
        ("mha_tied", "ckpt_bf16.pt", "ref_logits_bf16_weights.f32"),
        ("mha_tied", "ckpt_fp16.pt", "ref_logits_fp16_weights.f32"),
        ("mha_tied", "meta", "meta/ref_logits_torch_f32.f32"),
        ("gqa_untied", "ckpt.pt", "ref_logits_f64.f32"),
        ("gqa_untied", "meta", "meta/ref_logits_torch_f32.f32"),
        ("mqa_odd", "ckpt.pt", "ref_logits_f64.f32"),
    ] {
        let Some(base) = data(&format!("llama2c-made/{model}")) else { return };
        let json: serde_json::Value = serde_json::from_slice(&fs::read(base.join("ref.json")).unwrap()).unwrap();
        let tokens = token_list(&json["tokens"]);
        let source = checkpoint::open(&base.join(file)).unwrap();
        let reference = floats(&base.join(reference));
        let largest = reference.iter().fold(0.0f32, |most, value| most.max(value.abs()));
        let report = export(&source, &options(&folder, DType::F32, Format::V2)).unwrap();
        assert!(verify_all(&report.out).unwrap().passed());
        let found = file_logits(&report.out, &tokens, KvDType::F32);
        assert_eq!(found.len() * found[0].len(), reference.len());
        let worst = found.iter().flatten().zip(&reference).fold(0.0f32, |most, (a, b)| most.max((a - b).abs()));
        println!("{model}/{file}: {} positions, worst difference {worst:e}, largest logit {largest}", found.len());
        assert!(worst <= 1e-4 * largest, "{model}/{file}: {worst} of {largest}");
    }
}

#[test]
fn containers_of_one_model_give_one_payload() {
    let folder = TempDir::new().unwrap();
    for (model, files) in [
        ("llama2c-made/mha_tied", ["model_v0.bin", "ckpt.pt", "ckpt_legacy_nonzip.pt"].as_slice()),
        ("llama2c-made/gqa_untied", &["model_v0.bin", "ckpt.pt"]),
        ("llama2c-made/mqa_odd", &["model_v0.bin", "ckpt.pt"]),
        ("", &["stories260K/stories260K.bin", "stories260K-derived/stories260K_rebuilt_ckpt.pt"]),
    ] {
        let mut first: Option<Vec<u8>> = None;
        for file in files {
            let Some(file) = data(model).map(|base| base.join(file)) else { return };
            let report = export(&checkpoint::open(&file).unwrap(), &options(&folder, DType::F32, Format::V2)).unwrap();
            let loaded = Loaded::open(&report.out).unwrap();
            let payload = loaded.file().unwrap().payload().to_vec();
            assert!(*first.get_or_insert_with(|| payload.clone()) == payload, "{}", file.display());
        }
    }
}

#[test]
fn groups_that_straddle_rows_are_read_as_they_were_written() {
    let (Some(derived), Some(reference), Some(greedy)) = (data("stories260K-derived"), data("ref"), data("ref/stories260K_greedy.json"))
    else {
        return;
    };
    let folder = TempDir::new().unwrap();
    let json: serde_json::Value = serde_json::from_slice(&fs::read(greedy).unwrap()).unwrap();
    // 172 elements a row of w2: 64 does not divide them.
    for group in [4, 64] {
        let source = checkpoint::open(&derived.join(format!("stories260K_v2_q80_gs{group}.bin"))).unwrap();
        let reference = floats(&reference.join(format!("stories260K_q80_gs{group}_weightsonly_f64_logits_on_greedy_path.f32")));
        let tokens = &token_list(&json["fed_tokens"])[..reference.len() / 512];
        let report = export(&source, &options(&folder, DType::F32, Format::V2)).unwrap();
        let found = file_logits(&report.out, tokens, KvDType::F32);
        let worst = found.iter().flatten().zip(&reference).fold(0.0f32, |most, (a, b)| most.max((a - b).abs()));
        println!("stories260K q80 in groups of {group}: {} positions, worst difference to f64 {worst:e}", tokens.len());
        assert!(worst <= 1e-4 * 22.0, "{worst}");
    }
}

#[test]
fn every_derived_and_made_checkpoint_exports_and_verifies() {
    let folder = TempDir::new().unwrap();
    let (Some(derived), Some(made)) = (data("stories260K-derived"), data("llama2c-made")) else { return };
    let mut files: Vec<PathBuf> =
        ["stories260K_v1.bin", "stories260K_v2_q80_gs4.bin", "stories260K_v2_q80_gs64.bin"].map(|name| derived.join(name)).into();
    for entry in fs::read_dir(made).unwrap() {
        let entry = entry.unwrap().path();
        if entry.is_dir() {
            let names = fs::read_dir(entry).unwrap().map(|file| file.unwrap().path());
            files.extend(names.filter(|file| file.file_name().is_some_and(|name| name.to_string_lossy().starts_with("model_v"))));
        }
    }
    assert!(files.len() > 10, "{files:?}");
    for file in files {
        let source = checkpoint::open(&file).unwrap();
        let report = export(&source, &options(&folder, DType::Bf16, Format::V2)).unwrap();
        let checks = verify_all(&report.out).unwrap();
        assert!(checks.passed(), "{}: {checks:?}", file.display());
    }
}

#[test]
fn the_published_tokenizer_travels() {
    let (Some(model), Some(tokenizer)) = (data("stories260K/stories260K.bin"), data("stories260K/tok512.bin")) else { return };
    let folder = TempDir::new().unwrap();
    let mut source = checkpoint::open(&model).unwrap();
    source.tokenizer = Some(tokenizer_bin::read(&tokenizer, 512).unwrap());
    let report = export(&source, &options(&folder, DType::Bf16, Format::V2)).unwrap();
    assert!(verify_all(&report.out).unwrap().passed());
    let loaded = Loaded::open(&report.out).unwrap();
    let mut cpu = Cpu::new(&loaded, &CpuOptions::default()).unwrap();
    let mut session = cpu.session(Sampler::greedy()).unwrap();
    session.prompt(b"Once upon a time").unwrap();
    assert_eq!(session.tokens(), [1, 403, 407, 261, 378]);
}

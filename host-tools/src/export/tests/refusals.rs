//! What is refused, in what words, and that nothing is left behind.

use super::*;
use crate::decode::{Outcome, verify_all};
use crate::error::Class;
use crate::export::{parse_dtype, plan};
use std::fs;

fn with_weight(place: usize, value: f32) -> Checkpoint {
    open(SMALL.v0(|at| if at == place { value } else { 0.25 }))
}

/// The place of element 5 of layers.1.attention.wq.weight: after embeddings, both layers' norms and layer 0's wq.
const IN_WQ_1: usize = 300 * 16 + 2 * 16 + 16 * 16 + 5;

#[test]
fn a_weight_above_65504_stops_an_f16_export_and_bf16_takes_it() {
    let folder = TempDir::new().unwrap();
    let source = with_weight(IN_WQ_1, -70_000.0);
    for format in [Format::V1, Format::V2] {
        let error = export(&source, &options(&folder, DType::F16, format)).unwrap_err();
        assert_eq!(error.class(), Class::Unrepresentable);
        let text = error.to_string();
        for part in ["layers.1.attention.wq.weight", "element 5 ", "-70000", "f16", "65504", "bf16", "made.bin"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    for dtype in [DType::Bf16, DType::F32] {
        assert_eq!(
            export(&source, &options(&folder, dtype, Format::V2)).unwrap().figures.max_abs,
            if dtype == DType::F32 { 70_000.0 } else { 70_144.0 }
        );
    }
    // Rounds to 65504: held.
    let report = export(&with_weight(IN_WQ_1, 65_510.0), &options(&folder, DType::F16, Format::V2)).unwrap();
    assert_eq!(report.figures.max_abs, 65_504.0);
}

#[test]
fn a_weight_too_large_for_bf16_is_sent_to_f32() {
    let folder = TempDir::new().unwrap();
    let text = export(&with_weight(0, f32::MAX), &options(&folder, DType::Bf16, Format::V2)).unwrap_err().to_string();
    for part in ["tok_embeddings.weight", "element 0 ", "bf16", "--dtype f32"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn a_weight_that_is_no_number_is_refused_for_every_type() {
    let folder = TempDir::new().unwrap();
    for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        for dtype in [DType::F32, DType::F16, DType::Bf16] {
            let error = export(&with_weight(16, value), &options(&folder, dtype, Format::V2)).unwrap_err();
            assert_eq!(error.class(), Class::Damaged);
            let text = error.to_string();
            assert!(text.contains(&format!("element 16 of tensor tok_embeddings.weight is {value}")), "{text}");
        }
    }
    // A norm's gain too, which format 2 does not narrow.
    let text = export(&with_weight(300 * 16, f32::NAN), &options(&folder, DType::Bf16, Format::V2)).unwrap_err().to_string();
    assert!(text.contains("layers.0.attention_norm.weight"), "{text}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn logits_that_overflow_are_refused_while_golden_vectors_are_made() {
    let folder = TempDir::new().unwrap();
    // The last norm's gain is the last array of the file.
    let source = open(SMALL.v0(|place| if place < SMALL.params() - 16 { 0.5 } else { 3e38 }));
    let error = export(&source, &options(&folder, DType::Bf16, Format::V2)).unwrap_err();
    assert!(error.to_string().contains("not finite"), "{error}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_model_whose_keys_do_not_fit_f16_is_exported_with_a_warning() {
    let folder = TempDir::new().unwrap();
    let wk = 300 * 16 + 2 * 16 + 2 * 16 * 16;
    let source = open(SMALL.v0(|place| if (wk..wk + 2 * 8 * 16).contains(&place) { 1e5 } else { 0.5 }));
    let report = export(&source, &options(&folder, DType::F32, Format::V2)).unwrap();
    assert_eq!(report.golden, 1);
    assert!(report.warnings.iter().any(|warning| warning.contains("--kv f32")), "{:?}", report.warnings);
    assert!(verify_all(&report.out).unwrap().passed());
    // And who runs it all the same is told what to change, not that the file is damaged.
    let loaded = Loaded::open(&report.out).unwrap();
    let run = |kv| {
        let mut cpu = Cpu::new(&loaded, &CpuOptions { context: None, kv, tokenizer: None })?;
        let mut session = cpu.session(Sampler::greedy())?;
        session.push_tokens(&[0]).and_then(|()| session.logits().map(<[f32]>::len)).map_err(|error| loaded.explain(error))
    };
    assert_eq!(run(KvDType::F32).unwrap(), 300);
    let text = run(KvDType::F16).unwrap_err().to_string();
    assert!(text.contains("position 0 are not all finite; keys and values may be too large for f16 or q8: try --kv f32"), "{text}");
}

#[test]
fn a_vocabulary_that_is_not_the_tokenizers_is_refused_with_both_numbers() {
    let mut source = open(SMALL.random());
    source.tokenizer = Some(tokenizer(301));
    for format in [Format::V1, Format::V2] {
        let error = plan(&source, &Options { format, ..Options::new("x.dmexp") }).unwrap_err();
        assert_eq!(error.class(), Class::Mismatch);
        let text = error.to_string();
        assert!(text.contains("300 tokens") && text.contains("301 pieces"), "{text}");
    }
}

#[test]
fn a_missing_tokenizer_is_a_warning() {
    let source = open(SMALL.random());
    for format in [Format::V1, Format::V2] {
        let plan = plan(&source, &Options { format, ..Options::new("x.dmexp") }).unwrap();
        assert!(plan.warnings().iter().any(|warning| warning.contains("no tokenizer")), "{:?}", plan.warnings());
    }
}

#[test]
fn names_of_element_types_in_any_case() {
    for (dtype, names) in [
        (DType::F32, ["f32", "fp32", "float32", "F32"].as_slice()),
        (DType::F16, &["f16", "fp16", "float16", "half", "Half"]),
        (DType::Bf16, &["bf16", "bfloat16", "BF16"]),
    ] {
        for name in names {
            assert_eq!(parse_dtype(name).unwrap(), dtype);
        }
    }
    let text = parse_dtype("int8").unwrap_err().to_string();
    for part in ["\"int8\"", "f32", "fp32", "float32", "f16", "fp16", "float16", "half", "bf16", "bfloat16"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    for name in ["", "f 32", "u8", "f64"] {
        assert_eq!(parse_dtype(name).unwrap_err().class(), Class::Request);
    }
}

#[test]
fn options_that_contradict_each_other_are_refused() {
    let source = open(SMALL.random());
    let base = Options::new("x.dmexp");
    let v1 = Options { format: Format::V1, ..base.clone() };
    for options in [
        Options { alignment: Some(64), ..v1.clone() },
        Options { sha256: true, ..v1 },
        Options { alignment: Some(8), ..base.clone() },
        Options { alignment: Some(8192), ..base.clone() },
        Options { alignment: Some(48), ..base.clone() },
        Options { dtype: DType::U8, ..base },
    ] {
        assert_eq!(plan(&source, &options).unwrap_err().class(), Class::Request);
    }
    assert!(Format::from_number(3).unwrap_err().to_string().contains("1 and 2"));
}

#[test]
fn what_a_sequential_model_has_no_place_for_is_refused_and_not_passed_over() {
    let Some(path) = data("rustyml/mlp.bin") else { return };
    let source = checkpoint::rustyml::open(&path, &path.with_extension("json")).unwrap();
    let base = Options { dtype: DType::F32, ..Options::new("x.dmexp") };
    plan(&source, &base).unwrap();
    let select = |text: &str| Options { select: vec![text.parse().unwrap()], ..base.clone() };
    for (options, part) in [
        (select("*=q8"), "--tensor"),
        (select("*=bf16"), "--tensor"),
        (select("nothing=f16"), "--tensor"),
        (Options { quality: Some("text".into()), ..base.clone() }, "--quality"),
        (Options { dtype: DType::Q4, ..base.clone() }, "q4"),
        (Options { format: Format::V1, ..base.clone() }, "format 1"),
    ] {
        let error = plan(&source, &options).unwrap_err();
        assert!(error.class() == Class::Request && error.to_string().contains(part), "{part}: {error}");
    }
}

fn failure(bytes: Vec<u8>) -> String {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("damaged.dmexp");
    fs::write(&path, bytes).unwrap();
    let report = verify_all(&path).unwrap();
    assert!(!report.passed());
    match report.checks.into_iter().find_map(|check| if let Outcome::Failed(why) = check.outcome { Some(why) } else { None }) {
        Some(why) => why,
        None => unreachable!("it did not pass"),
    }
}

#[test]
fn a_flipped_payload_bit_is_refused_by_checksum() {
    let folder = TempDir::new().unwrap();
    for format in [Format::V1, Format::V2] {
        let report = export(&open(SMALL.random()), &options(&folder, DType::Bf16, format)).unwrap();
        let bytes = fs::read(&report.out).unwrap();
        let payload = 2 * SMALL.params();
        for back in [1, payload / 2, payload] {
            let mut flipped = bytes.clone();
            let at = flipped.len() - back;
            flipped[at] ^= 1;
            let why = failure(flipped);
            assert!(why.to_lowercase().contains("checksum"), "{why}");
        }
    }
}

#[test]
fn a_header_whose_configuration_disagrees_with_the_payload_is_refused_by_shape() {
    let folder = TempDir::new().unwrap();
    // Format 1: the header is outside its checksum, so that the one of the payload is right.
    let report = export(&open(SMALL.random()), &options(&folder, DType::Bf16, Format::V1)).unwrap();
    let bytes = fs::read(&report.out).unwrap();
    let edited = replaced(&bytes, b"hidden_dim = 24", b"hidden_dim = 32");
    let text = Loaded::from_bytes(Path::new("edited.dmexp"), edited.clone()).and_then(|loaded| loaded.model().map(|_| ())).unwrap_err();
    assert!(text.to_string().contains("32") && text.to_string().contains("24"), "{text}");
    failure(edited);

    // Format 2: header and index both edited, and the checksum made right.
    let report = export(&open(SMALL.random()), &options(&folder, DType::Bf16, Format::V2)).unwrap();
    let bytes = fs::read(&report.out).unwrap();
    let mut edited = replaced(&bytes, b"hidden_dim = 24", b"hidden_dim = 32");
    let word = |at: usize| u32::from_le_bytes(*edited[at..].first_chunk().unwrap()) as usize;
    let (header, index) = (word(8), word(24));
    let config = 32 + header + word(32 + header + 16);
    assert_eq!(word(config + 4), 24);
    edited[config + 4] = 32;
    let crc = dmexp_format::crc32::checksum(&[&edited[..20], &edited[24..32 + header + index]]);
    edited[20..24].copy_from_slice(&crc.to_le_bytes());
    let loaded = Loaded::from_bytes(Path::new("edited.dmexp"), edited.clone()).unwrap();
    let text = loaded.model().unwrap_err().to_string();
    for part in ["edited.dmexp", "layers.0.feed_forward.w1.weight", "32", "24"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    failure(edited);
}

fn replaced(bytes: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let at = bytes.windows(from.len()).position(|window| window == from).unwrap();
    let mut edited = bytes.to_vec();
    edited[at..at + to.len()].copy_from_slice(to);
    edited
}

#[test]
fn golden_vectors_that_do_not_come_out_are_refused() {
    use crate::decode::golden_check;
    use dmexp_format::host::{Header, rewrite_head};
    let folder = TempDir::new().unwrap();
    let report = export(&open(SMALL.random()), &options(&folder, DType::F32, Format::V2)).unwrap();
    let loaded = Loaded::open(&report.out).unwrap();
    let (mut header, _) = Header::parse(loaded.file().unwrap().header_text().unwrap()).unwrap();
    header.golden[1].positions[2].crc32 ^= 1;
    let mut edited = Vec::new();
    rewrite_head(&mut edited, loaded.bytes(), &header).unwrap();
    let error = golden_check(&Loaded::from_bytes(Path::new("edited.dmexp"), edited.clone()).unwrap()).unwrap_err();
    assert!(error.to_string().contains("position 16"), "{error}");
    assert!(failure(edited).contains("position 16"));
}

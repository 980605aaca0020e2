//! Whole models in GGUF: those of llama2.c written anew have the same arrays bit for bit, and meet the reference logits.

use super::make::{self, Gguf, Shape};
use crate::checkpoint::{Checkpoint, Config, LlamaSource, open};
use crate::export::tests::{data, export, file_logits, options};
use crate::export::{Format, parse_dtype};
use dmexp_format::arch::llama::{RopeLayout, TensorKind};
use dmexp_format::{DType, KvDType};
use half::{bf16, f16};
use std::path::Path;

#[allow(irrefutable_let_patterns, reason = "there may be other architectures")]
fn source(checkpoint: &Checkpoint) -> &LlamaSource {
    let Config::Llama(source) = &checkpoint.config else { panic!("it is a Llama") };
    source
}

/// How the matrices of a written model are stored.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Stored {
    F32,
    F16,
    Bf16,
}

impl Stored {
    fn number(self) -> u32 {
        match self {
            Self::F32 => 0,
            Self::F16 => 1,
            Self::Bf16 => 30,
        }
    }

    fn bytes(self, values: &[f32]) -> Vec<u8> {
        match self {
            Self::F32 => values.iter().flat_map(|value| value.to_le_bytes()).collect(),
            Self::F16 => values.iter().flat_map(|value| f16::from_f32(*value).to_le_bytes()).collect(),
            Self::Bf16 => values.iter().flat_map(|value| bf16::from_f32(*value).to_le_bytes()).collect(),
        }
    }
}

/// GGUF's name of an array of ours, written down once more.
fn name(ours: &str) -> String {
    let renamed = ours
        .replace("layers.", "blk.")
        .replace("tok_embeddings", "token_embd")
        .replace("attention.wq", "attn_q")
        .replace("attention.wk", "attn_k")
        .replace("attention.wv", "attn_v")
        .replace("attention.wo", "attn_output")
        .replace("attention_norm", "attn_norm")
        .replace("feed_forward.w1", "ffn_gate")
        .replace("feed_forward.w2", "ffn_down")
        .replace("feed_forward.w3", "ffn_up");
    if renamed == "norm.weight" { "output_norm.weight".to_owned() } else { renamed }
}

/// A llama2.c model as a GGUF file, its q and k rows in the order of `prefix`'s architecture.
fn written(model: &Checkpoint, prefix: &str, stored: Stored) -> Gguf {
    let config = source(model).config;
    let mut file = Gguf::new();
    file.set("general.architecture", prefix);
    for (key, value) in [
        ("block_count", config.n_layers),
        ("context_length", config.max_seq_len),
        ("embedding_length", config.dim),
        ("feed_forward_length", config.hidden_dim),
        ("attention.head_count", config.n_heads),
        ("attention.head_count_kv", config.n_kv_heads),
        ("attention.key_length", config.head_dim),
        ("attention.value_length", config.head_dim),
    ] {
        file.set(&format!("{prefix}.{key}"), value);
    }
    file.set(&format!("{prefix}.attention.layer_norm_rms_epsilon"), config.norm_eps);
    file.set(&format!("{prefix}.rope.freq_base"), source(model).rope_theta as f32);
    for array in model.arrays() {
        let dims = array.dims();
        let mut sizes: Vec<u64> = dims.as_slice().iter().map(|size| u64::from(*size)).collect();
        sizes.reverse();
        let values = array.to_vec().unwrap();
        let stored = if sizes.len() == 1 { Stored::F32 } else { stored };
        file.tensor(&name(array.name()), &sizes, stored.number(), stored.bytes(&values));
    }
    file
}

fn floats(path: &Path) -> Vec<f32> {
    std::fs::read(path).unwrap().as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

#[test]
fn a_model_of_llama2c_in_gguf_exports_to_the_same_bits_and_meets_its_reference() {
    let folder = tempfile::TempDir::new().unwrap();
    for model in ["mha_tied", "gqa_untied", "mqa_odd"] {
        let Some(base) = data(&format!("llama2c-made/{model}")) else { return };
        let original = open(&base.join("model_v0.bin")).unwrap();
        let in_gguf = make::open(written(&original, "llama", Stored::F32).bytes()).unwrap();
        assert_eq!(source(&in_gguf).config, source(&original).config);
        assert_eq!(source(&in_gguf).inv_freq, source(&original).inv_freq);
        let payload = |checkpoint: &Checkpoint| {
            let report = export(checkpoint, &options(&folder, DType::F32, Format::V2)).unwrap();
            let tensors: Vec<(String, u32)> = report.tensors.iter().map(|tensor| (tensor.spec.name.clone(), tensor.crc32)).collect();
            (report.out, tensors)
        };
        let (_, expected) = payload(&original);
        let (out, found) = payload(&in_gguf);
        assert_eq!(found, expected, "{model}");

        let json: serde_json::Value = serde_json::from_slice(&std::fs::read(base.join("ref.json")).unwrap()).unwrap();
        let tokens: Vec<u32> = json["tokens"].as_array().unwrap().iter().map(|token| token.as_u64().unwrap() as u32).collect();
        assert!(tokens.len() > 20, "a wrong order of the rows shows late");
        let reference = floats(&base.join("ref_logits_f64.f32"));
        let largest = reference.iter().fold(0.0f32, |most, value| most.max(value.abs()));
        let logits = file_logits(&out, &tokens, KvDType::F32);
        let worst = logits.iter().flatten().zip(&reference).fold(0.0f32, |most, (a, b)| most.max((a - b).abs()));
        println!("{model} in GGUF: worst difference {worst:e}, largest logit {largest}");
        assert!(worst <= 1e-4 * largest, "{model}: {worst} of {largest}");
    }
}

#[test]
fn halves_in_gguf_export_to_the_same_halves() {
    let folder = tempfile::TempDir::new().unwrap();
    let Some(base) = data("llama2c-made/gqa_untied") else { return };
    let original = open(&base.join("model_v0.bin")).unwrap();
    for (stored, dtype) in [(Stored::F16, "f16"), (Stored::Bf16, "bf16")] {
        let dtype = parse_dtype(dtype).unwrap();
        let narrowed = make::open(written(&original, "llama", stored).bytes()).unwrap();
        let crcs = |checkpoint: &Checkpoint| {
            let report = export(checkpoint, &options(&folder, dtype, Format::V2)).unwrap();
            report.tensors.iter().map(|tensor| tensor.crc32).collect::<Vec<_>>()
        };
        assert_eq!(crcs(&narrowed), crcs(&original), "{stored:?}");
    }
}

/// Row `2i + b` of a head goes to `i + b * head_dim / 2`: from llama.cpp's order for Llama to the one that it keeps for Qwen2.
fn into_halves(rows: &[f32], columns: usize, head_dim: usize) -> Vec<f32> {
    let mut out = vec![0.0; rows.len()];
    for (row, values) in rows.chunks(columns).enumerate() {
        let (head, within) = (row / head_dim, row % head_dim);
        let to = head * head_dim + within / 2 + within % 2 * head_dim / 2;
        out[to * columns..][..columns].copy_from_slice(values);
    }
    out
}

#[test]
fn pairs_half_a_head_apart_compute_the_same_model_at_every_position() {
    let folder = tempfile::TempDir::new().unwrap();
    let Some(base) = data("llama2c-made/gqa_untied") else { return };
    let original = open(&base.join("model_v0.bin")).unwrap();
    let config = source(&original).config;
    let mut file = written(&original, "qwen2", Stored::F32);
    for layer in 0..config.n_layers {
        for (projection, kind) in [("q", TensorKind::Wq), ("k", TensorKind::Wk), ("v", TensorKind::Wv)] {
            let rows = config.dims(kind).as_slice()[0];
            if projection != "v" {
                let tensor = file.named(&format!("blk.{layer}.attn_{projection}.weight"));
                let values: Vec<f32> = tensor.data.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
                tensor.data = Stored::F32.bytes(&into_halves(&values, config.dim as usize, config.head_dim as usize));
            }
            file.tensor(&format!("blk.{layer}.attn_{projection}.bias"), &[u64::from(rows)], 0, vec![0; 4 * rows as usize]);
        }
    }
    let qwen = make::open(file.bytes()).unwrap();
    assert_eq!(source(&qwen).config.rope_layout, RopeLayout::Half);
    let json: serde_json::Value = serde_json::from_slice(&std::fs::read(base.join("ref.json")).unwrap()).unwrap();
    let tokens: Vec<u32> = json["tokens"].as_array().unwrap().iter().map(|token| token.as_u64().unwrap() as u32).collect();
    let logits = |checkpoint: &Checkpoint| {
        let report = export(checkpoint, &options(&folder, DType::F32, Format::V2)).unwrap();
        file_logits(&report.out, &tokens, KvDType::F32)
    };
    let expected = logits(&original);
    let largest = expected.iter().flatten().fold(0.0f32, |most, value| most.max(value.abs()));
    for (position, (found, expected)) in logits(&qwen).iter().zip(&expected).enumerate() {
        let worst = found.iter().zip(expected).fold(0.0f32, |most, (a, b)| most.max((a - b).abs()));
        assert!(worst <= 1e-5 * largest, "position {position}: {worst} of {largest}");
    }
    assert!(tokens.len() > 20);
}

/// ggml's number, elements and bytes of a block, and where its f16 numbers stand.
const BLOCKS: [(u32, usize, usize, &[usize]); 10] = [
    (2, 32, 18, &[0]),
    (3, 32, 20, &[0, 2]),
    (6, 32, 22, &[0]),
    (7, 32, 24, &[0, 2]),
    (8, 32, 34, &[0]),
    (10, 256, 84, &[80, 82]),
    (11, 256, 110, &[108]),
    (12, 256, 144, &[0, 2]),
    (13, 256, 176, &[0, 2]),
    (14, 256, 210, &[208]),
];

#[test]
fn models_in_every_block_format_export_to_their_values_and_run() {
    let folder = tempfile::TempDir::new().unwrap();
    let shape = Shape { dim: 256, hidden: 256, layers: 1, heads: 4, kv_heads: 2, vocab: 8, context: 32 };
    let tokens: Vec<u32> = (0..24).map(|place| place % 8).collect();
    for (number, elements, size, halves) in BLOCKS {
        let mut file = make::model(&shape);
        let mut random = make::Bytes(u64::from(number));
        for tensor in file.tensors.iter_mut().filter(|tensor| tensor.sizes.len() == 2) {
            let blocks = tensor.sizes.iter().product::<u64>() as usize / elements;
            let mut data: Vec<u8> = (0..blocks * size).map(|_| random.next()).collect();
            for block in data.chunks_mut(size) {
                for half in halves {
                    // A scale that keeps the network lively, an offset that keeps it near zero.
                    block[*half..half + 2].copy_from_slice(&f16::from_f32(0.0005).to_le_bytes());
                }
            }
            (tensor.kind, tensor.data) = (number, data);
        }
        let in_blocks = make::open(file.bytes()).unwrap();
        let mut widened = file.clone();
        for tensor in &mut widened.tensors {
            let ours = in_blocks.arrays().find(|array| name(array.name()) == tensor.name).expect("every tensor is an array");
            (tensor.kind, tensor.data) = (0, Stored::F32.bytes(&ours.to_vec().unwrap()));
        }
        let widened = make::open(widened.bytes()).unwrap();
        let exported = |checkpoint: &Checkpoint| export(checkpoint, &options(&folder, DType::F32, Format::V2)).unwrap();
        let crcs = |report: &crate::export::Report| report.tensors.iter().map(|tensor| tensor.crc32).collect::<Vec<_>>();
        let expected = crcs(&exported(&widened));
        let report = exported(&in_blocks);
        assert_eq!(crcs(&report), expected, "type {number}");
        let logits = file_logits(&report.out, &tokens, KvDType::F16);
        assert!(logits.iter().flatten().all(|logit| logit.is_finite()) && logits[23].iter().any(|logit| *logit != logits[23][0]));
    }
}

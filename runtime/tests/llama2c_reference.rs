//! The network alone, on llama2.c's own weights, against reference logits that were computed in f64. Needs `../shared/data`.

use dmexp::format::arch::llama::{LlamaConfig, RopeLayout, TensorKind};
use dmexp::format::{DType, Dims, KvDType, TensorView};
use dmexp::models::llama::Llama;
use dmexp::tokenizer::Tokenizer;
use dmexp::{Model, Sampler, Session};
use std::path::{Path, PathBuf};

fn data(name: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data").join(name);
    if path.exists() {
        return Some(path);
    }
    println!("not run: ../shared/data/{name} is not here");
    None
}

fn floats(path: &Path) -> Vec<f32> {
    std::fs::read(path).unwrap().as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

/// A llama2.c checkpoint of version 0, with its tensors in our order.
struct Checkpoint {
    config: LlamaConfig,
    bytes: Vec<u8>,
    inv_freq: Vec<u8>,
}

impl Checkpoint {
    fn read(path: &Path) -> Self {
        let bytes = std::fs::read(path).unwrap();
        let word = |i: usize| i32::from_le_bytes(bytes[4 * i..4 * i + 4].try_into().unwrap());
        let config = LlamaConfig {
            dim: word(0) as u32,
            hidden_dim: word(1) as u32,
            n_layers: word(2) as u32,
            n_heads: word(3) as u32,
            n_kv_heads: word(4) as u32,
            head_dim: (word(0) / word(3)) as u32,
            vocab_size: word(5).unsigned_abs(),
            max_seq_len: word(6) as u32,
            norm_eps: 1e-5,
            rope_layout: RopeLayout::Interleaved,
            attention_factor: 1.0,
            tied_embeddings: word(5) > 0,
            qkv_bias: false,
            sliding_window: 0,
        };
        let half = config.head_dim / 2;
        let inv_freq =
            (0..half).flat_map(|i| (10000f64.powf(-f64::from(2 * i) / f64::from(config.head_dim)) as f32).to_le_bytes()).collect();
        Self { config, bytes, inv_freq }
    }

    /// Where the file has a tensor: all layers of one kind, then those of the next.
    fn offset(&self, kind: TensorKind, layer: u32) -> usize {
        use TensorKind::{AttentionNorm, FfnNorm, Norm, Output, TokEmbeddings, W1, W2, W3, Wk, Wo, Wq, Wv};
        let mut offset = 28;
        for stored in [TokEmbeddings, AttentionNorm, Wq, Wk, Wv, Wo, FfnNorm, W1, W2, W3, Norm, Output] {
            let count = self.config.dims(stored).count() as usize;
            if stored == Output {
                // The tables of sines and cosines lie before it.
                offset += (self.config.max_seq_len * self.config.head_dim * 4) as usize;
            }
            if stored == kind {
                return offset + 4 * count * layer as usize;
            }
            let layers = if matches!(stored, TokEmbeddings | Norm | Output) { 1 } else { self.config.n_layers as usize };
            offset += 4 * count * layers;
        }
        panic!("{kind:?} is not stored")
    }

    fn table(&self) -> Vec<TensorView<'_>> {
        let weights = (0..self.config.weight_tensors()).map(|number| {
            let spec = self.config.tensor(number).unwrap();
            let start = self.offset(spec.kind, spec.layer.unwrap_or(0));
            let len = spec.dims.count() as usize * 4;
            TensorView::new(number, DType::F32, spec.dims, &self.bytes[start..start + len]).unwrap()
        });
        let inv_freq = TensorView::new(0, DType::F32, Dims::vector(self.config.head_dim / 2), &self.inv_freq).unwrap();
        weights.chain([inv_freq]).collect()
    }

    /// Teacher-forced logits.
    fn logits(&self, tokens: &[u32]) -> Vec<f32> {
        let table = self.table();
        let model = Model::from_parts(Llama::from_table(self.config, &table), Tokenizer::NONE, self.config.max_seq_len, KvDType::F32);
        let mut memory = vec![0u32; model.arena_len().unwrap() / 4];
        let mut session = Session::new(model, memory.as_mut_slice(), Sampler::greedy()).unwrap();
        tokens
            .iter()
            .flat_map(|token| {
                session.push_tokens(&[*token]).unwrap();
                session.logits().unwrap().to_vec()
            })
            .collect()
    }
}

fn worst(found: &[f32], expected: &[f32]) -> f32 {
    assert_eq!(found.len(), expected.len());
    found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

#[test]
fn stories260k_is_within_3e_5_of_f64_at_every_position() {
    let (Some(model), Some(path)) = (data("stories260K/stories260K.bin"), data("ref/stories260K_greedy.json")) else { return };
    let reference: serde_json::Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let tokens: Vec<u32> = reference["fed_tokens"].as_array().unwrap().iter().map(|token| token.as_u64().unwrap() as u32).collect();
    let found = Checkpoint::read(&model).logits(&tokens);
    let expected = floats(&data("ref/stories260K_greedy_logits_f64.f32").unwrap());
    let worst = worst(&found, &expected);
    println!("stories260K, {} logits: worst difference from f64 {worst:e}", found.len());
    assert!(worst <= 3e-5, "{worst:e}");
}

#[test]
fn made_checkpoints_give_their_reference_logits() {
    for name in ["mha_tied", "gqa_untied", "mqa_odd"] {
        let Some(folder) = data(&format!("llama2c-made/{name}")) else { return };
        let reference: serde_json::Value = serde_json::from_slice(&std::fs::read(folder.join("ref.json")).unwrap()).unwrap();
        let tokens: Vec<u32> = reference["tokens"].as_array().unwrap().iter().map(|token| token.as_u64().unwrap() as u32).collect();
        let found = Checkpoint::read(&folder.join("model_v0.bin")).logits(&tokens);
        let expected = floats(&folder.join("ref_logits_f64.f32"));
        let largest = expected.iter().fold(0f32, |max, logit| max.max(logit.abs()));
        let worst = worst(&found, &expected);
        println!("{name}: worst difference from f64 {worst:e}, largest logit {largest}");
        assert!(worst <= 1e-4 * largest, "{name}: {worst:e} of {largest}");
    }
}

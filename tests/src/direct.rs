//! Decodes llama2.c checkpoints as they are: read from the description of the format, sharing no code with importer, exporter or file reader. What exports are compared with.

use dmexp::format::arch::llama::{LlamaConfig, RopeLayout, TensorKind};
use dmexp::format::{DType, Dims, KvDType, TensorView};
use dmexp::models::llama::Llama;
use dmexp::tokenizer::Tokenizer;
use dmexp::{Model, Sampler, Session};
use std::path::Path;

/// The kinds of tensors in the order of version 0, which stores all layers of one before the next.
const V0: [TensorKind; 12] = {
    use TensorKind::{AttentionNorm, FfnNorm, Norm, Output, TokEmbeddings, W1, W2, W3, Wk, Wo, Wq, Wv};
    [TokEmbeddings, AttentionNorm, Wq, Wk, Wv, Wo, FfnNorm, W1, W2, W3, Norm, Output]
};

/// The same in the order of versions 1 and 2.
const V1: [TensorKind; 12] = {
    use TensorKind::{AttentionNorm, FfnNorm, Norm, Output, TokEmbeddings, W1, W2, W3, Wk, Wo, Wq, Wv};
    [AttentionNorm, FfnNorm, Norm, TokEmbeddings, Wq, Wk, Wv, Wo, W1, W2, W3, Output]
};

/// A llama2.c checkpoint of version 0, 1 or 2.
#[derive(Debug)]
pub struct Checkpoint {
    config: LlamaConfig,
    /// What each tensor holds, with its kind and layer.
    tensors: Vec<(TensorKind, u32, Vec<u8>)>,
    inv_freq: Vec<u8>,
}

impl Checkpoint {
    /// Reads a checkpoint.
    ///
    /// # Panics
    /// If it is none.
    pub fn read(path: &Path) -> Self {
        let bytes = std::fs::read(path).expect("the checkpoint can be read");
        let word = |place: usize| i32::from_le_bytes(*bytes[place..].first_chunk().expect("a header"));
        let version = if bytes.starts_with(b"24ka") { word(4) } else { 0 };
        let (start, body) = if version == 0 { (0, 28) } else { (8, 256) };
        let field = |number: usize| word(start + 4 * number);
        let config = LlamaConfig {
            dim: field(0) as u32,
            hidden_dim: field(1) as u32,
            n_layers: field(2) as u32,
            n_heads: field(3) as u32,
            n_kv_heads: field(4) as u32,
            head_dim: (field(0) / field(3)) as u32,
            vocab_size: field(5).unsigned_abs(),
            max_seq_len: field(6) as u32,
            norm_eps: 1e-5,
            rope_layout: RopeLayout::Interleaved,
            attention_factor: 1.0,
            tied_embeddings: if version == 0 { field(5) > 0 } else { bytes[36] != 0 },
            qkv_bias: false,
            sliding_window: 0,
        };
        let group = if version == 2 { word(37) as usize } else { 0 };
        let mut tensors = Vec::new();
        let mut rest = &bytes[body..];
        let mut take = |len: usize| {
            let (taken, after) = rest.split_at(len);
            rest = after;
            taken
        };
        for kind in if version == 0 { V0 } else { V1 } {
            if kind == TensorKind::Output {
                if version == 0 {
                    // The tables of cosines and sines, which nobody reads.
                    take((config.max_seq_len * config.head_dim * 4) as usize);
                }
                if config.tied_embeddings {
                    continue;
                }
            }
            let single = matches!(kind, TensorKind::TokEmbeddings | TensorKind::Norm | TensorKind::Output);
            let count = config.dims(kind).count() as usize;
            for layer in 0..if single { 1 } else { config.n_layers } {
                let values = if group > 0 && kind.is_matrix() {
                    let codes = take(count);
                    let scales = take(count / group * 4).as_chunks::<4>().0;
                    let value = |(place, code): (usize, &u8)| f32::from(*code as i8) * f32::from_le_bytes(scales[place / group]);
                    codes.iter().enumerate().map(value).flat_map(f32::to_le_bytes).collect()
                } else {
                    take(4 * count).to_vec()
                };
                tensors.push((kind, layer, values));
            }
        }
        assert!(rest.is_empty(), "{} bytes are left of {}", rest.len(), path.display());
        let frequency = |pair: u32| 10000f64.powf(-f64::from(2 * pair) / f64::from(config.head_dim)) as f32;
        let inv_freq = (0..config.head_dim / 2).map(frequency).flat_map(f32::to_le_bytes).collect();
        Self { config, tensors, inv_freq }
    }

    /// The configuration.
    pub fn config(&self) -> &LlamaConfig {
        &self.config
    }

    /// Logits of `tokens` at every position (teacher forcing).
    ///
    /// # Panics
    /// If there are more than the context has room for.
    pub fn logits(&self, tokens: &[u32], kv: KvDType) -> Vec<f32> {
        let config = self.config;
        let wanted = (0..config.weight_tensors()).filter_map(|number| config.tensor(number));
        let mut table: Vec<_> = wanted
            .map(|spec| {
                let of_it = |(kind, layer, _): &&(TensorKind, u32, Vec<u8>)| (*kind, *layer) == (spec.kind, spec.layer.unwrap_or(0));
                let (_, _, bytes) = self.tensors.iter().find(of_it).expect("every tensor was read");
                TensorView::new(0, DType::F32, spec.dims, bytes).expect("as many bytes as the dims need")
            })
            .collect();
        table.push(TensorView::new(0, DType::F32, Dims::vector(config.head_dim / 2), &self.inv_freq).expect("half a head"));
        let model = Model::from_parts(Llama::from_table(config, &table), Tokenizer::NONE, config.max_seq_len, kv);
        let mut memory = vec![0u32; model.arena_len().expect("it fits").div_ceil(4)];
        let mut session = Session::new(&model, memory.as_mut_slice(), Sampler::greedy()).expect("a session");
        let mut logits = Vec::new();
        for token in tokens {
            session.push_tokens(&[*token]).expect("there is room");
            logits.extend_from_slice(session.logits().expect("finite logits"));
        }
        logits
    }
}

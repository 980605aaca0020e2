//! Small models for the tests.

use crate::arch::llama::{LlamaConfig, RopeLayout};
use crate::host::{Config, Figures, Header, LlamaSettings, Measure, Provenance, Scalar, TensorEntry, TensorSpec, Tokenizer, to_bytes};
use crate::tokenizer::TokenizerKind;
use crate::{DType, Dims};
use half::bf16;

/// Vocabulary of 8, one layer, everything four wide.
pub(crate) const CONFIG: LlamaConfig = LlamaConfig {
    dim: 4,
    hidden_dim: 4,
    n_layers: 1,
    n_heads: 2,
    n_kv_heads: 1,
    head_dim: 2,
    vocab_size: 8,
    max_seq_len: 16,
    norm_eps: 1e-5,
    rope_layout: RopeLayout::Interleaved,
    attention_factor: 1.0,
    tied_embeddings: true,
    qkv_bias: false,
    sliding_window: 0,
};

const PIECES: [&str; 8] = ["<unk>", "<s>", "</s>", " ", "a", "b", "ab", " ab"];

/// A model with its bytes.
pub(crate) struct Tiny {
    pub(crate) header: Header,
    pub(crate) tensors: Vec<Vec<u8>>,
}

impl Tiny {
    pub(crate) fn file(&self) -> Vec<u8> {
        let tensors: Vec<_> = self.tensors.iter().map(Vec::as_slice).collect();
        to_bytes(&self.header, 16, &tensors).unwrap()
    }
}

pub(crate) fn tokenizer() -> Tokenizer {
    Tokenizer {
        kind: TokenizerKind::SentencepieceBpe,
        n_pieces: 8,
        add_bos: true,
        dummy_prefix: true,
        bos: Some(1),
        eos: vec![2],
        unk: Some(0),
        max_piece_len: 5,
        ..Tokenizer::NONE
    }
}

/// Weights of a kind: the bytes of `count` small numbers in this type, the same on every machine.
pub(crate) fn weights(seed: u32, count: u64, dtype: DType) -> Vec<u8> {
    let values = (0..count as u32).map(|n| (seed.wrapping_mul(7919).wrapping_add(n.wrapping_mul(104_729)) % 255) as f32 / 128.0 - 1.0);
    match dtype {
        DType::Bf16 => values.flat_map(|value| bf16::from_f32(value).to_le_bytes()).collect(),
        DType::F16 => values.flat_map(|value| half::f16::from_f32(value).to_le_bytes()).collect(),
        _ => values.flat_map(f32::to_le_bytes).collect(),
    }
}

/// The tiny model with matrices in `dtype`.
pub(crate) fn tiny(dtype: DType) -> Tiny {
    model(CONFIG, |number, dims| (dtype, 0, weights(number, dims.count(), dtype)))
}

/// A model of this shape whose matrices are what `matrix` makes of their numbers and dims: type, group and bytes.
pub(crate) fn model(config: LlamaConfig, mut matrix: impl FnMut(u32, Dims) -> (DType, u32, Vec<u8>)) -> Tiny {
    let mut measure = Measure::new(16).unwrap();
    let mut tensors = Vec::new();
    let mut grouped = |name: String, dtype: DType, group: u32, dims: Dims, trainable: bool, bytes: Vec<u8>| {
        measure.tensor(TensorSpec { name, dtype, dims, group, trainable, transposed: false }, &bytes, 0).unwrap();
        tensors.push(bytes);
    };
    for number in 0..config.weight_tensors() {
        let spec = config.tensor(number).unwrap();
        let vector = |dims: Dims| (DType::F32, 0, weights(number, dims.count(), DType::F32));
        let (dtype, group, bytes) = if spec.kind.is_matrix() { matrix(number, spec.dims) } else { vector(spec.dims) };
        grouped(spec.to_string(), dtype, group, spec.dims, true, bytes);
    }
    let mut add = |name: String, dtype, dims, trainable, bytes| grouped(name, dtype, 0, dims, trainable, bytes);
    let frequencies: Vec<u8> = (0..config.head_dim / 2).flat_map(|n| (1.0 / (n + 1) as f32).to_le_bytes()).collect();
    add("rope.inv_freq".into(), DType::F32, Dims::vector(config.head_dim / 2), false, frequencies);
    let text = PIECES.concat();
    let ends = PIECES.iter().scan(0, |end, piece| {
        *end += piece.len() as u32;
        Some(*end)
    });
    let offsets: Vec<u8> = std::iter::once(0).chain(ends).flat_map(u32::to_le_bytes).collect();
    let scores: Vec<u8> = [0.0, 0.0, 0.0, -3.0, -4.0, -5.0, -1.0, -2.0f32].into_iter().flat_map(f32::to_le_bytes).collect();
    let mut sorted: Vec<u32> = (0..8).collect();
    sorted.sort_by_key(|id| PIECES[*id as usize]);
    let sorted: Vec<u8> = sorted.into_iter().flat_map(u32::to_le_bytes).collect();
    add("tokenizer.pieces".into(), DType::U8, Dims::vector(text.len() as u32), false, text.into_bytes());
    add("tokenizer.offsets".into(), DType::U32, Dims::vector(9), false, offsets);
    add("tokenizer.scores".into(), DType::F32, Dims::vector(8), false, scores);
    add("tokenizer.sorted".into(), DType::U32, Dims::vector(8), false, sorted);
    let config = Config::Llama(LlamaSettings { model: config, rope_theta: Some(10_000.0), rope_scaling: [].into() });
    let provenance =
        Provenance { source: "tiny.bin".into(), importer: "none".into(), exporter: "dmexp example".into(), ..Provenance::default() };
    Tiny { header: Header::new(config, tokenizer(), provenance, measure.finish()).unwrap(), tensors }
}

/// A header of any shape that keeps the rules: figures and checksums are made up, there is no payload to it.
pub(crate) fn made_up(model: LlamaConfig, tokenizer: Tokenizer, figures: &[Figures], scaling: Vec<(String, Scalar)>) -> Header {
    let mut header = tiny(DType::F32).header;
    let mut offset = 0u64;
    let mut tensors = Vec::new();
    let mut add = |name: String, dtype: DType, dims: Dims, trainable: bool| {
        let number = tensors.len();
        let figures = figures.get(number % figures.len().max(1)).copied().unwrap_or(Figures::NONE);
        let spec = TensorSpec { name, dtype, dims, group: 0, trainable, transposed: number.is_multiple_of(3) };
        offset = offset.next_multiple_of(64);
        let entry = TensorEntry { offset, crc32: number as u32 * 77_777, figures: dtype.is_weight().then_some(figures), spec };
        offset += entry.bytes();
        tensors.push(entry);
    };
    for number in 0..model.weight_tensors() {
        let spec = model.tensor(number).unwrap();
        let dtype = if spec.kind.is_matrix() { [DType::F32, DType::F16, DType::Bf16][number as usize % 3] } else { DType::F32 };
        add(spec.to_string(), dtype, spec.dims, true);
    }
    add("rope.inv_freq".into(), DType::F32, Dims::vector(model.head_dim / 2), false);
    if tokenizer.kind.arrays().is_some() {
        add("tokenizer.pieces".into(), DType::U8, Dims::vector(99), false);
        add("tokenizer.offsets".into(), DType::U32, Dims::vector(tokenizer.n_pieces + 1), false);
        if tokenizer.kind == TokenizerKind::ByteLevelBpe {
            add("tokenizer.merges".into(), DType::U32, Dims::matrix(3, 4), false);
        } else {
            add("tokenizer.scores".into(), DType::F32, Dims::vector(tokenizer.n_pieces), false);
        }
        add("tokenizer.sorted".into(), DType::U32, Dims::vector(tokenizer.n_pieces), false);
    }
    header.tensors = tensors;
    header.tokenizer = tokenizer;
    header.config = Config::Llama(LlamaSettings { model, rope_theta: None, rope_scaling: scaling.into_iter().collect() });
    header
}

//! Models made for the tests: any shape, any types, weights of a fixed generator. And stories260K, where the reference data are.

use dmexp::format::arch::llama::{LlamaConfig, RopeLayout, TensorKind};
use dmexp::format::{DType, Dims, KvDType, Planes, TensorView};
use dmexp::models::llama::Llama;
use dmexp::ops::convert::narrow_f16;
use dmexp::tokenizer::Tokenizer;
use dmexp::{Model, Sampler, Session};
use std::path::Path;

/// Numbers that are the same on every machine.
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as u32
    }

    /// Between -1 and 1.
    pub(crate) fn float(&mut self) -> f32 {
        self.next() as f32 / (1u32 << 30) as f32 - 1.0
    }
}

/// A tensor with its bytes.
pub(crate) struct Tensor {
    dtype: DType,
    group: u32,
    dims: Dims,
    bytes: Vec<u8>,
}

impl Tensor {
    /// Of these values, or of what is left of them in this type.
    pub(crate) fn new((dtype, group): Kind, dims: Dims, values: &[f32]) -> Self {
        Self { dtype, group, dims, bytes: stored(dtype, group, dims, values) }
    }

    /// The tensor where it lies.
    pub(crate) fn view(&self, number: u32) -> TensorView<'_> {
        TensorView::grouped(number, self.dtype, self.dims, self.group, &self.bytes).expect("a tensor as long as its dims say")
    }
}

/// A model in memory.
pub(crate) struct Made {
    pub(crate) config: LlamaConfig,
    tensors: Vec<Tensor>,
}

/// An element type and the length of its groups (0: a row is one).
pub(crate) type Kind = (DType, u32);

/// A shape with every size odd that may be.
pub(crate) const ODD: LlamaConfig = LlamaConfig {
    dim: 37,
    hidden_dim: 53,
    n_layers: 2,
    n_heads: 6,
    n_kv_heads: 2,
    head_dim: 10,
    vocab_size: 101,
    max_seq_len: 64,
    norm_eps: 1e-5,
    rope_layout: RopeLayout::Interleaved,
    attention_factor: 1.0,
    tied_embeddings: true,
    qkv_bias: false,
    sliding_window: 0,
};

impl Made {
    /// Of this shape; `kind` gives the type of each matrix.
    pub(crate) fn new(config: LlamaConfig, kind: impl Fn(TensorKind, u32) -> Kind) -> Self {
        let mut rng = Rng::new(u64::from(config.dim) * 1000 + u64::from(config.vocab_size));
        Self::from_values(config, kind, |kind, dims| {
            let size = if kind.is_matrix() { 2.0 / (dims.cols() as f32).sqrt() } else { 0.3 };
            let middle = if matches!(kind, TensorKind::AttentionNorm | TensorKind::FfnNorm | TensorKind::Norm) { 1.0 } else { 0.0 };
            (0..dims.count()).map(|_| rng.float() * size + middle).collect()
        })
    }

    fn from_values(
        config: LlamaConfig,
        kind: impl Fn(TensorKind, u32) -> Kind,
        mut values: impl FnMut(TensorKind, Dims) -> Vec<f32>,
    ) -> Self {
        let tensors = (0..config.weight_tensors()).map(|number| {
            let spec = config.tensor(number).expect("a tensor of the configuration");
            let kind = if spec.kind.is_matrix() { kind(spec.kind, number) } else { (DType::F32, 0) };
            Tensor::new(kind, spec.dims, &values(spec.kind, spec.dims))
        });
        let mut tensors: Vec<_> = tensors.collect();
        let half = config.head_dim / 2;
        let frequencies: Vec<f32> = (0..half).map(|i| 10_000f64.powf(-f64::from(i) / f64::from(half)) as f32).collect();
        tensors.push(Tensor::new((DType::F32, 0), Dims::vector(half), &frequencies));
        Self { config, tensors }
    }

    /// stories260K with matrices of a type; `None`, said in one line, where the reference data are not.
    pub(crate) fn stories(kind: Kind) -> Option<Self> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/stories260K/stories260K.bin");
        let Ok(bytes) = std::fs::read(&path) else {
            eprintln!("skipped: {} is not there", path.display());
            return None;
        };
        let word = |at: usize| i32::from_le_bytes(bytes[4 * at..4 * at + 4].try_into().expect("four bytes"));
        let [dim, hidden_dim, n_layers, n_heads, n_kv_heads, vocab_size, max_seq_len] = std::array::from_fn(|at| word(at).unsigned_abs());
        assert!(word(5) > 0, "the classifier of stories260K is its embedding");
        let head_dim = dim / n_heads;
        let config = LlamaConfig { dim, hidden_dim, n_layers, n_heads, n_kv_heads, head_dim, vocab_size, max_seq_len, ..ODD };
        let floats: Vec<f32> = bytes[28..].as_chunks::<4>().0.iter().map(|word| f32::from_le_bytes(*word)).collect();
        // The file has each kind of tensor for all layers, one kind after the other.
        let order = [
            TensorKind::AttentionNorm,
            TensorKind::Wq,
            TensorKind::Wk,
            TensorKind::Wv,
            TensorKind::Wo,
            TensorKind::FfnNorm,
            TensorKind::W1,
            TensorKind::W2,
            TensorKind::W3,
        ];
        let mut starts = vec![(TensorKind::TokEmbeddings, 0)];
        let mut at = (vocab_size * dim) as usize;
        for kind in order {
            starts.push((kind, at));
            at += config.dims(kind).count() as usize * n_layers as usize;
        }
        starts.push((TensorKind::Norm, at));
        Some(Self::from_values(
            config,
            |_, _| kind,
            |kind, dims| {
                let start = starts.iter_mut().find(|(of, _)| *of == kind).expect("a tensor of the file");
                let first = start.1;
                start.1 += dims.count() as usize;
                floats[first..start.1].to_vec()
            },
        ))
    }

    /// The same model with one number everywhere in a tensor of `f32`.
    pub(crate) fn filled(mut self, kind: TensorKind, value: f32) -> Self {
        let tensor = &mut self.tensors[self.config.tensor_number(kind, 0) as usize];
        assert_eq!(tensor.dtype, DType::F32);
        tensor.bytes = value.to_le_bytes().repeat(tensor.dims.count() as usize);
        self
    }

    /// The same model with one number everywhere in a row of a tensor of `f32`.
    #[allow(dead_code, reason = "the tests of the driver's calls have a use for it")]
    pub(crate) fn with_row(mut self, kind: TensorKind, row: usize, value: f32) -> Self {
        let tensor = &mut self.tensors[self.config.tensor_number(kind, 0) as usize];
        assert_eq!(tensor.dtype, DType::F32);
        let bytes = 4 * tensor.dims.cols() as usize;
        tensor.bytes[row * bytes..(row + 1) * bytes].copy_from_slice(&value.to_le_bytes().repeat(bytes / 4));
        self
    }

    /// The tensors where they lie, in the file's order, rotation frequencies last.
    pub(crate) fn views(&self) -> Vec<TensorView<'_>> {
        self.tensors.iter().zip(0..).map(|(tensor, number)| tensor.view(number)).collect()
    }

    pub(crate) fn frequencies(&self) -> Vec<f32> {
        let tensor = self.tensors.last().expect("the rotation frequencies");
        tensor.bytes.as_chunks::<4>().0.iter().map(|word| f32::from_le_bytes(*word)).collect()
    }

    /// Tokens for so many positions.
    pub(crate) fn tokens(&self, count: u32) -> Vec<u32> {
        let mut rng = Rng::new(77);
        (0..count).map(|_| rng.next() % self.config.vocab_size).collect()
    }

    /// The runtime's logits after each of `tokens`, as patterns.
    pub(crate) fn expected(&self, kv: KvDType, tokens: &[u32]) -> Vec<Vec<u32>> {
        let views = self.views();
        let context = tokens.len() as u32;
        let model = Model::from_parts(Llama::from_table(self.config, &views), Tokenizer::NONE, context, kv);
        let mut memory = vec![0u32; model.arena_len().expect("a size").div_ceil(4)];
        let mut session = Session::new(&model, &mut memory[..], Sampler::greedy()).expect("a session");
        session.push_tokens(tokens).expect("tokens of the vocabulary");
        let mut all = Vec::new();
        let each = |_, logits: &[f32]| {
            all.push(logits.iter().map(|logit| logit.to_bits()).collect());
            Ok::<_, dmexp::format::Error>(())
        };
        session.each_logits(each).expect("finite logits");
        all
    }
}

/// The bytes of a tensor with these values, or with what is left of them in its type.
fn stored(dtype: DType, group: u32, dims: Dims, values: &[f32]) -> Vec<u8> {
    match dtype {
        DType::F32 => values.iter().flat_map(|value| value.to_le_bytes()).collect(),
        DType::F16 => values.iter().flat_map(|value| narrow_f16(*value).to_le_bytes()).collect(),
        DType::Bf16 => values.iter().flat_map(|value| ((value.to_bits() >> 16) as u16).to_le_bytes()).collect(),
        _ => quantised(dtype, group, dims, values),
    }
}

fn quantised(dtype: DType, group: u32, dims: Dims, values: &[f32]) -> Vec<u8> {
    let planes = Planes::new(0, dtype, dims, group).expect("a group that the type allows");
    let mut bytes = vec![0u8; planes.bytes as usize];
    let cols = dims.cols() as usize;
    let group = if group == 0 { cols } else { group as usize };
    let largest = |values: &[f32]| values.iter().fold(1e-9f32, |largest, value| largest.max(value.abs()));
    if dtype == DType::T2 {
        let scale = largest(values) / 2.0;
        bytes[planes.scales as usize..][..4].copy_from_slice(&scale.to_le_bytes());
        for (i, value) in values.iter().enumerate() {
            let code = if *value > scale / 2.0 { 1 } else { 2 * u8::from(*value < -scale / 2.0) };
            bytes[i / cols * planes.row_stride as usize + i % cols / 4] |= code << (2 * (i % cols % 4));
        }
        return bytes;
    }
    for (r, row) in values.chunks(cols).enumerate() {
        let grouped = planes.multiplier_count > 0;
        let codes = if dtype == DType::Q8 { 127.0 } else { 7.0 };
        let scale = largest(row) / (codes * if grouped { 200.0 } else { 1.0 });
        bytes[planes.scales as usize + 4 * r..][..4].copy_from_slice(&scale.to_le_bytes());
        for (g, part) in row.chunks(group).enumerate() {
            let at = r * planes.groups as usize + g;
            let multiplier = if grouped { (largest(part) / (codes * scale)).ceil().clamp(1.0, 255.0) } else { 1.0 };
            if grouped {
                bytes[planes.multipliers as usize + at] = multiplier as u8;
            }
            let offset = if dtype == DType::Q4 { (-7.5 * multiplier).round() } else { 0.0 };
            if dtype == DType::Q4 {
                bytes[planes.offsets as usize + 2 * at..][..2].copy_from_slice(&(offset as i16).to_le_bytes());
            }
            for (i, value) in part.iter().enumerate() {
                let (column, code) = (g * group + i, ((value / scale - offset) / multiplier).round());
                let place = r * planes.row_stride as usize;
                if dtype == DType::Q8 {
                    bytes[place + column] = (code.clamp(-127.0, 127.0) as i8).cast_unsigned();
                } else {
                    bytes[place + column / 2] |= (code.clamp(0.0, 15.0) as u8) << (4 * (column & 1));
                }
            }
        }
    }
    bytes
}

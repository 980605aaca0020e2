//! A writer of GGUF files from the published layout, for tests: any keys, any tensors, any mistakes.

use crate::checkpoint::gguf::blocks::{self, BlockType, LONGEST};
use std::collections::BTreeMap;

/// A value of a key.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    Text(Vec<u8>),
    Texts(Vec<Vec<u8>>),
    I32s(Vec<i32>),
    F32s(Vec<f32>),
    /// Kind and bytes as they are.
    Raw(u32, Vec<u8>),
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.as_bytes().to_vec())
    }
}

impl From<u32> for Value {
    fn from(number: u32) -> Self {
        Self::U32(number)
    }
}

impl From<f32> for Value {
    fn from(number: f32) -> Self {
        Self::F32(number)
    }
}

impl From<bool> for Value {
    fn from(flag: bool) -> Self {
        Self::Bool(flag)
    }
}

impl From<&[&str]> for Value {
    fn from(texts: &[&str]) -> Self {
        Self::Texts(texts.iter().map(|text| text.as_bytes().to_vec()).collect())
    }
}

/// A tensor: sizes, the fastest-running first; ggml's number of the type; the bytes.
#[derive(Clone, Debug)]
pub(crate) struct Tensor {
    pub(crate) name: String,
    pub(crate) sizes: Vec<u64>,
    pub(crate) kind: u32,
    pub(crate) data: Vec<u8>,
    /// Instead of the place behind the tensor before it.
    pub(crate) offset: Option<u64>,
}

/// A file to be written.
#[derive(Clone, Debug)]
pub(crate) struct Gguf {
    pub(crate) version: u32,
    pub(crate) alignment: u64,
    pub(crate) keys: Vec<(String, Value)>,
    pub(crate) tensors: Vec<Tensor>,
}

impl Gguf {
    pub(crate) fn new() -> Self {
        Self { version: 3, alignment: 32, keys: Vec::new(), tensors: Vec::new() }
    }

    /// Sets a key, in its place if it is there already.
    pub(crate) fn set(&mut self, key: &str, value: impl Into<Value>) -> &mut Self {
        let value = value.into();
        match self.keys.iter_mut().find(|(name, _)| name == key) {
            Some((_, old)) => *old = value,
            None => self.keys.push((key.to_owned(), value)),
        }
        self
    }

    pub(crate) fn unset(&mut self, key: &str) -> &mut Self {
        self.keys.retain(|(name, _)| name != key);
        self
    }

    pub(crate) fn tensor(&mut self, name: &str, sizes: &[u64], kind: u32, data: Vec<u8>) -> &mut Self {
        self.tensors.push(Tensor { name: name.to_owned(), sizes: sizes.to_vec(), kind, data, offset: None });
        self
    }

    pub(crate) fn named(&mut self, name: &str) -> &mut Tensor {
        self.tensors.iter_mut().find(|tensor| tensor.name == name).expect("there is such a tensor")
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut out = b"GGUF".to_vec();
        out.extend(self.version.to_le_bytes());
        out.extend((self.tensors.len() as u64).to_le_bytes());
        out.extend((self.keys.len() as u64).to_le_bytes());
        for (key, value) in &self.keys {
            text(&mut out, key.as_bytes());
            put(&mut out, value);
        }
        let mut next = 0;
        let mut data = Vec::new();
        for tensor in &self.tensors {
            text(&mut out, tensor.name.as_bytes());
            out.extend((tensor.sizes.len() as u32).to_le_bytes());
            out.extend(tensor.sizes.iter().flat_map(|size| size.to_le_bytes()));
            out.extend(tensor.kind.to_le_bytes());
            out.extend(tensor.offset.unwrap_or(next).to_le_bytes());
            data.resize(next as usize, 0);
            data.extend(&tensor.data);
            next = (data.len() as u64).next_multiple_of(self.alignment);
        }
        out.resize(out.len().next_multiple_of(self.alignment as usize), 0);
        out.extend(data);
        out
    }
}

fn text(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend((bytes.len() as u64).to_le_bytes());
    out.extend(bytes);
}

fn put(out: &mut Vec<u8>, value: &Value) {
    let list = |out: &mut Vec<u8>, kind: u32, len: usize| {
        out.extend(9u32.to_le_bytes());
        out.extend(kind.to_le_bytes());
        out.extend((len as u64).to_le_bytes());
    };
    let scalar = |out: &mut Vec<u8>, kind: u32, bytes: &[u8]| {
        out.extend(kind.to_le_bytes());
        out.extend(bytes);
    };
    match value {
        Value::U32(number) => scalar(out, 4, &number.to_le_bytes()),
        Value::I32(number) => scalar(out, 5, &number.to_le_bytes()),
        Value::F32(number) => scalar(out, 6, &number.to_le_bytes()),
        Value::Bool(flag) => scalar(out, 7, &[u8::from(*flag)]),
        Value::Raw(kind, bytes) => scalar(out, *kind, bytes),
        Value::Text(bytes) => {
            out.extend(8u32.to_le_bytes());
            text(out, bytes);
        }
        Value::Texts(texts) => {
            list(out, 8, texts.len());
            for bytes in texts {
                text(out, bytes);
            }
        }
        Value::I32s(numbers) => {
            list(out, 5, numbers.len());
            out.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
        }
        Value::F32s(numbers) => {
            list(out, 6, numbers.len());
            out.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
        }
    }
}

/// The shape of a made model.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) dim: u64,
    pub(crate) hidden: u64,
    pub(crate) layers: u64,
    pub(crate) heads: u64,
    pub(crate) kv_heads: u64,
    pub(crate) vocab: u64,
    pub(crate) context: u32,
}

pub(crate) const TINY: Shape = Shape { dim: 8, hidden: 12, layers: 2, heads: 2, kv_heads: 1, vocab: 16, context: 32 };

/// The tensors that a tied model of this shape has without biases: name and sizes, the fastest-running first.
pub(crate) fn tensors_of(shape: &Shape) -> Vec<(String, Vec<u64>)> {
    let Shape { dim, hidden, layers, heads, kv_heads, vocab, .. } = *shape;
    let kv = dim / heads * kv_heads;
    let mut list = vec![("token_embd.weight".to_owned(), vec![dim, vocab])];
    for layer in 0..layers {
        let names: [(&str, Vec<u64>); 9] = [
            ("attn_norm", vec![dim]),
            ("attn_q", vec![dim, dim]),
            ("attn_k", vec![dim, kv]),
            ("attn_v", vec![dim, kv]),
            ("attn_output", vec![dim, dim]),
            ("ffn_norm", vec![dim]),
            ("ffn_gate", vec![dim, hidden]),
            ("ffn_up", vec![dim, hidden]),
            ("ffn_down", vec![hidden, dim]),
        ];
        list.extend(names.into_iter().map(|(name, sizes)| (format!("blk.{layer}.{name}.weight"), sizes)));
    }
    list.push(("output_norm.weight".to_owned(), vec![dim]));
    list
}

/// The metadata of a Llama of this shape.
pub(crate) fn keys_of(shape: &Shape) -> Gguf {
    let mut file = Gguf::new();
    file.set("general.architecture", "llama")
        .set("llama.block_count", shape.layers as u32)
        .set("llama.context_length", shape.context)
        .set("llama.embedding_length", shape.dim as u32)
        .set("llama.feed_forward_length", shape.hidden as u32)
        .set("llama.attention.head_count", shape.heads as u32)
        .set("llama.attention.head_count_kv", shape.kv_heads as u32)
        .set("llama.attention.layer_norm_rms_epsilon", 1e-5)
        .set("llama.rope.freq_base", 10_000.0);
    file
}

/// A Llama with made weights in f32.
pub(crate) fn model(shape: &Shape) -> Gguf {
    let mut file = keys_of(shape);
    for (number, (name, sizes)) in tensors_of(shape).iter().enumerate() {
        let count = sizes.iter().product::<u64>() as usize;
        file.tensor(name, sizes, 0, weights(count, number as u64 + 1).iter().flat_map(|weight| weight.to_le_bytes()).collect());
    }
    file
}

/// Made weights between -1 and 1.
pub(crate) fn weights(count: usize, seed: u64) -> Vec<f32> {
    let mut bytes = Bytes(seed);
    (0..count).map(|_| (f32::from(bytes.next()) + f32::from(bytes.next()) / 256.0 - 128.0) / 128.0).collect()
}

/// Made bytes: the upper ones of xorshift64*.
pub(crate) struct Bytes(pub(crate) u64);

impl Bytes {
    pub(crate) fn next(&mut self) -> u8 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 56) as u8
    }
}

/// `bytes` by the name of a checkpoint that is named nowhere else.
pub(crate) fn open(bytes: Vec<u8>) -> crate::error::Result<crate::checkpoint::Checkpoint> {
    crate::checkpoint::from_bytes(std::path::Path::new("made.gguf"), bytes)
}

/// What opening these bytes is refused with.
#[track_caller]
pub(crate) fn refusal(bytes: Vec<u8>) -> String {
    match open(bytes) {
        Ok(_) => panic!("was not refused"),
        Err(error) => error.to_string(),
    }
}

/// Arrays by name, as f32.
pub(crate) fn arrays(checkpoint: &crate::checkpoint::Checkpoint) -> BTreeMap<String, Vec<f32>> {
    checkpoint.arrays().map(|array| (array.name().to_owned(), array.to_vec().expect("it can be read"))).collect()
}

/// The values of blocks of one type.
pub(crate) fn decode_all(kind: BlockType, bytes: &[u8]) -> Vec<f32> {
    let mut values = Vec::new();
    let mut out = [0.0; LONGEST];
    for block in bytes.chunks(kind.bytes()) {
        blocks::decode(kind, block, &mut out).unwrap();
        values.extend_from_slice(&out[..kind.elements()]);
    }
    values
}

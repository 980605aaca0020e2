//! Small files made by hand, so that the reader is not tested against our own writers.

use crate::arch::llama::{LlamaConfig, RopeLayout, TensorKind};
use crate::crc32::checksum;
use crate::tokenizer::{NO_TOKEN, TokenizerFacts, TokenizerKind};

pub(super) const CONFIG: LlamaConfig = LlamaConfig {
    dim: 4,
    hidden_dim: 3,
    n_layers: 1,
    n_heads: 2,
    n_kv_heads: 1,
    head_dim: 4,
    vocab_size: 6,
    max_seq_len: 8,
    norm_eps: 1e-5,
    rope_layout: RopeLayout::Half,
    attention_factor: 1.0,
    tied_embeddings: true,
    qkv_bias: false,
    sliding_window: 0,
};

pub(super) const INV_FREQ: [f32; 2] = [1.0, 0.01];

/// A tensor to be written: name, code of the type, dims, group, bytes.
pub(super) struct Made {
    pub(super) name: Vec<u8>,
    pub(super) dtype: u8,
    pub(super) dims: Vec<u32>,
    pub(super) group: u32,
    pub(super) bytes: Vec<u8>,
}

/// A format-2 file to be written.
pub(super) struct File {
    pub(super) header: Vec<u8>,
    pub(super) alignment: u32,
    pub(super) config: LlamaConfig,
    pub(super) facts: TokenizerFacts,
    pub(super) tensors: Vec<Made>,
    pub(super) golden: Vec<u32>,
}

pub(super) fn f32s(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn u32s(values: &[u32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// The weights of `CONFIG` in order, as f32 (matrices as bf16 where `narrow`).
pub(super) fn weights(narrow: bool) -> Vec<Made> {
    let mut value = 0.25f32;
    (0..CONFIG.weight_tensors())
        .map(|number| {
            let spec = CONFIG.tensor(number).unwrap();
            let values: Vec<f32> = (0..spec.dims.count())
                .map(|_| {
                    value = (value * 1.7 + 0.3) % 1.0;
                    value
                })
                .collect();
            let (dtype, bytes) = if narrow && spec.kind.is_matrix() {
                (2, values.iter().flat_map(|v| half::bf16::from_f32(*v).to_le_bytes()).collect())
            } else {
                (0, f32s(&values))
            };
            Made { name: spec.to_string().into_bytes(), dtype, dims: spec.dims.as_slice().to_vec(), group: 0, bytes }
        })
        .collect()
}

/// A file that is right in everything: a tiny Llama with a tokenizer of six pieces and one golden vector.
pub(super) fn file() -> File {
    let mut tensors = weights(true);
    let first_array = tensors.len() as u32 + 1;
    let mut add = |name: &str, dtype: u8, len: u32, bytes: Vec<u8>| {
        tensors.push(Made { name: name.into(), dtype, dims: vec![len], group: 0, bytes });
    };
    add(TensorKind::RopeInvFreq.name(), 0, 2, f32s(&INV_FREQ));
    add("tokenizer.pieces", 6, 8, b"?<>abcab".to_vec());
    add("tokenizer.offsets", 7, 7, u32s(&[0, 1, 3, 4, 5, 6, 8]));
    add("tokenizer.scores", 0, 6, f32s(&[0.0, 0.0, -1.0, -2.0, -3.0, -0.5]));
    add("tokenizer.sorted", 7, 6, u32s(&[1, 0, 2, 5, 3, 4]));
    let facts = TokenizerFacts {
        kind: TokenizerKind::SentencepieceBpe,
        n_pieces: 6,
        add_bos: true,
        bos: 1,
        unk: 0,
        max_piece_len: 2,
        arrays: [first_array, first_array + 1, first_array + 2, first_array + 3],
        eos: [2, NO_TOKEN, NO_TOKEN, NO_TOKEN, NO_TOKEN, NO_TOKEN, NO_TOKEN, NO_TOKEN],
        ..TokenizerFacts::NONE
    };
    let golden = vec![0, 3, 2, 1, 3, 4, 0, 0x1234, 5, 4, 3, 2, 1, 2, 0x5678, 0, 1, 2, 3, 4];
    File { header: b"arch = \"llama\"\n".to_vec(), alignment: 16, config: CONFIG, facts, tensors, golden }
}

fn pad(bytes: &mut Vec<u8>, multiple: usize) {
    bytes.resize(bytes.len().next_multiple_of(multiple), 0);
}

impl File {
    /// The file's bytes with every count, offset and checksum right.
    pub(super) fn build(&self) -> Vec<u8> {
        let alignment = self.alignment as usize;
        let (mut payload, mut records, mut names) = (vec![], vec![], Vec::<u8>::new());
        let mut params = 0u64;
        for tensor in &self.tensors {
            pad(&mut payload, alignment);
            records.extend((names.len() as u32).to_le_bytes());
            records.extend((tensor.name.len() as u16).to_le_bytes());
            records.extend([tensor.dtype, tensor.dims.len() as u8]);
            let sizes: Vec<u32> = tensor.dims.iter().copied().chain([1; 4]).take(4).collect();
            records.extend(u32s(&sizes));
            records.extend(u32s(&[tensor.group, checksum(&[&tensor.bytes])]));
            records.extend((payload.len() as u64).to_le_bytes());
            records.extend((tensor.bytes.len() as u64).to_le_bytes());
            records.extend([0; 8]);
            names.extend(&tensor.name);
            payload.extend(&tensor.bytes);
            if !tensor.name.starts_with(b"tokenizer.") && tensor.name != b"rope.inv_freq" {
                params += tensor.dims.iter().map(|size| u64::from(*size)).product::<u64>();
            }
        }
        let golden_len = self.golden.len() as u32 * 4;
        let golden_start = 224 + records.len() as u32;
        let mut index = vec![1, 0, 1, 0];
        index.extend(u32s(&[1, self.tensors.len() as u32, 224, 64, 64, 128, 96, golden_start + golden_len, names.len() as u32]));
        index.extend(u32s(&[golden_start, golden_len, checksum(&[&payload])]));
        index.extend(params.to_le_bytes());
        index.extend([0; 4]);
        index.extend(self.config.to_record());
        index.extend(self.facts.to_record());
        index.extend(records);
        index.extend(u32s(&self.golden));
        index.extend(names);
        pad(&mut index, 4);
        let mut bytes = b"DMEXPRT\x02".to_vec();
        bytes.extend((self.header.len() as u32).to_le_bytes());
        bytes.extend((payload.len() as u64).to_le_bytes());
        bytes.extend(u32s(&[0, index.len() as u32, self.alignment]));
        bytes.extend(&self.header);
        bytes.extend(index);
        seal(&mut bytes);
        pad(&mut bytes, alignment);
        bytes.extend(payload);
        bytes
    }
}

/// Where the index of a format-2 file starts.
pub(super) fn index_start(bytes: &[u8]) -> usize {
    32 + crate::bytes::u32_at(bytes, 8) as usize
}

/// Where the payload of a format-2 file starts.
pub(super) fn payload_start(bytes: &[u8]) -> usize {
    (index_start(bytes) + crate::bytes::u32_at(bytes, 24) as usize).next_multiple_of(crate::bytes::u32_at(bytes, 28) as usize)
}

/// Makes the checksum of fixed part, header and index right, where the lengths allow it.
pub(super) fn seal(bytes: &mut [u8]) {
    // In 64 bits: an edited length may be past what this target can address.
    let end = 32 + u64::from(crate::bytes::u32_at(bytes, 8)) + u64::from(crate::bytes::u32_at(bytes, 24));
    if let Some(rest) = usize::try_from(end).ok().and_then(|end| bytes.get(24..end)) {
        let crc = checksum(&[&bytes[..20], rest]);
        bytes[20..24].copy_from_slice(&crc.to_le_bytes());
    }
}

/// Makes the checksums of every tensor and of the payload right, then that of the index.
pub(super) fn seal_payload(bytes: &mut [u8]) {
    let (index, payload) = (index_start(bytes), payload_start(bytes));
    for number in 0..crate::bytes::u32_at(bytes, index + 8) as usize {
        let record = index + 224 + 56 * number;
        let start = payload + crate::bytes::u64_at(bytes, record + 32) as usize;
        let crc = checksum(&[&bytes[start..start + crate::bytes::u64_at(bytes, record + 40) as usize]]);
        bytes[record + 28..record + 32].copy_from_slice(&crc.to_le_bytes());
    }
    let crc = checksum(&[&bytes[payload..]]);
    bytes[index + 48..index + 52].copy_from_slice(&crc.to_le_bytes());
    seal(bytes);
}

pub(super) fn put_u16(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_le_bytes());
}

pub(super) fn put_u32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

pub(super) fn put_u64(bytes: &mut [u8], at: usize, value: u64) {
    bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

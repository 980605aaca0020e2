//! Tests of the exporter: small random checkpoints, and the reference data where it lies beside the repository.

mod atomic;
mod content;
mod memory;
mod onto;
mod quantised;
mod recoding;
mod reference;
mod refusals;

use super::{Format, Options, Report, run};
use crate::checkpoint::{self, Checkpoint, Config, TokenizerSource, tokenizer_bin};
use crate::decode::{Cpu, CpuOptions, Decoder, Loaded};
use crate::error::Result;
use dmexp::models::llama::Llama;
use dmexp::tokenizer::Tokenizer;
use dmexp::{Model, Sampler, Session};
use dmexp_format::{DType, Dims, KvDType, TensorView};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use tempfile::TempDir;

/// The numbers of a llama2.c checkpoint of version 0, as they stand in its header.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) dim: usize,
    pub(crate) hidden_dim: usize,
    pub(crate) n_layers: usize,
    pub(crate) n_heads: usize,
    pub(crate) n_kv_heads: usize,
    pub(crate) vocab_size: usize,
    pub(crate) tied: bool,
    pub(crate) max_seq_len: usize,
}

pub(crate) const SMALL: Shape =
    Shape { dim: 16, hidden_dim: 24, n_layers: 2, n_heads: 4, n_kv_heads: 2, vocab_size: 300, tied: true, max_seq_len: 40 };

impl Shape {
    fn layer_params(&self) -> usize {
        let kv_dim = self.dim / self.n_heads * self.n_kv_heads;
        2 * self.dim + 2 * self.dim * self.dim + 2 * self.dim * kv_dim + 3 * self.dim * self.hidden_dim
    }

    pub(crate) fn params(&self) -> usize {
        let classifier = if self.tied { 0 } else { self.vocab_size * self.dim };
        self.vocab_size * self.dim + self.n_layers * self.layer_params() + self.dim + classifier
    }

    /// The bytes of a checkpoint without the tables of cosines and sines, its weights as `weight` gives them by their place in the file.
    pub(crate) fn v0(&self, mut weight: impl FnMut(usize) -> f32) -> Vec<u8> {
        let vocab_size = self.vocab_size as i32;
        let numbers = [self.dim, self.hidden_dim, self.n_layers, self.n_heads, self.n_kv_heads].map(|n| n as i32);
        let tail = [if self.tied { vocab_size } else { -vocab_size }, self.max_seq_len as i32];
        let mut bytes: Vec<u8> = numbers.into_iter().chain(tail).flat_map(i32::to_le_bytes).collect();
        bytes.extend((0..self.params()).flat_map(|place| weight(place).to_le_bytes()));
        bytes
    }

    /// One with random weights that make a lively network.
    pub(crate) fn random(&self) -> Vec<u8> {
        let mut random = random();
        self.v0(|_| random() * 0.6)
    }
}

/// Numbers from -1 to 1.
pub(crate) fn random() -> impl FnMut() -> f32 {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / 8_388_608.0 - 1.0
    }
}

pub(crate) fn open(bytes: Vec<u8>) -> Checkpoint {
    checkpoint::from_bytes(Path::new("made.bin"), bytes).unwrap()
}

/// Exports without looking at the progress.
pub(crate) fn export(checkpoint: &Checkpoint, options: &Options) -> Result<Report> {
    run(checkpoint, options, &AtomicBool::new(false), &mut |_| ())
}

pub(crate) fn options(folder: &TempDir, dtype: DType, format: Format) -> Options {
    Options { dtype, format, ..Options::new(folder.path().join(format!("made.{dtype}.{}.dmexp", format.number()))) }
}

/// A tokenizer.bin with bytes, a space, and pieces for the rest of the vocabulary.
pub(crate) fn tokenizer(vocab_size: u32) -> TokenizerSource {
    let mut pieces = vec!["<unk>".to_owned(), "\n<s>\n".to_owned(), "\n</s>\n".to_owned()];
    pieces.extend((0..=255).map(|byte| format!("<0x{byte:02X}>")));
    pieces.push(" ".to_owned());
    pieces.extend((pieces.len()..vocab_size as usize).map(|id| format!("p{id}")));
    let longest = pieces.iter().map(String::len).max().unwrap_or(0) as u32;
    let mut bytes = longest.to_le_bytes().to_vec();
    for (id, piece) in pieces.iter().enumerate() {
        bytes.extend((-(id as f32)).to_le_bytes());
        bytes.extend((piece.len() as u32).to_le_bytes());
        bytes.extend(piece.bytes());
    }
    tokenizer_bin::parse(&bytes, vocab_size).unwrap()
}

/// Logits at every position, by a way that no export took part in: the source's own f32 arrays in a table.
pub(crate) fn source_logits(checkpoint: &Checkpoint, tokens: &[u32], kv: KvDType) -> Vec<Vec<f32>> {
    let Config::Llama(source) = &checkpoint.config else { panic!("it is a Llama") };
    let le = |values: &[f32]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
    let mut arrays: Vec<(Dims, Vec<u8>)> = checkpoint.arrays().map(|array| (array.dims(), le(&array.to_vec().unwrap()))).collect();
    arrays.push((Dims::vector(source.config.head_dim / 2), le(&source.inv_freq)));
    let table: Vec<_> = arrays.iter().map(|(dims, bytes)| TensorView::new(0, DType::F32, *dims, bytes).unwrap()).collect();
    let model = Model::from_parts(Llama::from_table(source.config, &table), Tokenizer::NONE, tokens.len() as u32, kv);
    let mut arena = vec![0u32; model.arena_len().unwrap().div_ceil(4)];
    rows(&mut Session::new(&model, arena.as_mut_slice(), Sampler::greedy()).unwrap(), tokens)
}

/// Logits at every position of an exported file.
pub(crate) fn file_logits(path: &Path, tokens: &[u32], kv: KvDType) -> Vec<Vec<f32>> {
    let loaded = Loaded::open(path).unwrap();
    let mut cpu = Cpu::new(&loaded, &CpuOptions { context: Some(tokens.len() as u32), kv, tokenizer: None }).unwrap();
    rows(&mut cpu.session(Sampler::greedy()).unwrap(), tokens)
}

fn rows(decoder: &mut dyn Decoder, tokens: &[u32]) -> Vec<Vec<f32>> {
    let mut rows = Vec::new();
    decoder
        .logits(tokens, &mut |position, row| {
            assert_eq!(position as usize, rows.len());
            rows.push(row.to_vec());
            Ok(())
        })
        .unwrap();
    rows
}

pub(crate) fn bits(rows: &[Vec<f32>]) -> Vec<u32> {
    rows.iter().flatten().map(|value| value.to_bits()).collect()
}

/// A path in the reference data; where it is absent (it is not part of the repository) says so, and the test is left out.
pub(crate) fn data(path: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data").join(path);
    if !path.exists() {
        println!("left out: {} is not here", path.display());
        return None;
    }
    Some(path)
}

//! Small `.dmexp` files of every architecture and format.

use super::{dormouse_made, llama2c_of, tokenizers, tones};
use crate::checkpoints::{path, put};
use dmexp_format::arch::dormouse::DormouseConfig;
use dmexp_format::file::ModelFile;
use dmexp_format::{DType, host};
use dmexp_tools::checkpoint::{self, Checkpoint, TokenizerSource, rustyml};
use dmexp_tools::decode::Loaded;
use dmexp_tools::export::{self, Format, Options};
use std::path::Path;
use std::sync::LazyLock;
use std::sync::atomic::AtomicBool;

/// Exports a checkpoint, and returns the file.
pub(crate) fn exported(checkpoint: &Checkpoint, change: impl FnOnce(&mut Options)) -> Vec<u8> {
    let out = path("seed.dmexp");
    let mut options = Options { dtype: DType::F32, ..Options::new(&out) };
    change(&mut options);
    export::run(checkpoint, &options, &AtomicBool::new(false), &mut |_| ()).expect("a seed can be exported");
    std::fs::read(out).expect("it was written")
}

/// A Llama of so many tokens with a tokenizer.
pub(crate) fn with_tokenizer(vocab: usize, tokenizer: Option<TokenizerSource>) -> Checkpoint {
    let mut made = checkpoint::from_bytes(Path::new("made"), llama2c_of(vocab)).expect("a seed can be read");
    made.tokenizer = tokenizer;
    made
}

fn stripped(file: &[u8]) -> Vec<u8> {
    host::strip(file).expect("a seed can be stripped")
}

static LLAMA: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let plain = with_tokenizer(16, None);
    let bytes = with_tokenizer(16, Some(TokenizerSource::bytes(16, Some(0)).expect("16 bytes")));
    let types = [DType::F32, DType::F16, DType::Bf16, DType::Q8, DType::Q4];
    let mut files: Vec<_> = types
        .iter()
        .map(|dtype| {
            exported(&plain, |options| {
                options.dtype = *dtype;
                options.group = 8;
                options.alignment = Some(16);
            })
        })
        .collect();
    files.extend(tokenizers().iter().map(|tokenizer| {
        let vocab = tokenizer.facts.n_pieces as usize;
        exported(&with_tokenizer(vocab, Some(tokenizer.clone())), |options| options.dtype = DType::Bf16)
    }));
    files.push(exported(&bytes, |_| ()));
    let stripped: Vec<_> = files.iter().map(|file| stripped(file)).collect();
    files.into_iter().chain(stripped).collect()
});

pub(crate) fn llama() -> Vec<Vec<u8>> {
    LLAMA.clone()
}

/// The smallest models of dormouse, in format 1.
fn dormouse_format_1() -> Vec<Vec<u8>> {
    let small =
        DormouseConfig { d_model: 16, n_heads: 2, head_dim: 8, d_ffn: 16, rank: 4, max_seq_len: 16, engram_rows: 8, ..dormouse_made::CHIP };
    vec![dormouse_made::file(&small)]
}

static DORMOUSE: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let of = |file: Vec<u8>, dtype| {
        let made = checkpoint::from_bytes(Path::new("made.dmexp"), file).expect("a seed can be read");
        exported(&made, |options| options.dtype = dtype)
    };
    let mut files = Vec::new();
    for made in dormouse_format_1() {
        let whole = of(made.clone(), DType::F32);
        files.extend([stripped(&whole), whole, stripped(&of(made, DType::T2))]);
    }
    files
});

pub(crate) fn dormouse() -> Vec<Vec<u8>> {
    DORMOUSE.clone()
}

/// The network of the example.
pub(crate) fn network() -> Loaded {
    Loaded::from_bytes(Path::new("tones.dmexp"), SEQUENTIAL.first().cloned().unwrap_or_default()).expect("a seed can be read")
}

static SEQUENTIAL: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let (weights, arch) = tones();
    let (weights, arch) = (put("tones.bin", weights), put("tones.arch.toml", arch.as_bytes()));
    let tones = rustyml::open(&weights, &arch).expect("a seed can be read");
    let types = [DType::F32, DType::Bf16, DType::Q8];
    let files: Vec<_> = types.iter().map(|dtype| exported(&tones, |options| options.dtype = *dtype)).collect();
    let stripped: Vec<_> = files.iter().map(|file| stripped(file)).collect();
    files.into_iter().chain(stripped).collect()
});

pub(crate) fn sequential() -> Vec<Vec<u8>> {
    SEQUENTIAL.clone()
}

pub(crate) fn format_1() -> Vec<Vec<u8>> {
    let one = |checkpoint: &Checkpoint, dtype| {
        exported(checkpoint, |options| {
            options.format = Format::V1;
            options.dtype = dtype;
        })
    };
    let plain = with_tokenizer(16, None);
    let mut files = vec![one(&plain, DType::F32), one(&plain, DType::F16)];
    files.extend(dormouse_format_1());
    files
}

/// Of each architecture and format one.
pub(crate) fn every_file() -> Vec<Vec<u8>> {
    [llama(), dormouse(), sequential(), format_1()].into_iter().flat_map(|files| files.into_iter().take(2)).collect()
}

/// The Llama that is served: with llama2.c's tokenizer.
pub(crate) fn llama_served() -> Vec<u8> {
    LLAMA.get(6).cloned().unwrap_or_default()
}

/// The Llama that a chip has.
pub(crate) fn chip() -> Vec<u8> {
    LLAMA.first().cloned().unwrap_or_default()
}

pub(crate) fn headers() -> Vec<Vec<u8>> {
    let text = |file: &Vec<u8>| ModelFile::open(file).expect("a seed can be read").header_text().map(|text| text.as_bytes().to_vec());
    every_file().iter().chain(&LLAMA[5..8]).filter_map(text).collect()
}

pub(crate) fn indexes() -> Vec<Vec<u8>> {
    let index = |file: &Vec<u8>| {
        let file = ModelFile::open(file).expect("a seed can be read");
        let index = file.index()?;
        Some([&(file.payload().len() as u64).to_le_bytes(), index.bytes()].concat())
    };
    [llama(), dormouse(), sequential()].iter().flat_map(|files| files.iter().filter_map(index).collect::<Vec<_>>()).collect()
}

//! Checkpoints: opened, read to the last number, exported, and the export run.

use crate::{Outcome, files, seeds};
use dmexp_format::host;
use dmexp_tools::checkpoint::{self, Checkpoint, rustyml as rusty};
use dmexp_tools::error::{Error, Result};
use dmexp_tools::export::{self, Options};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{Cursor, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use tempfile::TempDir;

/// Numbers that a checkpoint may have for each of its bytes: four bits each, and tied ones twice.
const NUMBERS_PER_BYTE: u64 = 8;
/// Checkpoints with more numbers are not exported: it takes long.
const EXPORT_LIMIT: u64 = 20_000;

thread_local! {
    static FOLDER: TempDir = tempfile::tempdir().expect("a temporary folder");
}

/// The path of a file of this name in a folder of this thread, in a folder of that name where one is given.
pub(crate) fn path(name: &str) -> PathBuf {
    FOLDER.with(|folder| folder.path().join(name))
}

/// Puts a file there.
pub(crate) fn put(name: &str, bytes: &[u8]) -> PathBuf {
    let path = path(name);
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).expect("a temporary folder can be written");
    }
    std::fs::write(&path, bytes).expect("a temporary folder can be written");
    path
}

/// Takes a checkpoint to its end.
///
/// # Panics
/// If it is larger than its bytes allow, or the export is not right.
fn checked(opened: Result<Checkpoint>, bytes: usize) -> Outcome {
    match opened.and_then(|checkpoint| read(&checkpoint, bytes)) {
        Ok(outcome) => outcome,
        Err(error) => Outcome::refused_by_command(&error),
    }
}

fn read(checkpoint: &Checkpoint, bytes: usize) -> Result<Outcome, Error> {
    let numbers = checkpoint.arrays().map(|array| array.count()).sum::<u64>();
    assert!(numbers <= NUMBERS_PER_BYTE * bytes as u64, "{numbers} numbers in {bytes} bytes");
    let mut meaning = DefaultHasher::new();
    format!("{:?} {:?}", checkpoint.config, checkpoint.tokenizer).hash(&mut meaning);
    for array in checkpoint.arrays() {
        let values = array.to_vec()?;
        assert_eq!(values.len() as u64, array.count(), "{}", array.name());
        (array.name(), array.dims().as_slice()).hash(&mut meaning);
        values.iter().map(|value| value.to_bits()).collect::<Vec<_>>().hash(&mut meaning);
    }
    if numbers <= EXPORT_LIMIT {
        let out = path("export.dmexp");
        let options = Options { golden: false, dtype: dmexp_format::DType::F32, ..Options::new(&out) };
        export::run(checkpoint, &options, &AtomicBool::new(false), &mut |_| ())?;
        let export = std::fs::read(&out).expect("it was written");
        host::verify(&export).expect("what was exported is right");
        files::model(&export);
    }
    Ok(Outcome::Accepted { meaning: meaning.finish() })
}

fn of_bytes(bytes: &[u8]) -> Outcome {
    checked(checkpoint::from_bytes(Path::new("made"), bytes.to_vec()), bytes.len())
}

pub(crate) fn llama2c(bytes: &[u8]) -> Outcome {
    of_bytes(bytes)
}

pub(crate) fn pytorch(bytes: &[u8]) -> Outcome {
    of_bytes(bytes)
}

/// A pickle in the archive of a whole model.
pub(crate) fn pickle(bytes: &[u8]) -> Outcome {
    of_bytes(&seeds::archive_of(bytes))
}

pub(crate) fn gguf(bytes: &[u8]) -> Outcome {
    of_bytes(bytes)
}

/// The weights of a folder whose other files are right.
pub(crate) fn safetensors(bytes: &[u8]) -> Outcome {
    let (config, _) = seeds::hugging_face();
    put("hf/config.json", &config);
    let weights = put("hf/model.safetensors", bytes);
    checked(weights.parent().map_or_else(|| checkpoint::open(&weights), checkpoint::open), config.len() + bytes.len())
}

/// The configuration of a folder whose other files are right.
pub(crate) fn hf_config(bytes: &[u8]) -> Outcome {
    let (_, weights) = seeds::hugging_face();
    put("hf/model.safetensors", &weights);
    let config = put("hf/config.json", bytes);
    checked(config.parent().map_or_else(|| checkpoint::open(&config), checkpoint::open), bytes.len() + weights.len())
}

/// A container of dormouse's training, as a model of the smallest preset.
pub(crate) fn dormouse(bytes: &[u8]) -> Outcome {
    let path = put("latest.bin", bytes);
    let config = match seeds::dormouse_config() {
        Ok(config) => config,
        Err(error) => return Outcome::refused_by_command(&error),
    };
    checked(checkpoint::dormouse::open_as(&path, config), bytes.len())
}

/// A model file with the architecture of the example.
pub(crate) fn rustyml(bytes: &[u8]) -> Outcome {
    let (_, arch) = seeds::tones();
    let arch = put("tones.arch.toml", arch.as_bytes());
    let model = put("tones.bin", bytes);
    checked(rusty::open(&model, &arch), bytes.len())
}

/// An architecture for the model file of the example.
pub(crate) fn rustyml_arch(bytes: &[u8]) -> Outcome {
    let (model, _) = seeds::tones();
    let arch = put("tones.arch.toml", bytes);
    let len = bytes.len() + model.len();
    checked(rusty::open(&put("tones.bin", model), &arch), len)
}

/// A zip archive of these members, stored.
pub(crate) fn stored(members: &[(String, Vec<u8>)]) -> Vec<u8> {
    // Local header and entry of the directory, as torch.save writes them: nothing but lengths and checksums.
    let (mut out, mut directory) = (Cursor::new(Vec::new()), Vec::new());
    for (name, bytes) in members {
        let at = out.position() as u32;
        let sum = dmexp_format::crc32::checksum(&[bytes]).to_le_bytes();
        let len = (bytes.len() as u32).to_le_bytes();
        let common = [&[20, 0, 0, 0, 0, 0, 0, 0, 0x21, 0][..], &sum, &len, &len, &(name.len() as u16).to_le_bytes(), &[0, 0]].concat();
        out.write_all(&[b"PK\x03\x04", common.as_slice(), name.as_bytes(), bytes].concat()).expect("memory");
        directory.extend([b"PK\x01\x02\x14\0".as_slice(), &common, &[0; 10], &at.to_le_bytes(), name.as_bytes()].concat());
    }
    let (count, at) = ((members.len() as u16).to_le_bytes(), (out.position() as u32).to_le_bytes());
    let len = (directory.len() as u32).to_le_bytes();
    [out.into_inner(), directory, [b"PK\x05\x06\0\0\0\0".as_slice(), &count, &count, &len, &at, &[0, 0]].concat()].concat()
}

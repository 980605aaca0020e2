//! What the end-to-end tests share: the real `dmexp` command, models to run it on, an independent decoder, and ways to damage files.
//!
//! Used by `tests/*.rs` of this crate alone.

pub mod damage;
pub mod direct;
mod run;

pub use run::{Ran, dmexp, line, piped, run};

use serde_json::Value;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// The repository's root.
///
/// # Panics
/// If this crate does not lie in it.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("this crate lies in the repository").to_owned()
}

/// A file of the reference data, which lie beside the repository; `None`, and a line that says so, where they are not.
pub fn data(name: &str) -> Option<PathBuf> {
    let path = root().join("../shared/data").join(name);
    if path.exists() {
        return path.canonicalize().ok();
    }
    println!("not run: ../shared/data/{name} is not here");
    None
}

/// A folder that is removed when it is dropped.
///
/// # Panics
/// If the system has no room for temporary files.
pub fn folder() -> TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

/// The names of the files in a folder, sorted.
///
/// # Panics
/// If it cannot be read.
pub fn files(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("the folder can be read");
    let mut names: Vec<String> = entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// A checkpoint with the words that name its tokenizer to `dmexp export run`.
#[derive(Clone, Debug)]
pub struct Source {
    /// What it is called in messages.
    pub name: &'static str,
    /// The checkpoint.
    pub checkpoint: PathBuf,
    /// `--tokenizer` and what belongs to it.
    pub tokenizer: Vec<String>,
}

impl Source {
    /// Exports the model in `folder`, with `more` words, and returns the file.
    ///
    /// # Panics
    /// If the export fails.
    pub fn export(&self, folder: &Path, out: &str, more: &str) -> PathBuf {
        let mut words = vec!["export".to_owned(), "run".to_owned(), "--checkpoint".to_owned(), self.checkpoint.display().to_string()];
        words.extend(self.tokenizer.iter().cloned());
        words.extend(["--out", out, "--quiet"].map(str::to_owned));
        words.extend(more.split_whitespace().map(str::to_owned));
        run(folder, &words).ok();
        folder.join(out)
    }
}

/// The story model of this repository: 260 thousand parameters, 512 pieces.
pub fn story() -> Source {
    let models = root().join("models");
    Source {
        name: "story",
        checkpoint: models.join("story.bin"),
        tokenizer: vec!["--tokenizer".to_owned(), models.join("story.tokenizer.bin").display().to_string()],
    }
}

/// The tiny model of this repository: 11 thousand parameters, bytes as tokens, byte 0 before every text.
pub fn tiny() -> Source {
    let tokenizer = ["--tokenizer", "bytes", "--bos", "0"].map(str::to_owned).to_vec();
    Source { name: "tiny", checkpoint: root().join("models/tiny.bin"), tokenizer }
}

/// llama2.c's stories260K, where the reference data are.
pub fn stories260k() -> Option<Source> {
    let tokenizer = data("stories260K/tok512.bin")?;
    let checkpoint = data("stories260K/stories260K.bin")?;
    Some(Source { name: "stories260K", checkpoint, tokenizer: vec!["--tokenizer".to_owned(), tokenizer.display().to_string()] })
}

/// The numbers of a file of little-endian f32.
///
/// # Panics
/// If it cannot be read or is no such file.
pub fn floats(path: &Path) -> Vec<f32> {
    let bytes = std::fs::read(path).expect("the file can be read");
    let (words, rest) = bytes.as_chunks::<4>();
    assert!(rest.is_empty(), "{} is not a file of f32", path.display());
    words.iter().map(|word| f32::from_le_bytes(*word)).collect()
}

/// The value of a JSON file.
///
/// # Panics
/// If it cannot be read or is no JSON.
pub fn json(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).expect("the file can be read")).expect("it is JSON")
}

/// A list of token ids in JSON.
///
/// # Panics
/// If it is none.
pub fn ids(value: &Value) -> Vec<u32> {
    let list = value.as_array().expect("a list");
    list.iter().map(|id| u32::try_from(id.as_u64().expect("an id")).expect("an id")).collect()
}

/// Logits of `tokens` at every position, computed by `dmexp logits` on the file `export`.
///
/// # Panics
/// If the command fails.
pub fn logits(export: &Path, tokens: &[u32], kv: &str) -> Vec<f32> {
    let folder = folder();
    let list: Vec<String> = tokens.iter().map(u32::to_string).collect();
    let export = export.display().to_string();
    let words = ["logits", "--export", &export, "--kv", kv, "--out", "logits.f32", "--tokens", &list.join(",")];
    run(folder.path(), &words).ok();
    floats(&folder.path().join("logits.f32"))
}

/// The greedy path of a model from token `first`, `positions` tokens long, by `dmexp generate`.
///
/// # Panics
/// If the command fails.
pub fn greedy(export: &Path, positions: usize) -> Vec<u32> {
    let folder = folder();
    let (export, positions) = (export.display().to_string(), positions.to_string());
    let words = ["generate", "--export", &export, "--kv", "f32", "--temp", "0", "--positions", &positions, "--ignore-eos", "--json"];
    let json = run(folder.path(), &words).json();
    let mut tokens = ids(&json["prompt_tokens"]);
    tokens.extend(ids(&json["tokens"]));
    tokens.pop();
    tokens
}

/// Whether two rows of logits have the same bits.
pub fn same_bits(a: &[f32], b: &[f32]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits())
}

/// The largest difference between two lists of logits.
///
/// # Panics
/// If they are not equally long.
pub fn worst(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len(), "as many logits");
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

/// The largest magnitude of a list of logits.
pub fn largest(logits: &[f32]) -> f32 {
    logits.iter().map(|logit| logit.abs()).fold(0.0, f32::max)
}

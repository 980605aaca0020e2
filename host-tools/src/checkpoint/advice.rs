//! What a kind of file is in words, and what to do with it: the sentences that `open` and `generate` print for a file they cannot use.

use super::{DirectoryHint, Kind};
use crate::error::{Class, Error};
use std::path::Path;

/// What is imported, one reader a line.
const IMPORTED: &[&str] = &[
    "llama2.c checkpoints (v0, v1, v2, ckpt.pt)",
    "Hugging Face folders (Llama, Mistral, Qwen2)",
    "GGUF files of the Llama family",
    "training checkpoints of dormouse",
    "Meta's folders (params.json)",
    "RustyML models with an architecture file (--arch)",
];

fn imported() -> String {
    format!("this version imports {}", IMPORTED.join(", "))
}

impl Kind {
    /// What it is, to be read after "is": "a GGUF file".
    pub fn sentence(&self) -> String {
        match self {
            Self::Empty => "an empty file".to_owned(),
            Self::Directory(DirectoryHint::HuggingFace) => "a folder with a Hugging Face model (config.json)".to_owned(),
            Self::Directory(DirectoryHint::Meta) => "a folder with a model of Meta's (params.json)".to_owned(),
            Self::Directory(DirectoryHint::Safetensors) => "a folder with safetensors files".to_owned(),
            Self::Directory(DirectoryHint::Other) => "a folder".to_owned(),
            Self::Dmexp { version } => format!("a .dmexp file, format {version}"),
            Self::Llama2c { version: 0 } => "a llama2.c checkpoint, version 0 (f32)".to_owned(),
            Self::Llama2c { version: 1 } => "a llama2.c checkpoint, version 1 (f32)".to_owned(),
            Self::Llama2c { version: 2 } => "a llama2.c checkpoint, version 2 (q80)".to_owned(),
            Self::Llama2c { version } => format!("a llama2.c checkpoint of an unknown version, {version}"),
            Self::Llama2cWrongSize => {
                "a file that begins like a llama2.c checkpoint, version 0, but is damaged or something else".to_owned()
            }
            Self::Llama2cBigEndian => "a llama2.c checkpoint with big-endian numbers, or something like it".to_owned(),
            Self::Gguf => "a GGUF file".to_owned(),
            Self::Ggml => "a model in one of llama.cpp's formats before GGUF".to_owned(),
            Self::Zip { pytorch: true } => "a PyTorch checkpoint (zip)".to_owned(),
            Self::Zip { pytorch: false } => "a zip archive".to_owned(),
            Self::Pickle => "a pickle: a PyTorch checkpoint from before version 1.6, or other Python objects".to_owned(),
            Self::Safetensors => "a safetensors file".to_owned(),
            Self::DormouseCheckpoint => "a training checkpoint of dormouse".to_owned(),
            Self::Burnpack => "a burn record".to_owned(),
            Self::RustyMl { version } => format!("a RustyML model, format version {version}"),
            Self::TokenizerBin { pieces } => format!("a llama2.c tokenizer (tokenizer.bin) of {pieces} pieces"),
            Self::SentencepieceModel => "a sentencepiece tokenizer (.model)".to_owned(),
            Self::Html => "a web page (HTML)".to_owned(),
            Self::LfsPointer => "a Git LFS pointer, not the file that it stands for".to_owned(),
            Self::Compressed(by) => format!("a file compressed with {by}"),
            Self::Elf => "a program (ELF)".to_owned(),
            Self::Json => "a JSON text".to_owned(),
            Self::Text => "a text file".to_owned(),
            Self::Unknown { first } => format!("a file of no known format; it begins with the bytes {first:02x?}"),
        }
    }

    /// Whether this version can make a `.dmexp` of it, its contents permitting.
    pub fn is_imported(&self) -> bool {
        match self {
            Self::Llama2c { version } => (0..=2).contains(version),
            Self::Gguf
            | Self::DormouseCheckpoint
            | Self::Safetensors
            | Self::Directory(DirectoryHint::HuggingFace | DirectoryHint::Meta)
            | Self::Zip { pytorch: true }
            | Self::Pickle => true,
            Self::RustyMl { version } => (3..=4).contains(version),
            _ => false,
        }
    }

    /// The command that makes a `.dmexp` of the file at `path`, where there is one.
    pub fn command(&self, path: &Path) -> Option<String> {
        self.is_imported().then(|| {
            // A folder's name has no extension, whatever dots are in it.
            let name = if matches!(self, Self::Directory(_)) { path.file_name() } else { path.file_stem() };
            let mut out = name.unwrap_or_else(|| "model".as_ref()).to_os_string();
            out.push(".dmexp");
            let arch = if matches!(self, Self::RustyMl { .. }) { " --arch ARCH.toml" } else { "" };
            format!("dmexp export run --checkpoint {}{arch} --out {}", quoted(&path.to_string_lossy()), quoted(&out.to_string_lossy()))
        })
    }

    /// What to do with the file at `path`.
    pub fn advice(&self, path: &Path) -> String {
        let shown = quoted(&path.to_string_lossy());
        if let Some(command) = self.command(path) {
            return format!("convert it: {command}");
        }
        match self {
            Self::RustyMl { .. } => "versions 3 and 4 are read: save it again with RustyML 0.16 or 0.17".to_owned(),
            Self::Dmexp { version: 1 | 2 } => format!("run it with: dmexp generate --export {shown}"),
            Self::Dmexp { .. } => "this version reads formats 1 and 2".to_owned(),
            Self::Empty | Self::Llama2cWrongSize => "copy or download it again".to_owned(),
            Self::Llama2c { .. } => "versions 0, 1 and 2 are read: export it again with llama2.c's export.py".to_owned(),
            Self::Llama2cBigEndian => "checkpoints are little-endian: export it again on a little-endian machine".to_owned(),
            Self::Directory(DirectoryHint::Other) => "name the checkpoint file in it".to_owned(),
            Self::TokenizerBin { .. } => "name the model file instead, and this one as --tokenizer of dmexp export run".to_owned(),
            Self::SentencepieceModel => "name the model file instead; llama2.c's tokenizer.py makes a tokenizer.bin of this one".to_owned(),
            Self::Html => "a download fetched a page instead of the file: use the address of the file itself".to_owned(),
            Self::LfsPointer => "fetch the file with: git lfs pull".to_owned(),
            Self::Compressed(by) => format!("decompress it with {by} first"),
            Self::Zip { pytorch: false } => "unpack it first".to_owned(),
            Self::Directory(DirectoryHint::Safetensors) => "a folder with a model has a config.json: download it too".to_owned(),
            Self::Elf | Self::Json | Self::Text | Self::Unknown { .. } => format!("name a model file; {}", imported()),
            _ => format!("{} and cannot import this one", imported()),
        }
    }

    /// The error of an importer that was given such a file at `path`.
    pub(super) fn not_imported(&self, path: &Path) -> Error {
        Error::new(self.class(), format!("is {}", self.sentence())).advise(self.advice(path)).in_file(path)
    }

    /// The error of a command that runs `.dmexp` files and was given such a file at `path`.
    pub(crate) fn not_a_dmexp(&self, path: &Path) -> Error {
        let what = match self {
            Self::Dmexp { .. } => format!("is {}", self.sentence()),
            _ => format!("is {}, not a .dmexp", self.sentence()),
        };
        Error::new(self.class(), what).advise(self.advice(path)).in_file(path)
    }

    fn class(&self) -> Class {
        match self {
            Self::Empty | Self::Llama2cWrongSize => Class::Damaged,
            _ => Class::NotAModel,
        }
    }
}

/// Quotes for a POSIX shell where it is needed.
fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./+@%:,=".contains(c);
    if !text.is_empty() && text.chars().all(plain) { text.to_owned() } else { format!("'{}'", text.replace('\'', "'\\''")) }
}

//! Training checkpoints, read: one reader a format, one [`Checkpoint`] whatever the format was. The exporter turns it into a `.dmexp`; `generate` asks here what a file is that is none.
//!
//! [`open`] recognises a file by its bytes, never by its name, checks that header and length agree before anything is read or allocated, and refuses what it does not know. Weights stay in
//! the mapped file and are handed out piece by piece ([`ArrayView`]).

mod advice;
mod array;
mod beside;
pub mod byte_level;
mod dmexp;
pub mod dormouse;
mod encoding;
mod gguf;
mod huggingface;
mod json;
mod llama2c;
mod llama_roster;
mod mapping;
mod pytorch;
mod recognise;
pub mod rope;
pub mod roster;
pub mod rustyml;
mod sentencepiece_model;
mod tokenizer;
pub mod tokenizer_bin;
pub mod tokenizer_file;
mod tokenizer_json;
mod tokenizer_settings;

#[cfg(test)]
mod tests;

pub use array::ArrayView;
pub use beside::beside;
pub use dormouse::{DormouseConfig, DormouseSource};
pub use encoding::Encoding;
pub use gguf::blocks::{BlockType, CodeBlock};
#[cfg(test)]
pub(crate) use gguf::tests::make as gguf_maker;
pub(crate) use huggingface::tensor_name as hugging_face_name;
pub(crate) use llama_roster::llama_roster;
pub use mapping::Mapping;
pub use recognise::{DirectoryHint, Kind, recognise, recognise_path};
pub use rustyml::SequentialSource;
pub use tokenizer::TokenizerSource;

use crate::error::{Error, Result};
use array::Array;
use dmexp_format::arch::llama::LlamaConfig;
use dmexp_format::host::Scalar;
use std::collections::BTreeMap;
use std::path::Path;

/// A model as its source has it: configuration, arrays in the order of the `.dmexp` file, and where they came from.
#[derive(Debug)]
pub struct Checkpoint {
    files: Vec<Mapping>,
    arrays: Vec<Array>,
    /// What the model computes, apart from its arrays.
    pub config: Config,
    /// The tokenizer, where the source carries one (a llama2.c checkpoint does not; see [`tokenizer_bin`]).
    pub tokenizer: Option<TokenizerSource>,
    /// Where it came from.
    pub provenance: Provenance,
    /// What a user should know of how it was read, one sentence each.
    pub notes: Vec<String>,
    /// Why the tokenizer that lies with the source cannot be used. An export is refused for it, unless `tokenizer` is set to another or this is taken away.
    pub refused_tokenizer: Option<Error>,
}

/// The architecture and its configuration.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Config {
    /// A decoder of the Llama family.
    Llama(LlamaSource),
    /// The dormouse byte model.
    Dormouse(DormouseSource),
    /// A small network of layers.
    Sequential(SequentialSource),
}

/// The configuration of a Llama-family model, with what people want to know of its origin.
#[derive(Clone, Debug, PartialEq)]
pub struct LlamaSource {
    /// What is computed.
    pub config: LlamaConfig,
    /// The base of the rotation frequencies, for people: what is computed with is `inv_freq`.
    pub rope_theta: f64,
    /// The scaling of the rotation as the source states it, for people. Empty if there is none.
    pub rope_scaling: BTreeMap<String, Scalar>,
    /// The rotation frequencies, `head_dim` / 2 of them.
    pub inv_freq: Vec<f32>,
    /// Every value that the source does not state, and why it is what it is.
    pub fixed: Vec<Fixed>,
}

/// A configuration value that is not in the source file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fixed {
    /// The key, as the header of a `.dmexp` spells it.
    pub key: &'static str,
    /// The value in words.
    pub value: &'static str,
    /// Who says so.
    pub why: &'static str,
}

/// Where a checkpoint came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Provenance {
    /// The file's name, without its folder: the same input gives the same export wherever it lies.
    pub file_name: String,
    /// Which reader read it: "llama2.c v0".
    pub importer: &'static str,
    /// The bytes of the source files together.
    pub source_bytes: u64,
    /// The licence that the source states: an SPDX identifier.
    pub licence: Option<String>,
}

impl Checkpoint {
    /// Puts a checkpoint together; `arrays` are in the order in which [`LlamaConfig::tensor`] numbers them, and their files are numbered as in `files`.
    ///
    /// # Errors
    /// [`Class::Damaged`](crate::error::Class::Damaged) for an array that does not lie within its file.
    fn new(
        files: Vec<Mapping>,
        arrays: Vec<Array>,
        config: Config,
        tokenizer: Option<TokenizerSource>,
        provenance: Provenance,
    ) -> Result<Self> {
        arrays.iter().try_for_each(|array| array.check(&files))?;
        Ok(Self { files, arrays, config, tokenizer, provenance, notes: Vec::new(), refused_tokenizer: None })
    }

    /// The arrays, in the order in which [`LlamaConfig::tensor`] numbers them.
    pub fn arrays(&self) -> impl Iterator<Item = ArrayView<'_>> {
        self.arrays.iter().map(|array| ArrayView::new(array, &self.files))
    }

    /// The source files.
    pub fn files(&self) -> &[Mapping] {
        &self.files
    }

    /// Whether no source file was written to since it was opened.
    ///
    /// # Errors
    /// [`Class::Unreadable`](crate::error::Class::Unreadable) with the path of one that was.
    pub fn unchanged(&self) -> Result<()> {
        self.files.iter().try_for_each(Mapping::unchanged)
    }

    /// The path of the first source file, for errors.
    pub fn path(&self) -> &Path {
        self.files.first().map_or(Path::new(""), Mapping::path)
    }

    /// The array with this name.
    pub fn array(&self, name: &str) -> Option<ArrayView<'_>> {
        self.arrays().find(|array| array.name() == name)
    }
}

/// Opens a checkpoint, whatever its format.
///
/// # Errors
/// With the path: [`Class::Unreadable`](crate::error::Class::Unreadable); [`Class::NotAModel`](crate::error::Class::NotAModel) for what is no checkpoint, or one that this version does not
/// import (says what it is and what to do); [`Class::Damaged`](crate::error::Class::Damaged) and [`Class::Mismatch`](crate::error::Class::Mismatch) with the values found and allowed.
///
/// ```
/// use std::path::Path;
///
/// let checkpoint = dmexp_tools::checkpoint::open(Path::new("../models/tiny.bin"))?;
/// assert!(checkpoint.arrays().count() > 0);
/// # Ok::<(), dmexp_tools::error::Error>(())
/// ```
pub fn open(path: &Path) -> Result<Checkpoint> {
    if path.is_dir() { from_folder(path) } else { from_mapping(Mapping::open(path)?) }
}

fn from_folder(path: &Path) -> Result<Checkpoint> {
    match recognise_path(path)? {
        Kind::Directory(DirectoryHint::HuggingFace) => huggingface::open(path),
        Kind::Directory(DirectoryHint::Meta) => pytorch::open_meta(path),
        other => Err(other.not_imported(path)),
    }
}

/// Opens a checkpoint that is in memory already; `name` is what it is called in errors and in the provenance.
///
/// # Errors
/// Those of [`open`], without [`Class::Unreadable`](crate::error::Class::Unreadable).
pub fn from_bytes(name: &Path, bytes: Vec<u8>) -> Result<Checkpoint> {
    from_mapping(Mapping::from_bytes(name, bytes))
}

fn from_mapping(file: Mapping) -> Result<Checkpoint> {
    match recognise(file.bytes()) {
        Kind::Llama2c { .. } | Kind::Llama2cWrongSize => llama2c::open(file),
        Kind::DormouseCheckpoint => dormouse::open(file, None),
        Kind::Dmexp { version: 1 } => match dormouse::open_exported(file)? {
            Ok(checkpoint) => Ok(checkpoint),
            Err(file) => Err(recognise(file.bytes()).not_imported(file.path())),
        },
        Kind::Gguf => gguf::open(file),
        Kind::Safetensors => huggingface::open_file(file),
        Kind::Zip { pytorch: true } | Kind::Pickle => pytorch::open(file),
        kind @ Kind::RustyMl { version: 3 | 4 } => Err(rustyml::without_architecture(&kind, file.path())),
        other => Err(other.not_imported(file.path())),
    }
}

/// Why `path`, which should have been a `.dmexp`, is none: what it is, and the command that converts it if there is one. For commands that run models.
///
/// Where the path is a `.dmexp` after all, or cannot be read, the error says that.
pub fn not_a_dmexp(path: &Path) -> Error {
    match recognise_path(path) {
        Ok(kind) => kind.not_a_dmexp(path),
        Err(error) => error,
    }
}

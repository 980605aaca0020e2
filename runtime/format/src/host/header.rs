//! The owned header of a format-2 file: what the exporter fills in, what `info` shows, and what the index is derived from.

use super::sequential::SequentialSettings;
use super::{Figures, HeaderError};
use crate::arch::Architecture;
use crate::arch::dormouse::DormouseConfig;
use crate::arch::llama::LlamaConfig;
use crate::tokenizer::{NO_TOKEN, Normalizer, PreTokenizer, TokenizerFacts, TokenizerKind};
use crate::{DType, Dims, Error, KvDType, Planes};
use std::collections::BTreeMap;

/// The header of a format-2 file.
///
/// What follows from the rest (`num_params`, `num_tensors`, the figures of the whole file) is computed, not stored, so a header in memory cannot contradict itself there;
/// [`Header::parse`] refuses text that does.
#[derive(Clone, Debug, PartialEq)]
pub struct Header {
    /// The number of the arithmetic the file is made for.
    pub arithmetic: u32,
    /// CRC-32 of the whole payload.
    pub payload_crc32: u32,
    /// What the model computes.
    pub config: Config,
    /// The tokenizer; its arrays are tensors.
    pub tokenizer: Tokenizer,
    /// Where the weights come from.
    pub provenance: Provenance,
    /// All tensors in the file's order: weights in the order of the architecture, then the tokenizer's arrays.
    pub tensors: Vec<TensorEntry>,
    /// Known answers for self-tests.
    pub golden: Vec<Golden>,
}

/// The `[config]` table, one kind an architecture.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Config {
    /// `arch = "llama"`.
    Llama(LlamaSettings),
    /// `arch = "dormouse"`.
    Dormouse(DormouseConfig),
    /// `arch = "sequential"`.
    Sequential(SequentialSettings),
}

/// `[config]` of a Llama-family model.
#[derive(Clone, Debug, PartialEq)]
pub struct LlamaSettings {
    /// All that decides what is computed, apart from the tensors.
    pub model: LlamaConfig,
    /// The base of the rotation, for people: what is computed with is the tensor `rope.inv_freq`.
    pub rope_theta: Option<f64>,
    /// The scaling of the rotation as the source states it, for people. Empty if there is none.
    pub rope_scaling: BTreeMap<String, Scalar>,
}

/// A value that is carried for people alone.
#[derive(Clone, Debug, PartialEq)]
pub enum Scalar {
    /// A truth value.
    Bool(bool),
    /// A whole number.
    Integer(i64),
    /// A finite number.
    Float(f64),
    /// A string.
    Text(String),
    /// A list.
    List(Vec<Scalar>),
}

/// The `[tokenizer]` table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tokenizer {
    /// How text becomes tokens.
    pub kind: TokenizerKind,
    /// Number of pieces; equals the model's `vocab_size` (0 for [`TokenizerKind::None`]).
    pub n_pieces: u32,
    /// Whether a prompt begins with `bos`.
    pub add_bos: bool,
    /// Whether a space is put before non-empty text.
    pub dummy_prefix: bool,
    /// Begin of text.
    pub bos: Option<u32>,
    /// End of text: each of these stops generation; at most 8.
    pub eos: Vec<u32>,
    /// Padding.
    pub pad: Option<u32>,
    /// Unknown.
    pub unk: Option<u32>,
    /// The token of byte 0; those of the other 255 bytes follow.
    pub byte_base: Option<u32>,
    /// Length of the longest piece in bytes.
    pub max_piece_len: u32,
    /// Tokens that text never becomes and that have no text, besides those above: rising, each once. `tokenizer.sorted` ends with them.
    pub special: Vec<u32>,
    /// How `byte_level_bpe` splits text; [`PreTokenizer::None`] for other kinds.
    pub pre_tokenizer: PreTokenizer,
    /// Whether `byte_level_bpe` takes a part that is a piece as that piece, whatever its merges say.
    pub ignore_merges: bool,
    /// What is done to text before `byte_level_bpe` splits it; [`Normalizer::None`] for other kinds.
    pub normalizer: Normalizer,
    /// The chat template's text, for hosts.
    pub chat_template: Option<String>,
}

impl Tokenizer {
    /// No tokenizer: tokens in, tokens out.
    pub const NONE: Self = Self {
        kind: TokenizerKind::None,
        n_pieces: 0,
        add_bos: false,
        dummy_prefix: false,
        bos: None,
        eos: Vec::new(),
        pad: None,
        unk: None,
        byte_base: None,
        max_piece_len: 0,
        special: Vec::new(),
        pre_tokenizer: PreTokenizer::None,
        ignore_merges: false,
        normalizer: Normalizer::None,
        chat_template: None,
    };

    /// The facts as the index records them; `first_array` is the number of the first of the tokenizer's tensors.
    pub(super) fn facts(&self, first_array: u32) -> TokenizerFacts {
        let mut eos = [NO_TOKEN; 8];
        for (place, token) in eos.iter_mut().zip(&self.eos) {
            *place = *token;
        }
        let arrays = match self.kind.arrays() {
            Some(_) => [0, 1, 2, 3].map(|place| first_array + place),
            None => [NO_TOKEN; 4],
        };
        TokenizerFacts {
            kind: self.kind,
            n_pieces: self.n_pieces,
            add_bos: self.add_bos,
            dummy_prefix: self.dummy_prefix,
            bos: self.bos.unwrap_or(NO_TOKEN),
            pad: self.pad.unwrap_or(NO_TOKEN),
            unk: self.unk.unwrap_or(NO_TOKEN),
            byte_base: self.byte_base.unwrap_or(NO_TOKEN),
            max_piece_len: self.max_piece_len,
            arrays,
            n_special: self.special.len() as u32,
            pre_tokenizer: self.pre_tokenizer,
            ignore_merges: self.ignore_merges,
            normalizer: self.normalizer,
            eos,
        }
    }
}

/// The `[provenance]` table. It holds no clock: the same input gives the same bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Provenance {
    /// File name of the source, without its folders.
    pub source: String,
    /// SHA-256 of the source, 64 lower-case hexadecimal digits, if it was asked for.
    pub sha256: Option<String>,
    /// The importer that read the source.
    pub importer: String,
    /// The exporter and its version.
    pub exporter: String,
    /// SPDX identifier, if the source states one.
    pub licence: Option<String>,
}

/// What is known of a tensor before its bytes are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorSpec {
    /// Its name.
    pub name: String,
    /// How its elements are stored.
    pub dtype: DType,
    /// The sizes of its axes as stored, the reduced (input) axis last.
    pub dims: Dims,
    /// Elements of a row that share a multiplier (q8, q4); 0: the whole row, and for other types.
    pub group: u32,
    /// Whether training changes it.
    pub trainable: bool,
    /// Whether the source's array had its axes the other way round.
    pub transposed: bool,
}

/// A `[[tensors]]` entry.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorEntry {
    /// Name, type and dims.
    pub spec: TensorSpec,
    /// Where its bytes begin, from the payload's start.
    pub offset: u64,
    /// CRC-32 of its bytes.
    pub crc32: u32,
    /// The figures of its values; `None` for types that hold no weights (u8, u32).
    pub figures: Option<Figures>,
}

impl TensorEntry {
    /// How many bytes it has.
    pub fn bytes(&self) -> u64 {
        self.spec.bytes()
    }

    /// Whether it counts as parameters: all but rotation frequencies, the tokenizer's arrays, golden vectors and what upsampling interpolates with.
    pub fn is_weight(&self) -> bool {
        let name = self.spec.name.as_str();
        name != "rope.inv_freq" && !name.starts_with("tokenizer.") && !name.starts_with("golden.") && !name.ends_with("_resampling")
    }
}

impl TensorSpec {
    /// How many bytes it has; 0 where its group is not possible, which the check of a header refuses.
    pub fn bytes(&self) -> u64 {
        self.planes(0).map_or(0, |planes| planes.bytes)
    }

    /// Where its parts lie; `number` is named in the error.
    ///
    /// # Errors
    /// Those of [`Planes::new`].
    pub fn planes(&self, number: u32) -> Result<Planes, Error> {
        Planes::new(number, self.dtype, self.dims, self.group)
    }
}

/// The tensors of a file as measured: what [`super::Measure`] gives.
#[derive(Clone, Debug, PartialEq)]
pub struct Payload {
    /// All tensors, laid out.
    pub tensors: Vec<TensorEntry>,
    /// CRC-32 of the whole payload, gaps included.
    pub crc32: u32,
    /// Bytes to the end of the last tensor.
    pub bytes: u64,
}

/// A `[[golden]]` entry: the context is as long as the tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Golden {
    /// How keys and values are kept.
    pub kv: KvDType,
    /// The tokens fed, in order, from an empty context.
    pub tokens: Vec<u32>,
    /// What comes out, at rising positions.
    pub positions: Vec<GoldenPosition>,
}

/// The logits at a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GoldenPosition {
    /// The position, from 0.
    pub position: u32,
    /// CRC-32 of the logits: `vocab_size` f32, little-endian.
    pub crc32: u32,
    /// The five best tokens, best first, ties to the lowest id; in a vocabulary of fewer than five the last places are [`NO_TOKEN`].
    pub top5: [u32; 5],
}

impl Header {
    /// A header for a measured payload, without golden vectors, checked.
    ///
    /// # Errors
    /// [`HeaderError`] with the first rule that it breaks: see [`Header::check`].
    pub fn new(config: Config, tokenizer: Tokenizer, provenance: Provenance, payload: Payload) -> Result<Self, HeaderError> {
        let header = Self {
            arithmetic: crate::ARITHMETIC,
            payload_crc32: payload.crc32,
            config,
            tokenizer,
            provenance,
            tensors: payload.tensors,
            golden: Vec::new(),
        };
        header.check()?;
        Ok(header)
    }

    /// The architecture.
    pub fn arch(&self) -> Architecture {
        match self.config {
            Config::Llama(_) => Architecture::Llama,
            Config::Dormouse(_) => Architecture::Dormouse,
            Config::Sequential(_) => Architecture::Sequential,
        }
    }

    /// How many numbers the weights are.
    pub fn num_params(&self) -> u64 {
        self.weights().fold(0, |sum, tensor| sum.saturating_add(tensor.spec.dims.count()))
    }

    /// The figures of all weights together.
    pub fn figures(&self) -> Figures {
        self.weights().filter_map(|tensor| tensor.figures).fold(Figures::NONE, Figures::merged)
    }

    /// Bytes of the payload: up to the end of the last tensor.
    pub fn payload_bytes(&self) -> u64 {
        self.tensors.last().map_or(0, |tensor| tensor.offset.saturating_add(tensor.bytes()))
    }

    fn weights(&self) -> impl Iterator<Item = &TensorEntry> {
        self.tensors.iter().filter(|tensor| tensor.is_weight())
    }

    /// The header as a TOML table: the same keys and values as its text.
    ///
    /// # Errors
    /// [`HeaderError::Toml`] if a count is past what TOML can hold, which no checked header of a real payload has.
    pub fn to_table(&self) -> Result<toml::Table, HeaderError> {
        self.to_text().parse().map_err(|error: toml::de::Error| HeaderError::Toml { message: error.to_string() })
    }
}

impl serde::Serialize for Header {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.to_table().map_err(serde::ser::Error::custom)?.serialize(serializer)
    }
}

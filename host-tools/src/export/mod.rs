//! A checkpoint becomes a `.dmexp`: planned, narrowed, measured, written, checked, and only then given its name. Called by `dmexp export run`.
//!
//! [`plan`] says what will be written and refuses what cannot be; [`run`] does it. Weights are read from the mapped source piece by piece, twice: once to measure (a value that the
//! element type cannot hold stops the export before there is a file), once to write. Golden vectors need a file that runs, so with them the file is written a second time.

mod dormouse;
mod golden;
pub(crate) mod narrow;
mod onto;
mod plan;
mod quality;
mod quantise;
mod resampling;
mod run;
mod samples;
mod select;
mod sequential;
mod spool;

#[cfg(test)]
pub(crate) mod tests;

pub use onto::{Loading, Weights, onto};
pub use plan::{Plan, plan};
pub use quality::Quality;
pub use run::run;
pub use select::Select;

use crate::checkpoint::Fixed;
use crate::error::{Class, Error, Result};
use crate::predict::Compared;
use dmexp_format::DType;
use dmexp_format::host::{DEFAULT_ALIGNMENT, Figures, TensorEntry};
use std::path::PathBuf;

/// What to export, and where to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The file to write. What it held before is replaced when the new file is whole and checked, not sooner.
    pub out: PathBuf,
    /// How matrices are stored: f32, f16, bf16, q8 or q4 (the embedding and the classifier of a q4 export in q8, unless `select` says otherwise), or t2 where they are ternary.
    pub dtype: DType,
    /// Elements of a row that share a multiplier in q8 and q4: 0 (the whole row) or a multiple of 8. Rows that are not longer are one group.
    pub group: u32,
    /// Tensors that are stored in another way; where several name one tensor, the last counts.
    pub select: Vec<Select>,
    /// The file format.
    pub format: Format,
    /// Alignment of payload and tensors in format 2, a power of two from 16 to 4096; `None` is 64. Format 1 has none.
    pub alignment: Option<u32>,
    /// Whether to run the finished model and record its logits as golden vectors (format 2; format 1 has no place for them).
    pub golden: bool,
    /// Whether to record the SHA-256 of the source (format 2 only).
    pub sha256: bool,
    /// A text to measure the export with: its logits against the source's in f32.
    pub quality: Option<PathBuf>,
    /// Whether batch normalisations are folded into the layers before them (sequential models alone).
    pub fold_batch_norm: bool,
    /// Samples of a sequential model (JSON): what comes out is compared with what they say, and stored as golden vectors unless `golden` is false.
    pub samples: Option<PathBuf>,
}

impl Options {
    /// The default: bf16, format 2, with golden vectors.
    pub fn new(out: impl Into<PathBuf>) -> Self {
        Self {
            out: out.into(),
            dtype: DType::Bf16,
            group: DEFAULT_GROUP,
            select: Vec::new(),
            format: Format::V2,
            alignment: None,
            golden: true,
            sha256: false,
            quality: None,
            fold_batch_norm: false,
            samples: None,
        }
    }

    fn alignment(&self) -> u32 {
        self.alignment.unwrap_or(DEFAULT_ALIGNMENT)
    }

    /// Refuses what contradicts itself.
    fn check(&self) -> Result<()> {
        let request = |what: String, advice: &str| Err(Error::new(Class::Request, what).advise(advice));
        if !self.dtype.is_weight() {
            return request(format!("weights cannot be stored as {}", self.dtype), DTYPES);
        }
        if self.format == Format::V1 && (self.dtype.is_quantised() || !self.select.is_empty()) {
            return request("format 1 has one type for all tensors, and it is f32, f16 or bf16".to_owned(), "export format 2");
        }
        select::check_group(self.group)?;
        if self.format == Format::V1 && self.alignment.is_some() {
            return request("format 1 has no alignment".to_owned(), "leave the alignment out, or export format 2");
        }
        if self.format == Format::V1 && self.sha256 {
            return request("format 1 has no place for a SHA-256".to_owned(), "leave it out, or export format 2");
        }
        match self.alignment {
            Some(alignment) if !alignment.is_power_of_two() || !(16..=4096).contains(&alignment) => {
                request(format!("an alignment of {alignment} bytes is not possible"), "use a power of two from 16 to 4096")
            }
            _ => Ok(()),
        }
    }
}

/// The version of the file format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// What dormouse reads: one element type for the whole file, no tokenizer.
    V1,
    /// With tokenizer, alignment, checksums over everything, golden vectors, and an index that a chip reads without a parser.
    V2,
}

impl Format {
    /// The format of this number.
    ///
    /// # Errors
    /// [`Class::Request`] for any but 1 and 2.
    pub fn from_number(number: u32) -> Result<Self> {
        match number {
            1 => Ok(Self::V1),
            2 => Ok(Self::V2),
            _ => Err(Error::new(Class::Request, format!("format {number} is not known")).advise("the formats are 1 and 2")),
        }
    }

    /// Its number.
    pub const fn number(self) -> u32 {
        match self {
            Self::V1 => 1,
            Self::V2 => 2,
        }
    }
}

/// Elements that share a multiplier unless another number is asked for.
pub const DEFAULT_GROUP: u32 = 32;

const DTYPES: &str = "use f32 (or fp32, float32), f16 (or fp16, float16, half), bf16 (or bfloat16), q8, q4 or t2";

/// The element type that a user names, in any case.
///
/// # Errors
/// [`Class::Request`], with all names in the advice.
pub fn parse_dtype(name: &str) -> Result<DType> {
    match name.to_ascii_lowercase().as_str() {
        "f32" | "fp32" | "float32" => Ok(DType::F32),
        "f16" | "fp16" | "float16" | "half" => Ok(DType::F16),
        "bf16" | "bfloat16" => Ok(DType::Bf16),
        "q8" => Ok(DType::Q8),
        "q4" => Ok(DType::Q4),
        "t2" => Ok(DType::T2),
        _ => Err(Error::new(Class::Request, format!("the element type {name:?} is not known")).advise(DTYPES)),
    }
}

/// What [`run`] is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Phase {
    /// Reads, narrows and measures; counts elements.
    Measure,
    /// Writes; counts elements.
    Write,
    /// Runs the model for its golden vectors; counts tokens.
    Golden,
    /// Runs the export and its source over a text; counts tokens.
    Quality,
    /// Reads the written file back and checks it; counts files.
    Verify,
}

/// How far [`run`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// At what.
    pub phase: Phase,
    /// How much of it is done.
    pub done: u64,
    /// How much there is.
    pub total: u64,
}

/// What was exported.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// The file.
    pub out: PathBuf,
    /// Its format.
    pub format: Format,
    /// How its weights are stored (in format 2 the matrices; vectors are f32).
    pub dtype: DType,
    /// Its length.
    pub file_bytes: u64,
    /// The length of the source files together.
    pub source_bytes: u64,
    /// How many numbers the weights are.
    pub num_params: u64,
    /// The figures of all weights together.
    pub figures: Figures,
    /// Every tensor in the file's order: name, type, dims, place, checksum, figures.
    pub tensors: Vec<TensorEntry>,
    /// Tells this model from another.
    pub fingerprint: u32,
    /// How many golden vectors it carries.
    pub golden: usize,
    /// How it compares with its source, where a text was given.
    pub quality: Option<Quality>,
    /// How it compares with samples, where some were given.
    pub samples: Option<Compared>,
    /// Configuration values that the source does not state, and who says what they are.
    pub fixed: Vec<Fixed>,
    /// What a user should know, one sentence each.
    pub warnings: Vec<String>,
}

impl Report {
    /// The file's length as a part of the source's.
    pub fn ratio(&self) -> f64 {
        self.file_bytes as f64 / self.source_bytes.max(1) as f64
    }
}

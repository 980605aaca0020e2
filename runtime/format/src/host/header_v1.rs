//! Format 1, as dormouse reads it: the owned header, the configuration text of Llama models, and the writer.

use super::check::check_name;
use super::header::Tokenizer;
use super::header_text::{llama_keys, parse_dims};
use super::toml_text::{F32, Keys, TABLE_LIST, TEXT, Text, U32, U32_LIST, U64, float, list};
use super::write::write_payload;
use super::{HEADER_LIMIT, HeaderError, Payload, TENSOR_LIMIT, WriteError};
use crate::arch::llama::LlamaConfig;
use crate::{DType, Dims, Error};
use std::io::{self, Write};

const DTYPES: [(&str, DType); 3] = [("f32", DType::F32), ("f16", DType::F16), ("bf16", DType::Bf16)];
const FIXED_LEN: usize = 24;

/// The header of a format-1 file.
///
/// `num_params` and `num_tensors` follow from the tensors: they are computed, and [`HeaderV1::parse`] refuses text in which they disagree.
#[derive(Clone, Debug, PartialEq)]
pub struct HeaderV1 {
    /// The one element type of the file.
    pub dtype: DType,
    /// Where the weights come from: `<path>@step<n>` in dormouse's files.
    pub source: String,
    /// The training step.
    pub step: u64,
    /// Values that narrowing made exactly 0.
    pub flushed: u64,
    /// The largest magnitude as stored; some writers of dormouse's files state it as it was before narrowing.
    pub max_abs: f32,
    /// The smallest magnitude above 0, likewise.
    pub min_nonzero_abs: f32,
    /// The model's configuration: itself TOML. No `arch` in it means dormouse.
    pub config: String,
    /// The tensors in the file's order.
    pub tensors: Vec<TensorV1>,
}

/// A tensor of a format-1 file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorV1 {
    /// Its name.
    pub name: String,
    /// The sizes of its axes as stored.
    pub dims: Dims,
}

/// Whether a format-1 header ends in newlines so that the payload begins on a multiple of 16.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Padding {
    /// It does: readers borrow f32 slices where the file itself is aligned.
    To16,
    /// It does not: the bytes that dormouse writes.
    None,
}

impl HeaderV1 {
    /// The header for a payload that [`super::Measure::contiguous`] measured, all of one element type.
    ///
    /// # Errors
    /// [`HeaderError`] if the element types differ, or the header is not one that [`HeaderV1::check`] takes.
    pub fn new(source: String, step: u64, config: String, payload: &Payload) -> Result<Self, HeaderError> {
        let dtype = payload.tensors.first().map_or(DType::F32, |entry| entry.spec.dtype);
        let mut figures = super::Figures::NONE;
        let mut tensors = Vec::with_capacity(payload.tensors.len());
        for entry in &payload.tensors {
            if entry.spec.dtype != dtype {
                let key = format!("dtype of tensor {}", entry.spec.name);
                return Err(HeaderError::wrong(key, entry.spec.dtype, format!("{dtype}: format 1 has one type for the whole file")));
            }
            figures = figures.merged(entry.figures.unwrap_or(super::Figures::NONE));
            tensors.push(TensorV1 { name: entry.spec.name.clone(), dims: entry.spec.dims });
        }
        let header = Self {
            dtype,
            source,
            step,
            flushed: figures.flushed,
            max_abs: figures.max_abs,
            min_nonzero_abs: figures.min_nonzero_abs,
            config,
            tensors,
        };
        header.check()?;
        Ok(header)
    }

    /// Reads a header and checks it as [`HeaderV1::check`] does. The second value lists keys that are not known. The configuration is checked to be TOML, not more: what it
    /// means is the architecture's to say.
    ///
    /// # Errors
    /// [`HeaderError`] with the first key that is wrong.
    pub fn parse(text: &str) -> Result<(Self, Vec<String>), HeaderError> {
        let mut unknown = Vec::new();
        let mut keys = Keys::parse(text)?;
        keys.equal("format", &U32, &1)?;
        let dtype = keys.named("dtype", &DTYPES)?;
        let mut tensors = Vec::new();
        for (number, table) in keys.required("tensors", &TABLE_LIST)?.into_iter().enumerate() {
            let mut keys = Keys::new(format!("tensors[{number}]"), table);
            let name = keys.required("name", &TEXT)?;
            let sizes = keys.required("dims", &U32_LIST)?;
            let dims = parse_dims(&keys.path_of("dims"), number as u32, &sizes)?;
            keys.equal("overflowed", &U64, &0)?;
            keys.list_rest(&mut unknown);
            tensors.push(TensorV1 { name, dims });
        }
        let header = Self {
            dtype,
            source: keys.required("source", &TEXT)?,
            step: keys.required("step", &U64)?,
            flushed: keys.required("flushed", &U64)?,
            max_abs: keys.required("max_abs", &F32)?,
            min_nonzero_abs: keys.required("min_nonzero_abs", &F32)?,
            config: keys.required("config", &TEXT)?,
            tensors,
        };
        keys.equal("num_tensors", &U64, &(header.tensors.len() as u64))?;
        header.check()?;
        keys.equal("num_params", &U64, &header.num_params())?;
        keys.list_rest(&mut unknown);
        unknown.sort();
        Ok((header, unknown))
    }

    /// Checks everything that the header alone shows: element type, number of tensors, names (none given twice), figures, that the configuration is TOML.
    ///
    /// # Errors
    /// [`HeaderError`] with the first rule broken.
    pub fn check(&self) -> Result<(), HeaderError> {
        if !self.dtype.is_float() {
            return Err(HeaderError::wrong("dtype", self.dtype, "f32, f16 or bf16"));
        }
        if self.tensors.is_empty() || self.tensors.len() > TENSOR_LIMIT {
            return Err(HeaderError::wrong("tensors", format!("{} tensors", self.tensors.len()), format!("1 to {TENSOR_LIMIT} tensors")));
        }
        let mut names = std::collections::HashMap::with_capacity(self.tensors.len());
        for (number, tensor) in self.tensors.iter().enumerate() {
            check_name(&format!("tensors[{number}].name"), &tensor.name)?;
            if let Some(first) = names.insert(tensor.name.as_str(), number as u32) {
                return Err(Error::DuplicateName { first, second: number as u32 }.into());
            }
        }
        for (key, value) in [("max_abs", self.max_abs), ("min_nonzero_abs", self.min_nonzero_abs)] {
            if !(value.is_finite() && value >= 0.0) {
                return Err(HeaderError::wrong(key, value, "a finite number, at least 0"));
            }
        }
        match Keys::parse(&self.config) {
            Ok(_) => Ok(()),
            Err(HeaderError::Toml { message }) => Err(HeaderError::wrong("config", message, "TOML")),
            Err(other) => Err(other),
        }
    }

    /// How many numbers the tensors hold.
    pub fn num_params(&self) -> u64 {
        self.tensors.iter().fold(0, |sum, tensor| sum.saturating_add(tensor.dims.count()))
    }

    /// How many bytes they take.
    pub fn payload_bytes(&self) -> u64 {
        self.num_params().saturating_mul(self.dtype.size())
    }

    /// The text of the header, without padding: keys and spelling as dormouse writes them.
    ///
    /// # Errors
    /// [`HeaderError`] if the configuration needs escapes as a multi-line string: a reader without a heap could not borrow it.
    pub fn to_text(&self) -> Result<String, HeaderError> {
        let needs_escape = |c: char| c == '\\' || (c.is_ascii_control() && !matches!(c, '\n' | '\t'));
        if let Some(c) = self.config.chars().find(|c| needs_escape(*c)) {
            return Err(HeaderError::wrong("config", format!("the character {c:?}"), "text that needs no escapes in TOML"));
        }
        if self.config.contains("\"\"\"") || self.config.ends_with('"') {
            return Err(HeaderError::wrong("config", "three quotes in a row, or a quote at the end", "text that needs no escapes in TOML"));
        }
        let mut text = Text::default();
        text.plain("format", 1);
        text.text("dtype", self.dtype.name());
        text.text("source", &self.source);
        text.plain("step", self.step);
        text.plain("num_params", self.num_params());
        text.plain("num_tensors", self.tensors.len());
        text.plain("flushed", self.flushed);
        text.float("max_abs", self.max_abs);
        text.float("min_nonzero_abs", self.min_nonzero_abs);
        text.raw("config", &format!("\"\"\"\n{}\"\"\"", self.config));
        for tensor in &self.tensors {
            text.head("[[tensors]]");
            text.text("name", &tensor.name);
            text.raw("dims", &list(tensor.dims.as_slice(), u32::to_string));
            text.plain("overflowed", 0);
        }
        Ok(text.0)
    }
}

/// The configuration text of a Llama model in a format-1 file. `inv_freq` are the rotation frequencies, which format 1 has no tensor for; of the tokenizer, bos, eos and `add_bos` travel.
///
/// # Errors
/// [`HeaderError`] if the configuration is not valid or `inv_freq` is not `head_dim` / 2 finite numbers.
pub fn llama_config_v1(
    model: &LlamaConfig,
    rope_theta: Option<f64>,
    inv_freq: &[f32],
    tokenizer: &Tokenizer,
) -> Result<String, HeaderError> {
    model.validate()?;
    if inv_freq.len() as u64 != u64::from(model.head_dim / 2) || inv_freq.iter().any(|f| !f.is_finite()) {
        let found = list(inv_freq, f32::to_string);
        return Err(HeaderError::wrong("rope_inv_freq", found, format!("{} finite numbers", model.head_dim / 2)));
    }
    let mut text = Text::default();
    text.text("arch", "llama");
    llama_keys(&mut text, model, rope_theta);
    text.raw("rope_inv_freq", &list(inv_freq, |f| float(f64::from(*f))));
    if let Some(bos) = tokenizer.bos {
        text.plain("bos", bos);
    }
    if !tokenizer.eos.is_empty() {
        text.raw("eos", &list(&tokenizer.eos, u32::to_string));
    }
    if tokenizer.bos.is_some() {
        text.plain("add_bos", tokenizer.add_bos);
    }
    Ok(text.0)
}

/// Writes a whole format-1 file: the second pass, as [`super::write_v2`]. `payload` is what the first pass measured, with [`super::Measure::contiguous`]; its tensors must be those of the header.
///
/// # Errors
/// [`WriteError`]; after one the output is not a file.
pub fn write_v1<W: Write>(
    out: &mut W,
    header: &HeaderV1,
    payload: &Payload,
    padding: Padding,
    tensor: impl FnMut(usize, &mut dyn Write) -> io::Result<()>,
) -> Result<u64, WriteError> {
    let same = header.tensors.len() == payload.tensors.len()
        && header.tensors.iter().zip(&payload.tensors).all(|(a, b)| a.name == b.spec.name && a.dims == b.spec.dims);
    if !same || payload.bytes != header.payload_bytes() {
        let found = format!("{} tensors, {} bytes", header.tensors.len(), header.payload_bytes());
        let allowed = format!("the {} tensors and {} bytes measured, without gaps", payload.tensors.len(), payload.bytes);
        return Err(HeaderError::wrong("tensors", found, allowed).into());
    }
    let head = head_v1(header, payload.crc32, padding)?;
    out.write_all(&head)?;
    let tensors = payload.tensors.iter().map(|entry| (entry.spec.name.as_str(), entry.offset, entry.bytes(), entry.crc32));
    write_payload(out, tensors, Some(payload.crc32), tensor)?;
    Ok(head.len() as u64 + payload.bytes)
}

/// A whole format-1 file in memory: `payload` is all tensors' bytes, one after the other.
///
/// # Errors
/// [`WriteError`] if the header cannot be written or the payload has not the bytes that it calls for.
pub fn to_bytes_v1(header: &HeaderV1, payload: &[u8], padding: Padding) -> Result<Vec<u8>, WriteError> {
    if payload.len() as u64 != header.payload_bytes() {
        let allowed = format!("{} bytes", header.payload_bytes());
        return Err(HeaderError::wrong("the payload", format!("{} bytes", payload.len()), allowed).into());
    }
    let mut file = head_v1(header, crate::crc32::checksum(&[payload]), padding)?;
    file.extend_from_slice(payload);
    Ok(file)
}

fn head_v1(header: &HeaderV1, payload_crc32: u32, padding: Padding) -> Result<Vec<u8>, HeaderError> {
    header.check()?;
    let mut text = header.to_text()?.into_bytes();
    if padding == Padding::To16 {
        text.resize((FIXED_LEN + text.len()).next_multiple_of(16) - FIXED_LEN, b'\n');
    }
    if text.len() as u64 > HEADER_LIMIT {
        return Err(HeaderError::wrong("the header", format!("{} bytes", text.len()), format!("at most {HEADER_LIMIT} bytes")));
    }
    let mut head = Vec::from(*b"DMEXPRT\x01");
    head.extend((text.len() as u32).to_le_bytes());
    head.extend(header.payload_bytes().to_le_bytes());
    head.extend(payload_crc32.to_le_bytes());
    head.extend(text);
    Ok(head)
}

//! Bytes to a checked view: [`ModelFile`], which the runtime binds models from and the host tools list and verify.
//!
//! What is checked when, in order and with the test of each, is listed in docs/format/checks.md.

pub mod fixed;
pub mod golden;
pub mod index;
mod names;
mod verify;

#[cfg(test)]
mod tests;

use crate::arch::Architecture;
use crate::arch::llama::{LlamaConfig, TensorKind};
use crate::bytes::part;
use crate::tokenizer::TokenizerFacts;
use crate::{ConfigKey, DType, Error, Part, Rule, TensorView, crc32};
use fixed::Fixed;
use golden::Goldens;
use index::Index;

/// A `.dmexp` file that lies in memory, its container checked.
///
/// Made by [`ModelFile::open`]; borrows the file's bytes, which may lie at any address. It is small: pass it by value.
#[derive(Clone, Copy, Debug)]
pub struct ModelFile<'a> {
    fixed: Fixed,
    header: &'a str,
    container: Container<'a>,
    payload: &'a [u8],
}

#[derive(Clone, Copy, Debug)]
enum Container<'a> {
    V2(Index<'a>),
}

/// One tensor of a file, as [`ModelFile::tensors`] gives it.
#[derive(Clone, Copy, Debug)]
pub struct Tensor<'a> {
    /// Its number in the file's order.
    pub number: u32,
    /// Its name: 1 to 128 bytes of printable ASCII.
    pub name: &'a str,
    /// Its type, dims and bytes.
    pub view: TensorView<'a>,
    /// The CRC-32 that its bytes must have (format 2).
    pub crc32: Option<u32>,
    /// Bit 0: the source's array was the other way round. Bit 1: not trainable. (0 in format 1.)
    pub flags: u32,
    /// Where its bytes start, from the payload's start.
    pub offset: u64,
}

/// All tensors of a file in its order: one walk through the header, whatever their number.
#[derive(Clone, Debug)]
pub struct Tensors<'a> {
    file: ModelFile<'a>,
    next: u32,
}

impl<'a> ModelFile<'a> {
    /// Checks the container and borrows from it. Reads the fixed part, header, index and the zero bytes before the payload; never the payload.
    ///
    /// # Errors
    /// The first thing that is wrong, in the order of docs/format/checks.md.
    pub fn open(bytes: &'a [u8]) -> Result<Self, Error> {
        let fixed = Fixed::parse(bytes)?;
        fixed.check_len(bytes)?;
        // `check_len` made sure that every part lies within `bytes`, so the conversions and `part` cannot fail.
        let slice = |start: u64, end: u64| part(bytes, start as usize, end.saturating_sub(start) as usize).unwrap_or(&[]);
        let header = slice(fixed.header_start(), fixed.index_start());
        let index = slice(fixed.index_start(), fixed.index_end());
        let padding = slice(fixed.index_end(), fixed.payload_start());
        let payload = slice(fixed.payload_start(), fixed.file_len());
        if fixed.version == 2 {
            let computed = crc32::checksum(&[slice(0, 20), slice(24, fixed.index_end())]);
            if computed != fixed.checksum {
                return Err(Error::Checksum { part: Part::Fixed, tensor: u32::MAX, stored: fixed.checksum, computed });
            }
            if let Some((at, byte)) = padding.iter().enumerate().find(|(_, byte)| **byte != 0) {
                let offset = fixed.index_end() + at as u64;
                return Err(Error::Layout { part: Part::Padding, rule: Rule::Zero, offset, found: u64::from(*byte), allowed: 0 });
            }
        }
        let header = core::str::from_utf8(header)
            .map_err(|error| Error::Toml { offset: fixed.header_start() + error.valid_up_to() as u64, rule: Rule::Utf8 })?;
        let container = Self::container(&fixed, header, index)?;
        let file = Self { fixed, header, container, payload };
        names::check(file.tensor_names())?;
        Ok(file)
    }

    fn container(fixed: &Fixed, _header: &'a str, index: &'a [u8]) -> Result<Container<'a>, Error> {
        if fixed.version == 2 {
            return Ok(Container::V2(Index::parse(index, fixed.alignment, fixed.payload_len)?));
        }
        Err(Error::TomlNotBuilt)
    }

    /// The format's version: 1 or 2.
    pub const fn version(&self) -> u8 {
        self.fixed.version
    }

    /// The architecture: one that this version knows (checked by `open`).
    pub const fn architecture(&self) -> Architecture {
        match &self.container {
            Container::V2(index) => index.architecture(),
        }
    }

    /// How many tensors there are, tokenizer arrays included: 1 to 65,536 (checked by `open`).
    pub const fn num_tensors(&self) -> u32 {
        match &self.container {
            Container::V2(index) => index.num_tensors(),
        }
    }

    /// How many numbers the weights are (counted by `open`).
    pub const fn num_params(&self) -> u64 {
        match &self.container {
            Container::V2(index) => index.num_params(),
        }
    }

    /// Every tensor starts at a multiple of this many bytes from the file's start; 1 in format 1.
    pub const fn alignment(&self) -> u32 {
        self.fixed.alignment
    }

    /// The lengths and the checksum of the fixed part.
    pub const fn fixed(&self) -> Fixed {
        self.fixed
    }

    /// The TOML header; `None` in a file that was stripped for firmware. `open` made sure that it is UTF-8, in format 1 also that it is a header.
    pub const fn header_text(&self) -> Option<&'a str> {
        if self.header.is_empty() { None } else { Some(self.header) }
    }

    /// The index, checked by `open`; `None` in format 1.
    pub const fn index(&self) -> Option<Index<'a>> {
        match self.container {
            Container::V2(index) => Some(index),
        }
    }

    /// The payload: as long as the fixed part says and no longer than its tensors (checked by `open`).
    pub const fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// The type of all tensors of a format-1 file; `None` in format 2, where each has its own.
    pub const fn single_dtype(&self) -> Option<DType> {
        match &self.container {
            Container::V2(_) => None,
        }
    }

    /// All tensors, in the file's order.
    pub const fn tensors(&self) -> Tensors<'a> {
        Tensors { file: *self, next: 0 }
    }

    /// Tensor `number`; `None` only past the last: `open` made sure that its bytes lie in the payload and are as many as it needs.
    ///
    /// In format 1 this walks through the header: to visit many tensors use [`ModelFile::tensors`].
    pub fn tensor(&self, number: u32) -> Option<TensorView<'a>> {
        Some(self.entry(number)?.view)
    }

    /// The name of tensor `number`; `None` only past the last: `open` checked every name.
    pub fn tensor_name(&self, number: u32) -> Option<&'a str> {
        match &self.container {
            Container::V2(index) => index.name(number),
        }
    }

    /// The CRC-32 that the bytes of tensor `number` must have; `None` past the last and in format 1.
    pub fn tensor_crc(&self, number: u32) -> Option<u32> {
        Some(self.index()?.record(number)?.crc32)
    }

    fn entry(&self, number: u32) -> Option<Tensor<'a>> {
        match &self.container {
            Container::V2(index) => {
                let record = index.record(number)?;
                let name = index.name(number)?;
                let bytes = part(self.payload, record.offset as usize, record.bytes as usize)?;
                let view = TensorView::new(number, record.dtype, record.dims, bytes).ok()?;
                Some(Tensor { number, name, view, crc32: Some(record.crc32), flags: record.flags, offset: record.offset })
            }
        }
    }

    fn tensor_names(&self) -> impl Iterator<Item = &'a [u8]> + Clone + use<'a> {
        let Container::V2(index) = self.container;
        (0..index.num_tensors()).map_while(move |number| index.name_bytes(number))
    }

    /// The configuration of a Llama, validated by `open`.
    ///
    /// # Errors
    /// [`Error::OtherArchitecture`] if the model is not a Llama; no other after `open`.
    pub fn llama_config(&self) -> Result<LlamaConfig, Error> {
        match &self.container {
            Container::V2(index) => index.llama_config(),
        }
    }

    /// Writes the rotation frequencies of a Llama into `out`, which must hold `head_dim` / 2 numbers: from the tensor `rope.inv_freq` (format 2) or from the configuration (format 1).
    ///
    /// # Errors
    /// [`Error::OtherArchitecture`]; [`Error::Config`] of [`ConfigKey::RopeInvFreq`] if the tensor is missing, has another name, type or length, if `out` has another
    /// length, or if a frequency is not finite and above 0.
    pub fn rope_inv_freq(&self, out: &mut [f32]) -> Result<(), Error> {
        let config = self.llama_config()?;
        let wrong = |rule, found, allowed| Err(Error::Config { key: ConfigKey::RopeInvFreq, rule, found, allowed });
        let half = u64::from(config.head_dim / 2);
        if out.len() as u64 != half {
            return wrong(Rule::Length, out.len() as u64, half);
        }
        match &self.container {
            Container::V2(_) => {
                let number = config.tensor_number(TensorKind::RopeInvFreq, 0);
                let tensor = match self.entry(number) {
                    Some(tensor) if tensor.name == TensorKind::RopeInvFreq.name() => tensor.view,
                    _ => return wrong(Rule::Missing, u64::from(number), u64::from(self.num_tensors())),
                };
                if tensor.dtype() != DType::F32 {
                    return wrong(Rule::DType, u64::from(tensor.dtype().code()), u64::from(DType::F32.code()));
                }
                if tensor.dims().rank() != 1 || tensor.dims().count() != half {
                    return wrong(Rule::Length, tensor.dims().count(), half);
                }
                for (place, frequency) in out.iter_mut().enumerate() {
                    *frequency = tensor.get_f32(place);
                }
            }
        }
        match out.iter().find(|frequency| !frequency.is_finite() || **frequency <= 0.0) {
            Some(found) if found.is_finite() => wrong(Rule::Positive, u64::from(found.to_bits()), 0),
            Some(found) => wrong(Rule::Finite, u64::from(found.to_bits()), 0),
            None => Ok(()),
        }
    }

    /// The facts of the tokenizer, checked by `open`. A format-1 file has none, but its configuration may name the special tokens.
    ///
    /// # Errors
    /// None after `open`.
    pub fn tokenizer_facts(&self) -> Result<TokenizerFacts, Error> {
        match &self.container {
            Container::V2(index) => index.tokenizer_facts(),
        }
    }

    /// Tells one model from another: the CRC-32 of the index (which has the payload's CRC-32 in it, and is the same in a stripped file); in format 1 that of the payload as stored.
    pub fn fingerprint(&self) -> u32 {
        match &self.container {
            Container::V2(index) => crc32::checksum(&[index.bytes()]),
        }
    }

    /// The golden vectors, walked through by `open`; empty in format 1.
    pub const fn golden(&self) -> Goldens<'a> {
        match &self.container {
            Container::V2(index) => index.golden(),
        }
    }
}

impl<'a> Iterator for Tensors<'a> {
    type Item = Tensor<'a>;

    fn next(&mut self) -> Option<Tensor<'a>> {
        let tensor = self.file.entry(self.next)?;
        self.next += 1;
        Some(tensor)
    }
}

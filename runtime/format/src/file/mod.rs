//! Bytes to a checked view: [`ModelFile`], which the runtime binds models from and the host tools list and verify.
//!
//! What is checked when, in order and with the test of each, is listed in docs/format/checks.md.

pub mod fixed;
pub mod golden;
pub mod index;
mod names;
pub(crate) mod quantised;
mod record;
#[cfg(feature = "toml")]
mod toml_v1;
mod verify;

#[cfg(test)]
mod tests;

use crate::arch::Architecture;
use crate::arch::dormouse::DormouseConfig;
use crate::arch::llama::{LlamaConfig, TensorKind};
use crate::arch::sequential::Sequential;
use crate::bytes::part;
use crate::tokenizer::TokenizerFacts;
use crate::utf8::first_fault;
use crate::{ConfigKey, DType, Error, Part, Rule, TensorView, crc32};
use fixed::Fixed;
use golden::Goldens;
use index::Index;

/// A `.dmexp` file that lies in memory, its container checked.
///
/// Made by [`ModelFile::open`]; borrows the file's bytes, which may lie at any address. It is small: pass it by value.
///
/// ```
/// use dmexp_format::{Error, file::ModelFile};
///
/// /// The names of all tensors.
/// fn names(bytes: &[u8]) -> Result<Vec<String>, Error> {
///     Ok(ModelFile::open(bytes)?.tensors().map(|tensor| tensor.name.to_owned()).collect())
/// }
///
/// // What is no such file is refused, not guessed at.
/// assert!(names(b"a text, and no model").is_err());
/// ```
#[derive(Clone, Copy, Debug)]
pub struct ModelFile<'a> {
    fixed: Fixed,
    header: &'a [u8],
    container: Container<'a>,
    payload: &'a [u8],
}

#[derive(Clone, Copy, Debug)]
enum Container<'a> {
    #[cfg(feature = "toml")]
    V1(toml_v1::Header<'a>),
    V2(Index<'a>),
}

/// The tensors of a format-2 file: all that is needed of a file once it was checked and bound, and a quarter of a [`ModelFile`].
#[derive(Clone, Copy, Debug)]
pub struct IndexedTensors<'a> {
    index: Index<'a>,
    payload: &'a [u8],
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
    payload: &'a [u8],
    next: u32,
    walk: Walk<'a>,
}

/// Where the next tensor's facts come from.
#[derive(Clone, Debug)]
enum Walk<'a> {
    #[cfg(feature = "toml")]
    V1 {
        dtype: DType,
        tables: toml_v1::Tables<'a>,
        offset: u64,
    },
    V2(Index<'a>),
}

impl<'a> ModelFile<'a> {
    /// Checks the container and borrows from it. Reads the fixed part, header, index and the zero bytes before the payload; never the payload.
    ///
    /// # Errors
    /// The first thing that is wrong, in the order of docs/format/checks.md.
    #[inline(never)]
    pub fn open(bytes: &'a [u8]) -> Result<Self, Error> {
        match Fixed::parse(bytes) {
            Ok(ref fixed) => Self::open_parts(bytes, fixed),
            Err(error) => Err(error),
        }
    }

    fn open_parts(bytes: &'a [u8], fixed: &Fixed) -> Result<Self, Error> {
        fixed.check_len(bytes)?;
        // `check_len` made sure that every part lies within `bytes`, so the lengths fit `usize` and nothing is cut short.
        let mut rest = bytes;
        let padding_len = fixed.payload_start().wrapping_sub(fixed.index_end()) as usize;
        take(&mut rest, fixed.header_start() as usize);
        let header = take(&mut rest, fixed.header_len as usize);
        let index = take(&mut rest, fixed.index_len as usize);
        let padding = take(&mut rest, padding_len);
        let payload = rest;
        if !fixed.is_format_1() {
            let before = bytes.len().wrapping_sub(payload.len()).wrapping_sub(padding_len);
            let computed = crc32::checksum(&[part(bytes, 0, 20).unwrap_or(&[]), part(bytes, 24, before.wrapping_sub(24)).unwrap_or(&[])]);
            if computed != fixed.checksum {
                return Err(Error::Checksum { part: Part::Fixed, tensor: u32::MAX, stored: fixed.checksum, computed });
            }
            if let Some((at, byte)) = padding.iter().enumerate().find(|(_, byte)| **byte != 0) {
                let offset = (before + at) as u64;
                return Err(Error::Layout { part: Part::Padding, rule: Rule::Zero, offset, found: u64::from(*byte), allowed: 0 });
            }
        }
        if let Some(fault) = first_fault(header) {
            return Err(Error::Toml { offset: fixed.header_start() + fault as u64, rule: Rule::Utf8 });
        }
        let container = Self::container(fixed, header, index)?;
        let file = Self { fixed: *fixed, header, container, payload };
        file.check_names()?;
        Ok(file)
    }

    fn container(fixed: &Fixed, header: &'a [u8], index: &'a [u8]) -> Result<Container<'a>, Error> {
        #[cfg(feature = "toml")]
        if fixed.is_format_1() {
            let header = core::str::from_utf8(header).unwrap_or("");
            return Ok(Container::V1(toml_v1::Header::parse(header, fixed.header_start(), fixed.payload_len)?));
        }
        let _ = header;
        Ok(Container::V2(Index::parse(index, fixed.alignment, fixed.payload_len)?))
    }

    /// Whether this is a format-1 file.
    pub(crate) const fn is_format_1(&self) -> bool {
        self.fixed.is_format_1()
    }

    /// The format's version: 1 or 2.
    pub const fn version(&self) -> u8 {
        self.fixed.version
    }

    /// The architecture: one that this version knows (checked by `open`).
    pub const fn architecture(&self) -> Architecture {
        match &self.container {
            #[cfg(feature = "toml")]
            Container::V1(header) => header.architecture,
            Container::V2(index) => index.architecture(),
        }
    }

    /// How many tensors there are, tokenizer arrays included: 1 to 65,536 (checked by `open`).
    pub const fn num_tensors(&self) -> u32 {
        match &self.container {
            #[cfg(feature = "toml")]
            Container::V1(header) => header.num_tensors,
            Container::V2(index) => index.num_tensors(),
        }
    }

    /// How many numbers the weights are (counted by `open`).
    pub const fn num_params(&self) -> u64 {
        match &self.container {
            #[cfg(feature = "toml")]
            Container::V1(header) => header.num_params,
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
        match core::str::from_utf8(self.header) {
            Ok(text) if !text.is_empty() => Some(text),
            _ => None,
        }
    }

    /// The index, checked by `open`; `None` in format 1.
    pub const fn index(&self) -> Option<Index<'a>> {
        match self.container {
            #[cfg(feature = "toml")]
            Container::V1(_) => None,
            Container::V2(index) => Some(index),
        }
    }

    /// The tensors by their numbers; `None` in format 1.
    pub const fn indexed_tensors(&self) -> Option<IndexedTensors<'a>> {
        match self.index() {
            Some(index) => Some(IndexedTensors { index, payload: self.payload }),
            None => None,
        }
    }

    /// The payload: as long as the fixed part says and no longer than its tensors (checked by `open`).
    pub const fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// The type of all tensors of a format-1 file; `None` in format 2, where each has its own.
    pub const fn single_dtype(&self) -> Option<DType> {
        match &self.container {
            #[cfg(feature = "toml")]
            Container::V1(header) => Some(header.dtype),
            Container::V2(_) => None,
        }
    }

    /// All tensors, in the file's order.
    pub const fn tensors(&self) -> Tensors<'a> {
        let walk = match &self.container {
            #[cfg(feature = "toml")]
            Container::V1(header) => Walk::V1 { dtype: header.dtype, tables: header.tables(), offset: 0 },
            Container::V2(index) => Walk::V2(*index),
        };
        Tensors { payload: self.payload, next: 0, walk }
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
            #[cfg(feature = "toml")]
            Container::V1(header) => Some(header.tables().nth(number as usize)?.name),
            Container::V2(index) => index.name(number),
        }
    }

    /// The CRC-32 that the bytes of tensor `number` must have; `None` past the last and in format 1.
    pub fn tensor_crc(&self, number: u32) -> Option<u32> {
        Some(self.index()?.record(number)?.crc32)
    }

    /// Tensor `number` with its name; `None` only past the last.
    pub(crate) fn entry(&self, number: u32) -> Option<Entry<'a>> {
        match &self.container {
            #[cfg(feature = "toml")]
            Container::V1(_) => {
                let mut tensors = self.tensors();
                (0..number).try_for_each(|_| tensors.next_entry().map(|_| ()))?;
                tensors.next_entry()
            }
            Container::V2(index) => Entry::from_index(index, number, self.payload),
        }
    }

    #[inline(never)]
    fn check_names(&self) -> Result<(), Error> {
        match &self.container {
            #[cfg(feature = "toml")]
            Container::V1(header) => names::check(header.tables().map(|table| table.name.as_bytes())),
            Container::V2(index) => {
                let index = *index;
                names::check((0..index.num_tensors()).map_while(move |number| index.name_bytes(number)))
            }
        }
    }

    /// The configuration's text in a format-1 header, without the quotes; `None` in format 2, where it is a table of the header.
    pub const fn config_text(&self) -> Option<&'a str> {
        match &self.container {
            #[cfg(feature = "toml")]
            Container::V1(header) => Some(header.config_text()),
            Container::V2(_) => None,
        }
    }

    /// The configuration of a Llama, validated by `open`.
    ///
    /// # Errors
    /// [`Error::OtherArchitecture`] if the model is not a Llama; no other after `open`.
    pub fn llama_config(&self) -> Result<LlamaConfig, Error> {
        match &self.container {
            #[cfg(feature = "toml")]
            Container::V1(header) => Ok(header.llama()?.0),
            Container::V2(index) => index.llama_config(),
        }
    }

    /// The configuration of a dormouse model, checked now: `open` looks at its form alone, so that firmware for other architectures has no code for it.
    ///
    /// # Errors
    /// [`Error::OtherArchitecture`]; [`Error::Config`] with the first key that is wrong.
    pub fn dormouse_config(&self) -> Result<DormouseConfig, Error> {
        match &self.container {
            #[cfg(feature = "toml")]
            Container::V1(header) => header.dormouse(),
            Container::V2(index) if index.architecture() == Architecture::Dormouse => DormouseConfig::parse(index.config_bytes()),
            Container::V2(index) => {
                let (found, expected) = (index.architecture().code(), Architecture::Dormouse.code());
                Err(Error::OtherArchitecture { found, expected })
            }
        }
    }

    /// The configuration of a sequential model, checked now: `open` looks at its length alone, so that firmware for other architectures has no code for it.
    ///
    /// # Errors
    /// [`Error::OtherArchitecture`]; those of [`Sequential::parse`].
    pub fn sequential(&self) -> Result<Sequential<'a>, Error> {
        let found = self.architecture();
        match self.index() {
            Some(index) if found == Architecture::Sequential => Sequential::parse(index.config_bytes()),
            _ => Err(Error::OtherArchitecture { found: found.code(), expected: Architecture::Sequential.code() }),
        }
    }

    /// Writes the rotation frequencies of a Llama into `out`, which must hold `head_dim` / 2 numbers: from the tensor `rope.inv_freq` (format 2) or from the configuration (format 1).
    ///
    /// # Errors
    /// [`Error::OtherArchitecture`]; [`Error::Config`] of [`ConfigKey::RopeInvFreq`] if the tensor is missing, has another name, type or length, if `out` has another
    /// length, or if a frequency is not finite and above 0.
    #[inline(never)]
    pub fn rope_inv_freq(&self, out: &mut [f32]) -> Result<(), Error> {
        let config = self.llama_config()?;
        let wrong = |rule, found, allowed| Err(Error::Config { key: ConfigKey::RopeInvFreq, rule, found, allowed });
        let half = u64::from(config.head_dim / 2);
        if out.len() as u64 != half {
            return wrong(Rule::Length, out.len() as u64, half);
        }
        match &self.container {
            #[cfg(feature = "toml")]
            Container::V1(header) => header.frequencies(out)?,
            Container::V2(_) => {
                let number = config.tensor_number(TensorKind::RopeInvFreq, 0);
                let tensor = match self.entry(number) {
                    Some(tensor) if tensor.name == TensorKind::RopeInvFreq.name().as_bytes() => tensor.view,
                    _ => return wrong(Rule::Missing, u64::from(number), u64::from(self.num_tensors())),
                };
                if tensor.dtype() != DType::F32 {
                    return wrong(Rule::DType, u64::from(tensor.dtype().code()), u64::from(DType::F32.code()));
                }
                if tensor.dims().rank() != 1 || tensor.dims().count() != half {
                    return wrong(Rule::Length, tensor.dims().count(), half);
                }
                for (place, frequency) in out.iter_mut().enumerate() {
                    *frequency = tensor.get_float(place);
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
            #[cfg(feature = "toml")]
            Container::V1(header) if header.architecture == Architecture::Llama => Ok(header.llama()?.1),
            #[cfg(feature = "toml")]
            Container::V1(_) => Ok(TokenizerFacts::NONE),
            Container::V2(index) => index.tokenizer_facts(),
        }
    }

    /// Tells one model from another: the CRC-32 of the index (which has the payload's CRC-32 in it, and is the same in a stripped file); in format 1 that of the payload as stored.
    pub fn fingerprint(&self) -> u32 {
        match &self.container {
            #[cfg(feature = "toml")]
            Container::V1(_) => self.fixed.checksum,
            Container::V2(index) => crc32::checksum(&[index.bytes()]),
        }
    }

    /// The golden vectors, walked through by `open`; empty in format 1.
    pub const fn golden(&self) -> Goldens<'a> {
        match &self.container {
            #[cfg(feature = "toml")]
            Container::V1(_) => Goldens::new(&[]),
            Container::V2(index) => index.golden(),
        }
    }
}

/// Cuts `len` bytes off the front of `rest`; none if there are not as many.
#[inline(never)]
fn take<'a>(rest: &mut &'a [u8], len: usize) -> &'a [u8] {
    let Some((first, after)) = rest.split_at_checked(len) else { return &[] };
    *rest = after;
    first
}

impl<'a> IndexedTensors<'a> {
    /// Tensor `number`, as [`ModelFile::tensor`] gives it, but without decoding its record again: a step asks for every tensor, and has little stack.
    pub fn tensor(&self, number: u32) -> Option<TensorView<'a>> {
        self.index.view(number, self.payload)
    }
}

/// A [`Tensor`] whose name is still bytes: nothing on a chip asks for it as text.
pub(crate) struct Entry<'a> {
    pub(crate) number: u32,
    pub(crate) name: &'a [u8],
    pub(crate) view: TensorView<'a>,
    crc32: Option<u32>,
    flags: u32,
    offset: u64,
}

impl<'a> Entry<'a> {
    /// With its name as text; `open` made sure that it is printable ASCII.
    pub(crate) fn named(self) -> Option<Tensor<'a>> {
        let Self { number, name, view, crc32, flags, offset } = self;
        Some(Tensor { number, name: core::str::from_utf8(name).ok()?, view, crc32, flags, offset })
    }

    #[inline(never)]
    fn from_index(index: &Index<'a>, number: u32, payload: &'a [u8]) -> Option<Self> {
        let record = index.record(number)?;
        let name = index.name_of(&record);
        let bytes = part(payload, record.offset as usize, record.bytes as usize)?;
        // `parse` decoded the record, and with it compared the length.
        let view = TensorView::of_checked(record.dtype, record.dims, record.group, bytes);
        Some(Self { number, name, view, crc32: Some(record.crc32), flags: record.flags, offset: record.offset })
    }
}

impl<'a> Tensors<'a> {
    /// Numbers and views alone.
    pub fn views(mut self) -> impl Iterator<Item = (u32, TensorView<'a>)> {
        core::iter::from_fn(move || self.next_entry().map(|entry| (entry.number, entry.view)))
    }

    pub(crate) fn next_entry(&mut self) -> Option<Entry<'a>> {
        let number = self.next;
        let entry = match &mut self.walk {
            #[cfg(feature = "toml")]
            Walk::V1 { dtype, tables, offset } => {
                let table = tables.next()?;
                let start = *offset;
                // `open` made sure that the sum of all sizes is the payload's length.
                let len = table.dims.count() * dtype.size();
                *offset = start.saturating_add(len);
                let bytes = part(self.payload, start as usize, len as usize)?;
                let view = TensorView::new(number, *dtype, table.dims, bytes).ok()?;
                Entry { number, name: table.name.as_bytes(), view, crc32: None, flags: 0, offset: start }
            }
            Walk::V2(index) => Entry::from_index(index, number, self.payload)?,
        };
        self.next = number.saturating_add(1);
        Some(entry)
    }
}

impl<'a> Iterator for Tensors<'a> {
    type Item = Tensor<'a>;

    fn next(&mut self) -> Option<Tensor<'a>> {
        self.next_entry()?.named()
    }
}

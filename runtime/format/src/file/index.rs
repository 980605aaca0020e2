//! The checked view of a format-2 index (docs/format/index.md). Used by [`super::ModelFile`] and, in constants, by `include_model!`.

use super::fixed::INDEX_LIMIT;
use super::golden::{self, Goldens};
use crate::arch::Architecture;
use crate::arch::llama::{CONFIG_RECORD_LEN, LlamaConfig, TensorKind};
use crate::bytes::{align_up, array, part, same, u16_at, u32_at, u64_at};
use crate::tokenizer::{ARRAY_NAMES, NO_TOKEN, TOKENIZER_RECORD_LEN, TokenizerFacts, TokenizerKind};
use crate::{ARITHMETIC, ConfigKey, DType, Dims, Error, Part, Rule, TokenizerKey};

/// Bytes of the head.
pub const HEAD_LEN: usize = 64;
/// Bytes of one tensor record.
pub const TENSOR_RECORD_LEN: usize = 56;
/// The schema that this version reads.
pub const SCHEMA: u16 = 1;
/// The most tensors in a file.
pub const TENSOR_LIMIT: u32 = 65_536;
/// The longest name of a tensor in bytes.
pub const NAME_LIMIT: u32 = 128;

const TOKENIZER_START: usize = HEAD_LEN + CONFIG_RECORD_LEN;
const TENSORS_START: usize = TOKENIZER_START + TOKENIZER_RECORD_LEN;

/// What the index says of one tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorRecord {
    /// Where its name starts within the names.
    pub name_offset: u32,
    /// Bytes of its name.
    pub name_len: u16,
    /// How its elements are stored.
    pub dtype: DType,
    /// Its dims.
    pub dims: Dims,
    /// The CRC-32 of its bytes.
    pub crc32: u32,
    /// Where it starts, from the payload's start.
    pub offset: u64,
    /// Its bytes: as many as `dims` and `dtype` need.
    pub bytes: u64,
    /// Bit 0: the source's array was the other way round. Bit 1: not trainable.
    pub flags: u32,
}

impl TensorRecord {
    /// Whether the source's array was the other way round.
    pub const fn is_transposed(&self) -> bool {
        self.flags & 1 != 0
    }

    /// Whether training changes it.
    pub const fn is_trainable(&self) -> bool {
        self.flags & 2 == 0
    }

    /// Decodes a record and checks each of its fields by itself.
    const fn decode(record: &[u8; TENSOR_RECORD_LEN], tensor: u32) -> Result<Self, Error> {
        let [_, _, _, _, _, _, code, rank, ..] = *record;
        let Some(dtype) = DType::from_code(code) else {
            return Err(of_tensor(tensor, Rule::DType, code as u64, DType::U32.code() as u64));
        };
        let name_len = u16_at(record, 4);
        if name_len == 0 {
            return Err(of_tensor(tensor, Rule::NotZero, 0, 1));
        }
        if name_len as u32 > NAME_LIMIT {
            return Err(of_tensor(tensor, Rule::TooLarge, name_len as u64, NAME_LIMIT as u64));
        }
        let sizes = [u32_at(record, 8), u32_at(record, 12), u32_at(record, 16), u32_at(record, 20)];
        let dims = match Dims::new(tensor, rank as u32, sizes) {
            Ok(dims) => dims,
            Err(error) => return Err(error),
        };
        let ([a, b, c, d], [p, q, r, s]) = (sizes, dims.padded());
        if a != p || b != q || c != r || d != s {
            return Err(of_tensor(tensor, Rule::Rank, rank as u64, 4));
        }
        let group = u32_at(record, 24);
        if group != 0 {
            return Err(of_tensor(tensor, Rule::Zero, group as u64, 0));
        }
        let (flags, reserved) = (u32_at(record, 48), u32_at(record, 52));
        if flags > 3 {
            return Err(of_tensor(tensor, Rule::Unknown, flags as u64, 3));
        }
        if reserved != 0 {
            return Err(of_tensor(tensor, Rule::Zero, reserved as u64, 0));
        }
        let bytes = u64_at(record, 40);
        // At most 2^48 elements of 4 bytes.
        let needed = dims.count() * dtype.size();
        if bytes != needed {
            return Err(of_tensor(tensor, Rule::Length, bytes, needed));
        }
        let (name_offset, crc32, offset) = (u32_at(record, 0), u32_at(record, 28), u64_at(record, 32));
        Ok(Self { name_offset, name_len, dtype, dims, crc32, offset, bytes, flags })
    }
}

/// A format-2 index whose every part was checked: lengths and offsets, configuration, tokenizer, tensors, names and golden vectors.
///
/// It is small and borrows the index's bytes, which need no alignment.
#[derive(Clone, Copy, Debug)]
pub struct Index<'a> {
    bytes: &'a [u8],
    records: &'a [u8],
    golden: &'a [u8],
    names: &'a [u8],
    num_tensors: u32,
}

impl<'a> Index<'a> {
    /// Checks an index of a file whose tensors lie at multiples of `alignment` (a power of two) in a payload of `payload_len` bytes.
    ///
    /// Whether two tensors have the same name is not checked here but by `ModelFile::open`, and neither are checksums.
    ///
    /// # Errors
    /// [`Error::Layout`] (offsets from the index's start), [`Error::UnknownArchitecture`], [`Error::Arithmetic`], [`Error::Config`],
    /// [`Error::Tokenizer`], [`Error::Tensor`]: the first thing that is wrong, in the order of docs/format/checks.md.
    pub const fn parse(bytes: &'a [u8], alignment: u32, payload_len: u64) -> Result<Self, Error> {
        let index = match Self::split(bytes) {
            Ok(index) => index,
            Err(error) => return Err(error),
        };
        let config = match index.llama_config() {
            Ok(config) => config,
            Err(error) => return Err(error),
        };
        if let Err(error) = config.validate() {
            return Err(error);
        }
        if let Err(error) = index.check_tensors(alignment, payload_len) {
            return Err(error);
        }
        let facts = match index.tokenizer_facts() {
            Ok(facts) => facts,
            Err(error) => return Err(error),
        };
        if let Err(error) = index.check_tokenizer_arrays(&facts) {
            return Err(error);
        }
        let golden_start = TENSORS_START as u64 + index.records.len() as u64;
        match golden::check(index.golden, golden_start, &config) {
            Ok(()) => Ok(index),
            Err(error) => Err(error),
        }
    }

    /// Checks the head and finds the parts.
    const fn split(bytes: &'a [u8]) -> Result<Self, Error> {
        let len = bytes.len() as u64;
        if len < TENSORS_START as u64 {
            return Err(layout(Part::Index, Rule::TooSmall, 0, len, TENSORS_START as u64));
        }
        if len > INDEX_LIMIT as u64 {
            return Err(layout(Part::Index, Rule::TooLarge, 0, len, INDEX_LIMIT as u64));
        }
        if !len.is_multiple_of(4) {
            return Err(layout(Part::Index, Rule::Multiple, 0, len, 4));
        }
        if u16_at(bytes, 0) != SCHEMA {
            return Err(layout(Part::Index, Rule::Equal, 0, u16_at(bytes, 0) as u64, SCHEMA as u64));
        }
        let code = u16_at(bytes, 2) as u32;
        match Architecture::from_code(code) {
            Some(Architecture::Llama) => (),
            // Its configuration record is not laid down yet.
            Some(Architecture::Dormouse) => return Err(layout(Part::Index, Rule::Unsupported, 2, code as u64, 1)),
            None => return Err(Error::UnknownArchitecture { code }),
        }
        let arithmetic = u32_at(bytes, 4);
        if arithmetic != ARITHMETIC {
            return Err(Error::Arithmetic { found: arithmetic, expected: ARITHMETIC });
        }
        let num_tensors = u32_at(bytes, 8);
        if num_tensors == 0 {
            return Err(layout(Part::Index, Rule::NotZero, 8, 0, 1));
        }
        if num_tensors > TENSOR_LIMIT {
            return Err(layout(Part::Index, Rule::TooLarge, 8, num_tensors as u64, TENSOR_LIMIT as u64));
        }
        if u32_at(bytes, 60) != 0 {
            return Err(layout(Part::Index, Rule::Zero, 60, u32_at(bytes, 60) as u64, 0));
        }
        let (golden_len, names_len) = (u32_at(bytes, 44) as u64, u32_at(bytes, 36) as u64);
        if !golden_len.is_multiple_of(4) {
            return Err(layout(Part::Golden, Rule::Multiple, 44, golden_len, 4));
        }
        let records_len = num_tensors as u64 * TENSOR_RECORD_LEN as u64;
        let golden_start = TENSORS_START as u64 + records_len;
        let names_start = golden_start + golden_len;
        let places = [
            (Part::Config, 16, HEAD_LEN as u64),
            (Part::Config, 20, CONFIG_RECORD_LEN as u64),
            (Part::Tokenizer, 24, TOKENIZER_START as u64),
            (Part::Tokenizer, 28, TOKENIZER_RECORD_LEN as u64),
            (Part::Tensors, 12, TENSORS_START as u64),
            (Part::Golden, 40, golden_start),
            (Part::Names, 32, names_start),
        ];
        let mut rest: &[(Part, usize, u64)] = &places;
        while let [(part, at, expected), tail @ ..] = rest {
            let found = u32_at(bytes, *at) as u64;
            if found != *expected {
                return Err(layout(*part, Rule::Overlap, *at as u64, found, *expected));
            }
            rest = tail;
        }
        let end = names_start + align_up(names_len, 4);
        if end != len {
            return Err(layout(Part::Index, Rule::Length, 36, len, end));
        }
        // The sums above end at the index's length, so all of these are there and fit `usize`.
        let (Some(records), Some(golden), Some(names), Some((_, mut padding))) = (
            part(bytes, TENSORS_START, records_len as usize),
            part(bytes, golden_start as usize, golden_len as usize),
            part(bytes, names_start as usize, names_len as usize),
            bytes.split_at_checked((names_start + names_len) as usize),
        ) else {
            return Err(layout(Part::Index, Rule::Length, 36, len, end));
        };
        while let [byte, tail @ ..] = padding {
            if *byte != 0 {
                return Err(layout(Part::Names, Rule::Zero, len - padding.len() as u64, *byte as u64, 0));
            }
            padding = tail;
        }
        Ok(Self { bytes, records, golden, names, num_tensors })
    }

    /// Checks each record, and that names and bytes follow one another without holes to the ends that are stated.
    const fn check_tensors(&self, alignment: u32, payload_len: u64) -> Result<(), Error> {
        let alignment = alignment as u64;
        let (mut number, mut name_end, mut end, mut params) = (0u32, 0u64, 0u64, 0u64);
        while number < self.num_tensors {
            let record = match self.decode(number) {
                Ok(record) => record,
                Err(error) => return Err(error),
            };
            if record.name_offset as u64 != name_end {
                let at = TENSORS_START as u64 + number as u64 * TENSOR_RECORD_LEN as u64;
                return Err(layout(Part::Names, Rule::Overlap, at, record.name_offset as u64, name_end));
            }
            name_end += record.name_len as u64;
            let Some(name) = part(self.names, record.name_offset as usize, record.name_len as usize) else {
                return Err(layout(Part::Names, Rule::Length, 36, self.names.len() as u64, name_end));
            };
            if let Err(error) = check_name(name, number) {
                return Err(error);
            }
            if align_up(record.offset, alignment) != record.offset {
                return Err(of_tensor(number, Rule::Multiple, record.offset, alignment));
            }
            // `end` is at most `payload_len`, a length that lies in memory: no overflow.
            let expected = align_up(end, alignment);
            if record.offset != expected {
                return Err(of_tensor(number, Rule::Overlap, record.offset, expected));
            }
            if record.bytes > payload_len.saturating_sub(record.offset) {
                return Err(of_tensor(number, Rule::Range, record.offset.saturating_add(record.bytes), payload_len));
            }
            end = record.offset + record.bytes;
            if is_parameter(name) {
                params += record.dims.count();
            }
            number += 1;
        }
        if name_end != self.names.len() as u64 {
            return Err(layout(Part::Names, Rule::Length, 36, self.names.len() as u64, name_end));
        }
        if end != payload_len {
            return Err(layout(Part::Payload, Rule::Length, 12, payload_len, end));
        }
        if params != self.num_params() {
            return Err(Error::Config { key: ConfigKey::NumParams, rule: Rule::Equal, found: self.num_params(), allowed: params });
        }
        Ok(())
    }

    /// Checks that the tokenizer's arrays are there, with the type and the length that its kind calls for.
    const fn check_tokenizer_arrays(&self, facts: &TokenizerFacts) -> Result<(), Error> {
        let pieces = facts.n_pieces as u64;
        let wanted = [
            (TokenizerKey::Pieces, DType::U8, None),
            (TokenizerKey::Offsets, DType::U32, Some(pieces + 1)),
            (TokenizerKey::Scores, DType::F32, Some(pieces)),
            (TokenizerKey::Sorted, DType::U32, Some(pieces)),
        ];
        let mut wanted: &[(TokenizerKey, DType, Option<u64>)] = &wanted;
        let mut arrays: &[u32] = &facts.arrays;
        let mut names: &[&str] = &ARRAY_NAMES;
        while let ([(key, dtype, len), more @ ..], [number, numbers @ ..], [name, more_names @ ..]) = (wanted, arrays, names) {
            let fault = match facts.kind {
                TokenizerKind::SentencepieceBpe => self.array_fault(*number, name.as_bytes(), *dtype, *len),
                TokenizerKind::None | TokenizerKind::Bytes if *number == NO_TOKEN => None,
                TokenizerKind::None | TokenizerKind::Bytes => Some((Rule::Equal, *number as u64, NO_TOKEN as u64)),
            };
            if let Some((rule, found, allowed)) = fault {
                return Err(Error::Tokenizer { key: *key, rule, found, allowed });
            }
            wanted = more;
            arrays = numbers;
            names = more_names;
        }
        Ok(())
    }

    /// What is wrong with tensor `number` as a tokenizer's array of this name, type and length (`None`: any).
    const fn array_fault(&self, number: u32, name: &[u8], dtype: DType, len: Option<u64>) -> Option<(Rule, u64, u64)> {
        let (Some(record), Some(found)) = (self.record(number), self.name_bytes(number)) else {
            return Some((Rule::Missing, number as u64, self.num_tensors as u64));
        };
        if !same(found, name) {
            return Some((Rule::Missing, number as u64, self.num_tensors as u64));
        }
        if record.dtype.code() != dtype.code() {
            return Some((Rule::DType, record.dtype.code() as u64, dtype.code() as u64));
        }
        if record.dims.rank() != 1 {
            return Some((Rule::Rank, record.dims.rank() as u64, 1));
        }
        match len {
            Some(len) if record.dims.count() != len => Some((Rule::Length, record.dims.count(), len)),
            _ => None,
        }
    }

    const fn decode(&self, number: u32) -> Result<TensorRecord, Error> {
        let missing = of_tensor(number, Rule::Range, number as u64, self.num_tensors as u64);
        if number >= self.num_tensors {
            return Err(missing);
        }
        match array::<TENSOR_RECORD_LEN>(self.records, number as usize * TENSOR_RECORD_LEN) {
            Some(record) => TensorRecord::decode(&record, number),
            None => Err(missing),
        }
    }

    /// The index's bytes.
    pub const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The architecture: one that this version knows (checked by `parse`).
    pub const fn architecture(&self) -> Architecture {
        Architecture::Llama
    }

    /// How many tensors there are, 1 to [`TENSOR_LIMIT`], tokenizer arrays included.
    pub const fn num_tensors(&self) -> u32 {
        self.num_tensors
    }

    /// How many numbers the weights are; `parse` counted them.
    pub const fn num_params(&self) -> u64 {
        u64_at(self.bytes, 52)
    }

    /// The CRC-32 that the payload must have.
    pub const fn payload_crc(&self) -> u32 {
        u32_at(self.bytes, 48)
    }

    /// The record of tensor `number`; `None` only past the last (`parse` decoded every record).
    pub const fn record(&self, number: u32) -> Option<TensorRecord> {
        match self.decode(number) {
            Ok(record) => Some(record),
            Err(_) => None,
        }
    }

    /// The name of tensor `number`, 1 to 128 bytes of printable ASCII; `None` only past the last (`parse` checked every name).
    pub const fn name(&self, number: u32) -> Option<&'a str> {
        match self.name_bytes(number) {
            Some(name) => match core::str::from_utf8(name) {
                Ok(name) => Some(name),
                Err(_) => None,
            },
            None => None,
        }
    }

    pub(super) const fn name_bytes(&self, number: u32) -> Option<&'a [u8]> {
        match self.record(number) {
            Some(record) => part(self.names, record.name_offset as usize, record.name_len as usize),
            None => None,
        }
    }

    /// The configuration, validated by `parse`.
    ///
    /// # Errors
    /// [`Error::OtherArchitecture`] if the model is not a Llama; no other after `parse`.
    pub const fn llama_config(&self) -> Result<LlamaConfig, Error> {
        match array::<CONFIG_RECORD_LEN>(self.bytes, HEAD_LEN) {
            Some(record) => LlamaConfig::from_record(&record),
            None => Err(Error::OtherArchitecture { found: self.architecture().code(), expected: Architecture::Llama.code() }),
        }
    }

    /// The facts of the tokenizer, checked by `parse` against the configuration and the tensors.
    ///
    /// # Errors
    /// None after `parse`.
    pub const fn tokenizer_facts(&self) -> Result<TokenizerFacts, Error> {
        let config = match self.llama_config() {
            Ok(config) => config,
            Err(error) => return Err(error),
        };
        match array::<TOKENIZER_RECORD_LEN>(self.bytes, TOKENIZER_START) {
            Some(record) => TokenizerFacts::from_record(&record, config.vocab_size),
            None => Ok(TokenizerFacts::NONE),
        }
    }

    /// The golden vectors; `parse` walked through all of them.
    pub const fn golden(&self) -> Goldens<'a> {
        Goldens::new(self.golden)
    }
}

/// Whether a tensor of this name counts as weights: all do but the tokenizer's arrays and the rotation frequencies.
pub(super) const fn is_parameter(name: &[u8]) -> bool {
    const PREFIX: &[u8] = b"tokenizer.";
    let of_tokenizer = match name.split_at_checked(PREFIX.len()) {
        Some((first, _)) => same(first, PREFIX),
        None => false,
    };
    !of_tokenizer && !same(name, TensorKind::RopeInvFreq.name().as_bytes())
}

/// Checks that a name is printable ASCII; its length was checked before.
pub(super) const fn check_name(name: &[u8], tensor: u32) -> Result<(), Error> {
    let mut rest = name;
    while let [byte, tail @ ..] = rest {
        if !matches!(*byte, b' '..=b'~') {
            return Err(of_tensor(tensor, Rule::Ascii, *byte as u64, b'~' as u64));
        }
        rest = tail;
    }
    Ok(())
}

const fn of_tensor(tensor: u32, rule: Rule, found: u64, allowed: u64) -> Error {
    Error::Tensor { tensor, rule, found, allowed }
}

const fn layout(part: Part, rule: Rule, offset: u64, found: u64, allowed: u64) -> Error {
    Error::Layout { part, rule, offset, found, allowed }
}

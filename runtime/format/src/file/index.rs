//! The checked view of a format-2 index (docs/format/index.md). Used by [`super::ModelFile`] and, in constants, by `include_model!`.

use super::fixed::INDEX_LIMIT;
use super::golden::{self, Bounds, Goldens};
pub use super::record::TensorRecord;
use crate::arch::Architecture;
use crate::arch::dormouse::{self, DormouseConfig};
use crate::arch::llama::{CONFIG_RECORD_LEN, LlamaConfig, TensorKind};
use crate::bytes::{array, part, same, u16_at, u32_at, u64_at};
use crate::tokenizer::{NO_TOKEN, TOKENIZER_RECORD_LEN, TokenizerFacts, TokenizerKind};
use crate::{ARITHMETIC, ConfigKey, DType, Dims, Error, KvDType, Part, Rule, TensorView, TokenizerKey};

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

/// Where the head says where the names and the golden vectors are; their lengths follow.
const NAMES_AT: usize = 32;
/// Where the head says where the tensor records and the tokenizer record are.
const TENSORS_AT: usize = 12;
const TOKENIZER_AT: usize = 24;
const GOLDEN_AT: usize = 40;
/// The shortest index: head, a configuration of the shortest kind, tokenizer record. (No sequential configuration is shorter than a Llama's.)
const FIXED_LEN: usize = HEAD_LEN + CONFIG_RECORD_LEN + TOKENIZER_RECORD_LEN;

/// A format-2 index whose every part was checked: lengths and offsets, configuration, tokenizer, tensors, names and golden vectors.
///
/// It is small and borrows the index's bytes, which need no alignment.
#[derive(Clone, Copy, Debug)]
pub struct Index<'a> {
    bytes: &'a [u8],
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
        let index = Self { bytes };
        match index.check(alignment, payload_len) {
            Ok(()) => Ok(index),
            Err(error) => Err(error),
        }
    }

    const fn check(&self, alignment: u32, payload_len: u64) -> Result<(), Error> {
        if let Err(error) = self.check_parts() {
            return Err(error);
        }
        let config = match self.architecture() {
            Architecture::Llama => match self.llama_config() {
                Ok(config) => Some(config),
                Err(error) => return Err(error),
            },
            _ => None,
        };
        if let Some(config) = &config
            && let Err(error) = config.validate()
        {
            return Err(error);
        }
        if let Err(error) = self.check_tensors(alignment, payload_len) {
            return Err(error);
        }
        let facts = match self.tokenizer_facts() {
            Ok(facts) => facts,
            Err(error) => return Err(error),
        };
        if let Err(error) = self.check_tokenizer_arrays(&facts) {
            return Err(error);
        }
        let golden = self.golden_bytes();
        let bounds = match (&config, self.architecture()) {
            (Some(config), _) => Some(Bounds { vocab_size: config.vocab_size, max_seq_len: config.max_seq_len, most_kv: KvDType::Q8 }),
            (None, Architecture::Dormouse) => Some(DormouseConfig::golden_bounds(self.config_bytes())),
            _ => None,
        };
        match &bounds {
            Some(bounds) => golden::check(golden, u32_at(self.bytes, GOLDEN_AT) as u64, bounds),
            None if golden.is_empty() => Ok(()),
            // What a golden vector of such a model is, is not laid down.
            None => Err(layout(Part::Golden, Rule::Zero, GOLDEN_AT as u32 + 4, golden.len() as u32, 0)),
        }
    }

    /// Checks the head, and that the parts follow one another from the index's start to its end.
    #[inline(never)]
    const fn check_parts(&self) -> Result<(), Error> {
        let len = self.bytes.len();
        if len > INDEX_LIMIT as usize {
            let found = if len > u32::MAX as usize { u32::MAX } else { len as u32 };
            return Err(layout(Part::Index, Rule::TooLarge, 0, found, INDEX_LIMIT));
        }
        let len = len as u32;
        // The length of what follows is in the head's type: no access below needs a check of its own.
        let Some((head, _)) = self.bytes.split_first_chunk::<FIXED_LEN>() else {
            return Err(layout(Part::Index, Rule::TooSmall, 0, len, FIXED_LEN as u32));
        };
        if len & 3 != 0 {
            return Err(layout(Part::Index, Rule::Multiple, 0, len, 4));
        }
        let (schema, code) = (u16_at(head, 0), u16_at(head, 2) as u32);
        if schema != SCHEMA {
            return Err(layout(Part::Index, Rule::Equal, 0, schema as u32, SCHEMA as u32));
        }
        let config_len = match Architecture::from_code(code) {
            Some(Architecture::Llama) => CONFIG_RECORD_LEN as u32,
            Some(Architecture::Sequential) => {
                let found = u32_at(head, 20);
                if found & 3 != 0 {
                    return Err(layout(Part::Config, Rule::Multiple, 20, found, 4));
                }
                found
            }
            Some(Architecture::Dormouse) => dormouse::CONFIG_RECORD_LEN as u32,
            None => return Err(Error::UnknownArchitecture { code }),
        };
        let arithmetic = u32_at(head, 4);
        if arithmetic != ARITHMETIC {
            return Err(Error::Arithmetic { found: arithmetic, expected: ARITHMETIC });
        }
        let num_tensors = u32_at(head, 8);
        if num_tensors == 0 {
            return Err(layout(Part::Index, Rule::NotZero, 8, 0, 1));
        }
        if num_tensors > TENSOR_LIMIT {
            return Err(layout(Part::Index, Rule::TooLarge, 8, num_tensors, TENSOR_LIMIT));
        }
        if u32_at(head, 60) != 0 {
            return Err(layout(Part::Index, Rule::Zero, 60, u32_at(head, 60), 0));
        }
        let (golden_len, names_len) = (u32_at(head, GOLDEN_AT + 4), u32_at(head, NAMES_AT + 4));
        if golden_len & 3 != 0 {
            return Err(layout(Part::Golden, Rule::Multiple, 44, golden_len, 4));
        }
        // Saturated sums are past the index's end, which is below 2^27: they are refused with it.
        let tokenizer_start = config_len.saturating_add(HEAD_LEN as u32);
        let tensors_start = tokenizer_start.saturating_add(TOKENIZER_RECORD_LEN as u32);
        let golden_start = tensors_start.saturating_add(num_tensors * TENSOR_RECORD_LEN as u32);
        let names_start = golden_start.saturating_add(golden_len);
        let names_end = names_start.saturating_add(names_len);
        let places = [
            (Part::Config, 16, HEAD_LEN as u32),
            (Part::Config, 20, config_len),
            (Part::Tokenizer, 24, tokenizer_start),
            (Part::Tokenizer, 28, TOKENIZER_RECORD_LEN as u32),
            (Part::Tensors, 12, tensors_start),
            (Part::Golden, GOLDEN_AT as u32, golden_start),
            (Part::Names, NAMES_AT as u32, names_start),
        ];
        let mut rest: &[(Part, u32, u32)] = &places;
        while let [(part, at, expected), tail @ ..] = rest {
            let found = u32_at(self.bytes, *at as usize);
            if found != *expected {
                return Err(layout(*part, Rule::Overlap, *at, found, *expected));
            }
            rest = tail;
        }
        let end = names_end.saturating_add(3) & !3;
        if end != len {
            return Err(layout(Part::Index, Rule::Length, 36, len, end));
        }
        let mut at = names_end;
        while at < end {
            let [byte] = match array::<1>(self.bytes, at as usize) {
                Some(byte) => byte,
                None => [0],
            };
            if byte != 0 {
                return Err(layout(Part::Names, Rule::Zero, at, byte as u32, 0));
            }
            at += 1;
        }
        Ok(())
    }

    /// Checks each record, and that names and bytes follow one another without holes to the ends that are stated.
    #[inline(never)]
    const fn check_tensors(&self, alignment: u32, payload_len: u64) -> Result<(), Error> {
        // A payload lies in memory, so `usize` holds every place in it; larger numbers in the file are past its end anyway.
        let payload_len = place(payload_len);
        let alignment = alignment as usize;
        let names_len = u32_at(self.bytes, NAMES_AT + 4);
        let (mut number, mut name_end, mut end, mut params) = (0u32, 0u32, 0usize, 0u64);
        while number < self.num_tensors() {
            let record = match self.decode(number) {
                Ok(record) => record,
                Err(error) => return Err(error),
            };
            if record.name_offset != name_end {
                let at = u32_at(self.bytes, TENSORS_AT) + number * TENSOR_RECORD_LEN as u32;
                return Err(layout(Part::Names, Rule::Overlap, at, record.name_offset, name_end));
            }
            name_end += record.name_len as u32;
            if name_end > names_len {
                return Err(layout(Part::Names, Rule::Length, 36, names_len, name_end));
            }
            let name = self.name_of(&record);
            if let Err(error) = check_name(name, number) {
                return Err(error);
            }
            let offset = place(record.offset);
            // The lowest bits alone decide, so that a number past what this target addresses is judged as on any other.
            if record.offset as usize & alignment.wrapping_sub(1) != 0 {
                return Err(of_tensor_long(number, Rule::Multiple, record.offset, alignment as u64));
            }
            // `end` is at most `payload_len`, a length that lies in memory: no overflow.
            let expected = (end.wrapping_add(alignment.wrapping_sub(1))) & !alignment.wrapping_sub(1);
            if offset != expected {
                return Err(of_tensor_long(number, Rule::Overlap, record.offset, expected as u64));
            }
            if place(record.bytes) > payload_len.saturating_sub(offset) {
                return Err(of_tensor_long(number, Rule::Range, record.offset.saturating_add(record.bytes), payload_len as u64));
            }
            end = offset + record.bytes as usize;
            if is_parameter(name) {
                params += record.dims.count();
            }
            number += 1;
        }
        if name_end != names_len {
            return Err(layout(Part::Names, Rule::Length, 36, names_len, name_end));
        }
        if end != payload_len {
            return Err(Error::Layout {
                part: Part::Payload,
                rule: Rule::Length,
                offset: 12,
                found: payload_len as u64,
                allowed: end as u64,
            });
        }
        if params != self.num_params() {
            return Err(Error::Config { key: ConfigKey::NumParams, rule: Rule::Equal, found: self.num_params(), allowed: params });
        }
        Ok(())
    }

    /// Checks that the tokenizer's arrays are there, with the type and the length that its kind calls for.
    const fn check_tokenizer_arrays(&self, facts: &TokenizerFacts) -> Result<(), Error> {
        let pieces = facts.n_pieces as u64;
        let merges = matches!(facts.kind, TokenizerKind::ByteLevelBpe);
        let wanted = [
            (TokenizerKey::Pieces, None),
            (TokenizerKey::Offsets, Some(pieces + 1)),
            if merges { (TokenizerKey::Merges, None) } else { (TokenizerKey::Scores, Some(pieces)) },
            (TokenizerKey::Sorted, Some(pieces)),
        ];
        let mut wanted: &[(TokenizerKey, Option<u64>)] = &wanted;
        let mut arrays: &[u32] = &facts.arrays;
        let mut specs: &[(&str, DType)] = match facts.kind.arrays() {
            Some(specs) => specs,
            None => &[],
        };
        while let ([(key, len), more @ ..], [number, numbers @ ..]) = (wanted, arrays) {
            let fault = match specs {
                [(name, dtype), more_specs @ ..] => {
                    specs = more_specs;
                    let row = if let TokenizerKey::Merges = key { 4 } else { 1 };
                    self.array_fault(*number, name.as_bytes(), *dtype, row, *len)
                }
                [] if *number == NO_TOKEN => None,
                [] => Some((Rule::Equal, *number as u64, NO_TOKEN as u64)),
            };
            if let Some((rule, found, allowed)) = fault {
                return Err(Error::Tokenizer { key: *key, rule, found, allowed });
            }
            wanted = more;
            arrays = numbers;
        }
        Ok(())
    }

    /// What is wrong with tensor `number` as a tokenizer's array of this name, type and length (`None`: any): a vector, or a matrix where a row has more than one element.
    const fn array_fault(&self, number: u32, name: &[u8], dtype: DType, row: u32, len: Option<u64>) -> Option<(Rule, u64, u64)> {
        let record = match self.record(number) {
            Some(record) if same(self.name_of(&record), name) => record,
            _ => return Some((Rule::Missing, number as u64, self.num_tensors() as u64)),
        };
        if record.dtype.code() != dtype.code() {
            return Some((Rule::DType, record.dtype.code() as u64, dtype.code() as u64));
        }
        let rank = if row > 1 { 2 } else { 1 };
        if record.dims.rank() != rank {
            return Some((Rule::Rank, record.dims.rank() as u64, rank as u64));
        }
        if rank > 1 && record.dims.cols() != row {
            return Some((Rule::Length, record.dims.cols() as u64, row as u64));
        }
        match len {
            Some(len) if record.dims.count() != len => Some((Rule::Length, record.dims.count(), len)),
            _ => None,
        }
    }

    const fn decode(&self, number: u32) -> Result<TensorRecord, Error> {
        if number < self.num_tensors()
            && let Some((_, from_record)) =
                self.bytes.split_at_checked(u32_at(self.bytes, TENSORS_AT) as usize + number as usize * TENSOR_RECORD_LEN)
            && let Some((record, _)) = from_record.split_first_chunk::<TENSOR_RECORD_LEN>()
        {
            return TensorRecord::decode(record, number);
        }
        Err(of_tensor(number, Rule::Range, number, self.num_tensors()))
    }

    /// Tensor `number` in the payload, by its record alone, which `parse` decoded; `None` only past the last.
    #[inline(never)]
    pub(super) fn view(&self, number: u32, payload: &'a [u8]) -> Option<TensorView<'a>> {
        if number >= self.num_tensors() {
            return None;
        }
        let start = u32_at(self.bytes, TENSORS_AT) as usize + number as usize * TENSOR_RECORD_LEN;
        let record = part(self.bytes, start, TENSOR_RECORD_LEN)?;
        let [code, rank] = array(record, 6)?;
        let sizes = [u32_at(record, 8), u32_at(record, 12), u32_at(record, 16), u32_at(record, 20)];
        let bytes = part(payload, u64_at(record, 32) as usize, u64_at(record, 40) as usize)?;
        Some(TensorView::of_checked(DType::from_code(code)?, Dims::of_checked(rank, sizes), u32_at(record, 24), bytes))
    }

    pub(super) const fn name_of(&self, record: &TensorRecord) -> &'a [u8] {
        let start = u32_at(self.bytes, NAMES_AT) as usize + record.name_offset as usize;
        match part(self.bytes, start, record.name_len as usize) {
            Some(name) => name,
            None => &[],
        }
    }

    const fn golden_bytes(&self) -> &'a [u8] {
        match part(self.bytes, u32_at(self.bytes, GOLDEN_AT) as usize, u32_at(self.bytes, GOLDEN_AT + 4) as usize) {
            Some(golden) => golden,
            None => &[],
        }
    }

    /// The index's bytes.
    pub const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The architecture: one that this version knows (checked by `parse`).
    pub const fn architecture(&self) -> Architecture {
        match Architecture::from_code(u16_at(self.bytes, 2) as u32) {
            Some(architecture) => architecture,
            None => Architecture::Llama,
        }
    }

    /// How many tensors there are, 1 to [`TENSOR_LIMIT`], tokenizer arrays included.
    pub const fn num_tensors(&self) -> u32 {
        u32_at(self.bytes, 8)
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
            Some(record) => Some(self.name_of(&record)),
            None => None,
        }
    }

    /// The configuration, validated by `parse`.
    ///
    /// # Errors
    /// [`Error::OtherArchitecture`] if the model is not a Llama; no other after `parse`.
    pub const fn llama_config(&self) -> Result<LlamaConfig, Error> {
        match array::<CONFIG_RECORD_LEN>(self.bytes, HEAD_LEN) {
            Some(ref record) if matches!(self.architecture(), Architecture::Llama) => LlamaConfig::from_record(record),
            _ => Err(Error::OtherArchitecture { found: self.architecture().code(), expected: Architecture::Llama.code() }),
        }
    }

    /// The configuration record.
    pub const fn config_bytes(&self) -> &'a [u8] {
        match part(self.bytes, HEAD_LEN, u32_at(self.bytes, 20) as usize) {
            Some(record) => record,
            None => &[],
        }
    }

    /// The facts of the tokenizer, checked by `parse` against the configuration and the tensors.
    ///
    /// # Errors
    /// None after `parse`.
    pub const fn tokenizer_facts(&self) -> Result<TokenizerFacts, Error> {
        // The seventh word of a Llama's configuration is `vocab_size`; other models have no tokens.
        let vocab_size = if let Architecture::Llama = self.architecture() { u32_at(self.bytes, HEAD_LEN + 24) } else { 0 };
        match array::<TOKENIZER_RECORD_LEN>(self.bytes, u32_at(self.bytes, TOKENIZER_AT) as usize) {
            Some(ref record) => TokenizerFacts::from_record(record, vocab_size),
            None => Ok(TokenizerFacts::NONE),
        }
    }

    /// The golden vectors; `parse` walked through all of them.
    pub const fn golden(&self) -> Goldens<'a> {
        Goldens::new(self.golden_bytes())
    }
}

/// Whether a tensor of this name counts as weights: all do but the tokenizer's arrays, the rotation frequencies, golden vectors and what upsampling interpolates with.
pub(super) const fn is_parameter(name: &[u8]) -> bool {
    !(starts_with(name, b"tokenizer.")
        || starts_with(name, b"golden.")
        || ends_with(name, b"_resampling")
        || same(name, TensorKind::RopeInvFreq.name().as_bytes()))
}

const fn starts_with(name: &[u8], prefix: &[u8]) -> bool {
    match name.split_at_checked(prefix.len()) {
        Some((first, _)) => same(first, prefix),
        None => false,
    }
}

const fn ends_with(name: &[u8], suffix: &[u8]) -> bool {
    match name.split_at_checked(name.len().wrapping_sub(suffix.len())) {
        Some((_, last)) => same(last, suffix),
        None => false,
    }
}

/// Checks that a name is printable ASCII; its length was checked before.
pub(super) const fn check_name(name: &[u8], tensor: u32) -> Result<(), Error> {
    let mut rest = name;
    while let [byte, tail @ ..] = rest {
        if !matches!(*byte, b' '..=b'~') {
            return Err(of_tensor(tensor, Rule::Ascii, *byte as u32, b'~' as u32));
        }
        rest = tail;
    }
    Ok(())
}

/// A number of the file as a place in memory; past all of it if it does not fit.
const fn place(number: u64) -> usize {
    if number > usize::MAX as u64 { usize::MAX } else { number as usize }
}

#[cold]
#[inline(never)]
pub(super) const fn of_tensor(tensor: u32, rule: Rule, found: u32, allowed: u32) -> Error {
    of_tensor_long(tensor, rule, found as u64, allowed as u64)
}

pub(super) const fn of_tensor_long(tensor: u32, rule: Rule, found: u64, allowed: u64) -> Error {
    Error::Tensor { tensor, rule, found, allowed }
}

#[cold]
#[inline(never)]
const fn layout(part: Part, rule: Rule, offset: u32, found: u32, allowed: u32) -> Error {
    Error::Layout { part, rule, offset: offset as u64, found: found as u64, allowed: allowed as u64 }
}

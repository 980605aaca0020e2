//! The container: header, metadata and the list of tensors, checked against the bytes that are there. Whatever it says of sizes is compared with the file before anything is allocated.

use super::blocks::BlockType;
use super::cursor::{COPY, Cursor};
use super::value::{List, Value};
use crate::error::{Error, Result};
use std::collections::{HashMap, HashSet};

/// The most keys, and the most tensors: far past every model.
const COUNT_LIMIT: u64 = 65_536;
/// The longest name of a key or tensor.
const NAME_LIMIT: usize = 256;
/// Bytes of the shortest key with its value, and of the shortest entry in the list of tensors.
const SHORTEST_KEY: u64 = 8 + 1 + 4 + 1;
const SHORTEST_TENSOR: u64 = 8 + 1 + 4 + 8 + 4 + 8;
const DEFAULT_ALIGNMENT: u64 = 32;

/// A parsed file.
#[derive(Debug)]
pub(super) struct Container<'a> {
    bytes: &'a [u8],
    pub(super) version: u32,
    keys: HashMap<&'a str, Value<'a>>,
    /// Keys in the file's order.
    order: Vec<&'a str>,
    pub(super) tensors: Vec<Tensor<'a>>,
}

/// A tensor as the list has it; `offset` is from the file's start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Tensor<'a> {
    pub(super) name: &'a str,
    /// Sizes, the fastest-running axis first.
    pub(super) sizes: [u64; 4],
    pub(super) rank: usize,
    pub(super) kind: TensorType,
    pub(super) offset: u64,
    pub(super) bytes: u64,
}

impl Tensor<'_> {
    /// Its sizes, the fastest-running axis first.
    pub(super) fn shape(&self) -> &[u64] {
        self.sizes.get(..self.rank).unwrap_or(&self.sizes)
    }
}

/// How a tensor's values are stored, of the ways that are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TensorType {
    F32,
    F16,
    Bf16,
    Blocks(BlockType),
}

impl TensorType {
    fn from_number(number: u32) -> Option<Self> {
        Some(match number {
            0 => Self::F32,
            1 => Self::F16,
            30 => Self::Bf16,
            2 => Self::Blocks(BlockType::Q4_0),
            3 => Self::Blocks(BlockType::Q4_1),
            6 => Self::Blocks(BlockType::Q5_0),
            7 => Self::Blocks(BlockType::Q5_1),
            8 => Self::Blocks(BlockType::Q8_0),
            10 => Self::Blocks(BlockType::Q2K),
            11 => Self::Blocks(BlockType::Q3K),
            12 => Self::Blocks(BlockType::Q4K),
            13 => Self::Blocks(BlockType::Q5K),
            14 => Self::Blocks(BlockType::Q6K),
            _ => return None,
        })
    }

    /// Elements and bytes of the smallest part.
    fn unit(self) -> (u64, u64) {
        match self {
            Self::F32 => (1, 4),
            Self::F16 | Self::Bf16 => (1, 2),
            Self::Blocks(kind) => (kind.elements() as u64, kind.bytes() as u64),
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::F32 => "F32",
            Self::F16 => "F16",
            Self::Bf16 => "BF16",
            Self::Blocks(kind) => kind.name(),
        }
    }
}

/// ggml's name of a type that is not read, where it has one.
fn other_type(number: u32) -> Option<&'static str> {
    Some(match number {
        4 => "Q4_2",
        5 => "Q4_3",
        9 => "Q8_1",
        15 => "Q8_K",
        16 => "IQ2_XXS",
        17 => "IQ2_XS",
        18 => "IQ3_XXS",
        19 => "IQ1_S",
        20 => "IQ4_NL",
        21 => "IQ3_S",
        22 => "IQ2_S",
        23 => "IQ4_XS",
        24 => "I8",
        25 => "I16",
        26 => "I32",
        27 => "I64",
        28 => "F64",
        29 => "IQ1_M",
        31 => "Q4_0_4_4",
        32 => "Q4_0_4_8",
        33 => "Q4_0_8_8",
        34 => "TQ1_0",
        35 => "TQ2_0",
        36 => "IQ4_NL_4_4",
        37 => "IQ4_NL_4_8",
        38 => "IQ4_NL_8_8",
        39 => "MXFP4",
        _ => return None,
    })
}

impl<'a> Container<'a> {
    /// Parses a file that begins with "GGUF".
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Self> {
        let mut cursor = Cursor::new(bytes, 4);
        let version = cursor.u32("the header")?;
        check_version(version)?;
        let tensor_count = cursor.u64("the header")?;
        let key_count = cursor.u64("the header")?;
        check_count("tensors", tensor_count, SHORTEST_TENSOR, 8, &cursor)?;
        check_count("metadata keys", key_count, SHORTEST_KEY, 16, &cursor)?;
        let mut keys = HashMap::new();
        let mut order = Vec::new();
        for _ in 0..key_count {
            let at = cursor.at();
            let key = name(&mut cursor, "a metadata key")?;
            let value = Value::read(&mut cursor, key)?;
            if keys.insert(key, value).is_some() {
                return Err(Error::damaged(format!("the key {key} is there twice")).at(format!("byte {at}")).advise(AGAIN));
            }
            order.push(key);
        }
        let mut container = Self { bytes, version, keys, order, tensors: Vec::new() };
        let alignment = container.alignment()?;
        container.tensors(&mut cursor, tensor_count, alignment)?;
        container.check_places(bytes.len() as u64, alignment)?;
        Ok(container)
    }

    fn alignment(&self) -> Result<u64> {
        let alignment = self.unsigned("general.alignment")?.unwrap_or(DEFAULT_ALIGNMENT);
        if alignment.is_power_of_two() && u32::try_from(alignment).is_ok() {
            return Ok(alignment);
        }
        Err(Error::damaged(format!("general.alignment is {alignment}; it has to be a power of two")).advise(AGAIN))
    }

    /// Reads the list of tensors; their offsets count from the first multiple of the alignment behind it.
    fn tensors(&mut self, cursor: &mut Cursor<'a>, count: u64, alignment: u64) -> Result<()> {
        let mut names = HashSet::new();
        for _ in 0..count {
            let at = cursor.at();
            let tensor = read_tensor(cursor, alignment)?;
            if !names.insert(tensor.name) {
                let what = format!("the tensor {} is listed twice", tensor.name);
                return Err(Error::damaged(what).at(format!("byte {at}")).advise(AGAIN));
            }
            self.tensors.push(tensor);
        }
        let data = (cursor.at() as u64).next_multiple_of(alignment);
        for tensor in &mut self.tensors {
            tensor.offset = tensor.offset.checked_add(data).ok_or_else(|| past_end(tensor, u64::MAX))?;
        }
        Ok(())
    }

    /// Every tensor lies within the file, none on another, and nothing but the gaps of the alignment lies between or behind them.
    fn check_places(&self, len: u64, alignment: u64) -> Result<()> {
        let past = |tensor: &&Tensor<'_>| tensor.offset.checked_add(tensor.bytes).is_none_or(|end| end > len);
        if let Some(tensor) = self.tensors.iter().find(past) {
            return Err(past_end(tensor, len));
        }
        let mut sorted: Vec<&Tensor<'_>> = self.tensors.iter().collect();
        sorted.sort_by_key(|tensor| tensor.offset);
        let mut previous: Option<&Tensor<'_>> = None;
        for tensor in sorted {
            let free = previous.map_or(tensor.offset, |before| before.offset + before.bytes);
            let fault = if tensor.offset < free {
                Some("lies on")
            } else if tensor.offset > free.next_multiple_of(alignment) {
                Some("leaves a gap behind")
            } else {
                None
            };
            if let (Some(fault), Some(before)) = (fault, previous) {
                let what =
                    format!("{} begins at byte {} and {fault} {}, which ends at byte {free}", tensor.name, tensor.offset, before.name);
                return Err(Error::damaged(what).advise(AGAIN));
            }
            previous = Some(tensor);
        }
        let end = previous.map_or(len, |last| last.offset + last.bytes);
        if len > end.next_multiple_of(alignment) {
            let what = format!("{} bytes are left over behind the last tensor, which ends at byte {end}", len - end);
            return Err(Error::damaged(what).advise("something was appended, or the list of tensors was cut: copy or download it again"));
        }
        Ok(())
    }

    /// The bytes of a tensor.
    pub(super) fn data(&self, tensor: &Tensor<'_>) -> &'a [u8] {
        // It lies within the file, so both fit.
        let (start, len) = (tensor.offset as usize, tensor.bytes as usize);
        self.bytes.get(start..).and_then(|rest| rest.get(..len)).unwrap_or_default()
    }

    /// Keys in the file's order.
    pub(super) fn keys(&self) -> impl Iterator<Item = (&'a str, Value<'a>)> {
        self.order.iter().filter_map(|key| Some((*key, *self.keys.get(key)?)))
    }

    pub(super) fn value(&self, key: &str) -> Option<Value<'a>> {
        self.keys.get(key).copied()
    }

    /// A key that has to be an unsigned integer where it is there; signed ones that are not negative will do.
    pub(super) fn unsigned(&self, key: &str) -> Result<Option<u64>> {
        self.typed(key, "a whole number from 0", |value| match value {
            Value::Unsigned(number) => Some(number),
            Value::Signed(number) => u64::try_from(number).ok(),
            _ => None,
        })
    }

    pub(super) fn float(&self, key: &str) -> Result<Option<f64>> {
        self.typed(key, "a number", |value| match value {
            Value::Float(number) => Some(number),
            Value::Unsigned(number) => Some(number as f64),
            Value::Signed(number) => Some(number as f64),
            _ => None,
        })
    }

    pub(super) fn bool(&self, key: &str) -> Result<Option<bool>> {
        self.typed(key, "true or false", |value| match value {
            Value::Bool(flag) => Some(flag),
            _ => None,
        })
    }

    pub(super) fn text(&self, key: &str) -> Result<Option<&'a str>> {
        self.typed(key, "a UTF-8 text", |value| match value {
            Value::Text(bytes) => std::str::from_utf8(bytes).ok(),
            _ => None,
        })
    }

    pub(super) fn list(&self, key: &str) -> Result<Option<List<'a>>> {
        self.typed(key, "an array", |value| match value {
            Value::Array(list) => Some(list),
            _ => None,
        })
    }

    fn typed<T>(&self, key: &str, expected: &str, get: impl FnOnce(Value<'a>) -> Option<T>) -> Result<Option<T>> {
        let Some(value) = self.value(key) else { return Ok(None) };
        match get(value) {
            Some(found) => Ok(Some(found)),
            None => Err(Error::damaged(format!("{key} is {}; it has to be {expected}", value.describe())).advise(AGAIN)),
        }
    }
}

/// What to do about a file that contradicts itself.
pub(super) const AGAIN: &str = "convert the model again, or download the file again";

fn check_version(version: u32) -> Result<()> {
    match version {
        2 | 3 => Ok(()),
        1 => Err(Error::not_a_model("is a GGUF file of version 1; versions 2 and 3 are read")
            .at("byte 4")
            .advise("convert the model again with a newer llama.cpp")),
        _ if matches!(version.swap_bytes(), 1..=3) => {
            let what = format!("is a GGUF file of version {} with big-endian numbers; little-endian ones are read", version.swap_bytes());
            Err(Error::not_a_model(what).at("byte 4").advise("convert it with llama.cpp's gguf_convert_endian.py"))
        }
        _ => Err(Error::not_a_model(format!("is a GGUF file of version {version}; versions 2 and 3 are read")).at("byte 4")),
    }
}

fn check_count(what: &str, count: u64, shortest: u64, at: u64, cursor: &Cursor<'_>) -> Result<()> {
    let most = COUNT_LIMIT.min(cursor.left() / shortest);
    if count <= most {
        return Ok(());
    }
    let reason = if count > COUNT_LIMIT {
        format!("at most {COUNT_LIMIT} are read")
    } else {
        format!("the {} bytes behind the header have no room for them", cursor.left())
    };
    Err(Error::damaged(format!("the GGUF header says that there are {count} {what}; {reason}")).at(format!("byte {at}")).advise(COPY))
}

fn name<'a>(cursor: &mut Cursor<'a>, what: &str) -> Result<&'a str> {
    let at = cursor.at();
    let name = cursor.text(what)?;
    if name.is_empty() || name.len() > NAME_LIMIT || name.chars().any(char::is_control) {
        let what = format!("{what} has {} bytes or holds control characters; 1 to {NAME_LIMIT} printable ones are read", name.len());
        return Err(Error::damaged(what).at(format!("byte {at}")).advise(COPY));
    }
    Ok(name)
}

fn read_tensor<'a>(cursor: &mut Cursor<'a>, alignment: u64) -> Result<Tensor<'a>> {
    let at = cursor.at();
    let here = |error: Error| error.at(format!("byte {at}"));
    let name = name(cursor, "a tensor's name")?;
    let rank = cursor.u32("a tensor's rank")?;
    if !(1..=4).contains(&rank) {
        return Err(here(Error::damaged(format!("{name} has {rank} dims; 1 to 4 are possible")).advise(COPY)));
    }
    let mut sizes = [1; 4];
    for size in sizes.iter_mut().take(rank as usize) {
        *size = cursor.u64("a tensor's sizes")?;
    }
    let number = cursor.u32("a tensor's type")?;
    let offset = cursor.u64("a tensor's offset")?;
    let Some(kind) = TensorType::from_number(number) else {
        let called = other_type(number).map_or_else(|| format!("the unknown type {number}"), |known| format!("the type {known}"));
        let what = format!("{name} is stored in {called}, which this version does not read");
        let advice =
            "the types are F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0 and Q2_K to Q6_K: convert or download the model in one of these";
        return Err(here(Error::not_a_model(what).advise(advice)));
    };
    let (unit, unit_bytes) = kind.unit();
    let count = sizes.iter().try_fold(1u64, |count, size| count.checked_mul(*size));
    let shown = &sizes[..rank as usize];
    let bytes = count.filter(|count| *count > 0).and_then(|count| (count / unit).checked_mul(unit_bytes));
    let Some(bytes) = bytes else {
        return Err(here(
            Error::damaged(format!("{name} has the sizes {shown:?}, of which one is 0 or the product past 2^64")).advise(COPY),
        ));
    };
    if sizes.first().is_some_and(|row| row % unit != 0) {
        let what = format!("{name} has the sizes {shown:?}; in {} a row is a multiple of {unit}", kind.name());
        return Err(here(Error::damaged(what).advise(AGAIN)));
    }
    if offset % alignment != 0 {
        let what = format!("{name} begins at {offset} of the data, which is no multiple of the alignment {alignment}");
        return Err(here(Error::damaged(what).advise(AGAIN)));
    }
    Ok(Tensor { name, sizes, rank: rank as usize, kind, offset, bytes })
}

fn past_end(tensor: &Tensor<'_>, len: u64) -> Error {
    let what = format!("{} takes {} bytes from byte {} on, but the file has {len}", tensor.name, tensor.bytes, tensor.offset);
    Error::damaged(what).advise(COPY)
}

//! A burn record ("burnpack"): magic, version, a CBOR map of tensors, then their values, each at a multiple of 256 bytes.

use super::cbor::{self, Item};
use crate::error::{Error, Result};
use dmexp_format::Dims;

const MAGIC: &[u8] = b"NRUB";
const VERSION: u16 = 1;
const HEAD_LEN: usize = 10;
const ALIGNMENT: u64 = 256;
/// The longest list of tensors in bytes: far more than any model has.
const METADATA_LIMIT: u32 = 64 << 20;

/// A tensor of f32 values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) dims: Dims,
    /// Where its values begin in the file.
    pub(super) offset: u64,
    bytes: u64,
}

/// Reads the record that is `bytes`, which lie at `start` of the file: its tensors in the order of their values.
///
/// # Errors
/// [`Class::NotAModel`](crate::error::Class::NotAModel) for another format or version; [`Class::Damaged`](crate::error::Class::Damaged) with the byte or the tensor.
pub(super) fn read(bytes: &[u8], start: u64) -> Result<Vec<Entry>> {
    let at = |offset: usize| format!("byte {}", start + offset as u64);
    let Some((head, rest)) = bytes.split_first_chunk::<HEAD_LEN>() else {
        return Err(Error::damaged(format!("the model record has {} bytes: its head alone has {HEAD_LEN}", bytes.len())).at(at(0)));
    };
    let [a, b, c, d, v0, v1, s0, s1, s2, s3] = *head;
    if [a, b, c, d] != *MAGIC {
        return Err(Error::not_a_model(format!("the model record begins with {:02x?}, not with \"NRUB\"", [a, b, c, d])).at(at(0)));
    }
    let version = u16::from_le_bytes([v0, v1]);
    if version != VERSION {
        let what = format!("the model record has burnpack version {version}; this software reads version {VERSION}");
        return Err(Error::not_a_model(what).at(at(4)));
    }
    let size = u32::from_le_bytes([s0, s1, s2, s3]);
    let Some(metadata) = rest.get(..size as usize).filter(|_| size <= METADATA_LIMIT) else {
        let what =
            format!("the model record announces a list of tensors of {size} bytes; {} are left, {METADATA_LIMIT} allowed", rest.len());
        return Err(Error::damaged(what).at(at(6)));
    };
    let root = cbor::parse(metadata, start + HEAD_LEN as u64)?;
    let Item::Map(keys) = &root else { return Err(Error::damaged("the list of tensors is no map").at(at(HEAD_LEN))) };
    if let Some((key, _)) = keys.iter().find(|(key, _)| !matches!(*key, "tensors" | "metadata" | "scalars")) {
        return Err(Error::damaged(format!("the model record has a key {key:?} that is not known")).at(at(HEAD_LEN)));
    }
    let Some(Item::Map(tensors)) = root.get("tensors") else {
        return Err(Error::damaged("the model record has no map \"tensors\"").at(at(HEAD_LEN)));
    };
    let base = (HEAD_LEN as u64 + u64::from(size)).next_multiple_of(ALIGNMENT);
    let mut entries = tensors.iter().map(|(name, item)| entry(name, item)).collect::<Result<Vec<_>>>()?;
    entries.sort_by_key(|entry| entry.offset);
    let mut end = 0;
    for entry in &entries {
        let Entry { name, offset, .. } = entry;
        if !offset.is_multiple_of(ALIGNMENT) {
            return Err(Error::damaged(format!("tensor {name} begins at {offset} of the values: not a multiple of {ALIGNMENT}")));
        }
        let expected = u64::next_multiple_of(end, ALIGNMENT);
        if *offset != expected {
            let what = if *offset < end { "overlaps the tensor before it" } else { "leaves a hole before it" };
            return Err(Error::damaged(format!("tensor {name} begins at {offset} of the values, not at {expected}: it {what}")));
        }
        end = offset.checked_add(entry.bytes).filter(|end| base + end <= bytes.len() as u64).ok_or_else(|| {
            let room = (bytes.len() as u64).saturating_sub(base);
            Error::damaged(format!("tensor {name} has {} bytes at {offset} of the values; there are {room}", entry.bytes))
                .advise("the file is cut or damaged: copy it again")
        })?;
    }
    if !entries.is_empty() && base + end != bytes.len() as u64 {
        let what = format!("the model record has {} bytes; its tensors end at {}", bytes.len(), base + end);
        return Err(Error::damaged(what).at(at(0)));
    }
    for entry in &mut entries {
        entry.offset += start + base;
    }
    Ok(entries)
}

fn entry(name: &str, item: &Item<'_>) -> Result<Entry> {
    let wrong = |what: String| Error::damaged(format!("tensor {name} {what}"));
    match item.get("dtype") {
        Some(Item::Text("F32")) => {}
        Some(Item::Text(dtype)) => return Err(wrong(format!("is stored as {dtype}; dormouse stores F32"))),
        _ => return Err(wrong("has no \"dtype\"".to_owned())),
    }
    let numbers = |key: &str| match item.get(key) {
        Some(Item::List(items)) => items.iter().map(|item| if let Item::Number(number) = item { Some(*number) } else { None }).collect(),
        _ => None,
    };
    let shape: Vec<u64> = numbers("shape").ok_or_else(|| wrong("has no \"shape\" of whole numbers".to_owned()))?;
    let offsets: Vec<u64> = numbers("data_offsets").ok_or_else(|| wrong("has no \"data_offsets\" of whole numbers".to_owned()))?;
    let mut sizes = [1; 4];
    for (place, size) in sizes.iter_mut().zip(&shape) {
        *place = u32::try_from(*size).map_err(|_| wrong(format!("has the dims {shape:?}: too large")))?;
    }
    let dims = Dims::new(0, u32::try_from(shape.len()).unwrap_or(u32::MAX), sizes)
        .map_err(|_| wrong(format!("has the dims {shape:?}: 1 to 4 axes, none 0, at most 2^48 elements are possible")))?;
    let [start, end] = offsets[..] else { return Err(wrong(format!("has {} \"data_offsets\", not two", offsets.len()))) };
    let needed = dims.count() * 4;
    match end.checked_sub(start) {
        Some(bytes) if bytes == needed => Ok(Entry { name: name.to_owned(), dims, offset: start, bytes }),
        _ => Err(wrong(format!("has values from {start} to {end}; its dims {shape:?} need {needed} bytes"))),
    }
}

//! The header of a safetensors file to named arrays; the values stay where they are. The crate `safetensors` checks lengths and offsets; what it would settle in silence (names that stand twice) is
//! refused here.

use super::names::{Found, Tensors};
use crate::checkpoint::array::Array;
use crate::checkpoint::{Encoding, Mapping, json};
use crate::error::{Error, Result};
use ::safetensors::{Dtype, SafeTensorError, SafeTensors};
use dmexp_format::Dims;
use serde_json::{Map, Value};

/// The length of the header's length.
const LENGTH: usize = 8;
/// The longest header that the crate reads.
const HEADER_LIMIT: usize = 100_000_000;

/// The tensors of `file`, which is number `number` of its checkpoint.
///
/// # Errors
/// [`Class::Damaged`](crate::error::Class::Damaged) for a header that is not one, offsets that overlap, leave gaps or do not end where the file does, and names that stand twice;
/// [`Class::NotAModel`](crate::error::Class::NotAModel) for an element type that is not f32, f16 or bf16.
pub(super) fn tensors(file: &Mapping, number: usize) -> Result<Tensors> {
    let bytes = file.bytes();
    // Read first for what a map of names cannot tell.
    let header = header(bytes).map(json::object).transpose()?.unwrap_or_default();
    let (header_len, metadata) = SafeTensors::read_metadata(bytes).map_err(|error| damaged(&error, bytes, &header))?;
    let start = LENGTH + header_len;
    let mut tensors = Tensors::new();
    for (name, info) in metadata.tensors() {
        let offset = (start + info.data_offsets.0) as u64;
        let encoding = match info.dtype {
            Dtype::F32 => Encoding::F32 { offset },
            Dtype::F16 => Encoding::F16 { offset },
            Dtype::BF16 => Encoding::Bf16 { offset },
            other => {
                let what = format!("{name} is stored as {other:?}; this version reads F32, F16 and BF16");
                return Err(
                    Error::not_a_model(what).advise("import the model before it was quantised, or as it was saved in F32, F16 or BF16")
                );
            }
        };
        let dims = dims(&name, &info.shape)?;
        tensors.insert(name.clone(), Found { array: Array::whole(name, dims, number, encoding), file_name: file.file_name() });
    }
    Ok(tensors)
}

/// The bytes of the header, where they are there and not too many to look at.
fn header(bytes: &[u8]) -> Option<&[u8]> {
    let (length, rest) = bytes.split_first_chunk::<LENGTH>()?;
    let length = usize::try_from(u64::from_le_bytes(*length)).ok().filter(|length| *length <= HEADER_LIMIT)?;
    rest.get(..length)
}

/// The dims of a tensor of 1 to 4 axes.
fn dims(name: &str, shape: &[usize]) -> Result<Dims> {
    let impossible = || Error::damaged(format!("{name} has the shape {shape:?}; it can have 1 to 4 axes of 1 to {} elements", u32::MAX));
    let mut sizes = [1; 4];
    if shape.is_empty() || shape.len() > sizes.len() {
        return Err(impossible());
    }
    for (size, found) in sizes.iter_mut().zip(shape) {
        *size = u32::try_from(*found).ok().filter(|size| *size > 0).ok_or_else(impossible)?;
    }
    Dims::new(0, shape.len() as u32, sizes).map_err(|_| impossible())
}

/// What the crate found, in words that say what to do.
fn damaged(error: &SafeTensorError, bytes: &[u8], header: &Map<String, Value>) -> Error {
    let stated = bytes.first_chunk().map_or(0, |length| u64::from_le_bytes(*length));
    let again = "copy or download it again";
    match error {
        SafeTensorError::HeaderTooSmall => {
            Error::damaged(format!("has {} bytes; a safetensors file has at least {LENGTH}", bytes.len())).advise(again)
        }
        SafeTensorError::HeaderTooLarge => {
            Error::damaged(format!("says that its header has {stated} bytes; it can have {HEADER_LIMIT}")).at("byte 0")
        }
        SafeTensorError::InvalidHeaderLength => {
            Error::damaged(format!("says that its header has {stated} bytes, but has {} in all", bytes.len())).at("byte 0").advise(again)
        }
        SafeTensorError::InvalidOffset(name) => {
            Error::damaged(format!("{name} does not begin where the tensor before it ends, or ends before it begins"))
        }
        SafeTensorError::TensorInvalidInfo | SafeTensorError::ValidationOverflow => {
            let name = header.iter().find(|(_, tensor)| !fits(tensor)).map_or("a tensor", |(name, _)| name);
            Error::damaged(format!("{name} has not as many bytes as its shape and type call for"))
        }
        SafeTensorError::MetadataIncompleteBuffer => {
            let what = format!("the tensors do not end where the file does, at byte {}", bytes.len());
            Error::damaged(what).advise(again)
        }
        other => Error::damaged(format!("is not the safetensors file that it should be: {other}")),
    }
}

/// Whether a tensor's offsets are as far apart as its shape and type say.
fn fits(tensor: &Value) -> bool {
    let read = || {
        let size = match tensor["dtype"].as_str()? {
            "F64" | "I64" | "U64" => 8,
            "F32" | "I32" | "U32" => 4,
            "F16" | "BF16" | "I16" | "U16" => 2,
            _ => 1,
        };
        let count = tensor["shape"].as_array()?.iter().try_fold(1u64, |count, size| count.checked_mul(size.as_u64()?))?;
        let (start, end) = (tensor["data_offsets"][0].as_u64()?, tensor["data_offsets"][1].as_u64()?);
        Some(count.checked_mul(size)? == end.checked_sub(start)?)
    };
    // What is no tensor has no say here.
    tensor.get("shape").is_none() || read() == Some(true)
}

//! The record of one tensor in a format-2 index (docs/format/index.md): decoded, and each field checked by itself.

use super::index::{NAME_LIMIT, TENSOR_RECORD_LEN, of_tensor, of_tensor_long};
use crate::bytes::{u16_at, u32_at, u64_at};
use crate::{DType, Dims, Error, Planes, Rule};

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
    /// Elements of a row that share a multiplier (q8, q4); 0: the whole row, and for other types.
    pub group: u32,
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
    pub(super) const fn decode(record: &[u8; TENSOR_RECORD_LEN], tensor: u32) -> Result<Self, Error> {
        let [_, _, _, _, _, _, code, rank, ..] = *record;
        let Some(dtype) = DType::from_code(code) else {
            return Err(of_tensor(tensor, Rule::DType, code as u32, DType::U32.code() as u32));
        };
        let name_len = u16_at(record, 4);
        if name_len == 0 {
            return Err(of_tensor(tensor, Rule::NotZero, 0, 1));
        }
        if name_len as u32 > NAME_LIMIT {
            return Err(of_tensor(tensor, Rule::TooLarge, name_len as u32, NAME_LIMIT));
        }
        let sizes = [u32_at(record, 8), u32_at(record, 12), u32_at(record, 16), u32_at(record, 20)];
        let dims = match Dims::new(tensor, rank as u32, sizes) {
            Ok(dims) => dims,
            Err(error) => return Err(error),
        };
        let ([a, b, c, d], [p, q, r, s]) = (sizes, dims.padded());
        if (a ^ p) | (b ^ q) | (c ^ r) | (d ^ s) != 0 {
            return Err(of_tensor(tensor, Rule::Rank, rank as u32, 4));
        }
        let (group, flags, reserved) = (u32_at(record, 24), u32_at(record, 48), u32_at(record, 52));
        if reserved != 0 {
            return Err(of_tensor(tensor, Rule::Zero, reserved, 0));
        }
        if flags > 3 {
            return Err(of_tensor(tensor, Rule::Unknown, flags, 3));
        }
        let bytes = u64_at(record, 40);
        let needed = match Planes::new(tensor, dtype, dims, group) {
            Ok(planes) => planes.bytes,
            Err(error) => return Err(error),
        };
        if bytes != needed {
            return Err(of_tensor_long(tensor, Rule::Length, bytes, needed));
        }
        let (name_offset, crc32, offset) = (u32_at(record, 0), u32_at(record, 28), u64_at(record, 32));
        Ok(Self { name_offset, name_len, dtype, dims, group, crc32, offset, bytes, flags })
    }
}

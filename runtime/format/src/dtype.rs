//! Element types of stored tensors and of the key/value cache.

use crate::bytes::{u16_at, u32_at};
use core::fmt;

/// How a tensor's elements are stored.
///
/// The numbers are those of the format-2 index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(u8)]
pub enum DType {
    /// IEEE single precision, little-endian.
    F32 = 0,
    /// IEEE half precision, little-endian.
    F16 = 1,
    /// The upper 16 bits of an `f32`, little-endian.
    Bf16 = 2,
    /// Signed bytes with an `f32` scale a row and, unless a row is one group, a multiplier a group.
    Q8 = 3,
    /// Four bits with an `f32` scale a row, a multiplier and an offset a group.
    Q4 = 4,
    /// Ternary: two bits with one `f32` scale a tensor.
    T2 = 5,
    /// Bytes (tokenizer arrays).
    U8 = 6,
    /// Unsigned 32-bit numbers, little-endian (tokenizer arrays).
    U32 = 7,
}

impl DType {
    /// The type with this number in the index, if there is one.
    pub const fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            0 => Self::F32,
            1 => Self::F16,
            2 => Self::Bf16,
            3 => Self::Q8,
            4 => Self::Q4,
            5 => Self::T2,
            6 => Self::U8,
            7 => Self::U32,
            _ => return None,
        })
    }

    /// The number in the index.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// Bytes an element; 0 for q8, q4 and t2, whose bytes [`Planes`](crate::Planes) counts.
    pub const fn size(self) -> u64 {
        match self {
            Self::F32 | Self::U32 => 4,
            Self::F16 | Self::Bf16 => 2,
            Self::U8 => 1,
            Self::Q8 | Self::Q4 | Self::T2 => 0,
        }
    }

    /// Element `index` of `bytes`, stored in this type at any address, widened to `f32`; 0 past the end and for types that are not floats.
    ///
    /// The one reader for elements that are read seldom or lie badly: out of line, so that flash holds it once.
    #[inline(never)]
    pub fn element(self, bytes: &[u8], index: usize) -> f32 {
        let half = || u16_at(bytes, index.wrapping_mul(2));
        match self {
            Self::F32 => f32::from_bits(u32_at(bytes, index.wrapping_mul(4))),
            Self::F16 => half::f16::from_bits(half()).to_f32(),
            Self::Bf16 => f32::from_bits(u32::from(half()) << 16),
            _ => 0.0,
        }
    }

    /// The name in headers and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::Q8 => "q8",
            Self::Q4 => "q4",
            Self::T2 => "t2",
            Self::U8 => "u8",
            Self::U32 => "u32",
        }
    }

    /// The type with this name, if there is one.
    pub const fn from_name(name: &[u8]) -> Option<Self> {
        Some(match name {
            b"f32" => Self::F32,
            b"f16" => Self::F16,
            b"bf16" => Self::Bf16,
            b"q8" => Self::Q8,
            b"q4" => Self::Q4,
            b"t2" => Self::T2,
            b"u8" => Self::U8,
            b"u32" => Self::U32,
            _ => return None,
        })
    }

    /// Whether weights may be stored in this type.
    pub const fn is_weight(self) -> bool {
        self.is_float() || self.is_quantised()
    }

    /// Whether elements are floats, each by itself.
    pub const fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F16 | Self::Bf16)
    }

    /// Whether elements are small integers that share scales: q8, q4 and t2.
    pub const fn is_quantised(self) -> bool {
        matches!(self, Self::Q8 | Self::Q4 | Self::T2)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How keys and values are kept between steps. Narrowed when stored, widened when read, the current position too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
#[repr(u8)]
pub enum KvDType {
    /// Single precision.
    F32 = 0,
    /// Half precision: half the memory.
    #[default]
    F16 = 1,
    /// Signed bytes with an `f16` scale for each head and position.
    Q8 = 2,
}

impl KvDType {
    /// Bytes an element, without the scales of q8.
    pub const fn size(self) -> u64 {
        match self {
            Self::F32 => 4,
            Self::F16 => 2,
            Self::Q8 => 1,
        }
    }

    /// Bytes of the scales of one head at one position: 0 but for q8.
    pub const fn scale_size(self) -> u64 {
        match self {
            Self::F32 | Self::F16 => 0,
            Self::Q8 => 2,
        }
    }

    /// The name on the command line and in headers.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Q8 => "q8",
        }
    }

    /// The type with this number in the index, if there is one.
    pub const fn from_code(code: u32) -> Option<Self> {
        Some(match code {
            0 => Self::F32,
            1 => Self::F16,
            2 => Self::Q8,
            _ => return None,
        })
    }
}

impl fmt::Display for KvDType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

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
            6 => Self::U8,
            7 => Self::U32,
            _ => return None,
        })
    }

    /// The number in the index.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// Bytes an element.
    pub const fn size(self) -> u64 {
        match self {
            Self::F32 | Self::U32 => 4,
            Self::F16 | Self::Bf16 => 2,
            Self::U8 => 1,
        }
    }

    /// Element `index` of `bytes`, stored in this type at any address, widened to `f32`; 0 past the end and for types that are not weights.
    ///
    /// The one reader for elements that are read seldom or lie badly: out of line, so that flash holds it once.
    #[inline(never)]
    pub fn element(self, bytes: &[u8], index: usize) -> f32 {
        let half = || u16_at(bytes, index.wrapping_mul(2));
        match self {
            Self::F32 => f32::from_bits(u32_at(bytes, index.wrapping_mul(4))),
            Self::F16 => half::f16::from_bits(half()).to_f32(),
            Self::Bf16 => f32::from_bits(u32::from(half()) << 16),
            Self::U8 | Self::U32 => 0.0,
        }
    }

    /// The name in headers and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
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
            b"u8" => Self::U8,
            b"u32" => Self::U32,
            _ => return None,
        })
    }

    /// Whether weights may be stored in this type.
    pub const fn is_weight(self) -> bool {
        matches!(self, Self::F32 | Self::F16 | Self::Bf16)
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
}

impl KvDType {
    /// Bytes an element.
    pub const fn size(self) -> u64 {
        match self {
            Self::F32 => 4,
            Self::F16 => 2,
        }
    }

    /// The name on the command line and in headers.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
        }
    }

    /// The type with this number in the index, if there is one.
    pub const fn from_code(code: u32) -> Option<Self> {
        Some(match code {
            0 => Self::F32,
            1 => Self::F16,
            _ => return None,
        })
    }
}

impl fmt::Display for KvDType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

//! How the values of an array are stored in a file, and how a run of them becomes f32. One variant a stored form; used by `array` alone.

use super::Mapping;
use super::gguf::blocks::{self, BadScale, BlockType, CodeBlock, LONGEST};
use crate::error::{Error, Result};
use half::f16;
use half::slice::HalfFloatSliceExt;
use std::fmt;
use std::ops::Range;

/// How values are stored in their source, one after the other. Offsets are in bytes from the file's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Encoding {
    /// IEEE single precision, little-endian, at any alignment.
    F32 {
        /// The first value.
        offset: u64,
    },
    /// IEEE half precision, little-endian, at any alignment.
    F16 {
        /// The first value.
        offset: u64,
    },
    /// The upper half of IEEE single precision, little-endian, at any alignment.
    Bf16 {
        /// The first value.
        offset: u64,
    },
    /// Signed bytes with one f32 scale for every `group` consecutive elements of the flat array, so that a group may straddle rows; value = byte * scale.
    Q80 {
        /// The first byte.
        codes: u64,
        /// The first scale.
        scales: u64,
        /// Elements that share a scale; divides the number of elements.
        group: u32,
    },
    /// Blocks of ggml's, each with its own scales; they divide the array's rows.
    Blocks {
        /// The first block.
        offset: u64,
        /// Their format.
        kind: BlockType,
    },
}

impl fmt::Display for Encoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::F32 { .. } => f.write_str("f32"),
            Self::F16 { .. } => f.write_str("f16"),
            Self::Bf16 { .. } => f.write_str("bf16"),
            Self::Q80 { group, .. } => write!(f, "q80 in groups of {group}"),
            Self::Blocks { kind, .. } => f.write_str(kind.name()),
        }
    }
}

/// Values converted at a time where they pass through a buffer.
const BLOCK: usize = 1024;

impl Encoding {
    /// The same, with the first `elements` left out; `None` for what is not stored element by element, or past 2^64.
    pub(super) fn skip(self, elements: u64) -> Option<Self> {
        let moved = |offset: u64, size: u64| offset.checked_add(size.checked_mul(elements)?);
        Some(match self {
            Self::F32 { offset } => Self::F32 { offset: moved(offset, 4)? },
            Self::F16 { offset } => Self::F16 { offset: moved(offset, 2)? },
            Self::Bf16 { offset } => Self::Bf16 { offset: moved(offset, 2)? },
            Self::Q80 { .. } | Self::Blocks { .. } => return None,
        })
    }

    /// The bytes of the file from the first to the last that elements `range` of the array take; `None` past 2^64.
    pub(super) fn bytes(self, range: Range<u64>) -> Option<Range<u64>> {
        let plain = |offset: u64, size: u64| {
            Some(offset.checked_add(range.start.checked_mul(size)?)?..offset.checked_add(range.end.checked_mul(size)?)?)
        };
        match self {
            Self::F32 { offset } => plain(offset, 4),
            Self::F16 { offset } | Self::Bf16 { offset } => plain(offset, 2),
            Self::Q80 { codes, scales, group } => {
                let last = scales.checked_add(range.end.div_ceil(u64::from(group)).checked_mul(4)?)?;
                Some(codes.min(scales)..codes.checked_add(range.end)?.max(last))
            }
            Self::Blocks { offset, kind } => {
                let (elements, size) = (kind.elements() as u64, kind.bytes() as u64);
                let at = |block: u64| offset.checked_add(block.checked_mul(size)?);
                Some(at(range.start / elements)?..at(range.end.div_ceil(elements))?)
            }
        }
    }

    /// Fills `out` with the values from element `start` on; `name` is the array's, for errors.
    pub(super) fn decode(self, file: &Mapping, name: &str, start: u64, out: &mut [f32]) -> Result<()> {
        let slice = |offset: Option<u64>, len: usize| slice(file, name, offset, len);
        let at = |offset: u64, size: u64| offset.checked_add(size.checked_mul(start)?);
        match self {
            Self::F32 { offset } => {
                let bytes = slice(at(offset, 4), 4 * out.len())?;
                for (value, bytes) in out.iter_mut().zip(bytes.as_chunks().0) {
                    *value = f32::from_le_bytes(*bytes);
                }
            }
            Self::F16 { offset } => {
                let bytes = slice(at(offset, 2), 2 * out.len())?;
                let mut halves = [f16::ZERO; BLOCK];
                for (values, bytes) in out.chunks_mut(BLOCK).zip(bytes.chunks(2 * BLOCK)) {
                    for (half, bytes) in halves.iter_mut().zip(bytes.as_chunks().0) {
                        *half = f16::from_le_bytes(*bytes);
                    }
                    halves[..values.len()].convert_to_f32_slice(values);
                }
            }
            Self::Bf16 { offset } => {
                let bytes = slice(at(offset, 2), 2 * out.len())?;
                for (value, bytes) in out.iter_mut().zip(bytes.as_chunks().0) {
                    *value = f32::from_bits(u32::from(u16::from_le_bytes(*bytes)) << 16);
                }
            }
            Self::Q80 { codes, scales, group } => {
                let mut codes = slice(codes.checked_add(start), out.len())?;
                let mut out = out;
                let mut element = start;
                while !out.is_empty() {
                    let number = element / u64::from(group);
                    let in_group = u64::from(group) - element % u64::from(group);
                    let run = usize::try_from(in_group).map_or(out.len(), |run| run.min(out.len()));
                    let place = scales + 4 * number;
                    let scale = slice(Some(place), 4)?.first_chunk().map_or(f32::NAN, |bytes| f32::from_le_bytes(*bytes));
                    if !scale.is_finite() {
                        let what = format!("scale {number} of {name} is {scale}");
                        return Err(Error::damaged(what).at(format!("byte {place}")).in_file(file.path()));
                    }
                    let (now, later) = out.split_at_mut(run);
                    let (codes_now, codes_later) = codes.split_at(run);
                    for (value, code) in now.iter_mut().zip(codes_now) {
                        *value = f32::from(code.cast_signed()) * scale;
                    }
                    (out, codes) = (later, codes_later);
                    element += run as u64;
                }
            }
            Self::Blocks { offset, kind } => {
                let elements = kind.elements();
                let (first, mut skip) = (start / elements as u64, (start % elements as u64) as usize);
                let count = (skip + out.len()).div_ceil(elements);
                let place = |block: u64| offset.checked_add(block.checked_mul(kind.bytes() as u64)?);
                let mut values = [0.0; LONGEST];
                let mut out = out;
                for (block, bytes) in (first..).zip(slice(place(first), count * kind.bytes())?.chunks_exact(kind.bytes())) {
                    blocks::decode(kind, bytes, &mut values).map_err(|bad| bad_scale(file, name, block, place(block), bad))?;
                    let found = &values[skip..elements];
                    let (now, later) = out.split_at_mut(found.len().min(out.len()));
                    now.copy_from_slice(&found[..now.len()]);
                    (out, skip) = (later, 0);
                }
            }
        }
        Ok(())
    }

    /// Whether [`Encoding::code_blocks`] has any.
    pub(super) fn has_code_blocks(self) -> bool {
        matches!(self, Self::Blocks { kind, .. } if kind.has_codes())
    }

    /// Blocks `range` as codes, scales and offsets; none of a form that has other parts.
    pub(super) fn code_blocks(self, file: &Mapping, name: &str, range: Range<u64>) -> Result<Vec<CodeBlock>> {
        let Self::Blocks { offset, kind } = self else { return Ok(Vec::new()) };
        let size = kind.bytes() as u64;
        let place = |block: u64| offset.checked_add(block.checked_mul(size)?);
        let len = range.end.saturating_sub(range.start).checked_mul(size).and_then(|len| usize::try_from(len).ok());
        let bytes = slice(file, name, place(range.start).filter(|_| len.is_some()), len.unwrap_or(0))?;
        let blocks = range.clone().zip(bytes.chunks_exact(kind.bytes()));
        let codes = blocks.map(|(block, bytes)| blocks::codes(kind, bytes).map_err(|bad| bad_scale(file, name, block, place(block), bad)));
        codes.filter_map(Result::transpose).collect()
    }

    /// The step of the codes that elements `start..start + len` share, and the value of the lowest code of four bits; `None` where they are floats, or of several groups.
    pub(super) fn step(self, file: &Mapping, start: u64, len: u64) -> Option<(f32, f32)> {
        let last = start.checked_add(len.checked_sub(1)?)?;
        match self {
            Self::Q80 { scales, group, .. } => {
                let number = start / u64::from(group);
                let scale = slice(file, "", scales.checked_add(number.checked_mul(4)?), 4).ok()?.first_chunk()?;
                (number == last / u64::from(group)).then_some((f32::from_le_bytes(*scale).abs(), 0.0))
            }
            Self::Blocks { kind, .. } => {
                let number = start / kind.elements() as u64;
                let [block] = self.code_blocks(file, "", number..number.checked_add(1)?).ok()?.try_into().ok()?;
                let step = block.scale.abs();
                // A negative scale turns the codes round: what was the highest is the lowest.
                let lowest = match kind {
                    BlockType::Q4_0 => step * if block.scale < 0.0 { -7.0 } else { -8.0 },
                    _ => block.offset - if block.scale < 0.0 { 15.0 * step } else { 0.0 },
                };
                (number == last / kind.elements() as u64).then_some((step, lowest))
            }
            Self::F32 { .. } | Self::F16 { .. } | Self::Bf16 { .. } => None,
        }
    }

    /// Fills `out` with every `stride`-th value from element `start` on.
    pub(super) fn gather(self, file: &Mapping, name: &str, start: u64, stride: u64, out: &mut [f32]) -> Result<()> {
        if stride == 1 {
            return self.decode(file, name, start, out);
        }
        for (place, value) in (0u64..).zip(out.iter_mut()) {
            self.decode(file, name, start + place * stride, std::slice::from_mut(value))?;
        }
        Ok(())
    }
}

fn bad_scale(file: &Mapping, name: &str, block: u64, place: Option<u64>, bad: BadScale) -> Error {
    let what = format!("a scale of block {block} of {name} is {}", bad.value);
    let at = place.unwrap_or_default().saturating_add(bad.byte as u64);
    Error::damaged(what).at(format!("byte {at}")).in_file(file.path())
}

/// Bytes of the file. Every array was compared with the file's length, so a miss is a mistake in the importer: an error all the same, not a panic.
fn slice<'f>(file: &'f Mapping, name: &str, offset: Option<u64>, len: usize) -> Result<&'f [u8]> {
    let start = offset.and_then(|offset| usize::try_from(offset).ok());
    start.and_then(|start| file.bytes().get(start..start.checked_add(len)?)).ok_or_else(|| past_the_end(file, name, offset))
}

/// The error of an array that does not fit its file.
pub(super) fn past_the_end(file: &Mapping, name: &str, offset: Option<u64>) -> Error {
    let what = format!("{name} lies past the end of the file, which has {} bytes", file.bytes().len());
    let error = Error::damaged(what).advise("the file is cut or damaged: copy or download it again").in_file(file.path());
    match offset {
        Some(offset) => error.at(format!("byte {offset}")),
        None => error,
    }
}

//! Figures of stored values, measured in one pass over a tensor's bytes: for the exporter's report, the header and `verify`.

use crate::file::quantised;
use crate::planes::Quantised;
use crate::{DType, Dims, Error, TensorView};
use half::{bf16, f16};
use std::iter::repeat;

/// What the header says of a tensor's values as stored. The figures of a whole file are those of its weights merged.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figures {
    /// Values that narrowing made exactly 0. Only the exporter knows it: the file has lost it.
    pub flushed: u64,
    /// Values below the element type's smallest normal number, zeros not counted.
    pub subnormal: u64,
    /// The largest magnitude.
    pub max_abs: f32,
    /// The smallest magnitude above 0; 0 if all values are 0.
    pub min_nonzero_abs: f32,
}

impl Figures {
    /// The figures of no values.
    pub const NONE: Self = Self { flushed: 0, subnormal: 0, max_abs: 0.0, min_nonzero_abs: 0.0 };

    /// The figures of both together.
    #[must_use]
    pub fn merged(self, other: Self) -> Self {
        let min_nonzero_abs = match (self.min_nonzero_abs, other.min_nonzero_abs) {
            (0.0, one) | (one, 0.0) => one,
            (a, b) => a.min(b),
        };
        Self {
            flushed: self.flushed + other.flushed,
            subnormal: self.subnormal + other.subnormal,
            max_abs: self.max_abs.max(other.max_abs),
            min_nonzero_abs,
        }
    }
}

/// What a [`TensorMeter`] found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// Number of bytes.
    pub bytes: u64,
    /// Their CRC-32.
    pub crc32: u32,
    /// The figures, with `flushed` 0; `None` for types that hold no weights (u8, u32).
    pub figures: Option<Figures>,
    /// The first element that is NaN or infinite, with its value.
    pub non_finite: Option<(u64, f32)>,
    /// What a quantised tensor holds that the format does not allow (as tensor 0). Its figures are then those of no values.
    pub fault: Option<Error>,
}

/// Measures a tensor whose bytes come in pieces of any size.
#[derive(Clone, Debug)]
pub struct TensorMeter {
    dtype: DType,
    // Quantised tensors only: dims and group, and all bytes, since codes mean nothing without the scales behind them.
    whole: Option<(Dims, u32, Vec<u8>)>,
    crc: crc32fast::Hasher,
    bytes: u64,
    // The start of an element whose other bytes come with the next piece.
    carry: Vec<u8>,
    max: u32,
    // Smallest magnitude less 1, so that zeros wrap round to the top and do not count.
    min_less_one: u32,
    subnormal: u64,
    non_finite: Option<(u64, f32)>,
}

/// Bits of a magnitude: which part of the word it is, and where normal and infinite numbers begin.
struct Limits {
    normal: u32,
    infinite: u32,
}

impl TensorMeter {
    /// A meter for a tensor of this type, dims and group. It keeps the bytes of a quantised one until the end.
    pub fn of(dtype: DType, dims: Dims, group: u32) -> Self {
        let whole = dtype.is_quantised().then(|| (dims, group, Vec::new()));
        Self { whole, ..Self::new(dtype) }
    }

    /// A meter for elements of this type, which is not a quantised one.
    pub fn new(dtype: DType) -> Self {
        Self {
            dtype,
            whole: None,
            crc: crc32fast::Hasher::new(),
            bytes: 0,
            carry: Vec::with_capacity(4),
            max: 0,
            min_less_one: u32::MAX,
            subnormal: 0,
            non_finite: None,
        }
    }

    /// Takes the next bytes.
    pub fn update(&mut self, piece: &[u8]) {
        self.crc.update(piece);
        if let Some((.., bytes)) = &mut self.whole {
            bytes.extend_from_slice(piece);
        }
        if !self.dtype.is_float() {
            self.bytes += piece.len() as u64;
            return;
        }
        let size = self.dtype.size() as usize;
        let mut rest = piece;
        let mut element = (self.bytes - self.carry.len() as u64) / self.dtype.size();
        self.bytes += piece.len() as u64;
        while !self.carry.is_empty() {
            let Some((first, tail)) = rest.split_first() else {
                return;
            };
            self.carry.push(*first);
            rest = tail;
            if self.carry.len() == size {
                let whole = std::mem::take(&mut self.carry);
                self.scan(&whole, element);
                element += 1;
            }
        }
        let whole = rest.len() / size * size;
        let (now, later) = rest.split_at(whole);
        // Pieces small enough that a non-finite value, which is looked for a second time to say where it is, costs little.
        for part in now.chunks(1 << 16) {
            self.scan(part, element);
            element += (part.len() / size) as u64;
        }
        self.carry.extend_from_slice(later);
    }

    fn scan(&mut self, bytes: &[u8], first: u64) {
        match self.dtype {
            DType::F32 => {
                let limits = Limits { normal: 0x0080_0000, infinite: 0x7f80_0000 };
                self.scan_as(bytes, first, &limits, |[a, b, c, d]: [u8; 4]| u32::from_le_bytes([a, b, c, d & 0x7f]));
            }
            DType::F16 => {
                let limits = Limits { normal: 0x0400, infinite: 0x7c00 };
                self.scan_as(bytes, first, &limits, |[a, b]: [u8; 2]| u32::from(u16::from_le_bytes([a, b & 0x7f])));
            }
            DType::Bf16 => {
                let limits = Limits { normal: 0x0080, infinite: 0x7f80 };
                self.scan_as(bytes, first, &limits, |[a, b]: [u8; 2]| u32::from(u16::from_le_bytes([a, b & 0x7f])));
            }
            _ => {}
        }
    }

    // Magnitudes of floats are ordered as their bits are.
    fn scan_as<const N: usize>(&mut self, bytes: &[u8], first: u64, limits: &Limits, magnitude: impl Fn([u8; N]) -> u32) {
        let (elements, _) = bytes.as_chunks::<N>();
        let (mut max, mut min_less_one, mut subnormal) = (0u32, u32::MAX, 0u32);
        for element in elements {
            let bits = magnitude(*element);
            max = max.max(bits);
            min_less_one = min_less_one.min(bits.wrapping_sub(1));
            subnormal += u32::from(bits.wrapping_sub(1) < limits.normal - 1);
        }
        self.max = self.max.max(max);
        self.min_less_one = self.min_less_one.min(min_less_one);
        self.subnormal += u64::from(subnormal);
        if max >= limits.infinite && self.non_finite.is_none() {
            let place = elements.iter().position(|element| magnitude(*element) >= limits.infinite);
            if let Some((place, element)) = place.and_then(|place| Some((place, elements.get(place)?))) {
                let negative = element.last().is_some_and(|byte| byte & 0x80 != 0);
                let value = self.value(magnitude(*element));
                self.non_finite = Some((first + place as u64, if negative { -value } else { value }));
            }
        }
    }

    fn value(&self, magnitude: u32) -> f32 {
        match self.dtype {
            DType::F16 => f16::from_bits(magnitude as u16).to_f32(),
            DType::Bf16 => bf16::from_bits(magnitude as u16).to_f32(),
            _ => f32::from_bits(magnitude),
        }
    }

    /// The checksum so far, for combining with others.
    pub(super) fn crc(&self) -> &crc32fast::Hasher {
        &self.crc
    }

    /// What was found.
    pub fn finish(&self) -> Measured {
        let crc32 = self.crc.clone().finalize();
        if let Some((dims, group, bytes)) = &self.whole {
            let view = TensorView::grouped(0, self.dtype, *dims, *group, bytes);
            let (figures, fault) = match view.and_then(|view| quantised::check(0, &view).map(|()| view)) {
                Ok(view) => (quantised_figures(&view), None),
                Err(error) => (Figures::NONE, Some(error)),
            };
            return Measured { bytes: self.bytes, crc32, figures: Some(figures), non_finite: None, fault };
        }
        let figures = Figures {
            flushed: 0,
            subnormal: self.subnormal,
            max_abs: self.value(self.max),
            min_nonzero_abs: self.value(self.min_less_one.wrapping_add(1)),
        };
        Measured { bytes: self.bytes, crc32, figures: self.dtype.is_weight().then_some(figures), non_finite: self.non_finite, fault: None }
    }
}

/// The figures of the values that codes and scales stand for. Within a row, magnitudes are ordered as the integers' are.
fn quantised_figures(view: &TensorView<'_>) -> Figures {
    let planes = view.quantised();
    let mut figures = Figures::NONE;
    let mut magnitudes = vec![0; view.cols()];
    for row in 0..view.rows() {
        row_magnitudes(view.dtype(), &planes, row, &mut magnitudes);
        let most = magnitudes.iter().fold(0, |most, magnitude| most.max(*magnitude));
        // Less 1, so that zeros wrap round to the top and do not count.
        let least = magnitudes.iter().fold(u32::MAX, |least, magnitude| least.min(magnitude.wrapping_sub(1))).wrapping_add(1);
        let scale = view.row_scale(if view.dtype() == DType::T2 { 0 } else { row });
        let value = |magnitude: u32| scale * magnitude as f32;
        let min_nonzero_abs = value(least);
        let subnormal = if min_nonzero_abs < f32::MIN_POSITIVE {
            magnitudes.iter().filter(|magnitude| value(**magnitude).is_subnormal()).count() as u64
        } else {
            0
        };
        figures = figures.merged(Figures { flushed: 0, subnormal, max_abs: value(most), min_nonzero_abs });
    }
    figures
}

/// The magnitudes of a row's [`TensorView::integer`]s, group by group.
fn row_magnitudes(dtype: DType, planes: &Quantised<'_>, row: usize, out: &mut [u32]) {
    let codes = planes.codes.get(row * planes.row_stride..).unwrap_or_default();
    let first = row * planes.groups;
    let multipliers = planes.multipliers.get(first..).unwrap_or_default().iter().map(|multiplier| i32::from(*multiplier)).chain(repeat(1));
    let offsets = planes.offsets.as_chunks::<2>().0.get(first..).unwrap_or_default();
    let offsets = offsets.iter().map(|offset| i32::from(i16::from_le_bytes(*offset))).chain(repeat(0));
    let group_len = planes.group_len.max(1);
    for (number, ((out, multiplier), offset)) in out.chunks_mut(group_len).zip(multipliers).zip(offsets).enumerate() {
        let start = number * group_len;
        let magnitude = |code: i32| (multiplier * code + offset).unsigned_abs();
        match dtype {
            DType::Q8 => {
                for (out, code) in out.iter_mut().zip(codes.get(start..).unwrap_or_default()) {
                    *out = magnitude(i32::from(code.cast_signed()));
                }
            }
            DType::Q4 => {
                for (pair, codes) in out.chunks_mut(2).zip(codes.get(start / 2..).unwrap_or_default()) {
                    for (out, code) in pair.iter_mut().zip([codes & 15, codes >> 4]) {
                        *out = magnitude(i32::from(code));
                    }
                }
            }
            _ => {
                for (four, codes) in out.chunks_mut(4).zip(codes.get(start / 4..).unwrap_or_default()) {
                    for (out, shift) in four.iter_mut().zip([0, 2, 4, 6]) {
                        *out = u32::from(codes >> shift & 3 != 0);
                    }
                }
            }
        }
    }
}

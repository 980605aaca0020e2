//! q8, q4 and t2 through the writers and back: codes, scales, multipliers and offsets of any value, in matrices of any shape.

use super::tiny::{CONFIG, Tiny, model};
use crate::arch::llama::LlamaConfig;
use crate::file::ModelFile;
use crate::host::{Figures, Header, strip, verify};
use crate::{DType, Dims};
use proptest::prelude::*;

/// A matrix by its parts, row by row: what the bytes are made of, and what they stand for.
struct Parts {
    dtype: DType,
    dims: Dims,
    group: u32,
    codes: Vec<i32>,
    scales: Vec<f32>,
    multipliers: Vec<u8>,
    offsets: Vec<i16>,
}

impl Parts {
    fn group_len(&self) -> usize {
        if self.group == 0 { self.dims.cols() as usize } else { self.group as usize }
    }

    /// The bytes, written down from docs/format/index.md.
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for row in self.codes.chunks(self.dims.cols() as usize) {
            match self.dtype {
                DType::Q8 => bytes.extend(row.iter().map(|code| *code as u8)),
                DType::Q4 => bytes.extend(row.chunks(2).map(|pair| pair.iter().rev().fold(0, |byte, code| byte << 4 | *code as u8))),
                _ => bytes
                    .extend(row.chunks(4).map(|four| four.iter().rev().fold(0, |byte, code| byte << 2 | [2, 0, 1][(code + 1) as usize]))),
            }
            bytes.resize(bytes.len().next_multiple_of(4), 0);
        }
        bytes.resize(bytes.len().next_multiple_of(16), 0);
        bytes.extend(self.scales.iter().flat_map(|scale| scale.to_le_bytes()));
        if !self.multipliers.is_empty() {
            bytes.resize(bytes.len().next_multiple_of(16), 0);
            bytes.extend(&self.multipliers);
        }
        if !self.offsets.is_empty() {
            bytes.resize(bytes.len().next_multiple_of(16), 0);
            bytes.extend(self.offsets.iter().flat_map(|offset| offset.to_le_bytes()));
        }
        bytes
    }

    /// The values that the parts stand for.
    fn values(&self) -> Vec<f32> {
        let cols = self.dims.cols() as usize;
        let groups = cols.div_ceil(self.group_len());
        let value = |(place, code): (usize, &i32)| {
            let (row, group) = (place / cols, place / cols * groups + place % cols / self.group_len());
            let multiplier = self.multipliers.get(group).map_or(1, |multiplier| i32::from(*multiplier));
            let offset = self.offsets.get(group).map_or(0, |offset| i32::from(*offset));
            self.scales[if self.dtype == DType::T2 { 0 } else { row }] * (multiplier * code + offset) as f32
        };
        self.codes.iter().enumerate().map(value).collect()
    }
}

/// Three rows of 20 in groups of 8: what docs/format/examples.md prints.
pub(super) fn example() -> Vec<u8> {
    let codes = (0..60).map(|place| place - 30).collect();
    let scales = vec![0.5, 2.0, 0.25];
    Parts { dtype: DType::Q8, dims: Dims::matrix(3, 20), group: 8, codes, scales, multipliers: (1..=9).collect(), offsets: vec![] }.bytes()
}

/// Any parts for a matrix of these dims; numbers come from `random`. Scales reach from the smallest subnormal number to 10^30.
fn parts(dtype: DType, dims: Dims, groups_of: u32, random: &mut impl FnMut() -> u32) -> Parts {
    let cols = dims.cols();
    let group = if dtype != DType::T2 && groups_of < cols { groups_of } else { 0 };
    let (rows, groups) = (dims.rows() as usize, if group == 0 { 1 } else { cols.div_ceil(group) as usize });
    let (low, high) = match dtype {
        DType::Q8 => (-127, 127),
        DType::Q4 => (0, 15),
        _ => (-1, 1),
    };
    let mut list = |count: usize| (0..count).map(|_| random()).collect::<Vec<u32>>();
    Parts {
        dtype,
        dims,
        group,
        codes: list(dims.count() as usize).into_iter().map(|any| low + (any % (high - low + 1) as u32) as i32).collect(),
        scales: list(if dtype == DType::T2 { 1 } else { rows }).into_iter().map(|any| f32::from_bits(any % 1e30f32.to_bits())).collect(),
        multipliers: list(if dtype == DType::Q4 || group != 0 { rows * groups } else { 0 })
            .into_iter()
            .map(|any| (any % 255 + 1) as u8)
            .collect(),
        offsets: list(if dtype == DType::Q4 { rows * groups } else { 0 }).into_iter().map(|any| any as i16).collect(),
    }
}

fn slow_figures(values: &[f32]) -> Figures {
    let magnitudes = || values.iter().map(|value| value.abs()).filter(|magnitude| *magnitude > 0.0);
    Figures {
        flushed: 0,
        subnormal: magnitudes().filter(|magnitude| magnitude.is_subnormal()).count() as u64,
        max_abs: magnitudes().fold(0.0, f32::max),
        min_nonzero_abs: magnitudes().reduce(f32::min).unwrap_or(0.0),
    }
}

/// Every value of every matrix by the views of a file, and its figures by the header.
fn comes_back(made: &Tiny, matrices: &[(u32, Parts)]) -> Result<(), TestCaseError> {
    let bytes = made.file();
    prop_assert!(verify(&bytes).is_ok(), "{:?}", verify(&bytes));
    let file = ModelFile::open(&bytes).unwrap();
    let (header, _) = Header::parse(file.header_text().unwrap()).unwrap();
    for (number, parts) in matrices {
        let view = file.tensor(*number).unwrap();
        let values = parts.values();
        prop_assert_eq!((view.dtype(), view.group(), view.dims()), (parts.dtype, parts.group, parts.dims));
        for (place, value) in values.iter().enumerate() {
            prop_assert_eq!(view.get_f32(place).to_bits(), value.to_bits(), "tensor {} element {}", number, place);
        }
        prop_assert_eq!(header.tensors[*number as usize].figures, Some(slow_figures(&values)));
    }
    let stripped = strip(&bytes).unwrap();
    prop_assert!(verify(&stripped).is_ok());
    prop_assert_eq!(ModelFile::open(&stripped).unwrap().fingerprint(), file.fingerprint());
    Ok(())
}

proptest! {
    #[test]
    fn quantised_files_come_back_as_they_were_written(
        seed in any::<u64>(), n_heads in 1u32..24, hidden_dim in 1u32..50, groups_of in 1u32..6, dtypes in proptest::collection::vec(0usize..3, 8),
    ) {
        let mut state = seed | 1;
        let mut random = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u32
        };
        let config = LlamaConfig { dim: 2 * n_heads, n_heads, hidden_dim, ..CONFIG };
        let mut matrices = Vec::new();
        let made = model(config, |number, dims| {
            let parts = parts([DType::Q8, DType::Q4, DType::T2][dtypes[number as usize % 8]], dims, 8 * groups_of, &mut random);
            let (dtype, group, bytes) = (parts.dtype, parts.group, parts.bytes());
            matrices.push((number, parts));
            (dtype, group, bytes)
        });
        comes_back(&made, &matrices)?;
    }
}

//! A matrix as small integers: q8, q4 and t2. Called by the exporter for each tensor that is stored so.
//!
//! Rows are independent of one another, so threads work on blocks of them; the result does not depend on how many threads there are.

mod row;
mod search;
mod t2;

#[cfg(test)]
mod tests;

use super::narrow::Refused;
use crate::checkpoint::ArrayView;
use crate::error::{Error, Result};
use dmexp_format::DType;
use dmexp_format::host::TensorSpec;
use row::{Hint, Row, Scratch};
use std::num::NonZero;

/// Elements that a thread takes at a time.
const BLOCK: usize = 1 << 16;

/// A tensor as it will lie in the file.
#[derive(Debug)]
pub(super) struct Quantised {
    pub(super) bytes: Vec<u8>,
    /// How many values became exactly 0.
    pub(super) flushed: u64,
}

/// Codes `array` as `spec` says. `tick` is told how many elements were done since it was last called.
///
/// # Errors
/// Those of reading the array; a value that is not finite, or that the type cannot hold (says which type can); what `tick` returns.
pub(super) fn quantise(array: ArrayView<'_>, spec: &TensorSpec, tick: &mut dyn FnMut(u64) -> Result<()>) -> Result<Quantised> {
    if spec.dtype == DType::T2 {
        return t2::ternary(array, spec, tick);
    }
    let planes = spec.planes(0)?;
    let impossible = || Error::damaged(format!("tensor {} needs more memory than this machine addresses", spec.name));
    let size = |n: u64| usize::try_from(n).map_err(|_| impossible());
    let (rows, cols) = (size(spec.dims.rows())?, spec.dims.cols() as usize);
    let (stride, groups) = (size(planes.row_stride)?, size(planes.groups)?);
    let group = if spec.group == 0 { cols } else { spec.group as usize };
    let (has_multipliers, has_offsets) = (planes.multiplier_count > 0, planes.offset_count > 0);
    let block_rows = (BLOCK / cols).max(1);

    let mut codes = vec![0u8; rows * stride];
    let mut scales = vec![0f32; rows];
    let mut multipliers = vec![1u8; if has_multipliers { rows * groups } else { 0 }];
    let mut offsets = vec![0i16; if has_offsets { rows * groups } else { 0 }];
    let mut flushed = 0;
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get);

    let mut blocks: Vec<Block<'_>> = Vec::new();
    {
        let mut multipliers = multipliers.as_mut_slice();
        let mut offsets = offsets.as_mut_slice();
        for (number, (codes, scales)) in codes.chunks_mut(block_rows * stride).zip(scales.chunks_mut(block_rows)).enumerate() {
            let take = |has: bool| if has { scales.len() * groups } else { 0 };
            let (now, later) = std::mem::take(&mut multipliers).split_at_mut(take(has_multipliers));
            multipliers = later;
            let (offsets_now, later) = std::mem::take(&mut offsets).split_at_mut(take(has_offsets));
            offsets = later;
            blocks.push(Block { first: number * block_rows, codes, scales, multipliers: now, offsets: offsets_now });
        }
    }
    for wave in blocks.chunks_mut(threads) {
        let elements: usize = wave.iter().map(|block| block.scales.len() * cols).sum();
        let done = std::thread::scope(|scope| {
            let jobs: Vec<_> =
                wave.iter_mut().map(|block| scope.spawn(move || block.fill(array, spec, Shape { cols, stride, group, groups }))).collect();
            // In the order of the rows, so that the first fault of the tensor is the one that is told.
            jobs.into_iter().map(|job| job.join().unwrap_or_else(|_| Err(impossible()))).collect::<Result<Vec<u64>>>()
        })?;
        flushed += done.into_iter().sum::<u64>();
        tick(elements as u64)?;
    }
    drop(blocks);
    array.release();

    let mut bytes = Vec::with_capacity(size(planes.bytes)?);
    bytes.extend_from_slice(&codes);
    bytes.resize(size(planes.scales)?, 0);
    bytes.extend(scales.iter().flat_map(|scale| scale.to_le_bytes()));
    if has_multipliers {
        bytes.resize(size(planes.multipliers)?, 0);
        bytes.extend_from_slice(&multipliers);
    }
    if has_offsets {
        bytes.resize(size(planes.offsets)?, 0);
        bytes.extend(offsets.iter().flat_map(|offset| offset.to_le_bytes()));
    }
    Ok(Quantised { bytes, flushed })
}

/// Sizes that all rows of a tensor share.
#[derive(Clone, Copy)]
struct Shape {
    cols: usize,
    stride: usize,
    group: usize,
    groups: usize,
}

/// Rows that one thread works on, and where they go.
struct Block<'o> {
    first: usize,
    codes: &'o mut [u8],
    scales: &'o mut [f32],
    multipliers: &'o mut [u8],
    offsets: &'o mut [i16],
}

impl Block<'_> {
    /// Reads and codes the rows; returns how many values became 0.
    fn fill(&mut self, array: ArrayView<'_>, spec: &TensorSpec, shape: Shape) -> Result<u64> {
        let Shape { cols, stride, group, groups } = shape;
        let mut values = vec![0f32; cols];
        let mut scratch = Scratch::default();
        let mut flushed = 0;
        for (number, (codes, scale)) in self.codes.chunks_mut(stride).zip(self.scales.iter_mut()).enumerate() {
            let start = (self.first + number) as u64 * cols as u64;
            array.read(start, &mut values)?;
            let refused = |element: usize| {
                let value = values.get(element).copied().unwrap_or(f32::NAN);
                Refused { element: start + element as u64, value, dtype: spec.dtype }.explain(&spec.name)
            };
            if let Some(element) = values.iter().position(|value| !value.is_finite()) {
                return Err(refused(element));
            }
            scratch.hints.clear();
            scratch.hints.extend((0..groups).map(|place| hint(&array, start + (place * group) as u64, group.min(cols - place * group))));
            let mut row = Row {
                codes,
                scale,
                multipliers: slice_of(self.multipliers, number, groups),
                offsets: slice_of(self.offsets, number, groups),
            };
            match spec.dtype {
                DType::Q8 => row::q8(&values, group, &mut row, &mut scratch),
                _ => row::q4(&values, group, &mut row, &mut scratch),
            }
            let stored = Stored { row: &row, dtype: spec.dtype, group };
            for (element, value) in values.iter().enumerate() {
                let widened = stored.value(element);
                if !widened.is_finite() {
                    return Err(refused(element));
                }
                flushed += u64::from(widened == 0.0 && *value != 0.0);
            }
        }
        Ok(flushed)
    }
}

/// A row as the file will have it.
struct Stored<'r, 'o> {
    row: &'r Row<'o>,
    dtype: DType,
    group: usize,
}

impl Stored<'_, '_> {
    fn value(&self, element: usize) -> f32 {
        let group = element / self.group;
        let multiplier = self.row.multipliers.get(group).map_or(1, |multiplier| i32::from(*multiplier));
        let integer = if self.dtype == DType::Q8 {
            multiplier * self.row.codes.get(element).map_or(0, |code| i32::from(code.cast_signed()))
        } else {
            let pair = self.row.codes.get(element / 2).copied().unwrap_or(0);
            let code = if element.is_multiple_of(2) { pair & 15 } else { pair >> 4 };
            multiplier * i32::from(code) + self.row.offsets.get(group).map_or(0, |offset| i32::from(*offset))
        };
        *self.row.scale * integer as f32
    }
}

fn slice_of<T>(plane: &mut [T], row: usize, groups: usize) -> &mut [T] {
    plane.get_mut(row * groups..(row + 1) * groups).unwrap_or_default()
}

/// How the source itself coded these elements, if one step (and offset) of it covers all of them.
fn hint(array: &ArrayView<'_>, start: u64, len: usize) -> Option<Hint> {
    let (step, lowest) = array.step(start, len as u64)?;
    (step.is_finite() && lowest.is_finite()).then_some(Hint { step, lowest })
}

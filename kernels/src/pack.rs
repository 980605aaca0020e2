//! How a tensor lies on a device: re-ordered once, so that the eight threads of a row read 16 bytes each, side by side.

use crate::launch::Matrix;
use dmexp_format::{DType, TensorView};

/// Threads that share a row: the lanes of the canonical sum.
const LANES: usize = 8;
/// Every plane begins at a multiple of this many bytes.
const ALIGNMENT: u64 = 16;

/// Where the parts of one packed matrix lie, in bytes from its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    dtype: DType,
    rows: u64,
    cols: u32,
    stride: u64,
    groups: u32,
    units: u32,
    scales: u64,
    multipliers: u64,
    multiplier_count: u64,
    offsets: u64,
    bytes: u64,
}

/// Bytes of a row of `cols` elements.
fn stride(dtype: DType, cols: u64) -> Option<u64> {
    Some(match dtype {
        DType::F32 => cols.next_multiple_of(32) * 4,
        DType::F16 | DType::Bf16 => cols.next_multiple_of(64) * 2,
        DType::Q8 => cols.next_multiple_of(16),
        DType::Q4 => cols.next_multiple_of(32) / 2,
        DType::T2 => cols.next_multiple_of(128) / 4,
        _ => return None,
    })
}

impl Layout {
    /// The layout of `view`; `None` for types that are not those of weights.
    pub fn new(view: &TensorView<'_>) -> Option<Self> {
        let (dtype, rows, cols) = (view.dtype(), view.rows() as u64, view.cols() as u64);
        let stride = stride(dtype, cols)?;
        let places = view.quantised();
        let scale_count = match dtype {
            DType::Q8 | DType::Q4 => rows,
            DType::T2 => 1,
            _ => 0,
        };
        let multiplier_count = places.multipliers.len() as u64;
        // Sizes in a file are below 2^24: none of these products comes near 2^64.
        let scales = (rows * stride).next_multiple_of(ALIGNMENT);
        let multipliers = (scales + 4 * scale_count).next_multiple_of(ALIGNMENT);
        let offsets = (multipliers + multiplier_count).next_multiple_of(ALIGNMENT);
        let bytes = (offsets + places.offsets.len() as u64).next_multiple_of(ALIGNMENT);
        let groups = if dtype.is_quantised() { places.groups as u32 } else { 1 };
        let units = if dtype.is_quantised() { (places.group_len as u32).div_ceil(8).max(1) } else { 1 };
        Some(Self { dtype, rows, cols: cols as u32, stride, groups, units, scales, multipliers, multiplier_count, offsets, bytes })
    }

    /// Bytes on the device.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes of it that a product reads: the planes without what aligns them.
    pub const fn read_bytes(&self) -> u64 {
        let scales = match self.dtype {
            DType::Q8 | DType::Q4 => 4 * self.rows,
            DType::T2 => 4,
            _ => 0,
        };
        let offsets = if matches!(self.dtype, DType::Q4) { 2 * self.multiplier_count } else { 0 };
        self.rows * self.stride + scales + self.multiplier_count + offsets
    }

    /// The element type.
    pub const fn dtype(&self) -> DType {
        self.dtype
    }

    /// Rows.
    pub const fn rows(&self) -> u32 {
        self.rows as u32
    }

    /// Columns.
    pub const fn cols(&self) -> u32 {
        self.cols
    }

    /// The argument for kernels of a matrix that lies at `address`.
    pub const fn matrix(&self, address: u64) -> Matrix {
        let quantised = self.dtype.is_quantised();
        Matrix {
            codes: address,
            scales: if quantised { address + self.scales } else { 0 },
            multipliers: if self.multiplier_count > 0 { address + self.multipliers } else { 0 },
            offsets: if matches!(self.dtype, DType::Q4) { address + self.offsets } else { 0 },
            rows: self.rows as u32,
            cols: self.cols,
            stride: self.stride as u32,
            dtype: self.dtype.code() as u32,
            groups: self.groups,
            units: self.units,
        }
    }

    /// Writes the rows `first..first + count` of `view`, the tensor that the layout was made of, into `out`, which is `count` rows of codes long: for an upload in parts.
    ///
    /// # Panics
    /// If `out` is not that long or the rows are not there.
    pub fn write_rows(&self, view: &TensorView<'_>, first: usize, out: &mut [u8]) {
        let stride = self.stride as usize;
        assert!(out.len().is_multiple_of(stride) && (first + out.len() / stride) as u64 <= self.rows, "rows of the layout");
        for (row, out) in (first..).zip(out.chunks_exact_mut(stride)) {
            match self.dtype {
                DType::F32 => spread::<4>(source(view, row, self.cols as usize * 4), out),
                DType::F16 | DType::Bf16 => spread::<2>(source(view, row, self.cols as usize * 2), out),
                DType::Q8 => copy(source(view, row, view.quantised().row_stride), out, self.cols as usize),
                DType::Q4 => nibbles(source(view, row, view.quantised().row_stride), out, self.cols as usize),
                _ => ternary(source(view, row, view.quantised().row_stride), out, self.cols as usize),
            }
        }
    }

    /// Writes the whole tensor into `out`, which is [`Layout::bytes`] long.
    ///
    /// # Panics
    /// If `out` has another length.
    pub fn write(&self, view: &TensorView<'_>, out: &mut [u8]) {
        assert_eq!(out.len() as u64, self.bytes, "bytes of the layout");
        let (codes, planes) = out.split_at_mut((self.rows * self.stride) as usize);
        planes.fill(0);
        self.write_rows(view, 0, codes);
        let source = view.quantised();
        for (at, plane) in [(self.scales, source.scales), (self.multipliers, source.multipliers), (self.offsets, source.offsets)] {
            let at = at as usize;
            out[at..at + plane.len()].copy_from_slice(plane);
        }
    }
}

fn source<'a>(view: &TensorView<'a>, row: usize, stride: usize) -> &'a [u8] {
    &view.bytes()[row * stride..(row + 1) * stride]
}

/// Floats of `N` bytes: of each run of 8 * (16 / N), lane l's in 16 bytes, element l first, then l + 8 and so on.
fn spread<const N: usize>(row: &[u8], out: &mut [u8]) {
    out.fill(0);
    let each = 16 / N;
    for (i, element) in row.chunks_exact(N).enumerate() {
        let (run, within) = (i / (LANES * each), i % (LANES * each));
        let place = (run * LANES + within % LANES) * 16 + within / LANES * N;
        out[place..place + N].copy_from_slice(element);
    }
}

/// q8: as stored, without what padded the row there.
fn copy(row: &[u8], out: &mut [u8], cols: usize) {
    let (codes, padding) = out.split_at_mut(cols);
    codes.copy_from_slice(&row[..cols]);
    padding.fill(0);
}

/// q4: of each unit of 8 codes, byte j has code j in its low half and code 4 + j in its high one.
fn nibbles(row: &[u8], out: &mut [u8], cols: usize) {
    out.fill(0);
    for i in 0..cols {
        let code = row[i / 2] >> (4 * (i & 1)) & 15;
        out[i / 8 * 4 + i % 4] |= code << (4 * (i / 4 % 2));
    }
}

/// t2: of each run of 128 codes, lane l's 16 in a word, code l lowest, then l + 8 and so on.
fn ternary(row: &[u8], out: &mut [u8], cols: usize) {
    out.fill(0);
    for i in 0..cols {
        let code = row[i / 4] >> (2 * (i & 3)) & 3;
        let (run, within) = (i / 128, i % 128);
        let bit = (run * LANES + within % LANES) * 32 + within / LANES * 2;
        out[bit / 8] |= code << (bit % 8);
    }
}

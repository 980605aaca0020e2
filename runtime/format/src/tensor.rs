//! A tensor where it lies: element type, dims and the bytes, borrowed from the file.

use crate::bytes::array;
use crate::planes::Planes;
use crate::{DType, Error, Rule};

/// Bytes of a [`TensorView`] on a chip of 32 bits, where `include_model!` places a table of them.
pub const VIEW_BYTES_32: usize = 36;

#[cfg(target_pointer_width = "32")]
const _: () = assert!(size_of::<TensorView<'_>>() == VIEW_BYTES_32, "the size that plans reckon with");

/// The sizes of a tensor's axes, 1 to 4 of them, row-major, the reduced (input) axis last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Dims {
    sizes: [u32; 4],
    rank: u8,
}

impl Dims {
    /// One axis.
    pub const fn vector(n: u32) -> Self {
        Self { sizes: [n, 1, 1, 1], rank: 1 }
    }

    /// `rows` by `cols`.
    pub const fn matrix(rows: u32, cols: u32) -> Self {
        Self { sizes: [rows, cols, 1, 1], rank: 2 }
    }

    /// From 1 to 4 sizes, none of them 0; `tensor` is named in the error.
    ///
    /// # Errors
    /// [`Error::Tensor`] with [`Rule::Rank`], [`Rule::NotZero`] or [`Rule::TooLarge`] (more than 2^48 elements).
    pub const fn new(tensor: u32, rank: u32, sizes: [u32; 4]) -> Result<Self, Error> {
        if rank < 1 || rank > 4 {
            return Err(Error::Tensor { tensor, rule: Rule::Rank, found: rank as u64, allowed: 4 });
        }
        let limit = 1u64 << 48;
        let [a, b, c, d] = sizes;
        let kept = [a, if rank > 1 { b } else { 1 }, if rank > 2 { c } else { 1 }, if rank > 3 { d } else { 1 }];
        let mut count = 1u64;
        let mut rest: &[u32] = &kept;
        while let [size, tail @ ..] = rest {
            if *size == 0 {
                return Err(Error::Tensor { tensor, rule: Rule::NotZero, found: 0, allowed: 1 });
            }
            // Both large: the product is past the limit. Otherwise it fits 64 bits.
            if count > u32::MAX as u64 && *size > u16::MAX as u32 {
                return Err(Error::Tensor { tensor, rule: Rule::TooLarge, found: count, allowed: limit });
            }
            count *= *size as u64;
            if count > limit {
                return Err(Error::Tensor { tensor, rule: Rule::TooLarge, found: count, allowed: limit });
            }
            rest = tail;
        }
        Ok(Self { sizes: kept, rank: rank as u8 })
    }

    /// [`Dims::new`] of what was checked before.
    pub(crate) const fn of_checked(rank: u8, sizes: [u32; 4]) -> Self {
        Self { sizes, rank }
    }

    /// The sizes, axis by axis.
    pub fn as_slice(&self) -> &[u32] {
        self.sizes.get(..self.rank as usize).unwrap_or(&[])
    }

    /// All four sizes; axes past the rank are 1.
    pub const fn padded(&self) -> [u32; 4] {
        self.sizes
    }

    /// How many axes.
    pub const fn rank(&self) -> u32 {
        self.rank as u32
    }

    /// How many elements.
    pub const fn count(&self) -> u64 {
        let [a, b, c, d] = self.sizes;
        a as u64 * b as u64 * c as u64 * d as u64
    }

    /// The last axis: the length of a row.
    pub const fn cols(&self) -> u32 {
        // A rank is 1 to 4.
        self.sizes[(self.rank as usize).wrapping_sub(1) & 3]
    }

    /// The number of rows: the product of all axes but the last.
    pub const fn rows(&self) -> u64 {
        let [a, b, c, _] = self.sizes;
        // Nearly every tensor is a matrix, and sizes past the rank are 1.
        match self.rank {
            2 => a as u64,
            1 => 1,
            3 => a as u64 * b as u64,
            _ => a as u64 * b as u64 * c as u64,
        }
    }

    /// Whether both have the same rank and sizes.
    pub const fn equals(&self, other: &Self) -> bool {
        let [a, b, c, d] = self.sizes;
        let [e, f, g, h] = other.sizes;
        self.rank == other.rank && a == e && b == f && c == g && d == h
    }
}

/// A tensor borrowed from a file.
///
/// Made only with a length that fits its dims, so no accessor can fail. The bytes may lie at any address: the accessors that give typed slices return `None` where the alignment (or the
/// byte order of the machine) does not allow them, and readers then take the elements one by one.
#[derive(Clone, Copy, Debug)]
pub struct TensorView<'a> {
    dtype: DType,
    group: u32,
    dims: Dims,
    bytes: &'a [u8],
}

impl<'a> TensorView<'a> {
    /// A view of `bytes`, whose length must be what `dims` and `dtype` need; `tensor` is named in the error. A q8 or q4 tensor has one group a row.
    ///
    /// # Errors
    /// [`Error::Tensor`] with [`Rule::Length`] when the length is another.
    pub const fn new(tensor: u32, dtype: DType, dims: Dims, bytes: &'a [u8]) -> Result<Self, Error> {
        Self::grouped(tensor, dtype, dims, 0, bytes)
    }

    /// A view of `bytes` with `group` elements of a row to a multiplier (0: the whole row); `tensor` is named in the error.
    ///
    /// # Errors
    /// Those of [`Planes::new`], and [`Error::Tensor`] with [`Rule::Length`] when the length is another than it calls for.
    pub const fn grouped(tensor: u32, dtype: DType, dims: Dims, group: u32, bytes: &'a [u8]) -> Result<Self, Error> {
        let needed = match Planes::new(tensor, dtype, dims, group) {
            Ok(planes) => planes.bytes,
            Err(error) => return Err(error),
        };
        if bytes.len() as u64 != needed {
            return Err(Error::Tensor { tensor, rule: Rule::Length, found: bytes.len() as u64, allowed: needed });
        }
        Ok(Self { dtype, group, dims, bytes })
    }

    /// The same tensor at another place: `bytes` is a copy of its bytes. `None` where they are not as many.
    pub const fn moved(&self, bytes: &'a [u8]) -> Option<Self> {
        if bytes.len() == self.bytes.len() { Some(Self { bytes, ..*self }) } else { None }
    }

    /// [`TensorView::grouped`] of what was compared before.
    pub(crate) const fn of_checked(dtype: DType, dims: Dims, group: u32, bytes: &'a [u8]) -> Self {
        Self { dtype, group, dims, bytes }
    }

    /// A view of no elements at all: what stands where an architecture has no such tensor.
    pub const EMPTY: Self = Self { dtype: DType::F32, group: 0, dims: Dims { sizes: [0, 1, 1, 1], rank: 1 }, bytes: &[] };

    /// How the elements are stored.
    pub const fn dtype(&self) -> DType {
        self.dtype
    }

    /// Elements of a row that share a multiplier, as the file says it; 0: the whole row, and for types without groups.
    pub const fn group(&self) -> u32 {
        self.group
    }

    /// The sizes of the axes.
    pub const fn dims(&self) -> Dims {
        self.dims
    }

    /// Rows: the product of all axes but the last.
    pub const fn rows(&self) -> usize {
        self.dims.rows() as usize
    }

    /// The length of a row.
    pub const fn cols(&self) -> usize {
        self.dims.cols() as usize
    }

    /// The stored bytes.
    pub const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// All elements of an `f32` tensor, if they are aligned and the machine is little-endian.
    pub fn as_f32(&self) -> Option<&'a [f32]> {
        self.typed(DType::F32)
    }

    /// All elements of a `u32` tensor, if they are aligned and the machine is little-endian.
    pub fn as_u32(&self) -> Option<&'a [u32]> {
        self.typed(DType::U32)
    }

    /// The bit patterns of an `f16` or `bf16` tensor, if they are aligned and the machine is little-endian.
    pub fn as_u16(&self) -> Option<&'a [u16]> {
        match self.dtype {
            DType::F16 | DType::Bf16 => self.typed(self.dtype),
            _ => None,
        }
    }

    fn typed<T: bytemuck::AnyBitPattern>(&self, dtype: DType) -> Option<&'a [T]> {
        if self.dtype == dtype && cfg!(target_endian = "little") { bytemuck::try_cast_slice(self.bytes).ok() } else { None }
    }

    /// Element `index` widened to `f32`; 0 past the end and for types that are not weights. For tables that are read seldom: the kernels
    /// have faster ways.
    ///
    /// A quantised element is its row's scale times an integer that `f32` holds exactly: one rounding.
    pub fn get_f32(&self, index: usize) -> f32 {
        if !self.dtype.is_quantised() {
            return self.dtype.element(self.bytes, index);
        }
        let (Some(row), Some(column)) = (index.checked_div(self.cols()), index.checked_rem(self.cols())) else { return 0.0 };
        let scale = if self.dtype == DType::T2 { self.scale() } else { self.row_scale(row) };
        scale * self.integer(row, column) as f32
    }

    /// Element `index` widened to `f32`, of a tensor whose elements are floats, each by itself; 0 past the end and for other types. Gains, biases and frequencies are never quantised, so
    /// firmware that reads them by this need not hold what [`TensorView::get_f32`] does.
    pub fn get_float(&self, index: usize) -> f32 {
        self.dtype.element(self.bytes, index)
    }

    /// Element `index` of a `u32` tensor; `None` past the end and for other types.
    pub fn get_u32(&self, index: usize) -> Option<u32> {
        if self.dtype == DType::U32 { array(self.bytes, index.checked_mul(4)?).map(u32::from_le_bytes) } else { None }
    }
}

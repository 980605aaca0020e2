//! Where the parts of a quantised tensor lie within its bytes: codes, scales, multipliers, offsets. Used by [`TensorView`], the index, the writers and, in constants, `include_model!`.
//!
//! A row of codes is padded to 4 bytes; every plane starts at the next multiple of 16 from the tensor's start. Groups are counted from the start of a row and never straddle rows; the
//! last one of a row may be short.

use crate::bytes::{align_up, part, u16_at, u32_at};
use crate::{DType, Dims, Error, Rule, TensorView};

/// Every plane but the first starts at a multiple of this many bytes from the tensor's start.
const PLANE_ALIGNMENT: u64 = 16;
/// Rows of codes are padded to this many bytes.
const ROW_ALIGNMENT: u64 = 4;
/// A group's length is a multiple of this, so that a group of codes starts at a whole word in q8 and in q4.
pub const GROUP_MULTIPLE: u32 = 8;
/// The longest row of a quantised matrix: sums of its products are exact in 64 bits, and the sum of its activation codes in 32.
pub const COLUMN_LIMIT: u32 = 65_536;

/// Sizes and places of the planes of one tensor, in bytes from its start. A tensor that is not quantised has one plane, its elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Planes {
    /// Bytes from one row of codes to the next.
    pub row_stride: u64,
    /// Groups in a row: multipliers (and offsets) a row, if there are any.
    pub groups: u64,
    /// Where the `f32` scales start: one a row; in t2 one.
    pub scales: u64,
    /// Where the `u8` multipliers start, row x group.
    pub multipliers: u64,
    /// How many multipliers there are.
    pub multiplier_count: u64,
    /// Where the `i16` offsets start, row x group.
    pub offsets: u64,
    /// How many offsets there are.
    pub offset_count: u64,
    /// Bytes of the tensor.
    pub bytes: u64,
}

impl Planes {
    /// The planes of a tensor of this type and shape with `group` elements of a row to a multiplier (0: the whole row); `tensor` is named in the error.
    ///
    /// # Errors
    /// [`Error::Tensor`]: a group for a type that has none ([`Rule::Zero`]), one that is no multiple of [`GROUP_MULTIPLE`], or larger than a row; a row longer than [`COLUMN_LIMIT`].
    pub const fn new(tensor: u32, dtype: DType, dims: Dims, group: u32) -> Result<Self, Error> {
        let (rows, cols) = (dims.rows(), dims.cols());
        let grouped = matches!(dtype, DType::Q8 | DType::Q4);
        if group != 0 {
            if !grouped {
                return Err(fault(tensor, Rule::Zero, group, 0));
            }
            if group & (GROUP_MULTIPLE - 1) != 0 {
                return Err(fault(tensor, Rule::Multiple, group, GROUP_MULTIPLE));
            }
            if group > cols {
                return Err(fault(tensor, Rule::TooLarge, group, cols));
            }
        }
        if dtype.is_quantised() && cols > COLUMN_LIMIT {
            return Err(fault(tensor, Rule::TooLarge, cols, COLUMN_LIMIT));
        }
        // At most 2^48 elements: nothing below comes near 2^53.
        let code_bytes = match dtype {
            DType::Q8 => cols as u64,
            DType::Q4 => (cols as u64).div_ceil(2),
            DType::T2 => (cols as u64).div_ceil(4),
            _ => {
                let bytes = dims.count() * dtype.size();
                let row_stride = cols as u64 * dtype.size();
                return Ok(Self {
                    row_stride,
                    groups: 1,
                    scales: bytes,
                    multipliers: bytes,
                    multiplier_count: 0,
                    offsets: bytes,
                    offset_count: 0,
                    bytes,
                });
            }
        };
        let row_stride = align_up(code_bytes, ROW_ALIGNMENT);
        let groups = if group == 0 { 1 } else { cols.div_ceil(group) as u64 };
        let scales = align_up(rows * row_stride, PLANE_ALIGNMENT);
        let scale_count = if grouped { rows } else { 1 };
        let scales_end = scales + 4 * scale_count;
        let multiplier_count = if matches!(dtype, DType::Q4) || group != 0 { rows * groups } else { 0 };
        let multipliers = align_up(scales_end, PLANE_ALIGNMENT);
        let multipliers_end = multipliers + multiplier_count;
        let offset_count = if matches!(dtype, DType::Q4) { multiplier_count } else { 0 };
        let offsets = align_up(multipliers_end, PLANE_ALIGNMENT);
        let bytes = if offset_count > 0 {
            offsets + 2 * offset_count
        } else if multiplier_count > 0 {
            multipliers_end
        } else {
            scales_end
        };
        Ok(Self { row_stride, groups, scales, multipliers, multiplier_count, offsets, offset_count, bytes })
    }
}

#[cold]
#[inline(never)]
const fn fault(tensor: u32, rule: Rule, found: u32, allowed: u32) -> Error {
    Error::Tensor { tensor, rule, found: found as u64, allowed: allowed as u64 }
}

/// The planes of a quantised tensor, found once for a whole product: by additions of machine words, where [`Planes`] is careful in 64 bits.
#[derive(Clone, Copy, Debug)]
pub struct Quantised<'a> {
    /// The codes, row after row.
    pub codes: &'a [u8],
    /// Bytes from one row of codes to the next.
    pub row_stride: usize,
    /// Elements of a row that share a multiplier.
    pub group_len: usize,
    /// Groups in a row.
    pub groups: usize,
    /// Little-endian `f32`: one a row, or a single one in t2.
    pub scales: &'a [u8],
    /// One a group; none in q8 with one group a row.
    pub multipliers: &'a [u8],
    /// Little-endian `i16`, one a group of q4.
    pub offsets: &'a [u8],
}

/// Where the planes of a quantised tensor begin, in bytes from its start, and what a row is made of; see [`Quantised`].
#[derive(Clone, Copy, Debug)]
pub struct Places {
    /// Rows.
    pub rows: usize,
    /// Elements of a row.
    pub cols: usize,
    /// Bytes from one row of codes to the next.
    pub row_stride: usize,
    /// Elements of a row that share a multiplier.
    pub group_len: usize,
    /// Groups in a row.
    pub groups: usize,
    /// The scales, one a row.
    pub scales: usize,
    /// The multipliers.
    pub multipliers: usize,
    /// How many multipliers there are.
    pub grouped: usize,
    /// The offsets of q4, as many as multipliers.
    pub offsets: usize,
}

impl<'a> TensorView<'a> {
    /// Where the planes begin; of no use for a type that is not quantised. All of them lie within the bytes.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "most callers want a few of the numbers, and returning them all costs more than finding them")]
    pub fn places(&self) -> Places {
        let (rows, cols, group) = (self.rows(), self.cols(), self.group() as usize);
        let (code_bytes, scales) = match self.dtype() {
            DType::Q8 => (cols, rows),
            DType::Q4 => (cols.div_ceil(2), rows),
            DType::T2 => (cols.div_ceil(4), 1),
            _ => (0, 0),
        };
        // `new` compared all of these with the length of the bytes, which a word counts: nothing wraps.
        let after = |start: usize, len: usize| start.wrapping_add(len).wrapping_add(15) & !15;
        let row_stride = code_bytes.wrapping_add(3) & !3;
        let (groups, group_len) = if group == 0 { (1, cols) } else { (cols.div_ceil(group), group) };
        let grouped = if self.dtype() == DType::Q4 || group != 0 { rows.wrapping_mul(groups) } else { 0 };
        let scales_at = after(0, rows.wrapping_mul(row_stride));
        let multipliers = after(scales_at, scales.wrapping_mul(4));
        Places { rows, cols, row_stride, group_len, groups, scales: scales_at, multipliers, grouped, offsets: after(multipliers, grouped) }
    }

    /// The planes; all empty for a type that is not quantised.
    #[inline(never)]
    pub fn quantised(&self) -> Quantised<'a> {
        let Places { rows, row_stride, group_len, groups, scales, multipliers, grouped, offsets, .. } = self.places();
        let plane = |start: usize, len: usize| self.bytes().get(start..start.wrapping_add(len)).unwrap_or(&[]);
        let scale_count = match self.dtype() {
            DType::Q8 | DType::Q4 => rows,
            DType::T2 => 1,
            _ => 0,
        };
        Quantised {
            codes: plane(0, rows.wrapping_mul(row_stride)),
            row_stride,
            group_len,
            groups,
            scales: plane(scales, scale_count.wrapping_mul(4)),
            multipliers: plane(multipliers, grouped),
            offsets: plane(offsets, if self.dtype() == DType::Q4 { grouped.wrapping_mul(2) } else { 0 }),
        }
    }
}

/// The planes of a quantised tensor. `new` compared the length of the bytes with [`Planes`], so nothing here can fail; for other types all planes are empty.
impl<'a> TensorView<'a> {
    /// Where its planes lie.
    pub const fn planes(&self) -> Planes {
        match Planes::new(0, self.dtype(), self.dims(), self.group()) {
            Ok(planes) => planes,
            // `new` made them before.
            Err(_) => {
                Planes { row_stride: 0, groups: 1, scales: 0, multipliers: 0, multiplier_count: 0, offsets: 0, offset_count: 0, bytes: 0 }
            }
        }
    }

    /// Elements of a row that share a multiplier (and an offset), counted from the row's start; the last group of a row may be shorter. The row's length where a row is one group.
    pub const fn group_len(&self) -> usize {
        if self.group() == 0 { self.cols() } else { self.group() as usize }
    }

    /// The codes, row after row, each padded with zero bytes to [`Planes::row_stride`]. q8: one `i8` each. q4: two a byte, low nibble first. t2: four a byte, low bits first.
    pub fn codes(&self) -> &'a [u8] {
        let planes = self.planes();
        self.plane(0, if self.dtype().is_quantised() { (self.rows() as u64).saturating_mul(planes.row_stride) } else { 0 })
    }

    /// The scales: little-endian `f32`, one a row, or a single one in t2.
    pub fn scales(&self) -> &'a [u8] {
        let planes = self.planes();
        let count = match self.dtype() {
            DType::Q8 | DType::Q4 => self.rows() as u64,
            DType::T2 => 1,
            _ => 0,
        };
        self.plane(planes.scales, 4 * count)
    }

    /// The multipliers, row x group; empty in q8 with one group a row.
    pub fn multipliers(&self) -> &'a [u8] {
        let planes = self.planes();
        self.plane(planes.multipliers, planes.multiplier_count)
    }

    /// The offsets of q4, row x group: little-endian `i16`.
    pub fn offsets(&self) -> &'a [u8] {
        let planes = self.planes();
        self.plane(planes.offsets, 2 * planes.offset_count)
    }

    /// The scale of a row of q8 or q4; 0 past the last.
    pub fn row_scale(&self, row: usize) -> f32 {
        f32::from_bits(u32_at(self.quantised().scales, row.saturating_mul(4)))
    }

    /// The scale of a t2 tensor.
    pub fn scale(&self) -> f32 {
        self.row_scale(0)
    }

    /// The integer that an element's scale is multiplied by: code times multiplier, plus offset; at most 36,593 in magnitude, so `f32` holds it exactly. 0 past the end.
    #[inline(never)]
    pub fn integer(&self, row: usize, column: usize) -> i32 {
        let Quantised { codes, row_stride, group_len, groups, multipliers, offsets, .. } = self.quantised();
        if column >= self.cols() {
            return 0;
        }
        let group = row.saturating_mul(groups).saturating_add(column.checked_div(group_len).unwrap_or(0));
        let code = |at: usize| codes.get(row.saturating_mul(row_stride).saturating_add(at)).copied().unwrap_or(0);
        let code = match self.dtype() {
            DType::Q8 => i32::from(code(column).cast_signed()),
            DType::Q4 => i32::from(code(column / 2) >> (4 * (column & 1)) & 15),
            DType::T2 => match code(column / 4) >> (2 * (column & 3)) & 3 {
                1 => 1,
                2 => -1,
                _ => 0,
            },
            _ => 0,
        };
        code * i32::from(multipliers.get(group).copied().unwrap_or(1)) + i32::from(u16_at(offsets, group.saturating_mul(2)).cast_signed())
    }

    fn plane(&self, start: u64, len: u64) -> &'a [u8] {
        part(self.bytes(), start as usize, len as usize).unwrap_or(&[])
    }
}

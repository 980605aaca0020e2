//! The planes of a q8 or q4 matrix as the kernels walk them: compared once with what they must hold, then read by addresses.

use crate::format::{Quantised, TensorView};
use crate::ops::integer::Integers;

/// Rows of a matrix, of which every plane is as long as they need.
#[derive(Clone, Copy)]
pub(super) struct Rows<'a> {
    planes: Quantised<'a>,
    /// Elements of a row.
    pub(super) cols: usize,
    /// Bytes from one row of codes to the next.
    pub(super) stride: usize,
    /// Groups in a row.
    pub(super) groups: usize,
    /// Elements that share a multiplier.
    pub(super) group_len: usize,
    /// Rows from one to the next of the four that are multiplied together: a quarter of all, see [`avx2_floats`](super::avx2_floats).
    pub(super) apart: usize,
}

impl<'a> Rows<'a> {
    /// `count` rows of `w` from `first` on, of which each byte holds `per_byte` codes; `None` where a plane, or what there is of `x`, is too short for them.
    pub(super) fn new(w: &TensorView<'a>, (first, count): (usize, usize), x: &Integers<'_>, per_byte: usize) -> Option<Self> {
        let whole = w.quantised();
        let after = |plane: &'a [u8], a_row: usize| plane.get(first.saturating_mul(a_row)..).unwrap_or(&[]);
        let planes = Quantised {
            codes: after(whole.codes, whole.row_stride),
            scales: after(whole.scales, 4),
            multipliers: after(whole.multipliers, whole.groups),
            offsets: after(whole.offsets, whole.groups.saturating_mul(2)),
            ..whole
        };
        let Quantised { codes, row_stride, groups, group_len, scales, multipliers, offsets } = planes;
        let cols = w.cols();
        let hold = |len: usize, a_row: usize| a_row.checked_mul(count).is_some_and(|needed| needed <= len);
        let groups_fit = (multipliers.is_empty() && groups == 1 || hold(multipliers.len(), groups))
            && (offsets.is_empty() || hold(offsets.len(), 2 * groups));
        let x_fits = x.codes.len() >= cols && x.sums.len() >= cols.div_ceil(group_len.max(1)) && group_len > 0;
        let fit = hold(codes.len(), row_stride) && row_stride >= cols.div_ceil(per_byte) && hold(scales.len(), 4) && groups_fit && x_fits;
        fit.then_some(Self { planes, cols, stride: row_stride, groups, group_len, apart: count / 4 })
    }

    /// Where the codes of a row are.
    #[inline]
    pub(super) fn codes_of(&self, row: usize) -> *const u8 {
        self.planes.codes.as_ptr().wrapping_add(row.wrapping_mul(self.stride))
    }

    /// Where its multipliers are, one a group.
    #[inline]
    pub(super) fn multipliers_of(&self, row: usize) -> *const u8 {
        self.planes.multipliers.as_ptr().wrapping_add(row.wrapping_mul(self.groups))
    }

    /// The codes of a row and what pads them.
    pub(super) fn codes_slice(&self, row: usize) -> &'a [u8] {
        self.planes.codes.chunks(self.stride.max(1)).nth(row).unwrap_or(&[])
    }

    /// The multipliers of a row.
    pub(super) fn multipliers_slice(&self, row: usize) -> &'a [u8] {
        self.planes.multipliers.chunks(self.groups.max(1)).nth(row).unwrap_or(&[])
    }

    /// Whether there are multipliers.
    #[inline]
    pub(super) fn has_multipliers(&self) -> bool {
        !self.planes.multipliers.is_empty()
    }

    /// Where its offsets are, of 16 bits, one a group.
    #[inline]
    pub(super) fn offsets_of(&self, row: usize) -> *const u8 {
        self.planes.offsets.as_ptr().wrapping_add(row.wrapping_mul(2).wrapping_mul(self.groups))
    }

    /// The scales of `row` and of the rows that are multiplied together with it; 0 past the last.
    #[inline]
    pub(super) fn scales_apart(&self, row: usize) -> [f32; 4] {
        let scales = self.planes.scales.as_chunks::<4>().0;
        [0, 1, 2, 3].map(|r| scales.get(row + r * self.apart).map_or(0.0, |scale| f32::from_le_bytes(*scale)))
    }

    /// The scales of four rows; 0 past the last.
    #[inline]
    pub(super) fn scales_from(&self, row: usize) -> [f32; 4] {
        let mut scales = self.planes.scales.get(4 * row..).unwrap_or(&[]).as_chunks::<4>().0.iter();
        [0; 4].map(|_| scales.next().map_or(0.0, |scale| f32::from_le_bytes(*scale)))
    }
}

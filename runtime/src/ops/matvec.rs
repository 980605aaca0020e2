//! Matrix times vector, and single rows widened: called by every model for each of its projections.

use super::activation::Activation;
use super::{chip, integer};
#[cfg(any(feature = "q8", feature = "q4", feature = "t2"))]
use crate::format::DType;
#[cfg(any(test, all(feature = "llama", not(target_os = "none"))))]
use crate::format::Dims;
use crate::format::TensorView;

/// `out[r] = dot8(row r of w, x)` for floats, the exact integer sum times the scales for q8 and q4, the scale times `dot8` for t2; then `+ bias[r]` if there is a bias.
///
/// `w` is [`out.len()`, length of `x`] of any weight type at any address; the bits do not depend on the alignment. `bias` has `out.len()` elements. A `w`
/// with another width or too few rows gives zeros. `bind` refuses that beforehand, and element types that were left out of the build, which give zeros or take long.
pub fn matvec(out: &mut [f32], w: &TensorView<'_>, x: &mut Activation<'_>, bias: Option<&TensorView<'_>>) {
    if w.cols() != x.floats().len() || w.rows() < out.len() || !integer::is_only(w.dtype()) {
        out.fill(0.0);
        return;
    }
    match integer::only(w.dtype()) {
        #[cfg(any(feature = "q8", feature = "q4"))]
        DType::Q8 | DType::Q4 => chip::matvec_integer(out, w, x.integers(w)),
        #[cfg(feature = "t2")]
        DType::T2 => integer::matvec_t2(out, w, x.floats()),
        _ if cfg!(any(feature = "f32", feature = "f16", feature = "bf16")) => chip::matvec(out, w, x.floats()),
        _ => out.fill(0.0),
    }
    if let Some(bias) = bias {
        add_vector(out, bias);
    }
}

/// A matrix and a vector of which any rows can be multiplied, by several threads at a time.
#[cfg(all(feature = "llama", not(target_os = "none")))]
#[derive(Clone, Copy)]
pub(crate) struct Rows<'r> {
    w: &'r TensorView<'r>,
    x: &'r [f32],
    #[cfg(any(feature = "q8", feature = "q4"))]
    integers: Option<integer::Integers<'r>>,
}

#[cfg(all(feature = "llama", not(target_os = "none")))]
impl<'r> Rows<'r> {
    /// `count` rows of `w`; `None` for a matrix that is not multiplied in parts, and where [`matvec`] gives zeros.
    pub(crate) fn new(w: &'r TensorView<'r>, count: usize, x: &'r mut Activation<'_>) -> Option<Self> {
        if w.cols() != x.floats().len() || w.rows() < count || !integer::is_only(w.dtype()) {
            return None;
        }
        let floats = x.floats();
        match integer::only(w.dtype()) {
            #[cfg(any(feature = "q8", feature = "q4"))]
            DType::Q8 | DType::Q4 => Some(Self { w, x: floats, integers: Some(x.integers(w)) }),
            #[cfg(feature = "t2")]
            DType::T2 => None,
            _ => Some(Self {
                w,
                x: floats,
                #[cfg(any(feature = "q8", feature = "q4"))]
                integers: None,
            }),
        }
    }

    /// `out` = the rows from `first` on times the vector.
    pub(crate) fn multiply(&self, out: &mut [f32], first: usize) {
        #[cfg(any(feature = "q8", feature = "q4"))]
        if let Some(x) = self.integers {
            return chip::matvec_integer_from(out, self.w, first, x);
        }
        let row = self.w.bytes().len().checked_div(self.w.rows()).unwrap_or(0);
        let bytes = self.w.bytes().get(first.saturating_mul(row)..).and_then(|rest| rest.get(..out.len().saturating_mul(row)));
        let dims = Dims::matrix(out.len() as u32, self.w.cols() as u32);
        match bytes.and_then(|bytes| TensorView::new(0, self.w.dtype(), dims, bytes).ok()) {
            Some(rows) => chip::matvec(out, &rows, self.x),
            None => out.fill(0.0),
        }
    }
}

/// `out` = row `row` of `w`, widened; zeros past the end of either, and for an element type that was left out of the build.
#[inline(never)]
pub fn widen_row(out: &mut [f32], w: &TensorView<'_>, row: usize) {
    if !integer::is_only(w.dtype()) {
        return out.fill(0.0);
    }
    let quantised = cfg!(any(feature = "q8", feature = "q4", feature = "t2")) && integer::only(w.dtype()).is_quantised();
    if quantised && out.len() == w.cols() && row < w.rows() {
        return integer::widen_row(out, w, row);
    }
    let start = row.wrapping_mul(w.cols());
    for (j, y) in out.iter_mut().enumerate() {
        *y = if j < w.cols() { w.get_float(start.wrapping_add(j)) } else { 0.0 };
    }
}

/// `out[r] = out[r] + vector[r]`: a bias, of any float type at any address.
#[inline(never)]
pub fn add_vector(out: &mut [f32], vector: &TensorView<'_>) {
    for (i, y) in out.iter_mut().enumerate() {
        *y += vector.get_float(i);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::layout::activation_words;
    use crate::ops::convert::narrow_f16;
    use crate::ops::sum::dot8;
    use crate::ops::test_rng::Rng;

    /// Bytes at an address of the wanted remainder modulo 4.
    struct Placed {
        memory: Vec<u32>,
        offset: usize,
        len: usize,
    }

    impl Placed {
        fn new(bytes: &[u8], offset: usize) -> Self {
            let mut memory = vec![0u32; bytes.len() / 4 + 3];
            bytemuck::cast_slice_mut(&mut memory)[offset..offset + bytes.len()].copy_from_slice(bytes);
            Self { memory, offset, len: bytes.len() }
        }

        fn bytes(&self) -> &[u8] {
            &bytemuck::cast_slice(&self.memory)[self.offset..self.offset + self.len]
        }
    }

    fn stored(dtype: DType, values: &[f32]) -> (Vec<u8>, Vec<f32>) {
        match dtype {
            DType::F32 => (values.iter().flat_map(|v| v.to_le_bytes()).collect(), values.to_vec()),
            DType::F16 => (
                values.iter().flat_map(|v| half::f16::from_f32(*v).to_le_bytes()).collect(),
                values.iter().map(|v| half::f16::from_f32(*v).to_f32()).collect(),
            ),
            _ => (
                values.iter().flat_map(|v| half::bf16::from_f32(*v).to_le_bytes()).collect(),
                values.iter().map(|v| half::bf16::from_f32(*v).to_f32()).collect(),
            ),
        }
    }

    fn bits(values: &[f32]) -> Vec<u32> {
        values.iter().map(|v| v.to_bits()).collect()
    }

    fn run(out: &mut [f32], w: &TensorView<'_>, x: &[f32], bias: Option<&TensorView<'_>>) {
        let mut scratch = vec![f32::NAN; activation_words(x.len() as u32) as usize];
        matvec(out, w, &mut Activation::new(x, &mut scratch), bias);
    }

    #[test]
    fn every_type_at_every_address_gives_the_bits_of_dot8() {
        let mut rng = Rng::new(2);
        for dtype in [DType::F32, DType::F16, DType::Bf16] {
            for cols in (1..34).chain([64, 100, 172, 255]).step_by(if cfg!(miri) { 9 } else { 1 }) {
                for rows in (0..10).chain([13]).step_by(if cfg!(miri) { 5 } else { 1 }) {
                    let (bytes, values) = stored(dtype, &rng.floats(rows.max(1) * cols));
                    let (bias_bytes, bias) = stored(DType::F32, &rng.floats(rows.max(1)));
                    let x = rng.floats(cols);
                    let plain: Vec<f32> = values.chunks(cols).take(rows).map(|row| dot8(row, &x)).collect();
                    let biased: Vec<f32> = plain.iter().zip(&bias).map(|(y, b)| y + b).collect();
                    for offset in 0..4 {
                        let placed = Placed::new(&bytes, offset);
                        let w = TensorView::new(0, dtype, Dims::matrix(rows.max(1) as u32, cols as u32), placed.bytes()).unwrap();
                        let placed = Placed::new(&bias_bytes, offset);
                        let b = TensorView::new(0, DType::F32, Dims::vector(rows.max(1) as u32), placed.bytes()).unwrap();
                        let mut out = vec![7.0; rows];
                        run(&mut out, &w, &x, None);
                        assert_eq!(bits(&out), bits(&plain), "{dtype} {rows} x {cols} + {offset}");
                        run(&mut out, &w, &x, Some(&b));
                        assert_eq!(bits(&out), bits(&biased), "{dtype} {rows} x {cols} + {offset}");
                        for row in 0..rows {
                            let mut out = vec![7.0; cols];
                            widen_row(&mut out, &w, row);
                            assert_eq!(bits(&out), bits(&values[row * cols..(row + 1) * cols]));
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn half_subnormals_and_infinities_count() {
        let halves = [0x0001u16, 0x8001, 0x03ff, 0x7bff, 0x0400, 0x3c00, 0x0000, 0x8000, 0x83ff];
        let bytes: Vec<u8> = halves.iter().flat_map(|h| h.to_le_bytes()).collect();
        let w = TensorView::new(0, DType::F16, Dims::matrix(1, 9), &bytes).unwrap();
        let values: Vec<f32> = halves.iter().map(|h| half::f16::from_bits(*h).to_f32()).collect();
        assert!(values.iter().zip(halves).all(|(v, h)| narrow_f16(*v) == h));
        let x = [3.0, 5.0, 0.5, 1e-6, 2.0, 1.5, 1.0, 1.0, 7.0];
        let mut out = [0.0];
        run(&mut out, &w, &x, None);
        assert_eq!(out[0].to_bits(), dot8(&values, &x).to_bits());
    }

    #[test]
    fn what_does_not_fit_gives_zeros() {
        let bytes = [0x40u8; 24];
        let w = TensorView::new(0, DType::F32, Dims::matrix(2, 3), &bytes).unwrap();
        let mut out = [7.0; 2];
        run(&mut out, &w, &[1.0; 4], None);
        assert_eq!(out, [0.0; 2]);
        let mut out = [7.0; 3];
        run(&mut out, &w, &[1.0; 3], None);
        assert_eq!(out, [0.0; 3]);
        let ids = TensorView::new(0, DType::U32, Dims::matrix(2, 3), &bytes).unwrap();
        let mut out = [7.0; 2];
        run(&mut out, &ids, &[1.0; 3], None);
        assert_eq!(out, [0.0; 2]);
        widen_row(&mut out, &w, usize::MAX);
        assert_eq!(out, [0.0; 2]);
    }
}

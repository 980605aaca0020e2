//! Integer matrices against sums in 128 bits, on every kernel that this machine has.

use crate::format::layout::activation_words;
use crate::format::{DType, Dims, Planes, TensorView};
use crate::ops::activation::Activation;
use crate::ops::integer::dot_by_fours;
use crate::ops::matvec::{matvec, widen_row};
use crate::ops::test_rng::Rng;
use crate::simd::at_every_level;

/// A quantised matrix as numbers and as the file has it.
struct Matrix {
    dtype: DType,
    dims: Dims,
    group: u32,
    codes: Vec<i32>,
    multipliers: Vec<u8>,
    offsets: Vec<i16>,
    scales: Vec<f32>,
}

/// How the numbers of a made-up matrix are chosen.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Values {
    Random,
    Extreme,
    Zero,
}

impl Matrix {
    fn new(rng: &mut Rng, dtype: DType, (rows, cols): (usize, usize), group: u32, values: Values) -> Self {
        let dims = Dims::matrix(rows as u32, cols as u32);
        let planes = Planes::new(0, dtype, dims, group).unwrap();
        let (low, high) = match dtype {
            DType::Q8 => (-127, 127),
            DType::Q4 => (0, 15),
            _ => (-1, 1),
        };
        let mut pick = |low: i32, high: i32| match values {
            Values::Random => low + (rng.next() % (high - low + 1) as u32) as i32,
            Values::Extreme => high,
            Values::Zero => 0,
        };
        let codes = (0..rows * cols).map(|_| pick(low, high)).collect();
        let multipliers = (0..planes.multiplier_count).map(|_| pick(1, 255).max(1) as u8).collect();
        let offsets = (0..planes.offset_count).map(|_| pick(-32768, 32767) as i16).collect();
        let scale_count = if dtype == DType::T2 { 1 } else { rows };
        Self { dtype, dims, group, codes, multipliers, offsets, scales: rng.floats(scale_count).iter().map(|s| s.abs() * 1e-4).collect() }
    }

    fn planes(&self) -> Planes {
        Planes::new(0, self.dtype, self.dims, self.group).unwrap()
    }

    fn bytes(&self) -> Vec<u8> {
        let planes = self.planes();
        let (cols, stride) = (self.dims.cols() as usize, planes.row_stride as usize);
        let mut bytes = vec![0u8; planes.bytes as usize];
        for (i, code) in self.codes.iter().enumerate() {
            let (row, column) = (i / cols, i % cols);
            match self.dtype {
                DType::Q8 => bytes[row * stride + column] = *code as u8,
                DType::Q4 => bytes[row * stride + column / 2] |= (*code as u8) << (4 * (column % 2)),
                _ => bytes[row * stride + column / 4] |= (code.rem_euclid(3) as u8) << (2 * (column % 4)),
            }
        }
        for (i, scale) in self.scales.iter().enumerate() {
            bytes[planes.scales as usize + 4 * i..][..4].copy_from_slice(&scale.to_le_bytes());
        }
        for (i, multiplier) in self.multipliers.iter().enumerate() {
            bytes[planes.multipliers as usize + i] = *multiplier;
        }
        for (i, offset) in self.offsets.iter().enumerate() {
            bytes[planes.offsets as usize + 2 * i..][..2].copy_from_slice(&offset.to_le_bytes());
        }
        bytes
    }

    /// The integer of an element: code times multiplier plus offset.
    fn integer(&self, row: usize, column: usize) -> i128 {
        let group = if self.group == 0 { 0 } else { column / self.group as usize };
        let at = row * self.planes().groups as usize + group;
        let code = i128::from(self.codes[row * self.dims.cols() as usize + column]);
        let multiplier = self.multipliers.get(at).map_or(1, |m| i128::from(*m));
        code * multiplier + self.offsets.get(at).map_or(0, |z| i128::from(*z))
    }
}

/// The definition, in numbers too large to overflow.
fn expected(matrix: &Matrix, rows: usize, x: &[f32]) -> Vec<f32> {
    let a = x.iter().fold(0f32, |a, x| a.max(x.abs()));
    let codes: Vec<i128> = x
        .iter()
        .map(|x| if a == 0.0 { 0 } else { f64::from(x * (32767.0 / a)).round_ties_even().clamp(-32767.0, 32767.0) as i128 })
        .collect();
    let row = |r: usize| {
        let sum: i128 = codes.iter().enumerate().map(|(j, code)| matrix.integer(r, j) * code).sum();
        sum as f32 * (matrix.scales[r] * (a / 32767.0))
    };
    (0..rows).map(row).collect()
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}

/// `bytes` at an address with this remainder modulo 16.
fn placed(bytes: &[u8], offset: usize) -> (Vec<u128>, std::ops::Range<usize>) {
    let mut memory = vec![0u128; bytes.len() / 16 + 2];
    bytemuck::cast_slice_mut(&mut memory)[offset..offset + bytes.len()].copy_from_slice(bytes);
    (memory, offset..offset + bytes.len())
}

fn check(matrix: &Matrix, rows: usize, x: &[f32], offset: usize) {
    let (memory, range) = placed(&matrix.bytes(), offset);
    let w = TensorView::grouped(0, matrix.dtype, matrix.dims, matrix.group, &bytemuck::cast_slice(&memory)[range]).unwrap();
    let scratch = vec![f32::NAN; activation_words(x.len() as u32) as usize];
    let what = format!("{} {rows} x {} in groups of {} at {offset}", matrix.dtype, x.len(), matrix.group);
    let wanted = bits(&expected(matrix, rows, x));
    at_every_level(|level| {
        let (mut out, mut scratch) = (vec![7.0; rows], scratch.clone());
        matvec(&mut out, &w, &mut Activation::new(x, &mut scratch), None);
        assert_eq!(bits(&out), wanted, "{what}, {}", level.name());
    });
    for row in 0..rows {
        let mut out = vec![7.0; x.len()];
        widen_row(&mut out, &w, row);
        let scale = matrix.scales[row];
        let wanted: Vec<f32> = (0..x.len()).map(|j| matrix.integer(row, j) as f32 * scale).collect();
        assert_eq!(bits(&out), bits(&wanted), "row {row} of {what}");
    }
}

#[test]
fn every_length_and_group_gives_the_exact_sum() {
    let mut rng = Rng::new(21);
    for dtype in [DType::Q8, DType::Q4] {
        for cols in (1..=70).chain([96, 100, 127, 172, 255, 256, 511, 512, 513, 600, 999, 1000]).step_by(if cfg!(miri) { 11 } else { 1 }) {
            for group in [0, 8, 16, 24, 32, 64, 512, 520] {
                if group as usize <= cols {
                    let rows = 1 + cols % 5;
                    let matrix = Matrix::new(&mut rng, dtype, (rows, cols), group, Values::Random);
                    check(&matrix, rows, &rng.floats(cols), 0);
                }
            }
        }
    }
}

#[test]
fn the_address_changes_nothing() {
    let mut rng = Rng::new(22);
    for dtype in [DType::Q8, DType::Q4] {
        for (cols, group) in [(64, 32), (172, 32), (50, 0), (33, 8)] {
            let matrix = Matrix::new(&mut rng, dtype, (5, cols), group, Values::Random);
            let x = rng.floats(cols);
            (0..if cfg!(miri) { 4 } else { 16 }).for_each(|offset| check(&matrix, 5, &x, offset));
        }
    }
}

#[test]
fn extreme_codes_do_not_overflow_in_the_longest_rows() {
    let mut rng = Rng::new(23);
    for dtype in [DType::Q8, DType::Q4] {
        for (cols, group) in [(65_536, 0), (65_536, 32), (65_536, 65_536), (65_535, 4096), (40_000, 1024)] {
            let (cols, group) = if cfg!(miri) { (cols / 128, group / 128 / 8 * 8) } else { (cols, group) };
            let matrix = Matrix::new(&mut rng, dtype, (1, cols), group, Values::Extreme);
            for x in [1.0, -1.0] {
                let matrix = &matrix;
                let (memory, range) = placed(&matrix.bytes(), 0);
                let w = TensorView::grouped(0, dtype, matrix.dims, group, &bytemuck::cast_slice(&memory)[range]).unwrap();
                let x = vec![x; cols];
                let wanted = bits(&expected(matrix, 1, &x));
                at_every_level(|level| {
                    let mut scratch = vec![0.0; activation_words(cols as u32) as usize];
                    let mut out = [0.0];
                    matvec(&mut out, &w, &mut Activation::new(&x, &mut scratch), None);
                    assert_eq!(bits(&out), wanted, "{dtype} {cols} {group}, {}", level.name());
                });
            }
        }
    }
}

#[test]
fn zeros_give_zeros_and_not_nan() {
    let mut rng = Rng::new(24);
    for dtype in [DType::Q8, DType::Q4] {
        for group in [0, 32] {
            check(&Matrix::new(&mut rng, dtype, (4, 72), group, Values::Zero), 4, &rng.floats(72), 0);
            let matrix = Matrix::new(&mut rng, dtype, (4, 72), group, Values::Random);
            check(&matrix, 4, &[0.0; 72], 0);
            check(&matrix, 4, &[1e-42; 72], 0);
            let mut sparse = [0.0; 72];
            sparse[40] = -3e-40;
            check(&matrix, 4, &sparse, 0);
        }
    }
}

#[test]
fn an_activation_serves_matrices_of_several_types_and_groups() {
    let mut rng = Rng::new(25);
    let x = rng.floats(100);
    let mut scratch = vec![0.0; activation_words(100) as usize];
    let mut activation = Activation::new(&x, &mut scratch);
    for (dtype, group) in [(DType::Q4, 32), (DType::Q8, 32), (DType::Q4, 8), (DType::Q4, 0), (DType::Q4, 8), (DType::Q8, 0)] {
        let matrix = Matrix::new(&mut rng, dtype, (3, 100), group, Values::Random);
        let bytes = matrix.bytes();
        let w = TensorView::grouped(0, dtype, matrix.dims, group, &bytes).unwrap();
        let mut out = [0.0; 3];
        matvec(&mut out, &w, &mut activation, None);
        assert_eq!(bits(&out), bits(&expected(&matrix, 3, &x)), "{dtype} {group}");
    }
}

#[test]
fn what_is_not_finite_is_not_hidden() {
    let mut rng = Rng::new(26);
    for dtype in [DType::Q8, DType::Q4] {
        let matrix = Matrix::new(&mut rng, dtype, (3, 64), 32, Values::Random);
        let bytes = matrix.bytes();
        let w = TensorView::grouped(0, dtype, matrix.dims, 32, &bytes).unwrap();
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut x = rng.floats(64);
            x[17] = bad;
            let (mut out, mut scratch) = ([0.0; 3], vec![0.0; activation_words(64) as usize]);
            matvec(&mut out, &w, &mut Activation::new(&x, &mut scratch), None);
            assert!(out.iter().all(|y| !y.is_finite()), "{dtype} {bad}: {out:?}");
        }
    }
}

#[test]
fn too_little_scratch_gives_zeros() {
    let mut rng = Rng::new(27);
    for dtype in [DType::Q8, DType::Q4] {
        let bytes = Matrix::new(&mut rng, dtype, (2, 64), 32, Values::Random).bytes();
        let w = TensorView::grouped(0, dtype, Dims::matrix(2, 64), 32, &bytes).unwrap();
        let mut out = [1.0; 2];
        matvec(&mut out, &w, &mut Activation::new(&[1.0; 64], &mut [0.0; 31]), None);
        assert_eq!(out, [0.0; 2]);
    }
}

#[test]
fn ternary_rows_are_summed_before_they_are_scaled() {
    let mut rng = Rng::new(28);
    for cols in (1..40).chain([64, 100]).step_by(if cfg!(miri) { 7 } else { 1 }) {
        let matrix = Matrix::new(&mut rng, DType::T2, (3, cols), 0, Values::Random);
        let bytes = matrix.bytes();
        let w = TensorView::new(0, DType::T2, matrix.dims, &bytes).unwrap();
        let x = rng.floats(cols);
        let mut out = [0.0; 3];
        matvec(&mut out, &w, &mut Activation::new(&x, &mut []), None);
        for (r, y) in out.iter().enumerate() {
            let row: Vec<f32> = (0..cols).map(|j| matrix.integer(r, j) as f32).collect();
            assert_eq!(y.to_bits(), (matrix.scales[0] * crate::ops::sum::dot8(&row, &x)).to_bits(), "{cols}");
            let mut wide = vec![0.0; cols];
            widen_row(&mut wide, &w, r);
            assert!(wide.iter().zip(&row).all(|(found, integer)| *found == integer * matrix.scales[0]));
        }
    }
}

#[test]
fn codes_by_fours_are_all_counted_however_long_the_padding() {
    for n in 0..19usize {
        let x: Vec<i16> = (0..n).map(|i| 100 * i as i16 - 700).collect();
        for padded in n..n + 5 {
            let packed: Vec<u8> = (0..padded).map(|i| (7 * i as i32 - 50) as u8).collect();
            let expected: i32 = packed.iter().zip(&x).map(|(w, x)| i32::from(w.cast_signed()) * i32::from(*x)).sum();
            assert_eq!(dot_by_fours(&packed, &x), expected, "{n} of {padded}");
        }
    }
}

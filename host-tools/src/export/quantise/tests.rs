//! Codes, scales, multipliers and offsets of single matrices, read back through the format's own view.

use super::*;
use crate::checkpoint::Checkpoint;
use crate::error::Class;
use crate::export::tests::{Shape, open, random};
use dmexp_format::{Dims, TensorView};

/// A checkpoint whose embedding is this matrix; everything else is zero.
fn source(rows: usize, cols: usize, values: &[f32]) -> Checkpoint {
    let shape = Shape { dim: cols, hidden_dim: 8, n_layers: 1, n_heads: 1, n_kv_heads: 1, vocab_size: rows, tied: true, max_seq_len: 4 };
    open(shape.v0(|place| values.get(place).copied().unwrap_or(0.0)))
}

fn spec(dtype: DType, rows: usize, cols: usize, group: u32) -> TensorSpec {
    let dims = Dims::matrix(rows as u32, cols as u32);
    TensorSpec { name: "w".into(), dtype, dims, group, trainable: true, transposed: false }
}

fn made(dtype: DType, rows: usize, cols: usize, group: u32, values: &[f32]) -> Result<(Quantised, TensorSpec)> {
    let source = source(rows, cols, values);
    let array = source.array("tok_embeddings.weight").unwrap();
    let spec = spec(dtype, rows, cols, group);
    let mut elements = 0;
    let quantised = quantise(array, &spec, &mut |n| {
        elements += n;
        Ok(())
    })?;
    assert_eq!(elements, (rows * cols) as u64);
    Ok((quantised, spec))
}

/// The values that the codes stand for, after the format's own checks of the bytes.
fn widened(dtype: DType, rows: usize, cols: usize, group: u32, values: &[f32]) -> Vec<f32> {
    let (Quantised { bytes, flushed }, spec) = made(dtype, rows, cols, group, values).unwrap();
    let mut measure = dmexp_format::host::Measure::new(16).unwrap();
    measure.tensor(spec.clone(), &bytes, flushed).unwrap();
    let view = TensorView::grouped(0, dtype, spec.dims, group, &bytes).unwrap();
    let widened: Vec<f32> = (0..rows * cols).map(|element| view.get_f32(element)).collect();
    let lost = widened.iter().zip(values).filter(|(stored, value)| **stored == 0.0 && **value != 0.0).count();
    assert_eq!(flushed, lost as u64);
    widened
}

fn squared_error(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(a, b)| (f64::from(*a) - f64::from(*b)).powi(2)).sum()
}

/// Like the weights of a network: mostly small, a few large.
fn weights(count: usize) -> Vec<f32> {
    let mut random = random();
    (0..count).map(|_| random() * random() * random()).collect()
}

/// The largest error that rounding to the nearest code allows: half the step of each group, the multiplier rounded up.
fn bound(dtype: DType, values: &[f32], group: usize) -> f64 {
    let steps = if dtype == DType::Q8 { 127.0 } else { 7.5 };
    let most = values.iter().fold(0.0f32, |most, value| most.max(value.abs()));
    let group = group.min(values.len());
    values
        .chunks(group)
        .map(|values| {
            let most_here = values.iter().fold(0.0f32, |most, value| most.max(value.abs()));
            let step = f64::from(most_here) / steps + f64::from(most) / steps / 200.0;
            values.len() as f64 * step * step / 4.0
        })
        .sum()
}

#[test]
fn every_shape_and_group_stays_within_the_bounds_of_rounding() {
    for dtype in [DType::Q8, DType::Q4] {
        for (rows, cols, group) in [(1, 2, 0), (3, 8, 8), (5, 30, 8), (4, 34, 32), (7, 172, 32), (2, 100, 64), (3, 100, 0), (2, 66, 56)] {
            let values = weights(rows * cols);
            let stored = widened(dtype, rows, cols, group, &values);
            for (stored, values) in stored.chunks(cols).zip(values.chunks(cols)) {
                let error = squared_error(stored, values);
                let bound = bound(dtype, values, if group == 0 { cols } else { group as usize });
                assert!(error <= bound, "{dtype} {rows} x {cols} in {group}: {error} {bound}");
            }
        }
    }
}

#[test]
fn zeros_stay_zeros_in_rows_and_in_groups() {
    for dtype in [DType::Q8, DType::Q4] {
        for group in [0, 8, 32] {
            assert!(widened(dtype, 3, 64, group, &[0.0; 192]).iter().all(|value| value.to_bits() == 0));
            // A row of zeros between others, and a group of zeros in a row.
            let mut values = weights(192);
            values[64..128].fill(0.0);
            values[..32].fill(-0.0);
            let stored = widened(dtype, 3, 64, group, &values);
            assert!(stored[64..128].iter().all(|value| value.to_bits() == 0), "{dtype} {group}");
            if group > 0 {
                assert!(stored[..32].iter().all(|value| *value == 0.0), "{dtype} {group}");
            }
            assert!(stored[128..].iter().any(|value| *value != 0.0));
        }
    }
}

#[test]
fn values_that_are_codes_already_come_back_exactly() {
    // q8: a step of 1/64 a row, groups with whole multiples of it.
    let mut random = random();
    let mut eights: Vec<f32> = (0..4 * 64).map(|_| (random() * 127.0).round() / 64.0).collect();
    for row in eights.chunks_mut(32) {
        row[0] = 127.0 / 64.0;
    }
    assert_eq!(squared_error(&widened(DType::Q8, 4, 64, 0, &eights), &eights), 0.0);
    // q4: 16 levels from anywhere.
    let mut fours: Vec<f32> = (0..4 * 64).map(|_| (random().abs() * 15.0).floor()).collect();
    for (number, group) in fours.chunks_mut(32).enumerate() {
        (group[0], group[1]) = (0.0, 15.0);
        for value in group {
            *value = (*value - number as f32) / 8.0;
        }
    }
    let stored = widened(DType::Q4, 4, 64, 32, &fours);
    assert!(squared_error(&stored, &fours).sqrt() < 0.02, "{}", squared_error(&stored, &fours));
}

#[test]
fn a_common_offset_costs_q4_nothing_but_its_resolution() {
    let values: Vec<f32> = weights(128).iter().map(|value| value * 0.01 + 5.0).collect();
    let stored = widened(DType::Q4, 2, 64, 32, &values);
    assert!(stored.iter().zip(&values).all(|(a, b)| (a - b).abs() < 0.002), "{stored:?}");
    assert!(widened(DType::Q4, 1, 64, 32, &[-7.0; 64]).iter().all(|value| (value + 7.0).abs() < 1e-3));
}

#[test]
fn the_result_does_not_depend_on_how_the_work_is_parted() {
    // More rows than one block holds.
    let (rows, cols) = (2100, 64);
    let values = weights(rows * cols);
    let (whole, _) = made(DType::Q4, rows, cols, 32, &values).unwrap();
    let (again, _) = made(DType::Q4, rows, cols, 32, &values).unwrap();
    assert!(whole.bytes == again.bytes);
    let last = (rows - 1) * cols;
    let (single, spec) = made(DType::Q4, 1, cols, 32, &values[last..]).unwrap();
    let all = TensorView::grouped(0, DType::Q4, Dims::matrix(rows as u32, cols as u32), 32, &whole.bytes).unwrap();
    let one = TensorView::grouped(0, DType::Q4, spec.dims, 32, &single.bytes).unwrap();
    assert_eq!(all.codes()[(rows - 1) * 32..], *one.codes());
    assert_eq!(all.row_scale(rows - 1), one.row_scale(0));
}

#[test]
fn what_cannot_be_stored_is_refused_where_it_stands() {
    for dtype in [DType::Q8, DType::Q4, DType::T2] {
        for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut values = vec![0.5; 128];
            values[70] = value;
            let error = made(dtype, 2, 64, 0, &values).unwrap_err();
            assert_eq!(error.class(), Class::Damaged);
            assert!(error.to_string().contains("element 70 of tensor w"), "{error}");
        }
    }
    let error = made(DType::T2, 2, 64, 0, &[&[0.5, -0.5, 0.0][..], &[0.25; 125][..]].concat()).unwrap_err();
    assert_eq!(error.class(), Class::Unrepresentable);
    assert!(error.to_string().contains("element 3 of tensor w is 0.25") && error.to_string().contains("--dtype q8"), "{error}");
}

#[test]
fn ternary_tensors_come_back_bit_for_bit() {
    let mut random = random();
    for cols in [2, 6, 30, 64] {
        let values: Vec<f32> = (0..3 * cols).map(|_| [0.0, 0.037, -0.037][(random().abs() * 2.999) as usize]).collect();
        assert_eq!(widened(DType::T2, 3, cols, 0, &values), values);
    }
    assert_eq!(widened(DType::T2, 1, 64, 0, &[0.0; 64]), [0.0; 64]);
}

/// Any finite values: nothing panics, what comes out is finite and no worse than zeros, or the value is refused by name.
#[test]
fn anything_finite_is_stored_or_refused() {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u32
    };
    let mut refused = 0;
    for round in 0..300u32 {
        // Of all magnitudes together, or of about one.
        let mask = if round % 2 == 0 { u32::MAX } else { 0x81ff_ffff };
        let base = if round % 2 == 0 { 0 } else { next() & 0x7e00_0000 };
        let bits = std::iter::repeat_with(|| next() & mask | base).map(f32::from_bits).filter(|value| value.is_finite());
        let values: Vec<f32> = bits.take(40).collect();
        if values.len() < 40 {
            continue;
        }
        let group = [0, 8, 16, 32][round as usize / 2 % 4];
        for dtype in [DType::Q8, DType::Q4] {
            match made(dtype, 1, 40, group, &values) {
                Ok(_) => {
                    let stored = widened(dtype, 1, 40, group, &values);
                    assert!(stored.iter().all(|value| value.is_finite()));
                    assert!(squared_error(&stored, &values) <= squared_error(&[0.0; 40], &values) * 1.0001, "{dtype} {group} {values:?}");
                }
                Err(error) => {
                    assert_eq!(error.class(), Class::Unrepresentable, "{error}");
                    refused += 1;
                }
            }
        }
    }
    assert!(refused < 60, "{refused}");
}

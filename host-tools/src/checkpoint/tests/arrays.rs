//! Arrays that are put together: every combination read whole and in pieces, and the refusals.

use super::super::array::{Array, ArrayView};
use super::super::{Encoding, Mapping};
use crate::error::Class;
use dmexp_format::Dims;
use half::{bf16, f16};

const F32: Encoding = Encoding::F32 { offset: 1 };

/// A file of one odd byte and the numbers 0, 1, 2, ...
fn counting(n: u16) -> Vec<Mapping> {
    let bytes = [7].into_iter().chain((0..n).flat_map(|n| f32::from(n).to_le_bytes())).collect();
    vec![Mapping::from_bytes("counting".as_ref(), bytes)]
}

/// The values, which must be the same however they are asked for.
fn values(array: &Array, files: &[Mapping]) -> Vec<f32> {
    array.check(files).unwrap();
    let view = ArrayView::new(array, files);
    let whole = view.to_vec().unwrap();
    assert_eq!(whole.len() as u64, view.count());
    for len in 1..=whole.len() + 1 {
        let mut piece = vec![0.0; len];
        for start in 0..=whole.len() {
            let n = view.read(start as u64, &mut piece).unwrap();
            assert_eq!(n, len.min(whole.len() - start));
            assert_eq!(piece[..n], whole[start..start + n], "{len} from {start}");
        }
    }
    whole
}

fn numbers(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| *value as u32).collect()
}

#[test]
fn halves_are_widened_at_any_alignment() {
    let numbers: Vec<f32> = (0u16..3000).map(|n| f32::from(n) - 1500.5).chain([0.0, -0.0, 6e-8, f32::INFINITY]).collect();
    for (encoding, expected, bits) in [
        (
            Encoding::F16 { offset: 1 },
            numbers.iter().map(|n| f16::from_f32(*n).to_f32()).collect::<Vec<_>>(),
            numbers.iter().map(|n| f16::from_f32(*n).to_bits()).collect::<Vec<_>>(),
        ),
        (
            Encoding::Bf16 { offset: 1 },
            numbers.iter().map(|n| bf16::from_f32(*n).to_f32()).collect(),
            numbers.iter().map(|n| bf16::from_f32(*n).to_bits()).collect(),
        ),
    ] {
        let bytes = [7].into_iter().chain(bits.iter().flat_map(|bits| bits.to_le_bytes())).collect();
        let files = [Mapping::from_bytes("halves".as_ref(), bytes)];
        let array = Array::whole("w", Dims::vector(numbers.len() as u32), 0, encoding);
        array.check(&files).unwrap();
        let found = ArrayView::new(&array, &files).to_vec().unwrap();
        assert_eq!(found.iter().map(|v| v.to_bits()).collect::<Vec<_>>(), expected.iter().map(|v| v.to_bits()).collect::<Vec<_>>());
        let mut one = [0.0];
        ArrayView::new(&array, &files).read(2999, &mut one).unwrap();
        assert_eq!(one[0], expected[2999]);
    }
}

#[test]
fn strides_are_followed() {
    let files = counting(40);
    let strided = |dims, first, strides: &[u64]| Array::strided("w", dims, 0, F32, first, strides).unwrap();
    assert_eq!(numbers(&values(&strided(Dims::matrix(2, 3), 5, &[1, 2]), &files)), [5, 7, 9, 6, 8, 10]);
    assert_eq!(numbers(&values(&strided(Dims::matrix(2, 3), 5, &[3, 1]), &files)), [5, 6, 7, 8, 9, 10]);
    assert_eq!(numbers(&values(&strided(Dims::matrix(2, 2), 0, &[10, 1]), &files)), [0, 1, 10, 11]);
    assert_eq!(numbers(&values(&strided(Dims::vector(3), 1, &[0]), &files)), [1, 1, 1]);
    let dims = Dims::new(0, 4, [2, 1, 3, 2]).unwrap();
    assert_eq!(numbers(&values(&strided(dims, 1, &[20, 99, 2, 7]), &files)), [1, 8, 3, 10, 5, 12, 21, 28, 23, 30, 25, 32]);
}

#[test]
fn parts_are_joined_along_each_axis() {
    let files = counting(40);
    let part = |first: u64, rows, cols| Array::strided("p", Dims::matrix(rows, cols), 0, F32, first, &[u64::from(cols), 1]).unwrap();
    let rows = Array::concat("w", 0, vec![part(0, 1, 2), part(10, 2, 2)]).unwrap();
    assert_eq!(rows.dims, Dims::matrix(3, 2));
    assert_eq!(numbers(&values(&rows, &files)), [0, 1, 10, 11, 12, 13]);
    let cols = Array::concat("w", 1, vec![part(0, 2, 2), part(10, 2, 1), part(20, 2, 3)]).unwrap();
    assert_eq!(cols.dims, Dims::matrix(2, 6));
    assert_eq!(numbers(&values(&cols, &files)), [0, 1, 10, 20, 21, 22, 2, 3, 11, 23, 24, 25]);
    for (axis, parts) in
        [(0, vec![part(0, 2, 2), part(0, 2, 3)]), (1, vec![part(0, 2, 2), part(0, 3, 2)]), (2, vec![part(0, 2, 2)]), (0, vec![])]
    {
        assert_eq!(Array::concat("w", axis, parts).unwrap_err().class(), Class::Mismatch);
    }
}

#[test]
fn rows_of_heads_are_reordered_and_back() {
    let files = counting(40);
    let array = |cols| Array::whole("w", if cols == 1 { Dims::vector(8) } else { Dims::matrix(8, cols) }, 0, F32);
    let order = [0, 2, 1, 3, 4, 6, 5, 7];
    assert_eq!(numbers(&values(&array(1).interleave_halves(4).unwrap(), &files)), order);
    let interleaved = array(3).interleave_halves(8).unwrap();
    let rows: Vec<u32> = [0, 4, 1, 5, 2, 6, 3, 7].into_iter().flat_map(|row| [3 * row, 3 * row + 1, 3 * row + 2]).collect();
    assert_eq!(numbers(&values(&interleaved, &files)), rows);
    assert_eq!(values(&interleaved.separate_halves(8).unwrap(), &files), values(&array(3), &files));
    for head_dim in [0, 1, 6, 16] {
        assert_eq!(array(2).interleave_halves(head_dim).unwrap_err().class(), Class::Mismatch);
    }
}

#[test]
fn arrays_past_the_end_of_their_file_are_refused_by_name() {
    let files = counting(4);
    let strided = |first, strides: &[u64]| Array::strided("far", Dims::matrix(2, 2), 0, F32, first, strides).unwrap();
    for array in [
        Array::whole("far", Dims::vector(5), 0, F32),
        Array::whole("far", Dims::vector(4), 0, Encoding::F32 { offset: 2 }),
        Array::whole("far", Dims::vector(4), 0, Encoding::F32 { offset: u64::MAX }),
        Array::whole("far", Dims::vector(1), 1, F32),
        strided(1, &[2, 1]),
        strided(0, &[3, 1]),
        strided(0, &[1, u64::MAX]),
        strided(u64::MAX, &[1, 2]),
        Array::whole("far", Dims::vector(8), 0, Encoding::Q80 { codes: 0, scales: 10, group: 4 }),
        Array::concat("far", 0, vec![Array::whole("near", Dims::vector(2), 0, F32), Array::whole("far", Dims::vector(5), 0, F32)]).unwrap(),
    ] {
        let error = array.check(&files).map(|()| array).unwrap_err();
        assert_eq!(error.class(), Class::Damaged);
        assert!(error.to_string().contains("far lies"), "{error}");
    }
    assert!(Array::strided("w", Dims::matrix(2, 2), 0, F32, 0, &[1]).is_err());
}

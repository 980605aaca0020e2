//! q8, q4 and t2 in a file: where their planes lie, what they stand for, and every byte that is not allowed.

use super::make;
use crate::file::ModelFile;
use crate::{DType, Dims, Error, Plane, Planes, Rule, TensorView};

/// Three rows of 20: two groups of 8 and one of 4 each.
const DIMS: Dims = Dims::matrix(3, 20);

fn pad(bytes: &mut Vec<u8>) {
    bytes.resize(bytes.len().next_multiple_of(16), 0);
}

fn scales(bytes: &mut Vec<u8>, values: &[f32]) {
    pad(bytes);
    bytes.extend(make::f32s(values));
}

/// Codes -9, -8, .. in row-major order, scales 0.5, 0.25, 2, multipliers 1 to 9.
fn q8(grouped: bool) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..60i8).map(|n| (n - 9).cast_unsigned()).collect();
    scales(&mut bytes, &[0.5, 0.25, 2.0]);
    if grouped {
        pad(&mut bytes);
        bytes.extend(1..=9);
    }
    bytes
}

/// Codes that count up modulo 16, scales as above, multipliers 1 to 9, offsets -100, -99, ..
fn q4() -> Vec<u8> {
    let mut bytes = Vec::new();
    for row in 0..3 {
        bytes.extend((0..10).map(|pair| ((row * 20 + 2 * pair) % 16) as u8 | (((row * 20 + 2 * pair + 1) % 16) << 4) as u8));
        bytes.extend([0; 2]);
    }
    scales(&mut bytes, &[0.5, 0.25, 2.0]);
    pad(&mut bytes);
    bytes.extend(1..=9);
    pad(&mut bytes);
    bytes.extend((0..9i16).flat_map(|n| (n - 100).to_le_bytes()));
    bytes
}

/// Rows of six: codes 0, 1, 2, 0, 1, 2, scale 0.125.
fn t2() -> Vec<u8> {
    let mut bytes = [0b00_10_01_00, 0b1001, 0, 0].repeat(3);
    scales(&mut bytes, &[0.125]);
    bytes
}

fn view(dtype: DType, dims: Dims, group: u32, bytes: &[u8]) -> TensorView<'_> {
    TensorView::grouped(0, dtype, dims, group, bytes).unwrap()
}

#[test]
fn planes_lie_where_the_format_says() {
    let of = |dtype, group| Planes::new(0, dtype, DIMS, group).unwrap();
    let q8 = of(DType::Q8, 8);
    assert_eq!(
        (q8.row_stride, q8.groups, q8.scales, q8.multipliers, q8.multiplier_count, q8.offset_count, q8.bytes),
        (20, 3, 64, 80, 9, 0, 89)
    );
    assert_eq!((of(DType::Q8, 0).groups, of(DType::Q8, 0).multiplier_count, of(DType::Q8, 0).bytes), (1, 0, 76));
    let q4 = of(DType::Q4, 8);
    assert_eq!((q4.row_stride, q4.scales, q4.multipliers, q4.offsets, q4.offset_count, q4.bytes), (12, 48, 64, 80, 9, 98));
    assert_eq!((of(DType::Q4, 0).multiplier_count, of(DType::Q4, 0).offset_count, of(DType::Q4, 0).bytes), (3, 3, 86));
    let t2 = Planes::new(0, DType::T2, Dims::matrix(3, 6), 0).unwrap();
    assert_eq!((t2.row_stride, t2.scales, t2.bytes), (4, 16, 20));
    assert_eq!(of(DType::F16, 0).bytes, 120);
}

#[test]
fn the_largest_sizes_stay_within_64_bits() {
    for dtype in [DType::Q8, DType::Q4, DType::T2] {
        for (rows, cols) in [(1 << 24, 1 << 16), (u32::MAX, 1), (u32::MAX, 1 << 16)] {
            let planes = Planes::new(0, dtype, Dims::new(0, 2, [rows, cols, 1, 1]).unwrap(), 0).unwrap();
            assert!(planes.bytes >= u64::from(rows) * u64::from(cols) / 4 && planes.bytes < 1 << 53);
        }
    }
}

#[test]
fn groups_that_cannot_be_are_refused() {
    let rule = |dtype, cols, group| match Planes::new(7, dtype, Dims::matrix(3, cols), group) {
        Err(Error::Tensor { tensor: 7, rule, .. }) => Some(rule),
        other => {
            assert!(other.is_ok(), "{other:?}");
            None
        }
    };
    for dtype in [DType::Q8, DType::Q4] {
        assert_eq!(rule(dtype, 20, 12), Some(Rule::Multiple));
        assert_eq!(rule(dtype, 20, 24), Some(Rule::TooLarge));
        assert_eq!(rule(dtype, 20, u32::MAX - 7), Some(Rule::TooLarge));
        assert_eq!((rule(dtype, 16, 16), rule(dtype, 20, 16), rule(dtype, 1, 0)), (None, None, None));
        assert_eq!(rule(dtype, 65_536, 0), None);
        assert_eq!(rule(dtype, 65_537, 32), Some(Rule::TooLarge));
    }
    for dtype in [DType::F32, DType::Bf16, DType::T2, DType::U8] {
        assert_eq!((rule(dtype, 20, 8), rule(dtype, 20, 0)), (Some(Rule::Zero), None));
    }
    assert_eq!(rule(DType::F32, 1 << 20, 0), None);
}

#[test]
fn elements_are_scale_times_integer() {
    let bytes = q8(true);
    let grouped = view(DType::Q8, DIMS, 8, &bytes);
    let bytes = q8(false);
    let whole = view(DType::Q8, DIMS, 0, &bytes);
    let bytes = q4();
    let fours = view(DType::Q4, DIMS, 8, &bytes);
    for element in 0..60usize {
        let (row, column) = (element / 20, element % 20);
        let (scale, group) = ([0.5, 0.25, 2.0][row], row * 3 + column / 8);
        let code = element as i32 - 9;
        assert_eq!(grouped.get_f32(element), scale * (code * (group as i32 + 1)) as f32);
        assert_eq!(whole.get_f32(element), scale * code as f32);
        assert_eq!(fours.get_f32(element), scale * (element as i32 % 16 * (group as i32 + 1) + group as i32 - 100) as f32);
    }
    for view in [grouped, whole, fours] {
        assert_eq!((view.get_f32(60), view.get_f32(usize::MAX)), (0.0, 0.0));
    }
    let bytes = t2();
    let ternary = view(DType::T2, Dims::matrix(3, 6), 0, &bytes);
    let values: Vec<f32> = (0..18).map(|element| ternary.get_f32(element)).collect();
    assert_eq!(values, [0.0, 0.125, -0.125].repeat(6));
    assert_eq!((ternary.scale(), ternary.scales().len(), ternary.multipliers().len()), (0.125, 4, 0));
}

#[test]
fn other_types_have_no_planes() {
    let bytes = [0; 240];
    let view = view(DType::F32, DIMS, 0, &bytes);
    assert!(view.codes().is_empty() && view.scales().is_empty() && view.multipliers().is_empty() && view.offsets().is_empty());
    assert_eq!((view.row_scale(0), view.integer(0, 0)), (0.0, 0));
    assert!(TensorView::EMPTY.codes().is_empty());
}

/// A file whose first tensor is this one.
fn file(dtype: DType, dims: Dims, group: u32, bytes: Vec<u8>) -> Vec<u8> {
    let mut file = make::file();
    let [first, ..] = file.tensors.as_mut_slice() else { unreachable!() };
    (first.dtype, first.dims, first.group, first.bytes) = (dtype.code(), dims.as_slice().to_vec(), group, bytes);
    file.build()
}

fn refused(dtype: DType, dims: Dims, group: u32, mut bytes: Vec<u8>, at: usize, to: &[u8]) -> Error {
    let right = file(dtype, dims, group, bytes.clone());
    assert_eq!(ModelFile::open(&right).unwrap().verify_payload(), Ok(()));
    bytes[at..at + to.len()].copy_from_slice(to);
    let edited = file(dtype, dims, group, bytes);
    ModelFile::open(&edited).unwrap().verify_payload().unwrap_err()
}

#[test]
fn class_11_codes_scales_and_multipliers_that_stand_for_nothing_are_refused() {
    let found = |plane, place, found| Error::Quantised { tensor: 0, plane, place, found };
    assert_eq!(refused(DType::Q8, DIMS, 8, q8(true), 41, &[0x80]), found(Plane::Codes, 41, 0x80));
    assert_eq!(refused(DType::T2, Dims::matrix(3, 6), 0, t2(), 5, &[0b1101]), found(Plane::Codes, 11, 3));
    for (dtype, bytes) in [(DType::Q8, q8(true)), (DType::Q4, q4())] {
        let scales = Planes::new(0, dtype, DIMS, 8).unwrap().scales as usize;
        for value in [-0.5f32, -0.0, f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let error = refused(dtype, DIMS, 8, bytes.clone(), scales + 8, &value.to_le_bytes());
            assert_eq!(error, found(Plane::Scales, 2, value.to_bits()), "{dtype} {value}");
        }
        let multipliers = Planes::new(0, dtype, DIMS, 8).unwrap().multipliers as usize;
        assert_eq!(refused(dtype, DIMS, 8, bytes, multipliers + 4, &[0]), found(Plane::Multipliers, 4, 0));
    }
    assert_eq!(refused(DType::T2, Dims::matrix(3, 6), 0, t2(), 16, &f32::NAN.to_le_bytes()), found(Plane::Scales, 0, f32::NAN.to_bits()));
}

#[test]
fn class_11_padding_that_is_not_zero_is_refused() {
    let padding = |place| Error::Quantised { tensor: 0, plane: Plane::Padding, place, found: 1 };
    // Between planes.
    assert_eq!(refused(DType::Q8, DIMS, 8, q8(true), 61, &[1]), padding(61));
    assert_eq!(refused(DType::Q8, DIMS, 8, q8(true), 79, &[1]), padding(79));
    assert_eq!(refused(DType::Q4, DIMS, 8, q4(), 74, &[1]), padding(74));
    assert_eq!(refused(DType::T2, Dims::matrix(3, 6), 0, t2(), 13, &[1]), padding(13));
    // After a row of codes.
    assert_eq!(refused(DType::Q4, DIMS, 8, q4(), 22, &[1]), padding(22));
    assert_eq!(refused(DType::T2, Dims::matrix(3, 6), 0, t2(), 6, &[1]), padding(6));
    // Within the last byte of a row that codes do not fill.
    let error = refused(DType::T2, Dims::matrix(3, 6), 0, t2(), 1, &[0b0101_1001]);
    assert_eq!(error, Error::Quantised { tensor: 0, plane: Plane::Padding, place: 1, found: 0b0101_1001 });
    let mut odd = vec![0x21, 0x03, 0, 0];
    scales(&mut odd, &[1.0]);
    pad(&mut odd);
    odd.push(1);
    pad(&mut odd);
    odd.extend([0, 0]);
    let error = refused(DType::Q4, Dims::matrix(1, 3), 0, odd, 1, &[0x13]);
    assert_eq!(error, Error::Quantised { tensor: 0, plane: Plane::Padding, place: 1, found: 0x13 });
}

#[test]
fn class_19_elements_past_what_f32_holds_are_named() {
    // f32::MAX / 100 times 7 * 31, the first integer of the last row.
    let error = refused(DType::Q8, DIMS, 8, q8(true), 72, &(f32::MAX / 100.0).to_le_bytes());
    assert_eq!(error, Error::NonFinite { tensor: 0, element: 40 });
}

#[test]
fn class_11_a_record_whose_group_or_bytes_are_others_is_refused() {
    let right = file(DType::Q8, DIMS, 8, q8(true));
    assert!(ModelFile::open(&right).is_ok());
    let rule = |group, bytes| match ModelFile::open(&file(DType::Q8, DIMS, group, bytes)) {
        Err(Error::Tensor { tensor: 0, rule, .. }) => rule,
        other => panic!("{other:?}"),
    };
    assert_eq!(rule(24, q8(true)), Rule::TooLarge);
    assert_eq!(rule(4, q8(true)), Rule::Multiple);
    assert_eq!(rule(16, q8(true)), Rule::Length);
    assert_eq!(rule(0, q8(true)), Rule::Length);
    assert_eq!(rule(8, q8(false)), Rule::Length);
}

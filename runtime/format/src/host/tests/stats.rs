//! Figures against a slow count, for every type, cut anywhere.

use crate::DType;
use crate::host::{Figures, TensorMeter};
use half::{bf16, f16};
use proptest::prelude::*;

fn slow(dtype: DType, bytes: &[u8]) -> (Figures, Option<u64>) {
    let (values, normal): (Vec<f32>, f32) = match dtype {
        DType::F32 => (bytes.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect(), f32::MIN_POSITIVE),
        DType::F16 => (bytes.as_chunks().0.iter().map(|b| f16::from_le_bytes(*b).to_f32()).collect(), f16::MIN_POSITIVE.to_f32()),
        _ => (bytes.as_chunks().0.iter().map(|b| bf16::from_le_bytes(*b).to_f32()).collect(), bf16::MIN_POSITIVE.to_f32()),
    };
    let non_finite = values.iter().position(|v| !v.is_finite()).map(|at| at as u64);
    let mut figures = Figures::NONE;
    for value in values.iter().map(|v| v.abs()).filter(|v| *v > 0.0) {
        figures.subnormal += u64::from(value < normal);
        figures.max_abs = figures.max_abs.max(value);
        if figures.min_nonzero_abs == 0.0 || value < figures.min_nonzero_abs {
            figures.min_nonzero_abs = value;
        }
    }
    (figures, non_finite)
}

proptest! {
    #[test]
    fn figures_equal_a_slow_count(code in 0u8..3, seed in proptest::collection::vec(any::<u32>(), 0..40), cut in 0usize..200) {
        let dtype = DType::from_code(code).unwrap();
        let bytes: Vec<u8> = seed.iter().flat_map(|word| word.to_le_bytes()).collect();
        let (first, second) = bytes.split_at(cut.min(bytes.len()));
        let mut meter = TensorMeter::new(dtype);
        meter.update(first);
        meter.update(second);
        let measured = meter.finish();
        let (figures, non_finite) = slow(dtype, &bytes);
        prop_assert_eq!(measured.non_finite.map(|(at, _)| at), non_finite);
        if non_finite.is_none() {
            prop_assert_eq!(measured.figures, Some(figures));
        }
        prop_assert_eq!(measured.bytes, bytes.len() as u64);
        prop_assert_eq!(measured.crc32, crate::crc32::checksum(&[&bytes]));
    }
}

#[test]
fn edges_of_each_type() {
    let measure = |dtype, bytes: &[u8]| {
        let mut meter = TensorMeter::new(dtype);
        meter.update(bytes);
        meter.finish()
    };
    // 0, -0, the smallest subnormal, the largest subnormal, the smallest normal.
    let f16s = [0u16, 0x8000, 1, 0x83ff, 0x0400].map(u16::to_le_bytes).concat();
    let figures = measure(DType::F16, &f16s).figures.unwrap();
    assert_eq!(figures, Figures { flushed: 0, subnormal: 2, max_abs: 6.103_515_6e-5, min_nonzero_abs: 5.960_464_5e-8 });
    let zeros = measure(DType::F32, &[0, 0, 0, 0x80]).figures.unwrap();
    assert_eq!(zeros, Figures::NONE);
    assert_eq!(measure(DType::U32, &[255; 4]).figures, None);
    let nan = measure(DType::Bf16, &[0x80, 0x3f, 0xc0, 0xff]).non_finite.unwrap();
    assert!(nan.0 == 1 && nan.1.is_nan());
}

#[test]
fn merging_ignores_tensors_that_are_all_zero() {
    let some = Figures { flushed: 1, subnormal: 2, max_abs: 3.0, min_nonzero_abs: 0.5 };
    assert_eq!(some.merged(Figures::NONE), some);
    assert_eq!(Figures::NONE.merged(some), some);
    let other = Figures { flushed: 1, subnormal: 0, max_abs: 4.0, min_nonzero_abs: 1.0 };
    assert_eq!(some.merged(other), Figures { flushed: 2, subnormal: 2, max_abs: 4.0, min_nonzero_abs: 0.5 });
}

//! Every level that this machine has against the portable code, for every length up to 1,000. (The tests of `ops` compare it with the definitions.)

use crate::format::layout::activation_words;
use crate::format::{DType, Dims, Planes, TensorView};
use crate::ops::activation::Activation;
use crate::ops::convert::{self, F16, F32};
use crate::ops::crew::{Crew, Scratch};
use crate::ops::kv::{IntegerRows, KvHead, KvRows};
use crate::ops::matvec::matvec;
use crate::ops::test_rng::Rng;
use crate::ops::{chip, integer, kv_integer, portable, quantise};
use crate::simd::{Level, at_every_level};

/// Every length is tried; under Miri, which is slow and has the baseline alone, one in this many.
const STEP: usize = if cfg!(miri) { 149 } else { 1 };

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}

fn halves(values: &[f32]) -> Vec<u16> {
    values.iter().map(|x| convert::narrow_f16(*x)).collect()
}

#[test]
fn the_levels_of_this_machine() {
    assert!(Level::best() >= Level::Baseline);
    println!("tested up to {}", Level::best().name());
}

#[test]
fn rows_of_floats() {
    let mut rng = Rng::new(41);
    for n in (1..1000usize).step_by(STEP) {
        let rows = 1 + n % 11;
        let (w, x) = (rng.floats(rows * n), rng.floats(n));
        let (f16, bf16) = (halves(&w), w.iter().map(|x| half::bf16::from_f32(*x).to_bits()).collect::<Vec<_>>());
        let (mut f32s, mut f16s, mut bf16s) = (vec![0.0; rows], vec![0.0; rows], vec![0.0; rows]);
        portable::matvec::<F32>(&mut f32s, &w, &x);
        portable::matvec::<F16>(&mut f16s, &f16, &x);
        portable::matvec::<convert::Bf16>(&mut bf16s, &bf16, &x);
        at_every_level(|level| {
            let dims = Dims::matrix(rows as u32, n as u32);
            let check = |dtype, bytes: &[u8], expected: &[f32]| {
                let view = TensorView::new(0, dtype, dims, bytes).unwrap();
                let mut out = vec![7.0; rows];
                matvec(&mut out, &view, &mut Activation::new(&x, &mut []), None);
                assert_eq!(bits(&out), bits(expected), "{} {dtype} {rows} x {n}", level.name());
            };
            check(DType::F32, bytemuck::cast_slice(&w), &f32s);
            check(DType::F16, bytemuck::cast_slice(&f16), &f16s);
            check(DType::Bf16, bytemuck::cast_slice(&bf16), &bf16s);
        });
    }
}

/// A matrix of random codes, multipliers and offsets; scales of 1e-4.
fn integers(rng: &mut Rng, dtype: DType, (rows, cols): (usize, usize), group: u32) -> (Dims, Vec<u8>) {
    let dims = Dims::matrix(rows as u32, cols as u32);
    let planes = Planes::new(0, dtype, dims, group).unwrap();
    let mut bytes: Vec<u8> = (0..planes.bytes).map(|_| rng.next() as u8).collect();
    // -128 is no code of q8.
    bytes[..planes.scales as usize].iter_mut().filter(|byte| **byte == 128).for_each(|byte| *byte = 129);
    for row in 0..rows {
        bytes[planes.scales as usize + 4 * row..][..4].copy_from_slice(&1e-4f32.to_le_bytes());
    }
    (dims, bytes)
}

#[test]
fn rows_of_integers() {
    let mut rng = Rng::new(42);
    for n in (1..1000usize).step_by(STEP) {
        let group = [32, 32, 64, 0, 8, 40][n % 6];
        let group = if group as usize <= n { group } else { 0 };
        let rows = 1 + n % 11;
        // As large as they get, at times: then every code is the largest or nearly.
        let x: Vec<f32> = rng.floats(n).iter().map(|x| if n % 5 == 0 { x.signum() * (1.0 - x.abs() * 1e-3) } else { *x }).collect();
        for dtype in [DType::Q8, DType::Q4] {
            let (dims, bytes) = integers(&mut rng, dtype, (rows, n), group);
            let w = TensorView::grouped(0, dtype, dims, group, &bytes).unwrap();
            let (mut codes, mut sums) = (vec![0; n.next_multiple_of(8)], vec![0; n.div_ceil(8)]);
            let scale = quantise::quantise(&mut codes, &x);
            quantise::group_sums(&mut sums, &codes, w.group_len());
            let mut expected = vec![7.0; rows];
            integer::matvec(&mut expected, &w, integer::Integers { codes: &codes, sums: &sums, scale, form: chip::Form::Plain });
            at_every_level(|level| {
                let (mut out, mut scratch) = (vec![7.0; rows], vec![f32::NAN; activation_words(n as u32) as usize]);
                matvec(&mut out, &w, &mut Activation::new(&x, &mut scratch), None);
                assert_eq!(bits(&out), bits(&expected), "{} {dtype} {rows} x {n} in groups of {group}", level.name());
            });
        }
    }
}

#[test]
fn attention_of_every_length() {
    let mut rng = Rng::new(43);
    for (n_kv_heads, head_dim) in [(2, 64), (3, 48), (1, 8), (2, 20), (1, 7), (1, 528)] {
        let width = n_kv_heads * head_dim;
        let most = if head_dim > 100 || cfg!(miri) { 40 } else { 1000 };
        let q: Vec<f32> = rng.floats(head_dim);
        let rows = rng.floats(most * width);
        let f16 = halves(&rows);
        let codes: Vec<i8> = rows.iter().map(|x| (x * 127.0) as i8).collect();
        let scales = halves(&rng.floats(most * n_kv_heads).iter().map(|x| x.abs() * 0.01).collect::<Vec<_>>());
        let head = KvHead { n_kv_heads, head: n_kv_heads - 1, head_dim };
        let (stride, offset) = (head.stride(), head.offset());
        for n in (0..70).chain((70..most).step_by(31)).filter(|n| *n <= most).step_by(STEP.min(29)) {
            let weights: Vec<f32> = rng.floats(n).iter().map(|x| x.abs()).collect();
            let mut lanes = vec![f32::NAN; 8 * head_dim];
            for first_lane in [0, 1, 7] {
                for kind in 0..3 {
                    let kv = match kind {
                        0 => KvRows::F32(&rows),
                        1 => KvRows::F16(&f16),
                        _ => KvRows::Q8(IntegerRows { codes: &codes, scales: &scales }),
                    };
                    let (mut scores, mut mixed) = (vec![3.0; n], vec![3.0; head_dim]);
                    let largest = match kv {
                        KvRows::F32(kv) => portable::scores::<F32>(&mut scores, &q, kv, stride, offset, 0.3),
                        KvRows::F16(kv) => portable::scores::<F16>(&mut scores, &q, kv, stride, offset, 0.3),
                        KvRows::Q8(kv) => kv_integer::scores(&mut scores, &q, kv, head, 0.3, &mut lanes),
                    };
                    match kv {
                        KvRows::F32(kv) => portable::mix::<F32>(&mut mixed, &weights, kv, stride, offset, first_lane, &mut lanes),
                        KvRows::F16(kv) => portable::mix::<F16>(&mut mixed, &weights, kv, stride, offset, first_lane, &mut lanes),
                        KvRows::Q8(kv) => kv_integer::mix(&mut mixed, &mut weights.clone(), kv, head),
                    }
                    at_every_level(|level| {
                        let what = format!("{} {kind} {n} x {head_dim} from lane {first_lane}", level.name());
                        let (mut out, mut scratch) = (vec![5.0; n], vec![f32::NAN; 8 * head_dim]);
                        let found = chip::scores(&mut out, &q, &kv, head, 0.3, &mut scratch);
                        assert_eq!((bits(&out), found.to_bits()), (bits(&scores), largest.to_bits()), "scores {what}");
                        let mut out = vec![5.0; head_dim];
                        chip::mix(&mut out, &mut weights.clone(), &kv, head, first_lane, &mut scratch);
                        assert_eq!(bits(&out), bits(&mixed), "mix {what}");
                    });
                }
            }
        }
    }
}

#[test]
fn elements_one_by_one() {
    let mut rng = Rng::new(44);
    for n in (0..1000usize).step_by(STEP) {
        let (x, y) = (rng.floats(n).iter().map(|x| x * 90.0).collect::<Vec<_>>(), rng.floats(n));
        let sample = |run: &dyn Fn(&mut [f32])| {
            let mut values = x.clone();
            run(&mut values);
            bits(&values)
        };
        let expected = [
            sample(&|v| portable::exp_minus(v, 1.5)),
            sample(&|v| portable::divide(v, 1.7)),
            sample(&|v| portable::gate(v, &y)),
            sample(&|v| portable::add(v, &y)),
            sample(&|v| portable::norm(v, &y, &x, 0.3)),
        ];
        let sums = [portable::sum8(&x), portable::sum8_squares(&x), quantise::largest_magnitude(&x)];
        let narrowed = halves(&x);
        let mut codes = vec![1; n.next_multiple_of(8)];
        let scale = quantise::quantise(&mut codes, &x);
        at_every_level(|level| {
            let found = [
                sample(&|v| chip::exp_minus(v, 1.5)),
                sample(&|v| chip::divide(v, 1.7)),
                sample(&|v| chip::gate(v, &y)),
                sample(&|v| chip::add(v, &y)),
                sample(&|v| chip::norm(v, &y, &x, 0.3)),
            ];
            assert_eq!(found, expected, "{} {n}", level.name());
            assert_eq!(bits(&[chip::sum8(&x), chip::sum8_squares(&x), chip::largest_magnitude(&x)]), bits(&sums), "{} {n}", level.name());
            let mut out = vec![7; n];
            chip::narrow_f16(&mut out, &x);
            assert_eq!(out, narrowed, "{} {n}", level.name());
            let mut out = vec![7; n.next_multiple_of(8)];
            assert_eq!((chip::quantise(&mut out, &x, chip::Form::Plain), &out), (scale, &codes), "{} {n}", level.name());
        });
    }
}

#[test]
fn the_largest_of_many() {
    let mut rng = Rng::new(45);
    for n in (0..200usize).step_by(STEP) {
        // Few different values, so that there are several largest ones; zeros of both signs; no numbers.
        let kinds: [&dyn Fn(usize, f32) -> f32; 5] = [
            &|_, x| x,
            &|_, x| (x * 3.0).round(),
            &|_, x| if x > 0.0 { 0.0 } else { -0.0 },
            &|i, x| if i % 7 == 3 { f32::NAN } else { (x * 4.0).round() },
            &|i, x| if i == 0 { f32::NAN } else { x },
        ];
        for kind in kinds {
            let x: Vec<f32> = rng.floats(n).into_iter().enumerate().map(|(i, x)| kind(i, x)).collect();
            let place = |found: Option<(u32, f32)>| found.map(|(at, value)| (at, value.to_bits()));
            let expected = place(portable::argmax(&x));
            at_every_level(|level| assert_eq!(place(chip::argmax(&x)), expected, "{} {x:?}", level.name()));
        }
    }
}

#[test]
fn every_half_is_narrowed_to_nearest() {
    at_every_level(|level| {
        for half in (0..=u16::MAX).step_by(11 * STEP - 10) {
            let value = convert::widen_f16(half);
            if value.is_nan() {
                continue;
            }
            // Itself, and what lies just above the middle to its neighbour, and the middle.
            let next = f32::from_bits(value.to_bits() + 0x1000);
            let values = [value, next, f32::from_bits(next.to_bits() + 1), f32::from_bits(next.to_bits().wrapping_sub(1))];
            let mut out = [0; 4];
            chip::narrow_f16(&mut out, &values);
            assert_eq!(out.to_vec(), halves(&values), "{} {half:#x}", level.name());
        }
    });
}

#[test]
fn many_vectors_are_each_like_one() {
    let mut rng = Rng::new(45);
    for n in (1..70usize).chain([96, 100, 127, 255, 256, 288, 511, 512, 800, 1000]).step_by(STEP.min(23)) {
        for (rows, count) in [(1 + n % 21, 2 + n % 9), (8, 4), (24, 64)] {
            let group = [32, 0, 64, 8][n % 4];
            let group = if group as usize <= n { group } else { 0 };
            let x: Vec<f32> =
                rng.floats(n * count).iter().map(|x| if n % 3 == 0 { x.signum() * (1.0 - x.abs() * 1e-4) } else { *x }).collect();
            let w = rng.floats(rows * n);
            for dtype in [DType::F32, DType::F16, DType::Bf16, DType::Q8, DType::Q4] {
                let (dims, bytes, group) = match dtype {
                    DType::F32 => (Dims::matrix(rows as u32, n as u32), bytemuck::cast_slice(&w).to_vec(), 0),
                    DType::F16 => (Dims::matrix(rows as u32, n as u32), bytemuck::cast_slice(&halves(&w)).to_vec(), 0),
                    DType::Bf16 => {
                        let patterns: Vec<u16> = w.iter().map(|x| half::bf16::from_f32(*x).to_bits()).collect();
                        (Dims::matrix(rows as u32, n as u32), bytemuck::cast_slice(&patterns).to_vec(), 0)
                    }
                    _ => {
                        let (dims, mut bytes) = integers(&mut rng, dtype, (rows, n), group);
                        let planes = Planes::new(0, dtype, dims, group).unwrap();
                        // Offsets as exporters choose them, but for some that leave no room for the codes in 16 bits.
                        if n % 5 > 0 && planes.offset_count > 0 {
                            for offset in bytes[planes.offsets as usize..].as_chunks_mut::<2>().0 {
                                *offset = (i16::from_le_bytes(*offset) / 16).to_le_bytes();
                            }
                        }
                        (dims, bytes, group)
                    }
                };
                let view = TensorView::grouped(0, dtype, dims, group, &bytes).unwrap();
                let words = activation_words(n as u32) as usize;
                let mut expected = vec![7.0; rows * count];
                for (out, x) in expected.chunks_mut(rows).zip(x.chunks(n)) {
                    matvec(out, &view, &mut Activation::new(x, &mut vec![0.0; words]), None);
                }
                at_every_level(|level| {
                    let mut memory = vec![f32::NAN; words * count];
                    let mut inputs: Vec<_> =
                        x.chunks(n).zip(memory.chunks_mut(words)).map(|(x, scratch)| Activation::new(x, scratch)).collect();
                    let (mut planes, mut slots) =
                        (vec![f32::NAN; count * n.next_multiple_of(32)], vec![f32::NAN; 2 * 64 * n.next_multiple_of(32)]);
                    let mut out = vec![7.0; rows * count];
                    let mut scratch = Scratch { planes: &mut planes, slots: &mut slots };
                    Crew::NONE.matmul(&mut out, &view, &mut inputs, &mut scratch);
                    assert_eq!(bits(&out), bits(&expected), "{} {dtype} {rows} x {n} in groups of {group}, {count} vectors", level.name());
                });
            }
        }
    }
}

#[test]
fn the_largest_numbers_of_many_vectors_do_not_overflow() {
    let n = if cfg!(miri) { 64 } else { 4096 };
    let x: Vec<f32> = (0..2 * n).map(|i| if i < n { 1.0 } else { -1.0 }).collect();
    let kinds = [(DType::Q8, 127u8), (DType::Q8, 129), (DType::Q4, 0xff)];
    for ((dtype, code), group) in kinds.into_iter().flat_map(|kind| [8, 32, 1024, 0].map(|group| (kind, group))) {
        let dims = Dims::matrix(3, n as u32);
        let planes = Planes::new(0, dtype, dims, group).unwrap();
        let mut bytes = vec![255u8; planes.bytes as usize];
        bytes[..planes.scales as usize].fill(code);
        for row in 0..3 {
            bytes[planes.scales as usize + 4 * row..][..4].copy_from_slice(&1f32.to_le_bytes());
        }
        if dtype == DType::Q4 {
            for offset in bytes[planes.offsets as usize..].as_chunks_mut::<2>().0 {
                *offset = (32_767i16 - 15 * 255).to_le_bytes();
            }
        }
        let view = TensorView::grouped(0, dtype, dims, group, &bytes).unwrap();
        let words = activation_words(n as u32) as usize;
        let mut expected = vec![7.0; 6];
        for (out, x) in expected.chunks_mut(3).zip(x.chunks(n)) {
            matvec(out, &view, &mut Activation::new(x, &mut vec![0.0; words]), None);
        }
        at_every_level(|level| {
            let mut memory = vec![f32::NAN; words * 2];
            let mut inputs: Vec<_> = x.chunks(n).zip(memory.chunks_mut(words)).map(|(x, scratch)| Activation::new(x, scratch)).collect();
            let (mut planes, mut slots) = (vec![f32::NAN; 2 * n], vec![f32::NAN; 2 * 32 * n]);
            let mut out = vec![7.0; 6];
            Crew::NONE.matmul(&mut out, &view, &mut inputs, &mut Scratch { planes: &mut planes, slots: &mut slots });
            assert_eq!(bits(&out), bits(&expected), "{} {dtype} {code} in groups of {group}", level.name());
        });
    }
}

//! Attention's two kernels: keys and values in f32, f16 or q8, by AVX2 where there is AVX2; values in floats by AVX-512 where there is that.

use super::avx2_attention::{self, Rows};
use super::avx2_floats::{F16, F32};
use super::avx512_attention::{self, Wide};
use crate::format::KvDType;
use crate::ops::convert::{self, from_i64, widen_f16};
use crate::ops::kv::{IntegerRows, KvHead, KvRows, is_built};
use crate::ops::kv_integer::{self, EXACT_IN_32_BITS};
use crate::ops::{portable, quantise};
use crate::simd::Level;

/// As [`any::scores`](crate::ops::chip::any::scores).
pub(crate) fn scores(scores: &mut [f32], q: &[f32], keys: &KvRows<'_>, head: KvHead, scale: f32, scratch: &mut [f32]) -> f32 {
    #[target_feature(enable = "avx2,f16c")]
    fn f32s(scores: &mut [f32], q: &[f32], keys: Rows<'_>, scale: f32) -> f32 {
        // SAFETY: the function needs AVX2 and F16C as the callee does.
        unsafe { avx2_attention::scores::<F32>(scores, q, keys, scale) }
    }
    #[target_feature(enable = "avx2,f16c")]
    fn f16s(scores: &mut [f32], q: &[f32], keys: Rows<'_>, scale: f32) -> f32 {
        // SAFETY: as above.
        unsafe { avx2_attention::scores::<F16>(scores, q, keys, scale) }
    }
    if Level::current() < Level::Avx2 {
        return super::super::any::scores(scores, q, keys, head, scale, scratch);
    }
    match *keys {
        // SAFETY: Level::current says that there is AVX2, and F16C with it.
        KvRows::F32(keys) if is_built(KvDType::F32) => unsafe { f32s(scores, q, rows(keys, head), scale) },
        // SAFETY: as above.
        KvRows::F16(keys) if is_built(KvDType::F16) => unsafe { f16s(scores, q, rows(keys, head), scale) },
        // SAFETY: as above.
        KvRows::Q8(keys) if is_built(KvDType::Q8) => unsafe { q8_scores(scores, q, keys, head, scale, scratch) },
        _ => f32::NEG_INFINITY,
    }
}

/// As [`any::mix`](crate::ops::chip::any::mix).
pub(crate) fn mix(out: &mut [f32], weights: &mut [f32], values: &KvRows<'_>, head: KvHead, first_lane: usize, lanes: &mut [f32]) {
    if Level::current() < Level::Avx2 {
        return super::super::any::mix(out, weights, values, head, first_lane, lanes);
    }
    // Columns that fill no register are left to the portable kernel.
    let (stride, offset) = (head.stride(), head.offset());
    match *values {
        KvRows::F32(values) if is_built(KvDType::F32) => {
            let done = mix_floats::<F32>(out, weights, rows(values, head), first_lane);
            let rest = out.get_mut(done..).unwrap_or_default();
            portable::mix::<convert::F32>(rest, weights, values, stride, offset.wrapping_add(done), first_lane, lanes);
        }
        KvRows::F16(values) if is_built(KvDType::F16) => {
            let done = mix_floats::<F16>(out, weights, rows(values, head), first_lane);
            let rest = out.get_mut(done..).unwrap_or_default();
            portable::mix::<convert::F16>(rest, weights, values, stride, offset.wrapping_add(done), first_lane, lanes);
        }
        // SAFETY: Level::current says that there is AVX2, and F16C with it.
        KvRows::Q8(values) if is_built(KvDType::Q8) => unsafe { q8_mix(out, weights, values, head) },
        _ => out.fill(0.0),
    }
}

/// The columns that fill registers; returns how many those are. There is AVX2.
fn mix_floats<S: Wide>(out: &mut [f32], weights: &[f32], values: Rows<'_>, first_lane: usize) -> usize {
    #[target_feature(enable = "avx2,f16c")]
    fn eights<S: Wide>(out: &mut [f32], weights: &[f32], values: Rows<'_>, first_lane: usize) -> usize {
        // SAFETY: the function needs AVX2 and F16C as the callee does.
        unsafe { avx2_attention::mix::<S>(out, weights, values, first_lane) }
    }
    #[target_feature(enable = "avx512f,avx512dq,avx512vl,avx2,f16c")]
    fn sixteens<S: Wide>(out: &mut [f32], weights: &[f32], values: Rows<'_>, first_lane: usize) -> usize {
        // SAFETY: the function needs AVX-512 F as the callees do.
        unsafe {
            let done = avx512_attention::mix::<S, 2>(out, weights, values, first_lane);
            let (rest, values) = (out.get_mut(done..).unwrap_or_default(), values.behind(done * S::BYTES));
            done + avx512_attention::mix::<S, 1>(rest, weights, values, first_lane)
        }
    }
    let mut done = 0;
    if Level::current() >= Level::Avx512 {
        // SAFETY: Level::current says that there is AVX-512, and what came before it.
        done = unsafe { sixteens::<S>(out, weights, values, first_lane) };
    }
    let (rest, values) = (out.get_mut(done..).unwrap_or_default(), values.behind(done * S::BYTES));
    // SAFETY: Level::current says that there is AVX2, and F16C with it.
    done + unsafe { eights::<S>(rest, weights, values, first_lane) }
}

/// A head's part of the rows, as bytes.
fn rows<T: bytemuck::NoUninit>(elements: &[T], head: KvHead) -> Rows<'_> {
    let bytes = bytemuck::cast_slice(elements.get(head.offset()..).unwrap_or(&[]));
    Rows { bytes, stride: head.stride().wrapping_mul(size_of::<T>()), head: head.head_dim.wrapping_mul(size_of::<T>()) }
}

/// As [`kv_integer::scores`].
#[target_feature(enable = "avx2,f16c")]
fn q8_scores(scores: &mut [f32], q: &[f32], keys: IntegerRows<'_>, head: KvHead, scale: f32, scratch: &mut [f32]) -> f32 {
    // Heads that 16 does not divide, or that are too long for 32 bits, are seldom.
    if !q.len().is_multiple_of(16) || q.len() > EXACT_IN_32_BITS {
        return kv_integer::scores(scores, q, keys, head, scale, scratch);
    }
    let (stride, offset) = (head.stride(), head.offset());
    let mut largest = f32::NEG_INFINITY;
    let Some(codes) = bytemuck::cast_slice_mut::<f32, i16>(scratch).get_mut(..q.len()).filter(|_| stride > 0) else { return largest };
    let q_scale = quantise::quantise(codes, q);
    let rows = keys.codes.get(offset..).unwrap_or(&[]).chunks(stride);
    let scales = keys.scales.get(head.head..).unwrap_or(&[]).iter().step_by(head.n_kv_heads.max(1));
    let lie = Rows { bytes: &[], stride, head: q.len() };
    for ((score, row), k_scale) in scores.iter_mut().zip(rows).zip(scales) {
        avx2_attention::fetch_next_head::<1>(row.as_ptr().cast(), lie, q.len());
        let sum = super::avx2_attention::dot_codes(codes, row.get(..q.len()).unwrap_or(row));
        *score = (sum as f32 * (q_scale * widen_f16(*k_scale))) * scale;
        if *score > largest {
            largest = *score;
        }
    }
    largest
}

/// As [`kv_integer::mix`].
#[target_feature(enable = "avx2,f16c")]
fn q8_mix(out: &mut [f32], weights: &mut [f32], values: IntegerRows<'_>, head: KvHead) {
    let (codes, scale) = kv_integer::weight_codes(weights, values, head);
    let (sixteens, rest) = out.as_chunks_mut::<16>();
    let (stride, offset) = (head.stride(), head.offset());
    let done = sixteens.len() * 16;
    for (number, out) in sixteens.iter_mut().enumerate() {
        let bytes = bytemuck::cast_slice(values.codes.get(offset.wrapping_add(16 * number)..).unwrap_or(&[]));
        let mut sums = [0i64; 16];
        for (part, codes) in codes.chunks(EXACT_IN_32_BITS).enumerate() {
            let bytes = bytes.get(part * EXACT_IN_32_BITS * stride..).unwrap_or(&[]);
            let mut part = [0i32; 16];
            let begins_a_line = (16 * number).is_multiple_of(avx2_attention::LINE);
            avx2_attention::mix_codes(&mut part, codes, Rows { bytes, stride, head: head.head_dim }, begins_a_line);
            sums.iter_mut().zip(part).for_each(|(sum, part)| *sum += i64::from(part));
        }
        out.iter_mut().zip(sums).for_each(|(y, sum)| *y = from_i64(sum) * scale);
    }
    kv_integer::mix_columns(rest, codes, values, stride, offset.wrapping_add(done), scale);
}

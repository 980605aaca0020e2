//! Attention over keys and values in 8 bits: integers multiplied by integers, one scale a head and position. Called by the kernels in `chip`.
#![cfg_attr(
    all(target_arch = "arm", target_os = "none", target_abi = "eabihf"),
    allow(dead_code, reason = "the kernels there take all but the storing over")
)]

use super::chip;
use super::convert::{self, narrow_f16};
use super::kv::KvHead;
use super::parts::parts;
use super::quantise::{ACTIVATION_LIMIT, CACHE_LIMIT, quantise, rounded};

/// Keys or values of one layer in 8 bits, position after position.
#[derive(Clone, Copy, Debug)]
pub struct IntegerRows<'a> {
    /// position x `kv_dim`.
    pub codes: &'a [i8],
    /// position x `n_kv_heads`: half-precision patterns.
    pub scales: &'a [u16],
}

/// So many products of a cached code and an activation's fit 32 bits.
pub(crate) const EXACT_IN_32_BITS: usize = 512;

/// Narrows one position's keys or values to codes, each head of `head_dim` elements with a scale of its own: `narrow16(max |x| / 127)`.
#[inline(never)]
pub(crate) fn store(codes: &mut [i8], scales: &mut [u16], row: &[f32], head_dim: usize) {
    if head_dim == 0 {
        return;
    }
    for ((codes, scale), x) in codes.chunks_exact_mut(head_dim).zip(scales).zip(parts(row, head_dim)) {
        *scale = narrow_f16(chip::largest_magnitude(x) / CACHE_LIMIT as f32);
        let inverse = if *scale == 0 { 0.0 } else { 1.0 / chip::widen_f16(*scale) };
        for (code, x) in codes.iter_mut().zip(x) {
            *code = rounded(*x * inverse, CACHE_LIMIT) as i8;
        }
    }
}

/// `scores[t] = (f32(sum of q_code * k_code[t]) * (q_scale * k_scale[t])) * scale`; the first row of `keys` belongs to the first score. Returns the largest score (-inf if
/// there is none), NaNs left out. `scratch` has at least half as many elements as `q`.
#[inline(never)]
pub(crate) fn scores(scores: &mut [f32], q: &[f32], keys: IntegerRows<'_>, place: KvHead, scale: f32, scratch: &mut [f32]) -> f32 {
    let mut largest = f32::NEG_INFINITY;
    let (stride, offset) = (place.stride(), place.offset());
    let Some(codes) = bytemuck::cast_slice_mut::<f32, i16>(scratch).get_mut(..q.len()).filter(|_| stride > 0) else { return largest };
    let q_scale = quantise(codes, q);
    let rows = parts(keys.codes, stride).zip(parts(keys.scales, place.n_kv_heads));
    for (score, (row, scales)) in scores.iter_mut().zip(rows) {
        let row = row.get(offset..).unwrap_or(&[]);
        let k_scale = chip::widen_f16(scales.get(place.head).copied().unwrap_or(0));
        *score = (convert::from_i64(dot(codes, row)) * (q_scale * k_scale)) * scale;
        if *score > largest {
            largest = *score;
        }
    }
    largest
}

/// The sum of the products, exact: heads may be longer than 32 bits allow.
fn dot(q: &[i16], k: &[i8]) -> i64 {
    parts(q, EXACT_IN_32_BITS).zip(parts(k, EXACT_IN_32_BITS)).fold(0, |sum, (q, k)| {
        let part = q.iter().zip(k).fold(0i32, |sum, (q, k)| sum.wrapping_add(i32::from(*q).wrapping_mul(i32::from(*k))));
        sum.wrapping_add(i64::from(part))
    })
}

/// `out[j] = f32(sum over t of u_code[t] * v_code[t][j]) * u_scale`, u[t] = weights[t] * `v_scale`[t] quantised over t like an activation vector; the first row of `values` belongs to the first
/// weight. The weights are lost.
#[inline(never)]
pub(crate) fn mix(out: &mut [f32], weights: &mut [f32], values: IntegerRows<'_>, place: KvHead) {
    let (stride, offset) = (place.stride(), place.offset());
    if stride == 0 {
        return;
    }
    for (weight, scales) in weights.iter_mut().zip(parts(values.scales, place.n_kv_heads)) {
        *weight *= chip::widen_f16(scales.get(place.head).copied().unwrap_or(0));
    }
    let largest = chip::largest_magnitude(weights);
    let inverse = ACTIVATION_LIMIT as f32 / largest;
    let u_scale = largest / ACTIVATION_LIMIT as f32;
    // Each weight makes room for its code.
    let codes: &mut [i32] = bytemuck::cast_slice_mut(weights);
    for code in codes.iter_mut() {
        let weight = f32::from_bits(code.cast_unsigned());
        *code = if inverse < f32::INFINITY {
            rounded(weight * inverse, ACTIVATION_LIMIT)
        } else if weight > 0.0 {
            ACTIVATION_LIMIT
        } else {
            0
        };
    }
    let mut column = offset;
    for block in out.chunks_mut(COLUMNS) {
        for (y, sum) in block.iter_mut().zip(columns(codes, values.codes, stride, column)) {
            *y = convert::from_i64(sum) * u_scale;
        }
        column = column.saturating_add(COLUMNS);
    }
}

/// Columns that are summed at a time.
const COLUMNS: usize = 4;

/// The weighted sums of neighbouring columns from `column` on, as far as rows go.
fn columns(weights: &[i32], rows: &[i8], stride: usize, column: usize) -> [i64; COLUMNS] {
    let mut sums = [0i64; COLUMNS];
    for (weights, rows) in parts(weights, EXACT_IN_32_BITS).zip(parts(rows, stride.saturating_mul(EXACT_IN_32_BITS))) {
        let mut part = [0i32; COLUMNS];
        for (weight, row) in weights.iter().zip(parts(rows, stride)) {
            for (sum, value) in part.iter_mut().zip(row.get(column..).unwrap_or(&[])) {
                *sum = sum.wrapping_add(weight.wrapping_mul(i32::from(*value)));
            }
        }
        for (sum, part) in sums.iter_mut().zip(part) {
            *sum = sum.wrapping_add(i64::from(part));
        }
    }
    sums
}

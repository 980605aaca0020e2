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
    // What is left of the cache: from the head's part of the next row, and from its scale, on.
    let (mut rows, mut scales) = (keys.codes.get(offset..).unwrap_or(&[]), keys.scales.get(place.head..).unwrap_or(&[]));
    for score in scores {
        let k_scale = chip::widen_f16(scales.first().copied().unwrap_or(0));
        *score = (dot(codes, rows) * (q_scale * k_scale)) * scale;
        if *score > largest {
            largest = *score;
        }
        rows = rows.get(stride..).unwrap_or(&[]);
        scales = scales.get(place.n_kv_heads..).unwrap_or(&[]);
    }
    largest
}

/// The sum of the products, exact until it becomes a float: heads may be longer than 32 bits allow, but seldom are.
fn dot(q: &[i16], k: &[i8]) -> f32 {
    if q.len() <= EXACT_IN_32_BITS {
        return short_dot(q, k) as f32;
    }
    let parts = parts(q, EXACT_IN_32_BITS).zip(parts(k, EXACT_IN_32_BITS));
    convert::from_i64(parts.fold(0, |sum, (q, k)| sum.wrapping_add(i64::from(short_dot(q, k)))))
}

#[inline(always)]
#[allow(clippy::inline_always, reason = "compiled into the loop over positions")]
fn short_dot(q: &[i16], k: &[i8]) -> i32 {
    let product = |q: i16, k: i8| i32::from(q).wrapping_mul(i32::from(k));
    let (fours, rest) = q.as_chunks::<4>();
    let (k, k_rest) = k.split_at_checked(q.len().wrapping_sub(rest.len())).unwrap_or((k, &[]));
    let mut sum = 0i32;
    for ([q0, q1, q2, q3], [k0, k1, k2, k3]) in fours.iter().zip(k.as_chunks::<4>().0) {
        sum = sum.wrapping_add(product(*q0, *k0)).wrapping_add(product(*q1, *k1));
        sum = sum.wrapping_add(product(*q2, *k2)).wrapping_add(product(*q3, *k3));
    }
    rest.iter().zip(k_rest).fold(sum, |sum, (q, k)| sum.wrapping_add(product(*q, *k)))
}

/// `out[j] = f32(sum over t of u_code[t] * v_code[t][j]) * u_scale`, u[t] = weights[t] * `v_scale`[t] quantised over t like an activation vector; the first row of `values` belongs to the first
/// weight. The weights are lost.
#[inline(never)]
pub(crate) fn mix(out: &mut [f32], weights: &mut [f32], values: IntegerRows<'_>, place: KvHead) {
    let (stride, offset) = (place.stride(), place.offset());
    if stride == 0 {
        return;
    }
    let (codes, u_scale) = weight_codes(weights, values, place);
    mix_columns(out, codes, values, stride, offset, u_scale);
}

/// The codes of the weights, in their place, and what a code of 1 is worth.
#[inline(always)]
#[allow(clippy::inline_always, reason = "a part of `mix`, which a chip has once")]
pub(crate) fn weight_codes<'w>(weights: &'w mut [f32], values: IntegerRows<'_>, place: KvHead) -> (&'w [i32], f32) {
    let mut scales = values.scales.get(place.head..).unwrap_or(&[]);
    for weight in weights.iter_mut() {
        *weight *= chip::widen_f16(scales.first().copied().unwrap_or(0));
        scales = scales.get(place.n_kv_heads..).unwrap_or(&[]);
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
    (codes, u_scale)
}

/// The columns of `values` from `offset` on, weighted and added up.
#[inline(always)]
#[allow(clippy::inline_always, reason = "a part of `mix`, which a chip has once")]
pub(crate) fn mix_columns(out: &mut [f32], codes: &[i32], values: IntegerRows<'_>, stride: usize, offset: usize, u_scale: f32) {
    for (place, y) in (offset..).zip(out) {
        let column = values.codes.get(place..).unwrap_or(&[]);
        *y = if codes.len() <= EXACT_IN_32_BITS { short_sum(codes, column, stride) as f32 } else { long_sum(codes, column, stride) }
            * u_scale;
    }
}

/// The weighted sum of a column: of every `stride`th value.
#[inline(always)]
#[allow(clippy::inline_always, reason = "a loop of ten instructions")]
fn short_sum(weights: &[i32], column: &[i8], stride: usize) -> i32 {
    let (mut sum, mut place) = (0i32, 0usize);
    for weight in weights {
        sum = sum.wrapping_add(weight.wrapping_mul(i32::from(column.get(place).copied().unwrap_or(0))));
        place = place.wrapping_add(stride);
    }
    sum
}

/// The same for more rows than 32 bits hold the sums of.
#[cold]
#[inline(never)]
fn long_sum(weights: &[i32], column: &[i8], stride: usize) -> f32 {
    let parts = parts(weights, EXACT_IN_32_BITS).zip(parts(column, stride.saturating_mul(EXACT_IN_32_BITS)));
    convert::from_i64(parts.fold(0, |sum, (weights, column)| sum.wrapping_add(i64::from(short_sum(weights, column, stride)))))
}

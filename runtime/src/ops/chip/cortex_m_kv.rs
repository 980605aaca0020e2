//! Attention over keys and values in 8 bits on cores with the DSP instructions: the kernels of `cortex_m_kv.s`, each behind a function that checks what the assembly takes for granted. What
//! they do not cover (heads not a multiple of 8 wide, or wider than 512) is done element by element, with the same bits: slower, and small.

use super::cortex_m_quantise::{BLOCK, quantise};
use super::cortex_m4f::largest_magnitude;
use crate::format::DType;
use crate::ops::convert::from_i64;
use crate::ops::kv::KvHead;
use crate::ops::kv_integer::{EXACT_IN_32_BITS, IntegerRows};
use crate::ops::parts::parts;
use crate::ops::quantise::{ACTIVATION_LIMIT, quantise_tiny, rounded};

unsafe extern "C" {
    fn dmexp_dsp_scores(
        keys: *const i8,
        scales: *const u16,
        q: *const i16,
        q_end: *const i16,
        gap: usize,
        scale_stride: usize,
        scores: *mut f32,
        end: *mut f32,
        q_scale: f32,
        scale: f32,
        largest: f32,
    ) -> f32;
    fn dmexp_dsp_weigh(weights: *mut f32, end: *mut f32, scales: *const u16, scale_stride: usize) -> u32;
    fn dmexp_dsp_codes(weights: *mut f32, end: *mut f32, inverse: f32);
    fn dmexp_dsp_columns(values: *const i8, codes: *const i32, end: *const i32, stride: usize, sums: &mut [i32; BLOCK]);
}

/// The codes and scales of a head, from its first on, if the kernels may read those of `count` positions, not none: all of them there, each head whole words, of `width` elements.
fn head_of(rows: IntegerRows<'_>, place: KvHead, width: usize, count: usize) -> Option<(&[i8], &[u16])> {
    let all = count.checked_mul(place.n_kv_heads)?;
    let enough = all.checked_mul(width)? <= rows.codes.len() && all <= rows.scales.len() && count > 0;
    let fits = width == place.head_dim && width.is_multiple_of(BLOCK) && (1..=EXACT_IN_32_BITS).contains(&width);
    let aligned = rows.codes.as_ptr().addr().is_multiple_of(4);
    if !enough || !fits || !aligned || place.head >= place.n_kv_heads {
        return None;
    }
    Some((rows.codes.get(place.offset()..)?, rows.scales.get(place.head..)?))
}

/// As [`kv_integer::scores`](crate::ops::kv_integer::scores).
#[inline(never)]
pub(super) fn scores(scores: &mut [f32], q: &[f32], keys: IntegerRows<'_>, place: KvHead, scale: f32, scratch: &mut [f32]) -> f32 {
    let room = bytemuck::cast_slice_mut::<f32, i16>(scratch).get_mut(..q.len());
    let (Some((codes, scales)), Some(q_codes)) = (head_of(keys, place, q.len(), scores.len()), room) else {
        return slow_scores(scores, q, keys, place, scale);
    };
    let q_scale = quantise(q_codes, q, DType::Q8);
    let (q_ends, ends) = (q_codes.as_ptr_range(), scores.as_mut_ptr_range());
    let (gap, scale_stride) = (place.stride().wrapping_sub(q.len()), place.n_kv_heads.wrapping_mul(2));
    let (codes, scales) = (codes.as_ptr(), scales.as_ptr());
    // SAFETY: `head_of` made sure that there is a score, and for each a scale, and a key as long as `q`, in whole words and eights. The kernel writes the scores alone and keeps to the calling
    // convention.
    unsafe {
        dmexp_dsp_scores(
            codes,
            scales,
            q_ends.start,
            q_ends.end,
            gap,
            scale_stride,
            ends.start,
            ends.end,
            q_scale,
            scale,
            f32::NEG_INFINITY,
        )
    }
}

/// As [`kv_integer::mix`](crate::ops::kv_integer::mix).
#[inline(never)]
pub(super) fn mix(out: &mut [f32], weights: &mut [f32], values: IntegerRows<'_>, place: KvHead) {
    let Some((mut values, scales)) = head_of(values, place, out.len(), weights.len()) else {
        return slow_mix(out, weights, values, place);
    };
    let ends = weights.as_mut_ptr_range();
    // SAFETY: `head_of` made sure that there is a weight, and for each a scale; the kernel writes the weights alone and keeps to the calling convention.
    let largest = f32::from_bits(unsafe { dmexp_dsp_weigh(ends.start, ends.end, scales.as_ptr(), place.n_kv_heads.wrapping_mul(2)) } >> 1);
    let inverse = ACTIVATION_LIMIT as f32 / largest;
    let u_scale = largest / ACTIVATION_LIMIT as f32;
    if inverse < f32::INFINITY {
        // SAFETY: as above.
        unsafe { dmexp_dsp_codes(ends.start, ends.end, inverse) };
    } else {
        for weight in weights.iter_mut() {
            *weight = f32::from_bits(u32::from(code(*weight, largest).cast_unsigned()));
        }
    }
    let codes: &[i32] = bytemuck::cast_slice(weights);
    for block in out.as_chunks_mut::<BLOCK>().0 {
        if codes.len() <= EXACT_IN_32_BITS {
            columns(bytemuck::cast_mut(block), values, codes, place.stride());
            for y in block {
                *y = y.to_bits().cast_signed() as f32 * u_scale;
            }
        } else {
            mix_long(block, values, codes, place.stride(), u_scale);
        }
        values = values.get(BLOCK..).unwrap_or(&[]);
    }
}

/// Heads of any width, element by element.
#[cold]
fn slow_scores(scores: &mut [f32], q: &[f32], keys: IntegerRows<'_>, place: KvHead, scale: f32) -> f32 {
    let q_largest = largest_magnitude(q);
    let q_scale = q_largest / ACTIVATION_LIMIT as f32;
    let mut largest = f32::NEG_INFINITY;
    let (mut first, mut head) = (place.offset(), place.head);
    for score in scores {
        let sum = q.iter().enumerate().fold(0, |sum, (j, q)| product(sum, code(*q, q_largest), &keys, first.wrapping_add(j)));
        *score = (from_i64(sum) * (q_scale * scale_of(&keys, head))) * scale;
        if *score > largest {
            largest = *score;
        }
        first = first.wrapping_add(place.stride());
        head = head.wrapping_add(place.n_kv_heads);
    }
    largest
}

/// Heads of any width, element by element.
#[cold]
fn slow_mix(out: &mut [f32], weights: &mut [f32], values: IntegerRows<'_>, place: KvHead) {
    let mut head = place.head;
    for weight in weights.iter_mut() {
        *weight *= scale_of(&values, head);
        head = head.wrapping_add(place.n_kv_heads);
    }
    let largest = largest_magnitude(weights);
    for (j, y) in out.iter_mut().enumerate() {
        let mut at = place.offset().wrapping_add(j);
        let mut sum = 0;
        for weight in weights.iter() {
            sum = product(sum, code(*weight, largest), &values, at);
            at = at.wrapping_add(place.stride());
        }
        *y = from_i64(sum) * (largest / ACTIVATION_LIMIT as f32);
    }
}

/// The code of `x` among numbers of which `largest` is the largest magnitude.
fn code(x: f32, largest: f32) -> i16 {
    let inverse = ACTIVATION_LIMIT as f32 / largest;
    if inverse < f32::INFINITY {
        return rounded(x * inverse, ACTIVATION_LIMIT) as i16;
    }
    let mut code = [0];
    quantise_tiny(&mut code, &[x]);
    let [code] = code;
    code
}

fn product(sum: i64, code: i16, rows: &IntegerRows<'_>, at: usize) -> i64 {
    let stored = rows.codes.get(at).copied().unwrap_or(0);
    sum.wrapping_add(i64::from(i32::from(code).wrapping_mul(i32::from(stored))))
}

fn scale_of(rows: &IntegerRows<'_>, at: usize) -> f32 {
    super::widen_f16(rows.scales.get(at).copied().unwrap_or(0))
}

/// The sums of eight columns over all positions, at most [`EXACT_IN_32_BITS`] of them and at least one, of which `values` has whole rows as `head_of` saw them.
fn columns(sums: &mut [i32; BLOCK], values: &[i8], codes: &[i32], stride: usize) {
    let ends = codes.as_ptr_range();
    // SAFETY: there is a row of values for each code, in whole words, and eight columns of each from here on. The kernel writes `sums` alone and keeps to the calling convention.
    unsafe { dmexp_dsp_columns(values.as_ptr(), ends.start, ends.end, stride, sums) };
}

/// Eight columns over more positions than sums of 32 bits have room for.
#[cold]
#[inline(never)]
fn mix_long(out: &mut [f32; BLOCK], values: &[i8], codes: &[i32], stride: usize, u_scale: f32) {
    let mut wide = [0i64; BLOCK];
    let mut part = [0; BLOCK];
    let mut rest = values;
    for codes in parts(codes, EXACT_IN_32_BITS) {
        columns(&mut part, rest, codes, stride);
        for (wide, sum) in wide.iter_mut().zip(&part) {
            *wide = wide.wrapping_add(i64::from(*sum));
        }
        rest = rest.get(codes.len().wrapping_mul(stride)..).unwrap_or(&[]);
    }
    for (y, sum) in out.iter_mut().zip(&wide) {
        *y = from_i64(*sum) * u_scale;
    }
}

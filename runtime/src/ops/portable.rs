//! The kernels in plain Rust, for machines without a form of their own in `chip`, and the reference that those forms are tested against.
//!
//! Written so that the compiler vectorises them where it can: eight lanes of four rows at a time on machines with vector registers.

#![cfg_attr(
    any(all(target_arch = "arm", target_os = "none", target_abi = "eabihf"), not(any(feature = "f32", feature = "f16", feature = "bf16"))),
    allow(dead_code, reason = "the kernels there take most of these over; a build without float matrices needs few of them")
)]
#![cfg_attr(x86_64_host, allow(clippy::inline_always, reason = "compiled again for other instructions by `chip`"))]

use super::convert::Stored;
use super::math::{exp, silu};
use super::parts::parts;
use super::sum::{Lanes, dot_stored, lanes_of, tree};
use crate::format::arch::llama::RopeLayout;

/// `dot8` of one row.
#[inline]
pub(crate) fn dot<S: Stored>(row: &[S::Item], x: &[f32]) -> f32 {
    dot_stored::<S>(row, x)
}

/// `out[r] = dot8(row r of w, x)`; rows are as long as `x`.
pub(crate) fn matvec<S: Stored>(out: &mut [f32], w: &[S::Item], x: &[f32]) {
    let n = x.len();
    if n == 0 {
        out.fill(0.0);
        return;
    }
    let (mut out, mut w) = (out, w);
    if cfg!(any(target_arch = "x86_64", target_arch = "x86", target_arch = "aarch64")) {
        let (fours, rest) = out.as_chunks_mut::<4>();
        let done = fours.len().saturating_mul(4).saturating_mul(n);
        for (four, rows) in fours.iter_mut().zip(w.chunks_exact(n.saturating_mul(4))) {
            let mut rows = rows.chunks_exact(n);
            let mut next = || rows.next().unwrap_or(&[]);
            *four = dot4::<S>(next(), next(), next(), next(), x);
        }
        out = rest;
        w = w.get(done..).unwrap_or(&[]);
    }
    for (y, row) in out.iter_mut().zip(parts(w, n)) {
        *y = dot::<S>(row, x);
    }
}

/// Four rows at once, so that `x` is loaded once for all and the additions of different rows overlap.
#[inline(always)]
#[allow(clippy::inline_always, reason = "compiled into the row loop")]
fn dot4<S: Stored>(r0: &[S::Item], r1: &[S::Item], r2: &[S::Item], r3: &[S::Item], x: &[f32]) -> [f32; 4] {
    let (mut a0, mut a1, mut a2, mut a3): (Lanes, Lanes, Lanes, Lanes) = ([0.0; 8], [0.0; 8], [0.0; 8], [0.0; 8]);
    let ((c0, t0), (c1, t1), (c2, t2), (c3, t3)) = (r0.as_chunks::<8>(), r1.as_chunks::<8>(), r2.as_chunks::<8>(), r3.as_chunks::<8>());
    let (chunks, rest) = x.as_chunks::<8>();
    for ((((x, w0), w1), w2), w3) in chunks.iter().zip(c0).zip(c1).zip(c2).zip(c3) {
        add_products::<S>(&mut a0, w0, x);
        add_products::<S>(&mut a1, w1, x);
        add_products::<S>(&mut a2, w2, x);
        add_products::<S>(&mut a3, w3, x);
    }
    add_products::<S>(&mut a0, t0, rest);
    add_products::<S>(&mut a1, t1, rest);
    add_products::<S>(&mut a2, t2, rest);
    add_products::<S>(&mut a3, t3, rest);
    [tree(a0), tree(a1), tree(a2), tree(a3)]
}

#[inline(always)]
#[allow(clippy::inline_always, reason = "the innermost step")]
fn add_products<S: Stored>(lanes: &mut Lanes, w: &[S::Item], x: &[f32]) {
    for ((lane, w), x) in lanes.iter_mut().zip(w).zip(x) {
        *lane += S::widen(*w) * *x;
    }
}

/// `scores[i] = dot8(q, head's part of row i) * scale`; rows are `stride` elements apart, the head's part begins at `offset` of each. Returns the largest score
/// (-inf if there is none), NaNs left out.
pub(crate) fn scores<S: Stored>(scores: &mut [f32], q: &[f32], keys: &[S::Item], stride: usize, offset: usize, scale: f32) -> f32 {
    let mut largest = f32::NEG_INFINITY;
    if stride == 0 {
        return largest;
    }
    let end = offset.saturating_add(q.len());
    for (score, row) in scores.iter_mut().zip(parts(keys, stride)) {
        let key = row.get(offset..end).unwrap_or(&[]);
        *score = dot::<S>(key, q) * scale;
        if *score > largest {
            largest = *score;
        }
    }
    largest
}

/// Each value replaced by `exp(value - largest)`.
#[cfg_attr(x86_64_host, inline(always))]
pub(crate) fn exp_minus(values: &mut [f32], largest: f32) {
    for value in values {
        *value = exp(*value - largest);
    }
}

/// Each value divided by `divisor`.
#[cfg_attr(x86_64_host, inline(always))]
pub(crate) fn divide(values: &mut [f32], divisor: f32) {
    for value in values {
        *value /= divisor;
    }
}

/// `out[j] = sum8 over t of weights[t] * v[t][j]`, where weight 0 belongs to lane `first_lane` (below 8); rows as in [`scores`]. `lanes` is scratch, 8 times
/// as long as `out`.
pub(crate) fn mix<S: Stored>(
    out: &mut [f32],
    weights: &[f32],
    values: &[S::Item],
    stride: usize,
    offset: usize,
    first_lane: usize,
    lanes: &mut [f32],
) {
    let n = out.len();
    let needed = n.saturating_mul(8);
    let Some(lanes) = lanes.get_mut(..needed) else { return };
    if n == 0 || stride == 0 {
        return;
    }
    lanes.fill(0.0);
    let end = offset.saturating_add(n);
    let mut lane = first_lane & 7;
    for (weight, row) in weights.iter().zip(parts(values, stride)) {
        let start = lane.saturating_mul(n);
        let sums = lanes.get_mut(start..start.saturating_add(n)).unwrap_or(&mut []);
        let row = row.get(offset..end).unwrap_or(&[]);
        for (sum, value) in sums.iter_mut().zip(row) {
            *sum += *weight * S::widen(*value);
        }
        lane = (lane + 1) & 7;
    }
    add_up(out, lanes);
}

/// `out[j]` = the tree over `lanes[0..8][j]`.
pub(crate) fn add_up(out: &mut [f32], lanes: &[f32]) {
    let n = out.len();
    if n == 0 {
        return;
    }
    let mut rows = lanes.chunks_exact(n);
    let mut next = || rows.next().unwrap_or(&[]);
    let (a0, a1, a2, a3, a4, a5, a6, a7) = (next(), next(), next(), next(), next(), next(), next(), next());
    let low = a0.iter().zip(a1).zip(a2).zip(a3);
    let high = a4.iter().zip(a5).zip(a6).zip(a7);
    for (y, ((((a0, a1), a2), a3), (((a4, a5), a6), a7))) in out.iter_mut().zip(low.zip(high)) {
        *y = tree([*a0, *a1, *a2, *a3, *a4, *a5, *a6, *a7]);
    }
}

/// `gate[i] = silu(gate[i]) * up[i]`.
#[cfg_attr(x86_64_host, inline(always))]
pub(crate) fn gate(gate: &mut [f32], up: &[f32]) {
    for (g, u) in gate.iter_mut().zip(up) {
        *g = silu(*g) * *u;
    }
}

/// Rotates every whole head of `vectors`; see [`rope`](super::rope).
#[cfg_attr(x86_64_host, inline(always))]
pub(crate) fn rotate(vectors: &mut [f32], head_dim: usize, cos: &[f32], sin: &[f32], layout: RopeLayout) {
    if head_dim == 0 {
        return;
    }
    for head in vectors.chunks_exact_mut(head_dim) {
        match layout {
            RopeLayout::Interleaved => {
                let (pairs, _) = head.as_chunks_mut::<2>();
                for (([a, b], c), s) in pairs.iter_mut().zip(cos).zip(sin) {
                    (*a, *b) = turned(*a, *b, *c, *s);
                }
            }
            RopeLayout::Half => {
                let Some((low, high)) = head.split_at_mut_checked(head_dim / 2) else { return };
                for (((a, b), c), s) in low.iter_mut().zip(high).zip(cos).zip(sin) {
                    (*a, *b) = turned(*a, *b, *c, *s);
                }
            }
        }
    }
}

#[inline]
fn turned(a: f32, b: f32, c: f32, s: f32) -> (f32, f32) {
    (a * c - b * s, a * s + b * c)
}

/// The index of the largest value, the lowest where several are largest, and that value; `None` if there are none.
pub(crate) fn argmax(values: &[f32]) -> Option<(u32, f32)> {
    let (first, rest) = values.split_first()?;
    let mut best = (0, *first);
    for (at, &value) in (1..).zip(rest) {
        if value > best.1 {
            best = (at, value);
        }
    }
    Some(best)
}

/// `x[i] = x[i] + y[i]`.
#[cfg_attr(x86_64_host, inline(always))]
pub(crate) fn add(x: &mut [f32], y: &[f32]) {
    for (x, y) in x.iter_mut().zip(y) {
        *x += *y;
    }
}

/// `out[i] = (x[i] * scale) * gain[i]`.
#[cfg_attr(x86_64_host, inline(always))]
pub(crate) fn norm(out: &mut [f32], x: &[f32], gain: &[f32], scale: f32) {
    for ((y, x), g) in out.iter_mut().zip(x).zip(gain) {
        *y = (*x * scale) * *g;
    }
}

/// The canonical sum of `terms`.
#[cfg_attr(x86_64_host, inline(always))]
pub(crate) fn sum8(terms: &[f32]) -> f32 {
    tree(lanes_of(terms, |t| t))
}

/// The canonical sum of the squares of `values`.
#[cfg_attr(x86_64_host, inline(always))]
pub(crate) fn sum8_squares(values: &[f32]) -> f32 {
    tree(lanes_of(values, |v| v * v))
}

/// The correctly rounded square root in integer arithmetic, for machines without an instruction that this crate knows.
#[allow(dead_code, reason = "where the machine has an instruction for it, only the tests call this")]
pub(crate) fn sqrt(x: f32) -> f32 {
    let bits = x.to_bits();
    if x == 0.0 || bits == f32::INFINITY.to_bits() || x.is_nan() {
        return x;
    }
    if bits >> 31 != 0 {
        return f32::NAN;
    }
    // x = fraction * 2^exponent: a 24-bit fraction and an odd exponent (the fraction doubled where it was even).
    let mut exponent = (bits >> 23) as i32;
    let mut fraction = bits & 0x007f_ffff;
    if exponent == 0 {
        let shift = fraction.leading_zeros().saturating_sub(8);
        fraction <<= shift & 31;
        exponent = 1 - shift as i32;
    } else {
        fraction |= 0x0080_0000;
    }
    exponent -= 150;
    if exponent & 1 == 0 {
        fraction <<= 1;
        exponent -= 1;
    }
    // The root of fraction * 2^25, a number of 50 bits, so 25 digits: two bits of it in and one digit out a step. The last digit decides the rounding. A tie is
    // impossible: the square of an odd root is odd, and the number ends in zeros.
    let mut radicand = u64::from(fraction) << (25 + 14);
    let (mut root, mut rest) = (0u32, 0u32);
    for _ in 0..25 {
        rest = (rest << 2) | (radicand >> 62) as u32;
        radicand <<= 2;
        let trial = (root << 2) | 1;
        root <<= 1;
        if rest >= trial {
            rest -= trial;
            root |= 1;
        }
    }
    let rounded = (root + 1) >> 1;
    // The result is rounded * 2^((exponent - 23) / 2), rounded in 2^23..=2^24: its leading bit adds 1 to the exponent field.
    let field = ((exponent - 23) >> 1) + 149;
    f32::from_bits(((field as u32) << 23).wrapping_add(rounded))
}

#[cfg(test)]
mod tests {
    use super::sqrt;

    fn check(bits: u32) {
        let x = f32::from_bits(bits);
        let (ours, reference) = (sqrt(x), x.sqrt());
        assert!(ours.to_bits() == reference.to_bits() || ours.is_nan() && reference.is_nan(), "sqrt({x:e}) = {ours:e}, not {reference:e}");
        let used = super::super::math::sqrt(x);
        assert!(used.to_bits() == reference.to_bits() || used.is_nan() && reference.is_nan(), "sqrt({x:e}) = {used:e}, not {reference:e}");
    }

    #[test]
    fn the_root_is_correctly_rounded() {
        // Two exponents (an even and an odd one) hold every case of the fraction; then all exponents, subnormals and specials, sparsely.
        for bits in (0x3f80_0000..0x4080_0000u32).step_by(if cfg!(miri) {
            500_009
        } else if cfg!(debug_assertions) {
            7
        } else {
            1
        }) {
            check(bits);
        }
        let step = if cfg!(miri) { 60_000_011 } else { 6_007 };
        for bits in (0..=u32::MAX - step as u32).step_by(step) {
            check(bits);
        }
        for bits in [0, 0x8000_0000, 1, 2, 3, 0x007f_ffff, 0x0080_0000, 0x7f7f_ffff, 0x7f80_0000, 0xff80_0000, 0x7fc0_0000] {
            check(bits);
        }
    }
}

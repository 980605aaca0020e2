//! Attention of one position over the cached ones. Called by the models once a layer and step.

use super::chip;
use super::kv::{IntegerRows, KvHead, KvRows, is_built};
use super::math::sqrt;
use super::sum::sum8;
use crate::format::KvDType;

/// How the heads of a layer lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heads {
    /// Query heads.
    pub n_heads: usize,
    /// Key/value heads; divides `n_heads`: query head h uses key/value head h / (`n_heads` / `n_kv_heads`).
    pub n_kv_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
}

/// Attention of position `last` over the positions `first..=last` (`first` is 0 without a sliding window), for every head.
///
/// - `out` and `q`: `n_heads` x `head_dim`
/// - `keys`, `values`: [position][`n_kv_heads` * `head_dim`], position 0 first, the last position stored already
/// - `scores`: scratch, at least `last` + 1 elements
/// - `lanes`: scratch, at least 8 * `head_dim` elements
///
/// For each head `score[t] = dot8(q, k[t]) * (1 / sqrt(head_dim))`, m the largest, `e[t] = exp(score[t] - m)`, `w[t] = e[t] / sum8(e)`,
/// `out[j] = sum8 over t of w[t] * v[t][j]`; the lane of position t is t mod 8, wherever the window begins. Slices that are too short, or no heads or positions,
/// give zeros.
#[allow(clippy::too_many_arguments, reason = "what attention is made of; a struct would only rename them")]
#[inline(never)]
pub fn attention(
    out: &mut [f32],
    q: &[f32],
    keys: KvRows<'_>,
    values: KvRows<'_>,
    heads: Heads,
    (first, last): (usize, usize),
    scores: &mut [f32],
    lanes: &mut [f32],
) {
    if heads.n_heads.checked_mul(heads.head_dim) != Some(q.len()) {
        out.fill(0.0);
        return;
    }
    attention_of(0, out, q, keys, values, heads, (first, last), scores, lanes);
}

/// The same for the heads from `first_head` on that `q` has the queries of.
#[allow(clippy::too_many_arguments, reason = "as attention")]
#[inline(always)]
#[allow(clippy::inline_always, reason = "all of `attention` on a chip")]
pub(crate) fn attention_of(
    first_head: usize,
    out: &mut [f32],
    q: &[f32],
    keys: KvRows<'_>,
    values: KvRows<'_>,
    heads: Heads,
    (first, last): (usize, usize),
    scores: &mut [f32],
    lanes: &mut [f32],
) {
    let Heads { n_heads, n_kv_heads, head_dim } = heads;
    let aligned = first & !7;
    let end = last.saturating_add(1);
    let group = n_heads.checked_div(n_kv_heads).unwrap_or(0);
    if group == 0 || head_dim == 0 || out.len() != q.len() {
        out.fill(0.0);
        return;
    }
    let mut head = KvHead { n_kv_heads, head: first_head.checked_div(group).unwrap_or(0), head_dim };
    let positions = (first, end);
    let (Some(keys), Some(values), Some(scores), Some(lanes)) = (
        &prepared(&keys, positions, head),
        &prepared(&values, positions, head),
        scores.get_mut(aligned..end),
        lanes.get_mut(..head_dim.saturating_mul(8)),
    ) else {
        out.fill(0.0);
        return;
    };
    let scale = 1.0 / sqrt(head_dim as f32);
    let skipped = first & 7;
    let mut in_group = first_head.checked_rem(group).unwrap_or(0);
    for (out, q) in out.chunks_exact_mut(head_dim).zip(q.chunks_exact(head_dim)) {
        // Positions before the window add +0 to their lanes, which changes no bit: so the sum may begin at a multiple of 8.
        if let Some((before, scores)) = scores.split_at_mut_checked(skipped) {
            before.fill(0.0);
            let largest = chip::scores(scores, q, keys, head, scale, lanes);
            chip::exp_minus(scores, largest);
        }
        let total = sum8(scores);
        if let Some((_, weights)) = scores.split_at_mut_checked(skipped) {
            chip::divide(weights, total);
            chip::mix(out, weights, values, head, skipped, lanes);
        }
        in_group += 1;
        if in_group == group {
            in_group = 0;
            head.head = head.head.wrapping_add(1);
        }
    }
}

/// The rows of positions `first..end`, as the kernels take them.
#[inline(never)]
fn prepared<'a>(rows: &KvRows<'a>, (first, end): (usize, usize), head: KvHead) -> Option<chip::Prepared<'a>> {
    let (stride, n_kv_heads) = (head.stride(), head.n_kv_heads);
    let elements = first.checked_mul(stride)?..end.checked_mul(stride)?;
    let rows = match *rows {
        KvRows::F32(rows) if is_built(KvDType::F32) => KvRows::F32(rows.get(elements)?),
        KvRows::F16(rows) if is_built(KvDType::F16) => KvRows::F16(rows.get(elements)?),
        KvRows::Q8(rows) if is_built(KvDType::Q8) => KvRows::Q8(IntegerRows {
            codes: rows.codes.get(elements)?,
            scales: rows.scales.get(first.checked_mul(n_kv_heads)?..end.checked_mul(n_kv_heads)?)?,
        }),
        _ => return None,
    };
    Some(chip::prepare(rows, end.saturating_sub(first), head))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::math::exp;
    use crate::ops::test_rng::Rng;

    /// sum8 of (absolute index, term), by the definition.
    fn sum_at(terms: impl Iterator<Item = (usize, f32)>) -> f32 {
        let mut a = [0.0f32; 8];
        for (i, term) in terms {
            a[i % 8] += term;
        }
        ((a[0] + a[4]) + (a[2] + a[6])) + ((a[1] + a[5]) + (a[3] + a[7]))
    }

    fn literal(q: &[f32], k: &[f32], v: &[f32], heads: Heads, first: usize, last: usize) -> Vec<f32> {
        let Heads { n_heads, n_kv_heads, head_dim: h } = heads;
        let width = n_kv_heads * h;
        let mut out = vec![];
        for head in 0..n_heads {
            let kv = head / (n_heads / n_kv_heads);
            let at = |rows: &[f32], t: usize, j: usize| rows[t * width + kv * h + j];
            let scale = 1.0 / (h as f32).sqrt();
            let score: Vec<f32> = (0..=last).map(|t| sum_at((0..h).map(|j| (j, at(k, t, j) * q[head * h + j]))) * scale).collect();
            let m = (first..=last).map(|t| score[t]).fold(f32::NEG_INFINITY, f32::max);
            let e: Vec<f32> = score.iter().map(|s| exp(s - m)).collect();
            let d = sum_at((first..=last).map(|t| (t, e[t])));
            for j in 0..h {
                out.push(sum_at((first..=last).map(|t| (t, (e[t] / d) * at(v, t, j)))));
            }
        }
        out
    }

    fn bits(values: &[f32]) -> Vec<u32> {
        values.iter().map(|v| v.to_bits()).collect()
    }

    #[test]
    fn attention_is_the_definition_for_every_length_window_and_grouping() {
        crate::simd::at_every_level(|_| attention_is_the_definition());
    }

    fn attention_is_the_definition() {
        let mut rng = Rng::new(7);
        for (n_heads, n_kv_heads, head_dim) in
            [(8, 4, 8), (1, 1, 2), (6, 2, 6), (3, 1, 16), (4, 4, 20), (9, 3, 64)].into_iter().take(if cfg!(miri) { 2 } else { 6 })
        {
            let heads = Heads { n_heads, n_kv_heads, head_dim };
            let (width, context) = (n_kv_heads * head_dim, 41);
            let (k, v) = (rng.floats(context * width), rng.floats(context * width));
            let halves = |values: &[f32]| values.iter().map(|x| half::f16::from_f32(*x).to_bits()).collect::<Vec<u16>>();
            let widened = |halves: &[u16]| halves.iter().map(|x| half::f16::from_bits(*x).to_f32()).collect::<Vec<f32>>();
            let (k16, v16) = (halves(&k), halves(&v));
            let (k16_wide, v16_wide) = (widened(&k16), widened(&v16));
            for last in (0..40).step_by(if cfg!(miri) { 13 } else { 1 }) {
                for window in [0, 1, 3, 8, 13].into_iter().take(if cfg!(miri) { 2 } else { 5 }) {
                    let first = if window == 0 { 0 } else { (last + 1usize).saturating_sub(window) };
                    let q: Vec<f32> = rng.floats(n_heads * head_dim).iter().map(|x| x * 4.0).collect();
                    let mut out = vec![9.0; q.len()];
                    let (mut scores, mut lanes) = (vec![f32::NAN; context], vec![f32::NAN; 8 * head_dim]);
                    attention(&mut out, &q, KvRows::F32(&k), KvRows::F32(&v), heads, (first, last), &mut scores, &mut lanes);
                    assert_eq!(bits(&out), bits(&literal(&q, &k, &v, heads, first, last)), "{heads:?} {first}..={last}");
                    attention(&mut out, &q, KvRows::F16(&k16), KvRows::F16(&v16), heads, (first, last), &mut scores, &mut lanes);
                    assert_eq!(bits(&out), bits(&literal(&q, &k16_wide, &v16_wide, heads, first, last)), "{heads:?} {first}..={last}");
                }
            }
        }
    }

    #[test]
    fn a_nan_score_is_not_hidden() {
        let heads = Heads { n_heads: 1, n_kv_heads: 1, head_dim: 2 };
        let (mut out, mut scores, mut lanes) = ([0.0; 2], [0.0; 3], [0.0; 16]);
        let keys = [1.0, 2.0, f32::NAN, 0.0, 3.0, 4.0];
        attention(&mut out, &[1.0, 1.0], KvRows::F32(&keys), KvRows::F32(&[1.0; 6]), heads, (0, 2), &mut scores, &mut lanes);
        assert!(out.iter().all(|y| y.is_nan()));
    }

    #[test]
    fn what_does_not_fit_gives_zeros() {
        let good = Heads { n_heads: 2, n_kv_heads: 1, head_dim: 4 };
        let rows = [1.0; 12];
        let run = |heads: Heads, first: usize, last: usize, q: usize, scratch: usize| {
            let (mut out, mut scores, mut lanes) = ([5.0; 8], [0.0; 3], [0.0; 32]);
            let (k, v) = (KvRows::F32(&rows), KvRows::F32(&rows));
            attention(&mut out, &[1.0; 16][..q], k, v, heads, (first, last), &mut scores, &mut lanes[..scratch]);
            out
        };
        assert_eq!(run(good, 0, 2, 8, 32), [1.0; 8]);
        let zeros = [0.0; 8];
        assert_eq!(run(good, 0, 3, 8, 32), zeros);
        assert_eq!(run(good, 3, 2, 8, 32), zeros);
        assert_eq!(run(good, 0, usize::MAX, 8, 32), zeros);
        assert_eq!(run(good, 0, 2, 7, 32), zeros);
        assert_eq!(run(good, 0, 2, 8, 31), zeros);
        assert_eq!(run(Heads { n_kv_heads: 0, ..good }, 0, 2, 8, 32), zeros);
        assert_eq!(run(Heads { n_kv_heads: 3, ..good }, 0, 2, 8, 32), zeros);
        assert_eq!(run(Heads { n_heads: 0, ..good }, 0, 2, 8, 32), zeros);
        assert_eq!(run(Heads { head_dim: 0, ..good }, 0, 2, 8, 32), zeros);
    }
}

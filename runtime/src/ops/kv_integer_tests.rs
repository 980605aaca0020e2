//! Attention over a cache in 8 bits against its definition, with sums in 128 bits.

use crate::format::KvDType;
use crate::ops::attention::{Heads, attention};
use crate::ops::kv::KvCache;
use crate::ops::math::exp;
use crate::ops::test_rng::Rng;

/// A head's codes and its scale, as they are stored.
fn stored(x: &[f32]) -> (Vec<i128>, f32) {
    let largest = x.iter().fold(0f32, |a, x| a.max(x.abs()));
    let scale = half::f16::from_f32(largest / 127.0).to_f32();
    let code = |x: &f32| if scale == 0.0 { 0 } else { f64::from(x * (1.0 / scale)).round_ties_even().clamp(-127.0, 127.0) as i128 };
    (x.iter().map(code).collect(), scale)
}

/// A vector's codes in 16 bits and its scale.
fn activation(x: &[f32]) -> (Vec<i128>, f32) {
    let largest = x.iter().fold(0f32, |a, x| a.max(x.abs()));
    let code = |x: &f32| if largest == 0.0 { 0 } else { f64::from(x * (32_767.0 / largest)).round_ties_even() as i128 };
    (x.iter().map(code).collect(), largest / 32_767.0)
}

fn literal(q: &[f32], rows: &[(Vec<f32>, Vec<f32>)], heads: Heads, first: usize) -> Vec<f32> {
    let h = heads.head_dim;
    let mut out = vec![];
    for (head, q) in q.chunks(h).enumerate() {
        let at = head / (heads.n_heads / heads.n_kv_heads) * h;
        let (q, q_scale) = activation(q);
        let score = |(key, _): &(Vec<f32>, Vec<f32>)| {
            let (k, k_scale) = stored(&key[at..at + h]);
            let sum: i128 = q.iter().zip(&k).map(|(q, k)| q * k).sum();
            (sum as f32 * (q_scale * k_scale)) * (1.0 / (h as f32).sqrt())
        };
        let scores: Vec<f32> = rows[first..].iter().map(score).collect();
        let m = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let e: Vec<f32> = scores.iter().map(|s| exp(s - m)).collect();
        let mut lanes = [0f32; 8];
        e.iter().enumerate().for_each(|(t, e)| lanes[(first + t) % 8] += e);
        let [a0, a1, a2, a3, a4, a5, a6, a7] = lanes;
        let d = ((a0 + a4) + (a2 + a6)) + ((a1 + a5) + (a3 + a7));
        let values: Vec<_> = rows[first..].iter().map(|(_, value)| stored(&value[at..at + h])).collect();
        let u: Vec<f32> = e.iter().zip(&values).map(|(e, (_, scale))| (e / d) * scale).collect();
        let (u, u_scale) = activation(&u);
        out.extend((0..h).map(|j| u.iter().zip(&values).map(|(u, (v, _))| u * v[j]).sum::<i128>() as f32 * u_scale));
    }
    out
}

fn check(heads: Heads, context: usize, window: usize, value: impl Fn(usize, f32) -> f32) {
    // Enough for every branch; Miri is slow.
    let context = if cfg!(miri) { context.min(20) } else { context };
    let mut rng = Rng::new(31);
    let width = heads.n_kv_heads * heads.head_dim;
    let mut words = vec![0u32; context * (width + 2 * heads.n_kv_heads) + 2];
    let mut cache = KvCache::new(&mut words, KvDType::Q8, 1, context, (heads.n_kv_heads, heads.head_dim)).unwrap();
    let mut rows: Vec<(Vec<f32>, Vec<f32>)> = vec![];
    for last in 0..context {
        rows.push((rng.floats(width), rng.floats(width).iter().map(|x| value(last, *x)).collect()));
        cache.store(0, last, &rows[last].0, &rows[last].1);
        if last % 37 > if cfg!(miri) { 1 } else { 9 } && last + 1 < context {
            continue;
        }
        let first = if window == 0 { 0 } else { (last + 1).saturating_sub(window) };
        let q: Vec<f32> = rng.floats(heads.n_heads * heads.head_dim).iter().map(|x| x * 4.0).collect();
        let (mut scores, mut lanes, mut out) = (vec![f32::NAN; context], vec![f32::NAN; 8 * heads.head_dim], vec![9.0; q.len()]);
        attention(&mut out, &q, cache.keys(0), cache.values(0), heads, (first, last), &mut scores, &mut lanes);
        let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&out), bits(&literal(&q, &rows, heads, first)), "{heads:?} {first}..={last}");
    }
}

#[test]
fn integer_attention_is_the_definition() {
    for (n_heads, n_kv_heads, head_dim) in
        [(8, 4, 8), (1, 1, 2), (6, 2, 6), (3, 1, 16), (9, 3, 64)].into_iter().take(if cfg!(miri) { 2 } else { 5 })
    {
        for window in [0, 1, 13] {
            check(Heads { n_heads, n_kv_heads, head_dim }, 40, window, |_, x| x);
        }
    }
}

#[test]
fn long_contexts_and_wide_heads_do_not_overflow() {
    // Every code at its limit, more of them than fit a sum of 32 bits.
    check(Heads { n_heads: 1, n_kv_heads: 1, head_dim: 2 }, 1200, 0, |_, x| if x < 0.0 { -1.0 } else { 1.0 });
    check(Heads { n_heads: 1, n_kv_heads: 1, head_dim: if cfg!(miri) { 110 } else { 1100 } }, 3, 0, |_, x| x);
}

#[test]
fn positions_of_nothing_and_of_very_little_count() {
    check(Heads { n_heads: 2, n_kv_heads: 1, head_dim: 8 }, 20, 0, |_, _| 0.0);
    check(Heads { n_heads: 2, n_kv_heads: 1, head_dim: 8 }, 20, 0, |t, x| if t % 3 == 0 { 0.0 } else { x * 1e-5 });
}

//! Attention over made-up keys and values, compared with its definition. Called by the application where its feature `measure` is on.

use crate::Board;
use crate::command::{Words, kv};
use crate::measure::Numbers;
use crate::text::Text;
use dmexp::format::{Error, KvDType};
use dmexp::ops::attention::{Heads, attention};
use dmexp::ops::convert::widen_f16;
use dmexp::ops::kv::{KvCache, KvRows};
use dmexp::ops::math::{exp, sqrt};

/// Attention over made-up keys and values.
#[derive(Clone, Copy)]
pub(crate) struct Attend {
    kv: KvDType,
    heads: Heads,
    first: usize,
    last: usize,
}

impl Attend {
    /// The attention that the words after `attend` name: the type of keys and values, heads, key/value heads, the width of a head, the first and the last position.
    pub(crate) fn parse(words: &mut Words<'_>) -> Option<Self> {
        let kv = kv(words.next())?;
        let mut number = || words.number().map(|number| number as usize);
        let heads = Heads { n_heads: number()?, n_kv_heads: number()?, head_dim: number()? };
        Some(Self { kv, heads, first: number()?, last: number()? })
    }
}

/// Attends to some positions, which is a counted region, and compares each result with the definition. `None` where no such heads are possible or `memory` does not suffice.
#[inline(never)]
pub(crate) fn attend<B: Board>(board: &mut B, task: Attend, memory: &mut [u32]) -> Option<Result<(), Error>> {
    let Attend { kv, heads, first, last } = task;
    let group = heads.n_heads.checked_div(heads.n_kv_heads).filter(|group| *group > 0 && heads.head_dim > 0)?;
    let context = last.checked_add(1)?;
    let (width, kv_width) = (heads.n_heads.checked_mul(heads.head_dim)?, heads.n_kv_heads.checked_mul(heads.head_dim)?);
    let (cache, rest) = memory.split_at_mut_checked(kv_width.checked_mul(context)?.checked_mul(2)?.checked_add(2)?)?;
    let mut rest = bytemuck::cast_slice_mut::<u32, f32>(rest);
    let mut take = |len: usize| {
        let (part, after) = core::mem::take(&mut rest).split_at_mut_checked(len)?;
        rest = after;
        Some(part)
    };
    let (q, out, row) = (take(width)?, take(width)?, take(kv_width)?);
    let (scores, lanes, expected) = (take(context)?, take(heads.head_dim.checked_mul(8)?)?, take(heads.head_dim)?);
    let mut cache = KvCache::new(cache, kv, 1, context, (heads.n_kv_heads, heads.head_dim)).ok()?;
    let mut numbers = Numbers::new();
    for position in 0..context {
        numbers.fill(row, 0.000_1);
        cache.store(0, position, row, row);
    }
    numbers.fill(q, 0.000_2);
    let (keys, values) = (cache.keys(0), cache.values(0));
    board.count_begin();
    attention(out, q, keys, values, heads, (first, last), scores, lanes);
    board.count_end();
    let mut wrong = 0u32;
    for (head, (q, out)) in q.chunks_exact(heads.head_dim).zip(out.chunks_exact(heads.head_dim)).enumerate() {
        let place = Place { head: head / group, n_kv_heads: heads.n_kv_heads, head_dim: heads.head_dim };
        weights(scores.get_mut(first..)?, q, keys, place, first);
        mix(expected, scores.get_mut(first..)?, values, place, first);
        wrong += out.iter().zip(&*expected).filter(|(y, expected)| y.to_bits() != expected.to_bits()).count() as u32;
    }
    let mut text = Text::new(board.output());
    text.figure("wrong", wrong);
    Some(text.finish())
}

/// One head of the keys or values.
#[derive(Clone, Copy)]
struct Place {
    head: usize,
    n_kv_heads: usize,
    head_dim: usize,
}

impl Place {
    /// Element `j` at `position`: its code, or the number itself, and the scale of codes.
    fn element(self, rows: KvRows<'_>, position: usize, j: usize) -> (f32, f32) {
        let head = position * self.n_kv_heads + self.head;
        let at = head * self.head_dim + j;
        match rows {
            KvRows::F32(rows) => (rows.get(at).copied().unwrap_or(f32::NAN), 1.0),
            KvRows::F16(rows) => (rows.get(at).map_or(f32::NAN, |half| widen_f16(*half)), 1.0),
            KvRows::Q8(rows) => {
                let scale = rows.scales.get(head).map_or(f32::NAN, |half| widen_f16(*half));
                (rows.codes.get(at).map_or(f32::NAN, |code| f32::from(*code)), scale)
            }
        }
    }
}

/// The canonical sum of terms, the first of which belongs to lane `first` modulo 8.
pub(crate) fn sum8(terms: impl Iterator<Item = f32>, first: usize) -> f32 {
    let mut lanes = [0.0f32; 8];
    for (at, term) in (first..).zip(terms) {
        if let Some(lane) = lanes.get_mut(at & 7) {
            *lane += term;
        }
    }
    let [a0, a1, a2, a3, a4, a5, a6, a7] = lanes;
    ((a0 + a4) + (a2 + a6)) + ((a1 + a5) + (a3 + a7))
}

fn largest_of(values: impl Iterator<Item = f32>) -> f32 {
    values.fold(0.0f32, |largest, x| largest.max(x.abs()))
}

/// A number's code in 16 bits where `largest` is the largest magnitude.
fn code(x: f32, largest: f32) -> i64 {
    ((x * (32_767.0 / largest) + 12_582_912.0) - 12_582_912.0) as i64
}

/// The weight of each position from `first` on.
#[inline(never)]
fn weights(scores: &mut [f32], q: &[f32], keys: KvRows<'_>, place: Place, first: usize) {
    let scale = 1.0 / sqrt(q.len() as f32);
    let q_largest = largest_of(q.iter().copied());
    for (t, score) in scores.iter_mut().enumerate() {
        let key = |j| place.element(keys, first + t, j);
        let sum = if matches!(keys, KvRows::Q8(_)) {
            let sum: i64 = q.iter().enumerate().map(|(j, q)| code(*q, q_largest) * key(j).0 as i64).sum();
            sum as f32 * ((q_largest / 32_767.0) * key(0).1)
        } else {
            sum8(q.iter().enumerate().map(|(j, q)| key(j).0 * *q), 0)
        };
        *score = sum * scale;
    }
    let largest = scores.iter().fold(f32::NEG_INFINITY, |largest, score| largest.max(*score));
    for score in scores.iter_mut() {
        *score = exp(*score - largest);
    }
    let total = sum8(scores.iter().copied(), first);
    for score in scores.iter_mut() {
        *score /= total;
    }
}

/// The weighted sum of the values from `first` on. Weights of coded values are multiplied by the scales.
#[inline(never)]
fn mix(out: &mut [f32], weights: &mut [f32], values: KvRows<'_>, place: Place, first: usize) {
    let coded = matches!(values, KvRows::Q8(_));
    if coded {
        for (t, weight) in weights.iter_mut().enumerate() {
            *weight *= place.element(values, first + t, 0).1;
        }
    }
    let largest = largest_of(weights.iter().copied());
    for (j, y) in out.iter_mut().enumerate() {
        let terms = weights.iter().enumerate().map(|(t, weight)| (*weight, place.element(values, first + t, j).0));
        *y = if coded {
            let sum: i64 = terms.map(|(weight, value)| code(weight, largest) * value as i64).sum();
            sum as f32 * (largest / 32_767.0)
        } else {
            sum8(terms.map(|(weight, value)| weight * value), first)
        };
    }
}

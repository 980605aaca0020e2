//! The n-gram memory (Engram): rows found by hashes of the last two, three and four bytes, weighed by how well they fit the stream.

use super::linear::{Net, Tools};
use super::split;
use crate::format::arch::dormouse::tensors::Role;
use crate::ops::math::{sigmoid, sqrt};
use crate::ops::matvec::widen_row;
use crate::ops::sum::{dot8, sum8_squares};

/// Added under the root of both norms.
const EPS: f32 = 1e-5;
/// The lengths of the n-grams.
const ORDERS: [usize; 3] = [2, 3, 4];
/// dormouse's own start of the hash, which is not that of FNV-1a.
const BASIS: u64 = 1_469_598_103_934_665_603;
const PRIME: u64 = 1_099_511_628_211;

/// The hash of the last `order` tokens, or of all where there are fewer: 31 bits.
pub(super) fn key(tokens: &[u32], order: usize) -> u32 {
    let last = tokens.get(tokens.len().saturating_sub(order)..).unwrap_or(&[]);
    let hash = last.iter().fold(BASIS, |hash, token| (hash ^ u64::from(*token)).wrapping_mul(PRIME));
    hash as u32 & 0x7fff_ffff
}

/// `y = y + (lambda * memory + (1 - lambda) * (x times mem_dense))` for the position after `tokens`. `context` is the stream that is asked with, not normed; lambda is `weight`, at most
/// `engram_lam_max`.
#[inline(never)]
pub(super) fn recall(
    net: &Net<'_, '_>,
    tokens: &[u32],
    context: &[f32],
    (x, weight): (&[f32], f32),
    y: &mut [f32],
    arm: &mut [f32],
    tools: &mut Tools<'_>,
) {
    let config = net.config();
    let (d, width) = (config.d_model as usize, config.engram_dim as usize);
    let (rows, rest) = split(arm, width.saturating_mul(ORDERS.len()));
    let (value, rest) = split(rest, d);
    let (key_vector, rest) = split(rest, d);
    let (normed, _) = split(rest, d);
    let table = config.engram_table();
    let memory = net.tensor(Role::Memory);
    let mut first = 0u32;
    let mut left = &mut *rows;
    for order in ORDERS {
        let (row, after) = split(left, width);
        widen_row(row, &memory, first.wrapping_add(key(tokens, order) & table.wrapping_sub(1)) as usize);
        first = first.wrapping_add(table);
        left = after;
    }
    net.matrix(value, Role::MemoryValue, rows, tools);
    net.matrix(key_vector, Role::MemoryKey, rows, tools);
    norm(normed, context);
    let s = 1.0 / sqrt(sum8_squares(key_vector) / d as f32 + EPS);
    for key in key_vector.iter_mut() {
        *key *= s;
    }
    let fit = dot8(key_vector, normed) / sqrt(d as f32);
    let gate = sigmoid(sqrt(if fit.abs() > 1e-6 { fit.abs() } else { 1e-6 }) * sign(fit));

    let dense = key_vector;
    net.matrix(dense, Role::MemDense, x, tools);
    let lambda = if weight > config.engram_lam_max { config.engram_lam_max } else { weight };
    let rest = 1.0 - lambda;
    for ((y, value), dense) in y.iter_mut().zip(value).zip(dense) {
        *y += lambda * (*value * gate) + rest * *dense;
    }
}

fn norm(out: &mut [f32], x: &[f32]) {
    let s = 1.0 / sqrt(sum8_squares(x) / x.len() as f32 + EPS);
    for (y, x) in out.iter_mut().zip(x) {
        *y = *x * s;
    }
}

/// -1, 0 or 1.
fn sign(x: f32) -> f32 {
    if x > 0.0 {
        1.0
    } else if x < 0.0 {
        -1.0
    } else {
        x
    }
}

#[cfg(test)]
mod tests {
    use super::{ORDERS, key};

    #[test]
    fn keys_are_those_of_dormouse() {
        let text: Vec<u32> = b"once".iter().map(|byte| u32::from(*byte)).collect();
        let keys: Vec<[u32; 3]> = (1..=4).map(|end| ORDERS.map(|order| key(&text[..end], order))).collect();
        assert_eq!(
            keys,
            [
                [1_942_858_244; 3],
                [1_182_306_846; 3],
                [1_182_464_316, 1_054_927_463, 1_054_927_463],
                [1_180_007_871, 1_123_398_203, 1_479_385_446],
            ]
        );
    }
}

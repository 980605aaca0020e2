//! What makes probabilities of logits: the logarithm of the sum of their exponentials, in f64 and in an order that depends on neither machine nor threads.

use crate::decode::Pool;
use dmexp::executor::Executor;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Logits whose exponentials are summed by one thread at a time.
const PIECE: usize = 4096;
/// Sums that are kept side by side, which the compiler makes vector instructions of.
const LANES: usize = 8;
/// Below this an exponential is smaller than any rounding of a sum that has one of e^0 in it.
const LEAST: f64 = -700.0;

/// log(sum of e^x), by `threads` threads: a logit less this is the log of its probability. Minus infinity of no logits.
pub fn log_normaliser(logits: &[f32], threads: usize) -> f64 {
    let most = f64::from(largest(logits));
    let pieces = logits.len().div_ceil(PIECE);
    let sums: Vec<AtomicU64> = (0..pieces).map(|_| AtomicU64::new(0)).collect();
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some((sum, piece)) = {
            let piece = next.fetch_add(1, Ordering::Relaxed);
            sums.get(piece).zip(logits.chunks(PIECE).nth(piece))
        } {
            sum.store(sum_of_exponentials(piece, most).to_bits(), Ordering::Relaxed);
        }
    };
    if threads > 1 && pieces > 1 {
        Pool::of(threads).run(&work);
    } else {
        work();
    }
    most + libm::log(sums.iter().map(|sum| f64::from_bits(sum.load(Ordering::Relaxed))).sum())
}

fn largest(logits: &[f32]) -> f32 {
    let (whole, rest) = logits.as_chunks::<LANES>();
    let mut lanes = [f32::NEG_INFINITY; LANES];
    for chunk in whole {
        for (lane, logit) in lanes.iter_mut().zip(chunk) {
            *lane = if *logit > *lane { *logit } else { *lane };
        }
    }
    lanes.iter().chain(rest).copied().fold(f32::NEG_INFINITY, f32::max)
}

fn sum_of_exponentials(logits: &[f32], most: f64) -> f64 {
    let (whole, rest) = logits.as_chunks::<LANES>();
    let mut sums = [0.0f64; LANES];
    for chunk in whole {
        let found = exponentials(chunk.map(|logit| f64::from(logit) - most));
        sums.iter_mut().zip(found).for_each(|(sum, found)| *sum += found);
    }
    // What is left over, beside lanes that are not looked at.
    let mut last = [0.0; LANES];
    last.iter_mut().zip(rest).for_each(|(to, logit)| *to = f64::from(*logit) - most);
    sums.iter().chain(exponentials(last).iter().take(rest.len())).sum()
}

/// e^x of each x, which is at most 0, to some 14 digits: e^(k ln 2) e^r, the second factor by its Taylor series to the 11th power. One operation after the other for all, which makes vectors of them.
#[inline]
fn exponentials(x: [f64; LANES]) -> [f64; LANES] {
    /// Added to a number, it leaves the nearest whole one in the last bits.
    const ROUND: f64 = 6_755_399_441_055_744.0;
    /// ln 2 in two parts, the first with zeros enough at its end to be multiplied exactly.
    const LN_2: [f64; 2] = [6.931_471_803_691_238e-1, 1.908_214_929_270_587_7e-10];
    const TAYLOR: [f64; 11] = [
        1.0 / 39_916_800.0,
        1.0 / 3_628_800.0,
        1.0 / 362_880.0,
        1.0 / 40_320.0,
        1.0 / 5040.0,
        1.0 / 720.0,
        1.0 / 120.0,
        1.0 / 24.0,
        1.0 / 6.0,
        0.5,
        1.0,
    ];
    let x = x.map(|x| if x > LEAST { x } else { LEAST });
    let shifted = x.map(|x| x * std::f64::consts::LOG2_E + ROUND);
    let mut r = x;
    for (r, shifted) in r.iter_mut().zip(shifted) {
        let k = shifted - ROUND;
        *r = (*r - k * LN_2[0]) - k * LN_2[1];
    }
    let mut series = [0.0; LANES];
    for term in TAYLOR {
        series.iter_mut().zip(r).for_each(|(sum, r)| *sum = (*sum + term) * r);
    }
    // The exponent of 2^k, where a float keeps it: k is -1010 at least.
    series
        .iter_mut()
        .zip(shifted)
        .for_each(|(sum, shifted)| *sum = (*sum + 1.0) * f64::from_bits(shifted.to_bits().wrapping_add(1023) << 52));
    series
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponentials_are_those_of_libm_to_fourteen_digits() {
        for step in 0..70_000 {
            let x = -f64::from(step) / 100.0;
            let (found, known) = (exponentials([x; LANES])[0], libm::exp(x));
            assert!((found - known).abs() <= 2e-14 * known, "e^{x} = {found}, not {known}");
        }
        assert_eq!(exponentials([0.0; LANES]), [1.0; LANES]);
        assert_eq!(exponentials([-1e30; LANES]), exponentials([LEAST; LANES]));
    }

    #[test]
    fn the_threads_do_not_change_a_bit() {
        for count in [0, 1, 7, 8, 9, PIECE, PIECE + 1, 3 * PIECE + 5] {
            let logits: Vec<f32> = (0..count).map(|place| (place * 7919 % 1000) as f32 / 50.0 - 9.0).collect();
            let one = log_normaliser(&logits, 1);
            assert_eq!(one.to_bits(), log_normaliser(&logits, 3).to_bits(), "{count}");
            let known = libm::log(logits.iter().map(|logit| libm::exp(f64::from(*logit))).sum());
            assert!(one == known || (one - known).abs() < 1e-12, "{count}: {one}, not {known}");
        }
        assert_eq!(log_normaliser(&[-3.4e38, 5.0, -3.4e38], 1), 5.0);
    }
}

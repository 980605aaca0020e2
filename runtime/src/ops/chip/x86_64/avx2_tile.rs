//! Windows of eight places under four filters at a time, a vector for each filter.

use crate::ops::parts::parts;
use crate::ops::tile::{Lane, Tile, put};
use core::arch::x86_64::*;

/// As [`multiply_tile`](crate::ops::tile::multiply_tile).
#[target_feature(enable = "avx2")]
pub(super) fn multiply_tile(out: &mut [f32], step: usize, filters: &[f32], cols: usize, tile: &Tile, x: &[f32]) {
    let mut rows = parts(filters, cols);
    let mut filter = 0usize;
    loop {
        let [a, b, c, d] = [rows.next(), rows.next(), rows.next(), rows.next()];
        match (a, b, c, d) {
            (Some(a), Some(b), Some(c), Some(d)) => several(out, step, filter, [a, b, c, d], tile, x),
            (Some(a), Some(b), Some(c), None) => several(out, step, filter, [a, b, c], tile, x),
            (Some(a), Some(b), None, _) => several(out, step, filter, [a, b], tile, x),
            (Some(a), None, ..) => several(out, step, filter, [a], tile, x),
            (None, ..) => return,
        }
        filter = filter.wrapping_add(4);
    }
}

/// The results of some filters.
#[target_feature(enable = "avx2")]
fn several<const FILTERS: usize>(out: &mut [f32], step: usize, first: usize, filters: [&[f32]; FILTERS], tile: &Tile, x: &[f32]) {
    let [l0, l1, l2, l3, l4, l5, l6, l7] = tile.lanes();
    let low = plus(plus(lane(filters, l0, x), lane(filters, l4, x)), plus(lane(filters, l2, x), lane(filters, l6, x)));
    let sums = plus(low, plus(plus(lane(filters, l1, x), lane(filters, l5, x)), plus(lane(filters, l3, x), lane(filters, l7, x))));
    for (filter, sum) in (first..).zip(sums) {
        let mut values = [0.0f32; 8];
        // SAFETY: there is room for eight floats.
        unsafe { _mm256_storeu_ps(values.as_mut_ptr(), sum) };
        put(out, step, filter, values);
    }
}

/// One lane of the sums.
#[target_feature(enable = "avx2")]
#[inline]
fn lane<const FILTERS: usize>(filters: [&[f32]; FILTERS], lane: &Lane, x: &[f32]) -> [__m256; FILTERS] {
    let mut sums = [_mm256_setzero_ps(); FILTERS];
    for (element, at) in lane.elements() {
        let Some(values) = x.get(at..).and_then(|x| x.first_chunk::<8>()) else { continue };
        // SAFETY: there are eight floats.
        let values = unsafe { _mm256_loadu_ps(values.as_ptr()) };
        for (sum, filter) in sums.iter_mut().zip(filters) {
            let Some(weight) = filter.get(element) else { continue };
            *sum = _mm256_add_ps(*sum, _mm256_mul_ps(_mm256_set1_ps(*weight), values));
        }
    }
    sums
}

#[target_feature(enable = "avx2")]
#[inline]
fn plus<const FILTERS: usize>(mut a: [__m256; FILTERS], b: [__m256; FILTERS]) -> [__m256; FILTERS] {
    for (a, b) in a.iter_mut().zip(b) {
        *a = _mm256_add_ps(*a, b);
    }
    a
}

//! Inputs rounded to few bits with a scale a row, or a group of a row (`act_quant`).

use crate::format::arch::dormouse::ActQuant;
use crate::ops::math::round;

/// What a vector is rounded to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Grid {
    /// E2M1: 0, 0.5, 1, 1.5, 2, 3, 4, 6.
    E2m1,
    /// Whole numbers from -7 to 7.
    Four,
    /// Whole numbers from -127 to 127.
    Eight,
}

impl Grid {
    /// What the inputs of attention are rounded to.
    pub(super) fn of_attention(format: ActQuant) -> Option<Self> {
        if format == ActQuant::None { None } else { Some(Self::Eight) }
    }

    /// What the inputs of experts are rounded to.
    pub(super) fn of_experts(format: ActQuant) -> Option<Self> {
        Some(match format {
            ActQuant::None => return None,
            ActQuant::Fp4 => Self::E2m1,
            ActQuant::Int4 => Self::Four,
            ActQuant::Int8 => Self::Eight,
        })
    }

    const fn largest(self) -> f32 {
        match self {
            Self::E2m1 => 6.0,
            Self::Four => 7.0,
            Self::Eight => 127.0,
        }
    }
}

/// Values of the E2M1 grid and where the next one begins; a middle goes to the one with the even code.
const STEPS: [(f32, bool, f32); 7] =
    [(0.25, false, 0.5), (0.75, true, 1.0), (1.25, false, 1.5), (1.75, true, 2.0), (2.5, false, 3.0), (3.5, true, 4.0), (5.0, false, 6.0)];

/// `out` = `x` rounded, `group` elements (0: all) to a scale: their largest magnitude, or 1e-8, over the grid's largest value.
pub(super) fn round_to(out: &mut [f32], x: &[f32], grid: Grid, group: usize) {
    let group = if group == 0 { x.len() } else { group };
    let (mut out, mut x) = (out, x);
    while !x.is_empty() && group > 0 {
        let n = group.min(x.len());
        let (Some((to, out_rest)), Some((from, x_rest))) = (out.split_at_mut_checked(n), x.split_at_checked(n)) else { return };
        let largest = from.iter().fold(1e-8f32, |largest, value| if value.abs() > largest { value.abs() } else { largest });
        let scale = largest / grid.largest();
        for (y, x) in to.iter_mut().zip(from) {
            *y = nearest(*x / scale, grid) * scale;
        }
        out = out_rest;
        x = x_rest;
    }
}

fn nearest(value: f32, grid: Grid) -> f32 {
    if grid != Grid::E2m1 {
        let limit = grid.largest();
        let whole = round(value);
        let whole = if whole > limit { limit } else { whole };
        return if whole < -limit { -limit } else { whole };
    }
    let size = value.abs();
    let mut found = 0.0;
    for (from, middle_too, next) in STEPS {
        if size > from || middle_too && size == from {
            found = next;
        }
    }
    if value < 0.0 { -found } else { found }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn middles_go_to_even_codes() {
        let values = [0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, 6.0];
        let mut out = [0.0; 8];
        round_to(&mut out, &values, Grid::E2m1, 0);
        assert_eq!(out, [0.0, 1.0, 1.0, 2.0, 2.0, 4.0, 4.0, 6.0]);
        let negative = values.map(|v| -v);
        round_to(&mut out, &negative, Grid::E2m1, 8);
        assert_eq!(out, [0.0, -1.0, -1.0, -2.0, -2.0, -4.0, -4.0, -6.0]);
        round_to(&mut out, &[127.0, 0.5, 1.5, 2.5, -0.5, -1.5, 1.0, 0.0], Grid::Eight, 0);
        assert_eq!(out, [127.0, 0.0, 2.0, 2.0, 0.0, -2.0, 1.0, 0.0]);
        // Groups have scales of their own; nothing but zeros stays zero.
        round_to(&mut out, &[7.0, 3.4, 0.0, 0.0, 70.0, 34.0, 0.7, 0.34], Grid::Four, 2);
        assert_eq!(out[..6], [7.0, 3.0, 0.0, 0.0, 70.0, 30.0]);
        assert!((out[7] - 0.3).abs() < 1e-6);
    }
}

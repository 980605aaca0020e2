//! The tables of cosines and sines that end a llama2.c checkpoint of version 0. Nothing is computed with them; they tell whether the model was trained with the frequencies that the format
//! takes for granted.

use crate::checkpoint::rope::frequency;

/// The theta that the format takes for granted.
pub(super) const THETA: f64 = 10_000.0;

/// The most positions that are compared: enough to tell any two thetas apart, and quick at any context.
const POSITIONS: u32 = 1024;

/// The two tables where they lie.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tables<'a> {
    /// [positions, `head_dim` / 2] f32, then as many sines.
    pub(super) bytes: &'a [u8],
    pub(super) positions: u32,
    pub(super) head_dim: u32,
}

/// The first value that is not what theta gives.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Difference {
    pub(super) sine: bool,
    pub(super) position: u32,
    pub(super) pair: u32,
    pub(super) found: f32,
    pub(super) expected: f64,
}

/// How far a value of the tables may be from the true one. They come from f32 arithmetic: the angle itself is off by a few units in its last place.
fn allowed(angle: f64) -> f64 {
    2e-6 + 1e-6 * angle
}

impl Tables<'_> {
    /// Compares with the cosines and sines of position * theta^(-2i/`head_dim`): every position of a short context, evenly spread ones of a long context.
    pub(super) fn compare(&self, theta: f64) -> Option<Difference> {
        let frequencies: Vec<f64> = (0..self.head_dim / 2).map(|pair| frequency(theta, self.head_dim, pair)).collect();
        let step = self.positions.div_ceil(POSITIONS).max(1) as usize;
        // Position 1 tells most, and a step over 1 would miss it.
        let positions = [1].into_iter().filter(|first| *first < self.positions).chain((0..self.positions).step_by(step));
        for position in positions {
            for (pair, frequency) in (0..).zip(&frequencies) {
                let angle = f64::from(position) * frequency;
                for (sine, expected) in [(false, libm::cos(angle)), (true, libm::sin(angle))] {
                    let found = self.value(sine, position, pair);
                    // Written so that NaN is a difference.
                    let close = (f64::from(found) - expected).abs() <= allowed(angle);
                    if !close {
                        return Some(Difference { sine, position, pair, found, expected });
                    }
                }
            }
        }
        None
    }

    /// Whether the bytes begin with the cosines of this theta, as far as there are bytes; a context of one position has nothing to tell them by.
    pub(super) fn cosines_come_first(&self, theta: f64) -> bool {
        let half = (self.head_dim / 2) as usize;
        let positions = self.positions.min(POSITIONS);
        let values = self.bytes.as_chunks().0.iter().map(|bytes| f64::from(f32::from_le_bytes(*bytes)));
        let frequencies: Vec<f64> = (0..self.head_dim / 2).map(|pair| frequency(theta, self.head_dim, pair)).collect();
        let angles = (0..positions).flat_map(|position| frequencies.iter().map(move |frequency| f64::from(position) * frequency));
        self.positions > 1
            && self.bytes.len() / 4 > half
            && values.zip(angles).all(|(value, angle)| (value - libm::cos(angle)).abs() <= allowed(angle))
    }

    /// The theta whose tables these are, where there is one with few digits.
    pub(super) fn theta(&self) -> Option<f64> {
        let pairs = self.head_dim / 2;
        if pairs < 2 || self.positions < 2 {
            return None;
        }
        let last = pairs - 1;
        let angle = libm::atan2(f64::from(self.value(true, 1, last)), f64::from(self.value(false, 1, last)));
        let theta = libm::pow(angle, -f64::from(self.head_dim) / (2.0 * f64::from(last)));
        if !theta.is_finite() || theta < 1.0 {
            return None;
        }
        let unit = libm::pow(10.0, libm::floor(libm::log10(theta)) - 2.0);
        [libm::round(theta / unit) * unit, libm::round(theta)].into_iter().find(|theta| self.compare(*theta).is_none())
    }

    fn value(&self, sine: bool, position: u32, pair: u32) -> f32 {
        let table = self.bytes.len() / 2;
        let element = position as usize * (self.head_dim / 2) as usize + pair as usize;
        let start = 4 * element + if sine { table } else { 0 };
        self.bytes.get(start..).and_then(<[u8]>::first_chunk).map_or(f32::NAN, |bytes| f32::from_le_bytes(*bytes))
    }
}

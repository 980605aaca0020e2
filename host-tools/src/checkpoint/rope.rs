//! Rotation frequencies from theta, as the exporter writes them into the file; also what stored tables are compared with. Used by the importers.

/// theta^(-2i/`head_dim`) for i in 0..`head_dim`/2, computed in f64 and rounded to f32.
///
/// `libm`'s pow is plain Rust: the same bits on every machine, which the standard library's (the platform's own) does not promise.
pub fn inv_freq(theta: f64, head_dim: u32) -> Vec<f32> {
    (0..head_dim / 2).map(|pair| frequency(theta, head_dim, pair) as f32).collect()
}

/// One frequency, in f64.
pub(super) fn frequency(theta: f64, head_dim: u32, pair: u32) -> f64 {
    libm::pow(theta, -(2.0 * f64::from(pair)) / f64::from(head_dim))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frequencies_of_known_bits() {
        // 10000^(-2i/8) = 1, 0.1, 0.01, 0.001.
        assert_eq!(inv_freq(10_000.0, 8), [1.0, 0.1, 0.01, 0.001]);
        // 10000^(-1/3) and 10000^(-2/3), rounded from 30 digits.
        assert_eq!(inv_freq(10_000.0, 6), [1.0, 0.046_415_888, 0.002_154_434_7]);
        assert_eq!(inv_freq(500_000.0, 2), [1.0]);
        assert_eq!(inv_freq(10_000.0, 0), [0.0; 0]);
    }

    #[test]
    fn every_frequency_of_usual_shapes_falls() {
        for theta in [10_000.0, 100_000.0, 500_000.0, 1e6] {
            for head_dim in [4, 16, 32, 48, 64, 80, 96, 128, 256] {
                let frequencies = inv_freq(theta, head_dim);
                assert_eq!(frequencies.len(), head_dim as usize / 2);
                assert!(frequencies.is_sorted_by(|a, b| a > b && *b > 0.0));
            }
        }
    }
}

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

    /// From 60 digits, rounded once.
    const THETA_10000_HEAD_48: [u32; 24] = [
        0x3f80_0000,
        0x3f2e_6928,
        0x3eed_a63c,
        0x3ea1_e89b,
        0x3e5c_9d36,
        0x3e16_4d7a,
        0x3dcc_cccd,
        0x3d8b_8753,
        0x3d3e_1e96,
        0x3d01_86e2,
        0x3cb0_7dc5,
        0x3c70_7bf7,
        0x3c23_d70a,
        0x3bdf_3eec,
        0x3b98_1878,
        0x3b4f_3e37,
        0x3b0d_316b,
        0x3ac0_632c,
        0x3a83_126f,
        0x3a32_98bd,
        0x39f3_5a5a,
        0x39a5_cb5f,
        0x3961_e8aa,
        0x3919_e8f0,
    ];
    const THETA_500000_HEAD_16: [u32; 8] =
        [0x3f80_0000, 0x3e46_93af, 0x3d1a_08c8, 0x3bee_f74e, 0x3ab9_5d22, 0x398f_c8f8, 0x385f_10c4, 0x372d_07a7];

    #[test]
    fn frequencies_have_the_known_bits() {
        let bits = |theta, head_dim| inv_freq(theta, head_dim).into_iter().map(f32::to_bits).collect::<Vec<_>>();
        assert_eq!(bits(10_000.0, 48), THETA_10000_HEAD_48);
        assert_eq!(bits(500_000.0, 16), THETA_500000_HEAD_16);
        assert_eq!(inv_freq(10_000.0, 8), [1.0, 0.1, 0.01, 0.001]);
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

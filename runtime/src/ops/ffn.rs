//! What the feed-forward blocks do besides their matrices: the gate, and the residual addition (also after attention). Called by the models.

use super::chip;

/// `gate[i] = silu(gate[i]) * up[i]`; both have `hidden_dim` elements.
pub fn gate(gate: &mut [f32], up: &[f32]) {
    chip::gate(gate, up);
}

/// `x[i] = x[i] + y[i]`; both have `dim` elements.
pub fn add(x: &mut [f32], y: &[f32]) {
    chip::add(x, y);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::math::exp;
    use crate::ops::test_rng::Rng;

    #[test]
    fn the_gate_is_the_formula() {
        let mut rng = Rng::new(6);
        for n in [0, 1, 3, 8, 172] {
            let mut z: Vec<f32> = rng.floats(n).iter().map(|v| v * 100.0).collect();
            let up = rng.floats(n);
            let expected: Vec<u32> = z.iter().zip(&up).map(|(z, u)| (z / (1.0 + exp(-z)) * u).to_bits()).collect();
            gate(&mut z, &up);
            assert_eq!(z.iter().map(|v| v.to_bits()).collect::<Vec<_>>(), expected);
        }
        // Far out on both sides: nothing, and all.
        let mut z = [-1000.0, 1000.0, f32::NAN];
        gate(&mut z, &[2.0; 3]);
        assert_eq!((z[0], z[1]), (0.0, 2000.0));
        assert!(z[2].is_nan());
    }

    #[test]
    fn residuals_add() {
        let mut x = [1.0, 2.0];
        add(&mut x, &[0.5, -2.0]);
        assert_eq!(x, [1.5, 0.0]);
    }
}

//! The weights of an upsampling that interpolates, one a tap for every row and column of its result, so that nothing that runs the model computes a kernel. Used by `sequential`.

use dmexp_format::Dims;
use dmexp_format::arch::sequential::{Interpolation, Layer, Role, resample_from};

/// The weights of `layer` for an input of this shape, in this role: a row for each element of the result's axis, a column for each tap. Taps outside the input weigh nothing, the others sum to 1.
pub(super) fn weights(layer: &Layer, role: Role, input: Dims) -> Vec<f32> {
    let place = usize::from(role == Role::WidthResampling);
    let along = |sizes: &[u32]| sizes.get(place).copied().unwrap_or(0);
    let (len, factor) = (along(input.as_slice()), along(&layer.window()));
    let taps = layer.interpolation.taps();
    (0..len.saturating_mul(factor)).flat_map(|out| of_one(layer.interpolation, out, len, factor, taps)).collect()
}

fn of_one(interpolation: Interpolation, out: u32, len: u32, factor: u32, taps: u32) -> impl Iterator<Item = f32> {
    let from = resample_from(out, factor, taps);
    let centre = (f64::from(out) + 0.5) / f64::from(factor) - 0.5;
    let weights: Vec<f64> = (from..from + i64::from(taps))
        .map(
            |tap| if factor == 1 { f64::from(u8::from(tap == i64::from(out))) } else { kernel(interpolation, (centre - tap as f64).abs()) },
        )
        .zip(from..)
        .map(|(weight, tap)| if (0..i64::from(len)).contains(&tap) { weight } else { 0.0 })
        .collect();
    let sum: f64 = weights.iter().sum();
    weights.into_iter().map(move |weight| (weight / sum) as f32)
}

/// How much an element at this distance weighs.
fn kernel(interpolation: Interpolation, distance: f64) -> f64 {
    let lanczos = |lobes: f64| if distance < lobes { sinc(distance) * sinc(distance / lobes) } else { 0.0 };
    match interpolation {
        Interpolation::Bilinear => (1.0 - distance).max(0.0),
        // Keys' cubic with a = -1/2.
        Interpolation::Bicubic if distance < 1.0 => (1.5 * distance - 2.5) * distance * distance + 1.0,
        Interpolation::Bicubic if distance < 2.0 => ((-0.5 * distance + 2.5) * distance - 4.0) * distance + 2.0,
        Interpolation::Lanczos3 => lanczos(3.0),
        Interpolation::Lanczos5 => lanczos(5.0),
        _ => 0.0,
    }
}

/// `sin(pi x) / (pi x)`, the same on every machine.
fn sinc(x: f64) -> f64 {
    let angle = std::f64::consts::PI * x;
    if angle == 0.0 { 1.0 } else { libm::sin(angle) / angle }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dmexp_format::arch::sequential::Op;

    fn layer(interpolation: Interpolation, factor: u32) -> Layer {
        Layer { spatial: 2, interpolation, sizes: [factor, 1, 0, 0, 0, 0, 0, 0, 0], ..Layer::new(Op::UpSampling) }
    }

    #[test]
    fn two_taps_are_the_distances() {
        let made = weights(&layer(Interpolation::Bilinear, 2), Role::HeightResampling, Dims::new(0, 3, [3, 1, 1, 1]).unwrap());
        assert_eq!(made, [0.0, 1.0, 0.75, 0.25, 0.25, 0.75, 0.75, 0.25, 0.25, 0.75, 1.0, 0.0]);
    }

    #[test]
    fn weights_sum_to_one_and_a_factor_of_one_changes_nothing() {
        let input = Dims::new(0, 3, [7, 5, 2, 1]).unwrap();
        for interpolation in [Interpolation::Bilinear, Interpolation::Bicubic, Interpolation::Lanczos3, Interpolation::Lanczos5] {
            for factor in 1..6 {
                let made = weights(&layer(interpolation, factor), Role::HeightResampling, input);
                let taps = interpolation.taps() as usize;
                assert_eq!(made.len(), 7 * factor as usize * taps);
                for row in made.chunks(taps) {
                    assert!((row.iter().sum::<f32>() - 1.0).abs() < 1e-6, "{interpolation:?} {factor}: {row:?}");
                }
            }
            for (out, row) in
                weights(&layer(interpolation, 1), Role::WidthResampling, input).chunks(interpolation.taps() as usize).enumerate()
            {
                let from = resample_from(out as u32, 1, interpolation.taps());
                let ones: Vec<_> = row.iter().map(|weight| weight.to_bits()).collect();
                let expected: Vec<_> = (from..).take(row.len()).map(|tap| f32::from(u8::from(tap == out as i64)).to_bits()).collect();
                assert_eq!(ones, expected, "{interpolation:?}");
            }
        }
    }
}

//! The network that tells tones apart: features of 24 steps and 8 bands in, one of four classes out. Data, gradient and training, all on one thread.

use super::file::{Array, Layer, Network};
use crate::rng::Rng;

const STEPS: usize = 24;
const BANDS: usize = 8;
/// Steps and filters after the first convolution, which goes two steps at a time.
const HALF: usize = 12;
const FIRST: usize = 12;
/// Steps after the pool, and filters after the second convolution.
const QUARTER: usize = 6;
const SECOND: usize = 16;
const CLASSES: usize = 4;
/// Taps of the convolutions.
const TAPS: [usize; 2] = [5, 3];

/// What the classes are.
pub const NAMES: &[&str] = &["rising", "falling", "steady", "noise"];

/// Where each array begins: kernel and bias of the first convolution, of the second, of the dense layer, and the end.
const PARTS: [usize; 7] = {
    let sizes = [TAPS[0] * BANDS * FIRST, FIRST, TAPS[1] * FIRST * SECOND, SECOND, SECOND * CLASSES, CLASSES];
    let mut parts = [0; 7];
    let mut at = 0;
    while at < sizes.len() {
        parts[at + 1] = parts[at] + sizes[at];
        at += 1;
    }
    parts
};

/// How much of a batch is random and how long training lasts.
const BATCH: usize = 16;
const RATE: f32 = 3e-3;

/// The features of tone number `seed` and its class: the loudness of each band, a tone that moves through them in noise.
pub fn sample(seed: u64) -> (Vec<f32>, usize) {
    let mut rng = Rng::new(seed);
    let class = rng.next_u32() as usize % CLASSES;
    let (start, length) = (2.0 + 4.0 * rng.unit(), 12.0 + 10.0 * rng.unit());
    let (begin, loudness) = (rng.unit() * (STEPS as f32 - length), 0.5 + 0.5 * rng.unit());
    let reach = 2.0 + 1.5 * rng.unit();
    let slope = match class {
        0 => reach / length,
        1 => -reach / length,
        _ => 0.0,
    };
    let mut features = Vec::with_capacity(STEPS * BANDS);
    for step in 0..STEPS {
        let time = step as f32 - begin;
        let sounding = class < 3 && time >= 0.0 && time < length;
        let centre = start + slope * (time - length / 2.0);
        for band in 0..BANDS {
            let far = band as f32 - centre;
            let tone = if sounding { loudness / (1.0 + 2.0 * far * far) } else { 0.0 };
            features.push(tone + 0.25 * rng.unit());
        }
    }
    (features, class)
}

/// What a pass through the network leaves.
struct Pass {
    first: Vec<f32>,
    pooled: Vec<f32>,
    second: Vec<f32>,
    means: Vec<f32>,
    /// The probability of each class.
    output: Vec<f32>,
}

fn part(weights: &[f32], number: usize) -> &[f32] {
    &weights[PARTS[number]..PARTS[number + 1]]
}

/// Calls `each` with output step, tap and input step of a convolution that keeps the length, or halves it where `stride` is 2.
fn taps(outputs: usize, inputs: usize, count: usize, stride: usize, mut each: impl FnMut(usize, usize, usize)) {
    let before = ((outputs - 1) * stride + count).saturating_sub(inputs) / 2;
    for out in 0..outputs {
        for tap in 0..count {
            let at = out * stride + tap;
            if at >= before && at - before < inputs {
                each(out, tap, at - before);
            }
        }
    }
}

/// A convolution with `relu`: kernels are (taps, inputs, outputs).
fn convolve(x: &[f32], channels: usize, kernel: &[f32], bias: &[f32], (outputs, count, stride): (usize, usize, usize)) -> Vec<f32> {
    let filters = bias.len();
    let mut out: Vec<f32> = (0..outputs).flat_map(|_| bias.iter().copied()).collect();
    taps(outputs, x.len() / channels, count, stride, |step, tap, at| {
        for channel in 0..channels {
            for filter in 0..filters {
                out[step * filters + filter] += x[at * channels + channel] * kernel[(tap * channels + channel) * filters + filter];
            }
        }
    });
    for value in &mut out {
        *value = value.max(0.0);
    }
    out
}

fn forward(weights: &[f32], x: &[f32]) -> Pass {
    let first = convolve(x, BANDS, part(weights, 0), part(weights, 1), (HALF, TAPS[0], 2));
    let pooled: Vec<f32> = first.chunks(2 * FIRST).flat_map(|two| (0..FIRST).map(|filter| two[filter].max(two[FIRST + filter]))).collect();
    let second = convolve(&pooled, FIRST, part(weights, 2), part(weights, 3), (QUARTER, TAPS[1], 1));
    let means: Vec<f32> = (0..SECOND).map(|filter| second.iter().skip(filter).step_by(SECOND).sum::<f32>() / QUARTER as f32).collect();
    let mut output = part(weights, 5).to_vec();
    for (mean, row) in means.iter().zip(part(weights, 4).chunks(CLASSES)) {
        output.iter_mut().zip(row).for_each(|(sum, weight)| *sum += mean * weight);
    }
    let largest = output.iter().copied().fold(f32::MIN, f32::max);
    for value in &mut output {
        *value = (*value - largest).exp();
    }
    let sum: f32 = output.iter().sum();
    for value in &mut output {
        *value /= sum;
    }
    Pass { first, pooled, second, means, output }
}

/// Adds the gradient of the loss for one sample.
fn backward(weights: &[f32], x: &[f32], class: usize, gradient: &mut [f32]) {
    let pass = forward(weights, x);
    let mut wrong = pass.output;
    wrong[class] -= 1.0;
    for (place, error) in wrong.iter().enumerate() {
        gradient[PARTS[5] + place] += error;
    }
    let mut means = [0.0; SECOND];
    for (filter, mean) in pass.means.iter().enumerate() {
        for (place, error) in wrong.iter().enumerate() {
            gradient[PARTS[4] + filter * CLASSES + place] += mean * error;
            means[filter] += part(weights, 4)[filter * CLASSES + place] * error;
        }
    }
    let second: Vec<f32> =
        pass.second.iter().enumerate().map(|(at, y)| if *y > 0.0 { means[at % SECOND] / QUARTER as f32 } else { 0.0 }).collect();
    let pooled = convolve_back(&second, (&pass.pooled, FIRST), weights, 2, (QUARTER, TAPS[1], 1), gradient);
    let mut first = vec![0.0; pass.first.len()];
    for (at, error) in pooled.iter().enumerate() {
        let (step, filter) = (at / FIRST, at % FIRST);
        let pair = [2 * step * FIRST + filter, (2 * step + 1) * FIRST + filter];
        let from = if pass.first[pair[1]] > pass.first[pair[0]] { pair[1] } else { pair[0] };
        if pass.first[from] > 0.0 {
            first[from] = *error;
        }
    }
    convolve_back(&first, (x, BANDS), weights, 0, (HALF, TAPS[0], 2), gradient);
}

/// The gradient of the kernel and bias that begin with part `number`; returns that of the input.
fn convolve_back(
    errors: &[f32],
    (x, channels): (&[f32], usize),
    weights: &[f32],
    number: usize,
    (outputs, count, stride): (usize, usize, usize),
    gradient: &mut [f32],
) -> Vec<f32> {
    let filters = errors.len() / outputs;
    let mut inputs = vec![0.0; x.len()];
    for (at, error) in errors.iter().enumerate() {
        gradient[PARTS[number + 1] + at % filters] += error;
    }
    taps(outputs, x.len() / channels, count, stride, |step, tap, at| {
        for channel in 0..channels {
            for filter in 0..filters {
                let (error, place) = (errors[step * filters + filter], (tap * channels + channel) * filters + filter);
                gradient[PARTS[number] + place] += error * x[at * channels + channel];
                inputs[at * channels + channel] += error * part(weights, number)[place];
            }
        }
    });
    inputs
}

/// Trains for `steps` batches. The same on the same machine.
pub fn train(steps: usize) -> Vec<f32> {
    let mut rng = Rng::new(20_261);
    let inputs = [TAPS[0] * BANDS, 0, TAPS[1] * FIRST, 0, SECOND, 0];
    let mut weights = vec![0.0; PARTS[6]];
    for (number, inputs) in inputs.iter().enumerate().filter(|(_, inputs)| **inputs > 0) {
        let scale = (6.0 / *inputs as f32).sqrt();
        weights[PARTS[number]..PARTS[number + 1]].iter_mut().for_each(|weight| *weight = (rng.unit() * 2.0 - 1.0) * scale);
    }
    let (mut mean, mut square) = (vec![0.0; PARTS[6]], vec![0.0; PARTS[6]]);
    let mut number = 0u64;
    for step in 1..=steps {
        let mut gradient = vec![0.0; PARTS[6]];
        for _ in 0..BATCH {
            let (x, class) = sample(number);
            backward(&weights, &x, class, &mut gradient);
            number += 1;
        }
        let rate = RATE * (1.0 - step as f32 / (steps + 1) as f32);
        let (left, right) = (1.0 - 0.9f32.powi(step.min(1000) as i32), 1.0 - 0.99f32.powi(step.min(10_000) as i32));
        for (((weight, gradient), mean), square) in weights.iter_mut().zip(&gradient).zip(&mut mean).zip(&mut square) {
            let gradient = gradient / BATCH as f32;
            *mean = 0.9 * *mean + 0.1 * gradient;
            *square = 0.99 * *square + 0.01 * gradient * gradient;
            *weight -= rate * (*mean / left) / ((*square / right).sqrt() + 1e-8);
        }
    }
    weights
}

/// The share of tones from `seeds` on, `count` of them, that the network names rightly.
pub fn accuracy(weights: &[f32], seeds: u64, count: u64) -> f64 {
    let right = (seeds..seeds + count).filter(|seed| {
        let (x, class) = sample(*seed);
        let output = forward(weights, &x).output;
        output.iter().enumerate().all(|(place, value)| place == class || *value < output[class])
    });
    right.count() as f64 / count as f64
}

/// The first seed that training does not reach.
pub const UNSEEN: u64 = 1 << 32;

/// The network as its files have it, with two unseen tones of every class as samples.
pub fn network(weights: &[f32]) -> Network {
    let array =
        |name, number: usize, shape: &[usize]| Array { name, shape: shape.to_vec(), data: part(weights, number).to_vec(), trained: true };
    let build = |sizes: &[usize]| sizes.iter().map(|size| Some(*size)).collect();
    let layer = |type_name, keys: &str, sizes: &[usize], arrays| Layer { type_name, keys: keys.to_owned(), build: build(sizes), arrays };
    let layers = vec![
        layer(
            "Conv1D",
            "stride = 2\npadding = \"same\"\nactivation = \"relu\"\n",
            &[STEPS, BANDS],
            vec![array("kernel", 0, &[TAPS[0], BANDS, FIRST]), array("bias", 1, &[FIRST])],
        ),
        layer("MaxPooling1D", "pool_size = 2\n", &[HALF, FIRST], Vec::new()),
        layer(
            "Conv1D",
            "padding = \"same\"\nactivation = \"relu\"\n",
            &[QUARTER, FIRST],
            vec![array("kernel", 2, &[TAPS[1], FIRST, SECOND]), array("bias", 3, &[SECOND])],
        ),
        layer("GlobalAveragePooling1D", "", &[QUARTER, SECOND], Vec::new()),
        layer(
            "Dense",
            "activation = \"softmax\"\n",
            &[SECOND],
            vec![array("kernel", 4, &[SECOND, CLASSES]), array("bias", 5, &[1, CLASSES])],
        ),
    ];
    let mut samples = Vec::new();
    for class in 0..CLASSES {
        let of_class = (UNSEEN..).map(sample).filter(|(_, found)| *found == class).take(2);
        samples.extend(of_class.map(|(x, _)| {
            let output = forward(weights, &x).output;
            (x, Some(output))
        }));
    }
    Network { name: "tones", input: vec![STEPS, BANDS], classes: NAMES, layers, samples }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gradient_is_the_slope_of_the_loss() {
        let weights = train(3);
        let (x, class) = sample(5);
        let mut gradient = vec![0.0; weights.len()];
        backward(&weights, &x, class, &mut gradient);
        for number in 0..6 {
            for at in [PARTS[number], PARTS[number + 1] - 1] {
                let loss = |change: f32| {
                    let mut moved = weights.clone();
                    moved[at] += change;
                    -f64::from(forward(&moved, &x).output[class]).ln()
                };
                let slope = (loss(1e-3) - loss(-1e-3)) / 2e-3;
                assert!((slope - f64::from(gradient[at])).abs() < 2e-3 + 0.02 * slope.abs(), "{at}: {slope}, {}", gradient[at]);
            }
        }
    }
}

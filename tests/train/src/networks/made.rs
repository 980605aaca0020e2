//! Networks of made-up weights: what emulated boards compare with the host, and what is counted on them.

use super::file::{Array, Layer, Network};
use crate::rng::Rng;

/// Makes layers one after the other.
struct Maker {
    rng: Rng,
    layers: Vec<Layer>,
}

impl Maker {
    fn new(seed: u64) -> Self {
        Self { rng: Rng::new(seed), layers: Vec::new() }
    }

    /// Numbers from `-scale` to `scale`.
    fn numbers(&mut self, count: usize, scale: f32) -> Vec<f32> {
        (0..count).map(|_| (self.rng.unit() * 2.0 - 1.0) * scale).collect()
    }

    /// An array whose results stay about as large as their `inputs`.
    fn array(&mut self, name: &'static str, shape: &[usize], inputs: usize) -> Array {
        let data = self.numbers(shape.iter().product(), 1.7 / (inputs as f32).sqrt());
        Array { name, shape: shape.to_vec(), data, trained: true }
    }

    fn layer(&mut self, type_name: &'static str, keys: &str, build: &[usize], arrays: Vec<Array>) {
        let build = build.iter().map(|size| Some(*size).filter(|size| *size > 0)).collect();
        self.layers.push(Layer { type_name, keys: keys.to_owned(), build, arrays });
    }

    fn dense(&mut self, inputs: usize, units: usize, activation: &str) {
        let arrays = vec![self.array("kernel", &[inputs, units], inputs), self.array("bias", &[1, units], 100)];
        self.layer("Dense", &format!("units = {units}\nactivation = {activation:?}\n"), &[inputs], arrays);
    }

    fn recurrent(&mut self, type_name: &'static str, inputs: usize, units: usize, gates: usize, keys: &str) {
        let rows = gates * units;
        let arrays = vec![
            self.array("kernel", &[inputs, rows], inputs),
            self.array("recurrent_kernel", &[units, rows], units),
            self.array("bias", &[1, rows], 100),
        ];
        self.layer(type_name, &format!("units = {units}\n{keys}"), &[0, inputs], arrays);
    }

    /// The network, with `count` made-up inputs.
    fn network(mut self, name: &'static str, input: &[usize], count: usize) -> Network {
        let samples = (0..count).map(|_| (self.numbers(input.iter().product(), 1.0), None)).collect();
        Network { name, input: input.to_vec(), classes: &[], layers: self.layers, samples }
    }
}

/// Recurrent layers of each kind over nine steps.
pub fn recurrent() -> Network {
    let mut maker = Maker::new(11);
    maker.recurrent("LSTM", 5, 12, 4, "activation = \"tanh\"\nreturn_sequences = true\n");
    maker.recurrent("GRU", 12, 8, 3, "activation = \"tanh\"\nreturn_sequences = true\ngo_backwards = true\n");
    maker.layer("LayerNormalization", "epsilon = 1e-3\ncenter = false\nscale = false\n", &[9, 8], Vec::new());
    maker.recurrent("SimpleRNN", 8, 9, 1, "activation = \"softsign\"\n");
    maker.dense(9, 4, "softmax");
    maker.network("recurrent", &[9, 5], 3)
}

/// Convolutions of each kind and pools over an image of 12 by 10, and rarer activations.
pub fn image() -> Network {
    let mut maker = Maker::new(12);
    let arrays = vec![maker.array("kernel", &[3, 3, 1, 8], 9), maker.array("bias", &[8], 100)];
    maker.layer("Conv2D", "padding = \"same\"\nactivation = \"gelu\"\n", &[12, 10, 1], arrays);
    let mut arrays: Vec<_> = ["gamma", "beta", "moving_mean"].into_iter().map(|name| maker.array(name, &[8], 9)).collect();
    let variance = maker.numbers(8, 0.3).into_iter().map(|value| value + 1.0).collect();
    arrays.push(Array { name: "moving_variance", shape: vec![8], data: variance, trained: false });
    arrays[2].trained = false;
    maker.layer("BatchNormalization", "epsilon = 1e-3\n", &[12, 10, 8], arrays);
    let arrays = vec![maker.array("kernel", &[3, 2, 8, 1], 6), maker.array("bias", &[8], 100)];
    maker.layer("DepthwiseConv2D", "strides = [2, 1]\npadding = \"same\"\nactivation = \"selu\"\n", &[12, 10, 8], arrays);
    let arrays = vec![
        maker.array("depthwise_kernel", &[2, 2, 8, 2], 4),
        maker.array("pointwise_kernel", &[1, 1, 16, 6], 16),
        maker.array("bias", &[6], 100),
    ];
    maker.layer("SeparableConv2D", "depth_multiplier = 2\nactivation = \"mish\"\n", &[6, 10, 8], arrays);
    maker.layer("AveragePooling2D", "pool_size = [2, 2]\npadding = \"same\"\n", &[5, 9, 6], Vec::new());
    let arrays = vec![maker.array("kernel", &[2, 2, 4, 6], 24), maker.array("bias", &[4], 100)];
    maker.layer("Conv2DTranspose", "strides = [2, 2]\nactivation = \"softplus\"\n", &[3, 5, 6], arrays);
    maker.layer("UpSampling2D", "size = [1, 2]\ninterpolation = \"bicubic\"\n", &[6, 10, 4], Vec::new());
    maker.layer("UnitNormalization", "", &[6, 20, 4], Vec::new());
    maker.layer("GlobalAveragePooling2D", "", &[6, 20, 4], Vec::new());
    maker.dense(4, 5, "hard_sigmoid");
    maker.network("image", &[12, 10, 1], 3)
}

/// Dense layers alone.
pub fn dense() -> Network {
    let mut maker = Maker::new(14);
    maker.dense(4, 16, "relu");
    maker.dense(16, 16, "tanh");
    maker.dense(16, 3, "softmax");
    maker.network("dense", &[4], 3)
}

/// The shape of `MLPerf` Tiny's anomaly detector: 640-128x4-8-128x4-640.
pub fn autoencoder() -> Network {
    let mut maker = Maker::new(13);
    let widths = [640, 128, 128, 128, 128, 8, 128, 128, 128, 128, 640];
    for (place, pair) in widths.windows(2).enumerate() {
        maker.dense(pair[0], pair[1], if place == 9 { "linear" } else { "relu" });
    }
    maker.network("autoencoder", &[640], 2)
}

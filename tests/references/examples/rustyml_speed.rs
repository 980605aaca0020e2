//! Microseconds that one prediction takes in the crate `rustyml` and in dmexp, on one thread, batch 1, in turns: `cargo run --release -p dmexp-references --example rustyml_speed -- DATA EXPORTS`.
//!
//! DATA holds `RustyML`'s NAME.v4.bin with NAME.v4.json, EXPORTS what `dmexp export run --checkpoint NAME.v4.bin --arch NAME.v4.json` made of each, as NAME.dmexp. Models without an export are left out.

use dmexp::format::file::ModelFile;
use dmexp::{Prediction, Predictor};
use rustyml::neural_network::graph::{Graph, GraphBuilder};
use rustyml::neural_network::layers::{
    Activation, Add, Average, AveragePooling1D, AveragePooling2D, BatchNormalization, Concatenate, Conv1D, Conv2D, Conv2DTranspose,
    Cropping2D, Dense, DepthwiseConv2D, Dropout, ELU, Embedding, Exponential, Flatten, GRU, GaussianDropout, GaussianNoise,
    GlobalAveragePooling1D, GlobalAveragePooling2D, GlobalMaxPooling2D, GroupNormalization, HardSigmoid, Identity, InstanceNormalization,
    Interpolation, LSTM, LayerNormalization, LayerNormalizationAxis, LeakyReLU, Linear, MaxPooling1D, MaxPooling2D, Maximum, Minimum,
    Multiply, PReLU, PaddingType, ReLU, RepeatVector, Rescaling, Reverse, SELU, SeparableConv2D, Sigmoid, SimpleRNN, Softmax, Softplus,
    Softsign, SpatialDropout1D, SpatialDropout2D, Subtract, Tanh, UnitNormalization, UnitNormalizationAxis, UpSampling2D, ZeroPadding2D,
};
use rustyml::neural_network::sequential::{Sequential, SequentialBuilder};
use rustyml::neural_network::traits::Layer;
use rustyml::neural_network::{Shape, Tensor};
use serde_json::Value;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Turns of which the fastest counts: what else the machine does only ever slows one down.
const TURNS: u32 = 200;
/// How long a turn is, about.
const TURN: Duration = Duration::from_millis(1);
/// What says to `rustyml`'s thread pool how many threads it has.
const THREADS: &str = "RAYON_NUM_THREADS";

fn main() {
    let folders: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let [data, exports] = folders.as_slice() else { panic!("name the folder of the data and that of the exports") };
    if std::env::var_os(THREADS).is_none() {
        let own = std::env::current_exe().expect("this program has a path");
        let status = std::process::Command::new(own).args(&folders).env(THREADS, "1").status().expect("it runs again");
        std::process::exit(status.code().unwrap_or(1));
    }
    println!("| model | rustyml, us | dmexp, us | times as fast |\n|---|---|---|---|");
    let mut names: Vec<PathBuf> = std::fs::read_dir(exports).expect("a folder").map(|entry| entry.expect("an entry").path()).collect();
    names.sort();
    for export in names {
        let name = export.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let known = std::fs::read_to_string(data.join(format!("{name}.v4.json"))).expect("the architecture");
        let known: Value = serde_json::from_str(&known).expect("JSON");
        let [theirs, ours] = compare(&known, &data.join(format!("{name}.v4.bin")), &export);
        println!("| {name} | {theirs:.2} | {ours:.2} | {:.1} |", theirs / ours);
    }
}

/// Microseconds of both, which must agree on the results.
fn compare(known: &Value, weights: &Path, export: &Path) -> [f64; 2] {
    let samples = known["samples"][0]["inputs"].as_array().expect("inputs");
    let numbers: Vec<Vec<f32>> = samples.iter().map(|sample| list(&sample["data"]).map(|number| number as f32).collect()).collect();
    let inputs: Vec<Tensor> = samples.iter().zip(&numbers).map(|(sample, numbers)| tensor(&sample["shape"], numbers)).collect();
    let inputs: Vec<&Tensor> = inputs.iter().collect();
    let mut model = made(&known["arch"]);
    model.load(weights);

    let bytes = std::fs::read(export).expect("the export");
    let predictor = Predictor::bind(&ModelFile::open(&bytes).expect("a .dmexp")).expect("a sequential model");
    let mut memory = vec![0u32; predictor.arena_len().expect("a plan") / 4];
    let mut prediction = Prediction::new(predictor, memory.as_mut_slice()).expect("enough memory");

    let mut ours = || {
        for (place, numbers) in (0..).zip(&numbers) {
            prediction.input_mut(place).copy_from_slice(black_box(numbers));
        }
        prediction.run().expect("a prediction");
        black_box(prediction.output(0));
    };
    let mut theirs: Box<dyn FnMut()> = match &model {
        Model::Sequential(model) => Box::new(|| drop(black_box(model.predict(black_box(inputs[0])).expect("a prediction")))),
        Model::Graph(model) => Box::new(|| drop(black_box(model.predict(black_box(&inputs)).expect("a prediction")))),
    };
    let (mut best, mut counts) = ([f64::INFINITY; 2], [1u32; 2]);
    counts[0] = per_turn(&mut theirs);
    counts[1] = per_turn(&mut ours);
    for _ in 0..TURNS {
        best[0] = best[0].min(turn(counts[0], &mut theirs));
        best[1] = best[1].min(turn(counts[1], &mut ours));
    }
    drop(theirs);
    for (place, found) in (0..).zip(model.predict(&inputs)) {
        for (theirs, ours) in found.iter().zip(prediction.output(place)) {
            assert!((theirs - ours).abs() <= 1e-5 + 1e-5 * theirs.abs(), "{theirs} and {ours}");
        }
    }
    best
}

fn tensor(shape: &Value, numbers: &[f32]) -> Tensor {
    Tensor::from_shape_vec(sizes(shape), numbers.to_vec()).expect("as many numbers as the shape says")
}

fn turn(count: u32, run: &mut dyn FnMut()) -> f64 {
    let start = Instant::now();
    for _ in 0..count {
        run();
    }
    start.elapsed().as_secs_f64() * 1e6 / f64::from(count)
}

fn per_turn(run: &mut dyn FnMut()) -> u32 {
    let each = turn(20, run);
    ((TURN.as_secs_f64() * 1e6 / each) as u32).max(1)
}

fn list(value: &Value) -> impl Iterator<Item = f64> {
    value.as_array().into_iter().flatten().map(|number| number.as_f64().expect("a number"))
}

fn sizes(value: &Value) -> Vec<usize> {
    list(value).map(|size| size as usize).collect()
}

/// Layers in a row, or wired.
enum Model {
    Sequential(Sequential),
    Graph(Graph),
}

impl Model {
    fn load(&mut self, weights: &Path) {
        match self {
            Self::Sequential(model) => model.load_from_path(weights),
            Self::Graph(model) => model.load_from_path(weights),
        }
        .expect("the weights fit");
    }

    fn predict(&self, inputs: &[&Tensor]) -> Vec<Tensor> {
        match self {
            Self::Sequential(model) => vec![model.predict(inputs[0]).expect("a prediction")],
            Self::Graph(model) => model.predict(inputs).expect("a prediction"),
        }
    }
}

/// The model that an architecture describes.
fn made(arch: &Value) -> Model {
    let layers = arch["layers"].as_array().expect("layers");
    let shape = |sizes: Vec<usize>| Shape::known(&std::iter::once(1).chain(sizes).collect::<Vec<usize>>());
    if arch["kind"] == "sequential" {
        let builder = layers.iter().fold(Builder::Sequential(SequentialBuilder::new()), with);
        let Builder::Sequential(builder) = builder else { unreachable!("layers in a row stay so") };
        return Model::Sequential(builder.build(&shape(sizes(&arch["input_shape"]))).expect("a model"));
    }
    let builder = layers.iter().fold(Builder::Graph(GraphBuilder::new()), with);
    let Builder::Graph(mut builder) = builder else { unreachable!("wired layers stay so") };
    for node in arch["nodes"].as_array().expect("nodes") {
        match node["input"].as_u64() {
            Some(input) => builder.input(shape(sizes(&arch["inputs"][input as usize]))),
            None => builder.apply(whole(node, "layer", 0), &sizes(&node["inputs"])),
        };
    }
    Model::Graph(builder.build(&sizes(&arch["outputs"])).expect("a model"))
}

/// A model that grows, a layer at a time.
enum Builder {
    Sequential(SequentialBuilder),
    Graph(GraphBuilder),
}

impl Builder {
    fn add<L: 'static + Layer>(self, layer: L) -> Self {
        match self {
            Self::Sequential(builder) => Self::Sequential(builder.add(layer)),
            Self::Graph(mut builder) => {
                builder.layer(layer);
                Self::Graph(builder)
            }
        }
    }
}

fn activation(layer: &Value) -> Activation {
    match layer["activation"].as_str().unwrap_or("linear") {
        "linear" => Activation::Linear,
        "relu" => Activation::ReLU,
        "sigmoid" => Activation::Sigmoid,
        "tanh" => Activation::Tanh,
        "softmax" => Activation::Softmax { axis: -1 },
        "softplus" => Activation::Softplus,
        "selu" => Activation::SELU,
        "elu" => Activation::ELU { alpha: float(layer, "alpha", 1.0) },
        "leaky_relu" => Activation::LeakyReLU { negative_slope: float(layer, "negative_slope", 0.3) },
        "softsign" => Activation::Softsign,
        "exponential" => Activation::Exponential,
        "hard_sigmoid" => Activation::HardSigmoid,
        other => panic!("the activation {other}"),
    }
}

fn float(layer: &Value, key: &str, default: f32) -> f32 {
    layer[key].as_f64().map_or(default, |number| number as f32)
}

fn whole(layer: &Value, key: &str, default: usize) -> usize {
    layer[key].as_u64().map_or(default, |number| number as usize)
}

fn yes(layer: &Value, key: &str, default: bool) -> bool {
    layer[key].as_bool().unwrap_or(default)
}

fn pair(layer: &Value, key: &str, default: (usize, usize)) -> (usize, usize) {
    match sizes(&layer[key]).as_slice() {
        [a, b] => (*a, *b),
        _ => default,
    }
}

fn pairs(layer: &Value, key: &str) -> ((usize, usize), (usize, usize)) {
    let of = |place: usize| match sizes(&layer[key][place]).as_slice() {
        [a, b] => (*a, *b),
        _ => (0, 0),
    };
    (of(0), of(1))
}

fn padding(layer: &Value) -> PaddingType {
    if layer["padding"] == "same" { PaddingType::Same } else { PaddingType::Valid }
}

/// The builder with one more layer.
#[expect(clippy::too_many_lines, reason = "one arm a type")]
fn with(builder: Builder, layer: &Value) -> Builder {
    let (units, epsilon, bias) = (whole(layer, "units", 0), float(layer, "epsilon", 0.0), yes(layer, "use_bias", true));
    let (filters, kernel, strides) = (whole(layer, "filters", 0), pair(layer, "kernel_size", (1, 1)), pair(layer, "strides", (1, 1)));
    let dilation = pair(layer, "dilation_rate", (1, 1));
    let (center, scale) = (yes(layer, "center", true), yes(layer, "scale", true));
    let (sequences, backwards) = (yes(layer, "return_sequences", false), yes(layer, "go_backwards", false));
    let axes = sizes(&layer["axis"]);
    match layer["type"].as_str().expect("a type") {
        "Dense" => builder.add(Dense::new(units, activation(layer)).unwrap().with_use_bias(bias)),
        "Conv1D" => builder.add(
            Conv1D::new(filters, whole(layer, "kernel_size", 1), whole(layer, "stride", 1), activation(layer))
                .unwrap()
                .with_padding(padding(layer))
                .with_use_bias(bias),
        ),
        "Conv2D" => builder.add(
            Conv2D::new(filters, kernel, strides, activation(layer))
                .unwrap()
                .with_padding(padding(layer))
                .with_dilation_rate(dilation)
                .unwrap()
                .with_use_bias(bias),
        ),
        "Conv2DTranspose" => builder.add(
            Conv2DTranspose::new(filters, kernel, strides, activation(layer))
                .unwrap()
                .with_padding(padding(layer))
                .with_dilation_rate(dilation)
                .unwrap()
                .with_use_bias(bias),
        ),
        "DepthwiseConv2D" => builder.add(
            DepthwiseConv2D::new(kernel, strides, activation(layer))
                .unwrap()
                .with_padding(padding(layer))
                .with_dilation_rate(dilation)
                .unwrap()
                .with_depth_multiplier(whole(layer, "depth_multiplier", 1))
                .unwrap()
                .with_use_bias(bias),
        ),
        "SeparableConv2D" => builder.add(
            SeparableConv2D::new(filters, kernel, strides, whole(layer, "depth_multiplier", 1), activation(layer))
                .unwrap()
                .with_padding(padding(layer))
                .with_dilation_rate(dilation)
                .unwrap()
                .with_use_bias(bias),
        ),
        "MaxPooling1D" => {
            let pool = whole(layer, "pool_size", 1);
            builder.add(MaxPooling1D::new(pool).with_stride(whole(layer, "stride", pool)).unwrap().with_padding(padding(layer)))
        }
        "AveragePooling1D" => {
            let pool = whole(layer, "pool_size", 1);
            builder.add(AveragePooling1D::new(pool).with_stride(whole(layer, "stride", pool)).unwrap().with_padding(padding(layer)))
        }
        "MaxPooling2D" => {
            let pool = pair(layer, "pool_size", (1, 1));
            builder.add(MaxPooling2D::new(pool).with_strides(pair(layer, "strides", pool)).unwrap().with_padding(padding(layer)))
        }
        "AveragePooling2D" => {
            let pool = pair(layer, "pool_size", (1, 1));
            builder.add(AveragePooling2D::new(pool).with_strides(pair(layer, "strides", pool)).unwrap().with_padding(padding(layer)))
        }
        "GlobalAveragePooling1D" => builder.add(GlobalAveragePooling1D::new()),
        "GlobalAveragePooling2D" => builder.add(GlobalAveragePooling2D::new()),
        "GlobalMaxPooling2D" => builder.add(GlobalMaxPooling2D::new()),
        "BatchNormalization" => builder.add(BatchNormalization::new(0.9, epsilon).unwrap().with_center(center).with_scale(scale)),
        "GroupNormalization" => {
            builder.add(GroupNormalization::new(whole(layer, "num_groups", 1), epsilon).unwrap().with_center(center).with_scale(scale))
        }
        "InstanceNormalization" => builder.add(InstanceNormalization::new(epsilon).unwrap().with_center(center).with_scale(scale)),
        "LayerNormalization" => {
            let axis = match (layer["axis"].as_u64(), axes.is_empty()) {
                (Some(axis), _) => LayerNormalizationAxis::Custom(axis as usize),
                (None, true) => LayerNormalizationAxis::Default,
                (None, false) => LayerNormalizationAxis::Multiple(axes),
            };
            let made = LayerNormalization::new(epsilon).unwrap().with_normalized_axis(axis).unwrap();
            builder.add(made.with_center(center).with_scale(scale))
        }
        "UnitNormalization" => {
            let axis = if axes.is_empty() { UnitNormalizationAxis::Default } else { UnitNormalizationAxis::Multiple(axes) };
            builder.add(UnitNormalization::new(axis).unwrap())
        }
        "SimpleRNN" => {
            builder.add(SimpleRNN::new(units, activation(layer)).unwrap().with_return_sequences(sequences).with_go_backwards(backwards))
        }
        "LSTM" => builder.add(LSTM::new(units, activation(layer)).unwrap().with_return_sequences(sequences).with_go_backwards(backwards)),
        "GRU" => builder.add(GRU::new(units, activation(layer)).unwrap().with_return_sequences(sequences).with_go_backwards(backwards)),
        "Embedding" => builder.add(Embedding::new(whole(layer, "input_dim", 0), whole(layer, "output_dim", 0)).unwrap()),
        "Rescaling" => builder.add(Rescaling::new(float(layer, "scale", 1.0)).with_offset(float(layer, "offset", 0.0))),
        "RepeatVector" => builder.add(RepeatVector::new(whole(layer, "n", 1)).unwrap()),
        "Reverse" => builder.add(Reverse::new(layer["axis"].as_i64().expect("an axis") as i32)),
        "ZeroPadding2D" => builder.add(ZeroPadding2D::new(pairs(layer, "padding"))),
        "Cropping2D" => builder.add(Cropping2D::new(pairs(layer, "cropping"))),
        "UpSampling2D" => {
            let interpolation = match layer["interpolation"].as_str().unwrap_or("nearest") {
                "bilinear" => Interpolation::Bilinear,
                "bicubic" => Interpolation::Bicubic,
                "lanczos3" => Interpolation::Lanczos3,
                "lanczos5" => Interpolation::Lanczos5,
                _ => Interpolation::Nearest,
            };
            builder.add(UpSampling2D::new(pair(layer, "size", (1, 1)), interpolation).unwrap())
        }
        "Dropout" => builder.add(Dropout::new(0.1).unwrap()),
        "SpatialDropout1D" => builder.add(SpatialDropout1D::new(0.1).unwrap()),
        "SpatialDropout2D" => builder.add(SpatialDropout2D::new(0.1).unwrap()),
        "GaussianNoise" => builder.add(GaussianNoise::new(0.1).unwrap()),
        "GaussianDropout" => builder.add(GaussianDropout::new(0.1).unwrap()),
        "Identity" => builder.add(Identity::new()),
        "Flatten" => builder.add(Flatten::new()),
        "ReLU" => builder.add(ReLU::new()),
        "Sigmoid" => builder.add(Sigmoid::new()),
        "LeakyReLU" => builder.add(LeakyReLU::new(float(layer, "negative_slope", 0.3)).unwrap()),
        "ELU" => builder.add(ELU::new(float(layer, "alpha", 1.0)).unwrap()),
        "SELU" => builder.add(SELU::new()),
        "Softplus" => builder.add(Softplus::new()),
        "Softsign" => builder.add(Softsign::new()),
        "HardSigmoid" => builder.add(HardSigmoid::new()),
        "Exponential" => builder.add(Exponential::new()),
        "Tanh" => builder.add(Tanh::new()),
        "Linear" => builder.add(Linear::new()),
        "PReLU" => builder.add(PReLU::new(float(layer, "alpha", 0.25)).unwrap()),
        "Add" => builder.add(Add::new()),
        "Subtract" => builder.add(Subtract::new()),
        "Multiply" => builder.add(Multiply::new()),
        "Average" => builder.add(Average::new()),
        "Maximum" => builder.add(Maximum::new()),
        "Minimum" => builder.add(Minimum::new()),
        "Concatenate" => builder.add(Concatenate::new(layer["axis"].as_i64().expect("an axis") as i32)),
        "Softmax" => builder.add(Softmax::new().with_axis(layer["axis"].as_i64().unwrap_or(-1) as i32)),
        other => panic!("the layer {other}"),
    }
}

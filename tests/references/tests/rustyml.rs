//! Sequential `.dmexp` files written as `RustyML` files: the crate `rustyml` loads them strictly and predicts what it predicted when the fixtures were made.

use ::rustyml::neural_network::layers::{
    Activation, AveragePooling1D, AveragePooling2D, BatchNormalization, Conv1D, Conv2D, Dense, Dropout, Flatten, GlobalAveragePooling1D,
    LSTM, MaxPooling1D, MaxPooling2D, PaddingType, ReLU, Rescaling, SpatialDropout1D,
};
use ::rustyml::neural_network::sequential::{Sequential, SequentialBuilder};
use ::rustyml::neural_network::{Shape, Tensor};
use dmexp_tools::checkpoint::rustyml;
use dmexp_tools::decode::Loaded;
use dmexp_tools::export::{Format, Options, run};
use serde_json::Value;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

fn data(name: &str) -> Option<PathBuf> {
    let path = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data/rustyml")).join(name);
    if !path.exists() {
        println!("not run: ../shared/data/rustyml/{name} is not here");
        return None;
    }
    Some(path)
}

const SOFTMAX: Activation = Activation::Softmax { axis: -1 };

fn mlp() -> Sequential {
    SequentialBuilder::new()
        .add(Dense::new(16, Activation::ReLU).unwrap())
        .add(Dense::new(16, Activation::Tanh).unwrap())
        .add(Dense::new(3, SOFTMAX).unwrap())
        .build(&Shape::known(&[1, 4]))
        .unwrap()
}

fn kws_cnn1d() -> Sequential {
    SequentialBuilder::new()
        .add(Conv1D::new(16, 5, 2, Activation::Linear).unwrap().with_padding(PaddingType::Same).with_use_bias(false))
        .add(BatchNormalization::new(0.7, 1e-3).unwrap())
        .add(ReLU::new())
        .add(MaxPooling1D::new(2))
        .add(Conv1D::new(24, 3, 1, Activation::ReLU).unwrap())
        .add(AveragePooling1D::new(3).with_stride(2).unwrap().with_padding(PaddingType::Same))
        .add(SpatialDropout1D::new(0.1).unwrap())
        .add(GlobalAveragePooling1D::new())
        .add(Dense::new(12, SOFTMAX).unwrap())
        .build(&Shape::known(&[1, 49, 10]))
        .unwrap()
}

fn lstm_har() -> Sequential {
    SequentialBuilder::new()
        .add(LSTM::new(12, Activation::Tanh).unwrap().with_return_sequences(true))
        .add(LSTM::new(8, Activation::Tanh).unwrap())
        .add(Dense::new(5, SOFTMAX).unwrap())
        .build(&Shape::known(&[1, 24, 6]))
        .unwrap()
}

fn mnist_cnn2d() -> Sequential {
    SequentialBuilder::new()
        .add(Rescaling::new(0.5).with_offset(0.1))
        .add(Conv2D::new(8, (3, 3), (1, 1), Activation::ReLU).unwrap().with_padding(PaddingType::Same))
        .add(MaxPooling2D::new((2, 2)))
        .add(Conv2D::new(16, (3, 3), (2, 2), Activation::ReLU).unwrap())
        .add(AveragePooling2D::new((2, 2)).with_strides((1, 1)).unwrap().with_padding(PaddingType::Same))
        .add(Flatten::new())
        .add(Dense::new(32, Activation::ReLU).unwrap())
        .add(Dropout::new(0.25).unwrap())
        .add(Dense::new(10, SOFTMAX).unwrap())
        .build(&Shape::known(&[1, 28, 28, 1]))
        .unwrap()
}

fn tensor(value: &Value) -> Tensor {
    let numbers = |key: &str| value[key].as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect::<Vec<_>>();
    let shape: Vec<usize> = numbers("shape").into_iter().map(|size| size as usize).collect();
    Tensor::from_shape_vec(shape, numbers("data").into_iter().map(|number| number as f32).collect()).unwrap()
}

#[test]
fn files_written_from_dmexp_predict_the_same_in_rustyml() {
    let models: [(&str, fn() -> Sequential); 4] =
        [("mlp", mlp), ("kws_cnn1d", kws_cnn1d), ("lstm_har", lstm_har), ("mnist_cnn2d", mnist_cnn2d)];
    for (name, make) in models {
        let Some(source) = data(&format!("{name}.v4.bin")) else { return };
        let known: Value = serde_json::from_str(&std::fs::read_to_string(source.with_extension("json")).unwrap()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("model.dmexp");
        let checkpoint = rustyml::open(&source, &source.with_extension("json")).unwrap();
        let options = Options { dtype: dmexp_format::DType::F32, format: Format::V2, ..Options::new(&out) };
        run(&checkpoint, &options, &AtomicBool::new(false), &mut |_| ()).unwrap();
        let written = folder.path().join("model.bin");
        std::fs::write(&written, rustyml::to_rustyml(&Loaded::open(&out).unwrap(), 4).unwrap()).unwrap();
        let mut model = make();
        model.load_from_path(&written).unwrap_or_else(|error| panic!("{name}: {error}"));
        let mut worst = 0.0f32;
        for sample in known["samples"].as_array().unwrap() {
            let found = model.predict(&tensor(&sample["inputs"][0])).unwrap();
            let expected = tensor(&sample["outputs"][0]);
            assert_eq!(found.shape(), expected.shape());
            for (found, expected) in found.iter().zip(&expected) {
                worst = worst.max((found - expected).abs());
            }
        }
        println!("{name}: worst difference {worst:e}");
        assert!(worst <= 1e-5, "{name}: {worst:e}");
    }
}

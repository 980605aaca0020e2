//! Tables to files and back, and what is refused of both.

use super::*;
use crate::arch::sequential::{Samples, check_tensors};
use crate::file::ModelFile;
use crate::host::{Config, Header, Measure, Payload, Provenance, TensorSpec, Tokenizer, strip, to_bytes, verify};
use crate::{DType, Error};

const CHAIN: &str = r#"
kind = "sequential"
input_shape = [20, 4]
classes = ["yes", "no", "maybe"]
[[layer]]
type = "Conv1D"
filters = 6
kernel_size = 3
stride = 2
padding = "causal"
activation = "leaky_relu"
negative_slope = 0.1
[[layer]]
type = "BatchNormalization"
epsilon = 1e-3
momentum = 0.9
[[layer]]
type = "SpatialDropout1D"
rate = 0.5
[[layer]]
type = "Reverse"
axis = -2
[[layer]]
type = "LSTM"
units = 5
activation = "tanh"
[[layer]]
type = "Dense"
units = 3
activation = "softmax"
"#;

const GRAPH: &str = r#"
kind = "graph"
inputs = [[4], [4]]
outputs = [4, 2]
[[layer]]
type = "Dense"
units = 4
use_bias = false
[[layer]]
type = "Concatenate"
axis = -1
[[node]]
input = 0
[[node]]
input = 1
[[node]]
layer = 0
inputs = [0]
[[node]]
layer = 0
inputs = [1]
[[node]]
layer = 1
inputs = [2, 3, 0]
"#;

fn settings(text: &str) -> Result<SequentialSettings, HeaderError> {
    SequentialSettings::from_table("", text.parse().unwrap())
}

/// A whole file with small numbers as weights.
fn file(settings: &SequentialSettings) -> (Header, Vec<u8>) {
    let (payload, parts) = payload(settings, &[]);
    let config = Config::Sequential(settings.clone());
    let header = Header::new(config, Tokenizer::NONE, Provenance::default(), payload).unwrap();
    let parts: Vec<_> = parts.iter().map(Vec::as_slice).collect();
    let file = to_bytes(&header, 16, &parts).unwrap();
    (header, file)
}

fn payload(settings: &SequentialSettings, golden: &[(String, Dims)]) -> (Payload, Vec<Vec<u8>>) {
    let mut measure = Measure::new(16).unwrap();
    let mut tensors = Vec::new();
    for (number, wanted) in settings.tensors().unwrap().iter().enumerate() {
        let bytes: Vec<u8> =
            (0..wanted.dims.count()).flat_map(|place| ((number as f32 + 1.0) / (place as f32 + 2.0)).to_le_bytes()).collect();
        let spec = TensorSpec {
            name: wanted.to_string(),
            dtype: DType::F32,
            dims: wanted.dims,
            group: 0,
            trainable: wanted.role.is_trainable(),
            transposed: wanted.role.is_transposed(),
        };
        measure.tensor(spec, &bytes, 0).unwrap();
        tensors.push(bytes);
    }
    for (name, dims) in golden {
        let bytes: Vec<u8> = (0..dims.count()).flat_map(|place| (place as f32).to_le_bytes()).collect();
        let spec = TensorSpec { name: name.clone(), dtype: DType::F32, dims: *dims, group: 0, trainable: false, transposed: false };
        measure.tensor(spec, &bytes, 0).unwrap();
        tensors.push(bytes);
    }
    (measure.finish(), tensors)
}

#[test]
fn golden_vectors_are_tensors_of_their_inputs_and_outputs_or_refused() {
    let settings = settings(CHAIN).unwrap();
    let golden: Vec<_> = settings.golden_tensors(2).collect();
    let (inputs, outputs) = (Dims::matrix(2, 80), Dims::matrix(2, 3));
    assert_eq!(golden, [("golden.inputs.0".to_owned(), inputs), ("golden.outputs.0".to_owned(), outputs)]);
    let header = |golden: &[(String, Dims)]| {
        let (payload, parts) = payload(&settings, golden);
        Header::new(Config::Sequential(settings.clone()), Tokenizer::NONE, Provenance::default(), payload).map(|header| (header, parts))
    };
    let (made, parts) = header(&golden).unwrap();
    assert_eq!(made.num_params(), file(&settings).0.num_params());
    let bytes = to_bytes(&made, 16, &parts.iter().map(Vec::as_slice).collect::<Vec<_>>()).unwrap();
    verify(&bytes).unwrap();
    let opened = ModelFile::open(&bytes).unwrap();
    let samples = Samples::of(&opened, &opened.sequential().unwrap()).unwrap();
    assert_eq!((samples.count(), samples.inputs(0).unwrap().dims(), samples.outputs(0).unwrap().dims()), (2, inputs, outputs));
    assert!(samples.inputs(1).is_none() && samples.outputs(1).is_none());
    let name = |place: usize, name: &str| {
        let mut golden = golden.clone();
        golden[place].0 = name.to_owned();
        golden
    };
    let dims = |place: usize, dims: Dims| {
        let mut golden = golden.clone();
        golden[place].1 = dims;
        golden
    };
    for wrong in [
        golden[..1].to_vec(),
        golden[1..].to_vec(),
        [golden.clone(), golden[..1].to_vec()].concat(),
        name(0, "golden.inputs.1"),
        name(1, "golden.outputs.00"),
        name(0, "golden.output.0"),
        dims(0, Dims::matrix(3, 80)),
        dims(0, Dims::matrix(2, 79)),
        dims(1, Dims::matrix(1, 3)),
        dims(1, Dims::vector(3)),
    ] {
        let refused = header(&wrong);
        assert!(refused.is_err(), "{wrong:?}");
    }
}

#[test]
fn a_file_has_what_its_tables_say_in_header_and_index() {
    for (text, chain, names) in [
        (CHAIN, true, "0.kernel 0.bias 1.gamma 1.beta 1.moving_mean 1.moving_variance 4.kernel 4.recurrent_kernel 4.bias 5.kernel 5.bias"),
        (GRAPH, false, "0.kernel"),
    ] {
        let settings = settings(text).unwrap();
        let (header, bytes) = file(&settings);
        let (read, unknown) = Header::parse(&header.to_text()).unwrap();
        assert_eq!((read, unknown), (header, vec![]));
        verify(&bytes).unwrap();
        let stripped = strip(&bytes).unwrap();
        verify(&stripped).unwrap();
        let opened = ModelFile::open(&stripped).unwrap();
        let model = check_tensors(&opened).unwrap();
        assert_eq!((model.is_chain(), model.num_layers() as usize), (chain, settings.layers.len()));
        assert!(model.labels().eq(settings.labels.iter().map(String::as_str)));
        assert!(model.layers().eq(settings.layers.iter().map(|named| named.layer)));
        assert!(opened.tensors().map(|tensor| tensor.name).eq(names.split(' ')));
        assert!(matches!(opened.llama_config(), Err(Error::OtherArchitecture { found: 3, expected: 1 })));
    }
    let chain = settings(CHAIN).unwrap();
    assert_eq!(chain.layers[3].type_name, "Reverse(-2)");
    let shapes: Vec<_> = chain.nodes.iter().map(|node| shown_shape(&node.shape)).collect();
    assert_eq!(shapes, ["(None, 20, 4)", "(None, 10, 6)", "(None, 10, 6)", "(None, 10, 6)", "(None, 10, 6)", "(None, 5)", "(None, 3)"]);
}

#[test]
fn tables_that_mean_nothing_are_refused_by_their_key() {
    for (from, to, expected) in [
        ("filters = 6", "", "layer[0].filters"),
        ("filters = 6", "filters = 0", "layer[0]: units"),
        ("filters = 6", "filters = \"6\"", "layer[0].filters"),
        ("stride = 2", "stride = 0", "layer[0]"),
        ("stride = 2", "strides = [2]", "layer[0].strides"),
        ("stride = 2", "stride = 2\ndilation_rate = 2", "layer[0]: dilation_rate"),
        ("kernel_size = 3", "kernel_size = [3]", "layer[0].kernel_size"),
        ("\"causal\"", "\"full\"", "layer[0].padding"),
        ("\"leaky_relu\"", "\"swish\"", "layer[0].activation"),
        ("negative_slope = 0.1", "", "layer[0].negative_slope"),
        ("epsilon = 1e-3", "", "layer[1].epsilon"),
        ("epsilon = 1e-3", "epsilon = 0.0", "epsilon"),
        ("epsilon = 1e-3", "epsilon = nan", "layer[1].epsilon"),
        ("axis = -2", "axis = 0", "layer[3].axis"),
        ("axis = -2", "axis = 3", "layer[3].axis"),
        ("axis = -2", "", "layer[3].axis"),
        ("activation = \"tanh\"", "", "layer[4].activation"),
        ("\"LSTM\"", "\"Attention\"", "layer[4].type"),
        ("\"LSTM\"", "\"Dense\"\nreturn_sequences = true", "layer[4].return_sequences"),
        ("[20, 4]", "[20, 4, 2]", "layer[0]"),
        ("[20, 4]", "[]", "inputs"),
        ("[20, 4]", "[0, 4]", "inputs"),
        ("\"maybe\"", "\"maybe\", \"more\"", "labels"),
        ("\"maybe\"", "\"\"", "classes"),
        ("\"sequential\"", "\"functional\"", "kind"),
        ("kind =", "more = 1\nkind =", "more"),
    ] {
        assert!(CHAIN.contains(from), "{from}");
        let refused = settings(&CHAIN.replacen(from, to, 1)).expect_err(to).to_string();
        assert!(refused.contains(expected), "{to:?}: {refused}");
    }
    for (from, to, expected) in [
        ("inputs = [2, 3, 0]", "inputs = [2, 4]", "node[4].inputs"),
        ("inputs = [2, 3, 0]", "inputs = [2]", "layer[1]"),
        ("layer = 1", "layer = 2", "node[4].layer"),
        ("layer = 1", "layer = 0", "layer[0]"),
        ("outputs = [4, 2]", "outputs = [5]", "outputs"),
        ("outputs = [4, 2]", "outputs = []", "outputs"),
        ("input = 1", "input = 2", "node[1].input"),
        ("[[4], [4]]", "[[4], [4], [4]]", "inputs"),
        ("[[4], [4]]", "[[4]]", "node[1]"),
    ] {
        assert!(GRAPH.contains(from), "{from}");
        let refused = settings(&GRAPH.replacen(from, to, 1)).expect_err(to).to_string();
        assert!(refused.contains(expected), "{to:?}: {refused}");
    }
}

#[test]
fn every_bit_of_a_record_is_checked_or_changes_the_model() {
    for text in [CHAIN, GRAPH] {
        let record = settings(text).unwrap().to_record();
        let whole = crate::arch::sequential::Sequential::parse(&record).unwrap();
        let facts = |model: &crate::arch::sequential::Sequential<'_>| {
            let links: Vec<Vec<u32>> = model.nodes().map(|node| model.links_of(&node).collect()).collect();
            format!(
                "{:?} {:?} {links:?} {:?} {:?}",
                model.layers().collect::<Vec<_>>(),
                model.nodes().collect::<Vec<_>>(),
                model.outputs().collect::<Vec<_>>(),
                model.labels().collect::<Vec<_>>()
            )
        };
        for place in 0..record.len() {
            for bit in 0..8 {
                let mut edited = record.clone();
                edited[place] ^= 1 << bit;
                if let Ok(model) = crate::arch::sequential::Sequential::parse(&edited) {
                    assert_ne!(facts(&model), facts(&whole), "byte {place} bit {bit}");
                }
            }
            assert!(crate::arch::sequential::Sequential::parse(&record[..place]).is_err(), "cut at {place}");
        }
    }
}

//! The three versions of llama2.c checkpoints: configuration and values, against made files and the shared ones.

use super::data;
use super::made::{SHAPE, Shape, Weights};
use crate::checkpoint::{Checkpoint, Config, Encoding, LlamaSource, from_bytes, open};
use crate::error::{Class, Error};
use dmexp_format::arch::llama::RopeLayout;
use std::path::Path;

fn load(bytes: Vec<u8>) -> Result<Checkpoint, Error> {
    from_bytes(Path::new("made.bin"), bytes)
}

pub(super) fn source(checkpoint: &Checkpoint) -> &LlamaSource {
    let Config::Llama(source) = &checkpoint.config else { panic!("it is a Llama") };
    source
}

fn same_values(checkpoint: &Checkpoint, expected: &Weights) {
    let mut count = 0;
    for (name, layers) in expected {
        for (layer, values) in layers.iter().enumerate() {
            let whole = if ["tok_embeddings.weight", "norm.weight", "output.weight"].contains(name) {
                (*name).to_owned()
            } else {
                format!("layers.{layer}.{name}")
            };
            assert_eq!(&checkpoint.array(&whole).expect(&whole).to_vec().unwrap(), values, "{whole}");
            count += 1;
        }
    }
    assert_eq!(checkpoint.arrays().count(), count);
}

const SHAPES: [Shape; 4] = [
    SHAPE,
    Shape { tied: false, ..SHAPE },
    Shape { kv_heads: 3, ..SHAPE },
    Shape { dim: 8, hidden: 6, layers: 1, heads: 2, kv_heads: 2, vocab: 5, seq_len: 1, tied: false },
];

#[test]
fn made_files_give_the_values_that_were_put_in() {
    for shape in SHAPES {
        let weights = shape.weights();
        for bytes in [shape.v0(Some(10_000.0)), shape.v0(None), shape.v1()] {
            let checkpoint = load(bytes).unwrap();
            same_values(&checkpoint, &weights);
            let config = source(&checkpoint).config;
            let sizes =
                [config.dim, config.hidden_dim, config.n_layers, config.n_heads, config.n_kv_heads, config.vocab_size, config.max_seq_len];
            let expected = [shape.dim, shape.hidden, shape.layers, shape.heads, shape.kv_heads, shape.vocab, shape.seq_len];
            assert_eq!(sizes.map(|size| size as usize), expected);
            assert_eq!(config.head_dim as usize, shape.dim / shape.heads);
            assert_eq!(config.tied_embeddings, shape.tied);
        }
        for group in [2, 4] {
            let (bytes, values) = shape.v2(group);
            same_values(&load(bytes).unwrap(), &values);
        }
    }
}

#[test]
fn what_the_format_fixes_is_recorded_as_such() {
    let checkpoint = load(SHAPE.v0(Some(10_000.0))).unwrap();
    let source = source(&checkpoint);
    let config = source.config;
    assert_eq!(
        (config.norm_eps, config.rope_layout, config.attention_factor, config.qkv_bias, config.sliding_window),
        (1e-5, RopeLayout::Interleaved, 1.0, false, 0)
    );
    assert_eq!(source.rope_theta, 10_000.0);
    assert_eq!(source.inv_freq, [1.0, 0.01]);
    assert_eq!(source.fixed.len(), 6);
    assert!(source.fixed.iter().all(|fixed| fixed.why == "fixed by llama2.c"));
    assert_eq!(checkpoint.provenance.file_name, "made.bin");
    assert_eq!(checkpoint.provenance.importer, "llama2.c v0");
    assert_eq!(checkpoint.provenance.source_bytes, SHAPE.v0(Some(10_000.0)).len() as u64);
    assert!(checkpoint.tokenizer.is_none());
}

#[test]
fn arrays_come_in_the_order_of_the_configuration() {
    for bytes in [SHAPE.untied().v0(None), SHAPE.untied().v1(), SHAPE.untied().v2(4).0] {
        let checkpoint = load(bytes).unwrap();
        let config = source(&checkpoint).config;
        for (number, array) in (0..).zip(checkpoint.arrays()) {
            let spec = config.tensor(number).unwrap();
            assert_eq!((array.name(), array.dims()), (spec.to_string().as_str(), spec.dims));
        }
        assert_eq!(checkpoint.arrays().count() as u32, config.weight_tensors());
    }
}

#[test]
fn values_may_be_read_in_pieces_of_any_size() {
    for bytes in [SHAPE.v1(), SHAPE.v2(4).0, SHAPE.v2(12).0] {
        let checkpoint = load(bytes).unwrap();
        let array = checkpoint.array("layers.1.feed_forward.w2.weight").unwrap();
        let whole = array.to_vec().unwrap();
        assert_eq!(whole.len() as u64, array.count());
        for piece in [1, 3, 5, 7, 64, 1000] {
            let mut values = vec![f32::NAN; piece];
            for start in 0..whole.len() + 2 {
                let n = array.read(start as u64, &mut values).unwrap();
                assert_eq!(n, piece.min(whole.len().saturating_sub(start)));
                assert_eq!(values[..n], whole[start.min(whole.len())..][..n]);
            }
            let mut joined = Vec::new();
            array
                .for_each_chunk(piece, |start, chunk| {
                    assert_eq!(start, joined.len() as u64);
                    joined.extend_from_slice(chunk);
                    Ok::<(), Error>(())
                })
                .unwrap();
            assert_eq!(joined, whole);
        }
        assert_eq!(array.read(u64::MAX, &mut [0.0]).unwrap(), 0);
        assert_eq!(array.read(0, &mut []).unwrap(), 0);
    }
}

#[test]
fn tables_of_another_theta_are_refused_and_named() {
    for (theta, name) in [
        (500_000.0, "rope theta of 500000"),
        (10_001.0, "rope theta of 10001"),
        (1_000_000.0, "rope theta of 1000000"),
        (9_990.0, "rope theta of 9990"),
    ] {
        let shape = Shape { dim: 64, heads: 2, kv_heads: 1, seq_len: 3000, ..SHAPE };
        let error = load(shape.v0(Some(theta))).unwrap_err();
        assert_eq!(error.class(), Class::Mismatch);
        assert!(error.to_string().contains(name), "{error}");
        load(shape.v0(Some(10_000.0))).unwrap();
    }
    let mut bytes = SHAPE.v0(Some(10_000.0));
    let tables = bytes.len() - SHAPE.tables(1.0).len();
    for (place, value) in [(0, 0.5f32), (4, f32::NAN), (8 * 9 + 8, 0.5), (8 * 9 + 8 * 8 + 4, -1.0)] {
        let kept = bytes.clone();
        bytes[tables + place..][..4].copy_from_slice(&value.to_le_bytes());
        let error = load(std::mem::replace(&mut bytes, kept)).unwrap_err().to_string();
        assert!(error.contains("cosines and sines"), "{error}");
    }
}

#[test]
fn a_classifier_that_is_the_tables_under_a_lost_sign_is_refused() {
    // Tables and classifier of one size: vocab * dim = seq_len * head_dim.
    let shape = Shape { dim: 8, heads: 2, kv_heads: 2, vocab: 4, seq_len: 8, ..SHAPE };
    let mut bytes = shape.v0(Some(10_000.0));
    assert_eq!(bytes.len(), shape.untied().v0(None).len());
    load(shape.untied().v0(None)).unwrap();
    bytes[20..24].copy_from_slice(&(-4i32).to_le_bytes());
    let error = load(bytes).unwrap_err();
    assert_eq!(error.class(), Class::Mismatch);
    let mut bytes = shape.untied().v0(None);
    bytes[20..24].copy_from_slice(&4i32.to_le_bytes());
    assert_eq!(load(bytes).unwrap_err().class(), Class::Mismatch);
}

#[test]
fn a_scale_that_is_no_number_is_refused_where_it_stands() {
    let mut bytes = SHAPE.v2(4).0;
    // The last scale of the file is that of the last group of layer 1's w3.
    let place = bytes.len() - 4;
    bytes[place..].copy_from_slice(&f32::INFINITY.to_le_bytes());
    let checkpoint = load(bytes).unwrap();
    let error = checkpoint.array("layers.1.feed_forward.w3.weight").unwrap().to_vec().unwrap_err();
    assert_eq!(error.class(), Class::Damaged);
    assert_eq!(error.to_string(), format!("made.bin: scale 59 of layers.1.feed_forward.w3.weight is inf (at byte {place})"));
    checkpoint.array("layers.0.feed_forward.w3.weight").unwrap().to_vec().unwrap();
}

#[test]
fn group_sizes_that_do_not_divide_are_refused() {
    for (group, says) in [(5, "does not divide"), (0, "not a positive"), (-4, "not a positive"), (i32::MAX, "does not divide")] {
        let mut bytes = SHAPE.v2(4).0;
        bytes[37..41].copy_from_slice(&group.to_le_bytes());
        let error = load(bytes).unwrap_err().to_string();
        assert!(error.contains(says), "{group}: {error}");
    }
}

#[test]
fn versions_one_and_two_refuse_headers_that_cannot_be() {
    let edited = |place: usize, byte: u8| {
        let mut bytes = SHAPE.v1();
        bytes[place] = byte;
        load(bytes).unwrap_err().to_string()
    };
    assert!(edited(4, 3).contains("version 3; versions 0, 1 and 2 are read"));
    assert!(edited(7, 0x80).contains("version -2147483647"));
    assert!(edited(36, 2).contains("shared classifier is 2"));
    for place in [37, 41, 100, 255] {
        assert!(edited(place, 7).contains(&format!("0x07; it must be 0 (at byte {place})")));
    }
    let mut bytes = SHAPE.v1();
    bytes[28..32].copy_from_slice(&(-7i32).to_le_bytes());
    assert!(load(bytes).unwrap_err().to_string().contains("vocab_size is -7"));
    // The flag says that there is a classifier of its own, and there is none; and the other way round.
    for (shape, flag) in [(SHAPE, 0), (SHAPE.untied(), 1)] {
        let mut bytes = shape.v1();
        bytes[36] = flag;
        assert_eq!(load(bytes).unwrap_err().class(), Class::Mismatch);
    }
}

const SHARED: [(&str, &str); 4] = [
    ("stories260K/stories260K.bin", "stories260K-derived/stories260K_v1.bin"),
    ("llama2c-made/mha_tied/model_v0.bin", "llama2c-made/mha_tied/model_v1.bin"),
    ("llama2c-made/gqa_untied/model_v0.bin", "llama2c-made/gqa_untied/model_v1.bin"),
    ("llama2c-made/mqa_odd/model_v0.bin", "llama2c-made/mqa_odd/model_v1.bin"),
];

#[test]
fn shared_files_give_the_same_bits_in_versions_zero_and_one() {
    for (v0, v1) in SHARED {
        let (Some(v0), Some(v1)) = (data(v0), data(v1)) else { return };
        let (v0, v1) = (open(&v0).unwrap(), open(&v1).unwrap());
        assert_eq!(source(&v0), source(&v1));
        assert_eq!(v0.arrays().count(), v1.arrays().count());
        for (a, b) in v0.arrays().zip(v1.arrays()) {
            assert_eq!((a.name(), a.dims()), (b.name(), b.dims()));
            let bits = |values: Vec<f32>| values.into_iter().map(f32::to_bits).collect::<Vec<_>>();
            assert_eq!(bits(a.to_vec().unwrap()), bits(b.to_vec().unwrap()), "{}", a.name());
        }
    }
}

#[test]
fn stories260k_has_the_known_shape() {
    let Some(path) = data("stories260K/stories260K.bin") else { return };
    let checkpoint = open(&path).unwrap();
    let config = source(&checkpoint).config;
    assert_eq!((config.dim, config.hidden_dim, config.n_layers, config.n_heads, config.n_kv_heads), (64, 172, 5, 8, 4));
    assert_eq!((config.vocab_size, config.max_seq_len, config.head_dim, config.tied_embeddings), (512, 512, 8, true));
    assert_eq!(checkpoint.arrays().map(|array| array.count()).sum::<u64>(), 260_032);
    assert_eq!(checkpoint.provenance.source_bytes, 1_056_540);
}

/// Version 2 once more, by walking the file from front to back with nothing but the description: names of one layer after the other.
fn transcribed(bytes: &[u8]) -> Vec<(String, Vec<f32>)> {
    let int = |at: usize| i32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    let float = |at: usize| f32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let (dim, hidden, layers, heads, kv_heads, vocab) = (int(8), int(12), int(16), int(20), int(24), int(28));
    let (shared, group) = (bytes[36] == 1, int(37));
    let kv = dim / heads * kv_heads;
    let mut at = 256;
    let mut found = Vec::new();
    for (name, times) in [("attention_norm", layers), ("ffn_norm", layers), ("norm", 1)] {
        for layer in 0..times {
            let whole = if name == "norm" { "norm.weight".to_owned() } else { format!("layers.{layer}.{name}.weight") };
            found.push((whole, (0..dim).map(|i| float(at + 4 * i)).collect()));
            at += 4 * dim;
        }
    }
    let inner = [("wq", dim), ("wk", kv), ("wv", kv), ("wo", dim)].map(|(name, rows)| (format!("attention.{name}"), rows * dim));
    let outer = ["w1", "w2", "w3"].map(|name| (format!("feed_forward.{name}"), hidden * dim));
    let mut arrays = vec![("tok_embeddings.weight".to_owned(), vocab * dim)];
    for (name, size) in inner.into_iter().chain(outer) {
        arrays.extend((0..layers).map(|layer| (format!("layers.{layer}.{name}.weight"), size)));
    }
    if !shared {
        arrays.push(("output.weight".to_owned(), vocab * dim));
    }
    for (name, size) in arrays {
        let scales = at + size;
        found.push((name, (0..size).map(|i| f32::from(bytes[at + i] as i8) * float(scales + 4 * (i / group))).collect()));
        at = scales + 4 * (size / group);
    }
    assert_eq!(at, bytes.len());
    found
}

#[test]
fn version_two_equals_an_independent_reading_and_lies_within_half_a_step_of_version_zero() {
    let files = [
        ("stories260K-derived/stories260K_v2_q80_gs64.bin", SHARED[0].0),
        ("stories260K-derived/stories260K_v2_q80_gs4.bin", SHARED[0].0),
        ("llama2c-made/mha_tied/model_v2_q80.bin", SHARED[1].0),
        ("llama2c-made/mha_tied/model_v2_q80_gs16.bin", SHARED[1].0),
        ("llama2c-made/gqa_untied/model_v2_q80.bin", SHARED[2].0),
        ("llama2c-made/mqa_odd/model_v2_q80.bin", SHARED[3].0),
        ("llama2c-made/mqa_odd/model_v2_q80_gs4.bin", SHARED[3].0),
    ];
    let mut straddling = 0;
    for (v2, v0) in files {
        let (Some(v2), Some(v0)) = (data(v2), data(v0)) else { return };
        let (quantised, exact) = (open(&v2).unwrap(), open(&v0).unwrap());
        let transcribed = transcribed(&std::fs::read(&v2).unwrap());
        assert_eq!(quantised.arrays().count(), transcribed.len());
        for (name, values) in transcribed {
            let array = quantised.array(&name).unwrap();
            assert_eq!(array.to_vec().unwrap(), values, "{name}");
            let exact = exact.array(&name).unwrap().to_vec().unwrap();
            let Some(Encoding::Q80 { group, .. }) = array.encoding() else {
                assert_eq!(values, exact, "{name}");
                continue;
            };
            straddling += usize::from(array.dims().cols() % group != 0);
            for (values, exact) in values.chunks(group as usize).zip(exact.chunks(group as usize)) {
                let step = exact.iter().fold(0f32, |most, value| most.max(value.abs())) / 127.0;
                assert!(values.iter().zip(exact).all(|(a, b)| (a - b).abs() <= 0.501 * step), "{name}");
            }
        }
    }
    // w2 of five layers (172 in groups of 64) and of two (100 in groups of 16).
    assert_eq!(straddling, 7);
}

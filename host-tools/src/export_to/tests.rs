//! Other formats: round trips to the bit, and what cannot be said refused by name.

use super::{Destination, Report, run};
use crate::checkpoint::{self, Checkpoint, Config};
use crate::decode::Loaded;
use crate::error::{Class, Error};
use crate::export::tests::{SMALL, Shape, data, export, open, options, tokenizer};
use crate::export::{Format, Options};
use dmexp_format::DType;
use dmexp_format::arch::llama::{LlamaConfig, RopeLayout};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use tempfile::TempDir;

/// The formats that can say a Llama.
const LLAMA: [Destination; 2] = [Destination::Safetensors, Destination::Llama2cV0];

fn to(path: &Path, format: Destination, out: &Path) -> Result<Report, Error> {
    run(path, format, out, &AtomicBool::new(false), &mut |_, _| ())
}

fn payload(path: &Path) -> Vec<u8> {
    let loaded = Loaded::open(path).unwrap();
    loaded.file().unwrap().payload().to_vec()
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn changed(change: impl Fn(&mut LlamaConfig, &mut Vec<f32>)) -> Checkpoint {
    let mut made = open(SMALL.random());
    let Config::Llama(source) = &mut made.config else { unreachable!() };
    change(&mut source.config, &mut source.inv_freq);
    made
}

fn exported(folder: &TempDir, made: &Checkpoint, dtype: DType, format: Format) -> PathBuf {
    export(made, &Options { golden: false, ..options(folder, dtype, format) }).unwrap().out
}

#[test]
fn every_dtype_and_shape_comes_back_bit_for_bit() {
    let untied = Shape { tied: false, ..SMALL };
    for (shape, dtype, format) in [SMALL, untied].into_iter().flat_map(|shape| {
        [DType::F32, DType::F16, DType::Bf16]
            .into_iter()
            .flat_map(move |dtype| [Format::V1, Format::V2].map(|format| (shape, dtype, format)))
    }) {
        let folder = TempDir::new().unwrap();
        let first = exported(&folder, &open(shape.random()), dtype, format);
        let expected = payload(&first);
        for (destination, name) in [(Destination::Safetensors, "model"), (Destination::Llama2cV0, "model.bin")] {
            let out = folder.path().join(name);
            let report = to(&first, destination, &out).unwrap();
            let read = checkpoint::open(&out).unwrap();
            assert_eq!(read.provenance.source_bytes, report.bytes, "{report:?}");
            assert_eq!(read.arrays().count() as u64, report.tensors);
            let again = TempDir::new().unwrap();
            let second = exported(&again, &read, dtype, format);
            assert!(payload(&second) == expected, "{destination:?} {dtype} {format:?}");
            assert_eq!(
                report.notes.iter().any(|note| note.contains("widened")),
                destination == Destination::Llama2cV0 && dtype != DType::F32
            );
        }
    }
}

#[test]
fn reference_models_come_back_bit_for_bit() {
    for name in ["stories260K/stories260K.bin", "llama2c-made/gqa_untied/model_v0.bin", "llama2c-made/mqa_odd/model_v0.bin"] {
        let Some(source) = data(name) else { return };
        let folder = TempDir::new().unwrap();
        let first = exported(&folder, &checkpoint::open(&source).unwrap(), DType::F32, Format::V2);
        let v0 = folder.path().join("v0.bin");
        to(&first, Destination::Llama2cV0, &v0).unwrap();
        let (written, original) = (fs::read(&v0).unwrap(), fs::read(&source).unwrap());
        assert_eq!(written.len(), original.len());
        let differing = written.iter().zip(&original).filter(|(a, b)| a != b).count();
        println!("{name}: {} bytes, {differing} of them (in the tables that nobody reads) not as in the original", written.len());
        let hf = folder.path().join("hf");
        to(&first, Destination::Safetensors, &hf).unwrap();
        for out in [v0, hf] {
            let again = TempDir::new().unwrap();
            assert!(payload(&exported(&again, &checkpoint::open(&out).unwrap(), DType::F32, Format::V2)) == payload(&first));
        }
    }
}

#[test]
fn what_a_format_cannot_say_is_refused_by_name() {
    let theta = |theta: f64| move |_: &mut LlamaConfig, inv_freq: &mut Vec<f32>| *inv_freq = checkpoint::rope::inv_freq(theta, 4);
    let cases: [(Checkpoint, &str); 4] = [
        (changed(|config, _| config.norm_eps = 1e-6), "norm_eps of 0.000001"),
        (changed(|config, _| config.sliding_window = 8), "sliding window of 8"),
        (changed(theta(500_000.0)), "rope theta 10000"),
        (changed(|config, _| config.attention_factor = 1.5), "attention factor 1.5"),
    ];
    for (made, part) in cases {
        let folder = TempDir::new().unwrap();
        let file = exported(&folder, &made, DType::F32, Format::V2);
        let before = names(folder.path());
        let error = to(&file, Destination::Llama2cV0, &folder.path().join("x.bin")).unwrap_err();
        assert_eq!(error.class(), Class::Request);
        assert!(error.to_string().contains(part) && error.to_string().contains("llama2c-v0 cannot say"), "{error}");
        assert_eq!(names(folder.path()), before);
    }
    let folder = TempDir::new().unwrap();
    let quantised = exported(&folder, &open(SMALL.random()), DType::Q8, Format::V2);
    let odd = TempDir::new().unwrap();
    let odd_file = exported(&odd, &changed(|_, inv_freq| inv_freq[1] = 0.123), DType::F32, Format::V2);
    for destination in LLAMA {
        let out = folder.path().join("out");
        let error = to(&quantised, destination, &out).unwrap_err();
        assert!(error.class() == Class::Request && error.to_string().contains("tok_embeddings.weight as q8"), "{error}");
        let error = to(&odd_file, destination, &out).unwrap_err();
        assert!(error.class() == Class::Request && error.to_string().contains("rotation frequencies"), "{error}");
        assert!(!out.exists());
    }
    for destination in [Destination::RustyMl, Destination::RustyMlV3] {
        let out = folder.path().join("out");
        let error = to(&odd_file, destination, &out).unwrap_err();
        let what = format!("is of the architecture \"llama\", which {} has no form for", destination.name());
        assert!(error.class() == Class::Request && error.to_string().contains(&what) && !out.exists(), "{error}");
    }
    assert!(Destination::from_name("gguf").unwrap_err().to_string().contains("safetensors, llama2c-v0"));
}

#[test]
fn a_folder_says_what_a_file_of_llama2c_cannot() {
    for made in [
        changed(|config, _| config.norm_eps = 1e-6),
        changed(|config, _| config.sliding_window = 8),
        changed(|config, _| config.rope_layout = RopeLayout::Half),
    ] {
        let folder = TempDir::new().unwrap();
        let first = exported(&folder, &made, DType::F32, Format::V2);
        let out = folder.path().join("hf");
        to(&first, Destination::Safetensors, &out).unwrap();
        let read = checkpoint::open(&out).unwrap();
        let (Config::Llama(found), Config::Llama(expected)) = (&read.config, &made.config) else { unreachable!() };
        assert_eq!(LlamaConfig { rope_layout: expected.config.rope_layout, ..found.config }, expected.config);
    }
}

#[test]
fn the_layout_of_rotated_pairs_is_changed_where_it_must_be() {
    let folder = TempDir::new().unwrap();
    let interleaved = exported(&folder, &open(SMALL.random()), DType::F32, Format::V2);
    let half = TempDir::new().unwrap();
    let half = exported(&half, &changed(|config, _| config.rope_layout = RopeLayout::Half), DType::F32, Format::V2);
    let (a, b) = (folder.path().join("a.bin"), folder.path().join("b.bin"));
    to(&interleaved, Destination::Llama2cV0, &a).unwrap();
    to(&half, Destination::Llama2cV0, &b).unwrap();
    let (a, b) = (checkpoint::open(&a).unwrap(), checkpoint::open(&b).unwrap());
    for (a, b) in a.arrays().zip(b.arrays()) {
        let (x, y) = (a.to_vec().unwrap(), b.to_vec().unwrap());
        if !["wq", "wk"].iter().any(|name| a.name().contains(name)) {
            assert!(x == y, "{}", a.name());
            continue;
        }
        // Heads of 4 rows of 16: row 1 of a head was row 2, and the other way round.
        for (head, (x, y)) in x.chunks(64).zip(y.chunks(64)).enumerate() {
            for (row, source) in [0, 2, 1, 3].into_iter().enumerate() {
                assert!(y[16 * row..16 * (row + 1)] == x[16 * source..16 * (source + 1)], "{} head {head} row {row}", a.name());
            }
        }
    }
}

#[test]
fn stopping_and_failing_leave_nothing_and_tokenizers_are_mentioned() {
    let folder = TempDir::new().unwrap();
    let mut made = open(SMALL.random());
    made.tokenizer = Some(tokenizer(300));
    let file = exported(&folder, &made, DType::Bf16, Format::V2);
    let before = names(folder.path());
    for destination in LLAMA {
        let out = folder.path().join("out");
        let mut stopped = 0;
        loop {
            let (cancel, mut calls) = (AtomicBool::new(false), 0);
            let result = run(&file, destination, &out, &cancel, &mut |_, _| {
                calls += 1;
                cancel.store(calls > stopped, Ordering::Relaxed);
            });
            match result {
                Err(error) => assert_eq!(error.class(), Class::Cancelled),
                Ok(report) => {
                    assert!(report.notes.iter().any(|note| note.contains("tokenizer")));
                    break;
                }
            }
            assert_eq!(names(folder.path()), before);
            stopped += 1;
        }
        assert!(stopped > 10, "{stopped}");
        if out.is_dir() { fs::remove_dir_all(&out).unwrap() } else { fs::remove_file(&out).unwrap() }
    }
    // Damage is never passed on.
    let mut bytes = fs::read(&file).unwrap();
    let last = bytes.len() - 400;
    bytes[last] ^= 1;
    let damaged = folder.path().join("damaged.dmexp");
    fs::write(&damaged, bytes).unwrap();
    for destination in LLAMA {
        let error = to(&damaged, destination, &folder.path().join("out")).unwrap_err();
        assert_eq!(error.class(), Class::Damaged, "{error}");
    }
    let error = to(&file, Destination::Llama2cV0, &file).unwrap_err();
    assert!(error.to_string().contains("is what is read"), "{error}");
}

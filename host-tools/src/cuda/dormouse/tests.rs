//! dormouse models by the real calls of the driver against its stand-in: the bits of the runtime, and what dormouse's own files are to give.

use super::super::tests::driver;
use super::super::{Cuda, CudaError, Options};
use crate::checkpoint;
use crate::decode::{Cpu, CpuOptions, Decoder, DormouseOptions, Loaded};
use crate::export::tests::{bits, data, export, options};
use crate::export::{Format, Options as Exported};
use dmexp::models::dormouse::Factors;
use dmexp::sampler::Settings;
use dmexp::{Sampler, Session, Step};
use dmexp_format::DType;
use dmexp_format::layout::Decoding;
use serde_json::Value;
use std::path::Path;
use tempfile::TempDir;

/// The same of a model that runs here and of one that runs on the device.
fn compare<R: PartialEq>(ways: &[bool], loaded: &Loaded, dormouse: &DormouseOptions, what: &str, act: impl Fn(&mut Session<'_>) -> R) {
    let mut cpu = Cpu::with_dormouse(loaded, &CpuOptions::default(), dormouse, 1).unwrap();
    let expected = act(&mut cpu.session(Sampler::greedy()).unwrap());
    for graphs in ways.iter().copied() {
        let gpu = Cuda::new(cpu.model(), &Options { graphs, ..Options::default() }).unwrap();
        let mut elsewhere = Cpu::elsewhere(loaded, &CpuOptions::default(), dormouse, |_| Ok(&gpu)).unwrap();
        let found = act(&mut elsewhere.session(Sampler::greedy()).unwrap());
        assert!(found == expected, "{what}, graphs: {graphs}");
    }
}

fn file(name: &str) -> Option<std::path::PathBuf> {
    data(&format!("dormouse/{name}"))
}

/// The text that a file's reference was computed for, and its last logits.
fn reference(path: &Path) -> (Vec<u32>, Vec<f64>) {
    let read: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let numbers = |key: &str| read[key].as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect::<Vec<_>>();
    (numbers("input").into_iter().map(|token| token as u32).collect(), numbers("last_logits"))
}

/// The bits of the logits after every token: some one by one, the others as they come.
fn logits(session: &mut Session<'_>, tokens: &[u32]) -> Vec<u32> {
    let mut found = Vec::new();
    for token in &tokens[..3] {
        found.extend(bits(&[session.feed(&[*token]).unwrap().to_vec()]));
    }
    let mut each = |position, row: &[f32]| {
        found.push(position);
        found.extend(row.iter().map(|logit| logit.to_bits()));
        Ok(())
    };
    Decoder::logits(session, &tokens[3..], &mut each).unwrap();
    found
}

#[test]
fn files_of_dormouse_give_the_bits_of_the_runtime_and_the_logits_stated_beside_them() {
    if !driver() {
        return;
    }
    for name in ["default", "nokda", "dense", "mor"] {
        let (Some(path), Some(stated)) = (file(&format!("{name}.f32.dmexp")), file(&format!("{name}.json"))) else { return };
        let loaded = Loaded::open(&path).unwrap();
        let (text, last) = reference(&stated);
        compare(&[true], &loaded, &DormouseOptions::default(), name, |session| {
            let found = session.feed(&text).unwrap().to_vec();
            let off = found.iter().zip(&last).map(|(found, stated)| (f64::from(*found) - stated).abs()).fold(0.0, f64::max);
            assert!(found.len() == last.len() && off <= 1e-5, "{name}: off by {off:e}");
            bits(&[found])
        });
        compare(&[true], &loaded, &DormouseOptions::default(), name, |session| logits(session, &text[..9]));
    }
}

#[test]
fn exports_in_every_type_and_every_way_to_take_factors_have_the_same_bits() {
    let Some(path) = file("default.f32.dmexp") else { return };
    if !driver() {
        return;
    }
    let text: Vec<u32> = b"once upon a".iter().map(|byte| u32::from(*byte)).collect();
    for dtype in [DType::F32, DType::F16, DType::Bf16, DType::Q8, DType::Q4, DType::T2] {
        let folder = TempDir::new().unwrap();
        let report = export(&checkpoint::open(&path).unwrap(), &Exported { ..options(&folder, dtype, Format::V2) }).unwrap();
        let loaded = Loaded::open(&report.out).unwrap();
        compare(&[true], &loaded, &DormouseOptions::default(), &format!("{dtype}"), |session| logits(session, &text[..6]));
    }
    let loaded = Loaded::open(&path).unwrap();
    for factors in [Factors::Raw, Factors::Fp8] {
        let dormouse = DormouseOptions { factors: Some(factors), kda_scale: Some(0.7), ..DormouseOptions::default() };
        compare(&[false], &loaded, &dormouse, &format!("{factors:?}"), |session| logits(session, &text[..6]));
    }
    let fast = DormouseOptions { decoding: Some(Decoding::Fast), ..DormouseOptions::default() };
    compare(&[true], &loaded, &fast, "fast", |session| logits(session, &text));
}

/// What a session can be asked: one by one, at once, texts that are continued, begun anew, and layer by layer.
fn everything(session: &mut Session<'_>) -> Vec<u32> {
    let text: Vec<u32> = b"a text of bytes".iter().map(|byte| u32::from(*byte)).collect();
    let mut found = logits(session, &text[..7]);
    let drawn = Settings { temperature: 0.9, top_p: 0.9, seed: 7, ..Settings::GREEDY };
    for settings in [Settings::GREEDY, drawn] {
        session.reset();
        session.set_sampler(Sampler::new(settings).unwrap());
        session.push_tokens(&text).unwrap();
        session.feed_blocks();
        let mut new = 0;
        while new < 9 {
            match session.step().unwrap() {
                // Here a prompt is not fed in blocks.
                Step::Prompt { .. } => continue,
                Step::Token { token, .. } => found.push(token),
                other => panic!("{other:?}"),
            }
            new += 1;
            if new == 6 {
                session.replace_last(42).unwrap();
            }
        }
    }
    session.reset();
    session.set_sampler(Sampler::greedy());
    session.push_tokens(&text[..3]).unwrap();
    found.extend(bits(&[Session::logits(session).unwrap().to_vec()]));
    session.push_tokens(&text[3..4]).unwrap();
    for _ in 0..=session.model().network().n_layers() {
        session.advance().unwrap();
        found.extend(bits(&[session.residual().to_vec()]));
    }
    found.extend(bits(&[Session::logits(session).unwrap().to_vec()]));
    // Begun layer by layer, and left.
    session.push_tokens(&text[4..5]).unwrap();
    for _ in 0..3 {
        session.advance().unwrap();
    }
    session.reset();
    session.push_tokens(&text[..5]).unwrap();
    found.extend(bits(&[Session::logits(session).unwrap().to_vec()]));
    found
}

#[test]
fn whatever_a_session_is_asked_a_gpu_answers_with_the_same_bits() {
    let Some(path) = file("default.f32.dmexp") else { return };
    if driver() {
        compare(&[true, false], &Loaded::open(&path).unwrap(), &DormouseOptions::default(), "everything", everything);
    }
}

#[test]
fn what_the_kernels_do_not_have_is_refused_by_name() {
    if !driver() {
        return;
    }
    for (name, what) in [("gr", "use_gr"), ("mhc", "use_mhc"), ("plain", "use_plain_attn")] {
        let Some(path) = file(&format!("{name}.f32.dmexp")) else { return };
        let loaded = Loaded::open(&path).unwrap();
        let error = Cuda::new(&loaded.model().unwrap(), &Options::default()).unwrap_err();
        assert_eq!(error.to_string(), format!("the kernels do not have {what}"));
    }
    let Some(path) = file("default.f32.dmexp") else { return };
    let loaded = Loaded::open(&path).unwrap();
    let error = Cuda::new(&loaded.model().unwrap().with_decoding(Decoding::Full), &Options::default()).unwrap_err();
    assert_eq!(error, CudaError::Unsupported("--decoding full and --convention full"));
}

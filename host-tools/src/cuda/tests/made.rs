//! Models that no exporter makes: whatever the format has of a Llama, with graphs and without, and logits that are no numbers. The models are those of the kernels' own tests.

#[path = "../../../../kernels/tests/cpu/models.rs"]
#[allow(dead_code, reason = "the kernels' tests have a use for the rest")]
mod models;

use super::{KV, driver, logits};
use crate::cuda::{Cuda, CudaError, Options};
use crate::decode::tests::batch;
use crate::decode::{CpuOptions, Loaded};
use crate::export::Format;
use crate::export::tests::{export, open, options};
use dmexp::format::Error as FormatError;
use dmexp::models::llama::Llama;
use dmexp::tokenizer::Tokenizer;
use dmexp::{Batch, Fed, Model, Part, Sampler, Session, Step};
use dmexp_format::arch::llama::{LlamaConfig, RopeLayout, TensorKind};
use dmexp_format::{DType, KvDType, TensorView};
use models::{Kind, Made, ODD};
use std::sync::Mutex;
use tempfile::TempDir;

/// The same of `made` on this processor and, with graphs and without, on the device.
fn compare<R: PartialEq>(made: &Made, (context, kv): (u32, KvDType), what: &str, act: impl Fn(&mut Session<'_>) -> R) {
    let views: Vec<TensorView<'_>> = made.views();
    let model = Model::from_parts(Llama::from_table(made.config, &views), Tokenizer::NONE, context, kv).with_block(8);
    let with = |model: &Model<'_>| {
        let mut memory = vec![0u32; model.arena_len().unwrap().div_ceil(4)];
        act(&mut Session::new(model, memory.as_mut_slice(), Sampler::greedy()).unwrap().ignoring_end_of_text(true))
    };
    let expected = with(&model);
    for graphs in [true, false] {
        let gpu = Cuda::new(&model, &Options { graphs, ..Options::default() }).unwrap();
        assert!(with(&model.with_accelerator(&gpu)) == expected, "{what}, graphs: {graphs}");
    }
}

#[test]
fn whatever_the_format_has_of_a_llama_gives_the_same_bits() {
    if !driver() {
        return;
    }
    let kinds: [Kind; 9] = [
        (DType::T2, 0),
        (DType::F32, 0),
        (DType::Q8, 8),
        (DType::T2, 0),
        (DType::F16, 0),
        (DType::Q4, 16),
        (DType::T2, 0),
        (DType::Bf16, 0),
        (DType::Q8, 0),
    ];
    // Every type of keys and values with ternary weights; biases, halves, windows, factors and classifiers in turn.
    for (n, kind) in kinds.into_iter().enumerate() {
        let kv = KV[(n + n / 3) % 3];
        let config = LlamaConfig {
            rope_layout: if n % 2 == 0 { RopeLayout::Half } else { RopeLayout::Interleaved },
            qkv_bias: n % 3 != 1,
            tied_embeddings: n % 4 != 0,
            sliding_window: if n % 2 == 0 { 5 } else { 0 },
            attention_factor: if n % 3 == 0 { 1.25 } else { 1.0 },
            ..ODD
        };
        let made = Made::new(config, |_, _| kind);
        let tokens = made.tokens(14);
        compare(&made, (16, kv), &format!("{kind:?}, {kv:?}, {config:?}"), |session| logits(session, &tokens));
    }
}

#[test]
fn a_text_goes_on_over_the_place_where_attention_is_spread() {
    if !driver() {
        return;
    }
    let config = LlamaConfig { dim: 12, hidden_dim: 9, n_layers: 1, n_heads: 2, n_kv_heads: 1, vocab_size: 17, max_seq_len: 560, ..ODD };
    for kv in KV {
        let made = Made::new(config, |_, _| (DType::F32, 0));
        let tokens = made.tokens(530);
        compare(&made, (560, kv), &format!("{kv:?}"), |session| {
            // Chosen on the device ahead of what is asked for, over position 512.
            session.push_tokens(&tokens[..500]).unwrap();
            session.feed_blocks();
            let mut found: Vec<u32> = Vec::new();
            for _ in 0..24 {
                let Step::Token { token, .. } = session.step().unwrap() else { panic!("a token") };
                found.push(token);
            }
            // At once over it, and one by one behind it.
            session.truncate(505);
            found.extend(logits(session, &tokens[505..525]));
            found.extend(one_by_one(session, &tokens[525..]));
            found
        });
    }
}

/// The bits of the logits after the last of `tokens`, fed one by one.
fn one_by_one(session: &mut Session<'_>, tokens: &[u32]) -> Vec<u32> {
    let mut found = Vec::new();
    for token in tokens {
        session.push_tokens(&[*token]).unwrap();
        found = session.logits().unwrap().iter().map(|logit| logit.to_bits()).collect();
    }
    found
}

#[test]
fn logits_that_are_no_numbers_are_the_same_error_in_every_way_of_asking() {
    if !driver() {
        return;
    }
    let config = LlamaConfig { tied_embeddings: false, ..ODD };
    let made = || Made::new(config, |_, _| (DType::F32, 0));
    // Of a norm, of the classifier, and of values that do not fit f16.
    for (made, kv) in [
        (made().filled(TensorKind::Norm, f32::INFINITY), KvDType::F32),
        (made().filled(TensorKind::Output, f32::NAN), KvDType::Q8),
        (made().filled(TensorKind::Wv, 1e30), KvDType::F16),
    ] {
        let tokens = made.tokens(11);
        compare(&made, (12, kv), &format!("{kv:?}"), |session| {
            let mut found: Vec<Option<FormatError>> = Vec::new();
            for alone in [1, 11] {
                session.reset();
                session.push_tokens(&tokens[..alone]).unwrap();
                found.push(session.logits().err());
                session.reset();
                session.push_tokens(&tokens[..alone]).unwrap();
                found.push(session.each_logits(|_, _| Ok::<(), FormatError>(())).err());
                session.reset();
                session.push_tokens(&tokens[..alone]).unwrap();
                session.feed_blocks();
                found.push(session.step().err());
            }
            assert!(found.iter().all(|error| matches!(error, Some(FormatError::NonFiniteLogits { .. }))), "{found:?}");
            found
        });
    }
}

#[test]
fn heads_that_are_too_wide_for_a_block_are_refused_by_name() {
    if !driver() {
        return;
    }
    let made = Made::new(LlamaConfig { n_heads: 1, n_kv_heads: 1, head_dim: 1002, n_layers: 1, ..ODD }, |_, _| (DType::F32, 0));
    let views = made.views();
    let model = Model::from_parts(Llama::from_table(made.config, &views), Tokenizer::NONE, 4, KvDType::F32);
    let error = Cuda::new(&model, &Options::default()).unwrap_err();
    assert!(matches!(error, CudaError::Refused(_)) && error.to_string().contains("heads are too wide"), "{error}");
}

#[test]
fn sixteen_texts_at_once_on_a_device_have_the_bits_of_each_alone() {
    if !driver() {
        return;
    }
    let folder = TempDir::new().unwrap();
    let loaded = Loaded::open(&export(&open(batch::SHAPE.random()), &options(&folder, DType::Q8, Format::V2)).unwrap().out).unwrap();
    let cpu = loaded.model().unwrap().with_kv(CpuOptions::default().kv);
    let expected = batch::at_once(&cpu, 64);
    for graphs in [true, false] {
        let gpu = Cuda::new(&cpu, &Options { graphs, texts: batch::TEXTS, ..Options::default() }).unwrap();
        let found = batch::at_once(&cpu.with_accelerator(&gpu), 64);
        assert!(found.len() == expected.len() && found == expected, "graphs: {graphs}");
    }
}

#[test]
fn a_text_whose_logits_are_no_numbers_does_not_disturb_those_beside_it() {
    if !driver() {
        return;
    }
    // The embedding of one token has no numbers: whoever reads it fails.
    let made =
        Made::new(LlamaConfig { tied_embeddings: false, ..ODD }, |_, _| (DType::F32, 0)).with_row(TensorKind::TokEmbeddings, 7, f32::NAN);
    let views = made.views();
    let model = Model::from_parts(Llama::from_table(made.config, &views), Tokenizer::NONE, 12, KvDType::F16);
    let gpu = Cuda::new(&model, &Options { texts: 3, ..Options::default() }).unwrap();
    let texts = [[1, 2, 3, 4], [5, 7, 6, 8], [9, 10, 11, 12]];
    let told = |model: &Model<'_>| {
        let mut arenas = [(); 3].map(|()| vec![0u32; model.arena_len().unwrap().div_ceil(4)]);
        let mut memory = vec![0u32; Batch::arena_len(model, 64, 3).unwrap().div_ceil(4)];
        let mut batch = Batch::new(model, 64, 3, memory.as_mut_slice()).unwrap();
        let mut sessions = arenas.each_mut().map(|arena| Session::new(model, arena.as_mut_slice(), Sampler::greedy()).unwrap());
        sessions.iter_mut().zip(texts).for_each(|(session, text)| session.push_tokens(&text).unwrap());
        let mut parts: Vec<Part<'_, '_>> = sessions.iter_mut().map(|session| Part { session, count: 4, every: true }).collect();
        let told = Mutex::new(Vec::new());
        let each = |fed: Fed<'_>| {
            let bits = fed.logits.map(|row| row.iter().map(|logit| logit.to_bits()).collect::<Vec<_>>());
            told.lock().unwrap().push((fed.part, fed.position, bits));
        };
        batch.feed(&mut parts, &each).unwrap();
        told.into_inner().unwrap()
    };
    let (here, there) = (told(&model), told(&model.with_accelerator(&gpu)));
    assert_eq!(there.iter().filter(|(_, _, logits)| logits.is_err()).count(), 3);
    assert!(here == there);
}

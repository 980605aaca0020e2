//! How fast models run on a GPU, beside what they should cost there. Called by `dmexp bench --device cuda`.

use super::{Cost, Cuda, CudaError, H200, Options};
use crate::bench::Test;
use crate::decode::Loaded;
use crate::error::{Class, Error, Result};
use dmexp::accelerator::Accelerator;
use dmexp_format::arch::llama::{LlamaConfig, RopeLayout};
use dmexp_format::{DType, KvDType};
use std::time::Instant;

/// What is measured.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// The files.
    pub exports: &'a [Loaded],
    /// Lengths of texts that are read at once.
    pub prefill: &'a [u32],
    /// Numbers of tokens that are decoded.
    pub decode: &'a [u32],
    /// How many tokens come before them.
    pub contexts: &'a [u32],
    /// How keys and values are kept.
    pub kv: &'a [KvDType],
    /// How often everything is measured, after a pass that is not counted.
    pub repetitions: u32,
    /// Which device, and whether by graphs.
    pub options: Options<'a>,
}

/// What came of one test.
#[derive(Clone, Debug)]
pub struct Row {
    /// Which of the exports.
    pub export: usize,
    /// How keys and values are kept.
    pub kv: KvDType,
    /// What was timed.
    pub test: Test,
    /// Tokens a second, lowest first.
    pub rates: Vec<f64>,
    /// What a step in the middle of decoding should cost on an H200.
    pub cost: Option<Cost>,
    /// Bytes of the device's memory.
    pub bytes: u64,
}

impl Row {
    /// The rate in the middle.
    pub fn rate(&self) -> Option<f64> {
        self.rates.get(self.rates.len() / 2).copied()
    }
}

/// All rows, and the device that they were measured on.
#[derive(Clone, Debug)]
pub struct Report {
    /// What the device is.
    pub device: String,
    /// In the order of the request.
    pub rows: Vec<Row>,
}

/// Measures; `progress` hears how much of how much is done.
///
/// # Errors
/// [`Class::Request`] for a test that takes more positions than a model has, or where there is none; those of [`Cuda::new`].
pub fn run(request: &Request<'_>, progress: &mut dyn FnMut(u64, u64)) -> Result<Report> {
    let tests = tests(request);
    if tests.is_empty() {
        let what = "there is nothing to measure: no prefill and no decoding is asked for";
        return Err(Error::new(Class::Request, what).advise("give --pp or --tg a number above 0"));
    }
    let most = tests.iter().map(|test| test.positions()).max().unwrap_or(0);
    let total = (request.exports.len() * request.kv.len() * tests.len()) as u64;
    let mut report = Report { device: String::new(), rows: Vec::new() };
    for (export, loaded) in request.exports.iter().enumerate() {
        let model = loaded.model()?;
        if most > u64::from(model.context()) {
            let what = format!("the longest test takes {most} positions, the model has {}", model.context());
            return Err(Error::new(Class::Request, what).advise("give smaller numbers to --pp, --tg and --context").in_file(loaded.path()));
        }
        for kv in request.kv {
            let refused = |error: CudaError| Error::from(error).in_file(loaded.path());
            let gpu = Cuda::new(&model.with_context(most as u32).with_kv(*kv), &request.options).map_err(refused)?;
            report.device = gpu.facts().to_string();
            for test in &tests {
                let mut rates = Vec::new();
                for pass in 0..=request.repetitions.max(1) {
                    let rate = rate(&gpu, *test, model.network().vocab_size()).map_err(|error| loaded.explain(error))?;
                    if pass > 0 {
                        rates.push(rate);
                    }
                }
                rates.sort_by(f64::total_cmp);
                let middle = test.tokens().map_or(0, |(tokens, context)| context + tokens / 2);
                let cost = matches!(test, Test::Decode { .. }).then(|| gpu.cost(middle, &H200));
                report.rows.push(Row { export, kv: *kv, test: *test, rates, cost, bytes: gpu.bytes() });
                progress(report.rows.len() as u64, total);
            }
        }
    }
    Ok(report)
}

fn tests(request: &Request<'_>) -> Vec<Test> {
    let tests = request.contexts.iter().flat_map(|context| {
        let context = *context;
        let prefill = request.prefill.iter().map(move |tokens| Test::Prefill { tokens: *tokens, context });
        prefill.chain(request.decode.iter().map(move |tokens| Test::Decode { tokens: *tokens, context }))
    });
    tests.filter(|test| test.tokens().is_some_and(|(tokens, _)| tokens > 0)).collect()
}

/// Tokens a second of one test.
fn rate(gpu: &Cuda, test: Test, vocab_size: u32) -> Result<f64, dmexp_format::Error> {
    let (timed, context) = test.tokens().unwrap_or_default();
    let tokens: Vec<u32> = (0..timed.max(context)).map(|place| (place.wrapping_mul(2_654_435_761) >> 8) % vocab_size.max(1)).collect();
    let feed = |count: u32, position: u32| {
        let tokens = tokens.get(..count as usize).unwrap_or(&tokens);
        (position..).step_by(gpu.block() as usize).zip(tokens.chunks(gpu.block() as usize)).try_for_each(|(at, block)| gpu.feed(block, at))
    };
    feed(context, 0)?;
    let start = Instant::now();
    if matches!(test, Test::Decode { .. }) {
        gpu.run(tokens.first().copied().unwrap_or(0), context, timed)?;
    } else {
        feed(timed, context)?;
        let last = timed.saturating_sub(1) % gpu.block();
        gpu.logits(last, &mut vec![0.0; vocab_size as usize])?;
    }
    Ok(f64::from(timed) / start.elapsed().as_secs_f64())
}

/// Shapes that others measure too, with what a step at their last position should cost: llama2.c's three, and `TinyLlama`'s.
pub fn shapes() -> [(&'static str, LlamaConfig); 4] {
    let shape = |dim, hidden_dim, n_layers, (n_heads, n_kv_heads), max_seq_len, tied_embeddings| LlamaConfig {
        dim,
        hidden_dim,
        n_layers,
        n_heads,
        n_kv_heads,
        head_dim: dim / n_heads,
        vocab_size: 32_000,
        max_seq_len,
        norm_eps: 1e-5,
        rope_layout: RopeLayout::Interleaved,
        tied_embeddings,
        qkv_bias: false,
        sliding_window: 0,
        attention_factor: 1.0,
    };
    [
        ("15M", shape(288, 768, 6, (6, 6), 256, true)),
        ("42M", shape(512, 1376, 8, (8, 8), 1024, true)),
        ("110M", shape(768, 2048, 12, (12, 12), 1024, true)),
        ("1.1B", shape(2048, 5632, 22, (32, 4), 2048, false)),
    ]
}

/// What a step of each of [`shapes`] should cost on an H200, with all matrices in `dtype`.
///
/// # Errors
/// [`Class::Request`] for a type that is none of weights.
pub fn shape_costs(dtype: DType, kv: KvDType) -> Result<Vec<(&'static str, LlamaConfig, Cost)>> {
    let cost = |(name, config): (&'static str, LlamaConfig)| {
        let cost = Cost::of_shape(config, dtype, (config.max_seq_len, kv), &H200).map_err(CudaError::Refused)?;
        Ok((name, config, cost))
    };
    shapes().into_iter().map(cost).collect()
}

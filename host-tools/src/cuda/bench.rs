//! How fast models run on a GPU, beside what they should cost there. Called by `dmexp bench --device cuda`.

use super::{Cost, Cuda, CudaError, H200, Options, dormouse};
use crate::bench::{Test, Wanted, nothing};
use crate::error::{Class, Error, Result};
use dmexp::accelerator::{self, Accelerator};
use dmexp_format::arch::llama::{LlamaConfig, RopeLayout};
use dmexp_format::{DType, KvDType};
use std::time::Instant;

/// What is measured.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// What is measured.
    pub wanted: Wanted<'a>,
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
    let wanted = &request.wanted;
    let tests: Vec<Test> = wanted.tests().collect();
    if tests.is_empty() {
        return Err(nothing());
    }
    let most = tests.iter().map(|test| test.positions()).max().unwrap_or(0);
    let total = (wanted.exports.len() * wanted.kv.len() * tests.len()) as u64;
    let mut report = Report { device: String::new(), rows: Vec::new() };
    for (export, loaded) in wanted.exports.iter().enumerate() {
        let model = loaded.model()?;
        if most > u64::from(model.context()) {
            let what = format!("the longest test takes {most} positions, the model has {}", model.context());
            return Err(Error::new(Class::Request, what).advise("give smaller numbers to --pp, --tg and --context").in_file(loaded.path()));
        }
        for kv in wanted.kv {
            let refused = |error: CudaError| Error::from(error).in_file(loaded.path());
            let gpu = Cuda::new(&model.with_context(most as u32).with_kv(*kv), &request.options).map_err(refused)?;
            report.device = gpu.facts().to_string();
            for test in &tests {
                let mut rates = Vec::new();
                for pass in 0..=wanted.repetitions.max(1) {
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

/// Tokens a second of one test.
fn rate(gpu: &Cuda, test: Test, vocab_size: u32) -> Result<f64, dmexp_format::Error> {
    let (timed, context) = test.tokens().unwrap_or_default();
    let tokens: Vec<u32> = (0..timed.max(context)).map(|place| (place.wrapping_mul(2_654_435_761) >> 8) % vocab_size.max(1)).collect();
    let session = gpu.begin();
    let row = |(position, token): (u32, &u32)| accelerator::Row { session, token: *token, position };
    let feed = |count: u32, position: u32| {
        let rows: Vec<accelerator::Row> = (position..).zip(tokens.iter().take(count as usize)).map(row).collect();
        rows.chunks(gpu.block() as usize).try_for_each(|rows| gpu.feed(rows))
    };
    feed(context, 0)?;
    // Some families compute what was fed only when they are asked about it.
    if let Some(last) = context.checked_sub(1) {
        gpu.logits(session, last, &mut vec![0.0; vocab_size as usize])?;
    }
    let start = Instant::now();
    if matches!(test, Test::Decode { .. }) {
        gpu.run(row((context, tokens.first().unwrap_or(&0))), timed)?;
    } else {
        feed(timed, context)?;
        let last = context.saturating_add(timed).saturating_sub(1);
        gpu.logits(session, last, &mut vec![0.0; vocab_size as usize])?;
    }
    Ok(f64::from(timed) / start.elapsed().as_secs_f64())
}

/// Shapes that others measure too, with what a step at their last position should cost: llama2.c's three, and `TinyLlama`'s, that one also with more positions than it was trained for.
pub fn shapes() -> [(&'static str, LlamaConfig); 6] {
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
    let large = |max_seq_len| ("1.1B", shape(2048, 5632, 22, (32, 4), max_seq_len, false));
    [
        ("15M", shape(288, 768, 6, (6, 6), 256, true)),
        ("42M", shape(512, 1376, 8, (8, 8), 1024, true)),
        ("110M", shape(768, 2048, 12, (12, 12), 1024, true)),
        large(2048),
        large(8192),
        large(32_768),
    ]
}

/// What a step at the last position of each of [`shapes`] should cost on an H200, with all matrices in `dtype`, and what one of dormouse's presets, with their factors as codes: how many positions
/// there are, and the cost.
///
/// # Errors
/// [`Class::Request`] for a type that is none of weights.
pub fn shape_costs(dtype: DType, kv: KvDType) -> Result<Vec<(&'static str, u32, Cost)>> {
    let of_llama = shapes().into_iter().map(|(name, config)| {
        let cost = Cost::of_shape(config, dtype, (config.max_seq_len, kv), &H200);
        (name, config.max_seq_len, cost)
    });
    let of_dormouse =
        dormouse::shapes().into_iter().map(|(name, config)| (name, config.max_seq_len, dormouse::cost_of(config, dtype, &H200)));
    let costs = of_llama.chain(of_dormouse);
    costs.map(|(name, context, cost)| Ok((name, context, cost.map_err(CudaError::Refused)?))).collect()
}

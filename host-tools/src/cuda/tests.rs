//! The real calls of the driver against its stand-in, which runs the kernels on the CPU: whatever a session does, its bits are those of the runtime. What goes wrong with a driver or a device is in
//! `tests/cli_cuda.rs`, where each case has a process of its own.

use super::{Cost, Cuda, CudaError, H200, Options, devices};
use crate::checkpoint;
use crate::decode::tests::accelerator::everything;
use crate::decode::{Cpu, CpuOptions, Decoder, DormouseOptions, Loaded};
use crate::export::tests::{SMALL, Shape, bits, data, export, open, options, tokenizer};
use crate::export::{Format, Options as Exported};
use dmexp::Sampler;
use dmexp::accelerator::{Accelerator, Row};
use dmexp::format::Error as FormatError;
use dmexp_format::arch::llama::LlamaConfig;
use dmexp_format::{DType, KvDType};
use tempfile::TempDir;

mod made;

const DTYPES: [DType; 5] = [DType::F32, DType::F16, DType::Bf16, DType::Q8, DType::Q4];
const KV: [KvDType; 3] = [KvDType::F32, KvDType::F16, KvDType::Q8];

/// Opens the stand-in; false where there is none, or where a real driver would be found before it.
pub(super) fn driver() -> bool {
    if !dmexp_mockcuda::load() {
        return false;
    }
    let found = devices().unwrap();
    let stands_in = found.iter().all(|device| device.name == "mockcuda");
    if !stands_in {
        println!("skipped: this machine has a driver of its own ({})", found.first().map_or("", |device| &device.name));
    }
    stands_in
}

/// The same of a model that runs here and of one that runs on the device, with graphs and without.
fn compare<R: PartialEq>(loaded: &Loaded, cpu_options: &CpuOptions<'_>, what: &str, act: impl Fn(&mut dmexp::Session<'_>) -> R) {
    compare_by(&[true, false], loaded, cpu_options, what, act);
}

fn compare_by<R: PartialEq>(
    ways: &[bool],
    loaded: &Loaded,
    cpu_options: &CpuOptions<'_>,
    what: &str,
    act: impl Fn(&mut dmexp::Session<'_>) -> R,
) {
    let mut cpu = Cpu::new(loaded, cpu_options).unwrap();
    let expected = act(&mut cpu.session(Sampler::greedy()).unwrap());
    for graphs in ways.iter().copied() {
        let gpu = Cuda::new(cpu.model(), &Options { graphs, ..Options::default() }).unwrap();
        let mut elsewhere = Cpu::elsewhere(loaded, cpu_options, &DormouseOptions::default(), |_| Ok(&gpu)).unwrap();
        let found = act(&mut elsewhere.session(Sampler::greedy()).unwrap());
        assert!(found == expected, "{what}, graphs: {graphs}");
    }
}

fn exported(shape: Shape, dtype: DType) -> (TempDir, Loaded) {
    let folder = TempDir::new().unwrap();
    let report = export(&open(shape.random()), &options(&folder, dtype, Format::V2)).unwrap();
    let loaded = Loaded::open(&report.out).unwrap();
    (folder, loaded)
}

/// The bits of the logits after every token: the first three one by one, the others as they come.
fn logits(session: &mut dmexp::Session<'_>, tokens: &[u32]) -> Vec<u32> {
    let (first, others) = tokens.split_at(3);
    let mut found = Vec::new();
    for token in first {
        found.extend(bits(&[session.feed(&[*token]).unwrap().to_vec()]));
    }
    let mut each = |_, row: &[f32]| {
        found.extend(row.iter().map(|logit| logit.to_bits()));
        Ok(())
    };
    Decoder::logits(session, others, &mut each).unwrap();
    found
}

#[test]
fn whatever_a_session_is_asked_a_gpu_answers_with_the_same_bits() {
    if driver() {
        let (_folder, loaded) = exported(SMALL, DType::F16);
        compare(&loaded, &CpuOptions::default(), "everything", everything);
    }
}

#[test]
fn made_models_of_every_type_and_of_odd_sizes_have_the_same_bits() {
    // Rows that fill no unit of 8, 16, 32 or 128, heads that share keys unevenly, a classifier of its own.
    let odd = Shape { dim: 36, hidden_dim: 83, n_layers: 2, n_heads: 6, n_kv_heads: 3, vocab_size: 211, tied: false, max_seq_len: 32 };
    let wide = Shape { dim: 260, hidden_dim: 132, n_layers: 1, n_heads: 2, n_kv_heads: 1, vocab_size: 67, tied: true, max_seq_len: 32 };
    if !driver() {
        return;
    }
    let tokens: Vec<u32> = (0..21).map(|i| (5 + 17 * i) % 67).collect();
    for shape in [odd, wide] {
        for (dtype, kv) in DTYPES.into_iter().zip(KV.into_iter().cycle()) {
            let (_folder, loaded) = exported(shape, dtype);
            let options = CpuOptions { kv, ..CpuOptions::default() };
            compare(&loaded, &options, &format!("{dtype}, keys and values in {kv}"), |session| logits(session, &tokens));
        }
    }
}

#[test]
fn stories260k_has_the_same_bits() {
    let Some(weights) = data("stories260K/stories260K.bin") else { return };
    if !driver() {
        return;
    }
    let text: Vec<u32> = (0..256).map(|i| if i == 0 { 1 } else { 3 + (i * i + 7 * i) % 500 }).collect();
    // All types at 256 positions are in the tests of the kernels, which need no driver: here is one of them.
    let kinds = DTYPES.into_iter().zip([KvDType::F16, KvDType::F32, KvDType::Q8, KvDType::F16, KvDType::Q8]);
    for ((dtype, kv), positions) in kinds.zip([24, 24, 24, 256, 24]) {
        let text = &text[..positions];
        let folder = TempDir::new().unwrap();
        let mut checkpoint = checkpoint::open(&weights).unwrap();
        checkpoint.tokenizer = Some(tokenizer(512));
        let out = export(&checkpoint, &Exported { dtype, ..options(&folder, dtype, Format::V2) }).unwrap().out;
        let loaded = Loaded::open(&out).unwrap();
        let options = CpuOptions { context: Some(256), kv, tokenizer: None };
        compare_by(&[true], &loaded, &options, &format!("{dtype}, keys and values in {kv}"), |session| logits(session, text));
    }
}

#[test]
fn a_device_that_is_not_there_and_kernels_that_are_no_kernels_are_errors() {
    if !driver() {
        return;
    }
    let (_folder, loaded) = exported(SMALL, DType::F32);
    let model = loaded.model().unwrap();
    let error = Cuda::new(&model, &Options { ordinal: 3, ..Options::default() }).unwrap_err();
    assert_eq!(error, CudaError::Index { found: 3, devices: 1 });
    let ptx = ".version 6.3\n.target sm_75\n";
    let error = Cuda::new(&model, &Options { ptx, ..Options::default() }).unwrap_err();
    let CudaError::PtxRefused { code: 218, ptx, log, .. } = &error else { panic!("{error}") };
    assert!(ptx == "6.3" && log.contains("no entry embed"), "{error}");
}

#[test]
fn tokens_that_cannot_be_fed_are_refused_before_the_device_sees_them() {
    if !driver() {
        return;
    }
    let (_folder, loaded) = exported(SMALL, DType::F32);
    let model = loaded.model().unwrap();
    let cuda = Cuda::new(&model, &Options::default()).unwrap();
    let session = cuda.begin();
    let rows =
        |tokens: &[u32]| -> Vec<Row> { (0..).zip(tokens).map(|(position, token)| Row { session, token: *token, position }).collect() };
    assert_eq!(cuda.feed(&[]), Err(FormatError::NoPrompt));
    assert!(matches!(cuda.feed(&rows(&[1; 9])), Err(FormatError::PromptTooLong { tokens: 9, room: 8 })));
    let vocab_size = model.network().vocab_size();
    assert_eq!(cuda.feed(&rows(&[1, vocab_size])), Err(FormatError::Token { found: vocab_size, vocab_size }));
    let context = model.context();
    let behind = Row { session, token: 1, position: context };
    assert_eq!(cuda.feed(&[behind]), Err(FormatError::PromptTooLong { tokens: u64::from(context) + 1, room: context.into() }));
    assert_eq!(cuda.choose(behind), cuda.feed(&[behind]).map(|()| None));
    assert_eq!(cuda.feed(&rows(&[1; 8])), Ok(()));
    let newer = cuda.begin();
    assert!(!cuda.has(session) && cuda.has(newer) && !cuda.has(newer + 1) && !cuda.has(0));
    assert_eq!(cuda.feed(&rows(&[1; 8])), Err(FormatError::AcceleratorBusy));
}

#[test]
fn costs_are_those_that_were_reckoned_by_hand() {
    // llama2.c's 15M: 6 layers of 5 launches, and embedding, head and choice.
    let config = LlamaConfig {
        dim: 288,
        hidden_dim: 768,
        n_layers: 6,
        n_heads: 6,
        n_kv_heads: 6,
        head_dim: 48,
        vocab_size: 32_000,
        max_seq_len: 256,
        tied_embeddings: true,
        ..LlamaConfig::from_record(&[0; 64]).unwrap()
    };
    let cost = Cost::of_shape(config, DType::Bf16, (256, KvDType::F16), &H200).unwrap();
    assert_eq!(cost.launches, 33);
    let weights = 2 * (32_000 * 288 + 6 * (4 * 288 * 288 + 3 * 288 * 768));
    let cache = 2 * 6 * 256 * 288 * 2;
    // Rows of 288 and 768 are taken up to multiples of 64 elements.
    assert!(cost.bytes >= weights + cache && cost.bytes < (weights + cache) * 12 / 10, "{cost:?}");
    assert!(cost.floor < cost.seconds && cost.seconds < cost.seconds_alone);
    // Two sums of 32 additions a lane in each layer.
    assert!((cost.chains - 384.0 * 4.0 / 1.755e9).abs() < 1e-15);
    assert!((cost.seconds - (cost.bytes as f64 / (0.7 * 4.3e12) + 33.0 * 1.3e-6 + cost.chains)).abs() < 1e-12);
    let long = Cost::of_shape(LlamaConfig { max_seq_len: 1 << 15, ..config }, DType::Bf16, (1 << 15, KvDType::Q8), &H200).unwrap();
    assert_eq!(long.launches, 51);
    assert!((long.chains - 6.0 * 4096.0 * 4.0 / 1.755e9).abs() < 1e-12);
}

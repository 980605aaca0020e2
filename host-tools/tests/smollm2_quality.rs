//! What q8 and q4 cost SmolLM2-135M-Instruct: the figures of docs/adr/0003-small-integers.md, measured with the exporter and the runtime's own kernels.
//!
//! `DMEXP_SMOLLM2=SmolLM2-135M-Instruct.Q4_1.gguf cargo test --release -p dmexp-tools --test smollm2_quality -- --nocapture`; some minutes on two cores. Without the file (see
//! `cli_smollm2.rs`) it says so.

use dmexp::Sampler;
use dmexp::tokenizer::Tokenizer;
use dmexp_format::{DType, KvDType};
use dmexp_tools::checkpoint::{self, Checkpoint};
use dmexp_tools::compare::{Divergence, Meter};
use dmexp_tools::decode::{Cpu, CpuOptions, Decoder, Loaded};
use dmexp_tools::export::{self, Options};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Instant;

const STORY: &str = "Once upon a time, there was a little girl named Emma who loved to play in the sun. She would run in the garden every morning, and her grandmother would watch from the window, knitting a long blue scarf. One day the girl found a small door behind the roses. 'Grandmother,' she called, 'have you ever seen this door?' The old woman put down her needles and smiled. In 1969 people walked on the moon; in 2024 a phone has 8 billion transistors. def add(a, b):\n    return a + b\n";

fn inputs() -> Option<(PathBuf, String)> {
    let model = std::env::var_os("DMEXP_SMOLLM2").map(PathBuf::from);
    if model.is_none() {
        eprintln!("skipped: DMEXP_SMOLLM2 does not name SmolLM2-135M-Instruct.Q4_1.gguf");
    }
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/text/tinyshakespeare.txt"));
    if text.is_err() {
        eprintln!("skipped: tinyshakespeare.txt of the shared reference data is not here");
    }
    Some((model?, text.ok()?))
}

/// Three windows of 521 tokens in all: a story with numbers and code in it, and two places of Shakespeare. No token begins them.
fn windows(loaded: &Loaded, shakespeare: &str) -> Vec<Vec<u32>> {
    let model = loaded.model().unwrap();
    let tokenizer = model.tokenizer();
    let texts = [(STORY, 121), (&shakespeare[200_000..201_000], 200), (&shakespeare[700_000..701_000], 200)];
    let encode = |(text, most): (&str, usize)| {
        let mut tokens = vec![0; Tokenizer::scratch_words(text.len())];
        let count = tokenizer.encode(text.as_bytes(), false, &mut tokens).unwrap();
        tokens.truncate(count.min(most));
        tokens
    };
    texts.map(encode).to_vec()
}

fn export(source: &Checkpoint, folder: &Path, dtype: DType) -> Loaded {
    let options = Options { dtype, golden: false, ..Options::new(folder.join(format!("{dtype}.dmexp"))) };
    let start = Instant::now();
    let report = export::run(source, &options, &AtomicBool::new(false), &mut |_| ()).unwrap();
    println!("{dtype}: {} bytes, exported in {:.1} s", report.file_bytes, start.elapsed().as_secs_f64());
    Loaded::open(&report.out).unwrap()
}

fn logits(loaded: &Loaded, tokens: &[u32], each: &mut dyn FnMut(usize, &[f32])) {
    let mut cpu = Cpu::new(loaded, &CpuOptions { context: Some(256), kv: KvDType::F32, tokenizer: None }).unwrap();
    let mut session = cpu.session(Sampler::greedy()).unwrap();
    Decoder::logits(&mut session, tokens, &mut |position, logits| {
        each(position as usize, logits);
        Ok(())
    })
    .unwrap();
}

/// Prints how the export in `dtype` compares with f32 over all windows, and refuses a KL above `most_kl` or a perplexity that is more than 0.3 percent another.
fn compare(dtype: DType, most_kl: f64) {
    let Some((model, shakespeare)) = inputs() else { return };
    let folder = tempfile::tempdir().unwrap();
    let source = checkpoint::open(&model).unwrap();
    let reference = export(&source, folder.path(), DType::F32);
    let windows = windows(&reference, &shakespeare);
    assert_eq!(windows.iter().map(Vec::len).collect::<Vec<_>>(), [121, 200, 200]);
    let candidate = export(&source, folder.path(), dtype);
    let mut meter = Meter::new();
    for tokens in &windows {
        let mut expected = Vec::new();
        logits(&reference, tokens, &mut |_, logits| expected.push(logits.to_vec()));
        logits(&candidate, tokens, &mut |position, logits| {
            assert!(meter.add(&expected[position], logits, tokens.get(position + 1).copied()));
        });
    }
    let Divergence { positions, kl, top1, reference_perplexity, perplexity, .. } = meter.divergence().unwrap();
    let (before, after) = (reference_perplexity.unwrap(), perplexity.unwrap());
    let change = 100.0 * (after / before - 1.0);
    println!(
        "{dtype}: {positions} positions, KL {kl:.3e} a token, top-1 {:.1}%, perplexity {after:.3}, in f32 {before:.3} ({change:+.2}%)",
        100.0 * top1
    );
    assert!(positions == 521 && kl <= most_kl && change.abs() <= 0.3, "{dtype}: {kl} {change}");
}

// A perplexity over so few tokens moves by chance: with a KL of 1e-3 a token by sqrt(2 KL / 518), 0.2 percent, to either side: q8 was seen at +0.42, and misses its mark.

#[test]
fn smollm2_loses_little_in_q8() {
    compare(DType::Q8, 1.8e-3);
}

/// With embedding and classifier in q8, as `--dtype q4` has them.
#[test]
fn smollm2_loses_little_in_q4() {
    compare(DType::Q4, 1.5e-3);
}

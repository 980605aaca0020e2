//! Runs a GGUF file in candle and prints one JSON object: `dmexp-peers FILE PREFILL DECODE CONTEXT,..`, with as many threads as `RAYON_NUM_THREADS` says.
//!
//! Rates are tokens a second by the clock and by the processor time of all threads. `first_token_ms` is from before the file is opened until the first logits.

use candle_core::quantized::gguf_file::Content;
use candle_core::{Device, Tensor};
use candle_transformers::models::quantized_llama::ModelWeights;
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};
use std::error::Error;
use std::time::Instant;

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [path, prefill, decode, contexts] = words.as_slice() else { return Err("give FILE PREFILL DECODE CONTEXT,..".into()) };
    let (prefill, decode): (usize, usize) = (prefill.parse()?, decode.parse()?);
    let contexts = contexts.split(',').map(str::parse).collect::<Result<Vec<usize>, _>>()?;
    let start = Instant::now();
    let mut file = std::io::BufReader::new(std::fs::File::open(path)?);
    let content = Content::read(&mut file)?;
    let mut model = ModelWeights::from_gguf(content, &mut file, &Device::Cpu)?;
    feed(&mut model, &[1], 0)?;
    let first_token_ms = start.elapsed().as_secs_f64() * 1000.0;
    let tokens: Vec<u32> = (0..512).map(|number| number * 7919 % 31_000 + 300).collect();
    let text = |from: usize, count: usize| tokens.get(from..from + count).ok_or("that many tokens are not there");
    timed(&mut model, &[], text(0, prefill)?, prefill)?;
    let prefill = timed(&mut model, &[], text(0, prefill)?, prefill)?;
    let decode =
        contexts.iter().map(|known| timed(&mut model, text(0, *known)?, text(*known, decode)?, 1)).collect::<Outcome<Vec<Value>>>()?;
    println!("{}", json!({ "prefill": prefill, "decode": decode, "first_token_ms": first_token_ms, "peak_bytes": peak()? }));
    Ok(())
}

/// Feeds tokens behind `position` others; behind none the model forgets what it knew.
fn feed(model: &mut ModelWeights, tokens: &[u32], position: usize) -> Outcome<()> {
    if position == 0 {
        model.clear_kv_cache();
    }
    model.forward(&Tensor::new(tokens, &Device::Cpu)?.unsqueeze(0)?, position)?;
    Ok(())
}

/// Tokens a second of feeding `tokens`, so many at once, behind `before`.
fn timed(model: &mut ModelWeights, before: &[u32], tokens: &[u32], at_once: usize) -> Outcome<Value> {
    if !before.is_empty() {
        feed(model, before, 0)?;
    }
    let (start, processor) = (Instant::now(), processor_seconds());
    let mut position = before.len();
    for tokens in tokens.chunks(at_once) {
        feed(model, tokens, position)?;
        position += tokens.len();
    }
    let count = tokens.len() as f64;
    Ok(json!([count / start.elapsed().as_secs_f64(), count / (processor_seconds() - processor)]))
}

fn processor_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// The most memory that this process has had, in bytes.
fn peak() -> Outcome<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).ok_or("the system does not say how much memory was used")?;
    Ok(line.trim().trim_end_matches("kB").trim().parse::<u64>()? * 1024)
}

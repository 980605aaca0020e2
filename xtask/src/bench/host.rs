//! The rows `host/...`: tokens a second of the command `dmexp` on this machine. They depend on the machine and on what else it does: compare ratios within one run.

use super::{Measurement, RowSpec};
use crate::failure::{Failure, Outcome};
use crate::models::{self, Source};
use crate::{paths, process};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Runs of which the median counts.
const RUNS: usize = 5;

/// New tokens a run, from the beginning of a text.
const USUAL: &[&str] = &["--steps", "200"];

/// Fewer for a model of a hundred million parameters, which has no token that begins a text.
const SMOLLM2_RUN: &[&str] = &["--steps", "32", "--prompt", "Once", "--context", "256"];

/// Names `SmolLM2`'s GGUF file, which is not part of the repository: without it there are no rows of it.
pub(crate) const SMOLLM2: &str = "DMEXP_SMOLLM2";

const DTYPES: &[&str] = &["f32", "f16", "bf16"];

/// Every measurement of the host.
pub(crate) fn measurements() -> Vec<Measurement> {
    let mut all = Vec::new();
    for dtype in DTYPES {
        for source in [models::STORIES260K, models::STORY].into_iter().filter(Source::is_here) {
            all.push(decode(source.name, dtype, USUAL, Box::new(move || source.export(dtype))));
        }
        all.push(decode("s15", dtype, USUAL, Box::new(|| made_model(dtype))));
        if let Some(gguf) = std::env::var_os(SMOLLM2).map(PathBuf::from) {
            all.push(decode("smollm2", dtype, SMOLLM2_RUN, Box::new(move || smollm2(&gguf, dtype))));
        }
    }
    all.push(busy_core());
    all
}

/// Decoding on two threads while another program keeps one core busy, beside decoding on one thread of a quiet machine. On a machine that is not quiet itself the figure means nothing.
fn busy_core() -> Measurement {
    let rows = vec![RowSpec { id: "host/s15/f32/t2_beside_a_busy_core_of_t1".to_owned(), unit: "of 1" }];
    let measure = || {
        let file = made_model("f32")?;
        let mut shares = Vec::new();
        for _ in 0..RUNS {
            let quiet = bench(&file, "1")?;
            let busy = Busy::begin()?;
            let beside = bench(&file, "2")?;
            busy.end()?;
            shares.push(beside / quiet);
        }
        shares.sort_by(f64::total_cmp);
        Ok(vec![shares[RUNS / 2]])
    };
    Measurement { rows, measure: Box::new(measure) }
}

/// The rate of decoding, by `dmexp bench`.
fn bench(file: &Path, threads: &str) -> Outcome<f64> {
    let mut command = models::dmexp()?;
    command.args(["bench", "--json", "--pp", "0", "--tg", "200", "--repetitions", "3", "--threads", threads, "--export"]);
    let report: serde_json::Value = serde_json::from_str(&process::capture(command.arg(file))?)
        .map_err(|error| Failure::cannot_run(format!("cannot read what `dmexp bench` prints: {error}")))?;
    report["rows"][0]["rate"].as_f64().ok_or_else(|| Failure::cannot_run("`dmexp bench --json` names no rate"))
}

/// A program that keeps the first core busy until this is dropped.
struct Busy(std::process::Child);

impl Busy {
    fn begin() -> Outcome<Self> {
        let mut command = Command::new("taskset");
        command.args(["--cpu-list", "0", "sh", "-c", "while :; do :; done"]);
        let child =
            command.spawn().map_err(|error| Failure::cannot_run(format!("cannot start `{}`: {error}", process::shown(&command))))?;
        Ok(Self(child))
    }

    /// Ends it; refuses what was measured if it had ended before.
    fn end(mut self) -> Outcome {
        match self.0.try_wait() {
            Ok(None) => Ok(()),
            _ => Err(Failure::cannot_run("the program that keeps the first core busy ended by itself: may this process use that core?")),
        }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        // It ends by nothing else, and there is nobody to tell if it cannot be ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Decoding from the beginning of a text, greedily, on one thread.
fn decode(model: &'static str, dtype: &'static str, run: &'static [&'static str], file: Box<dyn Fn() -> Outcome<PathBuf>>) -> Measurement {
    let rows = vec![RowSpec { id: format!("host/{model}/{dtype}/t1/decode_tokens_per_s"), unit: "tokens/s" }];
    let measure = move || {
        let file = file()?;
        let mut rates = (0..RUNS).map(|_| rate(&file, run)).collect::<Outcome<Vec<f64>>>()?;
        rates.sort_by(f64::total_cmp);
        Ok(vec![rates[RUNS / 2]])
    };
    Measurement { rows, measure: Box::new(measure) }
}

fn rate(file: &Path, run: &[&str]) -> Outcome<f64> {
    let mut command = models::dmexp()?;
    command.args(["generate", "--json", "--temp", "0", "--ignore-eos"]).args(run).arg("--export").arg(file);
    let printed = process::capture(&mut command)?;
    // A line for each token, and the rates in the last.
    let result: serde_json::Value = serde_json::from_str(printed.lines().last().unwrap_or_default())
        .map_err(|error| Failure::cannot_run(format!("cannot read what `dmexp generate` prints: {error}")))?;
    result["decode"]["tokens_per_s"].as_f64().ok_or_else(|| Failure::cannot_run("`dmexp generate --json` names no decode rate"))
}

pub(crate) fn smollm2(gguf: &Path, dtype: &str) -> Outcome<PathBuf> {
    let folder = paths::root().join("target/models");
    std::fs::create_dir_all(&folder).map_err(|error| Failure::cannot_run(format!("cannot make {}: {error}", folder.display())))?;
    let file = folder.join(format!("smollm2.{dtype}.dmexp"));
    let mut command = models::dmexp()?;
    command.args(["export", "run", "--quiet", "--no-golden", "--dtype", dtype, "--checkpoint"]).arg(gguf);
    process::capture(command.arg("--out").arg(&file))?;
    Ok(file)
}

/// The shape `s15` of llama2.c's stories15M with made-up weights and a made-up tokenizer: speed does not depend on them.
pub(crate) fn made_model(dtype: &str) -> Outcome<PathBuf> {
    let folder = paths::root().join("target/models");
    let (checkpoint, tokenizer) = (folder.join("s15.bin"), folder.join("s15.tokenizer.bin"));
    let written = |path: &Path, write: fn(&mut dyn Write) -> std::io::Result<()>| {
        if path.exists() {
            return Ok(());
        }
        // Renamed when complete, so that an interrupted run leaves nothing that looks like a model.
        let part = path.with_extension("part");
        let result = std::fs::create_dir_all(&folder)
            .and_then(|()| std::fs::File::create(&part))
            .and_then(|file| {
                let mut out = std::io::BufWriter::new(file);
                write(&mut out)?;
                out.flush()
            })
            .and_then(|()| std::fs::rename(&part, path));
        result.map_err(|error| Failure::cannot_run(format!("cannot write {}: {error}", path.display())))
    };
    written(&checkpoint, write_checkpoint)?;
    written(&tokenizer, write_tokenizer)?;
    let file = folder.join(format!("s15.{dtype}.dmexp"));
    let mut command = models::dmexp()?;
    command.args(["export", "run", "--quiet", "--no-golden", "--dtype", dtype, "--checkpoint"]).arg(checkpoint);
    process::capture(command.arg("--tokenizer").arg(tokenizer).arg("--out").arg(&file))?;
    Ok(file)
}

const VOCABULARY: usize = 32_000;

/// A llama2.c checkpoint of version 0 without rotation tables: dim 288, hidden 768, 6 layers, 6 heads, context 256.
fn write_checkpoint(out: &mut dyn Write) -> std::io::Result<()> {
    let (dim, hidden, layers) = (288usize, 768usize, 6usize);
    for number in [dim, hidden, layers, 6, 6, VOCABULARY, 256] {
        out.write_all(&(number as i32).to_le_bytes())?;
    }
    let square = layers * dim * dim;
    let wide = layers * dim * hidden;
    let mut state = 1u32;
    let matrices = |out: &mut dyn Write, state: &mut u32, count: usize| {
        for _ in 0..count {
            *state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let weight = (*state >> 8) as f32 / 8_388_608.0 - 1.0;
            out.write_all(&(weight * 0.05).to_le_bytes())?;
        }
        Ok::<(), std::io::Error>(())
    };
    let gains = |out: &mut dyn Write, count: usize| (0..count).try_for_each(|_| out.write_all(&1f32.to_le_bytes()));
    matrices(out, &mut state, VOCABULARY * dim)?;
    gains(out, layers * dim)?;
    matrices(out, &mut state, 4 * square)?;
    gains(out, layers * dim)?;
    matrices(out, &mut state, 3 * wide)?;
    gains(out, dim)
}

/// A tokenizer of `VOCABULARY` different pieces.
fn write_tokenizer(out: &mut dyn Write) -> std::io::Result<()> {
    let piece = |id: usize| match id {
        0 => "<unk>".to_owned(),
        1 => "\n<s>\n".to_owned(),
        2 => "\n</s>\n".to_owned(),
        3..259 => format!("<0x{:02X}>", id - 3),
        259 => " ".to_owned(),
        _ => format!("w{id}"),
    };
    let longest = (0..VOCABULARY).map(|id| piece(id).len()).max().unwrap_or(0);
    out.write_all(&(longest as u32).to_le_bytes())?;
    for id in 0..VOCABULARY {
        let piece = piece(id);
        out.write_all(&(-(id as f32)).to_le_bytes())?;
        out.write_all(&(piece.len() as i32).to_le_bytes())?;
        out.write_all(piece.as_bytes())?;
    }
    Ok(())
}

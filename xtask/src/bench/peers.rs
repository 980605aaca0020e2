//! `cargo xtask bench --peers`: this machine's rates beside those of llama.cpp and candle on the same models, one after the other in each round, so that what else the machine does meets all alike.

mod setup;

use super::{Row, as_json, matches};
use crate::failure::{Failure, Outcome};
use crate::{models, process};
use serde_json::Value;
use setup::{Files, Peers};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// Rounds of which the median counts.
const ROUNDS: usize = 3;
/// Tokens that are read at once, and tokens that are fed one by one.
const PREFILL: u32 = 128;
const DECODE: u32 = 64;
/// Tokens before those that are fed one by one.
const CONTEXTS: [u32; 2] = [0, 200];
const ENGINES: [&str; 3] = ["dmexp", "llama.cpp", "candle"];
const TESTS: [&str; 3] = ["prefill 128", "decode at 0", "decode at 200"];

/// What one process of one engine gave; `None` where the engine does not say.
#[derive(Clone, Default)]
struct Run {
    /// Tokens a second for each of [`TESTS`]: on one thread those of a second of processor time, which other programs change least; else by the clock.
    rates: [Option<f64>; 3],
    /// The share of the read bandwidth, measured in the same process, for each of [`TESTS`].
    shares: [Option<f64>; 3],
    first_token_ms: Option<f64>,
    peak_bytes: Option<f64>,
}

/// All runs of the engines on a model in one type on as many threads, by the engine's place.
struct Case {
    name: String,
    runs: [Vec<Run>; 3],
}

impl Case {
    /// The median over the rounds of what `pick` takes of a run.
    fn median(&self, engine: usize, pick: impl Fn(&Run) -> Option<f64>) -> Option<f64> {
        let mut values: Vec<f64> = self.runs.get(engine)?.iter().filter_map(pick).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied()
    }

    /// The least and the most of it.
    fn range(&self, engine: usize, pick: impl Fn(&Run) -> Option<f64>) -> Option<[f64; 2]> {
        let values = || self.runs.get(engine).into_iter().flatten().filter_map(&pick);
        Some([values().min_by(f64::total_cmp)?, values().max_by(f64::total_cmp)?])
    }

    /// This repository's rate beside the best of the others.
    fn ratio(&self, test: usize) -> Option<f64> {
        let rate = |engine| self.median(engine, |run| run.rates.get(test).copied().flatten());
        let best = [rate(1), rate(2)].into_iter().flatten().max_by(f64::total_cmp)?;
        Some(rate(0)? / best)
    }
}

/// Measures what matches `pattern` and prints it; rows of JSON go to `json`.
pub(super) fn main(pattern: &str, list: bool, json: Option<PathBuf>) -> Outcome {
    let mut wanted: Vec<_> =
        setup::models().into_iter().filter(|(model, kind)| matches(pattern, &format!("peers/{model}/{kind}/"))).collect();
    if wanted.is_empty() {
        return Err(Failure::cannot_run(format!("no model matches `{pattern}`; --list prints them")));
    }
    if list {
        for (model, kind) in wanted {
            println!("peers/{model}/{kind}/");
        }
        return Ok(());
    }
    wanted.sort_by_key(|(model, _)| setup::order(model));
    let peers = Peers::get()?;
    let mut cases = Vec::new();
    for (model, kind) in wanted {
        let files = peers.files(&model, kind)?;
        for threads in [1, 2] {
            let mut case = Case { name: format!("{model}/{kind}/t{threads}"), runs: Default::default() };
            for _ in 0..ROUNDS {
                let [ours, llama, candle] = &mut case.runs;
                ours.push(dmexp(&files, threads)?);
                let builds = peers.llama.iter().map(|python| of_peer(&mut llama_cpp(python, &files, threads), threads));
                llama.extend(builds.collect::<Outcome<Vec<Run>>>()?.into_iter().reduce(|one, other| better(&one, &other)));
                candle
                    .extend(peers.candle.as_deref().map(|program| of_peer(&mut of_candle(program, &files, threads), threads)).transpose()?);
            }
            print!("{}", table(&case));
            cases.push(case);
        }
    }
    let Some(path) = json else { return Ok(()) };
    let rows: Vec<Row> = cases.iter().flat_map(rows).collect();
    std::fs::write(&path, as_json(&rows)).map_err(|error| Failure::cannot_run(format!("cannot write {}: {error}", path.display())))
}

fn parsed(command: &mut Command) -> Outcome<Value> {
    let printed = process::capture(command)?;
    serde_json::from_str(&printed)
        .map_err(|error| Failure::cannot_run(format!("cannot read what `{}` prints: {error}", process::shown(command))))
}

fn contexts() -> String {
    CONTEXTS.map(|context| context.to_string()).join(",")
}

fn dmexp(files: &Files, threads: usize) -> Outcome<Run> {
    let mut command = models::dmexp()?;
    command.args(["bench", "--json", "--repetitions", "1", "--context", &contexts(), "--threads", &threads.to_string()]);
    command.args(["--pp", &PREFILL.to_string(), "--tg", &DECODE.to_string()]);
    let report = parsed(command.arg("--export").arg(&files.dmexp))?;
    let rows: BTreeMap<(String, u64), &Value> = (report["rows"].as_array().into_iter().flatten())
        .filter_map(|row| Some(((row["test"].as_str()?.to_owned(), row["context"].as_u64()?), row)))
        .collect();
    let of = |test: &str, context: u32, key: &str| rows.get(&(test.to_owned(), u64::from(context))).and_then(|row| row[key].as_f64());
    let rate = if threads == 1 { "rate_per_cpu_second" } else { "rate" };
    let [first, second] = CONTEXTS;
    let all = |key: &str| [of("prefill", 0, key), of("decode", first, key), of("decode", second, key)];
    let start = Instant::now();
    let mut story = models::dmexp()?;
    story.args(["generate", "--steps", "1", "--temp", "0", "--prompt", "a", "--threads", &threads.to_string(), "--export"]);
    process::capture(story.arg(&files.dmexp))?;
    let first_token_ms = Some(start.elapsed().as_secs_f64() * 1000.0);
    Ok(Run { rates: all(rate), shares: all("share_of_bandwidth"), first_token_ms, peak_bytes: report["peak_memory_bytes"].as_f64() })
}

fn llama_cpp(python: &Path, files: &Files, threads: usize) -> Command {
    let mut command = Command::new(python);
    command.arg(setup::folder().join("llama_cpp_runner.py")).arg(&files.gguf);
    command.args([threads.to_string(), PREFILL.to_string(), DECODE.to_string(), contexts()]);
    command
}

fn of_candle(program: &Path, files: &Files, threads: usize) -> Command {
    let mut command = Command::new(program);
    command.env("RAYON_NUM_THREADS", threads.to_string()).arg(&files.gguf).args([PREFILL.to_string(), DECODE.to_string(), contexts()]);
    command
}

/// What a peer printed: each rate by the clock and by processor time.
fn of_peer(command: &mut Command, threads: usize) -> Outcome<Run> {
    let report = parsed(command)?;
    let rate = |value: &Value| value[usize::from(threads == 1)].as_f64();
    let rates = [rate(&report["prefill"]), rate(&report["decode"][0]), rate(&report["decode"][1])];
    Ok(Run { rates, shares: [None; 3], first_token_ms: report["first_token_ms"].as_f64(), peak_bytes: report["peak_bytes"].as_f64() })
}

/// The better figure of two runs, for each.
fn better(one: &Run, other: &Run) -> Run {
    let least = |one: Option<f64>, other: Option<f64>| [one, other].into_iter().flatten().min_by(f64::total_cmp);
    let mut rates = one.rates;
    for (rate, other) in rates.iter_mut().zip(other.rates) {
        *rate = [*rate, other].into_iter().flatten().max_by(f64::total_cmp);
    }
    Run {
        rates,
        shares: one.shares,
        first_token_ms: least(one.first_token_ms, other.first_token_ms),
        peak_bytes: least(one.peak_bytes, other.peak_bytes),
    }
}

fn shown(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
}

/// The figures of one case.
fn table(case: &Case) -> String {
    let unit = if case.name.ends_with("t1") { "tokens a second of processor time" } else { "tokens a second" };
    let mut text = format!("{}: {unit}, medians of {ROUNDS}\n", case.name);
    let mut line = |cells: [String; 6]| {
        let [name, cells @ ..] = cells;
        let cells = cells.map(|cell| format!("{cell:>12}")).concat();
        let _ = writeln!(text, "  {name:<22}{cells}");
    };
    line(["", ENGINES[0], ENGINES[1], ENGINES[2], "ratio", "bandwidth"].map(str::to_owned));
    for (number, test) in TESTS.into_iter().enumerate() {
        let rate = |engine| shown(case.median(engine, |run| run.rates.get(number).copied().flatten()), 1);
        let share = case.median(0, |run| run.shares.get(number).copied().flatten()).map(|share| share * 100.0);
        let share = share.map_or_else(|| "-".to_owned(), |share| format!("{share:.0}%"));
        line([test.to_owned(), rate(0), rate(1), rate(2), shown(case.ratio(number), 2), share]);
    }
    let first = |engine| shown(case.median(engine, |run| run.first_token_ms), 0);
    line(["first token, ms".to_owned(), first(0), first(1), first(2), String::new(), String::new()]);
    let memory = |engine| shown(case.median(engine, |run| run.peak_bytes.map(|bytes| bytes / 1e6)), 1);
    line(["peak memory, MB".to_owned(), memory(0), memory(1), memory(2), String::new(), String::new()]);
    text
}

/// The same as rows of JSON.
fn rows(case: &Case) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut row = |id: String, value: Option<f64>, range: Option<[f64; 2]>, unit| {
        rows.extend(value.map(|value| Row { range, ..Row::new(format!("peers/{}/{id}", case.name), value, unit) }));
    };
    for (number, test) in TESTS.into_iter().enumerate() {
        let test = test.replace(' ', "_");
        for (place, engine) in ENGINES.into_iter().enumerate() {
            let rate = |run: &Run| run.rates.get(number).copied().flatten();
            row(format!("{test}/{engine}"), case.median(place, rate), case.range(place, rate), "tokens/s");
        }
        row(format!("{test}/ratio"), case.ratio(number), None, "of 1");
        row(format!("{test}/share_of_bandwidth"), case.median(0, |run| run.shares.get(number).copied().flatten()), None, "of 1");
    }
    for (place, engine) in ENGINES.into_iter().enumerate() {
        row(
            format!("first_token/{engine}"),
            case.median(place, |run| run.first_token_ms),
            case.range(place, |run| run.first_token_ms),
            "ms",
        );
        row(format!("peak_memory/{engine}"), case.median(place, |run| run.peak_bytes), None, "bytes");
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::{Case, Run, better, rows, table};

    #[test]
    fn of_two_builds_the_better_figures_count() {
        let one = Run { rates: [Some(1.0), Some(5.0), None], shares: [None; 3], first_token_ms: Some(30.0), peak_bytes: None };
        let other = Run { rates: [Some(2.0), Some(4.0), Some(3.0)], shares: [None; 3], first_token_ms: Some(20.0), peak_bytes: Some(7.0) };
        let both = better(&one, &other);
        assert_eq!(both.rates, [Some(2.0), Some(5.0), Some(3.0)]);
        assert_eq!((both.first_token_ms, both.peak_bytes), (Some(20.0), Some(7.0)));
    }

    #[test]
    fn ratios_are_to_the_best_peer_there_is() {
        let run = |rate: f64| Run { rates: [Some(rate), None, None], ..Run::default() };
        let mut case = Case { name: "s15/q8/t1".to_owned(), runs: [vec![run(30.0), run(10.0), run(20.0)], vec![run(40.0)], Vec::new()] };
        assert_eq!(case.ratio(0), Some(0.5));
        case.runs[2].push(run(80.0));
        assert_eq!((case.ratio(0), case.ratio(1)), (Some(0.25), None));
        let text = table(&case);
        assert!(text.lines().nth(2).is_some_and(|line| line.ends_with("20.0        40.0        80.0        0.25           -")), "{text}");
        let rows = rows(&case);
        assert_eq!(rows.iter().map(|row| row.id.as_str()).next(), Some("peers/s15/q8/t1/prefill_128/dmexp"));
        assert_eq!(rows.len(), 4, "what there is none of is no row");
    }
}

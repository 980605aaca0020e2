//! `dmexp bench` of a GPU: what was measured beside what it should cost, and the costs alone.

use super::bench::Bench;
use super::failure::{Outcome, request};
use super::output::{grouped, json, shown, table};
use dmexp_format::{DType, KvDType};
use dmexp_tools::bench::Wanted;
use dmexp_tools::cuda::bench::{Report, Request, Row, run as measure, shape_costs};
use dmexp_tools::cuda::{Cost, H200, Options};
use dmexp_tools::decode::Loaded;
use indicatif::ProgressBar;
use serde_json::{Value, json};
use std::io::{self, Write};

/// What the columns of costs are.
const COSTS: &str = "Costs: bytes / (0.7 x 4.3 TB/s) + launches x 1.3 us (as one graph) or 5 us (each by itself) + chains of additions over positions x 4 cycles of 1.755 GHz, for an H200; at best bytes / 4.3 TB/s. Reckoned, not measured.";

/// Measures on the GPU of this number.
pub(super) fn run(command: &Bench, number: u32, wanted: Wanted<'_>, bar: &ProgressBar) -> Outcome {
    for (given, option) in [(!command.threads.is_empty(), "--threads"), (!command.simd.is_empty(), "--simd"), (command.csv, "--csv")] {
        if given {
            return Err(request(format!("{option} is for this machine's processor"), "leave it or --device cuda out"));
        }
    }
    let loaded = wanted.exports;
    let options = Options { ordinal: number, graphs: !command.on.no_graph, ..Options::default() };
    let report = measure(&Request { wanted, options }, &mut |done, total| {
        bar.set_length(total);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    let report = report?;
    if command.json {
        let rows = report.rows.iter().filter_map(|row| Some(row_json(row, loaded.get(row.export)?)));
        return Ok(json(&json!({ "device": report.device, "graphs": !command.on.no_graph, "rows": rows.collect::<Vec<_>>() }))?);
    }
    let mut out = io::stdout().lock();
    writeln!(out, "{}\n\n{}\n{COSTS}", text(&report, loaded), report.device)?;
    Ok(out.flush()?)
}

fn text(report: &Report, loaded: &[Loaded]) -> String {
    let header =
        ["model", "kv", "test", "tokens/s", "lowest", "highest", "us", "should cost us", "launches", "read MB", "of 4.3 TB/s", "memory MB"];
    let rows = report.rows.iter().filter_map(|row| {
        let path = loaded.get(row.export)?.path();
        let name = path.file_stem().unwrap_or(path.as_os_str()).to_string_lossy();
        let of_cost = |figure: &dyn Fn(&Cost) -> String| row.cost.as_ref().map_or_else(|| "-".to_owned(), figure);
        let rate = row.rate()?;
        let at = |place: Option<&f64>| place.map_or_else(String::new, |rate| format!("{rate:.1}"));
        Some([
            shown(&name),
            row.kv.name().to_owned(),
            row.test.to_string(),
            format!("{rate:.1}"),
            at(row.rates.first()),
            at(row.rates.last()),
            format!("{:.1}", 1e6 / rate),
            of_cost(&|cost| microseconds(cost.seconds)),
            of_cost(&|cost| cost.launches.to_string()),
            of_cost(&|cost| megabytes(cost.bytes)),
            of_cost(&|cost| format!("{:.1}%", 100.0 * rate * cost.bytes as f64 / H200.bandwidth)),
            megabytes(row.bytes),
        ])
    });
    table(header, &[3, 4, 5, 6, 7, 8, 9, 10, 11], rows)
}

fn row_json(row: &Row, loaded: &Loaded) -> Value {
    json!({
        "export": loaded.path().to_string_lossy(),
        "kv": row.kv.name(),
        "test": row.test.name(),
        "tokens": row.test.tokens().map(|(tokens, _)| tokens),
        "context": row.test.tokens().map(|(_, context)| context),
        "rates": row.rates,
        "rate": row.rate(),
        "device_bytes": row.bytes,
        "cost": row.cost.as_ref().map(cost_json),
    })
}

fn cost_json(cost: &Cost) -> Value {
    json!({
        "machine": H200.name,
        "bytes": cost.bytes,
        "launches": cost.launches,
        "seconds_of_chains": cost.chains,
        "seconds": cost.seconds,
        "seconds_without_graph": cost.seconds_alone,
        "seconds_at_best": cost.floor,
    })
}

fn microseconds(seconds: f64) -> String {
    format!("{:.1}", 1e6 * seconds)
}

fn megabytes(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / 1e6)
}

/// What steps of known shapes should cost, for which no GPU is needed.
pub(super) fn costs(command: &Bench, dtype: DType) -> Outcome {
    let kv = command.kv.first().copied().unwrap_or(KvDType::F16);
    if !dtype.is_weight() {
        return Err(request(format!("{dtype} is no type of weights"), "one of f32, f16, bf16, q8, q4"));
    }
    let found = shape_costs(dtype, kv)?;
    if command.json {
        let shapes = found.iter().map(|(name, context, cost)| json!({ "shape": name, "context": context, "cost": cost_json(cost) }));
        return Ok(json(&json!({ "dtype": dtype.name(), "kv": kv.name(), "shapes": shapes.collect::<Vec<_>>() }))?);
    }
    let header =
        ["shape", "position", "read MB", "launches", "chains us", "us", "tokens/s", "us without graph", "at best us", "at best tokens/s"];
    let rows = found.iter().map(|(name, context, cost)| {
        [
            (*name).to_owned(),
            (context - 1).to_string(),
            megabytes(cost.bytes),
            cost.launches.to_string(),
            microseconds(cost.chains),
            microseconds(cost.seconds),
            grouped((1.0 / cost.seconds) as u64),
            microseconds(cost.seconds_alone),
            microseconds(cost.floor),
            grouped((1.0 / cost.floor) as u64),
        ]
    });
    let mut out = io::stdout().lock();
    writeln!(
        out,
        "{}\n\nAll matrices in {dtype}, keys and values in {kv}; dormouse: factors as codes, and no old position computed again.\n{COSTS}",
        table(header, &[1, 2, 3, 4, 5, 6, 7, 8, 9], rows)
    )?;
    Ok(out.flush()?)
}

//! What `dmexp bench` prints.

use super::bench::Bench;
use super::output::{bytes, shown, table};
use dmexp::simd::Level;
use dmexp_format::arch::Architecture;
use dmexp_tools::bench::{Report, Row, processor};
use dmexp_tools::decode::{Loaded, physical_cores};
use dmexp_tools::error::Result;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;

/// What is said of a file.
struct Model<'a> {
    path: &'a Path,
    unit: &'static str,
    dtype: &'static str,
    file_bytes: u64,
}

impl<'a> Model<'a> {
    fn all(loaded: &'a [Loaded]) -> Result<Vec<Self>> {
        loaded.iter().map(Self::of).collect()
    }

    fn of(loaded: &'a Loaded) -> Result<Self> {
        let file = loaded.file()?;
        let mut kinds = BTreeMap::new();
        for tensor in file.tensors().filter(|tensor| tensor.view.dtype().is_weight()) {
            *kinds.entry(tensor.view.dtype().name()).or_insert(0) += tensor.view.bytes().len() as u64;
        }
        let dtype = kinds.into_iter().max_by_key(|(_, bytes)| *bytes).map_or("-", |(name, _)| name);
        let unit = match file.architecture() {
            Architecture::Dormouse => "bytes/s",
            Architecture::Sequential => "predictions/s",
            _ => "tokens/s",
        };
        Ok(Self { path: loaded.path(), unit, dtype, file_bytes: loaded.bytes().len() as u64 })
    }

    fn name(&self) -> String {
        self.path.file_stem().unwrap_or(self.path.as_os_str()).to_string_lossy().into_owned()
    }
}

/// Milliseconds a token, byte or prediction.
fn milliseconds(row: &Row) -> Option<f64> {
    row.rate().map(|rate| 1000.0 / rate)
}

fn kv(row: &Row) -> &'static str {
    row.setting.kv.map_or("-", dmexp_format::KvDType::name)
}

/// A table, and below it what is true of all rows.
pub(super) fn text(report: &Report, loaded: &[Loaded]) -> Result<String> {
    let models = Model::all(loaded)?;
    let header = [
        "model",
        "dtype",
        "kv",
        "threads",
        "simd",
        "test",
        "rate",
        "lowest",
        "highest",
        "unit",
        "per cpu s",
        "ms",
        "memory MB",
        "read MB",
        "bandwidth",
    ];
    let rows = report.rows.iter().filter_map(|row| {
        let model = models.get(row.export)?;
        let (rate, (lowest, highest)) = (row.rate(), row.range().unzip());
        let figure = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), figure);
        let unit = match row.no_room {
            Some((needed, room)) => format!("no room: {needed} of {room} positions"),
            None => model.unit.to_owned(),
        };
        Some([
            shown(&model.name()),
            model.dtype.to_owned(),
            kv(row).to_owned(),
            row.setting.threads.to_string(),
            row.setting.level.name().to_owned(),
            row.test.to_string(),
            figure(rate),
            figure(lowest),
            figure(highest),
            unit,
            figure(row.cpu_rate()),
            figure(milliseconds(row)),
            figure(Some((model.file_bytes + row.session_bytes as u64) as f64 / 1e6)),
            figure(row.read_bytes.map(|bytes| bytes as f64 / 1e6)),
            row.share().map_or_else(|| "-".to_owned(), |share| format!("{:.0}%", share * 100.0)),
        ])
    });
    let mut text = table(header, &[3, 6, 7, 8, 10, 11, 12, 13, 14], rows);
    text.push_str("\n\n");
    for line in below(report, &models) {
        text.push_str(&line);
        text.push('\n');
    }
    Ok(text)
}

/// What is said below the table.
fn below(report: &Report, models: &[Model<'_>]) -> Vec<String> {
    let cpu = processor().unwrap_or_else(|| "a processor that the system does not name".to_owned());
    let mut lines = vec![format!("{cpu}; {} cores; at best {}", physical_cores(), Level::best().name())];
    let mut known = Vec::new();
    for row in &report.rows {
        let (Some(bandwidth), Some(model)) = (row.bandwidth(), models.get(row.export)) else { continue };
        if known.contains(&(row.export, row.setting.threads)) {
            continue;
        }
        known.push((row.export, row.setting.threads));
        let threads = if row.setting.threads == 1 { "1 thread reads".to_owned() } else { format!("{} threads read", row.setting.threads) };
        lines.push(format!("memory as large as the weights of {}: {threads} {:.1} GB/s", shown(&model.name()), bandwidth / 1e9));
    }
    if let Some(peak) = report.peak_memory {
        lines.push(format!("most memory of the whole process, mapped files counted: {}", bytes(peak)));
    }
    lines
}

/// Four digits.
fn figure(value: f64) -> String {
    match value {
        1000.0.. => format!("{value:.0}"),
        100.0.. => format!("{value:.1}"),
        10.0.. => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

const COLUMNS: &str = "export,dtype,file_bytes,kv,threads,simd,test,tokens,context,unit,rate,lowest,highest,rate_per_cpu_second,ms,session_bytes,read_bytes,bandwidth_bytes_per_s,share_of_bandwidth,positions_needed,positions_there";

/// A line a row; what there is none of is empty.
pub(super) fn csv(report: &Report, loaded: &[Loaded]) -> Result<String> {
    let models = Model::all(loaded)?;
    let mut text = format!("{COLUMNS}\n");
    for (row, model) in report.rows.iter().filter_map(|row| Some((row, models.get(row.export)?))) {
        let cells = [
            quoted(&model.path.to_string_lossy()),
            model.dtype.to_owned(),
            model.file_bytes.to_string(),
            row.setting.kv.map_or_else(String::new, |kv| kv.name().to_owned()),
            row.setting.threads.to_string(),
            row.setting.level.name().to_owned(),
            row.test.name().to_owned(),
            cell(row.test.tokens().map(|(tokens, _)| tokens)),
            cell(row.test.tokens().map(|(_, context)| context)),
            model.unit.to_owned(),
            cell(row.rate()),
            cell(row.range().map(|(lowest, _)| lowest)),
            cell(row.range().map(|(_, highest)| highest)),
            cell(row.cpu_rate()),
            cell(milliseconds(row)),
            row.session_bytes.to_string(),
            cell(row.read_bytes),
            cell(row.bandwidth()),
            cell(row.share()),
            cell(row.no_room.map(|(needed, _)| needed)),
            cell(row.no_room.map(|(_, room)| room)),
        ];
        text.push_str(&cells.join(","));
        text.push('\n');
    }
    Ok(text)
}

fn cell(value: Option<impl ToString>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

/// A text as CSV has it: in quotes where it has commas, quotes or line ends of its own.
fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}

/// Everything, with the rate of each repetition.
pub(super) fn as_json(report: &Report, loaded: &[Loaded], command: &Bench) -> Result<Value> {
    let models = Model::all(loaded)?;
    let rows = report.rows.iter().filter_map(|row| {
        let model = models.get(row.export)?;
        let (lowest, highest) = row.range().unzip();
        Some(json!({
            "export": model.path.to_string_lossy(),
            "dtype": model.dtype,
            "file_bytes": model.file_bytes,
            "kv": row.setting.kv.map(dmexp_format::KvDType::name),
            "threads": row.setting.threads,
            "simd": row.setting.level.name(),
            "test": row.test.name(),
            "tokens": row.test.tokens().map(|(tokens, _)| tokens),
            "context": row.test.tokens().map(|(_, context)| context),
            "unit": model.unit,
            "rate": row.rate(),
            "lowest": lowest,
            "highest": highest,
            "rates": row.rates,
            "rate_per_cpu_second": row.cpu_rate(),
            "ms": milliseconds(row),
            "session_bytes": row.session_bytes,
            "read_bytes": row.read_bytes,
            "bandwidth_bytes_per_s": row.bandwidth(),
            "share_of_bandwidth": row.share(),
            "no_room": row.no_room.map(|(needed, room)| json!({ "positions_needed": needed, "positions_there": room })),
        }))
    });
    Ok(json!({
        "processor": processor(),
        "cores": physical_cores(),
        "best_simd": Level::best().name(),
        "load": command.load.name(),
        "repetitions": command.repetitions,
        "peak_memory_bytes": report.peak_memory,
        "rows": rows.collect::<Vec<_>>(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_four_digits() {
        assert_eq!([12345.6, 1234.5, 123.45, 12.345, 1.2345, 0.0123].map(figure), ["12346", "1234", "123.5", "12.35", "1.234", "0.012"]);
    }

    #[test]
    fn paths_in_csv_are_quoted_where_they_must_be() {
        assert_eq!([quoted("a b.dmexp"), quoted("a,\"b\".dmexp")], ["a b.dmexp", "\"a,\"\"b\"\".dmexp\""]);
    }
}

//! `docs/figures/NAME.json`: what a measurement gave, with the commands that printed it, the machine and the version.

use crate::bench::Row;
use crate::failure::{Failure, Outcome};
use crate::{paths, process};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// One file.
pub(super) struct Record {
    /// What a reader types to get the rows.
    pub(super) commands: Vec<String>,
    /// Processor, cores and memory in a line, and what else the machine did.
    pub(super) machine: String,
    /// The version of dmexp and the commit.
    pub(super) version: String,
    pub(super) rows: Vec<Row>,
}

/// Where the files are.
pub(super) fn folder() -> PathBuf {
    paths::root().join("docs/figures")
}

impl Record {
    pub(super) fn read(path: &Path) -> Outcome<Self> {
        let wrong = |why: &str| Failure::found_wrong(format!("{}: {why}; measure it anew: cargo xtask figures --measure", path.display()));
        let text =
            std::fs::read_to_string(path).map_err(|error| Failure::cannot_run(format!("cannot read {}: {error}", path.display())))?;
        let value: Value = serde_json::from_str(&text).map_err(|error| wrong(&format!("this is no JSON: {error}")))?;
        let said = |key: &str| value[key].as_str().map(str::to_owned).ok_or_else(|| wrong(&format!("there is no text `{key}`")));
        let commands: Vec<_> = value["commands"].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect();
        let rows: Option<Vec<Row>> = value["rows"].as_array().and_then(|rows| rows.iter().map(Row::from_json).collect());
        let rows = rows.filter(|rows| !rows.is_empty()).ok_or_else(|| wrong("`rows` is no list of {id, value, unit}"))?;
        if commands.is_empty() {
            return Err(wrong("no command is named"));
        }
        Ok(Self { commands, machine: said("machine")?, version: said("version")?, rows })
    }

    /// As it is written: a row a line, so that a change of one is a change of one line.
    pub(super) fn text(&self) -> String {
        let mut text = format!(
            "{{\n  \"commands\": {},\n  \"machine\": {},\n  \"version\": {},\n  \"rows\": [",
            json!(self.commands),
            json!(self.machine),
            json!(self.version)
        );
        for (number, row) in self.rows.iter().enumerate() {
            let _ = write!(text, "{}\n    {}", if number == 0 { "" } else { "," }, row.to_json());
        }
        text + "\n  ]\n}\n"
    }
}

/// Every file, and every figure by its id.
pub(super) struct Figures {
    records: BTreeMap<String, Record>,
    /// The file and the row of each id.
    places: BTreeMap<String, (String, usize)>,
}

impl Figures {
    pub(super) fn read() -> Outcome<Self> {
        let folder = folder();
        let cannot = |error: std::io::Error| Failure::cannot_run(format!("cannot read {}: {error}", folder.display()));
        let mut records = BTreeMap::new();
        for entry in std::fs::read_dir(&folder).map_err(cannot)? {
            let path = entry.map_err(cannot)?.path();
            if path.extension().is_some_and(|kind| kind == "json") {
                let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
                records.insert(name, Record::read(&path)?);
            }
        }
        Self::of(records)
    }

    pub(super) fn of(records: BTreeMap<String, Record>) -> Outcome<Self> {
        let mut places: BTreeMap<String, (String, usize)> = BTreeMap::new();
        for (name, record) in &records {
            for (number, row) in record.rows.iter().enumerate() {
                if let Some((other, _)) = places.insert(row.id.clone(), (name.clone(), number)) {
                    return Err(Failure::found_wrong(format!("docs/figures: {} is in {other}.json and in {name}.json", row.id)));
                }
            }
        }
        Ok(Self { records, places })
    }

    pub(super) fn record(&self, name: &str) -> Option<&Record> {
        self.records.get(name)
    }

    pub(super) fn row(&self, id: &str) -> Option<&Row> {
        let (name, number) = self.places.get(id)?;
        self.records.get(name)?.rows.get(*number)
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.places.len()
    }
}

/// This machine in a line, without its name.
pub(super) fn machine(note: &str) -> String {
    let said = |file: &str, key: &str| {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        let line = text.lines().find(|line| line.starts_with(key)).and_then(|line| line.split_once(':'))?;
        Some(line.1.trim().to_owned())
    };
    let processor = said("/proc/cpuinfo", "model name").unwrap_or_else(|| std::env::consts::ARCH.to_owned());
    let flags = said("/proc/cpuinfo", "flags").unwrap_or_default();
    let sets = [("avx2", "AVX2"), ("avx512f", "AVX-512"), ("avx512_vnni", "VNNI"), ("amx_tile", "AMX")];
    let sets: Vec<_> = sets.iter().filter(|(flag, _)| flags.split(' ').any(|word| word == *flag)).map(|(_, name)| *name).collect();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let kilobytes = said("/proc/meminfo", "MemTotal").and_then(|text| text.trim_end_matches(" kB").parse::<f64>().ok());
    let memory = kilobytes.map_or_else(String::new, |kilobytes| format!(", {:.0} GB of memory", kilobytes * 1024.0 / 1e9));
    let sets = if sets.is_empty() { String::new() } else { format!(" ({})", sets.join(", ")) };
    let note = if note.is_empty() { String::new() } else { format!("; {note}") };
    format!("{processor}{sets}, {cores} cores{memory}{note}")
}

/// The version of this repository.
pub(super) fn version() -> Outcome<String> {
    let commit = process::capture(Command::new("git").current_dir(paths::root()).args(["rev-parse", "--short", "HEAD"]))?;
    Ok(format!("{} at {}", env!("CARGO_PKG_VERSION"), commit.trim()))
}

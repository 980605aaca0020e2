//! `cargo xtask bench`: measures, and writes the figures as a table and as JSON.

pub(crate) mod chip;
mod command;
mod dormouse;
mod export;
pub(crate) mod host;
mod peers;

use crate::failure::{Failure, Outcome};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::path::PathBuf;

pub(crate) const HELP: &str = "\
Usage: cargo xtask bench [OPTIONS]

Measures everything that is measured and prints it as a table. Figures of emulated chips are executed instructions and cycles
by the table of costs in boards/plugin; they are the same on every machine and under any load.

Options:
  --only PATTERN   Only rows whose id contains PATTERN; * stands for any run of characters
  --json FILE      Also write the rows as a JSON list of {id, value, unit}, with min and max of
                   what was repeated; docs/figures has those that documents show (cargo xtask figures)
  --list           Print the ids and units without measuring
  --peers          Measure llama.cpp and candle beside this machine's own rates, on the same models: gets and builds them first,
                   under target/peers. With DMEXP_SMOLLM2 naming SmolLM2's GGUF file, on that too. PATTERN is of model and type
";

/// What a measurement yields: an id that never changes once published, and a unit.
pub(crate) struct RowSpec {
    pub(crate) id: String,
    pub(crate) unit: &'static str,
}

/// One run that yields the values of its rows together, in their order.
pub(crate) struct Measurement {
    pub(crate) rows: Vec<RowSpec>,
    pub(crate) measure: Box<dyn Fn() -> Outcome<Vec<f64>>>,
}

/// One line of the result.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row {
    pub(crate) id: String,
    pub(crate) value: f64,
    pub(crate) unit: String,
    /// The least and the most of several rounds, of which `value` is the median.
    pub(crate) range: Option<[f64; 2]>,
}

impl Row {
    pub(crate) fn new(id: String, value: f64, unit: &str) -> Self {
        Self { id, value, unit: unit.to_owned(), range: None }
    }

    /// `{id, value, unit}`, with `min` and `max` where there were several rounds.
    pub(crate) fn to_json(&self) -> Value {
        let mut row = json!({ "id": self.id, "value": number(self.value), "unit": self.unit });
        if let Some([min, max]) = self.range {
            row["min"] = number(min);
            row["max"] = number(max);
        }
        row
    }

    /// The inverse; `None` where it is no such object.
    pub(crate) fn from_json(row: &Value) -> Option<Self> {
        let range = row["min"].as_f64().zip(row["max"].as_f64()).map(|(min, max)| [min, max]);
        let (id, unit) = (row["id"].as_str()?.to_owned(), row["unit"].as_str()?.to_owned());
        Some(Self { id, value: row["value"].as_f64()?, unit, range })
    }
}

/// A whole number as one.
fn number(value: f64) -> Value {
    if value.fract() == 0.0 && value.abs() < 2f64.powi(53) { json!(value as i64) } else { json!(value) }
}

pub(crate) fn main(words: Vec<OsString>) -> Outcome {
    use lexopt::prelude::*;
    let mut parser = lexopt::Parser::from_args(words);
    let mut pattern = String::new();
    let mut json_path = None;
    let (mut list, mut peers) = (false, false);
    while let Some(argument) = parser.next()? {
        match argument {
            Long("only") => pattern = parser.value()?.string()?,
            Long("json") => json_path = Some(PathBuf::from(parser.value()?)),
            Long("list") => list = true,
            Long("peers") => peers = true,
            other => return Err(other.unexpected().into()),
        }
    }
    if peers {
        return peers::main(&pattern, list, json_path);
    }
    let mut chosen = chip::measurements();
    chosen.extend(crate::networks::measurements());
    chosen.extend(host::measurements());
    chosen.extend(command::measurements());
    chosen.extend(dormouse::measurements());
    chosen.extend(export::measurements());
    chosen.retain(|measurement| measurement.rows.iter().any(|row| matches(&pattern, &row.id)));
    if chosen.is_empty() {
        return Err(Failure::cannot_run(format!("no row matches `{pattern}`; --list prints the ids")));
    }
    if list {
        let rows = chosen.iter().flat_map(|measurement| &measurement.rows);
        for row in rows.filter(|row| matches(&pattern, &row.id)) {
            println!("{}  {}", row.id, row.unit);
        }
        return Ok(());
    }
    let mut rows = Vec::new();
    for measurement in chosen {
        rows.extend(measured(measurement)?);
    }
    rows.retain(|row| matches(&pattern, &row.id));
    print!("{}", table(&rows));
    let Some(path) = json_path else {
        return Ok(());
    };
    std::fs::write(&path, as_json(&rows)).map_err(|error| Failure::cannot_run(format!("cannot write {}: {error}", path.display())))
}

fn measured(measurement: Measurement) -> Outcome<Vec<Row>> {
    let values = (measurement.measure)()?;
    if values.len() != measurement.rows.len() {
        let ids: Vec<_> = measurement.rows.into_iter().map(|row| row.id).collect();
        return Err(Failure::cannot_run(format!("measured {} values for the {} rows {}", values.len(), ids.len(), ids.join(", "))));
    }
    let rows = measurement.rows.into_iter().zip(values);
    Ok(rows.map(|(RowSpec { id, unit }, value)| Row::new(id, value, unit)).collect())
}

/// Whether `pattern` occurs in `id`; its pieces between asterisks must occur one after the other.
fn matches(pattern: &str, id: &str) -> bool {
    let mut rest = id;
    pattern.split('*').all(|piece| match rest.split_once(piece) {
        Some((_, after)) => {
            rest = after;
            true
        }
        None => false,
    })
}

/// A whole number in full, anything else with three digits after the point.
fn shown(value: f64) -> String {
    if value.fract() == 0.0 { format!("{value}") } else { format!("{value:.3}") }
}

fn table(rows: &[Row]) -> String {
    let id_width = rows.iter().map(|row| row.id.len()).max().unwrap_or(0);
    let value_width = rows.iter().map(|row| shown(row.value).len()).max().unwrap_or(0);
    let line = |row: &Row| format!("{:<id_width$}  {:>value_width$}  {}\n", row.id, shown(row.value), row.unit);
    rows.iter().map(line).collect::<Vec<_>>().concat()
}

fn as_json(rows: &[Row]) -> String {
    format!("{:#}\n", rows.iter().map(Row::to_json).collect::<Value>())
}

#[cfg(test)]
mod tests {
    use super::{Row, as_json, matches, table};

    #[test]
    fn patterns_match_anywhere_and_over_asterisks() {
        let id = "chip/an386/stories260K/f32/kvf32/instructions_per_token";
        for pattern in ["", "an386", "chip/*/f32", "*instructions*"] {
            assert!(matches(pattern, id), "{pattern}");
        }
        for pattern in ["an500", "f32/*/chip", "chip/*/bf16"] {
            assert!(!matches(pattern, id), "{pattern}");
        }
    }

    #[test]
    fn rows_are_aligned_and_whole_numbers_stay_whole() {
        let rows =
            [Row::new("a".to_owned(), 1234.0, "bytes"), Row { range: Some([0.25, 2.0]), ..Row::new("long".to_owned(), 0.5, "tokens/s") }];
        assert_eq!(table(&rows), "a      1234  bytes\nlong  0.500  tokens/s\n");
        let read: serde_json::Value = serde_json::from_str(&as_json(&rows)).unwrap();
        assert_eq!(read[0]["value"], 1234);
        assert_eq!(read[1]["unit"], "tokens/s");
        let read: Vec<_> = read.as_array().unwrap().iter().filter_map(Row::from_json).collect();
        assert_eq!(read, rows);
    }
}

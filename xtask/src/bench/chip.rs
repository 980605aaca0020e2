//! The rows `chip/...`: what a firmware weighs, and what it executes on the emulated board.

use super::{Measurement, RowSpec};
use crate::board::{self, Board};
use crate::elf::Firmware;
use crate::emulator;
use crate::failure::{Failure, Outcome};
use crate::models::{self, Source};
use crate::{plugin, qemu};
use std::path::PathBuf;

/// Steps that are counted: positions 0 to 31.
const POSITIONS: u32 = 32;

/// The context for which arenas are compared.
const CONTEXT: u32 = 256;

/// Types of weights and of keys and values that are counted.
const TYPES: &[(&str, &str)] = &[("f32", "f32"), ("f32", "f16"), ("f16", "f16"), ("bf16", "f16")];

/// Every measurement of every board.
pub(crate) fn measurements() -> Vec<Measurement> {
    let mut all = Vec::new();
    for board in board::ALL {
        all.push(sizes(board));
        for source in [models::STORIES260K, models::STORY].into_iter().filter(Source::is_here) {
            all.push(arena(board, source));
            all.extend(TYPES.iter().map(|types| steps(board, source, *types)));
        }
    }
    all
}

/// Marks that a board's firmware must keep with the story model, f32 weights and cache: a token's instructions, mean of the positions; bytes of stack; and bytes of arena
/// for [`CONTEXT`] positions with an f16 cache.
const MARKS: &[(&str, [f64; 3])] = &[("an386", [640_000.0, 2_000.0, 175_000.0])];

/// Refuses a firmware that keeps one of its marks no more. All three figures are the same on every machine.
pub(crate) fn check_marks(board: &'static Board) -> Outcome {
    let Some((_, marks)) = MARKS.iter().find(|(name, _)| *name == board.name) else { return Ok(()) };
    let mut rows = Vec::new();
    for measurement in [steps(board, models::STORY, ("f32", "f32")), arena(board, models::STORY)] {
        rows.extend(super::measured(measurement)?);
    }
    rows.retain(|row| !row.id.ends_with("cycles_model_per_token"));
    print!("{}", super::table(&rows));
    for (row, most) in rows.iter().zip(marks) {
        if row.value > *most {
            return Err(Failure::found_wrong(format!("{} is {}, more than its mark of {most}", row.id, super::shown(row.value))));
        }
    }
    Ok(())
}

fn row(board: &Board, name: &str, unit: &'static str) -> RowSpec {
    RowSpec { id: format!("chip/{}/{name}", board.name), unit }
}

fn firmware(board: &Board, source: Source, dtype: &str) -> Outcome<PathBuf> {
    board::build(board, &[], &source.export(dtype)?)
}

/// What the linked firmware weighs.
fn sizes(board: &'static Board) -> Measurement {
    let names = ["text_bytes", "rodata_bytes_without_model", "flash_bytes_without_model"];
    let measure = || {
        let firmware = Firmware::read(&firmware(board, models::STORY, qemu::DEFAULT_DTYPE)?)?;
        let bytes = [firmware.text, firmware.rodata, firmware.code_without_model()];
        Ok(bytes.map(|bytes| bytes as f64).to_vec())
    };
    Measurement { rows: names.iter().map(|name| row(board, name, "bytes")).collect(), measure: Box::new(measure) }
}

/// What a session takes of RAM, as the firmware itself says.
fn arena(board: &'static Board, source: Source) -> Measurement {
    let name = format!("{}/arena_bytes_ctx{CONTEXT}_kvf16", source.name);
    let measure = move || {
        let elf = firmware(board, source, qemu::DEFAULT_DTYPE)?;
        let words = ["info".to_owned(), CONTEXT.to_string()];
        let options = emulator::Options { arguments: &words, ..Default::default() };
        let written = emulator::run(board, &elf, qemu::DEFAULT_LIMIT, &options)?;
        Ok(vec![figure(&written, "arena_bytes")?])
    };
    Measurement { rows: vec![row(board, &name, "bytes")], measure: Box::new(measure) }
}

/// What a step executes, mean over the positions, sampling (greedy) included; and the stack that it took.
fn steps(board: &'static Board, source: Source, (dtype, kv): (&'static str, &'static str)) -> Measurement {
    let name = |figure: &str| format!("{}/{dtype}/kv{kv}/{figure}", source.name);
    let rows = vec![
        row(board, &name("instructions_per_token"), "instructions"),
        row(board, &name("cycles_model_per_token"), "cycles"),
        row(board, &name("stack_peak_bytes"), "bytes"),
    ];
    let measure = move || {
        let elf = firmware(board, source, dtype)?;
        let words = ["bench".to_owned(), kv.to_owned(), POSITIONS.to_string()];
        let run = plugin::run(board, &elf, &words, qemu::DEFAULT_LIMIT, false)?;
        let expected = figure(&run.written, "regions")?;
        let counted = run.report.regions.len() as f64;
        if counted != expected || counted != f64::from(POSITIONS) {
            return Err(Failure::found_wrong(format!(
                "the firmware of {} speaks of {expected} counted steps of {POSITIONS}, the plugin saw {counted}",
                board.name
            )));
        }
        let sum = run.report.sum();
        Ok(vec![sum.instructions as f64 / counted, sum.cycles as f64 / counted, figure(&run.written, "stack_peak_bytes")?])
    };
    Measurement { rows, measure: Box::new(measure) }
}

/// The value of the line `@name value` in what a firmware wrote.
fn figure(written: &[u8], name: &str) -> Outcome<f64> {
    String::from_utf8_lossy(written)
        .lines()
        .filter_map(|line| line.strip_prefix('@')?.split_once(' '))
        .find(|&(key, _)| key == name)
        .and_then(|(_, value)| value.parse().ok())
        .ok_or_else(|| Failure::found_wrong(format!("the firmware wrote no line `@{name} NUMBER`")))
}

#[cfg(test)]
mod tests {
    use super::figure;

    #[test]
    fn figures_are_found_among_text() {
        let written = b"hello\n@regions 3\n@stack_peak_bytes 412\n";
        assert_eq!(figure(written, "stack_peak_bytes").unwrap(), 412.0);
        assert!(figure(written, "stack").is_err());
    }
}

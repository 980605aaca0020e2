//! `cargo xtask bits`: whether emulated boards compute the same logits as the host, bit for bit.

use crate::board::{self, Board};
use crate::emulator::{self, Load};
use crate::failure::{Failure, Outcome};
use crate::models::{self, Source};
use crate::{paths, process, qemu};
use std::ffi::OsString;
use std::path::Path;

pub(crate) const HELP: &str = "\
Usage: cargo xtask bits [BOARD]

Lets the host and each emulated board (or BOARD alone) compute the logits of the greedy text of every model, for every type of
weights and of keys and values, and compares them bit by bit. The model file is loaded into the board's memory and opened
there; `shifted` means that it lies at an odd address. Fails when a bit differs.
";

const DTYPES: &[&str] = &["f32", "f16", "bf16"];
const KV_DTYPES: &[&str] = &["f32", "f16"];

pub(crate) fn main(words: Vec<OsString>) -> Outcome {
    board::named(words)?.into_iter().try_for_each(|board| check(board, models::ALL))
}

/// Compares one board with the host, on those of `sources` that are here.
pub(crate) fn check(board: &Board, sources: &[Source]) -> Outcome {
    let mut differ = 0;
    let elf = board::build(board, &[], &models::STORY.export(qemu::DEFAULT_DTYPE)?)?;
    println!("{:<14}{:<8}{:<8}{:<16}{:>9}  logits", "model", "weights", "kv", "board", "positions");
    for &source in sources {
        if !source.is_here() {
            println!("{:<14}not compared: its checkpoint is not here", source.name);
            continue;
        }
        for dtype in DTYPES {
            let model = source.export(dtype)?;
            for kv in KV_DTYPES {
                differ += usize::from(!compare((board, &elf), source, &model, dtype, kv, 0)?);
            }
            differ += usize::from(!compare((board, &elf), source, &model, dtype, "f16", 1)?);
        }
    }
    if differ == 0 {
        return Ok(());
    }
    Err(Failure::found_wrong(format!("{}: {differ} rows differ from the host", board.name)))
}

/// One row: true when every bit is the same.
fn compare((board, elf): (&Board, &Path), source: Source, model: &Path, dtype: &str, kv: &str, shift: u64) -> Outcome<bool> {
    let len = std::fs::metadata(model).map_err(|error| Failure::cannot_run(format!("{}: {error}", model.display())))?.len();
    let positions = source.positions;
    let command = format!("file {shift} {len} logits {kv} {positions}");
    let words: Vec<String> = command.split(' ').map(str::to_owned).collect();
    let load = Load { file: model.to_path_buf(), shift };
    let options = emulator::Options { arguments: &words, load: Some(load), ..Default::default() };
    let chip = emulator::run(board, elf, qemu::DEFAULT_LIMIT, &options)?;
    let row_bytes = chip.len() / positions;
    if row_bytes == 0 || chip.len() % (positions * 4) != 0 {
        return Err(Failure::found_wrong(format!("{} wrote {} bytes, which are not {positions} rows of logits", board.name, chip.len())));
    }
    let tokens = greedy_tokens(source, &chip, row_bytes);
    let host = host_logits(model, kv, &tokens)?;
    let first = host.chunks(4).zip(chip.chunks(4)).position(|(a, b)| a != b);
    let verdict = match first {
        None if host.len() == chip.len() => "the same bits".to_owned(),
        None => format!("the host gives {} bytes, the board {}", host.len(), chip.len()),
        Some(at) => format!("DIFFER first at position {}, token {}", at * 4 / row_bytes, at % (row_bytes / 4)),
    };
    let place = if shift == 0 { board.name.to_owned() } else { format!("{} shifted", board.name) };
    println!("{:<14}{dtype:<8}{kv:<8}{place:<16}{positions:>9}  {verdict}", source.name);
    Ok(first.is_none() && host.len() == chip.len())
}

/// The tokens that the board fed: begin-of-text, then the best of each row, the lowest id first among equals.
fn greedy_tokens(source: Source, logits: &[u8], row_bytes: usize) -> Vec<u32> {
    let best = |row: &[u8]| {
        let logits = row.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes));
        let start = (0, f32::NEG_INFINITY);
        logits.enumerate().fold(start, |best, (token, logit)| if logit > best.1 { (token, logit) } else { best }).0 as u32
    };
    let rows = logits.chunks_exact(row_bytes).take(source.positions - 1);
    std::iter::once(source.first_token).chain(rows.map(best)).collect()
}

fn host_logits(model: &Path, kv: &str, tokens: &[u32]) -> Outcome<Vec<u8>> {
    let out = paths::root().join("target/models/logits.f32");
    let tokens: Vec<String> = tokens.iter().map(u32::to_string).collect();
    let mut command = models::dmexp()?;
    command.arg("logits").arg("--export").arg(model).args(["--kv", kv, "--tokens", &tokens.join(",")]).arg("--out").arg(&out);
    process::capture(&mut command)?;
    std::fs::read(&out).map_err(|error| Failure::cannot_run(format!("{}: {error}", out.display())))
}

//! The rows `chip/...`: what a firmware weighs, and what it executes on the emulated board.

use super::{Measurement, RowSpec};
use crate::board::{self, Board, Floats};
use crate::elf::Firmware;
use crate::emulator::{self, Load};
use crate::failure::{Failure, Outcome};
use crate::models::{self, Source};
use crate::{figures, made, plugin, qemu};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Steps that are counted: positions 0 to 31.
const POSITIONS: u32 = 32;

/// The time that a counted run may take: floats by subroutines are two thousand million instructions.
const LIMIT: Duration = Duration::from_mins(20);

/// The context for which arenas are compared.
const CONTEXT: u32 = 256;

/// Types of weights and of keys and values that are counted where floats are computed by a floating-point unit.
const TYPES: &[(&str, &str)] =
    &[("f32", "f32"), ("f32", "f16"), ("f16", "f16"), ("bf16", "f16"), ("q8", "f16"), ("q8", "q8"), ("q4", "f16"), ("q4", "q8")];

/// Those that are counted where floats are computed by subroutines.
const SOFTWARE_TYPES: &[(&str, &str)] = &[("f32", "f32"), ("bf16", "f16"), ("q8", "q8"), ("q4", "q8")];

/// Every measurement of every board.
pub(crate) fn measurements() -> Vec<Measurement> {
    let mut all = Vec::new();
    for board in board::ALL {
        all.push(sizes(board));
        for source in sources(board) {
            all.push(arena(board, source));
            let fitting = types(board).iter().filter(|(dtype, _)| board.load_address.is_some() || !board.too_large.contains(dtype));
            all.extend(fitting.map(|types| steps(board, source, *types)));
        }
        if board.load_address.is_some() {
            all.extend(["q8", "q4"].map(|dtype| kernels(board, dtype)));
        }
        if board.name == made::BOARD {
            all.extend(made::TYPES.map(|dtype| dormouse_steps(board, dtype)));
        }
    }
    all
}

/// The models that are measured on a board: its own alone where it has no room for others.
fn sources(board: &Board) -> Vec<Source> {
    let mut sources = vec![board.model];
    if board.load_address.is_some() {
        sources = vec![models::STORIES260K, models::STORY];
        // They have the same shape, and where floats are slow one is enough.
        let enough = if board.floats == Floats::Software && models::STORIES260K.is_here() { 1 } else { 2 };
        sources.truncate(enough);
    }
    sources.retain(Source::is_here);
    sources
}

fn types(board: &Board) -> &'static [(&'static str, &'static str)] {
    match board.floats {
        Floats::Hardware => TYPES,
        Floats::Software => SOFTWARE_TYPES,
    }
}

/// What a board's firmware must keep with its own model, for these types of weights and of keys and values.
struct Marks {
    board: &'static str,
    types: (&'static str, &'static str),
    /// A token's instructions, mean of the positions.
    instructions: f64,
    /// A token's cycles by the board's table of costs; not compared where it has none.
    cycles: f64,
    /// Bytes of stack.
    stack: f64,
}

/// For what has no mark.
const ANY: f64 = f64::INFINITY;

const MARKS: &[Marks] = &[
    // The default form of a multiply-add, two instructions, has the fewer cycles; the feature `vmla`, which an500 has, the fewer instructions.
    Marks { board: "an386", types: ("f32", "f32"), instructions: ANY, cycles: 1_350_000.0, stack: 2_048.0 },
    Marks { board: "an386", types: ("q8", "f16"), instructions: 580_000.0, cycles: 800_000.0, stack: 2_048.0 },
    Marks { board: "an386", types: ("q4", "f16"), instructions: 640_000.0, cycles: ANY, stack: 2_048.0 },
    Marks { board: "an500", types: ("f32", "f32"), instructions: 540_000.0, cycles: ANY, stack: 2_048.0 },
    Marks { board: "an500", types: ("q8", "f16"), instructions: 580_000.0, cycles: ANY, stack: 2_048.0 },
    Marks { board: "an505", types: ("q8", "f16"), instructions: 590_000.0, cycles: ANY, stack: 2_048.0 },
    Marks { board: "an547", types: ("q8", "f16"), instructions: 590_000.0, cycles: ANY, stack: 2_048.0 },
    Marks { board: "netduinoplus2", types: ("q8", "q8"), instructions: 610_000.0, cycles: ANY, stack: 2_048.0 },
    // 13, 19, 16 and 7 instructions a weight.
    Marks { board: "an385", types: ("q8", "q8"), instructions: 3_450_000.0, cycles: ANY, stack: 2_048.0 },
    Marks { board: "an385-v6m", types: ("q8", "q8"), instructions: 5_000_000.0, cycles: ANY, stack: 2_048.0 },
    Marks { board: "virt-imac", types: ("q8", "q8"), instructions: 4_110_000.0, cycles: ANY, stack: 2_048.0 },
    Marks { board: "virt-imafc", types: ("q8", "q8"), instructions: 1_820_000.0, cycles: ANY, stack: 2_048.0 },
    Marks { board: "microbit", types: ("q8", "q8"), instructions: 540_000.0, cycles: ANY, stack: 2_048.0 },
    Marks { board: "sifive_e", types: ("q8", "q8"), instructions: 520_000.0, cycles: ANY, stack: 2_048.0 },
];

/// Bytes of arena for [`CONTEXT`] positions of the story model with an f16 cache: the same on every board.
const ARENA_MARK: f64 = 175_000.0;

/// Refuses a firmware that keeps one of its marks no more, or for which documents show other figures. All figures are the same on every machine.
pub(crate) fn check_marks(board: &'static Board) -> Outcome {
    for marks in MARKS.iter().filter(|marks| marks.board == board.name) {
        let rows = super::measured(steps(board, board.model, marks.types))?;
        figures::hold(&rows)?;
        for row in rows {
            match row.id.rsplit('/').next() {
                Some("instructions_per_token") => keep(&row, marks.instructions)?,
                Some("cycles_model_per_token") => keep(&row, marks.cycles)?,
                Some("stack_peak_bytes") => keep(&row, marks.stack)?,
                _ => {}
            }
        }
    }
    if board.name == "an386" {
        let rows = super::measured(kernels(board, "q8"))?;
        figures::hold(&rows)?;
        for row in rows {
            keep(&row, KERNEL_MARK)?;
        }
    }
    if board.load_address.is_some() {
        check_kernels(board)?;
    }
    if board.model == models::STORY {
        let rows = super::measured(arena(board, board.model))?;
        figures::hold(&rows)?;
        for row in rows {
            keep(&row, ARENA_MARK)?;
        }
    }
    Ok(())
}

/// Instructions a weight of a q8 product.
const KERNEL_MARK: f64 = 1.7;

/// Products whose results are compared with exact sums on the chip: odd numbers of rows and columns, groups of every kind, other addresses.
const ODD_PRODUCTS: &[&str] = &[
    "7 172 32 0",
    "5 64 0 0",
    "5 33 8 0",
    "5 46 40 0",
    "1 4 0 0",
    "3 1 0 0",
    "3 600 0 0",
    "2 600 520 0",
    "5 2050 0 0",
    "1 8193 0 0",
    "3 47 32 1",
    "2 1000 512 0",
    "9 64 32 1",
    "2 100 24 2",
];

/// Products of floats, likewise: every length of what is left of a row.
const FLOAT_PRODUCTS: &[&str] = &[
    "7 172 0 0",
    "5 1 0 0",
    "4 2 0 0",
    "3 3 0 0",
    "3 4 0 0",
    "6 5 0 0",
    "3 6 0 0",
    "3 7 0 0",
    "2 8 0 0",
    "3 17 0 0",
    "3 26 0 0",
    "9 64 0 2",
];

/// Attention whose results are compared with the definition on the chip: heads, key/value heads, the width of a head, the first and the last position. Windows, lanes left empty, heads that the
/// kernels do not take, and more positions than sums of 32 bits have room for.
const ATTENTIONS: &[&str] = &[
    "8 4 8 0 0",
    "8 4 8 0 6",
    "8 4 8 0 30",
    "8 4 8 5 41",
    "2 2 16 3 9",
    "3 1 64 0 20",
    "2 1 12 2 11",
    "2 1 6 0 9",
    "1 1 8 0 600",
    "1 1 8 0 511",
    "1 1 8 0 512",
];

/// Refuses a firmware whose kernels give other bits than the definitions.
fn check_kernels(board: &Board) -> Outcome {
    let elf = firmware(board, board.model, qemu::DEFAULT_DTYPE)?;
    let mut checked = 0;
    let mut check = |command: &str, types: &[&str], cases: &[&str]| -> Outcome {
        for case in cases {
            for dtype in types {
                counted(board, &elf, &format!("{command} {dtype} {case}"))?;
                checked += 1;
            }
        }
        Ok(())
    };
    check("kernel", &["q8", "q4"], ODD_PRODUCTS)?;
    if board.floats == Floats::Hardware {
        check("kernel", &["f32", "f16", "bf16"], FLOAT_PRODUCTS)?;
        check("attend", &["f32", "f16", "q8"], ATTENTIONS)?;
    }
    println!("{checked} odd products and attentions are exact");
    Ok(())
}

/// The instructions of one product or attention, all of whose results are exact.
fn counted(board: &Board, elf: &Path, command: &str) -> Outcome<u64> {
    let words: Vec<String> = command.split(' ').map(str::to_owned).collect();
    let run = plugin::run(board, elf, &words, LIMIT, false)?;
    match figure(&run.written, "wrong")? {
        0.0 => Ok(run.report.sum().instructions),
        wrong => Err(Failure::found_wrong(format!("{}: {wrong} results of `{}` are wrong", board.name, words.join(" ")))),
    }
}

fn keep(row: &super::Row, most: f64) -> Outcome {
    print!("{}", super::table(std::slice::from_ref(row)));
    if row.value > most {
        return Err(Failure::found_wrong(format!("{} is {}, more than its mark of {most}", row.id, super::shown(row.value))));
    }
    Ok(())
}

fn row(board: &Board, name: &str, unit: &'static str) -> RowSpec {
    RowSpec { id: format!("chip/{}/{name}", board.name), unit }
}

fn firmware(board: &Board, source: Source, dtype: &str) -> Outcome<PathBuf> {
    board::build(board, &[board::MEASURE], &source.export(dtype)?)
}

/// What the linked firmware weighs.
fn sizes(board: &'static Board) -> Measurement {
    let names = ["text_bytes", "rodata_bytes_without_model", "flash_bytes_without_model", "code_bytes", "code_bytes_q8_alone"];
    let measure = || {
        let firmware = Firmware::read(&board::build(board, &[], &board.model.export(qemu::DEFAULT_DTYPE)?)?)?;
        let q8 = Firmware::read(&board::build_only(board, &["q8"], &board.model.export("q8")?)?)?;
        let bytes = [firmware.text, firmware.rodata, firmware.code_without_model(), firmware.code(), q8.code()];
        Ok(bytes.map(|bytes| bytes as f64).to_vec())
    };
    Measurement { rows: names.iter().map(|name| row(board, name, "bytes")).collect(), measure: Box::new(measure) }
}

/// What a session takes of RAM, as the firmware itself says.
fn arena(board: &'static Board, source: Source) -> Measurement {
    let context = CONTEXT.min(source.positions as u32);
    let name = format!("{}/arena_bytes_ctx{context}_kvf16", source.name);
    let measure = move || {
        let elf = firmware(board, source, qemu::DEFAULT_DTYPE)?;
        let words = ["info".to_owned(), context.to_string()];
        let options = emulator::Options { arguments: &words, ..Default::default() };
        let written = emulator::run(board, &elf, qemu::DEFAULT_LIMIT, &options)?;
        Ok(vec![figure(&written, "arena_bytes")?])
    };
    Measurement { rows: vec![row(board, &name, "bytes")], measure: Box::new(measure) }
}

/// What a step executes, mean over the positions, sampling (greedy) included; and the stack that it took.
fn steps(board: &'static Board, source: Source, (dtype, kv): (&'static str, &'static str)) -> Measurement {
    let name = |figure: &str| format!("{}/{dtype}/kv{kv}/{figure}", source.name);
    let mut rows = vec![
        row(board, &name("instructions_per_token"), "instructions"),
        row(board, &name("instructions_per_weight"), "instructions"),
        row(board, &name("stack_peak_bytes"), "bytes"),
    ];
    if board.costs.is_some() {
        rows.push(row(board, &name("cycles_model_per_token"), "cycles"));
    }
    let measure = move || {
        let elf = firmware(board, source, dtype)?;
        let words = ["bench".to_owned(), kv.to_owned(), POSITIONS.to_string()];
        let run = plugin::run(board, &elf, &words, LIMIT, false)?;
        let expected = figure(&run.written, "regions")?;
        let counted = run.report.regions.len() as f64;
        if counted != expected || counted != f64::from(POSITIONS) {
            return Err(Failure::found_wrong(format!(
                "the firmware of {} speaks of {expected} counted steps of {POSITIONS}, the plugin saw {counted}",
                board.name
            )));
        }
        let sum = run.report.sum();
        let instructions = sum.instructions as f64 / counted;
        let mut values = vec![instructions, instructions / f64::from(source.parameters), figure(&run.written, "stack_peak_bytes")?];
        if board.costs.is_some() {
            values.push(sum.cycles as f64 / counted);
        }
        Ok(values)
    };
    Measurement { rows, measure: Box::new(measure) }
}

/// What a byte of the made dormouse model executes, decoded exactly, mean over the positions; and the stack that it took.
fn dormouse_steps(board: &'static Board, dtype: &'static str) -> Measurement {
    let name = |figure: &str| format!("{}/{dtype}/{figure}", models::DORMOUSE.name);
    let rows = vec![row(board, &name("instructions_per_byte"), "instructions"), row(board, &name("stack_peak_bytes"), "bytes")];
    let measure = move || {
        let (elf, file) = (made::firmware(board)?, made::export(dtype)?);
        let len = std::fs::metadata(&file).map_err(|error| Failure::cannot_run(format!("{}: {error}", file.display())))?.len();
        let words: Vec<String> = format!("file 0 {len} bench f32 {POSITIONS}").split(' ').map(str::to_owned).collect();
        let options = emulator::Options { arguments: &words, load: Some(Load { file, shift: 0 }), ..Default::default() };
        let run = plugin::run_with(board, &elf, options, LIMIT, false)?;
        let counted = run.report.regions.len() as f64;
        if counted != f64::from(POSITIONS) {
            return Err(Failure::found_wrong(format!("the plugin saw {counted} counted steps, not {POSITIONS}")));
        }
        Ok(vec![run.report.sum().instructions as f64 / counted, figure(&run.written, "stack_peak_bytes")?])
    };
    Measurement { rows, measure: Box::new(measure) }
}

/// Shapes of single products that are counted: rows and columns, in groups of 32.
const SHAPES: &[(u32, u32)] = &[(64, 64), (172, 64), (64, 172)];

/// What one product of an integer matrix and a vector executes a weight: multipliers, scales and the way back to floats included, the activation's codes made before.
fn kernels(board: &'static Board, dtype: &'static str) -> Measurement {
    let name = |(rows, columns): (u32, u32)| row(board, &format!("kernel/{dtype}/{rows}x{columns}/instructions_per_mac"), "instructions");
    let measure = move || {
        let elf = firmware(board, board.model, qemu::DEFAULT_DTYPE)?;
        let weights = SHAPES.iter().map(|(rows, columns)| {
            let instructions = counted(board, &elf, &format!("kernel {dtype} {rows} {columns} 32 0"))?;
            Ok(instructions as f64 / f64::from(rows * columns))
        });
        weights.collect()
    };
    Measurement { rows: SHAPES.iter().map(|shape| name(*shape)).collect(), measure: Box::new(measure) }
}

/// The value of the line `@name value` in what a firmware wrote.
pub(crate) fn figure(written: &[u8], name: &str) -> Outcome<f64> {
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

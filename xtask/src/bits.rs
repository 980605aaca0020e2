//! `cargo xtask bits`: whether emulated boards compute the same logits as the host, bit for bit.

use crate::bench::chip::figure;
use crate::board::{self, Board, Floats};
use crate::elf::Firmware;
use crate::emulator::{self, Load};
use crate::failure::{Failure, Outcome};
use crate::models::{self, Source};
use crate::{made, networks, paths, process, qemu};
use std::ffi::OsString;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

#[path = "../../boards/app/src/floats.rs"]
mod floats;
pub(crate) mod table;

pub(crate) const HELP: &str = "\
Usage: cargo xtask bits [OPTIONS] [BOARD...]

Lets the host and each emulated board (or those named) compute the logits of the greedy text of every model, for every type of
weights and of keys and values, and compares them bit by bit. The model file is loaded into the board's memory and opened
there; `shifted` means that it lies at an odd address. A board without room for that has the model in its firmware. Single sums,
products and the like of 200,000 pairs of numbers come first. Fails when a bit differs.

On an386 the built-in model then runs once more with matrices in RAM (the option `ram` of include_model!), and a made model of
dormouse, decoded exactly. On an386, an385-v6m, virt-imac and microbit small networks replay their golden vectors, which the
host computed: with --networks these alone.

The whole context is compared on an386; on the other boards that of one model in integer weights and of the tiny model, and
of the rest the first positions: 32 where there is a floating-point unit, 4 where floats are computed by subroutines.

Options:
  --full           The whole context everywhere; it takes an hour
  --networks       Small networks alone
  --write          Write what was equal into docs/bits.md
";

/// The time that one row may take.
const LIMIT: Duration = Duration::from_mins(20);

/// Pairs of numbers that are added, subtracted, multiplied and divided.
const FLOATS: u32 = 200_000;

/// Types of weights, and the types of keys and values that are compared with each.
const TYPES: &[(&str, &[&str])] =
    &[("f32", &["f32", "f16", "q8"]), ("f16", &["f32", "f16"]), ("bf16", &["f32", "f16"]), ("q8", &["f16", "q8"]), ("q4", &["f16", "q8"])];

pub(crate) fn main(words: Vec<OsString>) -> Outcome {
    let (flags, words): (Vec<_>, Vec<_>) =
        words.into_iter().partition(|word| ["--full", "--networks", "--write"].iter().any(|flag| word == flag));
    let is_given = |name: &str| flags.iter().any(|flag| flag == name);
    let mut equal = Vec::new();
    for board in board::named(words)? {
        if !is_given("--networks") {
            equal.extend(check(board, models::ALL, is_given("--full"))?);
            if board.name == made::BOARD {
                equal.extend(check_dormouse(board)?);
            }
        }
        if networks::BOARDS.contains(&board.name) {
            equal.extend(networks::check_all(board)?);
        }
    }
    if is_given("--write") { table::write(&equal, is_given("--networks")) } else { Ok(()) }
}

/// One row: what is compared.
struct Case {
    source: Source,
    dtype: &'static str,
    kv: &'static str,
    /// Bytes past an aligned address at which the file lies.
    shift: u64,
    positions: usize,
    model: PathBuf,
    elf: PathBuf,
    /// Whether the board computes with the model in its firmware, though it could load one.
    built_in: bool,
}

/// Compares one board with the host, on those of `sources` that are here and for which it has room, and returns the rows, all of them equal.
pub(crate) fn check(board: &Board, sources: &[Source], full: bool) -> Outcome<Vec<table::Equal>> {
    println!("{:<14}{:<8}{:<8}{:<20}{:>9}  logits", "model", "weights", "kv", "board", "positions");
    let mut cases = Vec::new();
    for &source in sources {
        if !source.is_here() {
            println!("{:<14}not compared: its checkpoint is not here", source.name);
        } else if board.load_address.is_some() || source == board.model {
            cases.extend(cases_of(board, source, full)?);
        }
    }
    if let Some(case) = cases.first() {
        compare_floats(board, &case.elf)?;
    }
    let (next, differ) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let failures = Mutex::new(Vec::new());
    let work = || {
        while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
            match compare(board, case) {
                Ok(same) => _ = differ.fetch_add(usize::from(!same), Ordering::Relaxed),
                Err(failure) => {
                    failures.lock().unwrap_or_else(PoisonError::into_inner).push(failure);
                    next.store(cases.len(), Ordering::Relaxed);
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, NonZero::get) {
            scope.spawn(work);
        }
    });
    if let Some(failure) = failures.into_inner().unwrap_or_else(PoisonError::into_inner).into_iter().next() {
        return Err(failure);
    }
    let differ = differ.into_inner();
    if differ > 0 {
        return Err(Failure::found_wrong(format!("{}: {differ} rows differ from the host", board.name)));
    }
    if board.name == "an386" {
        check_hot_weights(board)?;
    }
    Ok(cases.iter().filter_map(|case| table::Equal::of(board, case)).collect())
}

/// The rows of one model on one board.
fn cases_of(board: &Board, source: Source, full: bool) -> Outcome<Vec<Case>> {
    let mut cases = Vec::new();
    let loads = board.load_address.is_some();
    let firmware = if loads { Some(board::build(board, &[board::MEASURE], &board.model.export(qemu::DEFAULT_DTYPE)?)?) } else { None };
    for (dtype, kv_dtypes) in TYPES.iter().filter(|(dtype, _)| loads || !board.too_large.contains(dtype)) {
        let model = source.export(dtype)?;
        let elf = match &firmware {
            Some(elf) => elf.clone(),
            None => kept(&board::build(board, &[board::MEASURE], &model)?, board, dtype)?,
        };
        let mut case = |kv: &'static str, shift| {
            let (model, elf) = (model.clone(), elf.clone());
            let positions =
                if full && (loads || source == models::TINY) { source.positions } else { positions(board, source, (dtype, kv), shift) };
            cases.push(Case { source, dtype, kv, shift, positions, model, elf, built_in: !loads });
        };
        for kv in *kv_dtypes {
            case(kv, 0);
        }
        if loads {
            case("f16", 1);
        }
    }
    Ok(cases)
}

/// The built-in model with matrices in RAM: as many bytes there as the firmware says, by the linker's table, and the same bits.
fn check_hot_weights(board: &Board) -> Outcome {
    let (source, dtype) = (board.model, "q8");
    let model = source.export(dtype)?;
    let elf = board::build(board, &[board::MEASURE, "hot-weights"], &model)?;
    let written = emulator::run(board, &elf, LIMIT, &emulator::Options { arguments: &["info".to_owned()], ..Default::default() })?;
    let said = figure(&written, "weights_in_ram")? as u64;
    let placed = Firmware::read(&elf)?.hot_weights;
    if said != placed || said == 0 {
        return Err(Failure::found_wrong(format!("{}: {said} bytes of weights in RAM by the firmware, {placed} in .data", board.name)));
    }
    println!("{:<30}{:<20}{placed:>9}  bytes in .data", "weights in RAM", board.name);
    let case = Case { source, dtype, kv: "f16", shift: 0, positions: source.positions, model, elf, built_in: true };
    if compare(board, &case)? { Ok(()) } else { Err(Failure::found_wrong(format!("{}: weights in RAM change the bits", board.name))) }
}

/// A made dormouse model, decoded exactly by firmware that reads such files.
fn check_dormouse(board: &Board) -> Outcome<Vec<table::Equal>> {
    let (source, elf, mut equal) = (models::DORMOUSE, made::firmware(board)?, Vec::new());
    for dtype in made::TYPES {
        let model = made::export(dtype)?;
        let case = Case { source, dtype, kv: "f32", shift: 0, positions: source.positions, model, elf: elf.clone(), built_in: false };
        if !compare(board, &case)? {
            return Err(Failure::found_wrong(format!("{}: the dormouse model differs from the host", board.name)));
        }
        equal.extend(table::Equal::of(board, &case));
    }
    Ok(equal)
}

/// How many positions tell enough: the long texts are those for which integers were made.
fn positions(board: &Board, source: Source, (dtype, kv): (&str, &str), shift: u64) -> usize {
    let long = if models::STORIES260K.is_here() { models::STORIES260K } else { models::STORY };
    let integers = matches!(dtype, "q8" | "q4");
    match board.floats {
        _ if board.name == "an386" || source == models::TINY || integers && source == long && shift == 0 => source.positions,
        // Where memory is what a chip of this kind has, this is what it has room for.
        _ if board.load_address.is_none() && integers && kv == "q8" => source.positions,
        Floats::Hardware => 32,
        Floats::Software => 4,
    }
}

/// A copy of a firmware under a name of its own: the next build writes to the same place.
fn kept(elf: &Path, board: &Board, dtype: &str) -> Outcome<PathBuf> {
    let copy = paths::root().join(format!("target/models/{}.{dtype}.elf", board.name));
    std::fs::copy(elf, &copy).map_err(|error| Failure::cannot_run(format!("{}: {error}", copy.display())))?;
    Ok(copy)
}

/// Compares single operations, whatever the models may make of them: subnormal numbers, infinities, ties.
fn compare_floats(board: &Board, elf: &Path) -> Outcome {
    let words = ["floats".to_owned(), FLOATS.to_string()];
    let options = emulator::Options { arguments: &words, ..Default::default() };
    let written = emulator::run(board, elf, LIMIT, &options)?;
    let expected = format!("@floats {}\n", floats::digest(FLOATS));
    if written != expected.as_bytes() {
        let found = String::from_utf8_lossy(&written).into_owned();
        return Err(Failure::found_wrong(format!("{}: float operations differ from the host's: {found:?}, not {expected:?}", board.name)));
    }
    println!("{:<30}{:<20}{FLOATS:>9}  the same bits", "sums, products and the like", board.name);
    Ok(())
}

/// Computes and prints one row: true when every bit is the same.
fn compare(board: &Board, case: &Case) -> Outcome<bool> {
    let &Case { source, dtype, kv, shift, positions, built_in, ref model, ref elf } = case;
    let len = std::fs::metadata(model).map_err(|error| Failure::cannot_run(format!("{}: {error}", model.display())))?.len();
    let (file, load) =
        if built_in { (String::new(), None) } else { (format!("file {shift} {len} "), Some(Load { file: model.clone(), shift })) };
    let command = format!("{file}logits {kv} {positions}");
    let words: Vec<String> = command.split(' ').map(str::to_owned).collect();
    let options = emulator::Options { arguments: &words, load, ..Default::default() };
    let chip = emulator::run(board, elf, LIMIT, &options)?;
    let row_bytes = chip.len() / positions;
    if row_bytes == 0 || chip.len() % (positions * 4) != 0 {
        return Err(Failure::found_wrong(format!("{} wrote {} bytes, which are not {positions} rows of logits", board.name, chip.len())));
    }
    let host = host_logits(board, case, &greedy_tokens(case, &chip, row_bytes))?;
    let first = host.chunks(4).zip(chip.chunks(4)).position(|(a, b)| a != b);
    let verdict = match first {
        None if host.len() == chip.len() => "the same bits".to_owned(),
        None => format!("the host gives {} bytes, the board {}", host.len(), chip.len()),
        Some(at) => format!("DIFFER first at position {}, token {}", at * 4 / row_bytes, at % (row_bytes / 4)),
    };
    let place = if shift == 0 { board.name.to_owned() } else { format!("{} shifted", board.name) };
    println!("{:<14}{dtype:<8}{kv:<8}{place:<20}{positions:>9}  {verdict}", source.name);
    Ok(first.is_none() && host.len() == chip.len())
}

/// The tokens that the board fed: begin-of-text, then the best of each row, the lowest id first among equals.
fn greedy_tokens(case: &Case, logits: &[u8], row_bytes: usize) -> Vec<u32> {
    let best = |row: &[u8]| {
        let logits = row.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes));
        let start = (0, f32::NEG_INFINITY);
        logits.enumerate().fold(start, |best, (token, logit)| if logit > best.1 { (token, logit) } else { best }).0 as u32
    };
    let rows = logits.chunks_exact(row_bytes).take(case.positions - 1);
    std::iter::once(case.source.first_token).chain(rows.map(best)).collect()
}

fn host_logits(board: &Board, case: &Case, tokens: &[u32]) -> Outcome<Vec<u8>> {
    let &Case { source, dtype, kv, shift, .. } = case;
    let out = paths::root().join(format!("target/models/logits.{}.{}.{dtype}.{kv}.{shift}", board.name, source.name));
    let tokens: Vec<String> = tokens.iter().map(u32::to_string).collect();
    let mut command = models::dmexp()?;
    command.arg("logits").arg("--export").arg(&case.model).args(["--kv", kv, "--tokens", &tokens.join(",")]).arg("--out").arg(&out);
    process::capture(&mut command)?;
    let unreadable = |error| Failure::cannot_run(format!("{}: {error}", out.display()));
    let logits = std::fs::read(&out).map_err(unreadable)?;
    std::fs::remove_file(&out).map_err(unreadable)?;
    Ok(logits)
}

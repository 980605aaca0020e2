//! `cargo xtask qemu`: builds a board's firmware and runs it on the emulated board.

use crate::failure::{Failure, Outcome};
use crate::{board, emulator, paths, plugin};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

pub(crate) const HELP: &str = "\
Usage: cargo xtask qemu BOARD [OPTIONS] [COMMAND...]

Builds the firmware of BOARD (an386, an500, an505, an547, netduinoplus2, an385, an385-v6m, lm3s6965evb, microbit, virt-imac,
virt-imafc, sifive_e), runs it under QEMU and prints what it writes. COMMAND goes to the firmware, which says
what it knows when it does not understand.

Options:
  --check          Compare the output with boards/CRATE/expected.txt; print what differs and exit with status 1
  --count          Count what is executed between the firmware's markers, by region, with cycles by the board's table of costs
  --profile        The same, and the share of each symbol
  --dtype TYPE     The type of the model's weights: f32, f16 or bf16 (the default)
  --elf FILE       Run this firmware, which was built for BOARD, instead of building one
  --timeout SECS   Stop a run that takes longer (default 120)
";

/// The time that a run may take unless told otherwise.
pub(crate) const DEFAULT_LIMIT: Duration = Duration::from_mins(2);

/// The type of the weights in firmware unless told otherwise.
pub(crate) const DEFAULT_DTYPE: &str = "bf16";

pub(crate) fn main(words: Vec<OsString>) -> Outcome {
    use lexopt::prelude::*;
    let mut parser = lexopt::Parser::from_args(words);
    let mut name = None;
    let mut command = Vec::new();
    let mut compare = false;
    let (mut count, mut profile) = (false, false);
    let mut limit = DEFAULT_LIMIT;
    let mut dtype = DEFAULT_DTYPE.to_owned();
    let mut elf = None;
    while let Some(argument) = parser.next()? {
        match argument {
            Long("check") => compare = true,
            Long("count") => count = true,
            Long("profile") => profile = true,
            Long("dtype") => dtype = parser.value()?.string()?,
            Long("elf") => elf = Some(PathBuf::from(parser.value()?)),
            Long("timeout") => limit = Duration::from_secs(parser.value()?.parse()?),
            Value(word) if name.is_none() => name = Some(word.string()?),
            Value(word) => command.push(word.string()?),
            other => return Err(other.unexpected().into()),
        }
    }
    let Some(name) = name else {
        return Err(Failure::cannot_run(format!("which board?\n\n{HELP}")));
    };
    let board = board::find(&name)?;
    if compare && (count || profile) {
        return Err(Failure::cannot_run("--check compares and --count counts; ask for one at a time"));
    }
    if compare && elf.is_some() {
        return Err(Failure::cannot_run("--check builds what it compares; leave out --elf"));
    }
    if compare {
        return check(board, &command, limit);
    }
    let elf = match elf {
        Some(elf) => elf,
        None => board::build(board, &[board::MEASURE], &board.model.export(&dtype)?)?,
    };
    if count || profile {
        let run = plugin::run(board, &elf, &command, limit, profile)?;
        print!("{}{}", String::from_utf8_lossy(&run.written), counts(&run.report));
        return Ok(());
    }
    let options = emulator::Options { arguments: &command, stream: true, ..Default::default() };
    emulator::run(board, &elf, limit, &options).map(|_| ())
}

/// What was counted, as a table: one line a region, their sum, then the symbols.
fn counts(report: &plugin::Report) -> String {
    let line = |name: &str, counts: &plugin::Counts| {
        format!("{name:<12}{:>14}{:>14}{:>14}{:>14}", counts.instructions, counts.cycles, counts.loads, counts.stores)
    };
    let mut lines = vec![format!("{:<12}{:>14}{:>14}{:>14}{:>14}", "", "instructions", "cycles", "loads", "stores")];
    let regions = report.regions.iter().enumerate();
    lines.extend(regions.map(|(index, counts)| line(&format!("region {index}"), counts)));
    let sum = report.sum();
    lines.push(line("regions", &sum));
    lines.push(line("whole run", &report.total));
    lines.extend(report.symbols.iter().map(|symbol| {
        let share = 100.0 * symbol.cycles as f64 / sum.cycles.max(1) as f64;
        format!("{:>12}{:>14}{:>14}  {}", format!("{share:.1}%"), symbol.instructions, symbol.cycles, symbol.name)
    }));
    lines.join("\n") + "\n"
}

/// Runs the firmware with `command` and compares what it writes with the file beside the board's crate.
pub(crate) fn check(board: &board::Board, command: &[String], limit: Duration) -> Outcome {
    let elf = board::build(board, &[], &board.model.export(DEFAULT_DTYPE)?)?;
    let options = emulator::Options { arguments: command, ..Default::default() };
    compare(board, &emulator::run(board, &elf, limit, &options)?)
}

/// Compares what a firmware wrote with the file beside the board's crate.
pub(crate) fn compare(board: &board::Board, written: &[u8]) -> Outcome {
    let path = paths::boards().join(board.package).join("expected.txt");
    let expected = std::fs::read(&path).map_err(|error| Failure::cannot_run(format!("cannot read {}: {error}", path.display())))?;
    if written == expected {
        println!("{}: the output is boards/{}/expected.txt, {} bytes", board.name, board.package, written.len());
        return Ok(());
    }
    print!("{}", difference(&String::from_utf8_lossy(&expected), &String::from_utf8_lossy(written)));
    Err(Failure::found_wrong(format!("{}: the output is not boards/{}/expected.txt (- expected, + written)", board.name, board.package)))
}

/// The lines that differ, with what both sides have in common at the start and the end left out but for one line each.
fn difference(expected: &str, written: &str) -> String {
    let old: Vec<&str> = expected.split_inclusive('\n').collect();
    let new: Vec<&str> = written.split_inclusive('\n').collect();
    let same_start = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let room = old.len().min(new.len()) - same_start;
    let same_end = old.iter().rev().zip(new.iter().rev()).take(room).take_while(|(a, b)| a == b).count();
    let mut text = format!("at line {}:\n", same_start + 1);
    if let Some(before) = same_start.checked_sub(1) {
        push_line(&mut text, ' ', old[before]);
    }
    for line in &old[same_start..old.len() - same_end] {
        push_line(&mut text, '-', line);
    }
    for line in &new[same_start..new.len() - same_end] {
        push_line(&mut text, '+', line);
    }
    if same_end > 0 {
        push_line(&mut text, ' ', old[old.len() - same_end]);
    }
    text
}

/// One line of a difference; a missing end of line is said, for it is a difference too.
fn push_line(text: &mut String, sign: char, line: &str) {
    text.push(sign);
    text.push_str(line);
    if !line.ends_with('\n') {
        text.push_str("  (no end of line)\n");
    }
}

#[cfg(test)]
mod tests {
    use super::difference;

    #[test]
    fn only_what_differs_is_shown() {
        let shown = difference("a\nb\nc\nd\n", "a\nb\nX\nd\n");
        assert_eq!(shown, "at line 3:\n b\n-c\n+X\n d\n");
    }

    #[test]
    fn a_cut_output_shows_the_missing_lines() {
        assert_eq!(difference("a\nb\n", "a\n"), "at line 2:\n a\n-b\n");
    }

    #[test]
    fn a_missing_end_of_line_is_a_difference() {
        assert_eq!(difference("a\n", "a"), "at line 1:\n-a\n+a  (no end of line)\n");
    }
}

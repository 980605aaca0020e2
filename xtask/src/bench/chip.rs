//! The rows `chip/...`: what a firmware weighs, and what it executes on the emulated board.

use super::{Measurement, RowSpec};
use crate::board::{self, Board};
use crate::elf::Firmware;
use crate::failure::{Failure, Outcome};
use crate::{plugin, qemu};

/// Every measurement of every board.
pub(crate) fn measurements() -> Vec<Measurement> {
    board::ALL.iter().flat_map(|board| [sizes(board), self_check(board)]).collect()
}

/// Rows `chip/BOARD/NAME` with these names and units.
fn rows(board: &Board, names: &[(&str, &'static str)]) -> Vec<RowSpec> {
    let row = |&(name, unit): &(&str, &'static str)| RowSpec { id: format!("chip/{}/{name}", board.name), unit };
    names.iter().map(row).collect()
}

/// What the linked firmware weighs.
fn sizes(board: &'static Board) -> Measurement {
    let names = [
        ("text_bytes", "bytes"),
        ("rodata_bytes_without_model", "bytes"),
        ("flash_bytes_without_model", "bytes"),
        ("static_ram_bytes", "bytes"),
    ];
    let measure = || {
        let firmware = Firmware::read(&board::build(board, &[])?)?;
        let ram = firmware.data + firmware.bss;
        let bytes = [firmware.text, firmware.rodata, firmware.code_without_model(), ram];
        Ok(bytes.map(|bytes| bytes as f64).to_vec())
    };
    Measurement { rows: rows(board, &names), measure: Box::new(measure) }
}

/// The firmware's own small computation (CRC-32 of nine bytes): it shows that counting works, and moves only when the
/// compiler or the plugin does.
fn self_check(board: &'static Board) -> Measurement {
    let names =
        [("self_check/instructions", "instructions"), ("self_check/cycles_model", "cycles"), ("self_check/stack_peak_bytes", "bytes")];
    let measure = || {
        let elf = board::build(board, &[])?;
        let command = ["bench".to_owned()];
        let run = plugin::run(board, &elf, &command, qemu::DEFAULT_LIMIT, false)?;
        let expected = figure(&run.written, "regions")?;
        if run.report.regions.len() as f64 != expected {
            return Err(Failure::found_wrong(format!(
                "the firmware of {} speaks of {expected} counted regions, the plugin saw {}",
                board.name,
                run.report.regions.len()
            )));
        }
        let sum = run.report.sum();
        Ok(vec![sum.instructions as f64, sum.cycles as f64, figure(&run.written, "stack_peak_bytes")?])
    };
    Measurement { rows: rows(board, &names), measure: Box::new(measure) }
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

//! `cargo xtask size`: weighs a board's firmware, and proves that nothing linked into it can panic.

use crate::bench::Row;
use crate::board::{self, Board};
use crate::elf::Firmware;
use crate::failure::{Failure, Outcome};
use crate::{figures, plan, qemu};
use std::ffi::OsString;

pub(crate) const HELP: &str = "\
Usage: cargo xtask size [BOARD]
       cargo xtask size --write

Builds the firmware of BOARD (without one, of every board), prints the bytes of each kind of section, the model apart, and
fails when there is more code than the board's mark allows, when `dmexp plan` says other sizes than are linked, or, naming the
symbols, when anything that can panic is linked in. With --write, weighs the code of every core in every type of weights and
writes it to the table that `dmexp plan` reads.
";

/// The most code (`text` and `rodata` without the model) that a board's firmware may have, in bytes.
///
/// an386: the whole application with the reader of format 2, weights in f32, f16, bf16, q8 and q4, keys and values in f32, f16 and q8, and every sampler; then the same for a built-in
/// model in q8 alone. The goals are 24,000 and 20,000.
const CODE_MARKS: &[(&str, u64, Option<u64>)] = &[
    ("an386", 41_400, Some(20_000)),
    ("an500", 44_000, None),
    ("an505", 44_000, None),
    ("an547", 44_000, None),
    ("netduinoplus2", 44_000, None),
    ("an385", 44_000, None),
    ("an385-v6m", 52_000, None),
    ("lm3s6965evb", 44_000, None),
    ("microbit", 50_000, None),
    ("virt-imac", 60_000, None),
    ("virt-imafc", 55_000, None),
    ("sifive_e", 60_000, None),
];

pub(crate) fn main(words: Vec<OsString>) -> Outcome {
    if words.iter().any(|word| word == "--write") {
        return match words.as_slice() {
            [_] => plan::write(),
            _ => Err(Failure::cannot_run("--write stands alone: it weighs every core")),
        };
    }
    board::named(words)?.into_iter().try_for_each(check)
}

/// Prints the sizes of one board's firmware and refuses too much code and panic paths.
pub(crate) fn check(board: &Board) -> Outcome {
    let model = board.model.export(qemu::DEFAULT_DTYPE)?;
    let firmware = Firmware::read(&board::build(board, &[], &model)?)?;
    println!("{} (bytes)", board.name);
    for (name, bytes) in [
        ("code", firmware.code()),
        ("vector table", firmware.vectors),
        ("text", firmware.text),
        ("rodata without the model", firmware.rodata),
        ("data", firmware.data),
        ("flash without the model", firmware.code_without_model()),
        ("model", firmware.model),
        ("static RAM (data and bss)", firmware.data + firmware.bss),
    ] {
        println!("  {name:<26}{bytes:>9}");
    }
    refuse_panic_paths(board.name, &firmware)?;
    plan::check(board, &model, &firmware)?;
    let Some(&(_, most, most_q8)) = CODE_MARKS.iter().find(|(name, ..)| *name == board.name) else { return Ok(()) };
    keep(board, "code", firmware.code(), most)?;
    hold(board, "code_bytes", &firmware)?;
    let Some(most_q8) = most_q8 else { return Ok(()) };
    let q8 = Firmware::read(&board::build_only(board, &["q8"], &board.model.export("q8")?)?)?;
    refuse_panic_paths(board.name, &q8)?;
    plan::check_code(board, "q8", &q8)?;
    hold(board, "code_bytes_q8_alone", &q8)?;
    keep(board, "code for q8 alone", q8.code(), most_q8)
}

/// Refuses other code than documents show.
fn hold(board: &Board, row: &str, firmware: &Firmware) -> Outcome {
    figures::hold(&[Row::new(format!("chip/{}/{row}", board.name), firmware.code() as f64, "bytes")])
}

/// Prints and refuses more code than a mark allows.
pub(crate) fn keep(board: &Board, what: &str, bytes: u64, most: u64) -> Outcome {
    if bytes > most {
        return Err(Failure::found_wrong(format!(
            "{}: {bytes} bytes of {what}, {} more than its mark of {most}",
            board.name,
            bytes - most
        )));
    }
    println!("  {what:<26}{bytes:>9}  within its mark of {most}");
    Ok(())
}

/// Shows that the check can fail: a firmware with one planted panic must be refused.
pub(crate) fn check_refuses_seeded_panic(board: &Board) -> Outcome {
    let firmware = Firmware::read(&board::build(board, &["seeded-panic"], &board.model.export(qemu::DEFAULT_DTYPE)?)?)?;
    must_be_refused(board.name, refuse_panic_paths(board.name, &firmware))
}

/// Turns the refusal of a planted panic into success, and the lack of one into a failure.
pub(crate) fn must_be_refused(board: &str, outcome: Outcome) -> Outcome {
    match outcome {
        Err(refusal) => {
            println!("a planted panic is refused, as it should be: {refusal}");
            Ok(())
        }
        Ok(()) => Err(Failure::found_wrong(format!(
            "{board}: a firmware with a planted panic passed the panic check, so the check proves nothing"
        ))),
    }
}

/// Refuses firmware in which anything can panic.
pub(crate) fn refuse_panic_paths(board: &str, firmware: &Firmware) -> Outcome {
    if firmware.panic_paths.is_empty() {
        println!("  no panic path is linked");
        return Ok(());
    }
    Err(Failure::found_wrong(format!("{board}: the firmware can panic; linked in are:\n  {}", firmware.panic_paths.join("\n  "))))
}

/// Refuses firmware in which something of ours can panic: in a file whose name has one of `ours` in it. The crates of the hardware can panic, and do.
pub(crate) fn refuse_own_panics(board: &str, firmware: &Firmware, ours: &[String]) -> Outcome {
    if firmware.panic_paths.is_empty() {
        return refuse_panic_paths(board, firmware);
    }
    let places = &firmware.panic_places;
    if places.is_empty() {
        return Err(Failure::found_wrong(format!(
            "{board}: the firmware can panic, and nothing says where: its panic handler must read the place of the panic"
        )));
    }
    let own: Vec<&str> = places.iter().filter(|place| ours.iter().any(|part| place.contains(part.as_str()))).map(String::as_str).collect();
    if own.is_empty() {
        println!("  nothing of ours can panic; files of the hardware's crates and of core that can: {}", places.len());
        return Ok(());
    }
    Err(Failure::found_wrong(format!("{board}: the firmware can panic in:\n  {}", own.join("\n  "))))
}

#[cfg(test)]
mod tests {
    use super::refuse_own_panics;
    use crate::elf::Firmware;

    #[test]
    fn a_panic_of_ours_is_found_among_those_of_the_hardware() {
        let ours = ["/x/runtime".to_owned()];
        let firmware = |paths: &[&str], places: &[&str]| {
            let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
            Firmware { panic_paths: owned(paths), panic_places: owned(places), ..Firmware::default() }
        };
        let panics = ["core::panicking::panic_fmt"];
        assert!(refuse_own_panics("b", &firmware(&[], &[]), &ours).is_ok());
        assert!(refuse_own_panics("b", &firmware(&panics, &["/y/embassy/src/lib.rs"]), &ours).is_ok());
        let refused = refuse_own_panics("b", &firmware(&panics, &["/y/lib.rs", "/x/runtime/src/session.rs"]), &ours);
        assert!(refused.unwrap_err().to_string().contains("/x/runtime/src/session.rs"));
        // A handler that drops the place of the panic would hide all of them.
        assert!(refuse_own_panics("b", &firmware(&panics, &[]), &ours).is_err());
    }
}

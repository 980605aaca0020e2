//! Holds `dmexp plan` to what firmware shows: the bytes of model and arena exactly, and the table of code that it reads. Used by `size`.

use crate::board::{self, Board};
use crate::elf::Firmware;
use crate::failure::{Failure, Outcome};
use crate::{models, paths, process};
use serde_json::Value;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// The boards that stand for their cores in the table.
const MEASURED: &[&str] = &["an385-v6m", "an385", "an386", "an500", "an505", "virt-imac", "virt-imafc"];

/// Types of weights that a firmware is built for alone, and the one with every type, which is what `size` weighs.
const SETS: &[&str] = &["f32", "f16", "bf16", "q8", "q4"];
const FULL: &str = "full";

/// How far the table may be off: code changes by a few bytes with every change of the runtime.
const TOLERANCE: f64 = 0.03;

fn table() -> PathBuf {
    paths::root().join("host-tools/src/plan/measured.txt")
}

fn read() -> Outcome<String> {
    std::fs::read_to_string(table()).map_err(|error| Failure::cannot_run(format!("cannot read {}: {error}", table().display())))
}

/// Refuses a plan that says other sizes than the linked firmware has.
pub(crate) fn check(board: &Board, model: &Path, firmware: &Firmware) -> Outcome {
    exact(board.name, &said(board.name, model, board.story_kv)?, firmware)?;
    check_code(board, FULL, firmware)
}

/// Refuses a plan that keeps less for code, drivers and statics than a project's firmware takes of them.
pub(crate) fn check_room(board: &str, model: &Path, kv: &str, firmware: &Firmware) -> Outcome {
    let said = said(board, model, kv)?;
    exact(board, &said, firmware)?;
    let number = |part: &str, key: &str| said[part][key].as_u64().unwrap_or(0);
    let statics = firmware.data + firmware.bss - firmware.arena;
    for (name, kept, linked) in [
        ("flash besides the model", number("flash", "code_bytes") + number("flash", "drivers_bytes"), firmware.code_without_model()),
        ("RAM besides arena and stack", number("ram", "kept_bytes").saturating_sub(number("ram", "stack_bytes")), statics),
    ] {
        if linked > kept {
            return Err(Failure::found_wrong(format!(
                "{board}: dmexp plan keeps {kept} bytes of {name}, the linked firmware has {linked}"
            )));
        }
        println!("  {name}: {linked} bytes linked of {kept} that dmexp plan keeps");
    }
    Ok(())
}

/// What `dmexp plan` says, as JSON.
fn said(board: &str, model: &Path, kv: &str) -> Outcome<Value> {
    let mut plan = models::dmexp()?;
    plan.arg("plan").arg(model).args(["--board", board, "--kv", kv, "--json"]);
    serde_json::from_str(&process::capture(&mut plan)?)
        .map_err(|error| Failure::found_wrong(format!("`{}` prints no JSON: {error}", process::shown(&plan))))
}

/// Refuses another model or arena than the plan says.
fn exact(board: &str, said: &Value, firmware: &Firmware) -> Outcome {
    for (name, planned, linked) in [
        ("the model", &said["flash"]["model_bytes"], firmware.model + firmware.hot_weights),
        ("the arena with its cell", &said["ram"]["static_bytes"], firmware.arena),
    ] {
        if planned.as_u64() != Some(linked) {
            return Err(Failure::found_wrong(format!(
                "{board}: dmexp plan says {planned} bytes of {name}, the linked firmware has {linked}"
            )));
        }
    }
    println!("  model and arena are what dmexp plan says");
    Ok(())
}

/// Refuses a table that is off.
pub(crate) fn check_code(board: &Board, set: &str, firmware: &Firmware) -> Outcome {
    if !MEASURED.contains(&board.name) {
        return Ok(());
    }
    let linked = firmware.code();
    let table = read()?;
    let known = table.lines().find_map(|line| {
        let rest = line.strip_prefix(&format!("code {} {set} ", board.name))?;
        rest.trim().parse::<u64>().ok()
    });
    match known {
        Some(known) if (known.abs_diff(linked) as f64) <= TOLERANCE * linked as f64 => Ok(()),
        known => Err(Failure::found_wrong(format!(
            "{}: {linked} bytes of code ({set}), and the table of dmexp plan says {}; write it anew: cargo xtask size --write",
            board.name,
            known.map_or_else(|| "nothing".to_owned(), |known| known.to_string())
        ))),
    }
}

/// Weighs the code of every core with every set, and writes the table.
pub(crate) fn write() -> Outcome {
    let mut lines = String::new();
    for name in MEASURED {
        let board = board::find(name)?;
        for set in SETS.iter().chain([&FULL]) {
            let dtype = if *set == FULL { crate::qemu::DEFAULT_DTYPE } else { set };
            // The embedding of a q4 model is in q8.
            let features = if *set == "q4" { "dmexp-board-app/q4,dmexp-board-app/q8".to_owned() } else { format!("dmexp-board-app/{set}") };
            let firmware = Firmware::read(&board::build_only(board, &[&features], &board.model.export(dtype)?)?)?;
            let _ = writeln!(lines, "code {name} {set} {}", firmware.code());
            println!("{}", lines.lines().last().unwrap_or_default());
        }
    }
    let old = read()?;
    let kept = |keep: fn(&&str) -> bool| old.lines().filter(keep).flat_map(|line| [line, "\n"]).collect::<String>();
    let text = kept(|line| line.starts_with('#')) + &lines + &kept(|line| line.starts_with("cost "));
    std::fs::write(table(), text).map_err(|error| Failure::cannot_run(format!("cannot write {}: {error}", table().display())))
}

//! `dmexp export run --onto`: a checkpoint's weights in a `.dmexp` that is there already.

use super::failure::Outcome;
use super::output::{bytes, facts, json};
use dmexp_tools::error::shown_path;
use dmexp_tools::export::{Loading, Progress, Weights, onto};
use serde_json::json;
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::AtomicBool;

/// What was asked for.
pub(super) struct Onto<'a> {
    pub(super) checkpoint: &'a Path,
    pub(super) base: &'a Path,
    pub(super) partial: bool,
    pub(super) out: &'a Path,
    pub(super) json: bool,
    pub(super) quiet: bool,
}

/// Does it and reports.
pub(super) fn run(asked: &Onto<'_>, cancel: &AtomicBool, progress: &mut dyn FnMut(Progress)) -> Outcome {
    let weights = Weights::open(asked.checkpoint)?;
    let loading = onto(weights, asked.base, asked.partial, asked.out, cancel, progress)?;
    let Loading { out, file_bytes, fingerprint, lists, notes } = &loading;
    if asked.json {
        return Ok(json(&json!({
            "out": out.to_string_lossy(),
            "base": asked.base.to_string_lossy(),
            "partial": asked.partial,
            "file_bytes": file_bytes,
            "fingerprint": format!("{fingerprint:08x}"),
            "applied": lists.applied,
            "missing": lists.missing,
            "unused": lists.unused,
            "warnings": notes,
        }))?);
    }
    for note in notes {
        // If stderr is closed, nobody is left to tell.
        let _ = writeln!(io::stderr(), "note: {note}");
    }
    if asked.quiet { Ok(()) } else { Ok(print(asked, &loading)?) }
}

fn print(asked: &Onto<'_>, loading: &Loading) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{} is {} with weights of {}", shown_path(&loading.out), shown_path(asked.base), shown_path(asked.checkpoint))?;
    facts(&mut out, &[("file", bytes(loading.file_bytes)), ("fingerprint", format!("{:08x}", loading.fingerprint))])?;
    let lists = &loading.lists;
    for (name, paths) in [("applied", &lists.applied), ("missing", &lists.missing), ("unused", &lists.unused)] {
        writeln!(out, "{name}: {}", if paths.is_empty() { "none".to_owned() } else { paths.join(", ") })?;
    }
    out.flush()
}

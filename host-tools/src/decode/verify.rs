//! Every check of a `.dmexp` there is, as a list of what was found: `dmexp export verify`. The exporter runs those of them that can find a fault of its own on every file it writes.

use super::{Loaded, golden_check};
use crate::checkpoint;
use crate::error::{Class, Error, Result};
use crate::predict;
use dmexp_format::arch::Architecture;
use dmexp_format::arch::sequential::Samples;
use dmexp_format::host;
use std::path::Path;

/// The checks in the order in which they were made; those after the first that failed are not made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifyReport {
    /// What was checked.
    pub checks: Vec<Check>,
    /// Keys of the header that this version does not know and that change nothing that is computed.
    pub unknown_keys: Vec<String>,
}

/// One check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// What was checked, in a few words.
    pub name: String,
    /// What came out.
    pub outcome: Outcome,
}

/// What came out of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All is well.
    Passed,
    /// Something is wrong: what, where, and what to do.
    Failed(String),
    /// It was not made, and why not.
    NotMade(String),
}

impl VerifyReport {
    /// Whether no check failed.
    pub fn passed(&self) -> bool {
        !self.checks.iter().any(|check| matches!(check.outcome, Outcome::Failed(_)))
    }

    fn add(&mut self, name: impl Into<String>, outcome: Outcome) {
        self.checks.push(Check { name: name.into(), outcome });
    }
}

/// Makes every check of the file: container, header against index, checksums, finite weights, the architecture's tensors, the tokenizer's arrays, golden vectors. Reads all of it and runs
/// the model.
///
/// # Errors
/// [`Class::Unreadable`]; and for what is no `.dmexp` at all, what it is. A `.dmexp` with something wrong is no error but a report that says so.
pub fn verify_all(path: &Path) -> Result<VerifyReport> {
    let mut report = VerifyReport { checks: Vec::new(), unknown_keys: Vec::new() };
    let loaded = match Loaded::open(path) {
        Ok(loaded) => loaded,
        Err(error) if error.class() == Class::Unreadable || !is_dmexp(path) => return Err(error),
        Err(error) => {
            report.add("container", Outcome::Failed(error.to_string()));
            return Ok(report);
        }
    };
    verify_loaded(&loaded, &mut report)?;
    Ok(report)
}

fn is_dmexp(path: &Path) -> bool {
    matches!(checkpoint::recognise_path(path), Ok(checkpoint::Kind::Dmexp { .. }))
}

fn verify_loaded(loaded: &Loaded, report: &mut VerifyReport) -> Result<()> {
    let mut left = match host::verify_with(loaded.bytes(), &mut |piece| loaded.release(piece)) {
        Ok(found) => {
            for name in found.done {
                report.add(name, Outcome::Passed);
            }
            report.unknown_keys = found.unknown_keys;
            found.left
        }
        Err(error) => {
            let name = match &error {
                host::VerifyError::File(_) => "container, index and payload",
                host::VerifyError::Header(_) => "header",
                _ => "figures of the values",
            };
            report.add(name, Outcome::Failed(explained(loaded, error).to_string()));
            return Ok(());
        }
    };
    // What this crate checks itself.
    left.retain(|left| ![host::TOKENIZER_ARRAYS, host::GOLDEN_VECTORS].contains(&left.check));
    let file = loaded.file()?;
    if matches!(file.architecture(), Architecture::Llama | Architecture::Dormouse) {
        let model = loaded.model();
        let failed = model.is_err();
        report.add("model: it can be run, and its tokenizer's arrays agree with each other", outcome(model.map(|_| ())));
        if !failed {
            match file.golden().count() {
                0 => report.add("golden vectors", Outcome::NotMade("the file has none".to_owned())),
                count => report.add(format!("golden vectors: {count} replayed"), outcome(golden_check(loaded).map(|_| ()))),
            }
        }
    } else if file.architecture() == Architecture::Sequential {
        let bound = predict::predictor(loaded).and_then(|predictor| predict::memory(&predictor).map(|_| ()));
        let failed = bound.is_err();
        report.add("model: it can be run", outcome(bound));
        let count = file.sequential().and_then(|model| Samples::of(&file, &model)).map_or(0, |samples| samples.count());
        match count {
            _ if failed => {}
            0 => report.add("golden vectors", Outcome::NotMade("the file has none (dmexp export run --samples)".to_owned())),
            count => report.add(format!("golden vectors: {count} replayed"), outcome(predict::replay(loaded).map(|_| ()))),
        }
    } else {
        let why = format!("this version does not run the architecture {:?}", file.architecture().name());
        report.add("model: it can be run", Outcome::NotMade(why));
    }
    for host::Left { check, why } in left {
        report.add(check, Outcome::NotMade(why));
    }
    Ok(())
}

fn outcome(result: Result<()>) -> Outcome {
    match result {
        Ok(()) => Outcome::Passed,
        Err(error) => Outcome::Failed(error.to_string()),
    }
}

fn explained(loaded: &Loaded, error: host::VerifyError) -> Error {
    match error {
        host::VerifyError::File(error) => loaded.explain(error),
        other => Error::from(other).in_file(loaded.path()),
    }
}

/// What the exporter checks of a file before it gets its name: all but the golden vectors, which were made by running it.
///
/// # Errors
/// The first check that failed.
pub(crate) fn after_export(loaded: &Loaded) -> Result<()> {
    host::verify_with(loaded.bytes(), &mut |piece| loaded.release(piece)).map_err(|error| explained(loaded, error))?;
    // Other architectures are checked by `host::verify` as far as they go.
    match loaded.file()?.architecture() {
        Architecture::Llama | Architecture::Dormouse => loaded.model().map(|_| ()),
        Architecture::Sequential => predict::predictor(loaded).map(|_| ()),
        _ => Ok(()),
    }
}

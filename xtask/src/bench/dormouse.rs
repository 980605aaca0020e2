//! The rows `host/dormouse_small/...`: milliseconds of one more byte behind 255, with everything computed again, as dormouse itself does it, and incrementally, in one run.

use super::{Measurement, RowSpec};
use crate::failure::{Failure, Outcome};
use crate::{made, process};
use std::process::Command;

/// Every measurement of dormouse models.
pub(crate) fn measurements() -> Vec<Measurement> {
    let row = |id: &str, unit| RowSpec { id: format!("host/dormouse_small/f32/{id}"), unit };
    let rows =
        vec![row("full_ms_per_byte", "ms"), row("exact_ms_per_byte", "ms"), row("fast_ms_per_byte", "ms"), row("full_over_exact", "times")];
    vec![Measurement { rows, measure: Box::new(measure) }]
}

fn measure() -> Outcome<Vec<f64>> {
    let printed = process::capture(&mut Command::new(made::program()?))?;
    let seconds: Vec<f64> = printed.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let [full, exact, fast] = seconds[..] else { return Err(Failure::cannot_run("dormouse_speed prints three numbers")) };
    Ok(vec![1e3 * full, 1e3 * exact, 1e3 * fast, full / exact])
}

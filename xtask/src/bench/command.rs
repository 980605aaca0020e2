//! The rows `host/size/...` and `host/startup/...`: how large the command `dmexp` is, and how long a process of it takes before there is something to see.

use super::{Measurement, RowSpec};
use crate::failure::{Failure, Outcome};
use crate::{models, paths, process};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// Runs of which the median counts.
const RUNS: usize = 21;

/// Every measurement of the command.
pub(crate) fn measurements() -> Vec<Measurement> {
    let one = |id: &str, unit, measure: fn() -> Outcome<f64>| Measurement {
        rows: vec![RowSpec { id: format!("host/{id}"), unit }],
        measure: Box::new(move || Ok(vec![measure()?])),
    };
    vec![
        one("size/release_stripped", "bytes", || {
            let stripped = paths::root().join("target/dmexp.stripped");
            process::run(Command::new("strip").arg("-o").arg(&stripped).arg(models::dmexp()?.get_program()))?;
            length(&stripped)
        }),
        one("size/dist", "bytes", || {
            let mut build = process::cargo();
            build.current_dir(paths::root()).args(["build", "--profile", "dist", "--locked", "--quiet"]);
            length(&process::built(build.args(["--package", "dmexp-tools", "--bin", "dmexp"]), "dmexp")?)
        }),
        one("startup/version", "ms", || milliseconds(models::dmexp()?.arg("--version"))),
        one("startup/first_token/story/f32", "ms", || {
            let model = models::STORY.export("f32")?;
            milliseconds(models::dmexp()?.args(["generate", "--quiet", "--temp", "0", "--steps", "1", "--export"]).arg(model))
        }),
    ]
}

fn length(file: &Path) -> Outcome<f64> {
    let metadata = std::fs::metadata(file).map_err(|error| Failure::cannot_run(format!("cannot read {}: {error}", file.display())))?;
    Ok(metadata.len() as f64)
}

/// From the start of the process to its end, which follows what it shows at once.
fn milliseconds(command: &mut Command) -> Outcome<f64> {
    let mut times = Vec::new();
    for _ in 0..RUNS {
        let begun = Instant::now();
        process::capture(command)?;
        times.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    times.sort_by(f64::total_cmp);
    Ok(times[RUNS / 2])
}

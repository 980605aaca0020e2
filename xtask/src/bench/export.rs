//! The rows `export/...`: peak memory and speed of `dmexp export run` on a checkpoint of 2 GB made for it, the speed beside this machine's own at copying and converting the same file.

use super::{Measurement, RowSpec};
use crate::failure::{Failure, Outcome};
use crate::{models, paths, process};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Runs of which the fastest counts: what else the machine does only ever slows one down.
const RUNS: usize = 3;

/// The seven numbers of a llama2.c header, in its order: the width first, the positions last.
const SHAPE: [u32; 7] = [2048, 5632, 10, 32, 8, 32_000, 256];

/// Half a billion parameters: 2 GB of f32.
fn parameters() -> u64 {
    let [dim, hidden, layers, heads, kv_heads, vocab, _] = SHAPE.map(u64::from);
    let kv = dim / heads * kv_heads;
    vocab * dim + layers * (2 * dim + 2 * dim * dim + 2 * dim * kv + 3 * dim * hidden) + dim
}

/// Every measurement of the exporter.
pub(crate) fn measurements() -> Vec<Measurement> {
    let row = |id: &str, unit| RowSpec { id: format!("export/made2GB/bf16/{id}"), unit };
    let rows = vec![
        row("peak_memory_bytes", "bytes"),
        row("largest_tensor_bytes", "bytes"),
        row("source_mb_per_s", "MB/s"),
        row("machine_source_mb_per_s", "MB/s"),
        row("share_of_machine", "of 1"),
    ];
    vec![Measurement { rows, measure: Box::new(measure) }]
}

fn measure() -> Outcome<Vec<f64>> {
    let folder = paths::root().join("target/models");
    let failed = |error: std::io::Error| Failure::cannot_run(format!("cannot make a checkpoint of 2 GB in {}: {error}", folder.display()));
    std::fs::create_dir_all(&folder).map_err(failed)?;
    let files = Files { source: folder.join("made2GB.bin"), out: folder.join("made2GB.dmexp"), copy: folder.join("made2GB.bf16") };
    write_checkpoint(&files.source).map_err(failed)?;
    let reference = copy_and_convert()?;
    let bytes = std::fs::metadata(&files.source).map_err(failed)?.len() as f64;
    let (mut peak, mut export, mut machine) = (0, f64::INFINITY, f64::INFINITY);
    for _ in 0..RUNS {
        let printed = process::capture(Command::new(&reference).arg(&files.source).arg(&files.copy))?;
        let seconds: f64 = printed.trim().parse().map_err(|_| Failure::cannot_run("copy_and_convert prints no seconds"))?;
        machine = machine.min(seconds);
        let mut command = models::dmexp()?;
        command
            .args(["export", "run", "--quiet", "--no-golden", "--dtype", "bf16", "--checkpoint"])
            .arg(&files.source)
            .arg("--out")
            .arg(&files.out);
        let started = Instant::now();
        peak = peak.max(peak_memory(&mut command)?);
        export = export.min(started.elapsed().as_secs_f64());
    }
    let largest = 4 * u64::from(SHAPE[5]) * u64::from(SHAPE[0]);
    let rate = |seconds: f64| (bytes / 1e6 / seconds).round();
    Ok(vec![peak as f64, largest as f64, rate(export), rate(machine), machine / export])
}

/// Gone when the measurement is over, however it ended.
struct Files {
    source: PathBuf,
    out: PathBuf,
    copy: PathBuf,
}

impl Drop for Files {
    fn drop(&mut self) {
        for path in [&self.source, &self.out, &self.copy] {
            // Not there if the measurement ended before it was written.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// llama2.c's version 0 without its tables, with values that are all over the range of weights.
fn write_checkpoint(path: &Path) -> std::io::Result<()> {
    let mut out = BufWriter::with_capacity(1 << 20, File::create(path)?);
    for number in SHAPE {
        out.write_all(&number.to_le_bytes())?;
    }
    let mut state = 0x9e37_79b9_u32;
    for _ in 0..parameters() {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        // From -1 to 1.
        let value = (state >> 8) as f32 / 8_388_608.0 - 1.0;
        out.write_all(&value.to_le_bytes())?;
    }
    out.flush()
}

/// The program that the exporter is compared with, optimised as it is.
fn copy_and_convert() -> Outcome<PathBuf> {
    let mut build = process::cargo();
    build.current_dir(paths::root());
    build.args(["build", "--release", "--locked", "--quiet", "--package", "dmexp-tools", "--example", "copy_and_convert"]);
    process::built(&mut build, "copy_and_convert")
}

/// Runs a command to its end; returns the most memory that it ever had, files that it mapped counted.
fn peak_memory(command: &mut Command) -> Outcome<u64> {
    let mut child = command.stdout(Stdio::null()).spawn().map_err(|error| Failure::cannot_run(format!("cannot start dmexp: {error}")))?;
    let mut peak = 0;
    loop {
        // The mark only rises, so what was read last before the end is all but the whole of it.
        peak = peak.max(high_water_mark(&child).unwrap_or(0));
        match child.try_wait() {
            Ok(Some(status)) if status.success() && peak > 0 => return Ok(peak),
            Ok(Some(status)) if status.success() => {
                return Err(Failure::cannot_run("this system does not say how much memory a process had"));
            }
            Ok(Some(status)) => return Err(Failure::found_wrong(format!("`{}` failed ({status})", process::shown(command)))),
            Ok(None) => std::thread::sleep(Duration::from_millis(5)),
            Err(error) => return Err(Failure::cannot_run(format!("cannot wait for dmexp: {error}"))),
        }
    }
}

fn high_water_mark(child: &Child) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()? * 1024)
}

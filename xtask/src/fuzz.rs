//! `cargo xtask fuzz`: hostile input under libFuzzer. Not part of `test`, which runs the same targets over thousands of damaged seeds without it.

use crate::failure::{Failure, Outcome};
use crate::tool::Tool;
use crate::{paths, process};
use serde_json::json;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

pub(crate) const HELP: &str = "\
Usage: cargo xtask fuzz [OPTIONS]

Runs every reader of dmexp (model files, checkpoints, tokenizers, the line to a device, requests, numbers) on what libFuzzer makes
of small files that are whole, and prints what came of it. It takes cargo-fuzz, which is built from crates.io into target/tools
where it is missing, and builds with the address sanitizer (minutes); the compiler is that of rust-toolchain.toml, no other is
needed. What was learned is kept in target/fuzz/corpus, and goes on from there the next time. Exit status 1 where something is
in target/fuzz/findings: delete there what is mended.

Options:
  --minutes N    Minutes for each target; 1 where nothing is said, 0 only reads what is there
  --only NAME    Only this target; may be given more than once
  --jobs N       Targets at the same time; as many as there are cores where nothing is said
  --list         Print the names of the targets
  --json         Print the figures as JSON

Examples:
  cargo xtask fuzz --minutes 20
  cargo xtask fuzz --only gguf --only http_body --minutes 60
  DMEXP_FUZZ_TARGET=gguf target/fuzz/targets target/fuzz/findings/gguf/crash-0123    (one finding again)
";

/// What builds with the sanitizer.
const CARGO_FUZZ: Tool = Tool { name: "cargo-fuzz", version: "0.13.2", subcommand: &[], options: &[] };

/// What a run takes at most: megabytes in all and at once, seconds for one input as the clock goes (a target itself refuses 2 seconds of processor time), bytes of an input.
const LIMITS: [&str; 4] = ["-rss_limit_mb=2048", "-malloc_limit_mb=600", "-timeout=60", "-max_len=65536"];

/// What came of a target.
struct Run {
    name: String,
    executions: u64,
    seconds: u64,
    corpus: usize,
    /// Edges of the program that were reached.
    coverage: u64,
    findings: Vec<PathBuf>,
}

pub(crate) fn main(words: Vec<OsString>) -> Outcome {
    use lexopt::prelude::*;
    let mut parser = lexopt::Parser::from_args(words);
    let (mut only, mut minutes, mut jobs) = (Vec::new(), 1u64, None);
    let (mut list, mut as_json) = (false, false);
    while let Some(argument) = parser.next()? {
        match argument {
            Long("minutes") => minutes = parser.value()?.parse()?,
            Long("only") => only.push(parser.value()?.string()?),
            Long("jobs") => jobs = Some(parser.value()?.parse::<usize>()?),
            Long("list") => list = true,
            Long("json") => as_json = true,
            other => return Err(other.unexpected().into()),
        }
    }
    let mut names = seeds()?;
    if let Some(unknown) = only.iter().find(|name| !names.contains(name)) {
        return Err(Failure::cannot_run(format!("there is no target `{unknown}`; --list prints the names")));
    }
    names.retain(|name| only.is_empty() || only.contains(name));
    if list {
        println!("{}", names.join("\n"));
        return Ok(());
    }
    let program = build()?;
    let jobs = jobs.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from)).max(1);
    let mut runs = Vec::new();
    for group in names.chunks(jobs) {
        let begun = |name: &String| Ok((files(&folder("findings").join(name)), start(&program, name, minutes)?));
        let children: Vec<_> = group.iter().map(begun).collect::<Outcome<_>>()?;
        for (name, (before, child)) in group.iter().zip(children) {
            runs.push(finish(name, &before, child)?);
        }
    }
    if as_json {
        print_json(&runs);
    } else {
        print_table(&runs, &program);
    }
    let found = runs.iter().map(|run| run.findings.len()).sum::<usize>();
    if found == 0 { Ok(()) } else { Err(Failure::found_wrong(format!("{found} findings in {}", folder("findings").display()))) }
}

fn folder(name: &str) -> PathBuf {
    paths::root().join("target/fuzz").join(name)
}

/// Writes the seeds and returns the names of the targets.
fn seeds() -> Outcome<Vec<String>> {
    let mut make = process::cargo();
    make.current_dir(paths::root()).args(["run", "--quiet", "--locked", "--package", "dmexp-hostile", "--bin", "hostile-seeds", "--"]);
    Ok(process::capture(make.arg(folder("seeds")))?.lines().map(str::to_owned).collect())
}

/// Builds the program, in which every target is.
fn build() -> Outcome<PathBuf> {
    let crate_folder = paths::root().join("tests/fuzz");
    let target = folder("build");
    // Sanitizers are for nightly compilers alone; the variable lets that of rust-toolchain.toml take them.
    let mut build = Command::new(CARGO_FUZZ.program()?);
    build.current_dir(&crate_folder).env("RUSTC_BOOTSTRAP", "1").args(["fuzz", "build", "--fuzz-dir", ".", "--target-dir"]);
    process::run(build.arg(&target).arg("targets"))?;
    let printed = process::capture(Command::new("rustc").current_dir(paths::root()).arg("-vV"))?;
    let host = printed.lines().find_map(|line| line.strip_prefix("host: ")).unwrap_or_default();
    let (built, program) = (target.join(host).join("release/targets"), folder("targets"));
    std::fs::copy(&built, &program).map_err(|error| Failure::cannot_run(format!("cannot copy {}: {error}", built.display())))?;
    Ok(program)
}

/// Starts a target, which writes its log to a file.
fn start(program: &Path, name: &str, minutes: u64) -> Outcome<Child> {
    let made = |folder: PathBuf| match std::fs::create_dir_all(&folder) {
        Ok(()) => Ok(folder),
        Err(error) => Err(Failure::cannot_run(format!("cannot make {}: {error}", folder.display()))),
    };
    let (corpus, findings) = (made(folder("corpus").join(name))?, made(folder("findings").join(name))?);
    let log = made(folder("logs"))?.join(name);
    let log = std::fs::File::create(&log).map_err(|error| Failure::cannot_run(format!("cannot write {}: {error}", log.display())))?;
    let mut run = Command::new(program);
    run.env("DMEXP_FUZZ_TARGET", name).env("ASAN_OPTIONS", "detect_leaks=0:allocator_may_return_null=1").args(LIMITS);
    run.arg(if minutes == 0 { "-runs=0".to_owned() } else { format!("-max_total_time={}", minutes * 60) });
    run.arg(format!("-artifact_prefix={}/", findings.display()))
        .args(["-print_final_stats=1", "-print_funcs=0"])
        .arg(corpus)
        .arg(folder("seeds").join(name));
    run.stdout(Stdio::null()).stderr(log);
    run.spawn().map_err(|error| Failure::cannot_run(format!("cannot start {}: {error}", program.display())))
}

/// The files in a folder; none where there is no such folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(folder).map(|entries| entries.flatten().map(|entry| entry.path()).collect()).unwrap_or_default()
}

/// Waits for a target and reads what it wrote; `before` are the findings of earlier runs.
fn finish(name: &str, before: &[PathBuf], mut child: Child) -> Outcome<Run> {
    let status = child.wait().map_err(|error| Failure::cannot_run(format!("lost {name}: {error}")))?;
    let log = folder("logs").join(name);
    let bytes = std::fs::read(&log).map_err(|error| Failure::cannot_run(format!("cannot read {}: {error}", log.display())))?;
    let said = String::from_utf8_lossy(&bytes);
    let findings = files(&folder("findings").join(name));
    if !status.success() && findings.iter().all(|finding| before.contains(finding)) {
        return Err(Failure::cannot_run(format!("{name} ended with {status}; {} says why", log.display())));
    }
    let (executions, seconds, coverage) = figures(&said);
    Ok(Run { name: name.to_owned(), executions, seconds, corpus: files(&folder("corpus").join(name)).len(), coverage, findings })
}

/// Executions, seconds and coverage in a log of libFuzzer.
fn figures(log: &str) -> (u64, u64, u64) {
    let behind = |line: &str, mark: &str| line.split_once(mark)?.1.split_whitespace().next()?.parse::<u64>().ok();
    let last = |mark: &str| log.lines().rev().find_map(|line| behind(line, mark));
    let lines = || log.lines().rev().find_map(|line| line.strip_prefix('#')?.split_whitespace().next()?.parse().ok());
    let executions = last("stat::number_of_executed_units:").or_else(lines).unwrap_or(0);
    let per_second = last("stat::average_exec_per_sec:").or_else(|| last("exec/s:")).unwrap_or(0);
    (executions, executions.checked_div(per_second).unwrap_or(0), last(" cov:").unwrap_or(0))
}

fn print_table(runs: &[Run], program: &Path) {
    println!("{:<20} {:>11} {:>8} {:>7} {:>9} {:>9}", "target", "executions", "a second", "corpus", "coverage", "findings");
    for Run { name, executions, seconds, corpus, coverage, findings } in runs {
        let rate = executions.checked_div(*seconds).unwrap_or(*executions);
        println!("{name:<20} {executions:>11} {rate:>8} {corpus:>7} {coverage:>9} {:>9}", findings.len());
    }
    for (run, finding) in runs.iter().flat_map(|run| run.findings.iter().map(move |finding| (run, finding))) {
        println!("again: DMEXP_FUZZ_TARGET={} {} {}", run.name, program.display(), finding.display());
    }
}

fn print_json(runs: &[Run]) {
    let run = |run: &Run| {
        let Run { name, executions, seconds, corpus, coverage, findings } = run;
        json!({ "target": name, "executions": executions, "seconds": seconds, "corpus": corpus, "coverage": coverage, "findings": findings })
    };
    println!("{}", json!({ "targets": runs.iter().map(run).collect::<Vec<_>>() }));
}

#[cfg(test)]
mod tests {
    use super::figures;

    #[test]
    fn figures_are_read_from_a_log() {
        let log = "#2\tINITED cov: 70 ft: 81 corp: 1/1b exec/s: 0 rss: 40Mb\n#900\tREDUCE cov: 812 ft: 9 corp: 5/9b exec/s: 30 rss: 41Mb\n";
        assert_eq!(figures(log), (900, 30, 812));
        let ended = format!("{log}stat::number_of_executed_units: 1200\nstat::average_exec_per_sec:     20\n");
        assert_eq!(figures(&ended), (1200, 60, 812));
        assert_eq!(figures(""), (0, 0, 0));
    }
}

//! Compiles the counting plugin, runs a firmware under it and reads its report. Used by `bench` and `setup`.

use crate::board::Board;
use crate::failure::{Failure, Outcome};
use crate::process::{self, on_path};
use crate::{emulator, paths, setup};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

/// What was executed in one region, or in the whole run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) instructions: u64,
    pub(crate) loads: u64,
    pub(crate) stores: u64,
    /// By the board's table of costs; one an instruction where it has none.
    pub(crate) cycles: u64,
}

/// The share of one symbol in all regions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SymbolCounts {
    pub(crate) name: String,
    pub(crate) instructions: u64,
    pub(crate) cycles: u64,
}

/// What the plugin reports of one run.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Report {
    /// In the order of execution.
    pub(crate) regions: Vec<Counts>,
    /// The most expensive first; empty unless asked for.
    pub(crate) symbols: Vec<SymbolCounts>,
    pub(crate) total: Counts,
}

impl Report {
    /// What all regions took together.
    pub(crate) fn sum(&self) -> Counts {
        self.regions.iter().fold(Counts::default(), |sum, region| Counts {
            instructions: sum.instructions + region.instructions,
            loads: sum.loads + region.loads,
            stores: sum.stores + region.stores,
            cycles: sum.cycles + region.cycles,
        })
    }
}

/// A counted run.
pub(crate) struct CountedRun {
    /// What the firmware wrote.
    pub(crate) written: Vec<u8>,
    pub(crate) report: Report,
}

/// Runs a firmware under the plugin, with or without the profile by symbol.
pub(crate) fn run(board: &Board, elf: &Path, arguments: &[String], limit: Duration, profile: bool) -> Outcome<CountedRun> {
    run_with(board, elf, emulator::Options { arguments, ..Default::default() }, limit, profile)
}

/// The same with other options, such as a file in the board's memory.
pub(crate) fn run_with(board: &Board, elf: &Path, options: emulator::Options<'_>, limit: Duration, profile: bool) -> Outcome<CountedRun> {
    let program = setup::emulator(board.emulator)?;
    setup::require_plugins(&program)?;
    let library = build(&program)?;
    let report_path = paths::tools().join(format!("counts-{}.txt", std::process::id()));
    let mut plugin = OsString::from(&library);
    let costs = board.costs.map(|costs| ("costs", folder().join(costs)));
    for (key, path) in std::iter::once(("out", report_path.clone())).chain(costs) {
        plugin.push(format!(",{key}="));
        plugin.push(path);
    }
    if profile {
        plugin.push(",profile=on");
    }
    let options = emulator::Options { plugin: Some(plugin), ..options };
    let written = emulator::run(board, elf, limit, &options);
    let text = std::fs::read_to_string(&report_path);
    // Gone already when QEMU did not start.
    let _ = std::fs::remove_file(&report_path);
    let written = written?;
    let text = text.map_err(|error| Failure::cannot_run(format!("the counting plugin left no report: {error}")))?;
    let report =
        parse(&text).map_err(|line| Failure::cannot_run(format!("the counting plugin reported a line that is not understood: {line}")))?;
    Ok(CountedRun { written, report })
}

/// The plugin for this QEMU, compiled when its source is newer than what was compiled before.
pub(crate) fn build(qemu: &Path) -> Outcome<PathBuf> {
    let api = api_version(&process::capture(Command::new(qemu).arg("--version"))?)?;
    let source = folder().join("icnt.c");
    let library = paths::tools().join(format!("icnt-api{api}.so"));
    if modified(&library) > modified(&source) {
        return Ok(library);
    }
    let compiler = ["cc", "gcc"]
        .into_iter()
        .find(|name| on_path(name).is_some())
        .ok_or_else(|| Failure::cannot_run("counting instructions needs a C compiler for the plugin; install gcc"))?;
    std::fs::create_dir_all(paths::tools())
        .map_err(|error| Failure::cannot_run(format!("cannot write {}: {error}", paths::tools().display())))?;
    let partial = library.with_extension(format!("{}.partial", std::process::id()));
    let mut command = Command::new(compiler);
    command
        .args(["-std=c11", "-D_DEFAULT_SOURCE", "-O2", "-Wall", "-Wextra", "-Werror"])
        .args(["-shared", "-fPIC", "-fvisibility=hidden"])
        .arg(format!("-DQEMU_PLUGIN_API={api}"))
        .arg("-o")
        .args([&partial, &source]);
    process::capture(&mut command)?;
    std::fs::rename(&partial, &library).map_err(|error| Failure::cannot_run(format!("cannot write {}: {error}", library.display())))?;
    Ok(library)
}

fn folder() -> PathBuf {
    paths::boards().join("plugin")
}

fn modified(path: &Path) -> Option<SystemTime> {
    std::fs::metadata(path).and_then(|file| file.modified()).ok()
}

/// The version of the plugin interface that goes with what `qemu --version` prints.
fn api_version(printed: &str) -> Outcome<u32> {
    let numbers = printed
        .split_once("version ")
        .map_or("", |(_, rest)| rest)
        .split(|c: char| !c.is_ascii_digit())
        .map(str::parse::<u32>)
        .take(2)
        .collect::<Result<Vec<_>, _>>();
    match numbers.as_deref() {
        Ok(&[major, _]) if major < 9 => Ok(1),
        Ok(&[9, 0]) => Ok(2),
        Ok(&[_, _]) => Ok(3),
        _ => Err(Failure::cannot_run(format!("cannot tell the version of QEMU from `{}`", printed.lines().next().unwrap_or("")))),
    }
}

/// Reads the plugin's report; the line that is not understood is the error.
fn parse(text: &str) -> Result<Report, String> {
    let mut report = Report::default();
    let mut ended = false;
    for line in text.lines() {
        let understood = parse_line(line, &mut report, &mut ended);
        understood.ok_or_else(|| line.to_owned())?;
    }
    if ended { Ok(report) } else { Err("(the end is missing)".to_owned()) }
}

fn parse_line(line: &str, report: &mut Report, ended: &mut bool) -> Option<()> {
    let (what, rest) = line.split_once(' ')?;
    match what {
        "region" => {
            let (index, counts) = rest.split_once(' ')?;
            if index.parse() != Ok(report.regions.len()) {
                return None;
            }
            report.regions.push(parse_counts(counts)?);
        }
        "total" => {
            report.total = parse_counts(rest)?;
            *ended = true;
        }
        "symbol" => {
            // Names of generic functions have spaces in them.
            let (rest, cycles) = rest.rsplit_once(" cycles=")?;
            let (name, instructions) = rest.rsplit_once(" insns=")?;
            report.symbols.push(SymbolCounts {
                name: format!("{:#}", rustc_demangle::demangle(name)),
                instructions: instructions.parse().ok()?,
                cycles: cycles.parse().ok()?,
            });
        }
        _ => return None,
    }
    Some(())
}

fn parse_counts(text: &str) -> Option<Counts> {
    let mut fields = text.split(' ');
    let mut field = |key: &str| -> Option<u64> { fields.next()?.strip_prefix(key)?.strip_prefix('=')?.parse().ok() };
    Some(Counts { instructions: field("insns")?, loads: field("loads")?, stores: field("stores")?, cycles: field("cycles")? })
}

#[cfg(test)]
mod tests {
    use super::{Counts, SymbolCounts, api_version, parse};

    #[test]
    fn a_report_is_read() {
        let text = "region 0 insns=10 loads=2 stores=1 cycles=14\n\
                    symbol _ZN4core3ptr17h0123456789abcdefE insns=7 cycles=9\n\
                    total insns=50 loads=5 stores=4 cycles=70\n";
        let report = parse(text).unwrap();
        let region = Counts { instructions: 10, loads: 2, stores: 1, cycles: 14 };
        assert_eq!(report.regions, [region]);
        assert_eq!(report.symbols, [SymbolCounts { name: "core::ptr".to_owned(), instructions: 7, cycles: 9 }]);
        assert_eq!(report.total.instructions, 50);
    }

    #[test]
    fn a_cut_or_strange_report_is_refused() {
        assert!(parse("region 0 insns=10 loads=2 stores=1 cycles=14\n").is_err());
        assert!(parse("region 1 insns=1 loads=1 stores=1 cycles=1\ntotal insns=1 loads=1 stores=1 cycles=1\n").is_err());
        assert!(parse("hello\n").is_err());
    }

    #[test]
    fn the_interface_follows_the_version_of_qemu() {
        let first_line = |version: &str| format!("QEMU emulator version {version} (Debian 1:7.2)\nCopyright");
        for (version, api) in [("7.2.22", 1), ("8.2.0", 1), ("9.0.1", 2), ("9.1.0", 3), ("10.0.2", 3)] {
            assert_eq!(api_version(&first_line(version)).unwrap(), api, "{version}");
        }
        assert!(api_version("something else").is_err());
    }
}

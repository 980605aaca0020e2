//! `cargo xtask`: the one entry to everything that this repository does. Heavy work is spawned, so that this stays quick to build.

mod bench;
mod bits;
mod board;
mod book;
mod c;
mod clients;
mod demo;
mod deny;
mod device_check;
mod elf;
mod emulator;
mod failure;
mod figures;
mod fuzz;
mod kernels;
mod load;
mod made;
mod miri;
mod models;
mod networks;
mod new_firmware;
mod paths;
mod plan;
mod plugin;
mod probe;
mod process;
mod qemu;
mod real;
mod release;
mod sbom;
mod semver;
mod setup;
mod size;
mod test;
mod tool;
mod train;

use failure::{Failure, Outcome};
use std::ffi::OsString;
use std::process::ExitCode;

/// One subcommand: its name, one line for the list, its full help, and what it does with the rest of the command line.
struct Subcommand {
    name: &'static str,
    summary: &'static str,
    help: &'static str,
    run: fn(Vec<OsString>) -> Outcome,
}

const SUBCOMMANDS: &[Subcommand] = &[
    Subcommand {
        name: "demo",
        summary: "Tell a story on this machine and on an emulated chip, and compare the bits",
        help: demo::HELP,
        run: demo::main,
    },
    Subcommand {
        name: "test",
        summary: "Run everything that is checked, from format and lint to the emulated chip",
        help: test::HELP,
        run: test::main,
    },
    Subcommand { name: "qemu", summary: "Build a board's firmware and run it on the emulated board", help: qemu::HELP, run: qemu::main },
    Subcommand {
        name: "bits",
        summary: "Compare the logits of emulated boards with the host's, bit by bit",
        help: bits::HELP,
        run: bits::main,
    },
    Subcommand { name: "probe", summary: "Build firmware that `dmexp compare` can ask", help: probe::HELP, run: probe::main },
    Subcommand { name: "c", summary: "Build the firmware in C and run it on the emulated board", help: c::HELP, run: c::main },
    Subcommand { name: "real", summary: "Build the firmware of real boards, which are flashed by hand", help: real::HELP, run: real::main },
    Subcommand { name: "size", summary: "Weigh a board's firmware and prove that it cannot panic", help: size::HELP, run: size::main },
    Subcommand {
        name: "miri",
        summary: "Run the tests of the file and the runtime under Miri or AddressSanitizer",
        help: miri::HELP,
        run: miri::main,
    },
    Subcommand {
        name: "kernels",
        summary: "Rebuild the PTX of the CUDA kernels and hold it to its budget of registers",
        help: kernels::HELP,
        run: kernels::main,
    },
    Subcommand {
        name: "device-check",
        summary: "Pack what checks a GPU, for a machine that has one",
        help: device_check::HELP,
        run: device_check::main,
    },
    Subcommand { name: "bench", summary: "Measure, as a table and as JSON", help: bench::HELP, run: bench::main },
    Subcommand {
        name: "deny",
        summary: "Hold the dependencies to the licences, sources and advisories of deny.toml",
        help: deny::HELP,
        run: deny::main,
    },
    Subcommand {
        name: "book",
        summary: "Check the links of every document and build docs/ as web pages",
        help: book::HELP,
        run: book::main,
    },
    Subcommand {
        name: "figures",
        summary: "Hold the figures of every document to docs/figures, and measure those anew",
        help: figures::HELP,
        run: figures::main,
    },
    Subcommand {
        name: "semver",
        summary: "Refuse changes of what is public that break users' code, against an earlier revision",
        help: semver::HELP,
        run: semver::main,
    },
    Subcommand {
        name: "release",
        summary: "Look whether this could be released: versions, packages, semver, dependencies",
        help: release::HELP,
        run: release::main,
    },
    Subcommand { name: "fuzz", summary: "Run every reader on hostile input, under libFuzzer", help: fuzz::HELP, run: fuzz::main },
    Subcommand { name: "sbom", summary: "Print the bill of materials of a package", help: sbom::HELP, run: sbom::main },
    Subcommand {
        name: "load",
        summary: "Put a server under load, and compare every text with what it is alone",
        help: load::HELP,
        run: load::main,
    },
    Subcommand { name: "train", summary: "Train the models that the repository carries", help: train::HELP, run: train::main },
    Subcommand {
        name: "setup",
        summary: "Get what the other tasks need: Rust targets, QEMU, the counting plugin",
        help: setup::HELP,
        run: setup::main,
    },
];

fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1);
    let Some(name) = words.next() else {
        eprint!("{}", overview());
        return ExitCode::from(2);
    };
    match dispatch(&name.to_string_lossy(), words.collect()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("xtask: {failure}");
            failure.exit_code()
        }
    }
}

/// Finds the subcommand and runs it, or prints its help.
fn dispatch(name: &str, rest: Vec<OsString>) -> Outcome {
    if matches!(name, "help" | "--help" | "-h") {
        match rest.first() {
            None => print!("{}", overview()),
            Some(topic) => print!("{}", find(&topic.to_string_lossy())?.help),
        }
        return Ok(());
    }
    let subcommand = find(name)?;
    let own_words = rest.iter().take_while(|word| *word != "--");
    if own_words.into_iter().any(|word| word == "--help" || word == "-h") {
        print!("{}", subcommand.help);
        return Ok(());
    }
    (subcommand.run)(rest)
}

fn find(name: &str) -> Result<&'static Subcommand, Failure> {
    SUBCOMMANDS.iter().find(|subcommand| subcommand.name == name).ok_or_else(|| {
        let known: Vec<_> = SUBCOMMANDS.iter().map(|known| known.name).collect();
        Failure::cannot_run(format!("there is no task `{name}`; the tasks are: {}", known.join(", ")))
    })
}

/// The help of `cargo xtask` itself.
fn overview() -> String {
    let width = SUBCOMMANDS.iter().map(|subcommand| subcommand.name.len()).max().unwrap_or_default() + 2;
    let line = |subcommand: &Subcommand| format!("  {:width$}{}", subcommand.name, subcommand.summary);
    let tasks: Vec<_> = SUBCOMMANDS.iter().map(line).collect();
    format!(
        "Usage: cargo xtask TASK [OPTIONS]\n\nTasks:\n{}\n\n\
         `cargo xtask TASK --help` says more. Exit status: 0 done, 1 a check failed, 2 it could not be run.\n",
        tasks.join("\n")
    )
}

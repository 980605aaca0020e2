//! `cargo xtask test`: everything that is checked, step by step.

use crate::failure::{Failure, Outcome};
use crate::{
    bench, bits, board, book, c, clients, figures, kernels, made, models, networks, new_firmware, paths, probe, process, qemu, real,
    release, setup, size,
};
use serde_json::Value;
use std::ffi::OsString;
use std::path::Path;

mod streams;

pub(crate) const HELP: &str = "\
Usage: cargo xtask test [OPTIONS]

Runs every check and stops when one fails. The last line is `N passed, N failed`, counted in steps. Two steps run at a time where
the order is free: those of the host and those of each kind of chip; what a step prints is shown when it ends.

Options:
  --list           Print the names of the steps
  --only NAME      Only this step; may be given more than once
  --one-by-one     In order, with everything shown as it comes
  --bare           In order, without the lines about the steps
";

/// One step: its name, what it does, and in which stream: the steps of one stream run in their order, streams beside each other.
struct Step {
    name: String,
    stream: &'static str,
    run: Box<dyn Fn() -> Outcome + Sync>,
}

/// The stream of what runs on this machine; those of the boards are called by their target, because one target's firmware is built in one folder.
const HOST: &str = "host";

/// The targets on which every combination of the runtime's features must compile.
const CHIP_TARGETS: &[&str] = &["thumbv6m-none-eabi", "thumbv7em-none-eabihf", "riscv32imac-unknown-none-elf"];

/// The boards, one an architecture, whose firmware is built with a panic in it, which must be found.
const SEEDED_PANICS: &[&str] = &["an386", "virt-imac"];

/// The boards for which a project of `dmexp new firmware` is built and run: every way in which they differ.
const NEW_FIRMWARE: &[&str] = &["an386", "microbit", "virt-imac"];

/// Features that are for hosts, never for a chip, and the one that is a set of others.
const NOT_FOR_CHIPS: &[&str] = &["std", "default"];

pub(crate) fn main(words: Vec<OsString>) -> Outcome {
    use lexopt::prelude::*;
    let mut parser = lexopt::Parser::from_args(words);
    let mut only = Vec::new();
    let (mut list, mut one_by_one, mut bare) = (false, false, false);
    while let Some(argument) = parser.next()? {
        match argument {
            Long("only") => only.push(parser.value()?.string()?),
            Long("list") => list = true,
            Long("one-by-one") => one_by_one = true,
            Long("bare") => bare = true,
            other => return Err(other.unexpected().into()),
        }
    }
    models::take_dmexp_as_tested();
    let mut steps = steps();
    if let Some(unknown) = only.iter().find(|name| steps.iter().all(|step| step.name != **name)) {
        return Err(Failure::cannot_run(format!("there is no step `{unknown}`; --list prints the names")));
    }
    steps.retain(|step| only.is_empty() || only.contains(&step.name));
    if list {
        for step in &steps {
            println!("{}", step.name);
        }
        return Ok(());
    }
    if bare {
        return steps.iter().try_for_each(|step| (step.run)());
    }
    if steps.len() == 1 || one_by_one { streams::in_order(&steps) } else { streams::side_by_side(&steps) }
}

fn steps() -> Vec<Step> {
    let mut steps = vec![
        step("setup", HOST, || {
            setup::main(Vec::new())?;
            // What runs the kernels of GPUs on a processor is compiled with it.
            setup::machine_package("g++", || process::on_path("c++").is_some())?;
            // What commands in documents use; those are left out where it cannot be had.
            for program in ["curl", "jq", "python3", "xxd"] {
                if let Err(failure) = setup::machine_package(program, || process::on_path(program).is_some()) {
                    println!("commands in documents that use {program} will not be run: {failure}");
                }
            }
            setup::rust_target(TARGET_OF_32_BITS)?;
            board::ALL.iter().try_for_each(|board| setup::rust_target(board.target))?;
            // Everything that runs beside each other uses them.
            models::tested_programs().map(drop)
        }),
        step("format", HOST, || {
            cargo(&["fmt", "--all", "--", "--check"])?;
            process::run(process::cargo().current_dir(paths::boards()).args(["fmt", "--all", "--", "--check"]))?;
            for folder in ["tests/fuzz", "tests/peers"] {
                process::run(process::cargo().current_dir(paths::root().join(folder)).args(["fmt", "--", "--check"]))?;
            }
            process::run(process::cargo().current_dir(paths::boards().join("real")).args(["fmt", "--all", "--", "--check"]))
        }),
        step("lint", HOST, || {
            cargo(&["clippy", "--workspace", "--exclude", "dmexp-references", "--all-targets", "--locked", "--", "-D", "warnings"])
        }),
        step("lint-boards", HOST, || board::ALL.iter().try_for_each(lint_board)),
        step("tests", HOST, || {
            let mut test = process::cargo();
            // Of the kernels of GPUs over the whole context of the model; end to end of the command that is built already.
            test.env("DMEXP_KERNELS_POSITIONS", "256").env("DMEXP_BIN", models::dmexp()?.get_program());
            test.current_dir(paths::root()).args(["test", "--locked", "--workspace"]);
            // The references have a step of their own; what trains is tested where it is changed.
            process::run(test.args(["--exclude", "dmexp-references", "--exclude", "dmexp-train"]))
        }),
        step("client", HOST, clients::check_client),
        step("page", HOST, clients::check_page),
        step("references", HOST, || cargo(&["test", "--locked", "--package", "dmexp-references"])),
        step("ptx", HOST, kernels::check),
        step("32-bit", HOST, test_on_32_bits),
        step("features", HOST, check_features),
        step("hosts", HOST, check_hosts),
        step("documentation", HOST, || {
            process::run(process::cargo().current_dir(paths::root()).env("RUSTDOCFLAGS", "-D warnings").args([
                "doc",
                "--no-deps",
                "--locked",
            ]))
        }),
    ];
    steps.push(step("book", HOST, book::check));
    steps.push(step("figures", HOST, figures::check));
    steps.push(step("packages", HOST, || {
        println!("{}", release::check_versions()?);
        release::check_contents()
    }));
    steps.push(step("c", "thumbv7em-none-eabihf", c::check));
    steps.push(step("real-boards", "real", real::check));
    for board in board::ALL {
        steps.extend([
            step(&format!("qemu-{}", board.name), board.target, || qemu::check(board, &[], qemu::DEFAULT_LIMIT)),
            step(&format!("bits-{}", board.name), board.target, || bits::check(board, models::ALL, false).map(drop)),
            step(&format!("size-{}", board.name), board.target, || size::check(board)),
            step(&format!("marks-{}", board.name), board.target, || bench::chip::check_marks(board)),
            step(&format!("probe-{}", board.name), board.target, || probe::check(board)),
        ]);
        if networks::BOARDS.contains(&board.name) {
            steps.push(step(&format!("networks-{}", board.name), board.target, || {
                networks::check_example(board)?;
                networks::check(board)
            }));
        }
        if NEW_FIRMWARE.contains(&board.name) {
            steps.push(step(&format!("new-firmware-{}", board.name), board.target, || new_firmware::check(board)));
        }
        if board.name == made::BOARD {
            steps.push(step(&format!("dormouse-{}", board.name), board.target, || probe::check_dormouse(board)));
        }
        // The check of panic paths is the same for every board; what it looks at differs by architecture.
        if SEEDED_PANICS.contains(&board.name) {
            steps.push(step(&format!("seeded-panic-{}", board.name), board.target, || size::check_refuses_seeded_panic(board)));
        }
    }
    steps
}

fn step(name: &str, stream: &'static str, run: impl Fn() -> Outcome + Sync + 'static) -> Step {
    Step { name: name.to_owned(), stream, run: Box::new(run) }
}

/// A target of 32 bits whose programs this machine runs, and which needs no C library of its own.
const TARGET_OF_32_BITS: &str = "i686-unknown-linux-musl";

/// Targets with an operating system, or something like one, that differ from this machine's.
const OTHER_HOSTS: &[&str] = &["aarch64-unknown-linux-musl", "wasm32-unknown-unknown"];

/// The hosts of the command on which no test runs: everything of the everyday build is compiled for them as far as that goes without their linkers. Their tests compile too when asked for (`cargo check --all-targets --target`), which takes twice as long.
const UNTRIED_HOSTS: &[&str] = &["x86_64-pc-windows-gnu", "x86_64-apple-darwin"];

/// A target whose cores have an FPU, and the DSP instructions or not.
const WITHOUT_DSP: &str = "thumbv8m.main-none-eabihf";

/// Runs the tests of the file, the runtime and the exporter on a target of 32 bits: sizes past it must be refused there, and bits must be the same.
fn test_on_32_bits() -> Outcome {
    setup::rust_target(TARGET_OF_32_BITS)?;
    process::run(
        process::cargo()
            .current_dir(paths::root())
            .env("CARGO_TARGET_I686_UNKNOWN_LINUX_MUSL_LINKER", "rust-lld")
            .args(["test", "--locked", "--target", TARGET_OF_32_BITS, "--lib"])
            .args(["--package", "dmexp-format", "--package", "dmexp", "--package", "dmexp-tools"])
            .args(["--features", "dmexp-format/std"]),
    )
}

/// Checks what ships for hosts that this machine is not. Where a target cannot be had, the step says so: whoever works without a network loses no other check.
fn check_hosts() -> Outcome {
    for target in UNTRIED_HOSTS {
        if setup::rust_target(target).is_err() {
            println!("left out: the Rust target {target} cannot be had");
            continue;
        }
        cargo(&["check", "--quiet", "--locked", "--lib", "--bins", "--target", target])?;
    }
    Ok(())
}

/// Runs cargo in the main workspace.
fn cargo(words: &[&str]) -> Outcome {
    process::run(process::cargo().current_dir(paths::root()).args(words))
}

fn lint_board(board: &board::Board) -> Outcome {
    let lint = |model: &Path, words: &[&str], features: &[&str]| {
        let features: Vec<_> = features.iter().map(|feature| format!("{}/{feature}", board.package)).collect();
        process::run(
            process::cargo()
                .current_dir(paths::boards())
                .env("DMEXP_MODEL", model)
                .args(["clippy", "--release", "--locked", "--target", board.target])
                .args(["--package", board.package, "--package", "dmexp-board-app"])
                .args(words)
                .args(["--features", &features.join(",")])
                .args(["--", "-D", "warnings"]),
        )
    };
    lint(&board.model.export(qemu::DEFAULT_DTYPE)?, &[], &[board::MEASURE, probe::FEATURE])?;
    // Firmware with a network is the same everywhere, but for what reads files.
    for features in networks::linted(board) {
        lint(&networks::example()?, &["--no-default-features"], features)?;
    }
    Ok(())
}

/// Checks the runtime's crates on this machine and on every chip target with no feature and with all together, on this machine and the first of the others with each feature alone too; the runtime for
/// other hosts.
fn check_features() -> Outcome {
    let printed =
        process::capture(process::cargo().current_dir(paths::root()).args(["metadata", "--no-deps", "--format-version", "1", "--locked"]))?;
    let metadata: Value = serde_json::from_str(&printed)
        .map_err(|error| Failure::cannot_run(format!("cannot read what `cargo metadata` prints: {error}")))?;
    let crates = runtime_crates(&metadata);
    if crates.is_empty() {
        return Err(Failure::cannot_run("found no library under runtime/"));
    }
    for (package, features) in &crates {
        let mut sets = vec![String::new()];
        sets.extend(features.iter().cloned());
        sets.push(features.join(","));
        sets.dedup();
        println!("{package}: {} sets of features, the first and the last on {} targets", sets.len(), CHIP_TARGETS.len() + 1);
        // With a target named, what runs at build time is that of the other targets.
        for set in &sets {
            check_set(package, set, "host-tuple")?;
        }
        for (place, target) in CHIP_TARGETS.iter().enumerate() {
            setup::rust_target(target)?;
            // Each feature alone where most is written in Rust; nothing and everything on the others.
            let all = place == 0;
            for set in sets.iter().filter(|set| all || set.is_empty() || set.contains(',')) {
                check_set(package, set, target)?;
            }
        }
    }
    // Nothing has a heap: what is linked as a library for C or as a program is refused, here already, where the crate `alloc` is among its parts and nothing in it allocates.
    let runtime = crates.iter().find(|(package, _)| package == "dmexp").map_or(&[][..], |(_, features)| features);
    let features: Vec<_> = runtime.iter().map(|feature| format!("dmexp/{feature}")).collect();
    check_set("dmexp-c", &features.join(","), CHIP_TARGETS[1])?;
    // Hosts that no test runs on: one has kernels of its own, the other's vectors are the compiler's.
    for target in OTHER_HOSTS {
        setup::rust_target(target)?;
        check_set("dmexp", "default", target)?;
    }
    // A core of Armv8-M may have no DSP instructions: without the feature `dsp` the assembler for that target meets none, or refuses.
    setup::rust_target(WITHOUT_DSP)?;
    process::run(process::cargo().current_dir(paths::root()).env("RUSTFLAGS", "-D warnings").args([
        "build",
        "--quiet",
        "--locked",
        "--no-default-features",
        "--package",
        "dmexp",
        "--target",
        WITHOUT_DSP,
        "--features",
        "llama,f32,f16,bf16,q8,q4,kv",
    ]))
}

/// Checks one crate with these features, for a target.
fn check_set(package: &str, features: &str, target: &str) -> Outcome {
    process::run(
        process::cargo()
            .current_dir(paths::root())
            .env("RUSTFLAGS", "-D warnings")
            .args(["check", "--quiet", "--locked", "--no-default-features"])
            .args(["--package", package, "--target", target, "--features", features]),
    )
}

/// The libraries under runtime/ with their features for chips, from `cargo metadata`.
fn runtime_crates(metadata: &Value) -> Vec<(String, Vec<String>)> {
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let on_chips = packages.filter(|package| {
        let manifest = package["manifest_path"].as_str().unwrap_or("");
        let targets = package["targets"].as_array().into_iter().flatten();
        manifest.contains("/runtime/") && targets.into_iter().any(|target| target["kind"][0] == "lib")
    });
    on_chips
        .map(|package| {
            let features = package["features"].as_object().into_iter().flatten();
            let names = features.map(|(name, _)| name.clone()).filter(|name| !NOT_FOR_CHIPS.contains(&name.as_str()));
            (package["name"].as_str().unwrap_or("").to_owned(), names.collect())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{runtime_crates, steps};
    use serde_json::json;

    #[test]
    fn step_names_are_unique() {
        let mut names: Vec<_> = steps().into_iter().map(|step| step.name).collect();
        let all = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), all);
    }

    #[test]
    fn only_libraries_of_the_runtime_count() {
        let package = |name: &str, path: &str, kind: &str| {
            json!({ "name": name, "manifest_path": path, "targets": [{ "kind": [kind] }],
                    "features": { "f16": [], "std": [], "default": ["f16"] } })
        };
        let metadata = json!({ "packages": [
            package("dmexp", "/x/runtime/Cargo.toml", "lib"),
            package("dmexp-macros", "/x/runtime/macros/Cargo.toml", "proc-macro"),
            package("dmexp-tools", "/x/host-tools/Cargo.toml", "lib"),
        ] });
        assert_eq!(runtime_crates(&metadata), [("dmexp".to_owned(), vec!["f16".to_owned()])]);
    }
}

//! `cargo xtask kernels`: makes the PTX of `kernels/` with the compiler that is pinned here, and weighs it with the assembler of every architecture. No GPU is needed.

use crate::failure::{Failure, Outcome};
use crate::{paths, process, setup};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) const HELP: &str = "\
Usage: cargo xtask kernels [OPTIONS]

Compiles kernels/cuda to PTX and compares it with kernels/kernels.ptx, byte by byte; then assembles that for each architecture and
compares registers and spills with kernels/registers.txt. Prints registers, shared memory, spills and an estimate of the occupancy.
The compiler comes from PyPI (about 100 MB, once, into target/tools; it is under NVIDIA's licence, and no part of what is built).

Options:
  --write          Write kernels/kernels.ptx and kernels/registers.txt anew; spills are refused all the same
";

/// The compiler's packages on `PyPI`: the compiler, what makes PTX of its output, its own headers, and those of the language.
const PACKAGES: &[&str] =
    &["nvidia-cuda-nvcc==13.0.88", "nvidia-nvvm==13.0.88", "nvidia-cuda-crt==13.0.88", "nvidia-cuda-runtime==13.0.96"];

/// The PTX version that the compiler writes, and the one that all its instructions were in already: drivers refuse what is newer than they are.
const VERSION: (&str, &str) = (".version 9.0", ".version 6.3");

/// Architectures that the PTX is assembled for, with how many threads and how much shared memory (in KiB) a processor of them has.
const ARCHITECTURES: &[(&str, u32, u32)] =
    &[("sm_75", 1024, 64), ("sm_80", 2048, 164), ("sm_90", 2048, 228), ("sm_100", 2048, 228), ("sm_120", 1536, 100)];

/// Registers of a processor; they are given out to warps by eights a thread.
const REGISTERS: u32 = 65_536;
/// Blocks that a processor holds at most, and those of the oldest one.
const BLOCKS: u32 = 32;
const BLOCKS_OF_SM_75: u32 = 16;
/// What a block takes of the shared memory besides its own.
const SHARED_OF_SYSTEM: u32 = 1024;

/// Whether a line of PTX has an instruction that is contracted or that the assembler may contract (one without a rounding), that is approximate, flushes subnormals, or adds in no fixed order.
fn is_not_canonical(line: &str) -> bool {
    let Some(operation) = line.split_whitespace().find(|word| !word.starts_with('@')) else { return false };
    let contracted = operation.starts_with("fma.") || operation.starts_with("mad.") && operation.contains(".f");
    let may_be_contracted = ["add.f", "sub.f", "mul.f"].iter().any(|word| operation.starts_with(word));
    let unordered = operation.starts_with("atom.") || operation.starts_with("red.");
    contracted || may_be_contracted || unordered || [".ftz", ".approx", ".full"].iter().any(|word| operation.contains(word))
}

pub(crate) fn main(words: Vec<OsString>) -> Outcome {
    use lexopt::prelude::*;
    let mut parser = lexopt::Parser::from_args(words);
    let mut write = false;
    while let Some(argument) = parser.next()? {
        match argument {
            Long("write") => write = true,
            other => return Err(other.unexpected().into()),
        }
    }
    run(write)
}

/// The step of `cargo xtask test`.
pub(crate) fn check() -> Outcome {
    run(false)
}

fn run(write: bool) -> Outcome {
    let tools = compiler()?;
    let built = compile(&tools)?;
    let kept = paths::root().join("kernels/kernels.ptx");
    if write {
        put(&kept, &built)?;
    } else if get(&kept)? != built {
        return Err(Failure::found_wrong("kernels/kernels.ptx is not what kernels/cuda gives; write it anew: cargo xtask kernels --write"));
    }
    println!("kernels.ptx: {} bytes, {}", built.len(), if write { "written" } else { "rebuilt with the same bytes" });
    let kernels = weigh(&tools, &kept, &built)?;
    print!("{}", table(&kernels));
    budget(&kernels, write)
}

/// The folder with `bin/nvcc` and `bin/ptxas`.
fn compiler() -> Outcome<PathBuf> {
    let folder = paths::tools().join("cuda-13.0.88");
    let tools = folder.join("nvidia/cu13");
    if !tools.join("bin/ptxas").is_file() {
        println!("getting the CUDA compiler from PyPI");
        setup::machine_package("python3-pip", || process::capture(Command::new("python3").args(["-m", "pip", "--version"])).is_ok())?;
        let mut pip = Command::new("python3");
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--target"]).arg(&folder).args(PACKAGES);
        process::run(&mut pip).map_err(|failure| Failure::cannot_run(format!("cannot get the CUDA compiler from PyPI: {failure}")))?;
    }
    Ok(tools)
}

fn compile(tools: &Path) -> Outcome<String> {
    let made = paths::root().join("target/kernels.ptx");
    let mut nvcc = Command::new(tools.join("bin/nvcc"));
    // In the folder of the source, so that no name in the PTX depends on where the repository is.
    nvcc.current_dir(paths::root().join("kernels/cuda"));
    process::run(nvcc.args(["-ptx", "-arch=compute_75", "--fmad=false", "-o"]).arg(&made).arg("kernels.cu"))?;
    let text = get(&made)?;
    if text.matches(VERSION.0).count() != 1 {
        return Err(Failure::found_wrong(format!("the compiler's PTX does not say `{}`", VERSION.0)));
    }
    let text = text.replace(VERSION.0, VERSION.1);
    match text.lines().find(|line| is_not_canonical(line)) {
        Some(line) => Err(Failure::found_wrong(format!("the PTX has an instruction that is not canonical: {}", line.trim()))),
        None => Ok(text),
    }
}

/// What the assembler says of one kernel on one architecture.
#[derive(Clone, Copy, Default)]
struct Weight {
    registers: u32,
    spilled: u32,
    stack: u32,
    shared: u32,
}

/// A kernel: the threads of its blocks at most, and its weight on each architecture.
#[derive(Default)]
struct Weights {
    threads: u32,
    of: Vec<Weight>,
}

fn weigh(tools: &Path, ptx: &Path, text: &str) -> Outcome<BTreeMap<String, Weights>> {
    let mut kernels = BTreeMap::<String, Weights>::new();
    for (name, threads) in entries(text) {
        kernels.insert(name, Weights { threads, of: Vec::new() });
    }
    for (architecture, _, _) in ARCHITECTURES {
        let mut ptxas = Command::new(tools.join("bin/ptxas"));
        ptxas.args(["-v", &format!("-arch={architecture}"), "-o"]).arg(paths::root().join("target/kernels.cubin")).arg(ptx);
        let output = ptxas.output().map_err(|error| Failure::cannot_run(format!("cannot run `{}`: {error}", process::shown(&ptxas))))?;
        let said = process::said(&output);
        if !output.status.success() {
            return Err(Failure::found_wrong(format!("{architecture}: the assembler refuses the PTX:\n{said}")));
        }
        let mut current = None;
        for line in said.lines() {
            if let Some(name) = line.split("entry function '").nth(1).and_then(|rest| rest.split('\'').next()) {
                let weights = kernels.get_mut(name).ok_or_else(|| Failure::found_wrong(format!("an entry without a size: {name}")))?;
                weights.of.push(Weight::default());
                current = weights.of.last_mut();
            } else if let Some(weight) = &mut current {
                weight.stack += number_before(line, " bytes stack frame");
                weight.spilled += number_before(line, " bytes spill stores") + number_before(line, " bytes spill loads");
                weight.registers += number_before(line, " registers");
                weight.shared += number_before(line, " bytes smem");
            }
        }
    }
    if kernels.is_empty() || kernels.values().any(|weights| weights.of.len() != ARCHITECTURES.len()) {
        return Err(Failure::found_wrong("the assembler did not weigh every kernel on every architecture"));
    }
    Ok(kernels)
}

/// The number right before `words` in a line; 0 where they are not.
fn number_before(line: &str, words: &str) -> u32 {
    let digits =
        line.split(words).next().filter(|before| before.len() < line.len()).and_then(|before| before.split([' ', ',']).next_back());
    digits.and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

/// The entries of the PTX, with the threads of their blocks.
fn entries(text: &str) -> Vec<(String, u32)> {
    let entry = |part: &str| {
        let name = part.split('(').next()?.trim().to_owned();
        let threads = part.split(".maxntid ").nth(1)?.split([',', '\n']).next()?.trim().parse().ok()?;
        Some((name, threads))
    };
    text.split(".visible .entry ").skip(1).filter_map(entry).collect()
}

/// Which part of a processor's threads can be there at once, in hundredths, where blocks have as many threads as they may and no more shared memory than the kernel declares.
fn occupancy(weight: &Weight, threads: u32, (name, most, shared): (&str, u32, u32)) -> u32 {
    let registers = weight.registers.next_multiple_of(8).max(8) * threads;
    let blocks = if name == "sm_75" { BLOCKS_OF_SM_75 } else { BLOCKS };
    let by_shared = shared * 1024 / (weight.shared + SHARED_OF_SYSTEM);
    let resident = (REGISTERS / registers).min(most / threads).min(blocks).min(by_shared);
    resident * threads * 100 / most
}

fn table(kernels: &BTreeMap<String, Weights>) -> String {
    let mut text = String::from("registers / occupancy estimate of each kernel (no spills, no stack; static shared memory in bytes)\n");
    let _ = write!(text, "{:14} {:>7} {:>6}", "kernel", "threads", "shared");
    for (architecture, _, _) in ARCHITECTURES {
        let _ = write!(text, " {architecture:>11}");
    }
    text.push('\n');
    for (name, weights) in kernels {
        let shared = weights.of.iter().map(|weight| weight.shared).max().unwrap_or(0);
        let _ = write!(text, "{name:14} {:>7} {shared:>6}", weights.threads);
        for (weight, architecture) in weights.of.iter().zip(ARCHITECTURES) {
            let cell = format!("{} / {}%", weight.registers, occupancy(weight, weights.threads, *architecture));
            let _ = write!(text, " {cell:>11}");
        }
        text.push('\n');
    }
    text
}

/// Holds the weights to those in the file, or writes them there. Spills are never right.
fn budget(kernels: &BTreeMap<String, Weights>, write: bool) -> Outcome {
    for (name, weights) in kernels {
        for (weight, (architecture, _, _)) in weights.of.iter().zip(ARCHITECTURES) {
            if weight.spilled > 0 || weight.stack > 0 {
                return Err(Failure::found_wrong(format!(
                    "{name} on {architecture}: {} bytes of registers spilled, {} bytes of stack: both must be 0",
                    weight.spilled, weight.stack
                )));
            }
        }
    }
    let file = paths::root().join("kernels/registers.txt");
    let names: Vec<_> = ARCHITECTURES.iter().map(|(name, _, _)| *name).collect();
    let mut text = format!(
        "# The most registers a thread that each kernel may take on each architecture; none may spill. Written by `cargo xtask kernels --write`.\nkernel {}\n",
        names.join(" ")
    );
    for (name, weights) in kernels {
        let registers: Vec<_> = weights.of.iter().map(|weight| weight.registers.to_string()).collect();
        let _ = writeln!(text, "{name} {}", registers.join(" "));
    }
    if write {
        return put(&file, &text);
    }
    let kept = get(&file)?;
    for line in text.lines().skip(2) {
        let (name, found) = line.split_once(' ').unwrap_or((line, ""));
        let allowed = kept.lines().find_map(|kept| kept.strip_prefix(name)?.strip_prefix(' '));
        let numbers = |words: &str| words.split(' ').filter_map(|word| word.parse::<u32>().ok()).collect::<Vec<_>>();
        let (found, allowed) = (numbers(found), numbers(allowed.unwrap_or("")));
        if allowed.len() != found.len() || found.iter().zip(&allowed).any(|(found, allowed)| found > allowed) {
            return Err(Failure::found_wrong(format!("{name} takes {found:?} registers, kernels/registers.txt allows {allowed:?}")));
        }
    }
    println!("all within kernels/registers.txt");
    Ok(())
}

fn get(file: &Path) -> Outcome<String> {
    std::fs::read_to_string(file).map_err(|error| Failure::cannot_run(format!("cannot read {}: {error}", file.display())))
}

fn put(file: &Path, text: &str) -> Outcome {
    std::fs::write(file, text).map_err(|error| Failure::cannot_run(format!("cannot write {}: {error}", file.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_assembler_says_is_read() {
        let line = "    16 bytes stack frame, 20 bytes spill stores, 52 bytes spill loads";
        assert_eq!(number_before(line, " bytes stack frame"), 16);
        assert_eq!(number_before(line, " bytes spill stores") + number_before(line, " bytes spill loads"), 72);
        let line = "ptxas info    : Used 63 registers, used 1 barriers, 272 bytes smem, 480 bytes cmem[0]";
        assert_eq!((number_before(line, " registers"), number_before(line, " bytes smem")), (63, 272));
        assert_eq!(number_before(line, " bytes stack frame"), 0);
        let entry = ".visible .entry embed(\n\t.param .u64 x\n)\n.maxntid 256, 1, 1\n.minnctapersm 4\n{\n}\n";
        assert_eq!(entries(entry), [("embed".to_owned(), 256)]);
    }

    #[test]
    fn what_is_not_canonical_is_refused() {
        for line in [
            "\tfma.rn.f32 \t%f1, %f2;",
            "@%p1 mad.rn.f32 %f1;",
            "add.ftz.f32 %f1;",
            "rcp.approx.f32 %f1;",
            "red.global.add.f32 [%rd1];",
            "mul.f32 %f1;",
        ] {
            assert!(is_not_canonical(line), "{line}");
        }
        for line in
            ["", "\tst.shared.f32 \t[%r271], %f778;", "mad.lo.s32 %r1;", "mul.rn.f32 %f1;", "div.rn.f32 %f1;", "@%p2 bra $L__BB0_2;"]
        {
            assert!(!is_not_canonical(line), "{line}");
        }
    }

    #[test]
    fn occupancy_is_the_scarcest_of_what_a_processor_has() {
        let weight = |registers, shared| Weight { registers, spilled: 0, stack: 0, shared };
        assert_eq!(occupancy(&weight(32, 0), 256, ARCHITECTURES[2]), 100);
        assert_eq!(occupancy(&weight(64, 0), 256, ARCHITECTURES[2]), 50);
        assert_eq!(occupancy(&weight(33, 0), 256, ARCHITECTURES[2]), 75);
        assert_eq!(occupancy(&weight(32, 50 << 10), 256, ARCHITECTURES[2]), 50);
        assert_eq!(occupancy(&weight(16, 0), 32, ARCHITECTURES[0]), 50);
    }
}

//! Small networks on boards: the committed one in the firmware itself, made ones and those of the reference data loaded into memory. Each file carries its golden vectors, which the host computed, so
//! a board compares by itself. Used by `bits`, `bench`, `test`.

use crate::bench::chip::figure;
use crate::bench::{Measurement, RowSpec};
use crate::bits::table::Equal;
use crate::board::{self, Board};
use crate::elf::Firmware;
use crate::emulator::{self, Load};
use crate::failure::{Failure, Outcome};
use crate::{models, paths, plugin, process, qemu, size};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A network: the folder of its files from the repository's root, their name, and whether samples are in a file of their own.
#[derive(Clone, Copy)]
struct Network {
    folder: &'static str,
    name: &'static str,
}

const MADE: &str = "target/models/networks";
const DATA: &str = "../shared/data/rustyml";

/// The network in firmware: it tells tones apart.
const TONES: Network = Network { folder: "models", name: "tones" };
/// Networks of made-up weights.
const RECURRENT: Network = Network { folder: MADE, name: "recurrent" };
const IMAGE: Network = Network { folder: MADE, name: "image" };
const AUTOENCODER: Network = Network { folder: MADE, name: "autoencoder" };
/// A few dense layers: for the size of their code.
const DENSE: Network = Network { folder: MADE, name: "dense" };

/// Networks of the reference data.
const REFERENCE: [&str; 13] = [
    "activations",
    "autoencoder2d",
    "ds_cnn2d",
    "embed_rnn",
    "graph_residual",
    "gru_anomaly",
    "kws_cnn1d",
    "lstm_har",
    "mlp",
    "mlp_batchnorm",
    "mnist_cnn2d",
    "norms",
    "resize2d",
];

/// The boards that are compared, one a kind of code: with an FPU and DSP instructions, of Armv6-M, of RISC-V, and one with 16 KB of RAM.
pub(crate) const BOARDS: [&str; 4] = ["an386", "an385-v6m", "virt-imac", "microbit"];

/// Types of weights.
const TYPES: [&str; 3] = ["f32", "bf16", "q8"];

/// Networks that are counted on an386, where they are here.
const COUNTED: [Network; 5] = [
    TONES,
    Network { folder: DATA, name: "kws_cnn1d" },
    Network { folder: DATA, name: "ds_cnn2d" },
    Network { folder: DATA, name: "mnist_cnn2d" },
    AUTOENCODER,
];

/// Multiplications of the autoencoder for one input, and the instructions that each may take in q8.
const AUTOENCODER_MACS: f64 = 264_192.0;
const AUTOENCODER_MARK: f64 = 1.8;

/// The most code of firmware that has dense layers alone, in bytes.
const DENSE_MARK: u64 = 12_000;

impl Network {
    fn is_here(&self) -> bool {
        self.folder == MADE || paths::root().join(self.folder).join(format!("{}.bin", self.name)).exists()
    }

    /// The model file with weights in `dtype`, with its golden vectors.
    fn export(&self, dtype: &str) -> Outcome<PathBuf> {
        let (folder, made) = (paths::root().join(self.folder), paths::root().join(MADE));
        let cannot = |error| Failure::cannot_run(format!("cannot make {}: {error}", made.display()));
        std::fs::create_dir_all(&made).map_err(cannot)?;
        if self.folder == MADE {
            process::run(Command::new(models::trainer()?).args(["networks", "--out"]).arg(&made))?;
        }
        // The reference data has architecture and samples in one file.
        let (arch, samples) = if self.folder == DATA { ("json", "json") } else { ("arch.toml", "samples.json") };
        let (file, beside) = (made.join(format!("{}.{dtype}.dmexp", self.name)), |ending| folder.join(format!("{}.{ending}", self.name)));
        let mut export = models::dmexp()?;
        export.args(["export", "run", "--quiet", "--dtype", dtype, "--checkpoint"]).arg(beside("bin"));
        export.arg("--arch").arg(beside(arch)).arg("--samples").arg(beside(samples)).arg("--out").arg(&file);
        process::capture(&mut export)?;
        Ok(file)
    }
}

/// Firmware with `network` inside that measures; `reader`: it also takes files in memory, of every type.
fn firmware(board: &Board, dtype: &str, network: Network, reader: bool) -> Outcome<PathBuf> {
    let all = ["network", board::MEASURE, "reader", "f32", "bf16", "q8"];
    let one = ["network", board::MEASURE, "f32", dtype];
    board::build_only(board, if reader { &all } else { &one }, &network.export(dtype)?)
}

/// Features of firmware with a network that are checked on this board.
pub(crate) fn linted(board: &Board) -> &'static [&'static [&'static str]] {
    match board.name {
        "an386" => &[&["network", "f32", "q8"], &["network", board::MEASURE, "reader", "f32", "bf16", "q8"]],
        "microbit" => &[&["network", board::MEASURE, "f32", "q8"]],
        _ => &[],
    }
}

/// The network of the example, as a model file.
pub(crate) fn example() -> Outcome<PathBuf> {
    TONES.export("q8")
}

/// Replays the golden vectors of every network of ours that the board has room for: as computed on the host, bit for bit.
pub(crate) fn check(board: &Board) -> Outcome {
    replayed(board, &[TONES, RECURRENT, IMAGE], &[0, 1]).map(drop)
}

/// Those of the reference data too, where it is here and the board has room; gives the rows, all of them equal.
pub(crate) fn check_all(board: &Board) -> Outcome<Vec<Equal>> {
    let mut equal = replayed(board, &[TONES, RECURRENT, IMAGE], &[0, 1])?;
    let reference: Vec<_> = REFERENCE.iter().map(|name| Network { folder: DATA, name }).filter(Network::is_here).collect();
    if board.load_address.is_some() {
        equal.extend(replayed(board, &reference, &[0])?);
    }
    Ok(equal)
}

/// Replays networks at these distances from an aligned address; on a board without room for others its own.
fn replayed(board: &Board, networks: &[Network], shifts: &[u64]) -> Outcome<Vec<Equal>> {
    let mut equal = Vec::new();
    if board.load_address.is_none() {
        for dtype in ["f32", "q8"] {
            let elf = firmware(board, dtype, TONES, false)?;
            let written = emulator::run(board, &elf, qemu::DEFAULT_LIMIT, &options(&["replay".to_owned()], None))?;
            equal.push(told(board, TONES, (dtype, 0), &written)?);
        }
        return Ok(equal);
    }
    let elf = firmware(board, "f32", TONES, true)?;
    for network in networks {
        for dtype in TYPES {
            let file = network.export(dtype)?;
            for shift in shifts {
                let row = told(board, *network, (dtype, *shift), &loaded(board, &elf, &file, *shift)?)?;
                equal.extend(Some(row).filter(|_| *shift == 0));
            }
        }
    }
    Ok(equal)
}

/// What firmware says that replays a file in its memory.
fn loaded(board: &Board, elf: &Path, file: &Path, shift: u64) -> Outcome<Vec<u8>> {
    let (words, load) = loading(file, shift)?;
    emulator::run(board, elf, qemu::DEFAULT_LIMIT, &options(&words, Some(load)))
}

fn loading(file: &Path, shift: u64) -> Outcome<(Vec<String>, Load)> {
    let len = std::fs::metadata(file).map_err(|error| Failure::cannot_run(format!("{}: {error}", file.display())))?.len();
    let words = ["file".to_owned(), shift.to_string(), len.to_string(), "replay".to_owned()];
    Ok((words.to_vec(), Load { file: file.to_owned(), shift }))
}

fn options(words: &[String], load: Option<Load>) -> emulator::Options<'_> {
    emulator::Options { arguments: words, load, ..Default::default() }
}

/// Prints a row and gives it, and refuses one in which a bit differs.
fn told(board: &Board, network: Network, (dtype, shift): (&'static str, u64), written: &[u8]) -> Outcome<Equal> {
    let (samples, wrong) = (figure(written, "samples")?, figure(written, "wrong")?);
    let place = if shift == 0 { board.name.to_owned() } else { format!("{} shifted", board.name) };
    if samples < 1.0 || wrong > 0.0 {
        return Err(Failure::found_wrong(format!("{place}: {wrong} of {samples} golden vectors of {} in {dtype} differ", network.name)));
    }
    println!("{:<16}{dtype:<8}{:<6}{place:<20}{samples:>9}  the same bits", network.name, "");
    Ok(Equal::network(board, network.name, dtype, samples as usize))
}

/// The example: firmware that names what it hears, as the labels of the committed samples say.
pub(crate) fn check_example(board: &Board) -> Outcome {
    let expected = "rising\nrising\nfalling\nfalling\nsteady\nsteady\nnoise\nnoise\n";
    for dtype in ["f32", "q8"] {
        let elf = board::build_only(board, &["network", "f32", dtype], &TONES.export(dtype)?)?;
        let written = emulator::run(board, &elf, qemu::DEFAULT_LIMIT, &options(&[], None))?;
        if written != expected.as_bytes() {
            let found = String::from_utf8_lossy(&written).into_owned();
            return Err(Failure::found_wrong(format!("{}: tones in {dtype} are named {found:?}", board.name)));
        }
        println!("{}: all tones are named rightly, in {dtype}", board.name);
        size::refuse_panic_paths(board.name, &Firmware::read(&elf)?)?;
    }
    if board.name == "an386" {
        for dtype in ["f32", "q8"] {
            let elf = Firmware::read(&board::build_only(board, &["network", dtype], &DENSE.export(dtype)?)?)?;
            size::keep(board, &format!("code for dense layers in {dtype}"), elf.code(), DENSE_MARK)?;
        }
        let [instructions, ..] = counted(board, AUTOENCODER, "q8")?[..] else { return Ok(()) };
        let each = instructions / AUTOENCODER_MACS;
        if each > AUTOENCODER_MARK {
            return Err(Failure::found_wrong(format!(
                "the autoencoder takes {each:.2} instructions a multiplication, the mark is {AUTOENCODER_MARK}"
            )));
        }
        println!("{}: the autoencoder takes {each:.2} instructions a multiplication", board.name);
    }
    Ok(())
}

/// Instructions and cycles of one prediction, mean of the golden vectors, bytes of arena.
fn counted(board: &Board, network: Network, dtype: &'static str) -> Outcome<Vec<f64>> {
    let elf = firmware(board, "f32", TONES, true)?;
    let (words, load) = loading(&network.export(dtype)?, 0)?;
    let run = plugin::run_with(board, &elf, options(&words, Some(load)), qemu::DEFAULT_LIMIT, false)?;
    told(board, network, (dtype, 0), &run.written)?;
    let (sum, samples) = (run.report.sum(), figure(&run.written, "samples")?);
    Ok(vec![sum.instructions as f64 / samples, sum.cycles as f64 / samples, figure(&run.written, "arena_bytes")?])
}

/// The rows `chip/an386/NETWORK/TYPE/...`.
pub(crate) fn measurements() -> Vec<Measurement> {
    let Some(board) = board::ALL.iter().find(|board| board.name == "an386") else { return Vec::new() };
    let mut all = Vec::new();
    for network in COUNTED.into_iter().filter(Network::is_here) {
        for dtype in ["f32", "q8"] {
            let row = |name: &str, unit| RowSpec { id: format!("chip/{}/{}/{dtype}/{name}", board.name, network.name), unit };
            let rows = vec![
                row("instructions_per_prediction", "instructions"),
                row("cycles_model_per_prediction", "cycles"),
                row("arena_bytes", "bytes"),
            ];
            all.push(Measurement { rows, measure: Box::new(move || counted(board, network, dtype)) });
        }
    }
    all
}

//! Gets the peers and makes the models, under `target/peers`.

use super::super::host;
use crate::failure::{Failure, Outcome};
use crate::{models, paths, process};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the models are called, the fastest first; `SmolLM2` only where its file is named.
const SHAPES: [&str; 4] = ["s15", "s42", "s110", SMOLLM2];
const SMOLLM2: &str = "smollm2";
/// Types of weights: q4 has the embedding in 8 bits as the exporter chooses, q4all in 4.
const TYPES: [&str; 6] = ["f32", "bf16", "f16", "q8", "q4", "q4all"];

/// Of `PyPI`. Other versions have other figures.
const LLAMA_CPP: &str = "llama-cpp-python==0.3.36";
/// Every instruction of this kind of machine but AMX, with which some builds crash on quantised weights.
const LLAMA_CPP_BUILD: &str = "-DGGML_NATIVE=ON -DGGML_AMX_TILE=OFF -DGGML_AMX_INT8=OFF -DGGML_AMX_BF16=OFF -DLLAVA_BUILD=OFF";

/// Models and types that are measured.
pub(super) fn models() -> Vec<(String, &'static str)> {
    let shapes = SHAPES.into_iter().filter(|shape| *shape != SMOLLM2 || smollm2().is_some());
    shapes.flat_map(|shape| TYPES.map(|kind| (shape.to_owned(), kind))).collect()
}

/// Where a model stands in the tables.
pub(super) fn order(model: &str) -> usize {
    SHAPES.iter().position(|shape| *shape == model).unwrap_or(SHAPES.len())
}

fn smollm2() -> Option<PathBuf> {
    std::env::var_os(host::SMOLLM2).map(PathBuf::from)
}

/// Where the peers' programs are written.
pub(super) fn folder() -> PathBuf {
    paths::root().join("tests/peers")
}

/// A model in one type, as each engine reads it.
pub(super) struct Files {
    pub(super) dmexp: PathBuf,
    pub(super) gguf: PathBuf,
}

/// Names the Python of another build of llama.cpp (say, with AMX, by a compiler that does not crash it), beside the one that is built here.
const OTHER_LLAMA_CPP: &str = "DMEXP_LLAMA_CPP";

/// What there is to compare with.
pub(super) struct Peers {
    /// Pythons that have llama.cpp, of which the faster counts.
    pub(super) llama: Vec<PathBuf>,
    /// The program that runs candle.
    pub(super) candle: Option<PathBuf>,
    /// A Python that writes GGUF files.
    python: PathBuf,
    work: PathBuf,
}

impl Peers {
    /// Gets them. One that cannot be had is left out, which is said in a line.
    pub(super) fn get() -> Outcome<Self> {
        let work = paths::root().join("target/peers");
        std::fs::create_dir_all(work.join("models"))
            .map_err(|error| Failure::cannot_run(format!("cannot make {}: {error}", work.display())))?;
        let python = work.join("venv/bin/python");
        if !python.exists() {
            process::capture(Command::new("python3").args(["-m", "venv"]).arg(work.join("venv")))?;
        }
        let has = |module: &str| process::capture(Command::new(&python).args(["-c", &format!("import {module}")])).is_ok();
        if !has("gguf") {
            process::capture(Command::new(&python).args(["-m", "pip", "install", "--quiet", "numpy", "gguf"]))?;
        }
        if !has("llama_cpp") {
            eprintln!("building llama.cpp, which takes a quarter of an hour");
            let mut install = Command::new(&python);
            install.args(["-m", "pip", "install", "--quiet", LLAMA_CPP]).env("CMAKE_ARGS", LLAMA_CPP_BUILD);
            left_out("llama.cpp", process::capture(&mut install).map(|_| ()));
        }
        let other = std::env::var_os(OTHER_LLAMA_CPP).map(PathBuf::from);
        let llama = has("llama_cpp").then(|| python.clone()).into_iter().chain(other).collect();
        let candle = left_out("candle", candle(&work));
        Ok(Self { llama, candle, python, work })
    }

    /// The files of a model, made where they are not there yet.
    pub(super) fn files(&self, model: &str, kind: &'static str) -> Outcome<Files> {
        let file = |kind: &str, ending: &str| self.work.join(format!("models/{model}.{kind}.{ending}"));
        let (gguf, dmexp) = (file(kind, "gguf"), file(kind, "dmexp"));
        let source = match smollm2().filter(|_| model == SMOLLM2) {
            Some(path) => path,
            None => self.gguf(model, "f32", file("f32", "gguf"))?,
        };
        self.gguf(model, kind, gguf.clone())?;
        if !dmexp.exists() {
            let mut export = models::dmexp()?;
            export.args(["export", "run", "--quiet", "--no-golden", "--dtype", kind.trim_end_matches("all"), "--checkpoint"]).arg(source);
            if kind == "q4all" {
                export.args(["--tensor", "*=q4"]);
            }
            process::capture(export.arg("--out").arg(&dmexp))?;
        }
        Ok(Files { dmexp, gguf })
    }

    fn gguf(&self, model: &str, kind: &str, file: PathBuf) -> Outcome<PathBuf> {
        if !file.exists() {
            // Renamed when complete, so that an interrupted run leaves nothing that looks like a model.
            let part = file.with_extension("part");
            let source = smollm2().filter(|_| model == SMOLLM2).unwrap_or_else(|| PathBuf::from(model));
            process::capture(Command::new(&self.python).arg(folder().join("make_models.py")).arg(source).arg(kind).arg(&part))?;
            std::fs::rename(&part, &file).map_err(|error| Failure::cannot_run(format!("cannot keep {}: {error}", file.display())))?;
        }
        Ok(file)
    }
}

/// Builds the program that runs candle, with every instruction of this machine.
fn candle(work: &Path) -> Outcome<PathBuf> {
    let mut build = process::cargo();
    build.current_dir(folder()).args(["build", "--release", "--locked", "--quiet"]);
    build.env("RUSTFLAGS", "-C target-cpu=native").env("CARGO_TARGET_DIR", work.join("candle"));
    process::built(&mut build, "dmexp-peers")
}

/// What was got, or a line that says why it is left out.
fn left_out<T>(peer: &str, got: Outcome<T>) -> Option<T> {
    got.map_err(|failure| {
        let why = failure.to_string();
        eprintln!("{peer} is left out: {}", why.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default());
    })
    .ok()
}

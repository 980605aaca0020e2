//! The models that firmware, bench and demo use, exported with the command that users have. Used by `qemu`, `size`, `bits`, `bench`, `demo` and `test`.

use crate::failure::{Failure, Outcome};
use crate::{paths, process};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// A checkpoint with its tokenizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Source {
    /// The name in file names and ids of rows.
    pub(crate) name: &'static str,
    /// The checkpoint, from the repository's root.
    pub(crate) checkpoint: &'static str,
    /// The tokenizer: a file from the repository's root, or `bytes`; empty where the architecture has none.
    tokenizer: &'static str,
    /// More words for the export.
    more: &'static [&'static str],
    /// The token that texts begin with.
    pub(crate) first_token: u32,
    /// Positions whose logits are compared: all of its context, or as many as tell enough.
    pub(crate) positions: usize,
    /// Parameters, by which the work of a token is divided.
    pub(crate) parameters: u32,
}

/// The story model of this repository: the default everywhere.
pub(crate) const STORY: Source = Source {
    name: "story",
    checkpoint: "models/story.bin",
    tokenizer: "models/story.tokenizer.bin",
    more: &[],
    first_token: 1,
    positions: 256,
    parameters: 260_032,
};

/// The tiny model of this repository, for chips with 16 KB of RAM.
pub(crate) const TINY: Source = Source {
    name: "tiny",
    checkpoint: "models/tiny.bin",
    tokenizer: "bytes",
    more: &["--bos", "0"],
    first_token: 0,
    positions: 64,
    parameters: 11_448,
};

/// llama2.c's small model. Not part of the repository: it lies beside it where tests and figures are made.
pub(crate) const STORIES260K: Source = Source {
    name: "stories260K",
    checkpoint: "../shared/data/stories260K/stories260K.bin",
    tokenizer: "../shared/data/stories260K/tok512.bin",
    more: &[],
    first_token: 1,
    positions: 256,
    parameters: 260_032,
};

/// A dormouse model with made weights, all the parts of `nano` in a tenth of its size. Only firmware with the feature `dormouse` reads it.
pub(crate) const DORMOUSE: Source = Source {
    name: "dormouse",
    checkpoint: "target/models/dormouse.made.dmexp",
    tokenizer: "",
    more: &["--format", "2"],
    first_token: 0,
    positions: 32,
    parameters: 287_333,
};

/// Every model that all firmware takes.
pub(crate) const ALL: &[Source] = &[STORY, TINY, STORIES260K];

impl Source {
    /// Whether its checkpoint is here.
    pub(crate) fn is_here(&self) -> bool {
        paths::root().join(self.checkpoint).exists()
    }

    /// Exports the model with matrices in `dtype` and returns the file, which stays untouched where the export is what it was: firmware with it is not built again then.
    pub(crate) fn export(&self, dtype: &str) -> Outcome<PathBuf> {
        let folder = paths::root().join("target/models");
        std::fs::create_dir_all(&folder).map_err(|error| Failure::cannot_run(format!("cannot make {}: {error}", folder.display())))?;
        let file = folder.join(format!("{}.{dtype}.dmexp", self.name));
        let fresh = folder.join(format!("{}.{dtype}.{}.dmexp", self.name, std::process::id()));
        process::capture(dmexp()?.current_dir(paths::root()).args(self.export_words(dtype, &fresh)).arg("--quiet"))?;
        let same = matches!((std::fs::read(&fresh), std::fs::read(&file)), (Ok(new), Ok(old)) if new == old);
        if same { std::fs::remove_file(&fresh) } else { std::fs::rename(&fresh, &file) }
            .map_err(|error| Failure::cannot_run(format!("cannot keep {}: {error}", file.display())))?;
        Ok(file)
    }

    /// The words of the export, as a user types them after `dmexp`.
    pub(crate) fn export_words(&self, dtype: &str, file: &Path) -> Vec<String> {
        let shown = file.strip_prefix(paths::root()).unwrap_or(file).display().to_string();
        let words = ["export", "run", "--checkpoint", self.checkpoint, "--dtype", dtype, "--out", &shown];
        let tokenizer = if self.tokenizer.is_empty() { &[][..] } else { &["--tokenizer", self.tokenizer] };
        words.iter().chain(tokenizer).chain(self.more).map(|word| (*word).to_owned()).collect()
    }
}

/// The program that makes models of dormouse and measures one of the size `small`.
pub(crate) const EXAMPLE: &str = "dormouse_speed";

const TRAINER: &str = "dmexp-train";

/// Whether [`program`] gives those that the tests run.
static AS_TESTED: AtomicBool = AtomicBool::new(false);

/// From now on [`dmexp`] is built as the tests build it: most of it is then compiled already, or they need it anyway.
pub(crate) fn take_dmexp_as_tested() {
    AS_TESTED.store(true, Ordering::Relaxed);
}

/// The command `dmexp`, built from this repository: once a run, however often it is asked for.
pub(crate) fn dmexp() -> Outcome<Command> {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    if let Some(program) = BUILT.get() {
        return Ok(Command::new(program));
    }
    let program = program("--bin", "dmexp")?;
    Ok(Command::new(BUILT.get_or_init(|| program)))
}

/// A program of dmexp-tools; `kind` says whether it is a `--bin` or an `--example`.
pub(crate) fn program(kind: &str, name: &str) -> Outcome<PathBuf> {
    if AS_TESTED.load(Ordering::Relaxed) {
        return tested(kind, name);
    }
    let mut build = process::cargo();
    build.current_dir(paths::root());
    process::built(build.args(["build", "--release", "--locked", "--quiet", "--package", "dmexp-tools", kind, name]), name)
}

/// The program that trains models and makes networks, which says itself how fast it wants to be.
pub(crate) fn trainer() -> Outcome<PathBuf> {
    tested("--bin", TRAINER)
}

/// A program as the tests build it: all of them at once.
fn tested(kind: &str, name: &str) -> Outcome<PathBuf> {
    if let Some(folder) = std::env::var_os(TESTED) {
        let folder = PathBuf::from(folder).join(if kind == "--example" { "examples" } else { "" });
        return Ok(folder.join(name).with_extension(std::env::consts::EXE_EXTENSION));
    }
    let mut build = process::cargo();
    build.current_dir(paths::root()).args(["build", "--locked", "--quiet", "--workspace", "--exclude", "dmexp-references"]);
    // With an example cargo counts what tests need, too: the features of all packages together are then those of the tests, and nothing is compiled twice.
    process::built(build.args(["--bin", "dmexp", "--bin", TRAINER, "--example", EXAMPLE]), name)
}

/// Where the programs are that the steps of `test` use; a process of a step has it in [`TESTED`], so that it waits for no other that builds.
pub(crate) fn tested_programs() -> Outcome<PathBuf> {
    let mut folder = tested("--bin", "dmexp")?;
    folder.pop();
    Ok(folder)
}

/// The environment variable that names the folder of [`tested_programs`].
pub(crate) const TESTED: &str = "DMEXP_TESTED";

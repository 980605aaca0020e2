//! Opening what a command runs: the file, and a tokenizer for it where it carries none.

use super::args;
use super::dormouse_run::DormouseRunArgs;
use super::failure::{Outcome, request};
use super::logits::Convention;
use super::run_on::{Processor, RunOn};
use clap::Args;
use dmexp::Model;
use dmexp::simd::Level;
use dmexp::tokenizer::Tokenizer;
use dmexp_format::KvDType;
use dmexp_format::arch::Architecture;
use dmexp_format::file::ModelFile;
use dmexp_format::layout::Decoding;
use dmexp_format::tokenizer::{NO_TOKEN, TokenizerFacts, TokenizerKind};
use dmexp_tools::checkpoint::{Kind, TokenizerSource, beside, recognise_path, tokenizer_file};
use dmexp_tools::decode::{Cpu, CpuOptions, DormouseOptions, Load, Loaded, TokenizerArrays, physical_cores};
use dmexp_tools::error::{Error, Result, shown_path};
use dmexp_tools::text;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// Which model to run, and how.
#[derive(Debug, Args)]
pub(crate) struct ModelArgs {
    /// The .dmexp file to run
    #[arg(long, value_name = "FILE")]
    pub(crate) export: PathBuf,
    /// A tokenizer for a file that carries none (format 1): tokenizer.json, tokenizer.model, llama2.c's tokenizer.bin, or the word bytes
    #[arg(long, value_name = "FILE|bytes")]
    pub(crate) tokenizer: Option<OsString>,
    /// How many positions there is room for [default: what the model was trained for]
    #[arg(long, value_name = "N", value_parser = args::from_one, allow_negative_numbers = true)]
    pub(crate) context: Option<u32>,
    /// How keys and values are kept: f32, f16 in half the memory, or q8 in a little more than a quarter
    #[arg(long, value_name = "TYPE", default_value = "f16", value_parser = args::kv)]
    pub(crate) kv: KvDType,
    /// How many threads share the work [default: one a core; the results do not depend on it]
    #[arg(long, value_name = "N", value_parser = args::threads, allow_negative_numbers = true)]
    pub(crate) threads: Option<u32>,
    /// The vector instructions to use, for comparisons: baseline, avx2, avx512 or vnni [default: the best that the machine has; the results do not depend on it]
    #[arg(long, value_name = "LEVEL", value_parser = args::level)]
    pub(crate) simd: Option<Level>,
    /// How the file comes to memory: map reads it when it is used, copy as a whole before anything else and then somewhat faster where it is large, auto copies large files (the results do not depend on it)
    #[arg(long, value_name = "HOW", default_value = "map", value_parser = args::load)]
    pub(crate) load: Load,
    #[command(flatten)]
    pub(crate) dormouse: DormouseRunArgs,
}

impl ModelArgs {
    /// Opens the file. Its weights are not read.
    pub(crate) fn open(&self) -> Outcome<Opened> {
        Opened::new(Loaded::open_as(&self.export, self.load)?, self.tokenizer.as_deref())
    }

    /// The files that are read.
    pub(crate) fn files(&self) -> impl Iterator<Item = &Path> {
        let tokenizer = self.tokenizer.as_deref().filter(|name| *name != "bytes").map(Path::new);
        std::iter::once(self.export.as_path()).chain(tokenizer)
    }

    /// The model with the memory for one text.
    pub(crate) fn cpu<'o>(&self, opened: &'o Opened, on: RunOn) -> Outcome<Cpu<'o>> {
        self.cpu_with(opened, self.dormouse.options(), on)
    }

    /// The same, to be asked by this convention.
    pub(crate) fn cpu_for<'o>(&self, opened: &'o Opened, convention: Convention, on: RunOn) -> Outcome<Cpu<'o>> {
        let options = self.dormouse.options();
        match (convention, options.decoding) {
            (Convention::Prefix, _) => self.cpu_with(opened, options, on),
            (Convention::Full, None | Some(Decoding::Full)) => {
                self.cpu_with(opened, DormouseOptions { decoding: Some(Decoding::Full), ..options }, on)
            }
            (Convention::Full, Some(_)) => Err(request("--convention full takes --decoding full", "leave --decoding out")),
        }
    }

    fn cpu_with<'o>(&self, opened: &'o Opened, dormouse: DormouseOptions, on: RunOn) -> Outcome<Cpu<'o>> {
        let options = self.options(opened)?;
        if let Processor::Cuda(number) = on.device {
            return on.gpu(number, self, opened, &options, &dormouse);
        }
        let threads = self.threads()?;
        Ok(Cpu::with_dormouse(&opened.loaded, &options, &dormouse, threads)?)
    }

    /// The model without memory for a text.
    pub(crate) fn model<'o>(&self, opened: &'o Opened) -> Outcome<Model<'o>> {
        let threads = self.threads()?;
        Ok(Cpu::bind(&opened.loaded, &self.options(opened)?, &self.dormouse.options(), threads)?)
    }

    fn options<'o>(&self, opened: &'o Opened) -> Outcome<CpuOptions<'o>> {
        let tokenizer = opened.arrays.as_ref().map(TokenizerArrays::tokenizer).transpose()?;
        Ok(CpuOptions { context: self.context, kv: self.kv, tokenizer })
    }

    /// How many threads share the work, with the vector instructions that were asked for.
    fn threads(&self) -> Outcome<usize> {
        if let Some(level) = self.simd {
            let advice = |best: Level| format!("the most it has is {}", best.name());
            level.choose().map_err(|best| request(format!("this machine has no {}", level.name()), advice(best)))?;
        }
        Ok(self.threads.map_or_else(physical_cores, |threads| threads as usize))
    }
}

/// An opened file, with another tokenizer if one was named.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) loaded: Loaded,
    arrays: Option<TokenizerArrays>,
    /// The model on a GPU, once it was asked for.
    #[cfg(feature = "cuda")]
    pub(super) gpu: std::sync::OnceLock<dmexp_tools::cuda::Cuda>,
}

impl Opened {
    /// Opens the file `export`.
    pub(crate) fn open(export: &Path, tokenizer: Option<&OsStr>) -> Outcome<Self> {
        Self::new(Loaded::open(export)?, tokenizer)
    }

    fn new(loaded: Loaded, tokenizer: Option<&OsStr>) -> Outcome<Self> {
        let arrays = match tokenizer {
            None => None,
            Some(name) if name == "bytes" && loaded.file()?.architecture() == Architecture::Dormouse => None,
            Some(name) => Some(TokenizerArrays::new(&for_file(&loaded.file()?, name).map_err(|error| named(error, loaded.path()))?)),
        };
        runs(&loaded)?;
        Ok(Self {
            loaded,
            arrays,
            #[cfg(feature = "cuda")]
            gpu: std::sync::OnceLock::new(),
        })
    }

    /// The tokenizer.
    pub(crate) fn tokenizer(&self) -> Outcome<Tokenizer<'_>> {
        let tokenizer = match &self.arrays {
            Some(arrays) => arrays.tokenizer()?,
            None => *self.loaded.model()?.tokenizer(),
        };
        needed(&tokenizer, self.loaded.path())?;
        Ok(tokenizer)
    }
}

/// Refuses a file whose model takes numbers.
fn runs(loaded: &Loaded) -> Result<()> {
    match loaded.file()?.architecture() {
        Architecture::Llama | Architecture::Dormouse => Ok(()),
        other => {
            let what = format!("is a model of the architecture {:?}, which takes numbers, not text", other.name());
            Err(Error::not_a_model(what).advise("use dmexp predict").in_file(loaded.path()))
        }
    }
}

/// Refuses to go from text to tokens without a tokenizer.
pub(crate) fn needed(tokenizer: &Tokenizer<'_>, path: &Path) -> Outcome {
    if tokenizer.facts().kind == TokenizerKind::None {
        let what = format!("{} carries no tokenizer", shown_path(path));
        return Err(request(what, "name one with --tokenizer: a file or bytes, the one that the model was trained with"));
    }
    Ok(())
}

/// The tokenizer `name` for a model that has none.
fn for_file(file: &ModelFile<'_>, name: &OsStr) -> Result<TokenizerSource> {
    let facts = file.tokenizer_facts()?;
    if facts.kind != TokenizerKind::None {
        return Err(Error::mismatch("carries its own tokenizer").advise("leave --tokenizer out"));
    }
    if file.architecture() == Architecture::Dormouse {
        return Err(Error::mismatch("is a model of dormouse, whose tokens are bytes").advise("leave --tokenizer out"));
    }
    let vocab_size = file.llama_config()?.vocab_size;
    if name == "bytes" {
        let mut source = TokenizerSource::bytes(vocab_size, Some(facts.bos).filter(|bos| *bos != NO_TOKEN))?;
        source.facts = TokenizerFacts { eos: facts.eos, pad: facts.pad, ..source.facts };
        return Ok(source);
    }
    let source = tokenizer_file::read(Path::new(name), Some(vocab_size))?;
    for (what, stated, read) in [("begin", facts.bos, source.facts.bos), ("end", facts.eos[0], source.facts.eos[0])] {
        if stated != NO_TOKEN && stated != read {
            let what = format!("says that token {stated} is the {what} of text, the tokenizer says {read}");
            return Err(Error::mismatch(what).advise("name the tokenizer that the model was trained with"));
        }
    }
    Ok(source)
}

/// Names the model's file in an error that names none.
fn named(error: Error, path: &Path) -> Error {
    if error.path().as_os_str().is_empty() { error.in_file(path) } else { error }
}

/// A tokenizer without a model: `bytes`, or a file, which has as many tokens as pieces.
pub(crate) fn alone(name: &OsStr) -> Outcome<TokenizerArrays> {
    if name == "bytes" {
        return Ok(TokenizerArrays::new(&TokenizerSource::bytes(256, None)?));
    }
    let path = Path::new(name);
    match recognise_path(path)? {
        Kind::Dmexp { .. } => Err(request(format!("{} is a .dmexp file", shown_path(path)), "name it with --export")),
        _ => Ok(TokenizerArrays::new(&tokenizer_file::read(path, None)?)),
    }
}

/// The tokenizer of a checkpoint to be exported; `bos` begins every text where bytes are the tokens.
pub(crate) fn for_checkpoint(name: &OsStr, bos: Option<u32>, vocab_size: u32) -> Outcome<TokenizerSource> {
    match (name == "bytes", bos) {
        (true, _) => Ok(TokenizerSource::bytes(vocab_size, bos)?),
        (false, None) => Ok(tokenizer_file::read(Path::new(name), Some(vocab_size))?),
        (false, Some(_)) => {
            Err(request("--bos goes with --tokenizer bytes alone", "a tokenizer file has its own token for the beginning of text"))
        }
    }
}

/// The files that a tokenizer of this name is read from: none of them is ever replaced.
pub(crate) fn tokenizer_files(name: &OsStr) -> Vec<PathBuf> {
    if name == "bytes" || name == "none" {
        return Vec::new();
    }
    let path = Path::new(name);
    std::iter::once(path.to_path_buf()).chain(beside(path)).collect()
}

/// The tokens of `text`, with the token before a text's beginning if the tokenizer wants one.
pub(crate) fn encode(tokenizer: &Tokenizer<'_>, text: &[u8], at_start: bool) -> Outcome<Vec<u32>> {
    Ok(text::encode(tokenizer, text, at_start)?)
}

/// Refuses tokens that the vocabulary does not have.
pub(crate) fn known(tokens: &[u32], vocab_size: u32) -> Outcome {
    match tokens.iter().find(|token| **token >= vocab_size) {
        Some(found) => {
            Err(request(format!("token {found} is not in the vocabulary of {vocab_size}"), format!("ids go from 0 to {}", vocab_size - 1)))
        }
        None => Ok(()),
    }
}

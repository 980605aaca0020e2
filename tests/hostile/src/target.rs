//! The targets by name, and what each promises.

use crate::{checkpoints, files, numbers, probe, requests, sampler, seal, seeds, texts, tokenizers};
use dmexp_tools::error::Error;
use std::fmt::Debug;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

/// The most processor time that an input may take, of at most so many bytes as seeds have.
pub const TIME_LIMIT: Duration = Duration::from_secs(2);

/// What became of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was refused, in words.
    Refused,
    /// It was taken.
    Accepted {
        /// A hash of what it was taken for.
        meaning: u64,
    },
}

impl Outcome {
    /// Taken for this.
    pub(crate) fn accepted(meaning: &impl Hash) -> Self {
        let mut hasher = DefaultHasher::new();
        meaning.hash(&mut hasher);
        Self::Accepted { meaning: hasher.finish() }
    }

    /// Refused with this error of a library.
    ///
    /// # Panics
    /// If it says nothing.
    pub(crate) fn refused(error: &(impl ToString + Debug)) -> Self {
        assert!(!error.to_string().is_empty(), "{error:?} says nothing");
        Self::Refused
    }

    /// Refused with this error of the command.
    ///
    /// # Panics
    /// If it says nothing, or would not be one line of a terminal.
    pub(crate) fn refused_by_command(error: &Error) -> Self {
        let text = error.to_string();
        assert!(!text.contains(char::is_control), "{error:?} has control characters: {text:?}");
        assert!(text.len() <= 32_000, "an error of {} bytes", text.len());
        Self::refused(&text)
    }
}

/// What is true of an input that was damaged and is taken all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    /// It means what an undamaged one means: checksums see to it.
    SameMeaning,
    /// It is another input, as good as any, and this is why nobody can tell.
    Another(&'static str),
}

/// A part of dmexp that reads what others wrote.
#[derive(Clone, Copy)]
pub struct Target {
    /// Its name.
    pub name: &'static str,
    /// Reads the bytes.
    pub run: fn(&[u8]) -> Outcome,
    /// Makes checksums right again where there are any, so that they alone do not refuse what was damaged.
    pub seal: Option<fn(&mut [u8])>,
    /// Whole inputs.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// What holds of damaged inputs that were not sealed.
    pub promise: Promise,
}

impl Target {
    /// Reads the bytes as they are, and sealed: what libFuzzer calls.
    ///
    /// # Panics
    /// Where a promise is broken.
    pub fn fuzz(&self, bytes: &[u8]) {
        self.timed(bytes);
        if let Some(sealed) = self.sealed(bytes) {
            self.timed(&sealed);
        }
    }

    /// The bytes with checksums that are right; `None` where they are already, or there are none.
    pub fn sealed(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        let mut sealed = bytes.to_vec();
        self.seal?(&mut sealed);
        (sealed != bytes).then_some(sealed)
    }

    /// Reads the bytes, and says how much processor time it took.
    ///
    /// # Panics
    /// Where a promise is broken: also for more than [`TIME_LIMIT`].
    pub fn timed(&self, bytes: &[u8]) -> (Outcome, Duration) {
        let before = processor_time();
        let outcome = (self.run)(bytes);
        let took = processor_time().saturating_sub(before);
        assert!(took <= TIME_LIMIT, "{} took {} ms for {} bytes", self.name, took.as_millis(), bytes.len());
        (outcome, took)
    }
}

/// The processor time of this thread, which other programs on the machine do not change.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// The target of this name.
///
/// # Panics
/// If there is none.
pub fn by_name(name: &str) -> &'static Target {
    TARGETS.iter().find(|target| target.name == name).expect("a target")
}

const NO_CHECKSUM: Promise = Promise::Another("the format has no checksum");
const ANY_TEXT: Promise = Promise::Another("any such text is as good as another");

const fn target(name: &'static str, run: fn(&[u8]) -> Outcome, seeds: fn() -> Vec<Vec<u8>>, promise: Promise) -> Target {
    Target { name, run, seal: None, seeds, promise }
}

const fn sealed(name: &'static str, run: fn(&[u8]) -> Outcome, seeds: fn() -> Vec<Vec<u8>>, seal: fn(&mut [u8])) -> Target {
    Target { name, run, seal: Some(seal), seeds, promise: Promise::SameMeaning }
}

/// Every target.
pub const TARGETS: &[Target] = &[
    Target {
        promise: Promise::Another("format 1 has no checksum of its header"),
        ..sealed("format_1", files::model, seeds::format_1, seal::file)
    },
    sealed("format_2_llama", files::model, seeds::llama, seal::file),
    sealed("format_2_dormouse", files::model, seeds::dormouse, seal::file),
    sealed("format_2_sequential", files::model, seeds::sequential, seal::file),
    sealed("include_model", files::include_model, seeds::every_file, seal::file),
    target("header", files::header, seeds::headers, ANY_TEXT),
    target("index", files::index, seeds::indexes, NO_CHECKSUM),
    target("llama2c", checkpoints::llama2c, seeds::llama2c, NO_CHECKSUM),
    sealed("pytorch", checkpoints::pytorch, seeds::pytorch, seal::zip),
    target("pickle", checkpoints::pickle, seeds::pickles, NO_CHECKSUM),
    target("safetensors", checkpoints::safetensors, seeds::safetensors, NO_CHECKSUM),
    target("hf_config", checkpoints::hf_config, seeds::hf_configs, ANY_TEXT),
    target("gguf", checkpoints::gguf, seeds::gguf, NO_CHECKSUM),
    target("dormouse_checkpoint", checkpoints::dormouse, seeds::dormouse_checkpoints, NO_CHECKSUM),
    target("rustyml", checkpoints::rustyml, seeds::rustyml, NO_CHECKSUM),
    target("rustyml_arch", checkpoints::rustyml_arch, seeds::rustyml_archs, ANY_TEXT),
    target("tokenizer_bin", tokenizers::bin, seeds::tokenizer_bins, NO_CHECKSUM),
    target("tokenizer_json", tokenizers::file, seeds::tokenizer_jsons, NO_CHECKSUM),
    target("tokenizer_model", tokenizers::file, seeds::tokenizer_models, NO_CHECKSUM),
    target("encode", tokenizers::encode, seeds::texts, ANY_TEXT),
    target("decode", tokenizers::decode, seeds::ids, ANY_TEXT),
    target("sampler", sampler::sample, seeds::samplings, ANY_TEXT),
    target("probe_device", probe::device, seeds::requests_of_hosts, ANY_TEXT),
    target("probe_host", probe::host, seeds::replies_of_devices, ANY_TEXT),
    target("http_body", requests::body, seeds::bodies, ANY_TEXT),
    target("json_schema", requests::schema, seeds::schemas, ANY_TEXT),
    target("chat_template", texts::template, seeds::templates, ANY_TEXT),
    target("npy", numbers::npy, seeds::npys, NO_CHECKSUM),
    target("numbers_text", numbers::text, seeds::number_texts, ANY_TEXT),
];

//! Errors of the runtime in the words of the host tools: their class, and what to do next.

use crate::error::{Class, Error};
use dmexp_format::Error as FormatError;
use dmexp_format::host::VerifyError;

impl From<FormatError> for Error {
    /// Without the path and the tensor's name, which [`super::Loaded::explain`] adds.
    fn from(error: FormatError) -> Self {
        #[cfg(feature = "cuda")]
        if let FormatError::Accelerator { code } = error {
            return crate::cuda::failed(code);
        }
        let (class, advice) = class_and_advice(&error);
        let explained = Self::new(class, error.to_string());
        if advice.is_empty() { explained } else { explained.advise(advice) }
    }
}

impl From<VerifyError> for Error {
    fn from(error: VerifyError) -> Self {
        match error {
            VerifyError::File(error) => error.into(),
            VerifyError::Header(error) => Self::mismatch(error.to_string()),
            other => Self::damaged(other.to_string()),
        }
    }
}

fn class_and_advice(error: &FormatError) -> (Class, &'static str) {
    match error {
        FormatError::NotDmexp { .. } | FormatError::UnknownArchitecture { .. } | FormatError::OtherArchitecture { .. } => {
            (Class::NotAModel, "")
        }
        FormatError::Version { .. } | FormatError::Arithmetic { .. } => {
            (Class::NotAModel, "use the version of dmexp that made it, or export it again with this one")
        }
        FormatError::TomlNotBuilt
        | FormatError::DTypeNotBuilt { .. }
        | FormatError::KvNotBuilt { .. }
        | FormatError::TokenizerNotBuilt { .. } => (Class::NotAModel, "use a build that has it"),
        FormatError::Truncated { .. } | FormatError::Checksum { .. } => (Class::Damaged, "copy or download it again, or export it again"),
        FormatError::TrailingBytes { .. } => {
            (Class::Damaged, "something was appended, or the header was edited: copy or download it again")
        }
        FormatError::NonFinite { .. } => {
            (Class::Damaged, "the weights are damaged or the training went wrong: export it again from a good checkpoint")
        }
        FormatError::NonFiniteLogits { .. } => (
            Class::Damaged,
            "keys and values may be too large for f16 or q8: try --kv f32; if that fails too, the weights are damaged or the training went wrong: export it again from a good checkpoint",
        ),
        FormatError::Config { .. }
        | FormatError::TensorName { .. }
        | FormatError::Shape { .. }
        | FormatError::MissingTensor { .. }
        | FormatError::Tokenizer { .. }
        | FormatError::Layer { .. }
        | FormatError::Node { .. }
        | FormatError::NodeShape { .. }
        | FormatError::IndexMismatch { .. } => (Class::Mismatch, "export it again"),
        FormatError::Golden { .. } => {
            (Class::Mismatch, "this build or this machine computes otherwise than the one that exported it: do not trust its results")
        }
        FormatError::ArithmeticSelfCheck { .. } => (Class::Mismatch, "use another build: this one's float arithmetic is not IEEE"),
        FormatError::Context { .. } => (Class::Request, "choose another --context"),
        FormatError::ContextFull { .. } | FormatError::PromptTooLong { .. } => {
            (Class::Request, "shorten the prompt, or give more --context where the model allows it")
        }
        FormatError::Token { .. } => (Class::Request, "name tokens of this model's vocabulary"),
        FormatError::NoToken { .. } => (Class::Request, "leave that character out: the model was not trained on it"),
        FormatError::NoRow { .. } => (Class::Request, "give numbers that stand for rows"),
        FormatError::NonFiniteResult { .. } => {
            (Class::Request, "an input may be too large; if it is not, the weights are: dmexp export info shows the largest")
        }
        FormatError::CannotStream { .. } => (Class::Request, "give whole sequences"),
        FormatError::NoPrompt => (Class::Request, "give a prompt, or a token to begin with"),
        FormatError::ArenaTooSmall { .. }
        | FormatError::BankTooSmall { .. }
        | FormatError::CopiesTooLarge { .. }
        | FormatError::ScratchTooSmall { .. }
        | FormatError::TooLargeForTarget { .. }
        | FormatError::Sampling { .. }
        | FormatError::Stop { .. } => (Class::Request, ""),
        FormatError::Output => (Class::Unwritable, ""),
        FormatError::AcceleratorBusy => (Class::Request, "run one session at a time"),
        FormatError::Accelerator { .. } => (Class::Unreadable, ""),
        _ => (Class::Damaged, "export it again"),
    }
}

//! Messages: what a host asks of a chip, and what the chip replies. Encoded by `postcard`, whose enums are numbered in the order in which they are written here: new ones go to the end.

use crate::format::{Error, KvDType};
use crate::sampler::Settings;
use serde::{Deserialize, Serialize};

/// The most bytes of values in one reply: 56 f32.
pub const VALUES_LEN: usize = 224;

/// What a host asks. A text is known by the number that the host gave it with [`Request::Reset`]; positions count from 0.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Request<'a> {
    /// What is there: [`Reply::Hello`].
    Hello,
    /// The model: [`Reply::Facts`].
    Facts,
    /// Begins the text of this number, from 1 on, unless it is the one that is there: [`Reply::Done`].
    Reset {
        /// The number; each text has another.
        text: u32,
        /// How tokens are chosen.
        sampling: Sampling,
    },
    /// Puts a piece of text behind what is known: [`Reply::Prompted`].
    Prompt {
        /// The text's number.
        text: u32,
        /// How many tokens were known before.
        known: u32,
        /// UTF-8, or any bytes.
        bytes: &'a [u8],
    },
    /// Feeds `token` at `position` through its embedding and the first `layers` layers, as far as that is not done: [`Reply::Layered`].
    Layers {
        /// The text's number.
        text: u32,
        /// The position.
        position: u32,
        /// The token.
        token: u32,
        /// How many layers, 0 for the embedding alone.
        layers: u32,
    },
    /// Feeds `token` at `position`, or the rest of it, and computes logits: [`Reply::Stepped`].
    Step {
        /// The text's number.
        text: u32,
        /// The position.
        position: u32,
        /// The token.
        token: u32,
    },
    /// Feeds the token that is known at `position`, and where it is the last one known chooses another: [`Reply::Next`].
    Next {
        /// The text's number.
        text: u32,
        /// The position.
        position: u32,
    },
    /// Values of the position that was last worked on: [`Reply::Values`].
    Read {
        /// The text's number.
        text: u32,
        /// The position.
        position: u32,
        /// The residual stream after so many layers; `None` for the logits.
        layers: Option<u32>,
        /// The first value.
        offset: u32,
    },
    /// The checksum of a tensor as it lies in the chip's memory: [`Reply::Tensor`].
    Tensor {
        /// Its number in the file.
        number: u32,
    },
    /// Replays a golden vector of the file, which ends the text that is there: [`Reply::Tested`].
    SelfTest {
        /// Its number, from 0.
        vector: u32,
    },
    /// What was used: [`Reply::Stats`].
    Stats,
}

/// How tokens are chosen: the settings of [`crate::Sampler`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "they are those of Settings")]
pub struct Sampling {
    pub temperature: f32,
    pub top_p: f32,
    pub top_k: u32,
    pub min_p: f32,
    pub repeat_penalty: f32,
    pub repeat_last_n: u32,
    pub seed: u64,
}

impl From<Settings> for Sampling {
    fn from(settings: Settings) -> Self {
        let Settings { temperature, top_p, top_k, min_p, repeat_penalty, repeat_last_n, seed } = settings;
        Self { temperature, top_p, top_k, min_p, repeat_penalty, repeat_last_n, seed }
    }
}

impl From<Sampling> for Settings {
    fn from(sampling: Sampling) -> Self {
        let Sampling { temperature, top_p, top_k, min_p, repeat_penalty, repeat_last_n, seed } = sampling;
        Self { temperature, top_p, top_k, min_p, repeat_penalty, repeat_last_n, seed }
    }
}

/// What a chip replies.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Reply<'a> {
    /// It cannot be answered, and why.
    Refused(Refusal),
    /// It is being worked on; more follows.
    Busy,
    /// It was done.
    Done,
    /// What is there.
    Hello {
        /// The firmware's name and version.
        firmware: &'a str,
        /// The board's name.
        board: &'a str,
        /// The model's fingerprint: [`crate::format::file::ModelFile::fingerprint`].
        fingerprint: u32,
    },
    /// The model.
    Facts(Facts),
    /// How many tokens were added.
    Prompted {
        /// Tokens.
        tokens: u32,
    },
    /// The layers are done.
    Layered {
        /// The checksum of the residual stream.
        checksum: u32,
    },
    /// The logits are computed.
    Stepped {
        /// Their checksum.
        checksum: u32,
        /// The five largest with their tokens, best first.
        top: [(u32, f32); 5],
    },
    /// What came of it.
    Next(Chosen<'a>),
    /// Some of the values, from the one that was asked for: little-endian f32.
    Values(&'a [u8]),
    /// A tensor.
    Tensor {
        /// The CRC-32 of its bytes.
        checksum: u32,
        /// How many they are.
        bytes: u32,
    },
    /// What came of a golden vector.
    Tested(Tested),
    /// What was used.
    Stats(Stats),
}

/// The model, and what a session of it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// Values of the residual stream.
    pub dim: u32,
    /// Layers.
    pub n_layers: u32,
    /// Tokens, and so logits.
    pub vocab_size: u32,
    /// Positions.
    pub context: u32,
    /// How keys and values are kept: the code of [`KvDType`].
    pub kv: u32,
    /// Tensors whose checksums can be asked for.
    pub tensors: u32,
    /// Golden vectors.
    pub goldens: u32,
}

impl Facts {
    /// How keys and values are kept.
    pub const fn kv(&self) -> Option<KvDType> {
        KvDType::from_code(self.kv)
    }
}

/// What a step did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Chosen<'a> {
    /// A token of the prompt was fed; more of it follows.
    Prompt {
        /// The token.
        token: u32,
    },
    /// A token was chosen.
    Token {
        /// The token.
        token: u32,
        /// Its bytes, which need not be whole characters.
        text: &'a [u8],
    },
    /// Nothing more comes: the model ended its text with this token.
    EndOfText {
        /// The token.
        token: u32,
    },
    /// Nothing more comes: every position is used.
    ContextFull,
}

/// What came of a golden vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tested {
    /// Positions that were compared.
    pub positions: u32,
    /// The first whose logits are others, with the stored and the computed checksum.
    pub wrong: Option<(u32, u32, u32)>,
}

/// What was used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stats {
    /// What a counter of the chip says, and what it counts.
    pub ticks: Option<(Ticks, u64)>,
    /// Bytes of stack at the deepest point.
    pub stack: Option<u32>,
    /// Bytes of the session's memory.
    pub arena: u32,
}

/// What a counter counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ticks {
    /// Executed instructions.
    Instructions,
    /// Cycles.
    Cycles,
}

/// Why a request cannot be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    /// The chip speaks this version.
    Version(u8),
    /// The message is none of those that the chip knows.
    Unknown,
    /// The chip is not where the request thinks it is, but at this position of this text (0: none).
    Elsewhere {
        /// The text's number.
        text: u32,
        /// The position.
        position: u32,
    },
    /// A number in the request is past what there is, which is this many.
    Range(Fact, u32),
    /// The context has not room for it.
    NoRoom,
    /// The logits at this position are not finite: the weights are damaged.
    NonFinite(u32),
    /// A setting of the sampler is out of its range.
    Sampling,
    /// The text cannot be made tokens of: it has none, or needs more scratch memory than there is.
    Prompt,
    /// The golden vector was made with keys and values of another type than the session's.
    OtherKv,
    /// The chip's session cannot go on.
    Failed,
    /// The golden vector was made with exact decoding, and the session's is another, which gives other bits.
    OtherDecoding,
}

/// What is out of its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fact {
    /// A token's id.
    Token,
    /// A number of layers.
    Layers,
    /// A number of a value.
    Offset,
    /// A tensor's number.
    Tensor,
    /// A golden vector's number.
    Golden,
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        match error {
            Error::NonFiniteLogits { position } => Self::NonFinite(position),
            Error::PromptTooLong { .. } | Error::ContextFull { .. } | Error::Context { .. } => Self::NoRoom,
            Error::NoToken { .. } | Error::NoPrompt | Error::ScratchTooSmall { .. } => Self::Prompt,
            Error::Token { vocab_size, .. } => Self::Range(Fact::Token, vocab_size),
            Error::Sampling { .. } => Self::Sampling,
            _ => Self::Failed,
        }
    }
}

//! What the engine is asked for, and what it answers.

use super::grammar::Grammar;
use super::shape::Shaping;
use dmexp::sampler::Settings;
use std::sync::Arc;
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc::UnboundedSender;

/// One text for the engine.
#[derive(Debug)]
pub(super) struct Job {
    /// The tokens that are known: at least one, as many as the context has positions at most.
    pub(super) tokens: Vec<u32>,
    /// What is to be done with them.
    pub(super) work: Work,
    /// Where the answers go. Once nobody listens any more the job is given up.
    pub(super) events: UnboundedSender<Event>,
    /// Its place in the queue, while it waits.
    pub(super) place: Option<OwnedSemaphorePermit>,
}

/// What is to be done.
#[derive(Debug)]
pub(super) enum Work {
    /// The text is continued.
    Generate(Generate),
    /// The logits after every token are wanted.
    Logits,
}

/// How a text is continued.
#[derive(Clone, Debug)]
pub(super) struct Generate {
    /// Checked settings of the sampler.
    pub(super) settings: Settings,
    /// What changes the logits before it.
    pub(super) shaping: Shaping,
    /// What the text has to be of, if anything.
    pub(super) grammar: Option<Arc<Grammar>>,
    /// New tokens at most: the context has room for them.
    pub(super) budget: u32,
    /// Goes on where the model says that the text is over.
    pub(super) ignore_end: bool,
    /// How many of the likeliest tokens are told beside the chosen one's probability, if any of it is.
    pub(super) likeliest: Option<usize>,
}

/// What the engine says of a job.
#[derive(Debug)]
pub(super) enum Event {
    /// It has begun; keys and values of so many tokens were there already.
    Begun {
        /// Tokens that need not be fed.
        cached: u32,
    },
    /// A new token.
    Token(Chosen),
    /// The logits after the next token.
    Row(Vec<f32>),
    /// It is done.
    Done(Finish),
    /// It cannot go on, and why.
    Failed(String),
}

/// A token that was chosen.
#[derive(Clone, Debug)]
pub(super) struct Chosen {
    /// Its bytes, which need not be whole characters.
    pub(super) bytes: Vec<u8>,
    /// Natural logarithm of its probability by the model's own logits, where that was asked for.
    pub(super) logprob: Option<f64>,
    /// The likeliest tokens in its place.
    pub(super) likeliest: Vec<Candidate>,
}

/// A token that could have been chosen.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    pub(super) bytes: Vec<u8>,
    pub(super) logprob: f64,
}

/// Why a text is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Finish {
    /// The model ended it, or a stop string came up.
    Stop,
    /// As many tokens as were asked for, or as the context has room for.
    Length,
}

impl Finish {
    /// What OpenAI's API calls it.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
        }
    }
}

//! From a prompt to text: one step a call, or streamed to a writer.

#[cfg(all(feature = "llama", not(target_os = "none")))]
mod away;
#[cfg(all(feature = "llama", not(target_os = "none")))]
mod batch;
#[cfg(not(target_os = "none"))]
mod blocks;
mod generate;

#[cfg(all(feature = "llama", not(target_os = "none")))]
pub use batch::{Batch, Fed, Part};
pub use generate::Generated;

use crate::arena::Memory;
use crate::format::Error;
#[cfg(feature = "dormouse")]
use crate::format::{ConfigKey, Rule};
use crate::model::Model;
use crate::network::State;
use crate::ops::check::self_check;
use crate::sampler::Sampler;
use crate::stop::StopStrings;
use crate::tokenizer::{Piece, Tokenizer};

/// What a step did.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Step<'a> {
    /// A token of the prompt was fed; more of the prompt follows.
    Prompt {
        /// The token.
        token: u32,
    },
    /// A new token was chosen.
    Token {
        /// The token.
        token: u32,
        /// Its bytes, which need not be whole characters: see [`Utf8Stream`](crate::tokenizer::Utf8Stream).
        text: Piece<'a>,
    },
    /// Nothing more comes.
    Stop(StopReason),
}

/// Why generation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StopReason {
    /// The model said so, with this token.
    EndOfText(u32),
    /// As many tokens as were asked for.
    MaxTokens,
    /// A stop string came up.
    StopString,
    /// Every position of the context is used.
    ContextFull,
}

/// One text being continued by a model, in memory that the caller owns.
///
/// ```
/// # use dmexp::{Model, Sampler, Session, Step, format::file::ModelFile};
/// # let bytes = std::fs::read("examples/tiny.dmexp")?;
/// # let model = Model::bind(&ModelFile::open(&bytes)?)?;
/// # let mut memory = vec![0; model.arena_len()?.div_ceil(4)];
/// let mut session = Session::new(&model, memory.as_mut_slice(), Sampler::greedy())?;
/// session.prompt(b"The bird")?;
/// let mut text = Vec::<u8>::new();
/// loop {
///     match session.step()? {
///         Step::Token { text: piece, .. } => text.extend(piece.as_bytes()),
///         Step::Stop(_) => break,
///         _ => {}
///     }
/// }
/// assert!(!text.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Session<'a> {
    model: &'a Model<'a>,
    state: State<'a>,
    sampler: Sampler,
    stops: StopStrings<'a>,
    ignore_end_of_text: bool,
    /// Tokens fed so far: the position of the next one.
    position: u32,
    /// Parts of feeding that one which are done: its embedding, then its layers, so that keys and values of `position` may be there in some layers.
    parts: u32,
    /// Tokens known so far: fed, or waiting to be fed.
    known: u32,
    ended: Option<StopReason>,
}

impl<'a> Session<'a> {
    /// A session of `model`, which is borrowed so that no stack holds it twice, in `memory` (an [`Arena`](crate::Arena) of [`Model::arena_len`] bytes).
    ///
    /// # Errors
    /// [`Error::ArithmeticSelfCheck`] if this machine's floats do not behave as IEEE says, [`Error::ArenaTooSmall`], [`Error::Context`],
    /// [`Error::TooLargeForTarget`]; [`Error::KvNotBuilt`] where the cargo feature for the keys' and values' type was left out.
    pub fn new<M: Memory + ?Sized>(model: &'a Model<'a>, memory: &'a mut M, sampler: Sampler) -> Result<Self, Error> {
        Self::in_words(model, memory.words(), None, sampler)
    }

    /// A session of `model` in two pieces of memory, for chips whose RAM is split over banks: keys and values in `kv`, everything else (activations, logits, the tokens so far) in `work`;
    /// [`Model::bank_lens`] says how many bytes each takes. Their addresses do not matter, so what is read most often may go to the fastest bank.
    ///
    /// # Errors
    /// Those of [`Session::new`]; [`Error::BankTooSmall`], which names the bank, in place of [`Error::ArenaTooSmall`].
    pub fn new_in_banks<K: Memory + ?Sized, W: Memory + ?Sized>(
        model: &'a Model<'a>,
        kv: &'a mut K,
        work: &'a mut W,
        sampler: Sampler,
    ) -> Result<Self, Error> {
        Self::in_words(model, kv.words(), Some(work.words()), sampler)
    }

    #[inline(never)]
    fn in_words(model: &'a Model<'a>, memory: &'a mut [u32], work: Option<&'a mut [u32]>, sampler: Sampler) -> Result<Self, Error> {
        self_check()?;
        let state = model.state(memory, work)?;
        Ok(Self {
            model,
            state,
            sampler,
            stops: StopStrings::none(),
            ignore_end_of_text: false,
            position: 0,
            parts: 0,
            known: 0,
            ended: None,
        })
    }

    /// Ends texts at `stops` as well.
    #[must_use]
    pub fn with_stops(mut self, stops: StopStrings<'a>) -> Self {
        self.stops = stops;
        self
    }

    /// Ends texts at `stops` as well from now on, and no longer at those before.
    pub fn set_stops(&mut self, stops: StopStrings<'a>) {
        self.stops = stops;
    }

    /// Goes on after an end-of-text token, if `ignore`.
    #[must_use]
    pub fn ignoring_end_of_text(mut self, ignore: bool) -> Self {
        self.ignore_end_of_text = ignore;
        self
    }

    /// The model.
    pub fn model(&self) -> &'a Model<'a> {
        self.model
    }

    /// Tokens fed so far.
    pub fn position(&self) -> u32 {
        self.position
    }

    /// Tokens known so far, fed or waiting to be fed.
    pub fn tokens(&self) -> &[u32] {
        self.state.tokens().get(..self.known as usize).unwrap_or(&[])
    }

    /// Chooses tokens with `sampler` from now on.
    pub fn set_sampler(&mut self, sampler: Sampler) {
        self.sampler = sampler;
    }

    /// Forgets everything: the next prompt begins a new text. The sampler goes on with its random numbers.
    pub fn reset(&mut self) {
        self.position = 0;
        self.parts = 0;
        self.known = 0;
        self.ended = None;
        self.stops.reset();
        self.state.reset();
    }

    /// Puts `text` behind what is known; at the beginning of a text the begin-of-text token goes before it, if the tokenizer wants one. Returns the number of tokens added.
    ///
    /// The text is merged in the arena: in the room for logits or, where that is too small, in the room for the keys and values of positions that are not used yet.
    ///
    /// # Errors
    /// [`Error::PromptTooLong`] if the tokens do not fit the context, [`Error::NoPrompt`] if there would be none at all, and those of [`Tokenizer::encode`]:
    /// [`Error::ScratchTooSmall`] where neither room suffices. After an error nothing is added.
    #[inline(never)]
    pub fn prompt(&mut self, text: &[u8]) -> Result<u32, Error> {
        let room = self.model.context - self.known;
        let fresh = self.known == 0;
        let begun = self.position + u32::from(self.parts > 0);
        let (known, tokenizer) = (self.known as usize, &self.model.tokenizer);
        let encode = |scratch: &mut [u32], tokens: &mut [u32]| {
            let count = tokenizer.encode(text, fresh, scratch)?;
            let place = tokens.get_mut(known..).and_then(|rest| rest.get_mut(..count));
            let (Some(found), Some(place)) = (scratch.get(..count), place) else {
                return Err(Error::PromptTooLong { tokens: count as u64, room: u64::from(room) });
            };
            copy(place, found);
            Ok(count)
        };
        let count = self.state.with_room((begun, self.model.context), Tokenizer::scratch_words(text.len()), encode)?;
        if fresh && count == 0 {
            return Err(Error::NoPrompt);
        }
        self.grow(count as u32);
        Ok(count as u32)
    }

    /// Puts tokens behind what is known.
    ///
    /// # Errors
    /// [`Error::Token`] for one that is not in the vocabulary, [`Error::PromptTooLong`] if they do not fit the context; nothing is added then.
    #[inline(never)]
    pub fn push_tokens(&mut self, tokens: &[u32]) -> Result<(), Error> {
        let vocab_size = self.model.network.vocab_size();
        if let Some(&found) = tokens.iter().find(|token| **token >= vocab_size) {
            return Err(Error::Token { found, vocab_size });
        }
        let room = self.model.context - self.known;
        let Some(place) = self.state.tokens_mut().get_mut(self.known as usize..).and_then(|rest| rest.get_mut(..tokens.len())) else {
            return Err(Error::PromptTooLong { tokens: tokens.len() as u64, room: u64::from(room) });
        };
        copy(place, tokens);
        self.grow(tokens.len() as u32);
        Ok(())
    }

    /// Feeds the next known token. When it was the last one known, the logits are computed and the sampler chooses the next.
    ///
    /// # Errors
    /// [`Error::NoPrompt`] if nothing is known yet; [`Error::NonFiniteLogits`].
    pub fn step(&mut self) -> Result<Step<'a>, Error> {
        loop {
            if let Some(step) = self.poll()? {
                return Ok(step);
            }
        }
    }

    /// Does a part of a [`Session::step`]: the embedding, one layer, or logits and choice. `None` while the step is not done: between two calls an executor may run other tasks, and a watchdog
    /// be fed. The bits are those of [`Session::step`], which may finish what this began.
    ///
    /// # Errors
    /// Those of [`Session::step`].
    pub fn poll(&mut self) -> Result<Option<Step<'a>>, Error> {
        if let Some(reason) = self.ended {
            return Ok(Some(Step::Stop(reason)));
        }
        let Some(fed) = self.next_token()? else { return Ok(Some(self.end(StopReason::ContextFull))) };
        let is_last = self.position + 1 == self.known;
        if !self.is_fed() {
            self.feed_part(fed);
            if is_last || !self.is_fed() {
                return Ok(None);
            }
        }
        if !is_last {
            self.finish();
            return Ok(Some(Step::Prompt { token: fed }));
        }
        self.choose(fed).map(Some)
    }

    /// Computes the logits after `fed`, the last token known, and chooses the next. Out of line: layers, which are deeper, do without its stack.
    #[inline(never)]
    fn choose(&mut self, fed: u32) -> Result<Step<'a>, Error> {
        let token = self.chosen_elsewhere().transpose().unwrap_or_else(|| self.sample())?;
        Ok(self.take(fed, token))
    }

    /// Goes on with the token that was chosen after `fed`.
    fn take(&mut self, fed: u32, token: u32) -> Step<'a> {
        // A second begin-of-text means that the model begins another text: this one is over, as llama2.c sees it too.
        let ends = self.model.tokenizer.ends_text(token) || token == self.model.tokenizer.facts().bos;
        if ends && !self.ignore_end_of_text {
            return self.end(StopReason::EndOfText(token));
        }
        if let Some(place) = self.state.tokens_mut().get_mut(self.known as usize) {
            *place = token;
            self.known += 1;
        }
        Step::Token { token, text: self.model.tokenizer.decode(fed, token) }
    }

    fn sample(&mut self) -> Result<u32, Error> {
        self.compute_logits()?;
        self.draw()
    }

    /// Chooses a token by the logits that were computed last.
    fn draw(&mut self) -> Result<u32, Error> {
        let (logits, order, tokens) = self.state.for_sampler(self.model.network.vocab_size());
        let recent = tokens.get(..self.position as usize).unwrap_or(&[]);
        self.sampler.sample_finite(logits, order, recent)
    }

    /// The next token, where an accelerator finds it by itself: the likeliest, if that is what the sampler would choose. The session is then at the next position.
    #[cfg(not(target_os = "none"))]
    fn chosen_elsewhere(&mut self) -> Result<Option<u32>, Error> {
        let State::Away(state) = &mut self.state else { return Ok(None) };
        if !self.sampler.is_argmax() {
            return Ok(None);
        }
        let chosen = state.choose();
        if !matches!(chosen, Ok(None)) {
            self.finish();
        }
        chosen
    }

    #[cfg(target_os = "none")]
    #[inline(always)]
    #[allow(
        clippy::inline_always,
        clippy::unused_self,
        clippy::unnecessary_wraps,
        reason = "chips have no accelerators, and no code for them"
    )]
    fn chosen_elsewhere(&mut self) -> Result<Option<u32>, Error> {
        Ok(None)
    }

    /// Feeds all known tokens and returns the logits after the last, one a token of the vocabulary.
    /// They are lost with the next call.
    ///
    /// # Errors
    /// [`Error::NoPrompt`] if no token waits to be fed; [`Error::NonFiniteLogits`].
    pub fn logits(&mut self) -> Result<&[f32], Error> {
        #[cfg(not(target_os = "none"))]
        self.feed_blocks();
        loop {
            let Some(token) = self.next_token()? else { return Err(Error::NoPrompt) };
            while !self.is_fed() {
                self.feed_part(token);
            }
            if self.position + 1 == self.known {
                break;
            }
            self.finish();
        }
        self.compute_logits()?;
        let (logits, _, _) = self.state.for_sampler(self.model.network.vocab_size());
        Ok(logits)
    }

    /// What [`Session::logits`] returned, where nothing was done since.
    #[cfg(feature = "probe")]
    pub(crate) fn last_logits(&self) -> &[f32] {
        self.state.logits().get(..self.model.network.vocab_size() as usize).unwrap_or(&[])
    }

    /// Does a part of feeding the next known token and returns how many layers of it are done: 0 after the embedding, which is the first part, then one more a call. Between two calls
    /// [`Session::residual`] can be looked at; [`Session::logits`] goes on from there.
    ///
    /// # Errors
    /// [`Error::NoPrompt`] if all parts of all known tokens are done.
    pub fn advance(&mut self) -> Result<u32, Error> {
        if self.is_fed() {
            if self.position + 1 == self.known {
                return Err(Error::NoPrompt);
            }
            self.finish();
        }
        let Some(token) = self.next_token()? else { return Err(Error::NoPrompt) };
        self.feed_part(token);
        #[cfg(not(target_os = "none"))]
        if let State::Away(state) = &mut self.state {
            state.look()?;
        }
        Ok(self.parts - 1)
    }

    /// How many layers of the next known token are done; `None` where it was not begun.
    pub fn layers_done(&self) -> Option<u32> {
        // All layers of one that another follows: that one is next.
        if self.is_fed() && self.position + 1 < self.known { None } else { self.parts.checked_sub(1) }
    }

    /// The residual stream after the last [`Session::advance`] or [`Session::poll`]: `dim` values; of a dormouse model that of the position that was computed last.
    pub fn residual(&self) -> &[f32] {
        self.state.residual()
    }

    /// The logits at any `position` of a window that was fed as a whole: of a dormouse model with [`Decoding::Full`](crate::format::layout::Decoding::Full), where each depends on what comes
    /// after it, too. Feeds all known tokens first.
    ///
    /// # Errors
    /// [`Error::NoPrompt`] for a position that has no token; [`Error::Config`] for another decoding or another model; [`Error::NonFiniteLogits`].
    #[cfg(feature = "dormouse")]
    pub fn window_logits(&mut self, position: u32) -> Result<&[f32], Error> {
        if !self.state.has_window() {
            return Err(Error::Config { key: ConfigKey::Decoding, rule: Rule::Unsupported, found: 0, allowed: 0 });
        }
        if position >= self.known {
            return Err(Error::NoPrompt);
        }
        if self.position < self.known {
            self.logits()?;
        }
        self.model.network.logits(&mut self.state, position)?;
        let (logits, _, _) = self.state.for_sampler(self.model.network.vocab_size());
        Ok(logits)
    }

    /// Puts `token` in the place of the last one that [`Session::step`] chose, which was not fed yet. Where the context has no place for it nothing happens.
    ///
    /// # Errors
    /// [`Error::Token`] for one that is not in the vocabulary.
    pub fn replace_last(&mut self, token: u32) -> Result<(), Error> {
        let vocab_size = self.model.network.vocab_size();
        if token >= vocab_size {
            return Err(Error::Token { found: token, vocab_size });
        }
        let last = self.known.wrapping_sub(1) as usize;
        if self.position < self.known
            && let Some(place) = self.state.tokens_mut().get_mut(last)
        {
            *place = token;
        }
        Ok(())
    }

    /// Counts tokens that were put behind what is known. A text that is over goes on with them, and stays over where there are none.
    fn grow(&mut self, count: u32) {
        self.known += count;
        if count > 0 {
            self.ended = None;
        }
    }

    fn end(&mut self, reason: StopReason) -> Step<'a> {
        self.ended = Some(reason);
        Step::Stop(reason)
    }

    /// The token to be fed at the session's position; `None` when every position is used.
    fn next_token(&self) -> Result<Option<u32>, Error> {
        if self.position >= self.model.context {
            return Ok(None);
        }
        if self.position >= self.known {
            return Err(Error::NoPrompt);
        }
        Ok(self.state.tokens().get(self.position as usize).copied())
    }

    /// Whether the token at the session's position went through all layers, so that its logits can be computed.
    fn is_fed(&self) -> bool {
        self.parts > self.model.network.n_layers()
    }

    /// Does the next part of feeding `token`, which is that of the session's position.
    #[inline(never)]
    fn feed_part(&mut self, token: u32) {
        self.model.network.feed_part(&mut self.state, self.parts, token, (self.position, self.known));
        self.parts += 1;
    }

    /// Goes on to the next position.
    fn finish(&mut self) {
        self.position += 1;
        self.parts = 0;
    }

    /// Computes the logits after the token of the session's position, and goes on to the next.
    fn compute_logits(&mut self) -> Result<(), Error> {
        let done = self.model.network.logits(&mut self.state, self.position);
        self.finish();
        done
    }
}

/// `copy_from_slice` for two slices of one length, without its panic.
fn copy(to: &mut [u32], from: &[u32]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to = *from;
    }
}

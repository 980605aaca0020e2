//! The networks that a build has: one of them behind every [`Model`](crate::Model), and what a session of it keeps in memory.
//!
//! A build with one architecture has an enum of one variant, which costs nothing.
#![cfg_attr(
    not(all(feature = "llama", feature = "dormouse")),
    allow(
        unreachable_patterns,
        irrefutable_let_patterns,
        unused_variables,
        reason = "in a build with one architecture every network is of it"
    )
)]

#[cfg(not(target_os = "none"))]
use crate::accelerator::Away;
use crate::format::Error;
#[cfg(feature = "dormouse")]
use crate::format::arch::dormouse::layout::Decoding;
#[cfg(feature = "dormouse")]
use crate::models::dormouse::{self, Dormouse};
#[cfg(feature = "llama")]
use crate::models::llama::{self, Llama};

/// A network of one of the architectures that the build has.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Network<'a> {
    /// A Llama-family decoder.
    #[cfg(feature = "llama")]
    Llama(Llama<'a>),
    /// The dormouse byte model.
    #[cfg(feature = "dormouse")]
    Dormouse(Dormouse<'a>),
}

impl<'a> Network<'a> {
    /// How many tokens there are, and so how many logits.
    pub const fn vocab_size(&self) -> u32 {
        match self {
            #[cfg(feature = "llama")]
            Self::Llama(network) => network.config().vocab_size,
            #[cfg(feature = "dormouse")]
            Self::Dormouse(network) => network.config().vocab,
        }
    }

    /// Positions that the model was trained for: the most a context may have.
    pub const fn max_seq_len(&self) -> u32 {
        match self {
            #[cfg(feature = "llama")]
            Self::Llama(network) => network.config().max_seq_len,
            #[cfg(feature = "dormouse")]
            Self::Dormouse(network) => network.config().max_seq_len,
        }
    }

    /// The network, if it is a Llama.
    #[cfg(feature = "llama")]
    pub const fn llama(&self) -> Option<&Llama<'a>> {
        match self {
            Self::Llama(network) => Some(network),
            _ => None,
        }
    }

    /// The network, if it is a dormouse model.
    #[cfg(feature = "dormouse")]
    pub const fn dormouse(&self) -> Option<&Dormouse<'a>> {
        match self {
            Self::Dormouse(network) => Some(network),
            _ => None,
        }
    }

    /// Lets `crew` share the work, if it is a Llama.
    #[cfg(not(target_os = "none"))]
    pub(crate) fn set_crew(&mut self, crew: crate::ops::crew::Crew<'a>) {
        match self {
            #[cfg(feature = "llama")]
            Self::Llama(network) => network.crew = crew,
            #[cfg(feature = "dormouse")]
            Self::Dormouse(_) => {
                let _ = crew;
            }
        }
    }

    /// Layers, or iterations of a dormouse model's loop: each is a part of feeding a token.
    pub const fn n_layers(&self) -> u32 {
        match self {
            #[cfg(feature = "llama")]
            Self::Llama(network) => network.config().n_layers,
            #[cfg(feature = "dormouse")]
            Self::Dormouse(network) => network.config().max_iter,
        }
    }

    /// Values of the residual stream at a position.
    pub const fn dim(&self) -> u32 {
        match self {
            #[cfg(feature = "llama")]
            Self::Llama(network) => network.config().dim,
            #[cfg(feature = "dormouse")]
            Self::Dormouse(network) => network.config().stream_len() as u32,
        }
    }

    /// How many tensors there are.
    #[cfg(feature = "probe")]
    pub(crate) fn num_tensors(&self) -> u32 {
        match self {
            #[cfg(feature = "llama")]
            Self::Llama(network) => network.num_tensors(),
            #[cfg(feature = "dormouse")]
            Self::Dormouse(network) => network.num_tensors(),
        }
    }

    /// The bytes of the tensor of this number in the file's order.
    #[cfg(feature = "probe")]
    pub(crate) fn tensor_bytes(&self, number: u32) -> Option<&'a [u8]> {
        match self {
            #[cfg(feature = "llama")]
            Self::Llama(network) => network.tensor_bytes(number),
            #[cfg(feature = "dormouse")]
            Self::Dormouse(network) => network.tensor_bytes(number),
        }
    }

    /// Does a part of feeding `token` at `position`, which the caller has checked: the embedding (0), then a layer after the other. So many tokens are `known`.
    #[cfg_attr(not(feature = "dormouse"), allow(unused_variables, reason = "Llamas need not know how many tokens follow"))]
    pub(crate) fn feed_part(&self, state: &mut State<'_>, part: u32, token: u32, (position, known): (u32, u32)) {
        // Each architecture takes one of them.
        let _ = (token, known);
        match (self, state) {
            #[cfg(not(target_os = "none"))]
            (_, State::Away(state)) => state.feed_part(part, token, position),
            #[cfg(feature = "llama")]
            (Self::Llama(network), State::Llama(state)) => match part.checked_sub(1) {
                None => network.embed(state, token, position),
                Some(layer) => network.layer(state, layer, position),
            },
            // The token is among the known ones already; old positions are computed again once for all new ones, when the last of them is fed.
            #[cfg(feature = "dormouse")]
            (Self::Dormouse(network), State::Dormouse(state)) => {
                let wanted = position.wrapping_add(1);
                if part > 0 {
                    if state.is_begun() && state.goal() == wanted {
                        network.iterate(state);
                    }
                } else if wanted == known || state.decoding() == Decoding::Fast {
                    network.begin(state, wanted);
                }
            }
            _ => (),
        }
    }

    /// How many known tokens can be fed at once: 1 where there is no other way than steps.
    #[cfg(not(target_os = "none"))]
    pub(crate) fn block(state: &State<'_>) -> u32 {
        match state {
            #[cfg(feature = "llama")]
            State::Llama(state) => state.block.as_ref().map_or(1, llama::block::Block::positions).max(1),
            #[cfg(feature = "dormouse")]
            State::Dormouse(_) => 1,
            State::Away(state) => state.block(),
        }
    }

    /// Feeds the `count` known tokens from `position` on at once.
    #[cfg(not(target_os = "none"))]
    pub(crate) fn feed_block(&self, state: &mut State<'_>, position: u32, count: u32) {
        match (self, state) {
            #[cfg(feature = "llama")]
            (Self::Llama(network), State::Llama(state)) => network.feed_block(state, position, count),
            (_, State::Away(state)) => state.feed_block(position, count),
            _ => (),
        }
    }

    /// Gives the logits after each of these positions to `each`: the first, and how many, of those that were just fed at once.
    ///
    /// # Errors
    /// [`Error::NonFiniteLogits`]; those of `each`.
    #[cfg(not(target_os = "none"))]
    pub(crate) fn logits_block<E: From<Error>>(
        &self,
        state: &mut State<'_>,
        positions: (u32, u32),
        each: &mut impl FnMut(u32, &[f32]) -> Result<(), E>,
    ) -> Result<(), E> {
        match (self, state) {
            #[cfg(feature = "llama")]
            (Self::Llama(network), State::Llama(state)) => network.logits_block(state, positions, each),
            (_, State::Away(state)) => state.logits_block(self.vocab_size(), positions, each),
            _ => Ok(()),
        }
    }

    /// Computes the logits after `position`, the last that was fed.
    ///
    /// # Errors
    /// [`Error::NonFiniteLogits`].
    pub(crate) fn logits(&self, state: &mut State<'_>, position: u32) -> Result<(), Error> {
        match (self, state) {
            #[cfg(feature = "llama")]
            (Self::Llama(network), State::Llama(state)) => network.logits(state, position),
            #[cfg(not(target_os = "none"))]
            (_, State::Away(state)) => state.compute_logits(self.vocab_size(), position),
            #[cfg(feature = "dormouse")]
            (Self::Dormouse(network), State::Dormouse(state)) => {
                network.advance(state, position.wrapping_add(1));
                network.logits(state, position)
            }
            _ => Ok(()),
        }
    }
}

/// What a session keeps in memory, by the network's architecture.
#[derive(Debug)]
pub(crate) enum State<'m> {
    #[cfg(feature = "llama")]
    Llama(llama::State<'m>),
    #[cfg(feature = "dormouse")]
    Dormouse(dormouse::State<'m>),
    /// Of any network, where an accelerator computes it.
    #[cfg(not(target_os = "none"))]
    Away(Away<'m>),
}

impl State<'_> {
    /// One place a position.
    pub(crate) fn tokens(&self) -> &[u32] {
        match self {
            #[cfg(feature = "llama")]
            Self::Llama(state) => state.tokens,
            #[cfg(feature = "dormouse")]
            Self::Dormouse(state) => state.tokens,
            #[cfg(not(target_os = "none"))]
            Self::Away(state) => state.tokens,
        }
    }

    pub(crate) fn tokens_mut(&mut self) -> &mut [u32] {
        match self {
            #[cfg(feature = "llama")]
            Self::Llama(state) => state.tokens,
            #[cfg(feature = "dormouse")]
            Self::Dormouse(state) => state.tokens,
            #[cfg(not(target_os = "none"))]
            Self::Away(state) => state.tokens,
        }
    }

    /// Calls `encode` with room for a prompt, `wanted` words if there are as many, and with the tokens.
    pub(crate) fn with_room<R>(
        &mut self,
        (position, context): (u32, u32),
        wanted: usize,
        encode: impl FnOnce(&mut [u32], &mut [u32]) -> R,
    ) -> R {
        match self {
            #[cfg(feature = "llama")]
            Self::Llama(state) => {
                let logits = bytemuck::cast_slice_mut(state.shared);
                // Where the room for logits will do, nothing of the cache is lent: all of it counts as used.
                let used = if wanted > logits.len() { position } else { context } as usize;
                let unused = state.kv.lend_unused(used);
                let encoded = encode(if unused.len() > logits.len() { unused } else { logits }, state.tokens);
                state.kv.take_back(used);
                encoded
            }
            #[cfg(feature = "dormouse")]
            Self::Dormouse(state) => {
                let _ = (position, context, wanted);
                let (scratch, tokens) = state.for_prompt();
                encode(scratch, tokens)
            }
            #[cfg(not(target_os = "none"))]
            Self::Away(state) => encode(bytemuck::cast_slice_mut(state.logits), state.tokens),
        }
    }

    /// The logits that were computed last, the sampler's room for an order of them, and the tokens.
    pub(crate) fn for_sampler(&mut self, vocab_size: u32) -> (&mut [f32], &mut [u32], &[u32]) {
        match self {
            #[cfg(feature = "llama")]
            Self::Llama(state) => {
                let (logits, order) = llama::State::split_logits(state.shared, vocab_size);
                (logits, order, state.tokens)
            }
            #[cfg(feature = "dormouse")]
            Self::Dormouse(state) => state.for_sampler(vocab_size),
            #[cfg(not(target_os = "none"))]
            Self::Away(state) => (state.logits.get_mut(..vocab_size as usize).unwrap_or_default(), state.order, state.tokens),
        }
    }

    /// Whether the logits of every position can be had.
    #[cfg(feature = "dormouse")]
    pub(crate) fn has_window(&self) -> bool {
        matches!(self, Self::Dormouse(state) if state.decoding() == Decoding::Full)
    }

    /// Room for the logits, where those that were computed last are.
    #[cfg(feature = "probe")]
    pub(crate) fn logits(&self) -> &[f32] {
        match self {
            #[cfg(feature = "llama")]
            Self::Llama(state) => state.shared,
            #[cfg(feature = "dormouse")]
            Self::Dormouse(state) => state.logits,
            #[cfg(not(target_os = "none"))]
            Self::Away(state) => state.logits,
        }
    }

    /// The residual stream.
    pub(crate) fn residual(&self) -> &[f32] {
        match self {
            #[cfg(feature = "llama")]
            Self::Llama(state) => state.x,
            #[cfg(feature = "dormouse")]
            Self::Dormouse(state) => state.stream(),
            #[cfg(not(target_os = "none"))]
            Self::Away(state) => state.residual,
        }
    }

    /// Forgets the text, where anything else than the position knows of it.
    pub(crate) fn reset(&mut self) {
        match self {
            #[cfg(feature = "dormouse")]
            Self::Dormouse(state) => state.reset(),
            #[cfg(not(target_os = "none"))]
            Self::Away(state) => state.reset(),
            _ => (),
        }
    }
}

//! From logits to the next token: greedy, or drawn after the rules of llama2.c with top-k, min-p and a repetition penalty beside them. Called by sessions, once a token.
//!
//! In this order: the repetition penalty changes logits; temperature and softmax make probabilities; top-k keeps the likeliest k; top-p keeps the smallest group of the likeliest
//! whose share of what top-k left is more than p; min-p keeps those that have at least that part of the best one's probability; one of the kept is drawn, in proportion to
//! its probability. With penalty, top-k and min-p off this is llama2.c's `sample`: the same seed and logits give the same tokens.
//!
//! Ties go to the lowest token everywhere, so results do not depend on how anything is sorted. The likeliest token is always kept.

mod rank;
#[cfg(test)]
mod tests;

use crate::format::{Error, Rule, SamplingKey};
use crate::ops::math::exp;
use crate::ops::{self, check::all_finite, chip};
use rank::Ranking;

/// How tokens are chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Divides the logits: 0 always takes the likeliest token, 1 draws as the model says, more is more varied.
    pub temperature: f32,
    /// Keeps the likeliest tokens that together have more than this part of the probability: more than 0, at most 1; 1 is off.
    pub top_p: f32,
    /// Keeps this many of the likeliest tokens; 0 is off.
    pub top_k: u32,
    /// Keeps tokens that have at least this part of the best one's probability: 0 or more, less than 1; 0 is off.
    pub min_p: f32,
    /// Makes tokens that came up before less likely: positive logits are divided by it, others multiplied. More than 0; 1 is off.
    pub repeat_penalty: f32,
    /// How many of the newest tokens the penalty looks at.
    pub repeat_last_n: u32,
    /// Where the random numbers begin: 1 or more.
    pub seed: u64,
}

impl Settings {
    /// The likeliest token, always.
    pub const GREEDY: Self = Self { temperature: 0.0, top_p: 1.0, top_k: 0, min_p: 0.0, repeat_penalty: 1.0, repeat_last_n: 64, seed: 1 };

    /// Whether every setting is in its range.
    ///
    /// # Errors
    /// [`Error::Sampling`] with the first that is not; NaN never is.
    pub const fn check(&self) -> Result<(), Error> {
        if let Err(error) = finite(SamplingKey::Temperature, self.temperature) {
            return Err(error);
        }
        if let Err(error) = finite(SamplingKey::TopP, self.top_p) {
            return Err(error);
        }
        if let Err(error) = finite(SamplingKey::MinP, self.min_p) {
            return Err(error);
        }
        if let Err(error) = finite(SamplingKey::RepeatPenalty, self.repeat_penalty) {
            return Err(error);
        }
        if self.temperature < 0.0 {
            return Err(wrong(SamplingKey::Temperature, Rule::TooSmall, self.temperature));
        }
        if self.top_p <= 0.0 {
            return Err(wrong(SamplingKey::TopP, Rule::Positive, self.top_p));
        }
        if self.top_p > 1.0 {
            return Err(wrong(SamplingKey::TopP, Rule::TooLarge, self.top_p));
        }
        if self.min_p < 0.0 {
            return Err(wrong(SamplingKey::MinP, Rule::TooSmall, self.min_p));
        }
        if self.min_p >= 1.0 {
            return Err(wrong(SamplingKey::MinP, Rule::TooLarge, self.min_p));
        }
        if self.repeat_penalty <= 0.0 {
            return Err(wrong(SamplingKey::RepeatPenalty, Rule::Positive, self.repeat_penalty));
        }
        if self.seed == 0 {
            return Err(wrong(SamplingKey::Seed, Rule::NotZero, 0.0));
        }
        Ok(())
    }

    /// Whether tokens are ranked before one is drawn.
    const fn ranks(&self) -> bool {
        self.top_p < 1.0 || self.top_k > 0 || self.min_p > 0.0
    }
}

const fn finite(key: SamplingKey, value: f32) -> Result<(), Error> {
    if value.is_finite() { Ok(()) } else { Err(wrong(key, Rule::Finite, value)) }
}

const fn wrong(key: SamplingKey, rule: Rule, found: f32) -> Error {
    Error::Sampling { key, rule, found: found.to_bits() }
}

/// The random numbers: xorshift64*, as llama2.c has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rng {
    state: u64,
}

impl Rng {
    /// Numbers that begin at `seed`. From 0 there is no way on: the generator would give 0 forever, and [`Settings::check`] refuses it.
    pub const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The next 32 bits.
    pub const fn next_u32(&mut self) -> u32 {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        (self.state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32) as u32
    }

    /// The next number from 0 up to, but not including, 1: a multiple of 2^-24.
    pub const fn next_f32(&mut self) -> f32 {
        (self.next_u32() >> 8) as f32 / 16_777_216.0
    }
}

/// Chooses tokens.
///
/// ```
/// use dmexp::{Sampler, sampler::Settings};
///
/// let mut greedy = Sampler::greedy();
/// assert_eq!(greedy.sample(&mut [0.5, 2.0, 1.0], &mut [], &[])?, 1);
/// // With a seed the same tokens come again, on every machine.
/// let settings = Settings { temperature: 0.8, top_k: 2, seed: 7, ..Settings::GREEDY };
/// let draw = || Sampler::new(settings)?.sample(&mut [0.5, 2.0, 1.0], &mut [0; 3], &[]);
/// assert_eq!(draw()?, draw()?);
/// # Ok::<(), dmexp::format::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Sampler {
    settings: Settings,
    rng: Rng,
    /// The repetition penalty; `None` where it is off. Not called by its name, so that firmware without it need not hold it.
    penalise: Option<Penalise>,
}

type Penalise = fn(&Settings, &mut [f32], &mut [u32], &[u32]) -> Result<(), Error>;

impl Sampler {
    /// The likeliest token, always; no random numbers, no memory.
    pub const fn greedy() -> Self {
        Self { settings: Settings::GREEDY, rng: Rng::new(Settings::GREEDY.seed), penalise: None }
    }

    /// A sampler with `settings`.
    ///
    /// # Errors
    /// Those of [`Settings::check`].
    pub const fn new(settings: Settings) -> Result<Self, Error> {
        match settings.check() {
            Ok(()) => Ok(Self {
                settings,
                rng: Rng::new(settings.seed),
                penalise: if settings.repeat_penalty == 1.0 { None } else { Some(penalise) },
            }),
            Err(error) => Err(error),
        }
    }

    /// The settings.
    pub const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Whether the likeliest token is always chosen, whatever the text is.
    #[cfg(all(not(target_os = "none"), any(feature = "llama", feature = "dormouse")))]
    pub(crate) const fn is_argmax(&self) -> bool {
        self.settings.temperature == 0.0 && self.penalise.is_none()
    }

    /// The least length of `order` in [`Sampler::sample`], for a vocabulary of `vocab_size`: that or 0.
    pub const fn order_words(&self, vocab_size: usize) -> usize {
        let draws = self.settings.temperature > 0.0 && self.settings.ranks();
        if draws || self.settings.repeat_penalty != 1.0 { vocab_size } else { 0 }
    }

    /// Chooses the token after `text`, the tokens so far (oldest first; only the repetition penalty and errors use them). `logits` has one number a token and is used up;
    /// `order` is scratch of at least [`Sampler::order_words`].
    ///
    /// Greedy takes no random number; otherwise each call takes exactly one. Where `logits / temperature` is too large for an `f32` (a temperature of 1e-40, say), the
    /// likeliest token is taken: that is what every lower temperature tends to. Should the cumulated probabilities end below the number drawn, the last candidate is taken, as in llama2.c.
    ///
    /// # Errors
    /// [`Error::NonFiniteLogits`] if a logit is NaN or infinite, with the position of the last token of `text`; [`Error::ScratchTooSmall`] if `order` is; [`Error::Token`] if `logits` is
    /// empty, or the penalty is on and meets a token in `text` that `logits` does not have.
    #[inline(never)]
    pub fn sample(&mut self, logits: &mut [f32], order: &mut [u32], text: &[u32]) -> Result<u32, Error> {
        if !all_finite(logits) {
            return Err(Error::NonFiniteLogits { position: text.len().saturating_sub(1) as u32 });
        }
        self.sample_finite(logits, order, text)
    }

    /// [`Sampler::sample`] of logits that the network has found to be finite.
    #[inline(never)]
    pub(crate) fn sample_finite(&mut self, logits: &mut [f32], order: &mut [u32], text: &[u32]) -> Result<u32, Error> {
        let vocab_size = logits.len();
        let needed = self.order_words(vocab_size);
        let found = order.len() as u64;
        let Some(order) = order.get_mut(..needed) else {
            return Err(Error::ScratchTooSmall { needed: needed as u64, found });
        };
        if let Some(penalise) = self.penalise {
            penalise(&self.settings, logits, order, text)?;
        }
        let Some((likeliest, highest)) = argmax(logits) else {
            return Err(Error::Token { found: 0, vocab_size: 0 });
        };
        if self.settings.temperature == 0.0 {
            return Ok(likeliest);
        }
        let coin = self.rng.next_f32();
        if !(highest / self.settings.temperature).is_finite() {
            return Ok(likeliest);
        }
        softmax(logits, self.settings.temperature, highest);
        if self.settings.ranks() { Ok(self.draw_ranked(logits, order, coin, likeliest)) } else { Ok(draw(logits, coin)) }
    }

    /// Draws among the tokens that top-k, top-p and min-p keep.
    #[inline(never)]
    fn draw_ranked(&self, probabilities: &[f32], order: &mut [u32], coin: f32, likeliest: u32) -> u32 {
        let Settings { top_p, top_k, min_p, .. } = self.settings;
        let best = probabilities.get(likeliest as usize).copied().unwrap_or(0.0);
        // Tokens that cannot be kept anyway are not ranked, except where top-p needs the sum of all that top-k left. For top-p alone it is llama2.c's cutoff, which is part of its rule:
        // tokens below it cannot have more than 1 - p together.
        let mut cutoff = if top_k > 0 && top_p < 1.0 { 0.0 } else { min_p * best };
        if top_p < 1.0 && top_k == 0 {
            cutoff = cutoff.max((1.0 - top_p) / probabilities.len().saturating_sub(1) as f32);
        }
        let mut ranking = Ranking::new(probabilities, order, cutoff);
        let mut limit = ranking.len();
        let mut share = top_p;
        if top_k > 0 {
            limit = limit.min(top_k as usize);
            // top-p's share is one of what top-k left; min-p does not shrink it.
            let mut whole = 0.0;
            for nth in 0..limit {
                whole += ranking.nth(nth).map_or(0.0, |(_, p)| p);
            }
            share = top_p * whole;
        }
        let (mut kept, mut sum) = (0, 0.0);
        while kept < limit {
            let Some((_, probability)) = ranking.nth(kept) else { break };
            if kept > 0 && probability < min_p * best {
                break;
            }
            sum += probability;
            kept += 1;
            if top_p < 1.0 && sum > share {
                break;
            }
        }
        let drawn = coin * sum;
        let (mut chosen, mut cumulated) = (likeliest, 0.0);
        for nth in 0..kept {
            let Some((token, probability)) = ranking.nth(nth) else { break };
            chosen = token;
            cumulated += probability;
            if drawn < cumulated {
                break;
            }
        }
        chosen
    }
}

/// Applies the repetition penalty, once to each token however often it came up.
#[inline(never)]
fn penalise(settings: &Settings, logits: &mut [f32], seen: &mut [u32], text: &[u32]) -> Result<(), Error> {
    seen.fill(0);
    let skipped = text.len().saturating_sub(settings.repeat_last_n as usize);
    for &token in text.iter().skip(skipped) {
        let (Some(logit), Some(seen)) = (logits.get_mut(token as usize), seen.get_mut(token as usize)) else {
            return Err(Error::Token { found: token, vocab_size: logits.len() as u32 });
        };
        if *seen == 0 {
            *seen = 1;
            let changed = if *logit > 0.0 { *logit / settings.repeat_penalty } else { *logit * settings.repeat_penalty };
            // Extreme penalties can overflow; the logits stay finite.
            *logit = changed.clamp(f32::MIN, f32::MAX);
        }
    }
    Ok(())
}

/// The token with the largest logit, the lowest where several are largest, and that logit; `None` if there are none.
pub fn argmax(logits: &[f32]) -> Option<(u32, f32)> {
    ops::check::argmax(logits)
}

/// Logits to probabilities. `highest` is the largest logit: dividing by a positive number keeps it the largest.
#[inline(never)]
fn softmax(logits: &mut [f32], temperature: f32, highest: f32) {
    let highest = highest / temperature;
    // One after the other: this sum is llama2.c's, not the canonical one.
    let sum = if cfg!(x86_64_host) {
        chip::divide(logits, temperature);
        chip::exp_minus(logits, highest);
        logits.iter().fold(0.0, |sum, value| sum + value)
    } else {
        // The same in less code: a chip tells few tokens a second.
        logits.iter_mut().fold(0.0, |sum, logit| {
            *logit = exp(*logit / temperature - highest);
            sum + *logit
        })
    };
    for probability in logits {
        *probability /= sum;
    }
}

/// The first token whose cumulated probability is above `coin`, else the last.
fn draw(probabilities: &[f32], coin: f32) -> u32 {
    let mut cumulated = 0.0;
    for (token, probability) in (0..).zip(probabilities) {
        cumulated += probability;
        if coin < cumulated {
            return token;
        }
    }
    (probabilities.len() as u32).saturating_sub(1)
}

//! The configuration of a Llama as a format-1 header carries it: the TOML text that starts with `arch = "llama"`. Used by the parent module alone.
//!
//! Nothing is implied: a key that changes the function must be there, and a key that is not known is refused.

use super::place;
use super::scan::{Expression, Keys, Scanner, Text, Value};
use crate::arch::llama::{LlamaConfig, RopeLayout};
use crate::tokenizer::TokenizerFacts;
use crate::{ConfigKey, Error, Rule, TokenizerKey};

const REQUIRED: [ConfigKey; 14] = [
    ConfigKey::Dim,
    ConfigKey::HiddenDim,
    ConfigKey::NLayers,
    ConfigKey::NHeads,
    ConfigKey::NKvHeads,
    ConfigKey::HeadDim,
    ConfigKey::VocabSize,
    ConfigKey::MaxSeqLen,
    ConfigKey::NormEps,
    ConfigKey::RopeLayout,
    ConfigKey::AttentionFactor,
    ConfigKey::TiedEmbeddings,
    ConfigKey::QkvBias,
    ConfigKey::SlidingWindow,
];

/// Reads the whole text and checks every value, by itself and against the others, rotation frequencies included.
pub(super) fn parse(text: Text<'_>) -> Result<(LlamaConfig, TokenizerFacts), Error> {
    let mut config = LlamaConfig {
        dim: 0,
        hidden_dim: 0,
        n_layers: 0,
        n_heads: 0,
        n_kv_heads: 0,
        head_dim: 0,
        vocab_size: 0,
        max_seq_len: 0,
        norm_eps: 0.0,
        rope_layout: RopeLayout::Interleaved,
        attention_factor: 0.0,
        tied_embeddings: false,
        qkv_bias: false,
        sliding_window: 0,
    };
    let mut facts = TokenizerFacts::NONE;
    let mut given = 0u64;
    let mut frequencies = None;
    let mut seen = Keys::<32>::new();
    let mut scanner = Scanner::new(text);
    while let Some(expression) = scanner.next()? {
        let (key, value) = match expression {
            Expression::Pair { key, value } if !key.dotted => (key, value),
            Expression::Pair { key, .. } | Expression::Table { key, .. } => return Err(place(ConfigKey::Other, Rule::Unknown, key.at)),
        };
        seen.add(&key)?;
        let size = match key.first {
            "dim" => Some((ConfigKey::Dim, &mut config.dim)),
            "hidden_dim" => Some((ConfigKey::HiddenDim, &mut config.hidden_dim)),
            "n_layers" => Some((ConfigKey::NLayers, &mut config.n_layers)),
            "n_heads" => Some((ConfigKey::NHeads, &mut config.n_heads)),
            "n_kv_heads" => Some((ConfigKey::NKvHeads, &mut config.n_kv_heads)),
            "head_dim" => Some((ConfigKey::HeadDim, &mut config.head_dim)),
            "vocab_size" => Some((ConfigKey::VocabSize, &mut config.vocab_size)),
            "max_seq_len" => Some((ConfigKey::MaxSeqLen, &mut config.max_seq_len)),
            "sliding_window" => Some((ConfigKey::SlidingWindow, &mut config.sliding_window)),
            _ => None,
        };
        if let Some((name, slot)) = size {
            *slot = word(&value).map_err(|rule| place(name, rule, value.at))?;
            given |= 1 << name as u32;
            continue;
        }
        let name = match key.first {
            // Read before this text was given here.
            "arch" => continue,
            "norm_eps" => float(&mut config.norm_eps, ConfigKey::NormEps, &value)?,
            "attention_factor" => float(&mut config.attention_factor, ConfigKey::AttentionFactor, &value)?,
            "rope_theta" => float(&mut 0.0, ConfigKey::RopeTheta, &value)?,
            "tied_embeddings" => boolean(&mut config.tied_embeddings, ConfigKey::TiedEmbeddings, &value)?,
            "qkv_bias" => boolean(&mut config.qkv_bias, ConfigKey::QkvBias, &value)?,
            "rope_layout" => {
                let layout = value.string().map_err(|rule| place(ConfigKey::RopeLayout, rule, value.at))?.text;
                let known = [RopeLayout::Interleaved, RopeLayout::Half].into_iter().find(|known| known.name() == layout);
                config.rope_layout = known.ok_or(place(ConfigKey::RopeLayout, Rule::Unknown, value.at))?;
                ConfigKey::RopeLayout
            }
            "rope_inv_freq" => {
                frequencies = Some(value);
                ConfigKey::RopeInvFreq
            }
            "bos" => {
                facts.bos = word(&value).map_err(|rule| token(TokenizerKey::Bos, rule, &value))?;
                continue;
            }
            "eos" => {
                ends(&mut facts.eos, &value)?;
                continue;
            }
            "add_bos" => {
                facts.add_bos = value.boolean().map_err(|rule| token(TokenizerKey::Bos, rule, &value))?;
                continue;
            }
            _ => return Err(place(ConfigKey::Other, Rule::Unknown, key.at)),
        };
        given |= 1 << name as u32;
    }
    if let Some(missing) = REQUIRED.into_iter().find(|key| given >> *key as u32 & 1 == 0) {
        return Err(place(missing, Rule::Missing, text.at));
    }
    config.validate()?;
    facts.check(config.vocab_size)?;
    check_frequencies(frequencies, text.at, config.head_dim / 2)?;
    Ok((config, facts))
}

/// Writes the rotation frequencies of a text that `parse` took into `out`; places past the last frequency keep what they hold.
pub(super) fn frequencies(text: Text<'_>, out: &mut [f32]) -> Result<(), Error> {
    let mut scanner = Scanner::new(text);
    while let Some(expression) = scanner.next()? {
        if let Expression::Pair { key, value } = expression
            && key.whole == ConfigKey::RopeInvFreq.name()
        {
            let fault = |rule| place(ConfigKey::RopeInvFreq, rule, value.at);
            for (slot, item) in out.iter_mut().zip(value.items().map_err(fault)?) {
                *slot = item.float().map_err(fault)?;
            }
        }
    }
    Ok(())
}

fn check_frequencies(value: Option<Value<'_>>, at: u64, expected: u32) -> Result<(), Error> {
    let key = ConfigKey::RopeInvFreq;
    let value = value.ok_or(place(key, Rule::Missing, at))?;
    let mut count = 0u64;
    for item in value.items().map_err(|rule| place(key, rule, value.at))? {
        let frequency = item.float().map_err(|rule| place(key, rule, item.at))?;
        if frequency <= 0.0 {
            return Err(place(key, Rule::Positive, item.at));
        }
        count += 1;
    }
    if count == u64::from(expected) { Ok(()) } else { Err(place(key, Rule::Length, value.at)) }
}

fn word(value: &Value<'_>) -> Result<u32, Rule> {
    u32::try_from(value.integer()?).map_err(|_| Rule::TooLarge)
}

fn float(slot: &mut f32, key: ConfigKey, value: &Value<'_>) -> Result<ConfigKey, Error> {
    *slot = value.float().map_err(|rule| place(key, rule, value.at))?;
    if *slot > 0.0 { Ok(key) } else { Err(place(key, Rule::Positive, value.at)) }
}

fn boolean(slot: &mut bool, key: ConfigKey, value: &Value<'_>) -> Result<ConfigKey, Error> {
    *slot = value.boolean().map_err(|rule| place(key, rule, value.at))?;
    Ok(key)
}

fn ends(eos: &mut [u32; 8], value: &Value<'_>) -> Result<(), Error> {
    let mut slots = eos.iter_mut();
    for item in value.items().map_err(|rule| token(TokenizerKey::Eos, rule, value))? {
        let slot = slots.next().ok_or(token(TokenizerKey::Eos, Rule::Length, value))?;
        *slot = word(&item).map_err(|rule| token(TokenizerKey::Eos, rule, &item))?;
    }
    Ok(())
}

fn token(key: TokenizerKey, rule: Rule, value: &Value<'_>) -> Error {
    Error::Tokenizer { key, rule, found: value.at, allowed: u64::MAX }
}

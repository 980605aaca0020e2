//! The rotation of a Llama-family model in GGUF: frequencies from theta, scaled as llama.cpp scales them (linear, `YaRN`, the divisors of Llama 3).

use super::config::Keys;
use super::container::{AGAIN, Container, TensorType};
use crate::checkpoint::rope;
use crate::error::{Error, Result};
use dmexp_format::arch::llama::LlamaConfig;
use dmexp_format::host::Scalar;
use std::collections::BTreeMap;
use std::f64::consts::PI;

/// The tensor that holds the numbers by which Llama 3 divides its rotation frequencies.
pub(super) const DIVISORS: &str = "rope_freqs.weight";

/// The rotation frequencies, what multiplies sine and cosine, and both in words.
pub(super) struct Rotation {
    pub(super) inv_freq: Vec<f32>,
    pub(super) attention_factor: f32,
    pub(super) scaling: BTreeMap<String, Scalar>,
}

/// How frequencies are scaled.
enum Scaling {
    None,
    Linear { factor: f64 },
    Yarn { factor: f64, original: f64, attention: f64 },
}

/// Reads the rotation of a model of this configuration (all but its attention factor).
pub(super) fn read(keys: &Keys<'_, '_>, config: &LlamaConfig, theta: f64) -> Result<Rotation> {
    let scaling = scaling(keys, config)?;
    // Between which pairs YaRN mixes is found by the logarithm of theta.
    let least = if matches!(scaling, Scaling::Yarn { .. }) { 1.0 } else { 0.0 };
    if !(theta.is_finite() && theta > least) {
        let what = format!("{} is {theta}; it has to be a number above {least}", keys.key("rope.freq_base"));
        return Err(Error::damaged(what).advise(AGAIN));
    }
    let divisors = divisors(keys.container, config.head_dim / 2)?;
    let plain = (0..config.head_dim / 2).map(|pair| rope::frequency(theta, config.head_dim, pair));
    let divided: Vec<f64> =
        plain.enumerate().map(|(pair, frequency)| frequency / divisors.get(pair).map_or(1.0, |divisor| f64::from(*divisor))).collect();
    let scaled = match scaling {
        Scaling::None => divided,
        Scaling::Linear { factor } => divided.iter().map(|frequency| frequency / factor).collect(),
        Scaling::Yarn { factor, original, .. } => yarn(&divided, f64::from(config.head_dim), theta, factor, original),
    };
    let mut words = BTreeMap::new();
    let mut say = |key: &str, value: Scalar| words.insert(key.to_owned(), value);
    let attention_factor = match scaling {
        Scaling::None => 1.0,
        Scaling::Linear { factor } => {
            say("type", Scalar::Text("linear".to_owned()));
            say("factor", Scalar::Float(factor));
            1.0
        }
        Scaling::Yarn { factor, original, attention } => {
            say("type", Scalar::Text("yarn".to_owned()));
            say("factor", Scalar::Float(factor));
            say("original_context_length", Scalar::Float(original));
            attention * (1.0 + 0.1 * libm::log(factor))
        }
    };
    if !divisors.is_empty() {
        say("divisors", Scalar::Text(DIVISORS.to_owned()));
    }
    Ok(Rotation {
        inv_freq: scaled.into_iter().map(|frequency| frequency as f32).collect(),
        attention_factor: attention_factor as f32,
        scaling: words,
    })
}

fn scaling(keys: &Keys<'_, '_>, config: &LlamaConfig) -> Result<Scaling> {
    let kind = keys.key("rope.scaling.type");
    let (stated, old) = (keys.container.text(&kind)?, keys.positive("rope.scale_linear")?);
    let factor = keys.positive("rope.scaling.factor")?;
    let attention = keys.positive("rope.scaling.attn_factor")?.unwrap_or(1.0);
    if attention != 1.0 && stated != Some("yarn") {
        let what = format!("{} is {attention} without a scaling that has one", keys.key("rope.scaling.attn_factor"));
        return Err(Error::not_a_model(what));
    }
    let factor = match (stated, old) {
        (Some("linear" | "yarn"), Some(_)) => {
            let what = format!("{} and {kind} contradict each other", keys.key("rope.scale_linear"));
            return Err(Error::damaged(what).advise(AGAIN));
        }
        (Some("none"), None) => None,
        // llama.cpp takes a factor whose kind is not stated for a linear one.
        (None | Some("none"), Some(old)) => Some(old),
        (None | Some("linear" | "yarn"), None) => factor,
        (Some(other), _) => {
            let what = format!("{kind} is {other:?}, which this version cannot compute");
            return Err(
                Error::not_a_model(what).advise("none, linear and yarn are computed, and the divisors of Llama 3 (rope_freqs.weight)")
            );
        }
    };
    let original = keys.size("rope.scaling.original_context_length")?.filter(|original| *original > 0);
    Ok(match (factor, stated) {
        (Some(factor), Some("yarn")) if factor >= 1.0 => {
            Scaling::Yarn { factor, original: f64::from(original.unwrap_or(config.max_seq_len)), attention }
        }
        (factor, Some("yarn")) => {
            let found = factor.map_or_else(|| "not there".to_owned(), |factor| factor.to_string());
            let what = format!("{} is {found}; yarn has one from 1", keys.key("rope.scaling.factor"));
            return Err(Error::damaged(what).advise(AGAIN));
        }
        // What a factor of 1 scales stays as it is.
        (Some(factor), _) if factor != 1.0 => Scaling::Linear { factor },
        _ => Scaling::None,
    })
}

/// Frequencies that turn often within the original context stay, those that turn less than once are divided, between them both are mixed (Peng et al. 2023, "`YaRN`", with its 32 turns and 1).
fn yarn(plain: &[f64], head_dim: f64, theta: f64, factor: f64, original: f64) -> Vec<f64> {
    let pair_of = |turns: f64| head_dim * libm::log(original / (turns * 2.0 * PI)) / (2.0 * libm::log(theta));
    let low = libm::floor(pair_of(32.0)).max(0.0);
    let high = libm::ceil(pair_of(1.0)).min(head_dim - 1.0);
    let mixed = (0u32..).zip(plain).map(|(pair, frequency)| {
        let kept = 1.0 - ((f64::from(pair) - low) / (high - low).max(0.001)).clamp(0.0, 1.0);
        frequency / factor * (1.0 - kept) + frequency * kept
    });
    mixed.collect()
}

/// The numbers of the tensor `rope_freqs.weight`; none where it is not there.
fn divisors(container: &Container<'_>, pairs: u32) -> Result<Vec<f32>> {
    let Some(tensor) = container.tensors.iter().find(|tensor| tensor.name == DIVISORS) else {
        return Ok(Vec::new());
    };
    let wrong = |what: String| Error::mismatch(format!("{DIVISORS} {what}")).advise(AGAIN);
    if tensor.kind != TensorType::F32 || tensor.shape() != [u64::from(pairs)] {
        return Err(wrong(format!("is {} {:?}; half a head in F32 is {pairs}", tensor.kind.name(), tensor.shape())));
    }
    let divisors: Vec<f32> = container.data(tensor).as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
    match divisors.iter().zip(0..).find(|(divisor, _)| !(divisor.is_finite() && **divisor > 0.0)) {
        Some((divisor, place)) => Err(wrong(format!("has {divisor} at {place}, where only positive numbers are possible"))),
        None => Ok(divisors),
    }
}

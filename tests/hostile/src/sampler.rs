//! The sampler: arbitrary settings and logits; what is chosen is what the settings allow.

use crate::Outcome;
use dmexp::sampler::{Sampler, Settings, argmax};

/// Room for rounding: probabilities are summed in 32 bits by one side and in 64 by the other.
const ROUNDING: f64 = 1e-3;

/// Settings (28 bytes and the seed), the number of tokens before, and logits of 32 bits.
///
/// # Panics
/// If the token is one that the settings rule out.
pub(crate) fn sample(bytes: &[u8]) -> Outcome {
    let (words, _) = bytes.as_chunks();
    let words: Vec<u32> = words.iter().map(|word| u32::from_le_bytes(*word)).collect();
    let Some((head, logits)) = words.split_first_chunk::<9>() else { return Outcome::Refused };
    let [temperature, top_p, top_k, min_p, repeat_penalty, repeat_last_n, low, high, text] = *head;
    let float = f32::from_bits;
    let settings = Settings {
        temperature: float(temperature),
        top_p: float(top_p),
        top_k,
        min_p: float(min_p),
        repeat_penalty: float(repeat_penalty),
        repeat_last_n,
        seed: u64::from(high) << 32 | u64::from(low),
    };
    let mut sampler = match Sampler::new(settings) {
        Ok(sampler) => sampler,
        Err(error) => return Outcome::refused(&error),
    };
    let text: Vec<u32> = (0..text % 8).map(|place| text.rotate_left(4 * place) % 64).collect();
    let logits: Vec<f32> = logits.iter().copied().map(float).collect();
    let mut order = vec![0; sampler.order_words(logits.len())];
    let mut used = logits.clone();
    let token = match sampler.sample(&mut used, &mut order, &text) {
        Ok(token) => token,
        Err(error) => {
            let finite = logits.iter().all(|logit| logit.is_finite());
            let known = text.iter().all(|token| (*token as usize) < logits.len());
            assert!(logits.is_empty() || !finite || !known, "there was no reason to refuse: {error}");
            return Outcome::refused(&error);
        }
    };
    let after = penalised(&settings, logits, &text);
    assert!((token as usize) < after.len(), "token {token} of {}", after.len());
    check(&settings, &after, token as usize);
    // The same settings choose the same.
    let mut again = Sampler::new(settings).expect("they were taken");
    let mut used = after;
    if settings.repeat_penalty == 1.0 {
        assert_eq!(again.sample(&mut used, &mut order, &text), Ok(token));
    }
    Outcome::accepted(&token)
}

fn penalised(settings: &Settings, mut logits: Vec<f32>, text: &[u32]) -> Vec<f32> {
    if settings.repeat_penalty == 1.0 {
        return logits;
    }
    let newest = text.len().saturating_sub(settings.repeat_last_n as usize);
    let mut seen: Vec<u32> = text[newest..].to_vec();
    seen.sort_unstable();
    seen.dedup();
    for token in seen {
        let logit = &mut logits[token as usize];
        let changed = if *logit > 0.0 { *logit / settings.repeat_penalty } else { *logit * settings.repeat_penalty };
        *logit = changed.clamp(f32::MIN, f32::MAX);
    }
    logits
}

fn check(settings: &Settings, logits: &[f32], token: usize) {
    let (likeliest, highest) = argmax(logits).expect("a token was chosen");
    if token == likeliest as usize {
        return;
    }
    assert!(settings.temperature > 0.0, "token {token} is not the likeliest, {likeliest}");
    let temperature = f64::from(settings.temperature);
    let weight = |logit: f32| ((f64::from(logit) - f64::from(highest)) / temperature).exp();
    let weights: Vec<f64> = logits.iter().copied().map(weight).collect();
    let own = weights[token];
    let above = || weights.iter().filter(|weight| **weight > own * (1.0 + ROUNDING) + f64::from(f32::MIN_POSITIVE));
    if settings.top_k > 0 {
        assert!(above().count() < settings.top_k as usize, "token {token} is not among the {} likeliest", settings.top_k);
    }
    assert!(own * (1.0 + ROUNDING) + f64::from(f32::MIN_POSITIVE) >= f64::from(settings.min_p), "token {token} is below min_p");
    if settings.top_p < 1.0 && settings.top_k == 0 {
        let share = above().sum::<f64>() / weights.iter().sum::<f64>();
        assert!(share <= f64::from(settings.top_p) + ROUNDING, "those before token {token} have {share} of all");
    }
}

//! The divergence of logits: what a narrower element type changes, summed up over positions. Every report of fidelity counts with this module, so that figures can be compared.
//!
//! All sums are in f64 with exp and log of our own or `libm`'s, in the order of the positions: the same logits give the same figures on every machine.

use super::normaliser::log_normaliser;

/// Collects positions; [`Meter::divergence`] gives the figures.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Meter {
    positions: u64,
    logits: u64,
    kl: f64,
    max_delta: f64,
    delta: f64,
    agreed: u64,
    scored: u64,
    surprise_reference: f64,
    surprise: f64,
}

/// How far logits are from those of a reference.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Divergence {
    /// Positions that were compared.
    pub positions: u64,
    /// The Kullback-Leibler divergence of the distribution from the reference's, mean over positions, in nats; at least 0.
    pub kl: f64,
    /// The largest absolute difference of a logit.
    pub max_abs_delta: f64,
    /// The mean absolute difference of all logits.
    pub mean_abs_delta: f64,
    /// The part of positions at which both have the same best token (the lowest id among equals).
    pub top1: f64,
    /// e to the mean surprise of the reference at the text's next tokens; `None` where no next token was given.
    pub reference_perplexity: Option<f64>,
    /// The same for the logits that were compared.
    pub perplexity: Option<f64>,
}

impl Meter {
    /// Nothing collected.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a position: the logits of the reference, those to compare with them, and the token that follows in the text, if there is one. Where the two are not of one length, or are empty,
    /// nothing is added and the answer is false: they are not logits of one vocabulary.
    #[must_use]
    pub fn add(&mut self, reference: &[f32], logits: &[f32], next: Option<u32>) -> bool {
        if reference.len() != logits.len() || reference.is_empty() {
            return false;
        }
        let (base, other) = (log_normaliser(reference, 1), log_normaliser(logits, 1));
        let (mut kl, mut delta) = (0.0, 0.0);
        for (a, b) in reference.iter().zip(logits) {
            let (a, b) = (f64::from(*a), f64::from(*b));
            let (p, q) = (a - base, b - other);
            kl += libm::exp(p) * (p - q);
            let difference = (a - b).abs();
            delta += difference;
            self.max_delta = self.max_delta.max(difference);
        }
        self.positions += 1;
        self.logits += reference.len() as u64;
        // Never below 0 but for rounding.
        self.kl += kl.max(0.0);
        self.delta += delta;
        self.agreed += u64::from(best(reference) == best(logits));
        let chosen = next.and_then(|next| Some((*reference.get(next as usize)?, *logits.get(next as usize)?)));
        if let Some((a, b)) = chosen {
            self.scored += 1;
            self.surprise_reference += base - f64::from(a);
            self.surprise += other - f64::from(b);
        }
        true
    }

    /// The figures; `None` before the first position.
    pub fn divergence(&self) -> Option<Divergence> {
        if self.positions == 0 {
            return None;
        }
        let mean = |sum: f64, count: u64| sum / count as f64;
        let perplexity = |surprise| (self.scored > 0).then(|| libm::exp(mean(surprise, self.scored)));
        Some(Divergence {
            positions: self.positions,
            kl: mean(self.kl, self.positions),
            max_abs_delta: self.max_delta,
            mean_abs_delta: mean(self.delta, self.logits),
            top1: mean(self.agreed as f64, self.positions),
            reference_perplexity: perplexity(self.surprise_reference),
            perplexity: perplexity(self.surprise),
        })
    }
}

/// The best token, the lowest id among equals: what greedy decoding takes.
pub fn best(logits: &[f32]) -> Option<u32> {
    let mut best = None;
    for (token, logit) in (0u32..).zip(logits) {
        if best.is_none_or(|(_, most)| *logit > most) {
            best = Some((token, *logit));
        }
    }
    best.map(|(token, _)| token)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-12
    }

    /// Logits that are logs of probabilities, up to a constant.
    fn logs(probabilities: &[f64], shift: f64) -> Vec<f32> {
        probabilities.iter().map(|p| (p.ln() + shift) as f32).collect()
    }

    #[test]
    fn equal_logits_differ_in_nothing() {
        let mut meter = Meter::new();
        assert_eq!(meter.divergence(), None);
        let logits = [1.0, -2.0, 3.5, 3.5];
        assert!(meter.add(&logits, &logits, Some(2)));
        let found = meter.divergence().unwrap();
        assert_eq!((found.positions, found.kl, found.max_abs_delta, found.mean_abs_delta, found.top1), (1, 0.0, 0.0, 0.0, 1.0));
        assert_eq!(found.perplexity, found.reference_perplexity);
        assert!(found.perplexity.is_some_and(|perplexity| perplexity > 2.0 && perplexity < 2.1));
    }

    #[test]
    fn figures_are_those_of_the_definitions() {
        let (p, q) = ([0.5, 0.25, 0.25], [0.25, 0.5, 0.25]);
        let (reference, logits) = (logs(&p, 0.0), logs(&q, 0.0));
        let mut meter = Meter::new();
        assert!(meter.add(&reference, &logits, Some(0)));
        assert!(meter.add(&reference, &reference, None));
        let found = meter.divergence().unwrap();
        // 0.5 ln 2 + 0.25 ln 0.5, over two positions.
        assert!((found.kl - 0.25 * 2f64.ln() / 2.0).abs() < 1e-7, "{}", found.kl);
        assert!((found.max_abs_delta - 2f64.ln()).abs() < 1e-6);
        assert!((found.mean_abs_delta - 2.0 * 2f64.ln() / 6.0).abs() < 1e-6);
        assert!(near(found.top1, 0.5));
        assert!((found.reference_perplexity.unwrap() - 2.0).abs() < 1e-6);
        assert!((found.perplexity.unwrap() - 4.0).abs() < 1e-6);
    }

    #[test]
    fn a_constant_on_all_logits_changes_no_probability() {
        let mut meter = Meter::new();
        assert!(meter.add(&logs(&[0.7, 0.3], 0.0), &logs(&[0.7, 0.3], 90.0), Some(1)));
        let found = meter.divergence().unwrap();
        assert!(found.kl < 1e-10 && near(found.top1, 1.0) && found.max_abs_delta > 89.9);
        assert!((found.perplexity.unwrap() - found.reference_perplexity.unwrap()).abs() < 1e-4);
    }

    #[test]
    fn logits_of_two_vocabularies_are_not_compared() {
        let mut meter = Meter::new();
        assert!(!meter.add(&[1.0, 2.0], &[1.0], None));
        assert!(!meter.add(&[], &[], None));
        assert_eq!(meter.divergence(), None);
        assert!(meter.add(&[1.0, 2.0], &[1.0, 2.0], Some(9)));
        assert_eq!(meter.divergence().unwrap().perplexity, None);
    }

    #[test]
    fn the_lowest_of_the_best_tokens_is_taken() {
        assert_eq!(best(&[1.0, 3.0, 3.0]), Some(1));
        assert_eq!(best(&[]), None);
    }
}

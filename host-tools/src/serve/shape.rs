//! What happens to logits before the runtime's sampler sees them.

use std::collections::BTreeMap;

/// Changes of logits that the runtime's sampler does not make.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Shaping {
    /// Added to these tokens' logits.
    pub(super) bias: Vec<(u32, f32)>,
    /// Taken off a token's logit for every time that it was generated.
    pub(super) frequency: f32,
    /// Taken off a token's logit if it was generated at all.
    pub(super) presence: f32,
}

impl Shaping {
    /// Applies it; `generated` says how often each token was. Logits stay finite.
    pub(super) fn apply(&self, logits: &mut [f32], generated: &BTreeMap<u32, u32>) {
        let mut add = |token: u32, change: f32| {
            if let Some(logit) = logits.get_mut(token as usize) {
                *logit = (*logit + change).clamp(f32::MIN, f32::MAX);
            }
        };
        for (token, bias) in &self.bias {
            add(*token, *bias);
        }
        if self.frequency != 0.0 || self.presence != 0.0 {
            for (token, times) in generated {
                add(*token, -(*times as f32 * self.frequency) - self.presence);
            }
        }
    }
}

/// Takes away the tokens that `allowed` says no to, and returns the likeliest of the others, the lowest where several are; `None` if there are none.
pub(super) fn mask(logits: &mut [f32], allowed: impl Fn(u32) -> bool) -> Option<u32> {
    let mut best: Option<(u32, f32)> = None;
    for (token, logit) in (0..).zip(logits) {
        if !allowed(token) {
            *logit = f32::MIN;
        } else if best.is_none_or(|(_, highest)| *logit > highest) {
            best = Some((token, *logit));
        }
    }
    best.map(|(token, _)| token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn penalties_count_what_was_generated_and_biases_are_added() {
        let shaping = Shaping { bias: vec![(0, 5.0), (9, 1.0)], frequency: 0.5, presence: 0.25 };
        let mut logits = [1.0, 2.0, 3.0];
        shaping.apply(&mut logits, &BTreeMap::from([(1, 1), (2, 4)]));
        assert_eq!(logits, [6.0, 1.25, 0.75]);
        let mut logits = [f32::MAX, f32::MIN];
        Shaping { bias: vec![(0, f32::MAX), (1, f32::MIN)], ..Shaping::default() }.apply(&mut logits, &BTreeMap::new());
        assert_eq!(logits, [f32::MAX, f32::MIN]);
    }

    #[test]
    fn what_is_masked_cannot_be_the_likeliest() {
        let mut logits = [5.0, 1.0, 2.0, 2.0];
        assert_eq!(mask(&mut logits, |token| token > 0), Some(2));
        assert_eq!(logits, [f32::MIN, 1.0, 2.0, 2.0]);
        assert_eq!(mask(&mut logits, |_| false), None);
    }
}

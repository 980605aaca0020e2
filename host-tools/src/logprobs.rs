//! The probabilities that are told beside a token. Called by `dmexp generate --logprobs` and by the server.

use crate::compare::log_normaliser;

/// Natural logarithms of probabilities by `logits`: that of `chosen`, and those of the `count` likeliest tokens, the likeliest first (the lowest token first where they are equal).
pub fn logprobs(logits: &[f32], chosen: u32, count: usize) -> (f64, Vec<(u32, f64)>) {
    let log_sum = log_normaliser(logits, 1);
    let logprob = |token: u32| logits.get(token as usize).map_or(f64::NEG_INFINITY, |logit| f64::from(*logit) - log_sum);
    let mut order: Vec<u32> = (0..logits.len() as u32).collect();
    let by_logit = |a: &u32, b: &u32| logits[*b as usize].total_cmp(&logits[*a as usize]).then(a.cmp(b));
    let count = count.min(order.len());
    if count > 0 && count < order.len() {
        order.select_nth_unstable_by(count - 1, by_logit);
    }
    order.truncate(count);
    order.sort_unstable_by(by_logit);
    (logprob(chosen), order.into_iter().map(|token| (token, logprob(token))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logprobs_are_those_of_a_softmax_the_likeliest_first() {
        let logits = [1.0f32, 3.0, 3.0, -2.0];
        let sum: f64 = logits.iter().map(|logit| f64::from(*logit).exp()).sum();
        let (chosen, likeliest) = logprobs(&logits, 3, 3);
        assert!((chosen - (-2.0 - sum.ln())).abs() < 1e-12);
        assert_eq!(likeliest.iter().map(|(token, _)| *token).collect::<Vec<_>>(), [1, 2, 0]);
        assert!((likeliest[0].1 - (3.0 - sum.ln())).abs() < 1e-12);
        assert_eq!(logprobs(&logits, 0, 0).1, []);
        assert_eq!(logprobs(&logits, 0, 9).1.len(), 4);
    }
}

//! Text from a trained model, as llama2.c samples it: what the binary prints while it trains and what `models/README.md` shows.

use crate::reference::Reader;
use crate::rng::Rng;
use crate::shape::Shape;

/// How to sample.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// 0 takes the most probable id.
    pub temperature: f64,
    /// Smallest share of probability that the candidates must cover.
    pub top_p: f64,
    /// Seed of the draws.
    pub seed: u64,
}

/// Continues `prompt` (ids, BOS first) until the context is full or the model ends the text with `bos`.
pub fn continue_text(shape: Shape, flat: &[f32], prompt: &[u16], bos: u16, settings: Settings) -> Vec<u16> {
    let mut reader = Reader::new(shape, flat);
    let mut rng = Rng::new(settings.seed);
    let mut ids = prompt.to_vec();
    for position in 0..shape.seq {
        let logits = reader.step(ids[position]);
        if position + 1 < ids.len() {
            continue;
        }
        let next = choose(&logits, settings, &mut rng);
        if next == bos {
            break;
        }
        ids.push(next);
    }
    ids
}

fn choose(logits: &[f64], settings: Settings, rng: &mut Rng) -> u16 {
    let mut order: Vec<usize> = (0..logits.len()).collect();
    order.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]));
    if settings.temperature <= 0.0 {
        return order[0] as u16;
    }
    let top = logits[order[0]];
    let weights: Vec<f64> = order.iter().map(|&i| ((logits[i] - top) / settings.temperature).exp()).collect();
    let total: f64 = weights.iter().sum();
    let mut kept = 0.0;
    let count = weights.iter().take_while(|&&w| {
        let more = kept <= settings.top_p * total;
        kept += if more { w } else { 0.0 };
        more
    });
    let count = count.count();
    let mut draw = f64::from(rng.unit()) * kept;
    for (&id, weight) in order.iter().zip(&weights).take(count) {
        draw -= weight;
        if draw < 0.0 {
            return id as u16;
        }
    }
    order[count - 1] as u16
}

#[cfg(test)]
mod tests {
    use super::{Settings, choose};
    use crate::rng::Rng;

    #[test]
    fn greedy_takes_the_best_and_top_p_leaves_the_tail_out() {
        let logits = [0.0, 3.0, 2.0, -1.0];
        let settings = Settings { temperature: 0.0, top_p: 0.9, seed: 0 };
        assert_eq!(choose(&logits, settings, &mut Rng::new(0)), 1);
        let settings = Settings { temperature: 1.0, ..settings };
        let mut counts = [0_u32; 4];
        let mut rng = Rng::new(1);
        for _ in 0..2000 {
            counts[choose(&logits, settings, &mut rng) as usize] += 1;
        }
        // 3 and 2 cover 93% of the whole; between them the odds are e to 1.
        assert_eq!((counts[0], counts[3]), (0, 0));
        assert!((1380..1540).contains(&counts[1]), "{counts:?}");
    }
}

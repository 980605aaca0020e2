//! Tokens from the likeliest down, only as far as they are asked for: a heap in the caller's scratch.

/// The tokens of at least some probability, likeliest first, lowest token first among equals.
pub(super) struct Ranking<'a> {
    probabilities: &'a [f32],
    /// A heap of `left` tokens; behind it, from the end backwards, those that were taken out: the likeliest is the last.
    order: &'a mut [u32],
    left: usize,
}

impl<'a> Ranking<'a> {
    /// Ranks the tokens whose probability is at least `cutoff`. `order` has a place for each token.
    #[inline(never)]
    pub(super) fn new(probabilities: &'a [f32], order: &'a mut [u32], cutoff: f32) -> Self {
        let mut left = 0;
        for (token, &probability) in (0..).zip(probabilities) {
            if probability >= cutoff
                && let Some(place) = order.get_mut(left)
            {
                *place = token;
                left += 1;
            }
        }
        let order = order.get_mut(..left).unwrap_or(&mut []);
        let mut ranking = Self { probabilities, order, left };
        for place in (0..left / 2).rev() {
            if let Some(&token) = ranking.order.get(place) {
                ranking.sink(place, token);
            }
        }
        ranking
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.order.len()
    }

    /// The `nth` likeliest token, from 0, and its probability. Those before it must have been asked for.
    pub(super) fn nth(&mut self, nth: usize) -> Option<(u32, f32)> {
        let place = self.order.len().checked_sub(nth)?.checked_sub(1)?;
        if place < self.left {
            let first = *self.order.first()?;
            let last = *self.order.get(self.left.checked_sub(1)?)?;
            self.left -= 1;
            self.sink(0, last);
            *self.order.get_mut(self.left)? = first;
        }
        let token = *self.order.get(place)?;
        Some((token, self.probability(token)))
    }

    fn probability(&self, token: u32) -> f32 {
        self.probabilities.get(token as usize).copied().unwrap_or(0.0)
    }

    fn before(&self, token: u32, other: u32) -> bool {
        let (p, q) = (self.probability(token), self.probability(other));
        p > q || (p == q && token < other)
    }

    /// Puts `token` at `place` of the heap, or below.
    fn sink(&mut self, mut place: usize, token: u32) {
        loop {
            let mut child = 2 * place + 1;
            let Some(heap) = self.order.get(..self.left) else { break };
            let Some(&(mut below)) = heap.get(child) else { break };
            if let Some(&right) = heap.get(child + 1)
                && self.before(right, below)
            {
                (child, below) = (child + 1, right);
            }
            if !self.before(below, token) {
                break;
            }
            if let Some(slot) = self.order.get_mut(place) {
                *slot = below;
            }
            place = child;
        }
        if let Some(slot) = self.order.get_mut(place) {
            *slot = token;
        }
    }
}

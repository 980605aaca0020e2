//! Attention over many positions: how far launches reach, and the three kernels that share it. Their blocks and tiles are those of `cuda/long_attention.h`.

use super::{Placed, Plan};
use crate::launch::{Arg, Kernel, Launch};

/// Positions up to which one block of threads a head attends: three launches more would cost more than they save.
const ONE_BLOCK: u32 = 512;
/// Positions of a block of scores.
pub(super) const SCORED: u32 = 256;
/// Elements of a head that a block of weighted sums has.
const SLICE: u32 = 8;
/// Shared memory of a block of weights, and of one of weighted sums: two tiles each.
const WEIGHTS_BYTES: u32 = 2 * 4 * 2048;
const MIX_BYTES: u32 = 2 * 4 * 448 * SLICE;

impl Plan {
    /// Positions that one at `position` attends to.
    pub(super) fn seen(&self, position: u32) -> u32 {
        match self.config.sliding_window {
            0 => position.saturating_add(1),
            window => window.min(position.saturating_add(1)),
        }
    }

    /// Whether some positions attend to more than one block of threads is for.
    pub(super) fn is_long(&self) -> bool {
        self.seen(self.context - 1) > ONE_BLOCK
    }

    /// Over how many positions attention is launched for one at `position`: 0 where one block of threads attends for a head, else one of few sizes, so that a few recorded graphs are enough for all positions.
    pub fn reach(&self, position: u32) -> u32 {
        let seen = self.seen(position);
        if seen <= ONE_BLOCK {
            return 0;
        }
        let most = self.seen(self.context - 1);
        seen.checked_next_power_of_two().map_or(most, |reach| reach.min(most))
    }

    /// All that [`Plan::reach`] may be, in rising order.
    pub fn reaches(&self) -> Vec<u32> {
        let mut all = vec![0];
        let mut next = ONE_BLOCK + 1;
        while self.is_long() && next <= self.seen(self.context - 1) {
            let reach = self.reach(next - 1);
            all.push(reach);
            next = reach.saturating_add(1);
        }
        all
    }

    pub(super) fn check_reach(&self, reach: u32) {
        assert!(self.reaches().contains(&reach), "a reach of the plan");
    }
}

impl Placed<'_> {
    /// Attention of `count` columns whose keys and values are stored, to `reach` positions or fewer.
    pub(super) fn attend_long(&self, layer: u32, count: u32, reach: u32, rows: Arg) -> [Launch; 3] {
        let (work, c) = (&self.plan.work, &self.plan.config);
        let optional = |piece: Option<usize>| Arg::Pointer(piece.map_or(0, |piece| self.at(piece)));
        let [keys, values, key_scales, value_scales] = self.cache(layer);
        let (scores, largest, worths) = (self.scores(), optional(work.largest), optional(work.worths));
        let last = [Arg::Heads(self.heads()), self.pointer(work.state), rows];
        let args = |own: &[Arg]| own.iter().chain(&last).copied().collect();
        [
            Launch {
                kernel: Kernel::AttendScores,
                grid: [reach.div_ceil(SCORED), c.n_heads, count],
                block: 256,
                shared: 8 * c.head_dim,
                args: args(&[scores, largest, self.pointer(work.qkv), keys, key_scales]),
            },
            Launch {
                kernel: Kernel::AttendWeights,
                grid: [c.n_heads, count, 1],
                block: 512,
                shared: WEIGHTS_BYTES,
                args: args(&[scores, worths, largest, value_scales]),
            },
            Launch {
                kernel: Kernel::AttendMix,
                grid: [c.head_dim.div_ceil(SLICE), c.n_heads, count],
                block: 512,
                shared: MIX_BYTES,
                args: args(&[self.pointer(work.attended), scores, worths, values]),
            },
        ]
    }
}

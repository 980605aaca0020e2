//! How fast a model can be on a board, from measured instructions and from what the flash gives.

use super::{Facts, Measured};
use dmexp_format::KvDType;
use dmexp_format::host::boards::Board;

/// Cycles an instruction takes, at least and at most, where no manual has a table of them.
const CYCLES_PER_INSTRUCTION: (f64, f64) = (1.0, 2.0);

/// What takes most of a token's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// The instructions.
    Core,
    /// Reading the weights.
    Flash,
}

/// An estimate for the beginning of a text; attention adds to every later position.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Speed {
    /// Tokens a second, at least and at most.
    pub tokens_per_s: (f64, f64),
    /// Which is the larger part.
    pub limit: Limit,
    /// Executed instructions a token, from the counts of the story model's steps.
    pub instructions: f64,
    /// Cycles a token, at least and at most.
    pub cycles: (f64, f64),
    /// Whether they are by the table of the core's manual; else 1 to 2 an instruction are assumed.
    pub by_table: bool,
    /// Seconds to read a token's weights, where the board's flash is known.
    pub flash_seconds: Option<f64>,
}

impl Speed {
    /// The estimate; `None` where nothing was measured for the model's types, or the board has no clock.
    pub(super) fn estimate(facts: &Facts, board: &Board, kv: KvDType, measured: &Measured) -> Option<Self> {
        let (mut instructions, mut low, mut high, mut by_table) = (0.0, 0.0, 0.0, true);
        for (dtype, count, _) in &facts.matrices {
            let (cost, count) = (measured.cost(board.core, *dtype, kv)?, *count as f64);
            instructions += cost.instructions * count;
            let (least, most) = match cost.cycles {
                Some(cycles) => (cycles, cycles),
                None => (cost.instructions * CYCLES_PER_INSTRUCTION.0, cost.instructions * CYCLES_PER_INSTRUCTION.1),
            };
            by_table &= cost.cycles.is_some();
            (low, high) = (low + least * count, high + most * count);
        }
        if board.clock == 0 || instructions == 0.0 {
            return None;
        }
        let flash_seconds = (board.bandwidth > 0).then(|| facts.bytes_per_token() as f64 / board.bandwidth as f64);
        let (flash, clock) = (flash_seconds.unwrap_or(0.0), board.clock as f64);
        // At best reading hides behind computing, at worst the core waits for every byte.
        let (best, worst) = ((low / clock).max(flash), high / clock + flash);
        let limit = if flash > f64::midpoint(low, high) / clock { Limit::Flash } else { Limit::Core };
        Some(Self { tokens_per_s: (1.0 / worst, 1.0 / best), limit, instructions, cycles: (low, high), by_table, flash_seconds })
    }
}

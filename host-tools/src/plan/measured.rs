//! What was measured of our own firmware, core by core: a table that `cargo xtask size` writes and checks.

use dmexp_format::host::boards::Core;
use dmexp_format::{DType, KvDType};

/// The set of code that runs models with matrices in every type.
pub(super) const EVERY_TYPE: &str = "full";

const TABLE: &str = include_str!("measured.txt");

/// The table: lines of `code BOARD SET BYTES` and `cost BOARD DTYPE KV INSTRUCTIONS CYCLES`, the latter a weight, with `-` where a core has no table of cycles.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    code: Vec<(&'static str, &'static str, u64)>,
    costs: Vec<Cost>,
}

/// What one weight costs in the steps of the story model, all else of a step included.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cost {
    board: &'static str,
    dtype: &'static str,
    kv: &'static str,
    /// Executed instructions.
    pub(super) instructions: f64,
    /// Cycles by the table of the core's manual.
    pub(super) cycles: Option<f64>,
}

impl Measured {
    /// The table that is built in. Lines that are not understood are a fault of this crate, which its tests find.
    pub fn table() -> Self {
        let mut measured = Self::default();
        for line in TABLE.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words.as_slice() {
                ["code", board, set, bytes] => measured.code.extend(bytes.parse().ok().map(|bytes| (*board, *set, bytes))),
                ["cost", board, dtype, kv, instructions, cycles] => {
                    let cost = |instructions| Cost { board, dtype, kv, instructions, cycles: cycles.parse().ok() };
                    measured.costs.extend(instructions.parse().ok().map(cost));
                }
                _ => {}
            }
        }
        measured
    }

    /// Bytes of code for a core.
    pub(super) fn code(&self, core: Core, set: &str) -> Option<u64> {
        self.code.iter().find(|(board, known, _)| *board == core.measured_on() && *known == set).map(|(.., bytes)| *bytes)
    }

    /// The cost of a weight on a core: with keys and values in `kv` where that was measured, else in another type.
    pub(super) fn cost(&self, core: Core, dtype: DType, kv: KvDType) -> Option<Cost> {
        let of = || self.costs.iter().filter(|cost| cost.board == core.measured_on() && cost.dtype == dtype.name());
        of().find(|cost| cost.kv == kv.name()).or_else(|| of().next()).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dmexp_format::host::boards::BOARDS;

    #[test]
    fn every_line_is_understood_and_every_core_has_code_and_costs() {
        let lines = TABLE.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).count();
        let measured = Measured::table();
        assert_eq!(measured.code.len() + measured.costs.len(), lines);
        for board in BOARDS {
            let cost = measured.cost(board.core, DType::Q8, KvDType::F16).unwrap();
            assert!(cost.instructions > 1.0 && cost.cycles.is_none_or(|cycles| cycles > cost.instructions), "{cost:?}");
            for set in ["q8", EVERY_TYPE] {
                assert!(measured.code(board.core, set).is_some_and(|bytes| bytes > 10_000), "{} {set}", board.name);
            }
        }
    }
}

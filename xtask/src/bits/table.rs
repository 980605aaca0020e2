//! `cargo xtask bits --write`: what was equal, as the page docs/bits.md.

use super::Case;
use crate::board::Board;
use crate::failure::{Failure, Outcome};
use crate::paths;
use std::fmt::Write;

const PAGE: &str = "docs/bits.md";

const HEAD: &str = "\
# The same bits

Logits of the greedy text of each model, computed by firmware on the emulated boards and by `dmexp logits` on the host, compared bit by bit. A number is how many positions were compared and
found equal, each with all its logits; a dash, that the board has no room for the model, or that this combination is not among those compared there.

Written by `cargo xtask bits --write`, which fails when a bit differs; `cargo xtask test` compares the same rows. The boards' cores: see [boards/README.md](../boards/README.md).
";

/// One row that was equal: what was compared, on which board.
pub(crate) struct Equal {
    board: &'static str,
    combination: (&'static str, &'static str, &'static str),
    positions: usize,
}

impl Equal {
    /// The row of `case`; none where the file lies at an odd address, or with matrices in RAM: the combination is in the table already.
    pub(super) fn of(board: &Board, case: &Case) -> Option<Self> {
        (case.shift == 0).then_some(Self {
            board: board.name,
            combination: (case.source.name, case.dtype, case.kv),
            positions: case.positions,
        })
    }
}

/// Writes the page.
pub(super) fn write(rows: &[Equal]) -> Outcome {
    let path = paths::root().join(PAGE);
    std::fs::write(&path, page(rows)).map_err(|error| Failure::cannot_run(format!("{}: {error}", path.display())))?;
    println!("written: {PAGE}");
    Ok(())
}

fn page(rows: &[Equal]) -> String {
    let (mut boards, mut combinations) = (Vec::new(), Vec::new());
    for row in rows {
        if !boards.contains(&row.board) {
            boards.push(row.board);
        }
        if !combinations.contains(&row.combination) {
            combinations.push(row.combination);
        }
    }
    let mut page =
        format!("{HEAD}\n| model | weights | keys and values | {} |\n|---|---|---|{}\n", boards.join(" | "), "---:|".repeat(boards.len()));
    for combination in combinations {
        let (model, weights, kv) = combination;
        _ = write!(page, "| {model} | {weights} | {kv} |");
        for board in &boards {
            match rows.iter().find(|row| row.board == *board && row.combination == combination) {
                Some(row) => _ = write!(page, " {} |", row.positions),
                None => page += " – |",
            }
        }
        page.push('\n');
    }
    page
}

#[cfg(test)]
mod tests {
    use super::{Equal, page};

    #[test]
    fn every_combination_has_one_row_and_every_board_a_column() {
        let row = |board, combination, positions| Equal { board, combination, positions };
        let rows = [row("a", ("tiny", "q8", "f16"), 64), row("b", ("tiny", "q8", "f16"), 4), row("b", ("story", "f32", "f32"), 32)];
        let page = page(&rows);
        assert!(page.contains("| model | weights | keys and values | a | b |\n|---|---|---|---:|---:|\n"));
        assert!(page.ends_with("| tiny | q8 | f16 | 64 | 4 |\n| story | f32 | f32 | – | 32 |\n"));
    }
}

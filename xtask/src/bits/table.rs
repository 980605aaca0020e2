//! `cargo xtask bits --write`: what was equal, as the page docs/bits.md.

use super::Case;
use crate::board::Board;
use crate::failure::{Failure, Outcome};
use crate::paths;
use std::fmt::Write;

const PAGE: &str = "docs/bits.md";

const HEAD: &str = "\
# The same bits

For whom: you want to know on which cores, for which models and types, it was shown that a chip computes what a host computes.

Firmware on the emulated boards computes the logits of the greedy text of each model, `dmexp logits` computes them on the host, and all are compared bit by bit. A number is how many positions were
compared and found equal, each with all its logits. A dash: the board has no room for the model, or this combination is not among those compared there.

Written by `cargo xtask bits --write`, which fails when a bit differs; `cargo xtask test` compares the same rows. The boards' cores: see [boards/README.md](../boards/README.md).
";

/// What comes before the table of small networks.
const NETWORKS: &str = "\
## Small networks

Golden vectors that the host computed, replayed by firmware: a number is how many samples gave the same bits in every element of every output. `cargo xtask test` replays the first three, `cargo xtask bits` RustyML's too.
";

/// One row that was equal: what was compared, on which board.
pub(crate) struct Equal {
    board: &'static str,
    combination: Combination,
    /// Positions, or samples of a small network.
    count: usize,
}

/// Model, type of weights, and the type of keys and values where there are some.
type Combination = (&'static str, &'static str, Option<&'static str>);

impl Equal {
    /// The row of `case`; none where the file lies at an odd address, or with matrices in RAM: the combination is in the table already.
    pub(super) fn of(board: &Board, case: &Case) -> Option<Self> {
        (case.shift == 0).then_some(Self {
            board: board.name,
            combination: (case.source.name, case.dtype, Some(case.kv)),
            count: case.positions,
        })
    }

    /// The row of a small network whose samples were replayed.
    pub(crate) fn network(board: &Board, name: &'static str, dtype: &'static str, samples: usize) -> Self {
        Self { board: board.name, combination: (name, dtype, None), count: samples }
    }
}

/// Writes the page; with `networks` only what it says of those is new.
pub(super) fn write(rows: &[Equal], networks: bool) -> Outcome {
    let path = paths::root().join(PAGE);
    let cannot = |error| Failure::cannot_run(format!("{}: {error}", path.display()));
    let old = if networks { std::fs::read_to_string(&path).map_err(cannot)? } else { String::new() };
    let (decoders, _) = old.split_once(NETWORKS).unwrap_or((&old, ""));
    let page = if networks { format!("{}\n{}", decoders.trim_end(), of_networks(rows)) } else { page(rows) };
    std::fs::write(&path, page).map_err(cannot)?;
    println!("written: {PAGE}");
    Ok(())
}

fn page(rows: &[Equal]) -> String {
    let (networks, decoders): (Vec<_>, Vec<_>) = rows.iter().partition(|row| row.combination.2.is_none());
    let mut page = format!("{HEAD}\n{}", table(&decoders, &["model", "weights", "keys and values"]));
    if !networks.is_empty() {
        page += &of_networks(rows);
    }
    page
}

/// The part about small networks.
fn of_networks(rows: &[Equal]) -> String {
    let networks: Vec<_> = rows.iter().filter(|row| row.combination.2.is_none()).collect();
    format!("\n{NETWORKS}\n{}", table(&networks, &["network", "weights"]))
}

fn table(rows: &[&Equal], titles: &[&str]) -> String {
    let (mut boards, mut combinations) = (Vec::new(), Vec::new());
    for row in rows {
        if !boards.contains(&row.board) {
            boards.push(row.board);
        }
        if !combinations.contains(&row.combination) {
            combinations.push(row.combination);
        }
    }
    let (lines, numbers) = ("---|".repeat(titles.len()), "---:|".repeat(boards.len()));
    let mut page = format!("| {} | {} |\n|{lines}{numbers}\n", titles.join(" | "), boards.join(" | "));
    for combination in combinations {
        let (model, weights, kv) = combination;
        _ = write!(page, "| {model} | {weights} |");
        if let Some(kv) = kv {
            _ = write!(page, " {kv} |");
        }
        for board in &boards {
            match rows.iter().find(|row| row.board == *board && row.combination == combination) {
                Some(row) => _ = write!(page, " {} |", row.count),
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
        let row = |board, combination, count| Equal { board, combination, count };
        let rows = [
            row("a", ("tiny", "q8", Some("f16")), 64),
            row("c", ("tones", "q8", None), 8),
            row("b", ("tiny", "q8", Some("f16")), 4),
            row("b", ("story", "f32", Some("f32")), 32),
        ];
        let page = page(&rows);
        assert!(page.contains("| model | weights | keys and values | a | b |\n|---|---|---|---:|---:|\n"));
        assert!(page.contains("| tiny | q8 | f16 | 64 | 4 |\n| story | f32 | f32 | – | 32 |\n\n## Small networks\n\n"));
        assert!(page.ends_with("\n\n| network | weights | c |\n|---|---|---:|\n| tones | q8 | 8 |\n"));
    }
}

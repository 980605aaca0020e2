//! The vectors of `docs/format/arithmetic.md`, which others build on: the runtime gives the bits that the page says.

use dmexp::ops::math::{exp, sigmoid, silu, sin_cos};
use dmexp::ops::sum::{dot8, sum8};

const PAGE: &str = include_str!("../../docs/format/arithmetic.md");

/// The rows of the table with this head, cell by cell.
fn rows(head: &str) -> Vec<Vec<&'static str>> {
    let (_, below) = PAGE.split_once(head).expect("the table is on the page");
    let lines = below.lines().skip(2).take_while(|line| line.starts_with('|'));
    lines.map(|line| line.trim_matches('|').split('|').map(str::trim).collect()).collect()
}

/// Compares a cell with what was computed; an empty one says nothing. Returns how many bits were compared.
fn compare(cell: &str, computed: f32, what: &str) -> usize {
    if cell.is_empty() {
        return 0;
    }
    assert_eq!(cell, format!("{:08x}", computed.to_bits()), "{what}");
    1
}

#[test]
fn sums_have_the_bits_of_the_page() {
    let rows = rows("| n | sum8(w) | dot8(w, x) | one running sum of w | of w times x |");
    assert!(rows.len() >= 5);
    for row in rows {
        let n: usize = row[0].parse().unwrap();
        let w: Vec<f32> = (0..n).map(|i| 1.0 / (i + 1) as f32).collect();
        let x: Vec<f32> = (0..n).map(|i| (i % 5) as f32 - 2.0).collect();
        let products: Vec<f32> = w.iter().zip(&x).map(|(w, x)| w * x).collect();
        let running = |terms: &[f32]| terms.iter().fold(0.0f32, |sum, term| sum + term);
        for (cell, other, sum, one_by_one) in [(row[1], row[3], sum8(&w), running(&w)), (row[2], row[4], dot8(&w, &x), running(&products))]
        {
            assert_eq!(compare(cell, sum, "the sum"), 1);
            let said = if other == "the same" { cell } else { other };
            assert_eq!(compare(said, one_by_one, "one running sum"), 1, "n = {n}");
        }
    }
}

#[test]
fn functions_have_the_bits_of_the_page() {
    let mut compared = 0;
    for row in rows("| argument | exp | sigmoid | silu | sine | cosine |") {
        let x: f32 = row[0].parse().unwrap();
        let (sine, cosine) = sin_cos(x);
        for (cell, computed) in row[1..].iter().zip([exp(x), sigmoid(x), silu(x), sine, cosine]) {
            compared += compare(cell, computed, row[0]);
        }
    }
    assert!(compared >= 12, "{compared}");
}

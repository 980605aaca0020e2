//! The plots of documents, docs/figures/NAME.svg.

use super::chart::{Axis, Series, bars, scatter};
use super::record::Figures;

/// Types of weights, from large to small.
const TYPES: [&str; 5] = ["f32", "f16", "bf16", "q8", "q4"];

/// Every plot for which there are figures, with the name of its file.
pub(super) fn all(figures: &Figures) -> Vec<(String, String)> {
    let mut plots = vec![
        ("quality.svg".to_owned(), quality(figures)),
        ("speed.svg".to_owned(), speed(figures)),
        ("boards.svg".to_owned(), boards(figures)),
    ];
    for threads in [1, 2] {
        plots.push((format!("peers-t{threads}.svg"), peers(figures, threads)));
    }
    plots
}

fn value(figures: &Figures, id: &str) -> Option<f64> {
    figures.row(id).map(|row| row.value)
}

/// Models with what they are compared on.
const MODELS: [&str; 4] = ["story/own", "tiny/own", "stories260K/own", "smollm2/shakespeare"];

/// The room of a type against how far its logits are from f32's.
fn quality(figures: &Figures) -> String {
    let series = MODELS.iter().map(|model| {
        let of = |dtype: &str, key: &str| value(figures, &format!("quality/{model}/{dtype}/{key}"));
        let whole = of("f32", "file_bytes");
        let point =
            |dtype: &&str| Some((100.0 * of(dtype, "file_bytes")? / whole?, of(dtype, "kl").filter(|kl| *kl > 0.0)?, (*dtype).to_owned()));
        Series { name: model.split('/').next().unwrap_or_default().to_owned(), points: TYPES[1..].iter().filter_map(point).collect() }
    });
    let series: Vec<Series> = series.filter(|series| !series.points.is_empty()).collect();
    let across = Axis { title: "file, percent of f32", range: [0.0, 100.0], logarithmic: false };
    let up = Axis { title: "KL divergence from f32, nats a token", range: [1e-8, 1.0], logarithmic: true };
    scatter("Size against quality", &across, &up, &series)
}

/// The time of a token on a Cortex-M4F against how far its logits are from f32's.
fn speed(figures: &Figures) -> String {
    let series = ["story", "stories260K"].map(|model| {
        let cycles = |dtype: &str| value(figures, &format!("chip/an386/{model}/{dtype}/kvf16/cycles_model_per_token"));
        let kl = |dtype: &str| value(figures, &format!("quality/{model}/own/{dtype}/kl")).filter(|kl| *kl > 0.0);
        let point = |dtype: &&str| Some((cycles(dtype)? / 1e6, kl(dtype)?, (*dtype).to_owned()));
        Series { name: model.to_owned(), points: TYPES[1..].iter().filter_map(point).collect() }
    });
    let across =
        Axis { title: "million cycles a token, Cortex-M4F (emulated; keys and values in f16)", range: [0.0, 2.0], logarithmic: false };
    let up = Axis { title: "KL divergence from f32, nats a token", range: [1e-8, 1.0], logarithmic: true };
    scatter("Speed on a chip against quality", &across, &up, &series)
}

/// Instructions of a token in the smallest types, by board.
fn boards(figures: &Figures) -> String {
    let boards = ["an386", "an500", "an505", "an547", "virt-imafc", "an385", "an385-v6m", "virt-imac"];
    let of = |board: &str| value(figures, &format!("chip/{board}/stories260K/q8/kvq8/instructions_per_token")).map(|count| count / 1e6);
    let groups: Vec<_> = boards.iter().map(|board| ((*board).to_owned(), vec![of(board)])).collect();
    bars("A token of stories260K on emulated boards", "million instructions", &["q8, keys and values in q8"], &groups)
}

/// Decoding beside llama.cpp and candle.
fn peers(figures: &Figures, threads: u32) -> String {
    let engines = ["dmexp", "llama.cpp", "candle"];
    let mut groups = Vec::new();
    for shape in ["s15", "s42", "s110"] {
        for dtype in ["f32", "bf16", "q8", "q4"] {
            let of = |engine: &&str| value(figures, &format!("peers/{shape}/{dtype}/t{threads}/decode_at_0/{engine}"));
            let values: Vec<_> = engines.iter().map(of).collect();
            if values.iter().any(Option::is_some) {
                groups.push((format!("{shape}, {dtype}"), values));
            }
        }
    }
    let unit = if threads == 1 { "tokens a second of processor time, one thread" } else { "tokens a second, two threads" };
    bars("Decoding beside other engines", unit, &engines, &groups)
}

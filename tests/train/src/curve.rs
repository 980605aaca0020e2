//! The loss curve as a table (CSV) and a picture (SVG). Called by the binary at every point.

use std::fmt::Write;

/// One row of the curve. Losses are in nats a token.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// Steps done.
    pub step: usize,
    /// Time since the start.
    pub seconds: u64,
    /// Mean over the steps since the last point.
    pub train: f64,
    /// Stories that training never saw.
    pub valid: f64,
    /// Stories about combinations that training never saw.
    pub held_out: f64,
}

/// The table.
pub fn csv(points: &[Point]) -> String {
    let mut out = String::from("step,train,valid,held_out\n");
    for p in points {
        let _ = writeln!(out, "{},{:.4},{:.4},{:.4}", p.step, p.train, p.valid, p.held_out);
    }
    out
}

/// Name, colour, and which number of a point.
type Series = (&'static str, &'static str, fn(&Point) -> f64);

/// The picture; the loss axis is logarithmic.
pub fn svg(title: &str, points: &[Point]) -> String {
    let (left, top, width, height) = (60.0, 40.0, 620.0, 300.0);
    let values = || points.iter().flat_map(|p| [p.train, p.valid, p.held_out]);
    let low = values().fold(f64::MAX, f64::min) * 0.95;
    let high = values().fold(f64::MIN, f64::max) * 1.05;
    let last = points.last().map_or(1, |p| p.step.max(1)) as f64;
    let x = |step: f64| left + width * step / last;
    let y = |loss: f64| top + height * (high / loss).ln() / (high / low).ln();

    let mut out = String::from(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 720 400\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"720\" height=\"400\" fill=\"white\"/>\n",
    );
    let _ = writeln!(out, "<text x=\"360\" y=\"24\" text-anchor=\"middle\" font-size=\"15\">{title}</text>");
    for i in 0..=4 {
        let share = f64::from(i) / 4.0;
        let loss = high * (low / high).powf(share);
        let (at, bottom, step) = (y(loss), top + height, last * share);
        let _ = writeln!(
            out,
            "<path d=\"M{left} {at:.1}h{width}\" stroke=\"#ddd\"/><text x=\"52\" y=\"{:.1}\" text-anchor=\"end\">{loss:.2}</text>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{step:.0}</text>",
            at + 4.0,
            x(step),
            bottom + 18.0
        );
    }
    out.push_str("<text x=\"370\" y=\"384\" text-anchor=\"middle\">steps (loss in nats a token)</text>\n");
    let series: [Series; 3] = [
        ("training", "#1f77b4", |p| p.train),
        ("validation", "#d62728", |p| p.valid),
        ("held-out combinations", "#2ca02c", |p| p.held_out),
    ];
    for (i, (name, colour, value)) in series.into_iter().enumerate() {
        let line: Vec<String> = points.iter().map(|p| format!("{:.1},{:.1}", x(p.step as f64), y(value(p)))).collect();
        let _ = writeln!(
            out,
            "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\" points=\"{}\"/>\
             <text x=\"500\" y=\"{}\" fill=\"{colour}\">{name}</text>",
            line.join(" "),
            60 + 18 * i
        );
    }
    out.push_str("</svg>\n");
    out
}

#[cfg(test)]
mod tests {
    use super::{Point, csv, svg};

    #[test]
    fn a_curve_is_a_table_and_a_picture_of_bounded_size() {
        let points: Vec<Point> = (1..=200)
            .map(|step| {
                let loss = 1.0 + 4.0 / step as f64;
                Point { step: step * 100, seconds: 1, train: loss, valid: loss + 0.1, held_out: loss + 0.2 }
            })
            .collect();
        assert!(csv(&points).starts_with("step,train,valid,held_out\n100,5.0000,5.1000,5.2000\n"));
        let picture = svg("loss", &points);
        assert_eq!(picture.matches("<polyline").count(), 3);
        assert!(picture.len() < 50_000 && !picture.contains("NaN"));
    }
}

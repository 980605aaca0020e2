//! Plots as SVG, by their numbers alone: the same numbers are the same bytes. On a ground of their own, so that they can be read on a light page and on a dark one.

use std::fmt::Write;

/// One axis: what is on it, from where to where, and whether by powers of ten.
pub(super) struct Axis {
    pub(super) title: &'static str,
    pub(super) range: [f64; 2],
    pub(super) logarithmic: bool,
}

impl Axis {
    /// Where a value lies, from 0 to 1.
    fn share(&self, value: f64) -> f64 {
        let [low, high] = self.range;
        if self.logarithmic { (value / low).log10() / (high / low).log10() } else { (value - low) / (high - low) }
    }

    /// The values that are marked.
    fn ticks(&self) -> Vec<f64> {
        let [low, high] = self.range;
        if self.logarithmic {
            let powers = low.log10().ceil() as i32..=high.log10().floor() as i32;
            return powers.map(|power| 10f64.powi(power)).collect();
        }
        (0..=5).map(|tick| low + (high - low) * f64::from(tick) / 5.0).collect()
    }

    fn label(&self, value: f64) -> String {
        match () {
            () if self.logarithmic && !(0.01..10_000.0).contains(&value) => format!("{value:.0e}"),
            () if value == 0.0 || value.fract() == 0.0 => format!("{value:.0}"),
            () => format!("{value}"),
        }
    }
}

/// Points with one name and colour: where each lies and what is written beside it.
pub(super) struct Series {
    pub(super) name: String,
    pub(super) points: Vec<(f64, f64, String)>,
}

const COLOURS: [&str; 6] = ["#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf"];
/// The area of the points.
const LEFT: f64 = 78.0;
const TOP: f64 = 44.0;
const WIDTH: f64 = 610.0;
const HEIGHT: f64 = 320.0;

fn open(title: &str, height: f64) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 720 {height}\" font-family=\"sans-serif\" font-size=\"12\" fill=\"#222\">\n\
         <title>{title}</title>\n<rect width=\"720\" height=\"{height}\" rx=\"6\" fill=\"#fff\" stroke=\"#ccc\"/>\n\
         <text x=\"360\" y=\"24\" text-anchor=\"middle\" font-size=\"15\">{title}</text>\n"
    )
}

/// Points by two numbers, those of a series joined.
pub(super) fn scatter(title: &str, across: &Axis, up: &Axis, series: &[Series]) -> String {
    let mut out = open(title, 430.0);
    let x = |value: f64| LEFT + WIDTH * across.share(value);
    let y = |value: f64| TOP + HEIGHT * (1.0 - up.share(value));
    for tick in up.ticks() {
        let at = y(tick);
        let _ = writeln!(
            out,
            "<path d=\"M{LEFT} {at:.1}h{WIDTH}\" stroke=\"#e4e4e4\"/><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 6.0,
            at + 4.0,
            up.label(tick)
        );
    }
    for tick in across.ticks() {
        let at = x(tick);
        let _ = writeln!(
            out,
            "<path d=\"M{at:.1} {TOP}v{HEIGHT}\" stroke=\"#e4e4e4\"/><text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            TOP + HEIGHT + 18.0,
            across.label(tick)
        );
    }
    let _ = writeln!(
        out,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
        LEFT + WIDTH / 2.0,
        TOP + HEIGHT + 40.0,
        across.title
    );
    let _ =
        writeln!(out, "<text transform=\"translate(20 {:.1}) rotate(-90)\" text-anchor=\"middle\">{}</text>", TOP + HEIGHT / 2.0, up.title);
    for (number, (series, colour)) in series.iter().zip(COLOURS).enumerate() {
        let line: Vec<String> = series.points.iter().map(|(one, two, _)| format!("{:.1},{:.1}", x(*one), y(*two))).collect();
        let _ = writeln!(out, "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\" points=\"{}\"/>", line.join(" "));
        for (one, two, label) in &series.points {
            let (x, y) = (x(*one), y(*two));
            let _ = writeln!(
                out,
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"{colour}\"/><text x=\"{:.1}\" y=\"{:.1}\" fill=\"{colour}\">{label}</text>",
                x + 7.0,
                y - 6.0
            );
        }
        let _ = writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"end\" fill=\"{colour}\">{}</text>",
            LEFT + WIDTH - 8.0,
            62 + 17 * number,
            series.name
        );
    }
    out + "</svg>\n"
}

/// Bars in groups: the names of the bars, then each group's name with a value for each bar; a value that is missing has no bar.
pub(super) fn bars(title: &str, unit: &str, names: &[&str], groups: &[(String, Vec<Option<f64>>)]) -> String {
    let (bar, gap) = (13.0, 12.0);
    let group = bar * names.len() as f64 + gap;
    let height = 84.0 + group * groups.len() as f64;
    let mut out = open(title, height);
    let most = groups.iter().flat_map(|(_, values)| values).flatten().fold(f64::MIN_POSITIVE, |most, value| most.max(*value));
    let (left, width) = (190.0, 440.0);
    for (number, (name, colour)) in names.iter().zip(COLOURS).enumerate() {
        let at = left + 120.0 * number as f64;
        let _ = writeln!(
            out,
            "<rect x=\"{at}\" y=\"36\" width=\"11\" height=\"11\" fill=\"{colour}\"/><text x=\"{}\" y=\"46\">{name}</text>",
            at + 16.0
        );
    }
    for (number, (name, values)) in groups.iter().enumerate() {
        let top = 58.0 + group * number as f64;
        let _ = writeln!(out, "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{name}</text>", left - 8.0, top + (group - gap) / 2.0 + 4.0);
        for (place, (value, colour)) in values.iter().zip(COLOURS).enumerate() {
            let Some(value) = value else { continue };
            let (top, length) = (top + bar * place as f64, width * value / most);
            let digits = usize::from(*value < 100.0);
            let _ = writeln!(
                out,
                "<rect x=\"{left}\" y=\"{top:.1}\" width=\"{length:.1}\" height=\"{}\" fill=\"{colour}\"/><text x=\"{:.1}\" y=\"{:.1}\" font-size=\"11\">{value:.digits$}</text>",
                bar - 2.0,
                left + length + 5.0,
                top + 9.5
            );
        }
    }
    let _ = writeln!(out, "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"middle\">{unit}</text>", left + width / 2.0, height - 12.0);
    out + "</svg>\n"
}

#[cfg(test)]
mod tests {
    use super::{Axis, Series, bars, scatter};

    #[test]
    fn plots_hold_every_point_and_bar() {
        let axis = |logarithmic| Axis { title: "a", range: [1.0, 1000.0], logarithmic };
        let series = Series { name: "one".into(), points: vec![(1.0, 10.0, "f32".into()), (1000.0, 1000.0, "q8".into())] };
        let image = scatter("title", &axis(false), &axis(true), &[series]);
        for part in ["cx=\"78.0\" cy=\"257.3\"", "cx=\"688.0\" cy=\"44.0\"", ">f32<", ">q8<", ">one<", ">100<"] {
            assert!(image.contains(part), "{part}: {image}");
        }
        let image =
            bars("title", "unit", &["a", "b"], &[("one".into(), vec![Some(1.0), Some(2.0)]), ("two".into(), vec![None, Some(4.0)])]);
        for part in ["width=\"110.0\"", "width=\"220.0\"", "width=\"440.0\"", ">4.0<"] {
            assert!(image.contains(part), "{part}: {image}");
        }
        assert_eq!(image.matches("<rect").count(), 1 + 2 + 3);
    }
}

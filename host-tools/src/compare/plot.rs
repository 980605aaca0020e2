//! The comparison as a plot: size against divergence, one point an element type.

use super::dtypes::Comparison;
use crate::error::{Class, Error, Result};
use plotters::prelude::*;

const SIZE: (u32, u32) = (720, 440);
const FONT: &str = "sans-serif";

/// An SVG image: how many bytes a type takes, in percent of f32, and how far its logits are from f32's (mean KL divergence in nats, logarithmic). Types without divergence, f32 first of all, are not on
/// a logarithmic scale and are left out.
///
/// # Errors
/// [`Class::Request`] where nothing is left.
pub fn svg(comparison: &Comparison) -> Result<String> {
    let measured = comparison.rows.iter().filter_map(|row| Some((row.name(), row.measured.as_ref().ok()?)));
    let whole = measured.clone().next().map_or(1.0, |(_, first)| first.file_bytes.max(1) as f64);
    let points: Vec<(String, f64, f64)> = measured
        .filter(|(_, found)| found.divergence.kl > 0.0)
        .map(|(name, found)| (name, 100.0 * found.file_bytes as f64 / whole, found.divergence.kl))
        .collect();
    if points.is_empty() {
        return Err(
            Error::new(Class::Request, "there is nothing to plot: no type diverges from f32").advise("name more types with --dtypes")
        );
    }
    let low = points.iter().fold(f64::INFINITY, |low, (_, _, kl)| low.min(*kl)) / 4.0;
    let high = points.iter().fold(0.0f64, |high, (_, _, kl)| high.max(*kl)) * 4.0;
    let mut image = String::new();
    draw(&mut image, &points, low, high).map_err(|error| Error::new(Class::Unwritable, format!("the plot cannot be drawn: {error}")))?;
    Ok(image)
}

fn draw(image: &mut String, points: &[(String, f64, f64)], low: f64, high: f64) -> std::result::Result<(), Box<dyn std::error::Error>> {
    let area = SVGBackend::with_string(image, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .margin(16)
        .x_label_area_size(44)
        .y_label_area_size(72)
        .build_cartesian_2d(0f64..100f64, (low..high).log_scale())?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .label_style((FONT, 13))
        .axis_desc_style((FONT, 14))
        .x_desc("bytes, percent of f32")
        .y_desc("KL divergence, nats a token")
        .y_label_formatter(&|kl| format!("{kl:.0e}"))
        .draw()?;
    chart.draw_series(points.iter().map(|(_, x, y)| Circle::new((*x, *y), 5, BLUE.filled())))?;
    chart.draw_series(points.iter().map(|(name, x, y)| EmptyElement::at((*x, *y)) + Text::new(name.clone(), (9, -7), (FONT, 14))))?;
    area.present()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::divergence::Divergence;
    use crate::compare::dtypes::{Measured, Row};
    use dmexp_format::DType;
    use dmexp_format::host::Figures;

    fn row(dtype: DType, file_bytes: u64, kl: f64) -> Row {
        let divergence = Divergence {
            positions: 1,
            kl,
            max_abs_delta: 0.0,
            mean_abs_delta: 0.0,
            top1: 1.0,
            reference_perplexity: None,
            perplexity: None,
        };
        Row { dtype, canonical: false, measured: Ok(Measured { file_bytes, ratio: 1.0, figures: Figures::NONE, divergence, greedy: 0 }) }
    }

    #[test]
    fn every_type_that_diverges_is_named_in_the_plot() {
        let mut comparison = Comparison {
            source_bytes: 400,
            windows: 1,
            positions: 1,
            greedy: 0,
            rows: vec![row(DType::F32, 400, 0.0), row(DType::F16, 200, 1e-8), row(DType::Bf16, 200, 1e-5)],
        };
        let image = svg(&comparison).unwrap();
        assert!(image.starts_with("<svg") && image.trim_end().ends_with("</svg>"));
        let labels: Vec<&str> = image.lines().map(str::trim).filter(|line| matches!(*line, "f32" | "f16" | "bf16")).collect();
        assert_eq!(labels, ["f16", "bf16"]);
        assert_eq!(svg(&comparison).unwrap(), image);
        comparison.rows.truncate(1);
        assert_eq!(svg(&comparison).unwrap_err().class(), Class::Request);
    }
}

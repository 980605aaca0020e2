//! Where two sides differ, as a picture: positions across, the embedding, the layers and the logits upwards, and the colour says how far they are apart.

use super::machines::Found;
use crate::error::{Class, Error, Result};
use plotters::prelude::*;

const FONT: &str = "sans-serif";
const CELL: u32 = 12;

/// How far apart a part of a position is.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Cell {
    Same,
    Apart(f64),
    /// It differs, or a side is not finite, and nobody knows by how much.
    Unknown,
}

/// An SVG image of a comparison that was traced.
///
/// # Errors
/// [`Class::Request`] where the residual streams were not compared.
pub fn svg(found: &Found, names: [&str; 2]) -> Result<String> {
    let rows = found.layers.first().map_or(0, Vec::len);
    if rows == 0 {
        return Err(Error::new(Class::Request, "there is nothing to draw: no layer was compared"));
    }
    let cells: Vec<Vec<Cell>> = found
        .layers
        .iter()
        .zip(&found.positions)
        .map(|(layers, position)| {
            let mut column: Vec<Cell> = layers
                .iter()
                .map(|delta| match delta {
                    Some(0.0) => Cell::Same,
                    Some(delta) if delta.is_finite() => Cell::Apart(*delta),
                    _ => Cell::Unknown,
                })
                .collect();
            column.push(match (position.same, position.divergence) {
                (true, _) => Cell::Same,
                (false, Some(divergence)) => Cell::Apart(divergence.max_abs_delta),
                (false, None) => Cell::Unknown,
            });
            column
        })
        .collect();
    let mut image = String::new();
    draw(&mut image, &cells, names, found.part)
        .map_err(|error| Error::new(Class::Unwritable, format!("the picture cannot be drawn: {error}")))?;
    Ok(image)
}

fn draw(image: &mut String, cells: &[Vec<Cell>], names: [&str; 2], word: &str) -> std::result::Result<(), Box<dyn std::error::Error>> {
    let (columns, rows) = (cells.len() as u32, cells.first().map_or(1, Vec::len) as u32);
    let size = ((columns * CELL + 140).max(480), rows * CELL.max(20) + 120);
    let deltas = cells.iter().flatten().filter_map(|cell| match cell {
        Cell::Apart(delta) => Some(*delta),
        _ => None,
    });
    let (least, most) = deltas.fold((f64::INFINITY, 0.0f64), |(least, most), delta| (least.min(delta), most.max(delta)));
    let area = SVGBackend::with_string(image, size).into_drawing_area();
    area.fill(&WHITE)?;
    let legend = if most > 0.0 {
        format!("white: the same bits; from yellow to red: largest difference {least:.1e} to {most:.1e}")
    } else {
        "every bit is the same".to_owned()
    };
    let mut chart = ChartBuilder::on(&area)
        .margin(12)
        .caption(format!("{} against {}; {legend}", names[1], names[0]), (FONT, 13))
        .x_label_area_size(36)
        .y_label_area_size(84)
        .build_cartesian_2d(0..columns, 0..rows)?;
    chart
        .configure_mesh()
        .disable_mesh()
        .label_style((FONT, 12))
        .axis_desc_style((FONT, 13))
        .x_desc("position")
        .y_labels(rows as usize)
        .y_label_formatter(&|row| match *row {
            0 => "embedding".to_owned(),
            row if row + 1 < rows => format!("{word} {}", row - 1),
            row if row + 1 == rows => "logits".to_owned(),
            _ => String::new(),
        })
        .draw()?;
    let colour = |cell: &Cell| match cell {
        Cell::Same => RGBColor(255, 255, 255),
        Cell::Unknown => RGBColor(90, 90, 90),
        Cell::Apart(delta) => {
            let part = if most > least { (delta / least).ln() / (most / least).ln() } else { 1.0 };
            RGBColor(255 - (60.0 * part) as u8, 220 - (200.0 * part) as u8, 90 - (70.0 * part) as u8)
        }
    };
    for (x, column) in (0..).zip(cells) {
        chart.draw_series(
            (0..)
                .zip(column)
                .filter(|(_, cell)| **cell != Cell::Same)
                .map(|(y, cell)| Rectangle::new([(x, y), (x + 1, y + 1)], colour(cell).filled())),
        )?;
    }
    area.present()?;
    Ok(())
}

//! Numbers as text: a line a row, separated by commas, semicolons, tabs or spaces.

use super::{Tensor, shown};
use crate::error::{Class, Error, Result};
use dmexp_format::Dims;
use std::fmt::Write as _;

/// The numbers of one line; `number` is the line's, from 1, for errors. None where the line is empty or begins with `#`.
///
/// # Errors
/// [`Class::Damaged`] for a field that is no number, with its line and column.
pub fn line(number: usize, text: &str) -> Result<Option<Vec<f32>>> {
    let text = text.trim();
    if text.is_empty() || text.starts_with('#') {
        return Ok(None);
    }
    let fields: Vec<&str> =
        if text.contains([',', ';']) { text.split([',', ';']).map(str::trim).collect() } else { text.split_whitespace().collect() };
    let numbers = fields.iter().enumerate().map(|(column, field)| {
        let place = || format!("line {number}, column {}", column + 1);
        match field.parse::<f32>() {
            Ok(value) if value.is_finite() => Ok(value),
            Ok(_) => Err(Error::damaged(format!("{field:?} is no finite number of 32 bits")).at(place())),
            Err(_) => Err(Error::damaged(format!("{field:?} is no number"))
                .at(place())
                .advise("take heading lines out, or begin them with #; a decimal point is a point")),
        }
    });
    numbers.collect::<Result<_>>().map(Some)
}

/// The input of a network that takes one input of this shape: lines of all its elements, one a row of the batch, or lines of its last axis, which together are one row.
///
/// # Errors
/// Those of [`line()`]; [`Class::Mismatch`] for lines of different lengths, or that are neither.
pub fn read(text: &str, wanted: Dims) -> Result<Tensor> {
    let (mut data, mut rows, mut columns) = (Vec::new(), 0usize, 0usize);
    for (number, text) in (1..).zip(text.lines()) {
        let Some(values) = line(number, text)? else { continue };
        if rows > 0 && values.len() != columns {
            let what = format!("has {} numbers, and the lines before it have {columns}", values.len());
            return Err(Error::mismatch(what).at(format!("line {number}")));
        }
        columns = values.len();
        rows += 1;
        data.extend(values);
    }
    if rows == 0 {
        return Err(Error::new(Class::Mismatch, "has no numbers"));
    }
    let sizes: Vec<usize> = wanted.as_slice().iter().map(|size| *size as usize).collect();
    let (count, last) = (wanted.count() as usize, wanted.cols() as usize);
    let lines = count / last.max(1);
    if columns == count {
        return Tensor::new(std::iter::once(rows).chain(sizes).collect(), data);
    }
    if columns == last && rows.is_multiple_of(lines) {
        return Tensor::new(std::iter::once(rows / lines).chain(sizes).collect(), data);
    }
    let what = format!("has {rows} lines of {columns} numbers; an input is {}", shown(&sizes));
    let advice = if lines > 1 {
        format!("give {count} numbers a line, a line a sample, or {lines} lines of {last} a sample")
    } else {
        format!("give {count} numbers a line, a line a sample")
    };
    Err(Error::mismatch(what).advise(advice))
}

/// A line for each row of the batch.
pub fn write(tensor: &Tensor) -> String {
    let rows = tensor.shape.first().copied().unwrap_or(1).max(1);
    let mut text = String::new();
    for row in tensor.data.chunks((tensor.data.len() / rows).max(1)) {
        for (place, value) in row.iter().enumerate() {
            let comma = if place == 0 { "" } else { "," };
            // A string takes everything.
            let _ = write!(text, "{comma}{value}");
        }
        text.push('\n');
    }
    text
}

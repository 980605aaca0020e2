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
    // The mark that some programs begin a text with.
    let text = if number == 1 { text.trim_start_matches('\u{feff}') } else { text }.trim();
    if text.is_empty() || text.starts_with('#') {
        return Ok(None);
    }
    let fields: Vec<&str> =
        if text.contains([',', ';']) { text.split([',', ';']).map(str::trim).collect() } else { text.split_whitespace().collect() };
    let numbers = fields.iter().enumerate().map(|(column, field)| {
        let place = || format!("line {number}, column {}", column + 1);
        // A file without commas is one field.
        let shown = || field.chars().take(80).collect::<String>();
        match field.parse::<f32>() {
            Ok(value) if value.is_finite() => Ok(value),
            Ok(_) => Err(Error::damaged(format!("{:?} is no finite number of 32 bits", shown())).at(place())),
            Err(_) => Err(Error::damaged(format!("{:?} is no number", shown()))
                .at(place())
                .advise("take heading lines out, or begin them with #; a decimal point is a point")),
        }
    });
    numbers.collect::<Result<_>>().map(Some)
}

/// The input of a network that takes one input of this shape: lines of all its elements, one a row of the batch, or lines of its last axis, which together are one row.
///
/// Where the length of its first axis is `free`, lines of its last axis are one row however many they are, and an empty line begins the next; of an input with one axis each line is a row of any length.
///
/// # Errors
/// Those of [`line()`]; [`Class::Mismatch`] for lines of different lengths, for rows of different lengths, or lines that are neither.
pub fn read(text: &str, wanted: Dims, free: bool) -> Result<Tensor> {
    let (mut data, mut rows, mut columns) = (Vec::new(), 0usize, 0usize);
    // Where a row begins behind an empty line, in lines of numbers, and the number of that line.
    let (mut begins, mut apart) = (vec![(0, 1)], false);
    for (number, text) in (1..).zip(text.lines()) {
        let Some(values) = line(number, text)? else {
            apart |= text.trim().is_empty();
            continue;
        };
        if std::mem::take(&mut apart) && rows > 0 {
            begins.push((rows, number));
        }
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
    if free && sizes.len() == 1 {
        return Tensor::new(vec![rows, columns], data);
    }
    if free && columns == last {
        return sequences(&begins, rows, &sizes, data);
    }
    if columns == count {
        return Tensor::new(std::iter::once(rows).chain(sizes).collect(), data);
    }
    if columns == last && rows.is_multiple_of(lines) {
        return Tensor::new(std::iter::once(rows / lines).chain(sizes).collect(), data);
    }
    let what = format!("has {} of {}; an input is {}", counted(rows, "line"), counted(columns, "number"), shown(&sizes));
    let advice = if free {
        format!("give {last} numbers a line, a line a step, and an empty line before the next sample")
    } else if lines > 1 {
        format!("give {count} numbers a line, a line a sample, or {lines} lines of {last} a sample")
    } else {
        format!("give {count} numbers a line, a line a sample")
    };
    Err(Error::mismatch(what).advise(advice))
}

/// Rows of lines, which begin at these places; all of them have as many lines.
fn sequences(begins: &[(usize, usize)], rows: usize, sizes: &[usize], data: Vec<f32>) -> Result<Tensor> {
    let ends = begins.iter().skip(1).map(|(place, _)| *place).chain([rows]);
    let mut first = None;
    for ((begin, number), end) in begins.iter().zip(ends) {
        let (len, wanted) = (end - begin, *first.get_or_insert(end - begin));
        if len != wanted {
            let what = format!("a sample of {} begins, and those before it have {wanted}", counted(len, "line"));
            let error = Error::mismatch(what).at(format!("line {number}"));
            return Err(error.advise("give samples of one length, or a file for each; an empty line begins a sample"));
        }
    }
    let shape = [begins.len(), first.unwrap_or(0)].into_iter().chain(sizes.iter().skip(1).copied());
    Tensor::new(shape.collect(), data)
}

/// `1 line`, `2 lines`.
fn counted(number: usize, one: &str) -> String {
    format!("{number} {one}{}", if number == 1 { "" } else { "s" })
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

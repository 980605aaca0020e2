//! Numbers, names and tables as the commands show them, and JSON.

use anstyle::{AnsiColor, Style};
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use dmexp_tools::error::drives_terminal;
use serde_json::Value;
use std::io::{self, Write};

/// Bold, in this colour; printed through `anstream`, which drops it where there is no terminal.
pub(crate) fn style(colour: AnsiColor) -> Style {
    Style::new().bold().fg_color(Some(colour.into()))
}

/// 1234567 as "1,234,567".
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// 1234567 as "1,234,567 bytes (1.23 MB)".
pub(crate) fn bytes(number: u64) -> String {
    let (divisor, unit) = match number {
        0..1000 => return format!("{number} bytes"),
        1000..1_000_000 => (1e3, "KB"),
        1_000_000..1_000_000_000 => (1e6, "MB"),
        _ => (1e9, "GB"),
    };
    format!("{} bytes ({:.2} {unit})", grouped(number), number as f64 / divisor)
}

/// 1 as "1 token", 2 as "2 tokens".
pub(crate) fn count(number: u64, one: &str) -> String {
    format!("{} {one}{}", grouped(number), if number == 1 { "" } else { "s" })
}

/// A float in JSON with the digits that say it exactly as an f32; null where JSON has no word for it.
pub(crate) fn float(number: f32) -> Value {
    number.to_string().parse::<f64>().ok().filter(|number| number.is_finite()).map_or(Value::Null, Value::from)
}

/// Text from a file for a terminal: what it would obey escaped, so that it can neither break a line nor drive the terminal.
pub(crate) fn shown(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        if drives_terminal(c) { safe.extend(c.escape_default()) } else { safe.push(c) }
    }
    safe
}

/// Bytes for a terminal, in quotes: what is no text is written as `\xNN`.
pub(crate) fn quoted(bytes: &[u8]) -> String {
    let mut text = String::from('"');
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            if c == '"' || c == '\\' || c.is_control() { text.extend(c.escape_default()) } else { text.push(c) }
        }
        for byte in chunk.invalid() {
            text.extend(byte.escape_ascii().map(char::from));
        }
    }
    text.push('"');
    text
}

/// One JSON value on stdout and nothing else.
pub(crate) fn json(value: &Value) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{value:#}")?;
    out.flush()
}

/// Lines of "name  value", the values in one column.
pub(crate) fn facts(out: &mut impl Write, rows: &[(&str, String)]) -> io::Result<()> {
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    rows.iter().try_for_each(|(name, value)| writeln!(out, "  {name:width$}  {value}"))
}

/// A table without lines, as wide as it must be; `right` are the columns of numbers.
pub(crate) fn table<const N: usize>(header: [&str; N], right: &[usize], rows: impl IntoIterator<Item = [String; N]>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled).set_header(header);
    for row in rows {
        table.add_row(row);
    }
    for column in right {
        if let Some(column) = table.column_mut(*column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.trim_fmt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_and_sizes_are_decimal() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1000), "1,000");
        assert_eq!(grouped(12_345_678), "12,345,678");
        assert_eq!(bytes(999), "999 bytes");
        assert_eq!(bytes(1500), "1,500 bytes (1.50 KB)");
        assert_eq!(bytes(1_056_796), "1,056,796 bytes (1.06 MB)");
        assert_eq!(count(1, "token"), "1 token");
        assert_eq!(count(0, "token"), "0 tokens");
    }

    #[test]
    fn floats_keep_their_digits_in_json() {
        assert_eq!(float(0.8).to_string(), "0.8");
        assert_eq!(float(0.1).to_string(), "0.1");
        assert_eq!(float(f32::NAN), Value::Null);
        assert_eq!(float(f32::INFINITY), Value::Null);
    }

    #[test]
    fn nothing_from_a_file_drives_the_terminal() {
        assert_eq!(shown("a\u{1b}[31m\nb"), "a\\u{1b}[31m\\nb");
        assert_eq!(quoted(b"a\"\n\xff\xc3\xa9"), "\"a\\\"\\n\\xff\u{e9}\"");
    }
}

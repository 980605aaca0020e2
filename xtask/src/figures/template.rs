//! What stands in a marker: text with figures by their ids.
//!
//! `{ID}` is a figure, `{ID:FORM}` the same in a form (`.2` digits after the point, `%` of a hundred, `.1%`, `MB`, `KB`, `.1MB`, `e` with an exponent), `{ID / ID}` one by another, `{?ID}` a dash where there is none. `[a b]` in an id
//! stands for several, which become cells beside each other. A line `for x in a b; y in c d` repeats the next line with every `$x` and `$y`. `{commands NAME}`, `{machine NAME}` and `{version NAME}` are of
//! the file docs/figures/NAME.json.

use super::record::Figures;

/// What is shown where a figure may be missing.
const NONE: &str = "–";

/// The text that a template stands for, or what is wrong with it.
pub(super) fn render(template: &str, figures: &Figures) -> Result<String, String> {
    let mut lines = Vec::new();
    let mut repeated: Option<Vec<Vec<(String, String)>>> = None;
    for line in template.lines() {
        if let Some(loops) = line.trim().strip_prefix("for ") {
            if repeated.is_some() {
                return Err("a line `for` is followed by another".into());
            }
            repeated = Some(turns(loops)?);
            continue;
        }
        for turn in repeated.take().unwrap_or_else(|| vec![Vec::new()]) {
            let line = turn.iter().fold(line.to_owned(), |line, (name, word)| line.replace(&format!("${name}"), word));
            lines.push(render_line(&line, figures)?);
        }
    }
    if repeated.is_some() {
        return Err("a line `for` ends the marker".into());
    }
    Ok(lines.join("\n"))
}

/// Every turn of `x in a b; y in c d`: the names with their words, the last one changing fastest.
fn turns(loops: &str) -> Result<Vec<Vec<(String, String)>>, String> {
    let mut turns = vec![Vec::new()];
    for part in loops.split(';') {
        let (name, words) = part.split_once(" in ").ok_or_else(|| format!("`for {loops}` is not `for NAME in WORD ..`"))?;
        let words: Vec<_> = words.split_whitespace().collect();
        let longer = turns.iter().flat_map(|turn| {
            words.iter().map(move |word| {
                let mut turn: Vec<(String, String)> = turn.clone();
                turn.push((name.trim().to_owned(), (*word).to_owned()));
                turn
            })
        });
        turns = longer.collect();
    }
    Ok(turns)
}

fn render_line(line: &str, figures: &Figures) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = line;
    while let Some((before, after)) = rest.split_once('{') {
        let (inside, after) = after.split_once('}').ok_or_else(|| format!("`{{{after}` has no end"))?;
        out += before;
        out += &render_figure(inside, figures)?;
        rest = after;
    }
    Ok(out + rest)
}

fn render_figure(inside: &str, figures: &Figures) -> Result<String, String> {
    if let Some((key, name)) = inside.split_once(' ').filter(|(key, _)| ["commands", "machine", "version"].contains(key)) {
        let record = figures.record(name).ok_or_else(|| format!("there is no docs/figures/{name}.json"))?;
        return Ok(match key {
            "commands" => record.commands.iter().map(|command| format!("`{command}`")).collect::<Vec<_>>().join(", "),
            "machine" => record.machine.clone(),
            _ => record.version.clone(),
        });
    }
    let (ids, form) = inside.rsplit_once(':').unwrap_or((inside, ""));
    let (ids, may_miss) = ids.strip_prefix('?').map_or((ids, false), |ids| (ids, true));
    let cells = alternatives(ids)?.into_iter().map(|id| match value(&id, figures) {
        Ok(value) => shown(value, form),
        Err(_) if may_miss => Ok(NONE.to_owned()),
        Err(why) => Err(why),
    });
    Ok(cells.collect::<Result<Vec<_>, _>>()?.join(" | "))
}

/// The figure of an id, or of `ID / ID` the one by the other.
fn value(id: &str, figures: &Figures) -> Result<f64, String> {
    let of = |id: &str| figures.row(id).map(|row| row.value).ok_or_else(|| format!("there is no figure {id}"));
    match id.split_once(" / ") {
        Some((one, other)) => Ok(of(one)? / of(other)?),
        None => of(id),
    }
}

/// The ids that one with `[a b]` stands for.
fn alternatives(ids: &str) -> Result<Vec<String>, String> {
    let Some((before, rest)) = ids.split_once('[') else { return Ok(vec![ids.to_owned()]) };
    let (words, after) = rest.split_once(']').ok_or_else(|| format!("`{ids}` has no `]`"))?;
    let mut all = Vec::new();
    for word in words.split_whitespace() {
        all.extend(alternatives(&format!("{before}{word}{after}"))?);
    }
    Ok(all)
}

/// A figure in a form.
fn shown(value: f64, form: &str) -> Result<String, String> {
    let (digits, unit) = match form.strip_prefix('.') {
        Some(rest) => {
            let end = rest.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(rest.len());
            (rest[..end].parse::<usize>().ok(), &rest[end..])
        }
        None => (None, form),
    };
    Ok(match unit {
        "" => digits.map_or_else(|| plain(value), |digits| grouped(&format!("{value:.digits$}"))),
        "%" => format!("{:.*}%", digits.unwrap_or(0), 100.0 * value),
        "MB" => grouped(&format!("{:.*}", digits.unwrap_or(1), value / 1e6)),
        "KB" => grouped(&format!("{:.*}", digits.unwrap_or(1), value / 1e3)),
        "e" if value == 0.0 => "0".to_owned(),
        "e" => format!("{value:.*e}", digits.unwrap_or(2)),
        _ => return Err(format!("`{form}` is no form of a figure")),
    })
}

/// Whole numbers in full, others as short as they are.
fn plain(value: f64) -> String {
    if value.fract() == 0.0 || value.abs() >= 1e4 { grouped(&format!("{value:.0}")) } else { format!("{value}") }
}

/// With a comma before every three digits.
fn grouped(number: &str) -> String {
    let (whole, rest) = number.find('.').map_or((number, ""), |point| number.split_at(point));
    let (sign, digits) = whole.strip_prefix('-').map_or(("", whole), |digits| ("-", digits));
    let mut out = String::from(sign);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::super::tests::figures;
    use super::{render, shown};

    #[test]
    fn forms() {
        let cases = [
            (1_234_567.0, "", "1,234,567"),
            (12.5, "", "12.5"),
            (123_456.789, "", "123,457"),
            (999.0, "", "999"),
            (-1000.0, "", "-1,000"),
            (1234.56, ".1", "1,234.6"),
            (0.987, "%", "99%"),
            (0.987, ".1%", "98.7%"),
            (43_400_000.0, "MB", "43.4"),
            (43_400_000.0, ".0MB", "43"),
            (1500.0, "KB", "1.5"),
            (0.000_123_4, "e", "1.23e-4"),
            (0.0, "e", "0"),
        ];
        for (value, form, expected) in cases {
            assert_eq!(shown(value, form).unwrap(), expected, "{value} {form}");
        }
        assert!(shown(1.0, "furlongs").is_err());
    }

    #[test]
    fn lines_repeat_and_ids_become_cells() {
        let figures = figures(&[("chip/a/f32", 1000.0), ("chip/a/q8", 2.0), ("chip/b/f32", 3.0)]);
        let template = "| | f32 | q8 |\n|---|---|---|\nfor x in a b\n| $x | {?chip/$x/[f32 q8]} |\nby {commands made}, {machine made}";
        let expected = "| | f32 | q8 |\n|---|---|---|\n| a | 1,000 | 2 |\n| b | 3 | – |\nby `measure`, a machine";
        assert_eq!(render(template, &figures).unwrap(), expected);
        assert_eq!(render("{chip/a/f32 / chip/a/q8:.1}", &figures).unwrap(), "500.0");
        assert_eq!(render("for x in a b; y in 1 2\n$x$y", &figures).unwrap(), "a1\na2\nb1\nb2");
    }

    #[test]
    fn what_is_not_understood_is_said() {
        let figures = figures(&[("a", 1.0)]);
        let cases = [
            ("{b}", "there is no figure b"),
            ("{a", "`{a` has no end"),
            ("{[a}", "`[a` has no `]`"),
            ("{a:x}", "`x` is no form of a figure"),
            ("{machine none}", "there is no docs/figures/none.json"),
            ("for x in a", "a line `for` ends the marker"),
            ("for x in a\nfor y in b\n", "a line `for` is followed by another"),
            ("for x\n{a}", "`for x` is not `for NAME in WORD ..`"),
        ];
        for (template, complaint) in cases {
            assert_eq!(render(template, &figures).unwrap_err(), complaint, "{template}");
        }
    }
}

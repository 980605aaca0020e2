//! The markers of documents. Between `<!-- figures TEMPLATE -->` and `<!-- /figures -->` stands what the template gives; a template that begins on a line of its own is a block. `<!-- not measured: WHY -->`
//! before a table says that its numbers are facts that nothing here measures.

use super::record::Figures;
use super::template::render;
use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};
use std::ops::Range;

const BEGIN: &str = "<!-- figures";
const END: &str = "<!-- /figures -->";
const EXEMPT: &str = "<!-- not measured:";

/// Two numbers of this kind make a table one of figures.
const MEASURED: usize = 2;

/// A document with its markers filled anew, or a line for each thing that is wrong with it.
pub(super) fn filled(name: &str, text: &str, figures: &Figures) -> Result<String, Vec<String>> {
    let line_at = |place: usize| text[..place].matches('\n').count() + 1;
    let (mut out, mut done, mut wrong) = (String::new(), 0, Vec::new());
    let code = code(text);
    let mut from = 0;
    while let Some(begin) = text[from..].find(BEGIN).map(|at| from + at) {
        from = begin + BEGIN.len();
        if code.iter().any(|range| range.contains(&begin)) {
            continue;
        }
        let Some(close) = text[from..].find("-->").map(|at| from + at) else {
            wrong.push(format!("{name}:{}: the marker has no `-->`", line_at(begin)));
            break;
        };
        let next = text[close..].find(BEGIN).map_or(text.len(), |at| close + at);
        let Some(end) = text[close..next].find(END).map(|at| close + at) else {
            wrong.push(format!("{name}:{}: the marker has no `{END}`", line_at(begin)));
            continue;
        };
        let template = &text[from..close];
        let is_block = template.starts_with('\n');
        match render(template.trim(), figures) {
            Ok(shown) => {
                out += &text[done..close];
                let around = if is_block { "\n\n" } else { "" };
                out.extend(["-->", around, &shown, around]);
                done = end;
            }
            Err(why) => wrong.push(format!("{name}:{}: {why}", line_at(begin))),
        }
        from = end + END.len();
    }
    out += &text[done..];
    if wrong.is_empty() { Ok(out) } else { Err(wrong) }
}

/// A line for each table of figures that stands in no marker.
pub(super) fn unmarked(name: &str, text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    let (mut inside, mut exempt) = (false, false);
    let mut table: Option<(usize, usize)> = None;
    let mut cell: Option<String> = None;
    for (event, place) in Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter() {
        match event {
            Event::Html(words) | Event::InlineHtml(words) => {
                inside = (inside || words.contains(BEGIN)) && !words.contains(END);
                exempt = exempt || words.contains(EXEMPT);
            }
            Event::Start(Tag::Table(_)) if !inside && !exempt => table = Some((place.start, 0)),
            Event::Start(Tag::Paragraph | Tag::Heading { .. }) => exempt = false,
            Event::Start(Tag::TableCell) => cell = Some(String::new()),
            Event::Text(words) | Event::Code(words) => {
                if let Some(cell) = &mut cell {
                    cell.push_str(&words);
                }
            }
            Event::End(TagEnd::TableCell) => {
                let measured = cell.take().is_some_and(|cell| is_measured(&cell));
                if let Some((_, count)) = &mut table {
                    *count += usize::from(measured);
                }
            }
            Event::End(TagEnd::Table) => {
                if let Some((start, count)) = table.take().filter(|(_, count)| *count >= MEASURED) {
                    let line = text[..start].matches('\n').count() + 1;
                    wrong.push(format!(
                        "{name}:{line}: a table with {count} figures stands in no marker `{BEGIN} ..`; put it into one (CONTRIBUTING.md), or say `{EXEMPT} WHY -->`"
                    ));
                }
                exempt = false;
            }
            _ => {}
        }
    }
    wrong
}

/// Whether a cell begins with a number as measurements print them: with a comma, a point, an exponent or a percent sign.
fn is_measured(cell: &str) -> bool {
    let word = cell.split_whitespace().next().unwrap_or("").trim_end_matches([',', ';']);
    let plain = word.trim_end_matches('%').replace(',', "");
    plain.parse::<f64>().is_ok_and(f64::is_finite) && word.contains([',', '.', 'e', '%'])
}

/// Where code stands, which is no marker.
fn code(text: &str) -> Vec<Range<usize>> {
    let events = Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter();
    events.filter(|(event, _)| matches!(event, Event::Start(Tag::CodeBlock(_)) | Event::Code(_))).map(|(_, place)| place).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::figures;
    use super::{filled, unmarked};

    #[test]
    fn markers_are_filled_and_the_rest_stays() {
        let figures = figures(&[("a", 1000.0)]);
        let text = "one <!-- figures {a} -->999<!-- /figures --> two\n\n<!-- figures\n| {a} |\n|---|\n-->\nold\n<!-- /figures -->\nend `<!-- figures {b} -->`\n";
        let expected = "one <!-- figures {a} -->1,000<!-- /figures --> two\n\n<!-- figures\n| {a} |\n|---|\n-->\n\n| 1,000 |\n|---|\n\n<!-- /figures -->\nend `<!-- figures {b} -->`\n";
        assert_eq!(filled("x.md", text, &figures).unwrap(), expected);
        assert_eq!(filled("x.md", expected, &figures).unwrap(), expected, "what is filled stays as it is");
    }

    #[test]
    fn markers_that_are_wrong_are_named() {
        let figures = figures(&[("a", 1000.0)]);
        let cases = [
            ("\n<!-- figures {b} --><!-- /figures -->", "x.md:2: there is no figure b"),
            ("<!-- figures {a} -->1,000", "x.md:1: the marker has no `<!-- /figures -->`"),
            ("<!-- figures {a} -->1 <!-- figures {a} -->1<!-- /figures -->", "x.md:1: the marker has no `<!-- /figures -->`"),
            ("<!-- figures {a}", "x.md:1: the marker has no `-->`"),
        ];
        for (text, complaint) in cases {
            assert_eq!(filled("x.md", text, &figures).unwrap_err(), [complaint], "{text}");
        }
    }

    #[test]
    fn tables_of_figures_need_a_marker() {
        for numbers in ["| 1,000 | 2.5 |", "| 3e-4 | 99% |", "| 1.5 ms | -0.25 |"] {
            let table = format!("| a | b |\n|---|---|\n{numbers}\n");
            assert_eq!(unmarked("x.md", &table).len(), 1, "{table}");
            assert_eq!(unmarked("x.md", &format!("<!-- figures\nx\n-->\n\n{table}\n<!-- /figures -->\n")), [""; 0]);
            assert_eq!(unmarked("x.md", &format!("<!-- not measured: sizes of memories -->\n\n{table}")), [""; 0]);
            let two = format!("<!-- not measured: sizes of memories -->\n\n{table}\nMore.\n\n{table}");
            assert_eq!(unmarked("x.md", &two).len(), 1, "an exemption is for one table");
        }
        for numbers in ["| 16 KB | 256 |", "| 0 and 1.5 | v2.0 |", "| 1,000 | x |", "| 8, 10, 12 | 3, 4 |"] {
            assert_eq!(unmarked("x.md", &format!("| a | b |\n|---|---|\n{numbers}\n")), [""; 0], "{numbers}");
        }
    }
}

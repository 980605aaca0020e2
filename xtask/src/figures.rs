//! `cargo xtask figures`: every figure that a document shows comes from `docs/figures/*.json`, which the benches write. The step `figures` of `test` holds documents and plots to it.

mod chart;
mod documents;
mod plots;
mod record;
mod sources;
mod template;

use crate::bench::Row;
use crate::book::{files_under, text_of};
use crate::failure::{Failure, Outcome};
use crate::paths;
use record::{Figures, Record};
use std::ffi::OsString;
use std::path::Path;

pub(crate) const HELP: &str = "\
Usage: cargo xtask figures [OPTIONS]

Checks that every marker and plot of the documents is what docs/figures/*.json gives, and that no table of figures stands outside
of a marker; figures in sentences outside of markers are not seen. A marker is

    <!-- figures {ID} -->..<!-- /figures -->

with a figure of docs/figures in the text, or, begun on a line of its own, with the rows of a table; CONTRIBUTING.md says more.

Options:
  --write          Fill every marker and draw every plot anew, from the JSON that is there
  --measure NAME   Measure docs/figures/NAME.json anew, by the command that stands in it
  --note TEXT      What else the machine did, for the line about it
  --list           Print what can be measured
";

pub(crate) fn main(words: Vec<OsString>) -> Outcome {
    use lexopt::prelude::*;
    let mut parser = lexopt::Parser::from_args(words);
    let (mut write, mut measure, mut note) = (false, Vec::new(), String::new());
    while let Some(argument) = parser.next()? {
        match argument {
            Long("write") => write = true,
            Long("measure") => measure.push(parser.value()?.string()?),
            Long("note") => note = parser.value()?.string()?,
            Long("list") => {
                print!("{}", sources::list());
                return Ok(());
            }
            other => return Err(other.unexpected().into()),
        }
    }
    let chosen = measure.iter().map(|name| sources::find(name)).collect::<Outcome<Vec<_>>>()?;
    for source in &chosen {
        let (commands, rows) = (source.measure)()?;
        let record = Record { commands, machine: record::machine(&note), version: record::version()?, rows };
        let path = record::folder().join(format!("{}.json", source.name));
        put(&path, &record.text())?;
        println!("{}: {} figures", path.display(), record.rows.len());
    }
    if write {
        return write_all();
    }
    if chosen.is_empty() { check() } else { Ok(()) }
}

/// The step of `test`.
pub(crate) fn check() -> Outcome {
    let figures = Figures::read()?;
    let (mut wrong, mut count) = (Vec::new(), 0usize);
    for name in documents()? {
        let text = text_of(paths::root(), &name)?;
        match documents::filled(&name, &text, &figures) {
            Ok(filled) if filled == text => {}
            Ok(filled) => wrong.push(format!("{name}:{}: this is not what docs/figures gives", first_difference(&text, &filled))),
            Err(complaints) => wrong.extend(complaints),
        }
        // Numbers of the format are what it is, not what was measured.
        if !name.starts_with("docs/format/") {
            wrong.extend(documents::unmarked(&name, &text));
        }
        count += 1;
    }
    for (name, image) in plots::all(&figures) {
        let path = record::folder().join(&name);
        // Compared by lines, so that a checkout with other ends of lines is the same.
        let here = std::fs::read_to_string(path).unwrap_or_default();
        if !here.lines().eq(image.lines()) {
            wrong.push(format!("docs/figures/{name}: this is not what docs/figures gives"));
        }
    }
    if wrong.is_empty() {
        println!("{count} documents show {} figures as they are in docs/figures", figures.count());
        return Ok(());
    }
    Err(Failure::found_wrong(format!("{}\n`cargo xtask figures --write` fills markers and draws plots anew", wrong.join("\n"))))
}

/// Refuses a measurement that is not the figure of the same id in docs/figures: for figures that are the same on every machine.
pub(crate) fn hold(rows: &[Row]) -> Outcome {
    held(&Figures::read()?, rows)
}

fn held(figures: &Figures, rows: &[Row]) -> Outcome {
    for row in rows {
        if let Some(shown) = figures.row(&row.id).filter(|shown| shown.value.to_bits() != row.value.to_bits()) {
            return Err(Failure::found_wrong(format!(
                "{} is {} today, and {} in docs/figures; measure it anew: cargo xtask figures --measure chip --write",
                row.id, row.value, shown.value
            )));
        }
    }
    Ok(())
}

fn write_all() -> Outcome {
    let figures = Figures::read()?;
    let mut wrong = Vec::new();
    for name in documents()? {
        let text = text_of(paths::root(), &name)?;
        match documents::filled(&name, &text, &figures) {
            Ok(filled) if filled == text => {}
            Ok(filled) => {
                put(&paths::root().join(&name), &filled)?;
                println!("{name}");
            }
            Err(complaints) => wrong.extend(complaints),
        }
    }
    for (name, image) in plots::all(&figures) {
        put(&record::folder().join(name), &image)?;
    }
    if wrong.is_empty() { Ok(()) } else { Err(Failure::found_wrong(wrong.join("\n"))) }
}

/// Every document but decisions and the list of changes, which tell what was.
fn documents() -> Outcome<Vec<String>> {
    let mut names = files_under(paths::root(), "")?;
    let is_document = |name: &String| Path::new(name).extension().is_some_and(|kind| kind == "md");
    names.retain(|name| is_document(name) && !name.starts_with("docs/adr/") && name != "CHANGELOG.md");
    Ok(names)
}

fn first_difference(text: &str, other: &str) -> usize {
    text.lines().zip(other.lines()).position(|(one, two)| one != two).map_or(0, |place| place + 1)
}

/// Writes a file as a whole or not at all.
fn put(path: &Path, text: &str) -> Outcome {
    let part = path.with_extension("part");
    std::fs::write(&part, text)
        .and_then(|()| std::fs::rename(&part, path))
        .map_err(|error| Failure::cannot_run(format!("cannot write {}: {error}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::held;
    use super::record::{Figures, Record};
    use crate::bench::Row;
    use std::collections::BTreeMap;

    /// Figures of a file `made`.
    pub(super) fn figures(rows: &[(&str, f64)]) -> Figures {
        let rows = rows.iter().map(|(id, value)| Row::new((*id).to_owned(), *value, "units")).collect();
        let record = Record { commands: vec!["measure".into()], machine: "a machine".into(), version: "1 at a".into(), rows };
        Figures::of(BTreeMap::from([("made".to_owned(), record)])).unwrap()
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let figures = figures(&[("a", 1.0), ("b/c", 0.1)]);
        let record = figures.record("made").unwrap();
        let path = std::env::temp_dir().join(format!("dmexp-figures-{}.json", std::process::id()));
        std::fs::write(&path, record.text()).unwrap();
        let read = Record::read(&path);
        std::fs::write(&path, "{\"rows\": []}").unwrap();
        let refused = Record::read(&path);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(read.unwrap().text(), record.text());
        assert!(refused.is_err());
    }

    #[test]
    fn what_is_measured_is_what_is_shown() {
        let row = |id: &str, value| Row::new(id.to_owned(), value, "units");
        let figures = figures(&[("a", 1.5)]);
        assert!(held(&figures, &[row("a", 1.5), row("b", 7.0)]).is_ok());
        assert!(held(&figures, &[row("b", 7.0), row("a", 1.25)]).is_err());
    }

    #[test]
    fn an_id_is_in_one_file() {
        let record = || Record {
            commands: vec!["measure".into()],
            machine: String::new(),
            version: String::new(),
            rows: vec![Row::new("a".into(), 1.0, "units")],
        };
        assert!(Figures::of(BTreeMap::from([("one".to_owned(), record()), ("two".to_owned(), record())])).is_err());
    }
}

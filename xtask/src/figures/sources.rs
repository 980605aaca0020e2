//! How each `docs/figures/NAME.json` is measured.

use crate::bench::{Row, host};
use crate::failure::{Failure, Outcome};
use crate::models::{self, STORIES260K, STORY, TINY};
use crate::{paths, process};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// What a reader types, and the rows that came of it.
type Measured = (Vec<String>, Vec<Row>);

/// One file.
pub(super) struct Source {
    pub(super) name: &'static str,
    about: &'static str,
    pub(super) measure: fn() -> Outcome<Measured>,
}

const SOURCES: &[Source] = &[
    Source { name: "chip", about: "instructions, cycles, stack, arenas and code on emulated boards", measure: chip },
    Source { name: "host", about: "rates, sizes and times of the command here", measure: || bench(&["--only", "host/"]) },
    Source { name: "peers", about: "rates beside llama.cpp's and candle's; some 40 minutes", measure: || bench(&["--peers"]) },
    Source { name: "context", about: "a token behind a longer text; takes the models of `peers`", measure: context },
    Source { name: "quality", about: "how far each type's logits are from f32's", measure: quality },
    Source { name: "networks", about: "what fewer bits cost small networks", measure: networks },
    Source { name: "rustyml", about: "small networks beside the crate rustyml", measure: rustyml },
];

pub(super) fn list() -> String {
    SOURCES.iter().fold(String::new(), |list, source| list + &format!("{:<10}{}\n", source.name, source.about))
}

pub(super) fn find(name: &str) -> Outcome<&'static Source> {
    SOURCES
        .iter()
        .find(|source| source.name == name)
        .ok_or_else(|| Failure::cannot_run(format!("there is no source `{name}`; --list prints them")))
}

/// Rows of `cargo xtask bench` with these words.
fn bench(words: &[&str]) -> Outcome<Measured> {
    let file = std::env::temp_dir().join(format!("dmexp-bench-{}.json", std::process::id()));
    let own = std::env::current_exe().map_err(|error| Failure::cannot_run(format!("cannot find this program: {error}")))?;
    let run = process::run(Command::new(own).arg("bench").args(words).arg("--json").arg(&file));
    let text = run.and_then(|()| {
        std::fs::read_to_string(&file).map_err(|error| Failure::cannot_run(format!("cannot read {}: {error}", file.display())))
    });
    // Not there where the bench failed.
    let _ = std::fs::remove_file(&file);
    let value: Value = parsed(&text?, "cargo xtask bench")?;
    let rows: Option<Vec<Row>> = value.as_array().and_then(|rows| rows.iter().map(Row::from_json).collect());
    let rows = rows.ok_or_else(|| Failure::cannot_run("`cargo xtask bench --json` writes no list of rows"))?;
    Ok((vec![format!("cargo xtask bench {} --json FILE", words.join(" "))], rows))
}

/// Of the rows `chip/`: all of a Cortex-M4F, and of every other board the smallest types, sizes and arenas, which takes a fraction of the time.
const CHIP: [&str; 4] = ["chip/an386/", "chip/*/q8/kvq8/", "chip/*/code_bytes", "chip/*/arena_bytes"];

fn chip() -> Outcome<Measured> {
    let (mut commands, mut rows) = (Vec::new(), Vec::<Row>::new());
    for pattern in CHIP {
        let (command, more) = bench(&["--only", pattern])?;
        commands.extend(command);
        for row in more {
            if rows.iter().all(|known| known.id != row.id) {
                rows.push(row);
            }
        }
    }
    Ok((commands, rows))
}

fn parsed(text: &str, who: &str) -> Outcome<Value> {
    serde_json::from_str(text).map_err(|error| Failure::cannot_run(format!("cannot read what `{who}` prints: {error}")))
}

/// The tokens before those that are fed one by one.
const BEFORE: [u32; 3] = [0, 128, 240];

fn context() -> Outcome<Measured> {
    let before = BEFORE.map(|count| count.to_string()).join(",");
    let words = ["--pp", "0", "--tg", "16", "--context", &before, "--threads", "1,2"];
    let mut rows = Vec::new();
    for shape in ["s15", "s42", "s110"] {
        let file = paths::root().join(format!("target/peers/models/{shape}.q8.dmexp"));
        let mut command = models::dmexp()?;
        let report = parsed(&process::capture(command.args(["bench", "--json"]).args(words).arg("--export").arg(&file))?, "dmexp bench")?;
        for found in report["rows"].as_array().into_iter().flatten() {
            let id = format!("context/{shape}/q8/t{}/at_{}", found["threads"], found["context"]);
            let figure = |key: &str| found[key].as_f64().ok_or_else(|| Failure::cannot_run(format!("`dmexp bench --json` has no `{key}`")));
            rows.push(Row::new(format!("{id}/ms"), figure("ms")?, "ms"));
            rows.push(Row::new(format!("{id}/read_bytes"), figure("read_bytes")?, "bytes"));
        }
    }
    let shown = "--export s15.q8.dmexp --export s42.q8.dmexp --export s110.q8.dmexp";
    Ok((vec![format!("dmexp bench {} {shown}", words.join(" "))], rows))
}

/// A comparison of types: the model's name, the text's, the checkpoint and more words. The text is a file from the repository's root.
struct Comparison {
    id: &'static str,
    checkpoint: String,
    text: &'static str,
    words: &'static [&'static str],
}

const STORY_TEXT: &str = "models/story.sample.txt";
const TINY_TEXT: &str = "models/tiny.sample.txt";
const SHAKESPEARE: &str = "../shared/data/text/tinyshakespeare.txt";
const STORIES: &str = "../shared/data/ref/stories260K_greedy_n256.txt";

/// A model of dormouse's size `nano` with made weights, where `narrowing.py` (docs/dormouse.md) was asked to write it there.
const NANO: &str = "target/figures/nano.f32.dmexp";

fn comparisons() -> Vec<Comparison> {
    let own = |model: models::Source, id, text, words| Comparison { id, checkpoint: model.checkpoint.to_owned(), text, words };
    let bpe = &["--tokenizer", "models/story.tokenizer.bin"];
    let llama2 = &["--tokenizer", "../shared/data/stories260K/tok512.bin"];
    let mut all = vec![
        own(STORY, "story/own", STORY_TEXT, bpe),
        own(TINY, "tiny/own", TINY_TEXT, &["--tokenizer", "bytes"]),
        own(STORIES260K, "stories260K/own", STORIES, llama2),
        own(STORIES260K, "stories260K/shakespeare", SHAKESPEARE, llama2),
    ];
    let gguf = std::env::var(host::SMOLLM2).ok();
    let words = &["--windows", "2", "--greedy", "64"];
    all.extend(gguf.map(|checkpoint| Comparison { id: "smollm2/shakespeare", checkpoint, text: SHAKESPEARE, words }));
    let words = &["--dtypes", "bf16,f16,t2", "--windows", "8", "--window-bytes", "256", "--greedy", "1", "--convention", "full"];
    all.push(Comparison { id: "dormouse_nano/shakespeare", checkpoint: NANO.to_owned(), text: SHAKESPEARE, words });
    all.retain(|comparison| [&comparison.checkpoint, comparison.text].iter().all(|file| paths::root().join(file).exists()));
    all
}

fn quality() -> Outcome<Measured> {
    let (mut commands, mut rows) = (Vec::new(), Vec::new());
    for Comparison { id, checkpoint, text, words } in comparisons() {
        let mut command = models::dmexp()?;
        command.current_dir(paths::root()).args(["compare", "dtypes", "--json", &checkpoint, "--text", text]).args(words);
        let report = parsed(&process::capture(&mut command)?, "dmexp compare dtypes")?;
        let file = |path: &str| Path::new(path).file_name().unwrap_or_default().to_string_lossy().into_owned();
        let words: Vec<_> = words.iter().map(|word| if word.contains('/') { file(word) } else { (*word).to_owned() }).collect();
        commands.push(format!("dmexp compare dtypes --json {} --text {} {}", file(&checkpoint), file(text), words.join(" ")));
        for key in ["source_bytes", "windows", "positions", "greedy"] {
            rows.extend(
                report[key]
                    .as_f64()
                    .map(|value| Row::new(format!("quality/{id}/{key}"), value, if key == "source_bytes" { "bytes" } else { "count" })),
            );
        }
        for found in report["rows"].as_array().into_iter().flatten() {
            let dtype = found["dtype"].as_str().unwrap_or_default().replace(' ', "-");
            for (key, unit) in QUALITIES {
                rows.extend(found[key].as_f64().map(|value| Row::new(format!("quality/{id}/{dtype}/{key}"), value, unit)));
            }
        }
    }
    Ok((commands, rows))
}

/// What is kept of a type, and its unit.
const QUALITIES: [(&str, &str); 10] = [
    ("file_bytes", "bytes"),
    ("ratio", "of 1"),
    ("max_abs", "of weights"),
    ("min_nonzero_abs", "of weights"),
    ("flushed", "weights"),
    ("max_abs_delta", "of logits"),
    ("mean_abs_delta", "of logits"),
    ("top1", "of 1"),
    ("greedy_equal", "tokens"),
    ("kl", "nats a token"),
];

/// The numbers of the rows `| name | number | .. |` of a printed table, with their name.
fn table_rows(printed: &str) -> impl Iterator<Item = (&str, Vec<f64>)> {
    printed.lines().filter_map(|line| {
        let mut cells = line.trim().strip_prefix('|')?.trim_end_matches('|').split('|').map(str::trim);
        let name = cells.next()?;
        let numbers: Option<Vec<f64>> = cells.map(|cell| cell.parse().ok()).collect();
        numbers.filter(|numbers| !numbers.is_empty()).map(|numbers| (name, numbers))
    })
}

fn named_rows(printed: &str, columns: &[(&str, &str)], id: &str) -> Outcome<Vec<Row>> {
    let mut rows = Vec::new();
    for (name, numbers) in table_rows(printed).filter(|(_, numbers)| numbers.len() == columns.len()) {
        let cells = columns.iter().zip(numbers);
        rows.extend(cells.map(|((column, unit), number)| Row::new(format!("{id}/{name}/{column}"), number, unit)));
    }
    if rows.is_empty() { Err(Failure::cannot_run(format!("no row of {id} was printed:\n{printed}"))) } else { Ok(rows) }
}

fn networks() -> Outcome<Measured> {
    let words = ["test", "--locked", "-p", "dmexp-tests", "--test", "predict", "fewer_bits", "--", "--nocapture"];
    let printed = process::capture(process::cargo().current_dir(paths::root()).args(words))?;
    let columns = ["f16", "bf16", "q8", "q8_one_group"].map(|column| (column, "largest error"));
    Ok((vec![format!("cargo {}", words.join(" "))], named_rows(&printed, &columns, "networks")?))
}

fn rustyml() -> Outcome<Measured> {
    let data = paths::root().join("../shared/data/rustyml");
    let exports = paths::root().join("target/figures/rustyml");
    std::fs::create_dir_all(&exports).map_err(|error| Failure::cannot_run(format!("cannot make {}: {error}", exports.display())))?;
    for entry in
        std::fs::read_dir(&data).map_err(|error| Failure::cannot_run(format!("cannot read {}: {error}", data.display())))?.flatten()
    {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(name) = name.strip_suffix(".v4.bin") else { continue };
        let mut export = models::dmexp()?;
        export.args(["export", "run", "--quiet", "--checkpoint"]).arg(entry.path());
        export.arg("--arch").arg(data.join(format!("{name}.v4.json"))).arg("--out").arg(exports.join(format!("{name}.dmexp")));
        process::capture(&mut export)?;
    }
    let words = ["run", "--locked", "--release", "--quiet", "-p", "dmexp-references", "--example", "rustyml_speed", "--"];
    let printed = process::capture(process::cargo().current_dir(paths::root()).args(words).arg(&data).arg(&exports))?;
    let columns = [("rustyml", "us"), ("dmexp", "us"), ("times", "times")];
    Ok((vec![format!("cargo {} DATA EXPORTS", words.join(" "))], named_rows(&printed, &columns, "rustyml")?))
}

#[cfg(test)]
mod tests {
    use super::super::record;
    use super::{SOURCES, table_rows};

    #[test]
    fn every_file_has_a_source() {
        for entry in std::fs::read_dir(record::folder()).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|kind| kind == "json") {
                let name = path.file_stem().unwrap().to_string_lossy().into_owned();
                assert!(SOURCES.iter().any(|source| source.name == name), "nothing measures {name}.json");
            }
        }
    }

    #[test]
    fn tables_are_read_without_their_heads() {
        let rows: Vec<_> = table_rows("x\n| model | a |\n|---|---|\n| one | 1.5 | 2 |\n| two | - |\n").collect();
        assert_eq!(rows, [("one", vec![1.5, 2.0])]);
    }
}

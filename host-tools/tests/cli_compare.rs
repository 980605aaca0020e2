//! `dmexp compare dtypes`, by running the real binary.

mod cli_support;

use cli_support::{Ran, Shape, TINY, any, checkpoint, files, folder, line, run, shared, tiny, tokenizer_bin};
use serde_json::Value;
use std::fs;
use std::path::Path;

/// Large enough that its weights are more than the file's head, and with a context that the windows do not fill.
const MADE: Shape = Shape { dim: 32, hidden: 48, layers: 1, heads: 2, kv_heads: 1, vocab: 256, seq: 32 };

const TEXT: &str = "Lily and Tom went to the park. They saw a big dog. \"Hello,\" said the dog. ";

/// A folder with a checkpoint whose tokens are bytes, and a text.
fn prepared() -> tempfile::TempDir {
    let folder = folder();
    fs::write(folder.path().join("tiny.bin"), checkpoint(&MADE, any)).unwrap();
    fs::write(folder.path().join("text.txt"), TEXT.repeat(3)).unwrap();
    folder
}

fn compare(folder: &Path, rest: &str) -> Ran {
    line(folder, &format!("compare dtypes tiny.bin --tokenizer bytes --text text.txt --window-bytes 24 --windows 4 --greedy 12 {rest}"))
}

fn row<'v>(found: &'v Value, dtype: &str) -> &'v Value {
    found["rows"].as_array().unwrap().iter().find(|row| row["dtype"] == dtype).unwrap()
}

#[test]
fn every_type_is_compared_with_f32() {
    let folder = prepared();
    let found = compare(folder.path(), "--json").json();
    let dtypes: Vec<&str> = found["rows"].as_array().unwrap().iter().map(|row| row["dtype"].as_str().unwrap()).collect();
    assert_eq!(dtypes, ["f32", "f16", "bf16", "q8", "q4"]);
    assert_eq!(found["source_bytes"], fs::metadata(folder.path().join("tiny.bin")).unwrap().len());
    assert_eq!((found["windows"].as_u64(), found["positions"].as_u64()), (Some(4), Some(4 * 24)));
    let number = |dtype: &str, key: &str| row(&found, dtype)[key].as_f64().unwrap_or_else(|| panic!("{dtype} {key}: {found}"));
    for (key, itself) in [("max_abs_delta", 0.0), ("mean_abs_delta", 0.0), ("kl", 0.0), ("top1", 1.0)] {
        assert_eq!(number("f32", key), itself, "{key}");
    }
    assert_eq!(number("f32", "perplexity"), number("f32", "perplexity_f32"));
    assert_eq!(row(&found, "f32")["greedy_equal"], found["greedy"]);
    // Fewer bits of fraction are further off, and smaller.
    for key in ["max_abs_delta", "mean_abs_delta", "kl"] {
        assert!(0.0 < number("f16", key) && number("f16", key) < number("bf16", key) && number("bf16", key) < number("q4", key), "{key}");
        assert!(number("q8", key) < number("q4", key), "{key}");
    }
    for (smaller, larger) in [("f16", "f32"), ("q8", "f16"), ("q4", "q8")] {
        assert!(number(smaller, "file_bytes") < number(larger, "file_bytes"));
    }
    for dtype in dtypes {
        let ratio = number(dtype, "file_bytes") / found["source_bytes"].as_f64().unwrap();
        assert!((number(dtype, "ratio") - ratio).abs() < 1e-12, "{dtype}");
        assert!(number(dtype, "perplexity") > 1.0 && number(dtype, "top1") <= 1.0);
        assert!(number(dtype, "greedy_equal") <= found["greedy"].as_f64().unwrap());
        assert!(number(dtype, "max_abs") <= 1.05 && number(dtype, "min_nonzero_abs") > 0.0 && row(&found, dtype)["flushed"].is_u64());
    }
    // The exports were made elsewhere and are gone.
    assert_eq!(files(folder.path()), ["text.txt", "tiny.bin"]);
    // The same again, to the bit.
    assert_eq!(compare(folder.path(), "--json").json(), found);
}

#[test]
fn an_export_has_the_bytes_that_the_table_says() {
    let folder = prepared();
    let found = compare(folder.path(), "--json --dtypes f16").json();
    line(folder.path(), "export run --checkpoint tiny.bin --tokenizer bytes --dtype f16 --no-golden --out a.dmexp --quiet").ok();
    assert_eq!(row(&found, "f16")["file_bytes"], fs::metadata(folder.path().join("a.dmexp")).unwrap().len());
}

#[test]
fn the_table_has_a_row_a_type() {
    let folder = prepared();
    let ran = compare(folder.path(), "--dtypes f16,bf16 --quiet").ok();
    assert_eq!(ran.err, "");
    let header = ran.text().lines().find(|line| line.contains("top-1")).unwrap();
    for column in
        ["type", "file", "of source", "max |w|", "min |w| > 0", "flushed", "max delta", "mean delta", "greedy", "KL", "perplexity"]
    {
        assert!(header.contains(column), "{column}: {header}");
    }
    let row = |dtype: &str| ran.text().lines().find(|line| line.split_whitespace().any(|word| word == dtype)).unwrap();
    for part in ["100.00%", "0.000e0", "12 of 12"] {
        assert!(row("f32").contains(part), "{part}: {}", row("f32"));
    }
    assert!(row("f16").contains('%') && row("bf16").contains(" of 12"));
    assert!(ran.text().contains("4 windows, 96 tokens; deltas, KL (nats a token) and top-1 against f32"), "{}", ran.text());
    // f32 is there whether it is named or not, and no type is there twice.
    let rows = |dtypes: &str| compare(folder.path(), &format!("--json --dtypes {dtypes}")).json()["rows"].as_array().unwrap().len();
    assert_eq!((rows("f32"), rows("f16"), rows("f16,f32,half")), (1, 2, 2));
}

#[test]
fn the_table_is_written_as_csv_and_drawn_as_svg() {
    let folder = prepared();
    let found = compare(folder.path(), "--json --csv table.csv --svg plot.svg").json();
    let csv = fs::read_to_string(folder.path().join("table.csv")).unwrap();
    let mut lines = csv.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let columns = lines.next().unwrap();
    assert_eq!(columns.len(), 13);
    for (cells, row) in lines.by_ref().zip(found["rows"].as_array().unwrap()) {
        assert_eq!(cells.len(), columns.len(), "{cells:?}");
        assert_eq!(cells[0], row["dtype"].as_str().unwrap());
        for (column, cell) in columns.iter().zip(cells).skip(1) {
            // The two texts call two columns by shorter names.
            let key = match *column {
                "max_delta" => "max_abs_delta",
                "mean_delta" => "mean_abs_delta",
                other => other,
            };
            let (cell, value) = (cell.parse::<f64>().unwrap(), row[key].as_f64().unwrap());
            assert!((cell - value).abs() <= 1e-6 * value.abs(), "{column}: {cell} {value}");
        }
    }
    assert_eq!(lines.next(), None);
    let svg = fs::read_to_string(folder.path().join("plot.svg")).unwrap();
    assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
    for part in ["f16", "bf16", "q8", "q4", "KL divergence, nats a token", "bytes, percent of f32"] {
        assert!(svg.lines().any(|line| line.trim() == part), "{part}");
    }
}

#[test]
fn a_type_that_cannot_hold_the_weights_is_a_row_that_says_why() {
    let folder = prepared();
    let large = |place: usize| if place == 256 * 32 + 32 + 3 { 70000.0 } else { any(place) };
    fs::write(folder.path().join("tiny.bin"), checkpoint(&MADE, large)).unwrap();
    let found = compare(folder.path(), "--json --dtypes f16,bf16 --csv table.csv").json();
    assert!(row(&found, "f16")["refused"].as_str().unwrap().contains("70000"), "{found}");
    assert!(row(&found, "bf16")["kl"].is_f64());
    let csv = fs::read_to_string(folder.path().join("table.csv")).unwrap();
    assert!(csv.lines().any(|line| line == format!("f16{}", ",".repeat(12))), "{csv}");
    let ran = compare(folder.path(), "--dtypes f16,bf16 --quiet").ok();
    assert!(ran.text().lines().any(|line| line.starts_with("f16: ") && line.contains("70000")), "{}", ran.text());
}

#[test]
fn what_cannot_be_compared_is_refused_in_one_line() {
    let folder = prepared();
    fs::write(folder.path().join("empty.txt"), "").unwrap();
    fs::write(folder.path().join("other.bin"), tokenizer_bin(&["a", "b"])).unwrap();
    let with = |rest: &str| line(folder.path(), &format!("compare dtypes {rest}"));
    with("tiny.bin --text text.txt").refused(1, &["the checkpoint has no tokenizer", "--tokenizer"]);
    with("tiny.bin --text none.txt --tokenizer bytes").refused(1, &["none.txt", "cannot be read"]);
    with("none.bin --text text.txt --tokenizer bytes").refused(1, &["none.bin", "cannot be read"]);
    with("text.txt --text text.txt --tokenizer bytes").refused(1, &["text.txt"]);
    with("tiny.bin --text empty.txt --tokenizer bytes").refused(1, &["there is no text to compare on"]);
    with("tiny.bin --text text.txt --tokenizer none.json").refused(1, &["none.json", "cannot be read"]);
    with("tiny.bin --text text.txt --tokenizer other.bin").refused(1, &["other.bin", "261", "256"]);
    with("tiny.bin --text text.txt --tokenizer bytes --dtypes f64").refused(2, &["f64"]);
    with("tiny.bin --text text.txt --tokenizer bytes --windows 0").refused(2, &["--windows"]);
    with("tiny.bin --text text.txt --tokenizer bytes --window-bytes 0").refused(2, &["--window-bytes"]);
    with("tiny.bin --tokenizer bytes").refused(2, &["--text"]);
    // Where nothing diverges there is nothing to draw; files that are read are not written over.
    with("tiny.bin --text text.txt --tokenizer bytes --dtypes f32 --svg plot.svg").refused(1, &["there is nothing to plot", "--dtypes"]);
    with("tiny.bin --text text.txt --tokenizer bytes --csv text.txt").refused(1, &["text.txt"]);
    with("tiny.bin --text text.txt --tokenizer bytes --svg tiny.bin").refused(1, &["tiny.bin"]);
    with("tiny.bin --text text.txt --tokenizer bytes --csv nowhere/table.csv").refused(1, &["nowhere"]);
    assert_eq!(files(folder.path()), ["empty.txt", "other.bin", "text.txt", "tiny.bin"]);
    assert_eq!(fs::read_to_string(folder.path().join("text.txt")).unwrap(), TEXT.repeat(3));
    tiny(folder.path());
    with("tiny.dmexp --text text.txt").refused(1, &["tiny.dmexp"]);
}

#[test]
fn a_text_without_a_token_is_named() {
    let folder = folder();
    fs::write(folder.path().join("tiny.bin"), checkpoint(&Shape { vocab: 100, ..TINY }, any)).unwrap();
    fs::write(folder.path().join("text.txt"), "abc~").unwrap();
    line(folder.path(), "compare dtypes tiny.bin --tokenizer bytes --text text.txt").refused(1, &["byte"]);
}

#[test]
fn stories260k_is_nearer_to_itself_in_f16_than_in_bf16() {
    let (Some(model), Some(tokenizer), Some(text)) =
        (shared("stories260K/stories260K.bin"), shared("stories260K/tok512.bin"), shared("ref/stories260K_greedy_n256.txt"))
    else {
        return;
    };
    let folder = folder();
    let path = |path: &Path| path.to_str().unwrap().to_owned();
    let found = run(
        folder.path(),
        &[
            "compare".to_owned(),
            "dtypes".to_owned(),
            path(&model),
            "--tokenizer".to_owned(),
            path(&tokenizer),
            "--text".to_owned(),
            path(&text),
            "--windows".to_owned(),
            "2".to_owned(),
            "--greedy".to_owned(),
            "32".to_owned(),
            "--dtypes".to_owned(),
            "f16,bf16".to_owned(),
            "--json".to_owned(),
        ],
    )
    .json();
    let number = |dtype: &str, key: &str| row(&found, dtype)[key].as_f64().unwrap();
    assert!(number("f32", "perplexity") < 4.0, "{found}");
    assert!(number("f16", "kl") < number("bf16", "kl") && number("bf16", "kl") < 1e-3, "{found}");
    assert!(number("f16", "top1") > 0.99 && number("f16", "flushed") == 0.0, "{found}");
}

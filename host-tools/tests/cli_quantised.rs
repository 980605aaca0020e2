//! `dmexp export run` with `--dtype q8` and `q4`, `--group`, `--tensor` and `--quality`, by running the real binary: what is written, what is reported, and every refusal.

mod cli_support;

use cli_support::{Shape, any, checkpoint, files, folder, line, run};
use serde_json::Value;
use std::fs;
use tempfile::TempDir;

/// Rows of 16 and of 24: longer than a group of 8, and of 16 only where they are those of `w2`.
const SHAPE: Shape = Shape { dim: 16, hidden: 24, layers: 2, heads: 4, kv_heads: 2, vocab: 256, seq: 64 };

/// A folder with `m.bin`, and a text of three windows and a half.
fn with_model() -> TempDir {
    let folder = folder();
    fs::write(folder.path().join("m.bin"), checkpoint(&SHAPE, any)).unwrap();
    fs::write(folder.path().join("text"), "what is measured is what is written here. ".repeat(20)).unwrap();
    folder
}

/// Exports `m.bin` with these options and returns the report, after `verify` took the file.
fn exported(folder: &TempDir, options: &str) -> Value {
    let command = format!("export run --checkpoint m.bin --tokenizer bytes --out x.dmexp --json --tensors {options}");
    let report = line(folder.path(), &command).json();
    let verified = line(folder.path(), "export verify x.dmexp --json").json();
    assert_eq!(verified["passed"], true, "{options}: {verified}");
    report
}

/// Type and group of these tensors, as `info` says them of the file.
fn stored(folder: &TempDir, names: &[&str]) -> Vec<(String, u64)> {
    let info = line(folder.path(), "export info x.dmexp --json").json();
    let tensors = info["header"]["tensors"].as_array().unwrap();
    let of = |name: &&str| {
        let tensor = tensors.iter().find(|tensor| tensor["name"] == **name).unwrap();
        (tensor["dtype"].as_str().unwrap().to_owned(), tensor["group"].as_u64().unwrap_or(0))
    };
    names.iter().map(of).collect()
}

const NAMES: [&str; 4] = ["tok_embeddings.weight", "layers.0.attention.wq.weight", "layers.1.feed_forward.w2.weight", "norm.weight"];

fn types(list: [(&str, u64); 4]) -> Vec<(String, u64)> {
    list.map(|(dtype, group)| (dtype.to_owned(), group)).to_vec()
}

#[test]
fn q8_and_q4_store_matrices_in_groups_and_vectors_in_f32() {
    let folder = with_model();
    for (options, expected) in [
        ("--dtype q8", [("q8", 0), ("q8", 0), ("q8", 0), ("f32", 0)]),
        ("--dtype q8 --group 16", [("q8", 0), ("q8", 0), ("q8", 16), ("f32", 0)]),
        ("--dtype q8 --group 8", [("q8", 8), ("q8", 8), ("q8", 8), ("f32", 0)]),
        ("--dtype Q8 --group 0", [("q8", 0), ("q8", 0), ("q8", 0), ("f32", 0)]),
        // Longer than any row: one group a row.
        ("--dtype q8 --group 4294967288", [("q8", 0), ("q8", 0), ("q8", 0), ("f32", 0)]),
        // The embedding, which is the classifier too, stays in q8 unless it is named.
        ("--dtype q4 --group 8", [("q8", 8), ("q4", 8), ("q4", 8), ("f32", 0)]),
        ("--dtype q4 --group 8 --tensor *=q4", [("q4", 8), ("q4", 8), ("q4", 8), ("f32", 0)]),
        // The last that fits counts, and gives its own group.
        ("--tensor layers.*=q8:8 --tensor layers.1.*=q4:16 --tensor tok_*=f16", [("f16", 0), ("q8", 8), ("q4", 16), ("f32", 0)]),
        ("--dtype q8 --group 8 --tensor *.w2.*=q8:0", [("q8", 8), ("q8", 8), ("q8", 0), ("f32", 0)]),
    ] {
        let report = exported(&folder, options);
        assert_eq!(stored(&folder, &NAMES), types(expected), "{options}");
        let coarse = report["warnings"].as_array().unwrap().iter().any(|warning| warning.as_str().unwrap().contains("q4 is coarse"));
        assert_eq!(coarse, options.contains("q4"), "{options}: {report}");
        assert!(report["quality"].is_null());
    }
    // And what is written runs.
    line(folder.path(), "generate --export x.dmexp --prompt a --steps 8 --temp 0").ok();
}

#[test]
fn groups_and_selections_that_cannot_be_are_refused_and_nothing_is_written() {
    let folder = with_model();
    let before = files(folder.path());
    let refused = |options: &[&str], code: i32, parts: &[&str]| {
        let words = ["export", "run", "--checkpoint", "m.bin", "--tokenizer", "bytes", "--out", "x.dmexp"];
        run(folder.path(), &[&words[..], options].concat()).refused(code, parts);
        assert_eq!(files(folder.path()), before, "{options:?}");
    };
    refused(&["--dtype", "q8", "--group", "7"], 1, &["groups of 7 elements", "a multiple of 8, or 0"]);
    refused(&["--dtype", "q4", "--group", "12"], 1, &["groups of 12 elements"]);
    refused(&["--dtype", "q8", "--group", "-8"], 2, &["-8", "--group"]);
    refused(&["--dtype", "q8", "--group", "many"], 2, &["many", "--group"]);
    refused(&["--dtype", "q6"], 2, &["q6", "q8, q4 or t2"]);
    refused(&["--dtype", "t2"], 1, &["tok_embeddings.weight", "t2 holds 0 and one value", "--dtype q8"]);
    refused(&["--dtype", "q8", "--format", "1"], 1, &["format 1", "export format 2"]);
    refused(&["--format", "1", "--tensor", "*=q8"], 1, &["format 1", "export format 2"]);
    // Patterns.
    refused(
        &["--tensor", "output.weight=q8"],
        1,
        &["no tensor of this model is called \"output.weight\"", "tok_embeddings.weight", "more"],
    );
    refused(&["--tensor", "layers.2.*=q8"], 1, &["\"layers.2.*\""]);
    refused(&["--tensor", "*norm.weight=q8"], 1, &["\"*norm.weight\" are vectors, which stay f32"]);
    // One that names something does not hide one that does not.
    refused(&["--tensor", "*=q8", "--tensor", "*.bias=q8"], 1, &["\"*.bias\""]);
    for (wrong, part) in [
        ("layers.*", "PATTERN=TYPE"),
        ("=q8", "PATTERN=TYPE"),
        ("*=", "q8, q4 or t2"),
        ("*=q5", "q8, q4 or t2"),
        ("*=q8:", "multiple of 8"),
        ("*=q8:7", "multiple of 8"),
        ("*=q8:-8", "multiple of 8"),
        ("*=bf16:32", "bf16 has none"),
    ] {
        refused(&["--tensor", wrong], 2, &[part]);
    }
}

#[test]
fn a_quality_report_says_what_the_text_showed() {
    let folder = with_model();
    let quality = |options: &str| exported(&folder, &format!("{options} --quality text"))["quality"].clone();
    let same = quality("--dtype f32");
    assert_eq!((same["kl"].as_f64(), same["top1"].as_f64(), same["text"].as_str()), (Some(0.0), Some(1.0), Some("text")));
    assert_eq!(same["perplexity"], same["reference_perplexity"]);
    // A context of 64 cuts the windows, each of which begins with a token that begins texts.
    assert_eq!(same["positions"].as_u64(), Some(64 * same["windows"].as_u64().unwrap()));
    let (eight, four) = (quality("--dtype q8"), quality("--dtype q4 --tensor *=q4"));
    let kl = |quality: &Value| quality["kl"].as_f64().unwrap();
    assert!(kl(&eight) > 0.0 && kl(&four) > 10.0 * kl(&eight), "{eight} {four}");
    assert_eq!(four["reference_perplexity"], same["perplexity"]);
    let ran = line(folder.path(), "export run --checkpoint m.bin --tokenizer bytes --dtype q4 --quality text --out x.dmexp").ok();
    for part in ["compared on", "windows of text", "KL from f32", "a token", "same best token", "of a logit", "perplexity"] {
        assert!(ran.text().contains(part), "{part}: {}", ran.text());
    }
    assert!(ran.err.contains("q4 is coarse for a model of"), "{}", ran.err);
    assert!(!ran.err.contains("were compared"), "{}", ran.err);
    // A text of a word says little, and the report says so.
    fs::write(folder.path().join("text"), "word").unwrap();
    let ran = line(folder.path(), "export run --checkpoint m.bin --tokenizer bytes --dtype q8 --quality text --out x.dmexp").ok();
    assert!(ran.err.contains("only 4 positions were compared") && ran.text().contains("4 tokens in 1 window of text"), "{ran:?}");
    assert_eq!(files(folder.path()), ["m.bin", "text", "x.dmexp"]);
}

#[test]
fn a_text_that_cannot_be_measured_with_is_refused_and_nothing_is_written() {
    let folder = with_model();
    let before = files(folder.path());
    let refused = |options: &str, parts: &[&str]| {
        line(folder.path(), &format!("export run --checkpoint m.bin --dtype q8 --out x.dmexp {options}")).refused(1, parts);
        assert_eq!(files(folder.path()), before, "{options}");
    };
    refused("--quality text", &["no tokenizer", "--tokenizer"]);
    refused("--quality text --tokenizer none", &["no tokenizer", "--tokenizer"]);
    refused("--quality missing --tokenizer bytes", &["missing"]);
    refused("--quality . --tokenizer bytes", &["."]);
    // Loading onto another file measures nothing, and so takes no text.
    line(folder.path(), "export run --checkpoint m.bin --onto m.dmexp --out x.dmexp --quality text").refused(2, &["--onto", "--quality"]);
    // The text is never written over.
    line(folder.path(), "export run --checkpoint m.bin --tokenizer bytes --quality text --out text").refused(1, &["text"]);
    assert_eq!(files(folder.path()), before);
}

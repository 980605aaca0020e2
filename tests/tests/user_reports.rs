//! Faults that users of other runners met, on the real command, where no other crate's test has them: `report_NN_*` is entry NN of the table in `USER_REPORTS.md`, which names the tests of all entries.

use dmexp_tests::damage::{payload_start, put, record, word};
use dmexp_tests::{files, folder, line, root, run, story, tiny};
use std::fs;
use std::path::Path;

/// A tokenizer.bin of `pieces` pieces: three special ones, the bytes, a space and as many others as are needed.
fn tokenizer_of(pieces: usize) -> Vec<u8> {
    let special = ["<unk>", "\n<s>\n", "\n</s>\n"].map(str::to_owned).into_iter();
    let bytes = (0..256).map(|byte| format!("<0x{byte:02X}>"));
    let all: Vec<String> = special.chain(bytes).chain([" ".to_owned()]).chain((260..pieces).map(|number| format!("p{number}"))).collect();
    let longest = all.iter().map(String::len).max().expect("pieces") as u32;
    let mut file = longest.to_le_bytes().to_vec();
    for piece in &all {
        file.extend((0.0f32).to_le_bytes());
        file.extend((piece.len() as u32).to_le_bytes());
        file.extend(piece.bytes());
    }
    file
}

/// That an export of the story model with this tokenizer is refused, and leaves nothing.
#[track_caller]
fn tokenizer_refused(folder: &Path, tokenizer: &str, parts: &[&str]) {
    let before = files(folder);
    let checkpoint = story().checkpoint.display().to_string();
    run(folder, &["export", "run", "--checkpoint", &checkpoint, "--tokenizer", tokenizer, "--out", "m.dmexp"]).refused(parts);
    assert_eq!(files(folder), before);
}

#[test]
fn report_10_a_tokenizer_of_32000_pieces_does_not_go_with_a_model_of_512() {
    let folder = folder();
    for pieces in [511, 513, 32_000, 32_016] {
        fs::write(folder.path().join("tok.bin"), tokenizer_of(pieces)).unwrap();
        tokenizer_refused(folder.path(), "tok.bin", &["tok.bin", &format!("{pieces} pieces"), "512 tokens"]);
    }
    // The other way round: a model of 128 tokens and the tokenizer of 512.
    let (checkpoint, tokenizer) =
        (tiny().checkpoint.display().to_string(), root().join("models/story.tokenizer.bin").display().to_string());
    let words = ["export", "run", "--checkpoint", &checkpoint, "--tokenizer", &tokenizer, "--out", "m.dmexp"];
    run(folder.path(), &words).refused(&["512 pieces", "128 tokens"]);
    assert_eq!(files(folder.path()), ["tok.bin"]);
}

/// A file whose weights became NaN after it was made, which only `--check` looks at: the run itself stops at the first logits, greedy or not.
#[test]
fn report_11_logits_that_are_no_numbers_end_the_run() {
    let folder = folder();
    let export = tiny().export(folder.path(), "m.dmexp", "--dtype f32");
    let mut bytes = fs::read(&export).unwrap();
    for element in 0..24 {
        // The embedding row of token 0, which begins every text.
        let at = payload_start(&bytes) + word(&bytes, record(&bytes, 0) + 32) as usize + 4 * element;
        put(&mut bytes, at, &f32::NAN.to_le_bytes());
    }
    fs::write(&export, bytes).unwrap();
    for settings in ["--temp 0", "--temp 0.8 --top-p 0.9 --seed 1", "--temp 1 --top-p 1 --seed 1"] {
        let ran = line(folder.path(), &format!("generate --export m.dmexp --steps 5 {settings}"));
        assert_eq!(ran.code, Some(1), "{ran:?}");
        assert!(ran.text().trim().is_empty(), "no token comes out: {ran:?}");
        let last = ran.err.lines().last().unwrap();
        assert!(last.starts_with("dmexp: ") && last.contains("finite") && !ran.err.contains("panicked"), "{ran:?}");
    }
}

/// What is cut off in the middle of a character by the end of the text is shown as one U+FFFD, and whole characters never are.
#[test]
fn report_14_characters_come_out_of_byte_tokens() {
    let folder = folder();
    fs::write(folder.path().join("tok.bin"), tokenizer_of(260)).unwrap();
    let text = "日本 😀 é";
    let ids = run(folder.path(), &["tokenize", "--tokenizer", "tok.bin", "--text", text]).succeeded();
    let ids: Vec<&str> = ids.text().split_whitespace().collect();
    let shown = |ids: &[&str]| {
        let ran = run(folder.path(), &["detokenize", "--tokenizer", "tok.bin", "--tokens", &ids.join(",")]).succeeded();
        String::from_utf8_lossy(&ran.out).trim_end_matches('\n').to_owned()
    };
    assert_eq!(shown(&ids), text);
    assert_eq!(shown(&ids[..ids.len() - 1]), "日本 😀 \u{fffd}");
}

#[test]
fn report_24_tokenizers_of_other_kinds_are_named_and_never_taken_for_sentencepiece() {
    let folder = folder();
    let json = br#"{"version": "1.0", "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}}"#;
    fs::write(folder.path().join("tokenizer.json"), json).unwrap();
    tokenizer_refused(folder.path(), "tokenizer.json", &["tokenizer.json", "it has no normalizer"]);
    // A GGUF file, which is where a byte-level vocabulary of 49,152 pieces would come from, as a model and as a tokenizer.
    let mut gguf = b"GGUF\x03\0\0\0".to_vec();
    gguf.resize(1_000, 0);
    fs::write(folder.path().join("m.gguf"), gguf).unwrap();
    tokenizer_refused(folder.path(), "m.gguf", &["m.gguf", "GGUF"]);
    line(folder.path(), "export run --checkpoint m.gguf --out m.dmexp").refused(&["m.gguf", "GGUF"]);
    assert_eq!(files(folder.path()), ["m.gguf", "tokenizer.json"]);
}

/// Logits that are all but equal, and a nucleus that is all but empty: the likeliest token is left.
#[test]
fn report_28_the_nucleus_is_never_empty() {
    let folder = folder();
    tiny().export(folder.path(), "m.dmexp", "--dtype f32");
    let tokens = |settings: &str| {
        let json = line(folder.path(), &format!("generate --export m.dmexp --steps 20 --ignore-eos --json {settings}")).json();
        json["tokens"].clone()
    };
    let greedy = tokens("--temp 0");
    for settings in ["--temp 50 --top-p 1e-30 --seed 3", "--temp 1000 --top-p 1e-45 --seed 4", "--temp 1 --top-k 1 --seed 5"] {
        assert_eq!(tokens(settings), greedy, "{settings}");
    }
}

/// Every test that `USER_REPORTS.md` names is there.
#[test]
fn the_tests_of_the_table_exist() {
    fn sources(folder: &Path, all: &mut String) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                sources(&path, all);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                all.push_str(&fs::read_to_string(path).unwrap());
            }
        }
    }
    let mut all = String::new();
    for folder in ["host-tools/src", "host-tools/tests", "tests/tests"] {
        sources(&root().join(folder), &mut all);
    }
    let table = fs::read_to_string(root().join("tests/USER_REPORTS.md")).unwrap();
    let quoted = table.split('`').skip(1).step_by(2);
    let names = quoted.filter(|name| name.contains("::") || name.starts_with("report_")).filter_map(|name| name.rsplit("::").next());
    let names: Vec<&str> = names.filter(|name| !name.contains(['*', ' ']) && *name != "test").collect();
    assert!(names.len() > 70, "{names:?}");
    let missing: Vec<_> = names.into_iter().filter(|name| !all.contains(&format!("fn {name}("))).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

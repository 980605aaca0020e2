//! `dmexp tokenize`, `detokenize`, `logits`, `completions`, `man` and the help, by running the real binary. Tests named `report_N` are entry N of the collected reports of what users ran into.

mod cli_support;

use cli_support::{Shape, TINY, any, checkpoint, files, folder, line, piped, run, shared, stories, tiny, tokenizer_bin};
use dmexp_tools::checkpoint::byte_level::character_of;
use serde_json::{Value, json};
use std::fs;

#[test]
fn text_becomes_ids_and_ids_become_text() {
    let folder = folder();
    tiny(folder.path());
    let ids = run(folder.path(), &["tokenize", "--export", "tiny.dmexp", "--text", "a b"]).ok();
    assert_eq!(ids.text(), "0 97 32 98\n");
    let ids = run(folder.path(), &["tokenize", "--export", "tiny.dmexp", "--text", "a b", "--no-bos"]).ok();
    assert_eq!(ids.text(), "97 32 98\n");
    let json = run(folder.path(), &["tokenize", "--export", "tiny.dmexp", "--text", "é", "--no-bos", "--json"]).json();
    assert_eq!(json["tokens"][0]["id"], 195);
    assert_eq!(json["tokens"][0]["bytes"], json!([195]));
    let text = run(folder.path(), &["detokenize", "--export", "tiny.dmexp", "--tokens", "0,97, 32 98"]).ok();
    assert_eq!(text.text(), "a b\n");
    let json = run(folder.path(), &["detokenize", "--export", "tiny.dmexp", "--tokens", "195,169", "--json"]).json();
    assert_eq!(json, json!({ "text": "é" }));
    // Stdin is taken byte for byte.
    let input = b"x\n\xff\x01y";
    let ids = piped(folder.path(), &["tokenize", "--export", "tiny.dmexp", "--text", "-"], input).ok();
    assert_eq!(ids.text(), "0 120 10 255 1 121\n");
    // The token 0 means that a text begins: a byte 0 in a text does not.
    piped(folder.path(), &["tokenize", "--export", "tiny.dmexp", "--text", "-"], b"x\0").refused(1, &["0x00", "offset 1"]);
}

#[test]
fn lists_of_tokens_are_strict() {
    let folder = folder();
    tiny(folder.path());
    for wrong in ["", ",", "1,", "1,,2", "x", "-1", "1.0", "4294967296"] {
        run(folder.path(), &["detokenize", "--export", "tiny.dmexp", "--tokens", wrong]).refused(1, &["token"]);
        run(folder.path(), &["logits", "--export", "tiny.dmexp", "--tokens", wrong]).refused(1, &["token"]);
    }
    for command in ["detokenize", "logits"] {
        run(folder.path(), &[command, "--export", "tiny.dmexp", "--tokens", "1,256"]).refused(1, &["token 256", "256", "0 to 255"]);
    }
}

/// A byte-level tokenizer.json whose normaliser composes: the 256 bytes, `é` as one piece, and special tokens.
fn composing() -> Value {
    let text: Vec<String> = (0..=255).map(|byte| character_of(byte).to_string()).collect();
    let mut vocab: serde_json::Map<String, Value> = text.iter().cloned().zip((0..256).map(Value::from)).collect();
    let (first, second) = (&text[0xC3], &text[0xA9]);
    vocab.insert(format!("{first}{second}"), json!(256));
    json!({
        "added_tokens": [{"id": 257, "content": "<|im_start|>", "special": true}, {"id": 258, "content": "<|im_end|>", "special": true}],
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
        "decoder": {"type": "ByteLevel"},
        "model": {"type": "BPE", "vocab": vocab, "merges": [[first, second]]}
    })
}

#[test]
fn text_is_composed_where_the_tokenizer_composes() {
    let folder = folder();
    fs::write(folder.path().join("tokenizer.json"), composing().to_string()).unwrap();
    fs::write(folder.path().join("c.bin"), checkpoint(&Shape { vocab: 259, ..TINY }, any)).unwrap();
    line(folder.path(), "export run --checkpoint c.bin --tokenizer tokenizer.json --dtype f32 --out c.dmexp --quiet").ok();
    let info = line(folder.path(), "export info c.dmexp --json").json();
    assert_eq!(info["header"]["tokenizer"]["normalizer"], "nfc");
    line(folder.path(), "export verify c.dmexp").ok();
    for from in [&["--export", "c.dmexp"], &["--tokenizer", "tokenizer.json"]] {
        for text in ["ae\u{301}", "a\u{e9}"] {
            let ids = run(folder.path(), &[&["tokenize", "--text", text][..], from].concat()).ok();
            assert_eq!(ids.text(), "97 256\n", "{text:?}");
        }
    }
    let prompt = |text: &str| {
        let steps = ["generate", "--export", "c.dmexp", "--steps", "2", "--temp", "0", "--json", "--prompt", text];
        run(folder.path(), &steps).json()["prompt_tokens"].clone()
    };
    assert_eq!(prompt("e\u{301}"), json!([256]));
    let logits = |text: &str| run(folder.path(), &["logits", "--export", "c.dmexp", "--text", text, "--json"]).json();
    assert_eq!(logits("e\u{301}"), logits("\u{e9}"));
}

#[test]
fn a_tokenizer_needs_no_model() {
    let folder = folder();
    fs::write(folder.path().join("tok.bin"), tokenizer_bin(&[" ", "a", "b", "ab"])).unwrap();
    let ids = run(folder.path(), &["tokenize", "--tokenizer", "tok.bin", "--text", "ab<s>é"]).ok();
    assert_eq!(ids.text(), "1 259 262 63 118 65 198 172\n");
    let text = run(folder.path(), &["detokenize", "--tokenizer", "tok.bin", "--tokens", "1 259 262 63 118 65 198 172"]).ok();
    assert_eq!(text.text(), "ab<s>é\n");
    assert_eq!(run(folder.path(), &["tokenize", "--tokenizer", "bytes", "--text", "ab"]).ok().text(), "97 98\n");
    run(folder.path(), &["tokenize", "--text", "ab"]).refused(2, &["--export", "--tokenizer"]);
    tiny(folder.path());
    run(folder.path(), &["tokenize", "--tokenizer", "tiny.bin", "--text", "ab"]).refused(1, &["llama2.c checkpoint", "not a tokenizer"]);
    run(folder.path(), &["tokenize", "--tokenizer", "tiny.dmexp", "--text", "ab"]).refused(1, &["--export"]);
}

#[test]
fn report_12_18_23_text_is_encoded_as_the_reference_does() {
    let Some(vectors) = shared("ref/tokenizer_encode_vectors.json") else { return };
    let folder = folder();
    if stories(folder.path(), "bf16").is_none() {
        return;
    }
    let vectors: Vec<Value> = serde_json::from_slice(&fs::read(vectors).unwrap()).unwrap();
    assert!(vectors.len() > 20);
    for vector in vectors {
        let hex = vector["bytes_hex"].as_str().unwrap();
        let text: Vec<u8> = (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect();
        let ids = piped(folder.path(), &["tokenize", "--export", "stories.dmexp", "--text", "-"], &text).ok();
        let expected: Vec<String> = vector["run_c_tok512"].as_array().unwrap().iter().map(Value::to_string).collect();
        assert_eq!(ids.text().trim_end(), expected.join(" "), "{:?}", vector["text"]);
        let back = piped(folder.path(), &["detokenize", "--export", "stories.dmexp", "--tokens", "-"], &ids.out).ok();
        assert_eq!(back.out, [&text[..], b"\n"].concat(), "{:?}", vector["text"]);
    }
}

#[test]
fn report_13_long_runs_of_continuation_bytes_are_only_bytes() {
    let folder = folder();
    if stories(folder.path(), "bf16").is_none() {
        return;
    }
    for bytes in [&[0x80; 1000][..], b"\xff", b"\xf0\x9f\x98", &[0xf0; 77]] {
        let ids = piped(folder.path(), &["tokenize", "--export", "stories.dmexp", "--text", "-"], bytes).ok();
        // The token that begins a text, the space before it, and a token a byte.
        assert_eq!(ids.text().split_whitespace().count(), 2 + bytes.len());
        let back = piped(folder.path(), &["detokenize", "--export", "stories.dmexp", "--tokens", "-"], &ids.out).ok();
        assert_eq!(back.out, [bytes, b"\n"].concat());
    }
}

#[test]
fn logits_are_written_as_rows_of_f32() {
    let folder = folder();
    tiny(folder.path());
    let ran = line(folder.path(), "logits --export tiny.dmexp --tokens 0,97,98 --out logits.f32 --kv f32").ok();
    assert!(ran.text().contains("3 rows of 256 f32"), "{}", ran.text());
    let bytes = fs::read(folder.path().join("logits.f32")).unwrap();
    assert_eq!(bytes.len(), 3 * 256 * 4);
    // The same by text, and what is shown is what is written.
    let json = line(folder.path(), "logits --export tiny.dmexp --text ab --kv f32 --json").json();
    assert_eq!(json["positions"].as_array().unwrap().len(), 3);
    for (row, shown) in bytes.chunks_exact(256 * 4).zip(json["positions"].as_array().unwrap()) {
        let logits: Vec<f32> = row.chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap())).collect();
        let best = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let token = shown["top5"][0]["token"].as_u64().unwrap() as usize;
        assert_eq!((logits[token], shown["top5"][0]["logit"].as_f64().unwrap() as f32), (best, best));
    }
    let table = line(folder.path(), "logits --export tiny.dmexp --tokens 0,97,98").ok();
    assert_eq!(table.text().lines().count(), 4, "{}", table.text());
    // Nothing is left of a run that fails.
    fs::remove_file(folder.path().join("logits.f32")).unwrap();
    let long = vec!["1"; 33].join(",");
    run(folder.path(), &["logits", "--export", "tiny.dmexp", "--tokens", &long, "--out", "logits.f32"])
        .refused(1, &["33 tokens", "32 positions"]);
    line(folder.path(), "logits --export tiny.dmexp --tokens 1 --out no/l.f32").refused(1, &["no/l.f32"]);
    line(folder.path(), "logits --export tiny.dmexp --tokens 1 --out .").refused(1, &["a folder"]);
    line(folder.path(), "logits --export tiny.dmexp --tokens 1 --out tiny.dmexp").refused(1, &["would be replaced"]);
    #[cfg(unix)]
    line(folder.path(), "logits --export tiny.dmexp --tokens 1 --out /dev/null").refused(1, &["/dev/null", "not a regular file"]);
    line(folder.path(), "logits --export tiny.dmexp").refused(2, &["--tokens", "--text"]);
    line(folder.path(), "logits --export tiny.dmexp --tokens 1 --text a").refused(2, &["cannot be used with"]);
    assert_eq!(files(folder.path()), ["tiny.bin", "tiny.dmexp"]);
}

#[test]
fn logits_of_the_reference_model_are_those_of_the_reference() {
    let (Some(greedy), Some(reference)) = (shared("ref/stories260K_greedy.json"), shared("ref/stories260K_greedy_logits_f64.f32")) else {
        return;
    };
    let folder = folder();
    if stories(folder.path(), "f32").is_none() {
        return;
    }
    let greedy: Value = serde_json::from_slice(&fs::read(greedy).unwrap()).unwrap();
    let tokens: Vec<String> = greedy["fed_tokens"].as_array().unwrap().iter().map(Value::to_string).collect();
    run(folder.path(), &["logits", "--export", "stories.dmexp", "--kv", "f32", "--out", "l.f32", "--tokens", &tokens.join(",")]).ok();
    let (ours, theirs) = (fs::read(folder.path().join("l.f32")).unwrap(), fs::read(reference).unwrap());
    assert_eq!((ours.len(), theirs.len()), (256 * 512 * 4, 256 * 512 * 4));
    let values = |bytes: &[u8]| bytes.chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap())).collect::<Vec<_>>();
    let worst = values(&ours).iter().zip(values(&theirs)).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(worst <= 3e-5, "{worst}");
}

#[test]
fn help_of_every_command_has_examples() {
    let folder = folder();
    for command in [
        "",
        "export",
        "export run",
        "export info",
        "export verify",
        "export strip",
        "generate",
        "tokenize",
        "detokenize",
        "logits",
        "completions",
        "man",
    ] {
        for flag in ["--help", "-h"] {
            let ran = line(folder.path(), &format!("{command} {flag}")).ok();
            assert!(ran.text().contains("Example") && ran.err.is_empty(), "{command}: {ran:?}");
        }
    }
    let top = line(folder.path(), "--help").ok();
    assert!(top.text().contains("Exit codes: 0") && top.text().contains("1000"), "{}", top.text());
    assert_eq!(line(folder.path(), "--version").ok().text(), concat!("dmexp ", env!("CARGO_PKG_VERSION"), "\n"));
}

#[test]
fn a_wrong_command_line_is_exit_code_2() {
    let folder = folder();
    for wrong in ["generate", "generate --export a --no-such-flag", "no-such-command", "export run", "completions tcsh"] {
        line(folder.path(), wrong).refused(2, &[]);
    }
    assert_eq!(line(folder.path(), "").code, Some(2));
    assert_eq!(line(folder.path(), "export").code, Some(2));
}

#[test]
fn completions_and_manual_pages_know_every_command() {
    let folder = folder();
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let ran = line(folder.path(), &format!("completions {shell}")).ok();
        assert!(ran.text().contains("repeat-penalty") && ran.text().contains("detokenize"), "{shell}");
    }
    assert!(line(folder.path(), "man").ok().text().contains(".TH dmexp"));
    fs::create_dir(folder.path().join("pages")).unwrap();
    line(folder.path(), "man --out pages").ok();
    let pages = files(&folder.path().join("pages"));
    for page in ["dmexp.1", "dmexp-generate.1", "dmexp-export.1", "dmexp-export-run.1"] {
        assert!(pages.iter().any(|name| name == page), "{pages:?}");
    }
    line(folder.path(), "man --out nowhere").refused(1, &["nowhere"]);
}

#[test]
fn a_text_has_bits_a_byte_and_a_perplexity() {
    let folder = folder();
    tiny(folder.path());
    let text = "the quick brown fox, the lazy dog and a window or two more than one";
    fs::write(folder.path().join("text"), text).unwrap();
    let report = line(folder.path(), "score --export tiny.dmexp --text text --json").json();
    let score = &report["scores"][0];
    let figure = |name: &str| score[name].as_f64().unwrap();
    // Every byte is a token, and a token before them begins each window.
    assert_eq!((figure("bytes_scored"), figure("tokens_scored"), figure("windows")), (text.len() as f64, text.len() as f64, 3.0));
    // Of each position the probabilities as the logits give them.
    let bytes = text.as_bytes();
    let mut bits = 0.0;
    for window in bytes.chunks(31) {
        let ids: Vec<String> = std::iter::once(0).chain(window.iter().copied()).map(|byte| byte.to_string()).collect();
        line(folder.path(), &format!("logits --export tiny.dmexp --tokens {} --out logits.f32", ids.join(","))).ok();
        let logits = fs::read(folder.path().join("logits.f32")).unwrap();
        for (row, next) in logits.chunks(256 * 4).zip(window) {
            let row: Vec<f64> = row.chunks(4).map(|bytes| f64::from(f32::from_le_bytes(bytes.try_into().unwrap()))).collect();
            bits += (row.iter().map(|logit| logit.exp()).sum::<f64>().ln() - row[usize::from(*next)]) / std::f64::consts::LN_2;
        }
    }
    assert!((figure("bits_per_byte") - bits / bytes.len() as f64).abs() < 1e-9, "{score}");
    assert!((figure("perplexity") - (bits / bytes.len() as f64).exp2()).abs() < 1e-6, "{score}");
    let said = line(folder.path(), "perplexity --export tiny.dmexp --text text --threads 2").ok();
    assert!(said.text().contains(&format!("perplexity {:.3} over 67 tokens", figure("perplexity"))), "{said:?}");
    fs::write(folder.path().join("none"), "").unwrap();
    line(folder.path(), "perplexity --export tiny.dmexp --text none").refused(1, &["nothing to score"]);
}

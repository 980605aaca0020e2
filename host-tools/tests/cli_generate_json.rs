//! `dmexp generate --json`: a line for each token as it comes, and one at the end.

mod cli_support;

use cli_support::{Shape, any, checkpoint, dmexp, ending, folder, line, run, shared, stories, tiny};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::process::Stdio;

/// Lines of tokens, and the last line.
fn split(mut lines: Vec<Value>) -> (Vec<Value>, Value) {
    let end = lines.pop().expect("a line");
    assert_eq!(end["event"], "end");
    assert!(lines.iter().all(|line| line["event"] == "token"), "{lines:?}");
    (lines, end)
}

/// The texts of all lines, and what came with no token.
fn joined(tokens: &[Value], end: &Value) -> String {
    tokens.iter().map(|line| line["text"].as_str().unwrap()).chain(end["rest"].as_str()).collect()
}

fn bytes(value: &Value) -> Vec<u8> {
    value.as_array().unwrap().iter().map(|byte| byte.as_u64().unwrap() as u8).collect()
}

#[test]
fn each_token_has_a_line_and_the_texts_of_all_lines_are_the_text() {
    let folder = folder();
    tiny(folder.path());
    // Random bytes as tokens: most of them are parts of characters, and some texts end within one.
    let mut cut = 0;
    for seed in 1..12 {
        let words = format!("generate --export tiny.dmexp --temp 50 --top-p 1 --steps 20 --ignore-eos --seed {seed}");
        let (tokens, end) = split(line(folder.path(), &format!("{words} --json")).lines());
        assert_eq!(end["counts"], json!({ "prompt": 1, "new": 20 }));
        assert_eq!(tokens.iter().map(|line| line["id"].clone()).collect::<Vec<_>>(), *end["tokens"].as_array().unwrap());
        assert!(tokens.iter().enumerate().all(|(index, line)| line["index"] == index && line.get("logprob").is_none()), "{tokens:?}");
        let all: Vec<u8> = tokens.iter().flat_map(|line| bytes(&line["bytes"])).collect();
        assert_eq!(end["text"], *String::from_utf8_lossy(&all));
        assert_eq!(end["text"], joined(&tokens, &end));
        cut += u32::from(end["rest"] != "");
        let shown = line(folder.path(), &format!("{words} --no-echo")).ok();
        assert_eq!(shown.text(), format!("{}\n", end["text"].as_str().unwrap()));
    }
    assert!(cut > 0, "no text ends within a character");
}

#[test]
fn a_line_comes_with_its_token_and_not_at_the_end() {
    let folder = folder();
    let shape = Shape { dim: 64, hidden: 128, layers: 4, heads: 4, kv_heads: 4, vocab: 256, seq: 60_000 };
    std::fs::write(folder.path().join("long.bin"), checkpoint(&shape, any)).unwrap();
    line(folder.path(), "export run --checkpoint long.bin --tokenizer bytes --bos 0 --dtype f32 --out long.dmexp --quiet").ok();
    let words = "generate --export long.dmexp --steps 50000 --ignore-eos --json";
    let mut child = dmexp(folder.path()).args(words.split(' ')).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    for index in 0..3 {
        let told: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        assert_eq!((&told["event"], &told["index"]), (&json!("token"), &json!(index)));
    }
    assert!(child.try_wait().unwrap().is_none(), "the text goes on");
    // A reader that has seen enough is no failure.
    drop(lines);
    let ended = child.wait_with_output().unwrap();
    assert_eq!((ended.status.code(), String::from_utf8(ended.stderr).unwrap().as_str()), (Some(0), ""));
}

#[test]
fn probabilities_are_those_of_the_model_and_asking_for_them_changes_nothing() {
    let folder = folder();
    tiny(folder.path());
    let prompt = ["--prompt", "abc", "--steps", "12", "--ignore-eos", "--json"];
    let with = |more: &[&str]| split(run(folder.path(), &[&["generate", "--export", "tiny.dmexp"], &prompt[..], more].concat()).lines());
    for settings in [
        &["--temp", "0"][..],
        &["--temp", "0", "--repeat-penalty", "1.5"],
        &["--seed", "3"],
        &["--seed", "4", "--temp", "9", "--top-k", "40", "--min-p", "0.01", "--repeat-penalty", "1.2"],
    ] {
        let (_, plain) = with(settings);
        let (tokens, end) = with(&[settings, &["--logprobs", "3"]].concat());
        assert_eq!((&end["tokens"], &end["text"], &end["stop"]), (&plain["tokens"], &plain["text"], &plain["stop"]));
        assert_eq!(end["prefill"]["tokens"], plain["prefill"]["tokens"]);
        let known = end["prompt_tokens"].as_array().unwrap().iter().chain(end["tokens"].as_array().unwrap());
        let known: Vec<String> = known.map(Value::to_string).collect();
        // Of the logits after each position, by another command.
        let list = known[..known.len() - 1].join(",");
        run(folder.path(), &["logits", "--export", "tiny.dmexp", "--tokens", &list, "--out", "rows.f32"]).ok();
        let rows = std::fs::read(folder.path().join("rows.f32")).unwrap();
        std::fs::remove_file(folder.path().join("rows.f32")).unwrap();
        let rows: Vec<f64> = rows.chunks_exact(4).map(|four| f64::from(f32::from_le_bytes(four.try_into().unwrap()))).collect();
        for (line, row) in tokens.iter().zip(rows.chunks_exact(256).skip(3)) {
            let sum = row.iter().map(|logit| logit.exp()).sum::<f64>().ln();
            let id = line["id"].as_u64().unwrap() as usize;
            assert!((line["logprob"].as_f64().unwrap() - (row[id] - sum)).abs() < 1e-6, "{line}");
            let top = line["top_logprobs"].as_array().unwrap();
            assert_eq!(top.len(), 3);
            let best = row.iter().copied().fold(f64::MIN, f64::max) - sum;
            assert!((top[0]["logprob"].as_f64().unwrap() - best).abs() < 1e-6, "{line}");
            assert!(top.windows(2).all(|two| two[0]["logprob"].as_f64() >= two[1]["logprob"].as_f64()), "{line}");
            // Token 0 begins texts and stands for none.
            let means = |id: u64| if id == 0 { Vec::new() } else { vec![id as u8] };
            assert!(top.iter().all(|other| bytes(&other["bytes"]) == means(other["id"].as_u64().unwrap())), "{line}");
        }
    }
    let (tokens, _) = with(&["--temp", "0", "--logprobs", "0"]);
    assert!(tokens.iter().all(|line| line["logprob"].is_f64() && line["top_logprobs"] == json!([])), "{tokens:?}");
    line(folder.path(), "generate --export tiny.dmexp --logprobs 2").refused(2, &["--json"]);
}

#[test]
fn every_way_to_stop_is_told() {
    let folder = folder();
    tiny(folder.path());
    ending(folder.path());
    for more in ["", " --logprobs 1"] {
        let (tokens, end) = split(line(folder.path(), &format!("generate --export end.dmexp --prompt a --temp 0 --json{more}")).lines());
        assert_eq!((tokens.len(), &end["stop"]), (0, &json!({ "reason": "end_of_text", "token": 2 })));
        let (tokens, end) = split(line(folder.path(), &format!("generate --export tiny.dmexp --ignore-eos --temp 0 --json{more}")).lines());
        assert_eq!((tokens.len(), &end["stop"]["reason"]), (32, &json!("context_full")));
        let (tokens, end) =
            split(line(folder.path(), &format!("generate --export tiny.dmexp --prompt abc --steps 0 --json{more}")).lines());
        assert_eq!((tokens.len(), &end["stop"]["reason"], &end["text"]), (0, &json!("max_tokens"), &json!("")));
    }
    // A stop text of two characters: what might have been its beginning comes late, and it does not come at all.
    let words = "generate --export tiny.dmexp --temp 9 --top-p 1 --seed 5 --ignore-eos --json";
    let (_, whole) = split(line(folder.path(), words).lines());
    let text = whole["text"].as_str().unwrap().to_owned();
    let characters: Vec<char> = text.chars().collect();
    let two = characters.windows(2).skip(8).find(|two| !two.contains(&'\0')).expect("an argument holds any other character");
    let stop: String = two.iter().collect();
    let (tokens, end) = split(run(folder.path(), &[&words.split(' ').collect::<Vec<_>>()[..], &["--stop", &stop]].concat()).lines());
    assert_eq!(end["stop"]["reason"], "stop_string");
    assert_eq!(end["text"], text[..text.find(&stop).unwrap()]);
    assert_eq!((joined(&tokens, &end), &end["rest"]), (end["text"].as_str().unwrap().to_owned(), &json!("")));
}

#[test]
fn of_a_real_model_a_script_can_put_the_text_together() {
    let folder = folder();
    if shared("stories260K/stories260K.bin").is_none() || stories(folder.path(), "q8").is_none() {
        return;
    }
    let words = "generate --export stories.dmexp --prompt Lily --steps 40 --seed 9 --json --logprobs 2";
    let (tokens, end) = split(line(folder.path(), words).lines());
    assert_eq!(joined(&tokens, &end), end["text"].as_str().unwrap());
    assert!(tokens.iter().all(|line| bytes(&line["bytes"]) == line["text"].as_str().unwrap().as_bytes()), "{tokens:?}");
    assert!(tokens.iter().all(|line| (-99.0..=0.0).contains(&line["logprob"].as_f64().unwrap())), "{tokens:?}");
    assert!(end["decode"]["tokens_per_s"].as_f64().unwrap() > 0.0 && end["settings"]["seed"] == 9, "{end}");
}

//! `dmexp generate`, by running the real binary. Tests named `report_N` are entry N of the collected reports of what users ran into.

mod cli_support;

use cli_support::{dmexp, ending, flip, folder, line, piped, run, shared, stories, tiny, tokenizer_bin};
use serde_json::Value;
use std::io::Read;
use std::process::Stdio;

#[test]
fn text_goes_to_stdout_and_figures_to_stderr() {
    let folder = folder();
    tiny(folder.path());
    let ran = line(folder.path(), "generate --export tiny.dmexp --prompt abc --steps 5 --seed 7").ok();
    assert!(ran.text().starts_with("abc") && ran.text().ends_with('\n'), "{ran:?}");
    for part in ["seed: 7", "5 new tokens; stopped: as many as asked for", "prefill: ", "decode: ", "arena: ", "f16"] {
        assert!(ran.err.contains(part), "{part}: {}", ran.err);
    }
    assert!(!ran.err.contains("inf") && !ran.err.contains("NaN"), "{}", ran.err);
}

#[test]
fn json_is_all_there_is_on_stdout() {
    let folder = folder();
    tiny(folder.path());
    let json = line(folder.path(), "generate --export tiny.dmexp --prompt abc --steps 5 --seed 7 --json").json();
    assert_eq!(json["event"], "end");
    assert_eq!(json["counts"], serde_json::json!({ "prompt": 4, "new": 5 }));
    assert_eq!(json["tokens"].as_array().unwrap().len(), 5);
    assert_eq!(json["prompt_tokens"], serde_json::json!([0, 97, 98, 99]));
    assert_eq!(json["stop"]["reason"], "max_tokens");
    assert_eq!(json["settings"]["seed"], 7);
    assert_eq!(json["settings"]["temp"], 0.8);
    assert_eq!(json["context"], 32);
    let again = line(folder.path(), "generate --export tiny.dmexp --prompt abc --steps 5 --seed 7").ok();
    assert_eq!(again.text(), format!("abc{}\n", json["text"].as_str().unwrap()));
    let bare = line(folder.path(), "generate --export tiny.dmexp --prompt abc --steps 5 --seed 7 --no-echo").ok();
    assert_eq!(bare.text(), format!("{}\n", json["text"].as_str().unwrap()));
}

#[test]
fn a_prompt_may_come_from_a_file_or_stdin() {
    let folder = folder();
    tiny(folder.path());
    std::fs::write(folder.path().join("p.txt"), "abc").unwrap();
    let direct = line(folder.path(), "generate --export tiny.dmexp --prompt abc --steps 4 --seed 1").ok();
    let file = line(folder.path(), "generate --export tiny.dmexp --prompt-file p.txt --steps 4 --seed 1").ok();
    let stdin =
        piped(folder.path(), &["generate", "--export", "tiny.dmexp", "--prompt-file", "-", "--steps", "4", "--seed", "1"], b"abc").ok();
    assert_eq!(direct.out, file.out);
    assert_eq!(direct.out, stdin.out);
    line(folder.path(), "generate --export tiny.dmexp --prompt-file none.txt").refused(1, &["none.txt", "cannot be read"]);
}

#[test]
fn what_is_no_dmexp_is_named_with_the_command_that_converts_it() {
    let folder = folder();
    tiny(folder.path());
    let ran = line(folder.path(), "generate --export tiny.bin")
        .refused(1, &["tiny.bin: is a llama2.c checkpoint", "convert it: dmexp export run"]);
    // The command works as it stands.
    let command = ran.err.trim_end().split_once("convert it: dmexp ").unwrap().1;
    std::fs::remove_file(folder.path().join("tiny.dmexp")).unwrap();
    line(folder.path(), command).ok();
    line(folder.path(), "export verify tiny.dmexp").ok();
    for (name, bytes, says) in [
        ("m.gguf", &b"GGUF\x03\0\0\0"[..], "a GGUF file"),
        ("page", b"<!DOCTYPE html><html>", "a web page"),
        ("pointer", b"version https://git-lfs.github.com/spec/v1\n", "Git LFS pointer"),
        ("empty", b"", "an empty file"),
        ("text", b"hello there\n", "a text file"),
        ("zip", b"PK\x03\x04aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "a zip archive"),
    ] {
        std::fs::write(folder.path().join(name), bytes).unwrap();
        line(folder.path(), &format!("generate --export {name}")).refused(1, &[name, says]);
    }
    line(folder.path(), "generate --export .").refused(1, &["a folder"]);
    line(folder.path(), "generate --export none.dmexp").refused(1, &["none.dmexp", "cannot be read"]);
}

#[test]
fn models_of_dormouse_take_bytes_and_options_of_their_own() {
    let folder = folder();
    tiny(folder.path());
    line(folder.path(), "generate --export tiny.dmexp --steps 1 --decoding fast").refused(1, &["no model of dormouse", "--decoding"]);
    line(folder.path(), "generate --export tiny.dmexp --steps 1 --compat").refused(1, &["--compat is for models of dormouse"]);
    let Some(file) = shared("dormouse/default.f32.dmexp") else { return };
    let with = |words: &str| {
        let mut arguments = vec!["generate".as_ref(), "--export".as_ref(), file.as_os_str()];
        arguments.extend(words.split(' ').map(std::ffi::OsStr::new));
        run(folder.path(), &arguments)
    };
    let tokens = |words: &str| with(&format!("--prompt hello --steps 20 --seed 3 --json {words}")).json()["tokens"].clone();
    let exact = tokens("--decoding exact");
    assert_eq!(exact, tokens("--decoding full"));
    assert_ne!(exact, tokens("--factors raw"));
    // Printable ASCII alone, and what is drawn is what the next byte is drawn after.
    let compat = tokens("--compat");
    assert!(compat.as_array().unwrap().iter().all(|byte| (32..=126).contains(&byte.as_u64().unwrap())), "{compat}");
    assert!(exact.as_array().unwrap().iter().any(|byte| !(32..=126).contains(&byte.as_u64().unwrap())), "{exact}");
    with("--prompt hello --steps 1").ok();
    with("--steps 1").refused(1, &["the prompt is empty"]);
    with("--prompt hello --steps 1 --tokenizer bytes").ok();
    with("--prompt hello --steps 1 --tokenizer other.json").refused(1, &["dormouse", "leave --tokenizer out"]);
    with("--prompt hello --kda-scale 0").refused(2, &["above 0"]);
    let scored = run(
        folder.path(),
        &[
            "score".as_ref(),
            "--export".as_ref(),
            file.as_os_str(),
            "--text".as_ref(),
            file.with_file_name("default.json").as_os_str(),
            "--context".as_ref(),
            "16".as_ref(),
            "--json".as_ref(),
        ],
    );
    let scores = scored.json()["scores"].clone();
    let of = |place: usize| scores[place]["bits_per_byte"].as_f64().unwrap();
    assert_eq!((&scores[0]["convention"], &scores[1]["convention"]), (&"prefix".into(), &"full".into()));
    assert!((7.0..9.0).contains(&of(0)) && of(0) != of(1) && (of(0) - of(1)).abs() < 0.1, "{scores}");
}

#[test]
fn checks_are_made_on_request() {
    let folder = folder();
    tiny(folder.path());
    line(folder.path(), "generate --export tiny.dmexp --check --steps 1").ok();
    flip(&folder.path().join("tiny.dmexp"), |len| len - 9);
    line(folder.path(), "generate --export tiny.dmexp --check --steps 1").refused(1, &["does not pass its checks", "export verify"]);
}

#[test]
fn a_reader_that_leaves_early_is_no_failure() {
    let folder = folder();
    tiny(folder.path());
    for arguments in [
        "generate --export tiny.dmexp --steps 20",
        "export info tiny.dmexp --tensors",
        "export verify tiny.dmexp",
        "man",
        "completions bash",
        "--help",
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = dmexp(folder.path()).args(arguments.split(' ')).stdout(writer).stderr(Stdio::piped()).output().unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(0), "{arguments}: {err}");
        assert!(!err.contains("panicked") && !err.contains("dmexp:"), "{arguments}: {err}");
    }
}

#[test]
fn nothing_is_coloured_in_a_pipe() {
    let folder = folder();
    tiny(folder.path());
    for arguments in ["export verify tiny.dmexp", "generate --export tiny.bin", "generate --help", "generate --temp x"] {
        let ran = line(folder.path(), arguments);
        assert!(!ran.out.contains(&0x1b) && !ran.err.contains('\x1b'), "{arguments}: {ran:?}");
    }
}

#[test]
fn a_file_of_format_1_wants_its_tokenizer_named() {
    let folder = folder();
    tiny(folder.path());
    line(folder.path(), "export run --checkpoint tiny.bin --tokenizer bytes --bos 0 --dtype f32 --format 1 --out one.dmexp --quiet").ok();
    line(folder.path(), "generate --export one.dmexp --prompt a --steps 3").refused(1, &["carries no tokenizer", "--tokenizer"]);
    let one = line(folder.path(), "generate --export one.dmexp --tokenizer bytes --prompt a --steps 9 --seed 3").ok();
    let two = line(folder.path(), "generate --export tiny.dmexp --prompt a --steps 9 --seed 3").ok();
    assert_eq!(one.out, two.out);
    line(folder.path(), "generate --export tiny.dmexp --tokenizer bytes").refused(1, &["carries its own tokenizer"]);
    std::fs::write(folder.path().join("tok.bin"), tokenizer_bin(&[" "])).unwrap();
    line(folder.path(), "generate --export one.dmexp --tokenizer tok.bin").refused(1, &["260 pieces", "256 tokens"]);
}

#[test]
fn report_12_14_text_in_any_script_is_shown() {
    let folder = folder();
    if stories(folder.path(), "bf16").is_none() {
        return;
    }
    let prompt = "日本 😀 café hi";
    let ran = run(folder.path(), &["generate", "--export", "stories.dmexp", "--steps", "8", "--prompt", prompt]).ok();
    assert!(ran.text().starts_with(prompt), "{ran:?}");
}

#[cfg(unix)]
#[test]
fn report_13_a_prompt_need_not_be_utf8() {
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt;
    let folder = folder();
    tiny(folder.path());
    let long = OsString::from_vec(vec![0x80; 1000]);
    let arguments = |prompt: OsString| {
        ["generate", "--export", "tiny.dmexp", "--steps", "0", "--prompt"].map(OsString::from).into_iter().chain([prompt])
    };
    run(folder.path(), &arguments(long).collect::<Vec<_>>()).refused(1, &["1001 tokens", "room for 32"]);
    for bytes in [&b"\xff"[..], b"\xf0\x9f\x98", b"a\x80b"] {
        let ran = run(folder.path(), &arguments(OsString::from_vec(bytes.to_vec())).collect::<Vec<_>>()).ok();
        assert!(ran.text().contains('\u{fffd}'), "{ran:?}");
    }
}

#[test]
fn report_15_every_flush_ends_with_a_whole_character() {
    let folder = folder();
    tiny(folder.path());
    // Random bytes as tokens: most of them are parts of characters.
    for seed in 1..6 {
        let arguments = format!("generate --export tiny.dmexp --temp 50 --top-p 1 --seed {seed}");
        let mut child = dmexp(folder.path()).args(arguments.split(' ')).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut out = child.stdout.take().unwrap();
        let mut buffer = [0; 4096];
        loop {
            let len = out.read(&mut buffer).unwrap();
            if len == 0 {
                break;
            }
            std::str::from_utf8(&buffer[..len]).expect("whole characters");
        }
        assert!(child.wait().unwrap().success());
    }
}

#[test]
fn report_16_a_space_is_dropped_at_the_beginning_of_a_text_alone() {
    let folder = folder();
    if stories(folder.path(), "bf16").is_none() {
        return;
    }
    let ran = line(folder.path(), "generate --export stories.dmexp --temp 0 --steps 3").ok();
    assert!(ran.text().starts_with("Once"), "{ran:?}");
    let ran = run(folder.path(), &["generate", "--export", "stories.dmexp", "--steps", "0", "--prompt", "  two spaces"]).ok();
    assert_eq!(ran.text(), "  two spaces\n");
}

#[test]
fn report_21_26_a_prompt_longer_than_the_context_or_the_count_is_refused_with_both_numbers() {
    let folder = folder();
    tiny(folder.path());
    let long = "a".repeat(320);
    run(folder.path(), &["generate", "--export", "tiny.dmexp", "--prompt", &long]).refused(1, &["321 tokens", "room for 32"]);
    let some = "a".repeat(20);
    run(folder.path(), &["generate", "--export", "tiny.dmexp", "--positions", "5", "--prompt", &some])
        .refused(1, &["21 tokens", "5 positions"]);
    run(folder.path(), &["generate", "--export", "tiny.dmexp", "--steps", "13", "--prompt", &some])
        .refused(1, &["13 new tokens", "33 positions", "32", "--steps 12"]);
    let full = run(folder.path(), &["generate", "--export", "tiny.dmexp", "--temp", "0", "--prompt", &some]).ok();
    assert!(full.err.contains("12 new tokens; stopped: all 32 positions of the context are used"), "{}", full.err);
}

#[test]
fn report_23_special_tokens_and_escapes_are_plain_text_unless_asked_for() {
    let folder = folder();
    tiny(folder.path());
    let ids = |arguments: &[&str]| {
        let common = ["generate", "--export", "tiny.dmexp", "--steps", "0", "--json"];
        run(folder.path(), &[&common, arguments].concat()).json()["prompt_tokens"].clone()
    };
    assert_eq!(ids(&["--prompt", "\\n"]), serde_json::json!([0, 92, 110]));
    assert_eq!(ids(&["--prompt", "\\n\\x41", "--escapes"]), serde_json::json!([0, 10, 65]));
    run(folder.path(), &["generate", "--export", "tiny.dmexp", "--prompt", "\\q", "--escapes"]).refused(1, &["\\q", "\\xNN"]);
    if stories(folder.path(), "bf16").is_some() {
        let json = run(folder.path(), &["generate", "--export", "stories.dmexp", "--steps", "0", "--json", "--prompt", "<s>"]).json();
        let tokens = json["prompt_tokens"].as_array().unwrap();
        assert_eq!(tokens.iter().filter(|token| **token == 1).count(), 1, "{tokens:?}");
    }
}

#[test]
fn report_25_counts_are_strict() {
    let folder = folder();
    tiny(folder.path());
    let none = line(folder.path(), "generate --export tiny.dmexp --prompt abc --steps 0").ok();
    assert_eq!(none.text(), "abc\n");
    assert!(none.err.contains("0 new tokens"), "{}", none.err);
    for wrong in ["-1", "abc", "1.5", "99999999999"] {
        line(folder.path(), &format!("generate --export tiny.dmexp --steps {wrong}")).refused(2, &[wrong, "--steps"]);
        line(folder.path(), &format!("generate --export tiny.dmexp --positions {wrong}")).refused(2, &[wrong, "--positions"]);
    }
    line(folder.path(), "generate --export tiny.dmexp --positions 0").refused(2, &["from 1"]);
    line(folder.path(), "generate --export tiny.dmexp --steps 1 --positions 1").refused(2, &["cannot be used with"]);
    line(folder.path(), "generate --export tiny.dmexp --steps 33").refused(1, &["33 new tokens", "the context has 32"]);
    line(folder.path(), "generate --export tiny.dmexp --context 33").refused(1, &["33", "32"]);
    line(folder.path(), "generate --export tiny.dmexp --context 0").refused(2, &["--context"]);
    line(folder.path(), "generate --export tiny.dmexp --kv q4").refused(2, &["f32, f16 or q8"]);
    let one = line(folder.path(), "generate --export tiny.dmexp --context 1").ok();
    assert!(one.err.contains("1 new token; stopped: all 1 positions"), "{}", one.err);
}

#[test]
fn report_27_the_end_of_a_text_stops_and_the_reason_is_told() {
    let folder = folder();
    ending(folder.path());
    let ran = line(folder.path(), "generate --export end.dmexp --prompt a --temp 0").ok();
    assert!(ran.err.contains("0 new tokens; stopped: the model ended the text (token 2)"), "{ran:?}");
    let json = line(folder.path(), "generate --export end.dmexp --prompt a --temp 0 --json").json();
    assert_eq!(json["stop"], serde_json::json!({ "reason": "end_of_text", "token": 2 }));
    let on = line(folder.path(), "generate --export end.dmexp --prompt a --temp 0 --ignore-eos --steps 5").ok();
    assert!(on.err.contains("5 new tokens; stopped: as many as asked for"), "{on:?}");
}

#[test]
fn report_27_stop_texts_end_a_text_and_are_not_shown() {
    let folder = folder();
    tiny(folder.path());
    let all = line(folder.path(), "generate --export tiny.dmexp --temp 0 --steps 12 --no-echo --json").json();
    let text = all["text"].as_str().unwrap();
    // A character from the middle that did not come up before.
    let (at, stop) = text
        .char_indices()
        .rfind(|(at, c)| *at > 0 && !c.is_control() && *c != '\u{fffd}' && !text[..*at].contains(*c))
        .unwrap_or((0, text.chars().next().unwrap()));
    let ran = run(folder.path(), &["generate", "--export", "tiny.dmexp", "--temp", "0", "--steps", "12", "--stop", &stop.to_string()]).ok();
    assert_eq!(ran.text(), format!("{}\n", &text[..at]));
    assert!(ran.err.contains("a --stop text came up"), "{}", ran.err);
    run(folder.path(), &["generate", "--export", "tiny.dmexp", "--stop", ""]).refused(1, &["1 to 64 bytes"]);
}

#[test]
fn report_28_sampling_settings_at_their_edges() {
    let folder = folder();
    tiny(folder.path());
    line(folder.path(), "generate --export tiny.dmexp --top-p 0").refused(2, &["--top-p", "no token at all", "--temp 0"]);
    for (flag, wrong) in [
        ("temp", "nan"),
        ("temp", "-1"),
        ("temp", "inf"),
        ("top-p", "nan"),
        ("top-p", "1.5"),
        ("top-k", "-1"),
        ("min-p", "1"),
        ("repeat-penalty", "0"),
    ] {
        line(folder.path(), &format!("generate --export tiny.dmexp --{flag} {wrong}")).refused(2, &[flag, wrong]);
    }
    let greedy = line(folder.path(), "generate --export tiny.dmexp --temp 0 --steps 9").ok();
    for temperature in ["1e-45", "1e-40"] {
        let ran = line(folder.path(), &format!("generate --export tiny.dmexp --temp {temperature} --steps 9 --top-p 1e-30")).ok();
        assert_eq!(ran.out, greedy.out);
    }
    line(folder.path(), "generate --export tiny.dmexp --top-k 3 --min-p 0.1 --repeat-penalty 1.3 --top-p 1 --steps 20").ok();
}

#[test]
fn report_30_the_same_seed_gives_the_tokens_of_the_reference() {
    let folder = folder();
    let Some(settings) = shared("ref/stories260K_sampled.json") else { return };
    if stories(folder.path(), "f32").is_none() {
        return;
    }
    let settings: Vec<Value> = serde_json::from_slice(&std::fs::read(settings).unwrap()).unwrap();
    assert!(!settings.is_empty());
    for case in settings {
        // llama2.c takes 0 positions for all there are.
        let positions = match case["steps"].as_u64().unwrap() {
            0 => 512,
            positions => positions,
        };
        let (temp, top_p, seed) = (case["temp"].to_string(), case["topp"].to_string(), case["seed"].to_string());
        let prompt = case["prompt"].as_str().unwrap();
        let positions = positions.to_string();
        let arguments = [
            "generate",
            "--export",
            "stories.dmexp",
            "--kv",
            "f32",
            "--json",
            "--positions",
            &positions,
            "--temp",
            &temp,
            "--top-p",
            &top_p,
            "--seed",
            &seed,
            "--prompt",
            prompt,
        ];
        let json = run(folder.path(), &arguments).json();
        let tokens: Vec<&Value> = json["prompt_tokens"].as_array().unwrap().iter().chain(json["tokens"].as_array().unwrap()).collect();
        let expected: Vec<&Value> = case["ids_run_c_O0"].as_array().unwrap().iter().collect();
        assert_eq!(tokens, expected, "temperature {temp}, top-p {top_p}, seed {seed}, prompt {prompt:?}");
    }
}

#[test]
fn report_30_the_text_is_that_of_the_reference() {
    let folder = folder();
    let (Some(greedy), Some(drawn)) = (shared("ref/stories260K_greedy_n256.txt"), shared("ref/stories260K_t0.8_p0.9_s42_n256.txt")) else {
        return;
    };
    if stories(folder.path(), "f32").is_none() {
        return;
    }
    let ran = line(folder.path(), "generate --export stories.dmexp --positions 256 --temp 0 --kv f32").ok();
    assert_eq!(ran.out, std::fs::read(greedy).unwrap());
    let ran = line(folder.path(), "generate --export stories.dmexp --positions 256 --seed 42 --kv f32").ok();
    assert_eq!(ran.out, std::fs::read(drawn).unwrap());
}

#[test]
fn report_31_seeds_are_u64_and_always_told() {
    let folder = folder();
    tiny(folder.path());
    for wrong in ["0", "-1", "18446744073709551616", "1.5", "now"] {
        line(folder.path(), &format!("generate --export tiny.dmexp --seed {wrong}")).refused(2, &["--seed", wrong]);
    }
    let ran = line(folder.path(), "generate --export tiny.dmexp --seed 18446744073709551615 --steps 1").ok();
    assert!(ran.err.contains("seed: 18446744073709551615\n"), "{}", ran.err);
    // The seed that is told gives the same text again.
    let ran = line(folder.path(), "generate --export tiny.dmexp --temp 5").ok();
    let seed = ran.err.lines().next().unwrap().strip_prefix("seed: ").unwrap();
    let again = line(folder.path(), &format!("generate --export tiny.dmexp --temp 5 --seed {seed}")).ok();
    assert_eq!(ran.out, again.out);
}

#[test]
fn report_32_speeds_are_apart_and_never_infinite() {
    let folder = folder();
    tiny(folder.path());
    for steps in [0, 1, 2] {
        let json = line(folder.path(), &format!("generate --export tiny.dmexp --prompt abc --steps {steps} --ignore-eos --json")).json();
        assert_eq!(json["prefill"]["tokens"], if steps == 0 { 0 } else { 4 });
        assert_eq!(json["decode"]["tokens"], u64::from(steps == 2), "the first token comes out of the prefill");
        assert!(json["decode"]["tokens_per_s"].is_null());
        let ran = line(folder.path(), &format!("generate --export tiny.dmexp --steps {steps} --ignore-eos")).ok();
        assert!(ran.err.contains("decode: n/a"), "{}", ran.err);
    }
    let json = line(folder.path(), "generate --export tiny.dmexp --prompt abc --steps 20 --ignore-eos --json").json();
    for phase in ["prefill", "decode"] {
        let (tokens, seconds) = (json[phase]["tokens"].as_f64().unwrap(), json[phase]["seconds"].as_f64().unwrap());
        assert!((json[phase]["tokens_per_s"].as_f64().unwrap() * seconds - tokens).abs() < 1e-6);
    }
}

//! What users of other runners met (`tests/USER_REPORTS.md`), over HTTP: `report_N` is entry N of the list, where it can happen to a server.

mod cli_support;
#[path = "cli_support/http.rs"]
mod http;

use cli_support::{Shape, any, checkpoint, ending, folder, line, run, shared, stories, tokenizer_bin};
use http::{Server, ask, get, json_events, send};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

const SHAPE: Shape = Shape { dim: 16, hidden: 24, layers: 2, heads: 2, kv_heads: 1, vocab: 256, seq: 160 };
/// With a tokenizer that has special tokens.
const SPECIAL: Shape = Shape { vocab: 264, seq: 2048, ..SHAPE };
const TEMPLATE: &str = "{{ bos_token }}{% for message in messages %}[{{ message.role }}]{{ message.content }}{{ eos_token }}{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}";

/// `m.dmexp`, whose tokens are bytes, byte 0 beginning every text, and a server of it.
fn of_bytes(folder: &Path, arguments: &[&str]) -> Server {
    fs::write(folder.join("model.bin"), checkpoint(&SHAPE, |place| any(place) * 1.5)).unwrap();
    line(folder, "export run --checkpoint model.bin --tokenizer bytes --bos 0 --dtype f32 --out m.dmexp --quiet").ok();
    Server::start(folder, &[&["--export", "m.dmexp"], arguments].concat())
}

/// The same with begin and end of text, and a chat template.
fn of_pieces(folder: &Path, arguments: &[&str]) -> Server {
    fs::write(folder.join("model.bin"), checkpoint(&SPECIAL, |place| any(place) * 1.5)).unwrap();
    fs::write(folder.join("tok.bin"), tokenizer_bin(&[" ", "a", "b", "[", "]"])).unwrap();
    fs::write(folder.join("chat.jinja"), TEMPLATE).unwrap();
    line(folder, "export run --checkpoint model.bin --tokenizer tok.bin --dtype f32 --out m.dmexp --quiet").ok();
    Server::start(folder, &[&["--export", "m.dmexp", "--chat-template", "chat.jinja"], arguments].concat())
}

/// Asks for it as a whole and streamed: the same text and reason, which are returned with the number of new tokens.
#[track_caller]
fn both(server: &Server, body: &Value) -> (String, String, u64) {
    let whole = ask(server.address, "/v1/completions", body).json(200);
    let mut streamed = body.clone();
    streamed["stream"] = true.into();
    streamed["seed"] = whole["seed"].clone();
    let events = json_events(&ask(server.address, "/v1/completions", &streamed).text(200));
    let text: String = events.iter().map(|event| event["choices"][0]["text"].as_str().unwrap()).collect();
    assert_eq!(whole["choices"][0]["text"], text, "{body}");
    let reason = &whole["choices"][0]["finish_reason"];
    assert_eq!(events.last().unwrap()["choices"][0]["finish_reason"], *reason, "{body}");
    (text, reason.as_str().unwrap().to_owned(), whole["usage"]["completion_tokens"].as_u64().unwrap())
}

/// The message of a refusal for this field.
#[track_caller]
fn refused(server: &Server, path: &str, body: &Value, param: &Value) -> String {
    let reply = ask(server.address, path, body).json(400);
    assert_eq!((&reply["error"]["param"], &reply["error"]["type"]), (param, &json!("invalid_request_error")), "{body}: {reply}");
    reply["error"]["message"].as_str().unwrap().to_owned()
}

#[test]
fn report_11_logits_that_are_no_numbers_are_an_error_and_the_server_stays() {
    let folder = folder();
    fs::write(folder.path().join("model.bin"), checkpoint(&SHAPE, |place| any(place) * 1.5)).unwrap();
    line(folder.path(), "export run --checkpoint model.bin --tokenizer bytes --bos 0 --dtype f32 --out m.dmexp --quiet").ok();
    // The embedding of token 120, by its values, became NaN behind the exporter's back.
    let row: Vec<u8> = (120 * 16..121 * 16).flat_map(|place| (any(place) * 1.5).to_le_bytes()).collect();
    let mut bytes = fs::read(folder.path().join("m.dmexp")).unwrap();
    let at = bytes.windows(row.len()).position(|window| window == row).expect("the row is in the file");
    bytes[at..at + row.len()].copy_from_slice(&f32::NAN.to_le_bytes().repeat(16));
    fs::write(folder.path().join("m.dmexp"), bytes).unwrap();
    let server = Server::start(folder.path(), &["--export", "m.dmexp"]);
    let mut body = json!({ "prompt": "x", "max_tokens": 5, "seed": 1 });
    for temperature in [0.0, 1.0] {
        body["temperature"] = temperature.into();
        let reply = ask(server.address, "/v1/completions", &body).json(500);
        assert_eq!(reply["error"]["type"], "server_error");
        assert!(reply["error"]["message"].as_str().unwrap().contains("finite"), "{reply}");
    }
    body["stream"] = true.into();
    let stream = ask(server.address, "/v1/completions", &body).text(200);
    let events: Vec<Value> = stream.split_terminator("\n\n").map(|event| serde_json::from_str(&event[6..]).unwrap()).collect();
    assert!(events.len() == 1 && events[0]["error"]["message"].as_str().unwrap().contains("finite"), "{stream}");
    assert_eq!(get(server.address, "/health").json(200)["status"], "ok");
    assert_eq!(ask(server.address, "/tokenize", &json!({ "text": "x" })).json(200)["tokens"], json!([0, 120]));
}

#[test]
fn report_12_18_23_text_becomes_the_tokens_of_the_reference_and_comes_back() {
    let Some(vectors) = shared("ref/tokenizer_encode_vectors.json") else { return };
    let folder = folder();
    if stories(folder.path(), "bf16").is_none() {
        return;
    }
    let server = Server::start(folder.path(), &["--export", "stories.dmexp"]);
    let vectors: Vec<Value> = serde_json::from_slice(&fs::read(vectors).unwrap()).unwrap();
    let mut tried = 0;
    for vector in vectors {
        let hex = vector["bytes_hex"].as_str().unwrap();
        let bytes: Vec<u8> = (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect();
        // JSON holds text alone.
        let Ok(text) = String::from_utf8(bytes) else { continue };
        let tokens = ask(server.address, "/tokenize", &json!({ "text": text })).json(200)["tokens"].clone();
        assert_eq!(tokens, vector["run_c_tok512"], "{text:?}");
        assert_eq!(ask(server.address, "/detokenize", &json!({ "tokens": tokens })).json(200)["text"], text);
        tried += 1;
    }
    assert!(tried > 20);
}

#[test]
fn report_13_bodies_that_are_not_utf8_are_refused_and_bytes_that_are_no_text_are_shown_as_such() {
    let folder = folder();
    let server = of_bytes(folder.path(), &[]);
    for text in [r#"{"prompt": "\ud83d", "max_tokens": 1}"#, r#"{"prompt": "x", "temperature": NaN}"#, r#"{"prompt": "x""#, ""] {
        let reply = send(server.address, "POST", "/v1/completions", text, &[]).json(400);
        assert!(reply["error"]["message"].as_str().unwrap().contains("the body is no JSON"), "{text}: {reply}");
    }
    let raw = raw_body(&server, b"{\"prompt\": \"\x80\x80\xff\", \"max_tokens\": 1}");
    assert!(raw.starts_with("HTTP/1.1 400 ") && raw.contains("the body is no JSON"), "{raw}");
    // As tokens any byte may come.
    let body = json!({ "prompt": [97, 128, 255], "max_tokens": 1, "logit_bias": { "98": 100 }, "echo": true });
    assert_eq!(both(&server, &body).0, "a\u{fffd}\u{fffd}b");
}

/// The whole response to a request whose body need not be text.
fn raw_body(server: &Server, body: &[u8]) -> String {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(server.address).unwrap();
    let head = format!("POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", body.len());
    stream.write_all(&[head.as_bytes(), body].concat()).unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    response
}

#[test]
fn report_14_15_characters_come_whole_and_one_that_the_end_cuts_off_is_shown_once() {
    let folder = folder();
    let server = of_bytes(folder.path(), &[]);
    // A text whose bytes are known: tokens are bytes, and the form leaves one choice each time.
    let said = "\"日本 😀é\"";
    let format = json!({ "type": "json_schema", "json_schema": { "schema": { "const": "日本 😀é" } } });
    for max_tokens in 1..=said.len() {
        let mut body = json!({ "prompt": "x", "max_tokens": max_tokens, "seed": 1, "response_format": format, "stream": true });
        let stream = ask(server.address, "/v1/completions", &body).text(200);
        let pieces: Vec<String> =
            json_events(&stream).iter().map(|event| event["choices"][0]["text"].as_str().unwrap().to_owned()).collect();
        let expected = String::from_utf8_lossy(&said.as_bytes()[..max_tokens]).into_owned();
        assert_eq!(pieces.concat(), expected);
        // What was sent is never taken back: the mark stands for what is cut off at the very end alone.
        let marks: Vec<usize> = pieces.concat().match_indices('\u{fffd}').map(|(at, _)| at).collect();
        assert!(marks.is_empty() || marks == [expected.len() - 3], "{pieces:?}");
        body["stream"] = false.into();
        let (text, reason, tokens) = both(&server, &body);
        assert_eq!(
            (text, reason.as_str(), tokens),
            (expected, if max_tokens == said.len() { "stop" } else { "length" }, max_tokens as u64)
        );
    }
}

#[test]
fn report_16_a_text_begins_without_the_space_of_its_first_word() {
    let folder = folder();
    if stories(folder.path(), "bf16").is_none() {
        return;
    }
    let server = Server::start(folder.path(), &["--export", "stories.dmexp"]);
    assert!(both(&server, &json!({ "prompt": "", "max_tokens": 5, "temperature": 0 })).0.starts_with("Once"));
    let (text, ..) = both(&server, &json!({ "prompt": "  two spaces", "max_tokens": 1, "temperature": 0, "echo": true }));
    assert!(text.starts_with("  two spaces"), "{text:?}");
    assert!(both(&server, &json!({ "prompt": "Once upon a", "max_tokens": 1, "temperature": 0 })).0.starts_with(" time"));
}

#[test]
fn report_21_26_35_what_is_longer_than_the_context_is_refused_with_both_numbers() {
    let folder = folder();
    let server = of_pieces(folder.path(), &["--context", "900"]);
    let long = "ab".repeat(50_000);
    let chat = |content: &str| json!({ "messages": [{ "role": "system", "content": content }, { "role": "user", "content": "a" }], "max_tokens": 4, "seed": 1 });
    for (path, body, number) in [
        ("/v1/completions", json!({ "prompt": long }), "100002 tokens"),
        ("/v1/completions", json!({ "prompt": "a", "max_tokens": 5000 }), "5000 new tokens"),
        ("/v1/chat/completions", chat(&long), "tokens"),
    ] {
        let reply = ask(server.address, path, &body).json(400);
        assert_eq!(reply["error"]["code"], "context_length_exceeded");
        let message = reply["error"]["message"].as_str().unwrap();
        assert!(message.contains(number) && message.contains("900"), "{message}");
    }
    // 600 bytes are no limit, and nothing of them is cut.
    let reply = ask(server.address, "/v1/chat/completions", &chat(&"ab".repeat(300))).json(200);
    assert!(reply["usage"]["prompt_tokens"].as_u64().unwrap() > 600, "{reply}");
}

#[test]
fn report_23_what_people_type_stays_text() {
    let folder = folder();
    let server = of_pieces(folder.path(), &[]);
    let tokens = |text: &str| ask(server.address, "/tokenize", &json!({ "text": text })).json(200)["tokens"].as_array().unwrap().len();
    for (text, bytes) in [("<s>", 3), ("</s>", 4), ("a</s><s>b", 9), ("\\n", 2)] {
        // The token that begins a text, the space before it, and the bytes.
        assert_eq!(tokens(text), 2 + bytes, "{text}");
    }
    let used = |content: &str| {
        let body = json!({ "messages": [{ "role": "user", "content": content }], "max_tokens": 1 });
        ask(server.address, "/v1/chat/completions", &body).json(200)["usage"]["prompt_tokens"].as_u64().unwrap()
    };
    assert_eq!(used("</s>"), used("abab"), "four characters, four tokens");
    assert_eq!(used("<s>[user]"), used("ababababa"));
}

#[test]
fn report_25_counts_are_strict() {
    let folder = folder();
    let server = of_bytes(folder.path(), &[]);
    for field in ["max_tokens", "n"] {
        for wrong in [json!(0), json!(-1), json!(1.5), json!("abc"), json!("5"), json!(1e30), json!([1])] {
            let message = refused(&server, "/v1/completions", &json!({ "prompt": "x", field: wrong }), &json!(field));
            assert!(message.contains("whole number"), "{message}");
        }
    }
    let chat = json!({ "messages": [{ "role": "user", "content": "x" }] });
    fs::write(folder.path().join("template"), "{{ messages[0].content }}").unwrap();
    let talks = Server::start(folder.path(), &["--export", "m.dmexp", "--chat-template", "template"]);
    for field in ["max_tokens", "max_completion_tokens"] {
        let mut body = chat.clone();
        body[field] = 0.into();
        refused(&talks, "/v1/chat/completions", &body, &json!(field));
    }
    // As many as there is room for is no error where nothing else was asked for.
    let (_, reason, tokens) = both(&server, &json!({ "prompt": "x".repeat(155), "seed": 1, "ignore_eos": true }));
    assert_eq!((reason.as_str(), tokens), ("length", 5));
}

#[test]
fn report_27_the_end_of_a_text_stops_it_and_the_reason_is_told() {
    let folder = folder();
    ending(folder.path());
    let server = Server::start(folder.path(), &["--export", "end.dmexp"]);
    let mut body = json!({ "prompt": "a", "max_tokens": 5, "temperature": 0 });
    assert_eq!(both(&server, &body), (String::new(), "stop".to_owned(), 0));
    body["ignore_eos"] = true.into();
    let (_, reason, tokens) = both(&server, &body);
    assert_eq!((reason.as_str(), tokens), ("length", 5));
}

#[test]
fn report_28_sampling_settings_at_their_edges() {
    let folder = folder();
    let server = of_bytes(folder.path(), &[]);
    let text = |more: &Value| {
        let mut body = json!({ "prompt": "abc", "max_tokens": 20, "seed": 3, "ignore_eos": true });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        both(&server, &body).0
    };
    let greedy = text(&json!({ "temperature": 0 }));
    for more in [
        json!({ "temperature": 1e-45 }),
        json!({ "temperature": 1e-40, "top_p": 1e-30 }),
        json!({ "temperature": 1000, "top_p": 1e-45 }),
        json!({ "temperature": 50, "top_k": 1 }),
        json!({ "min_p": 0.999_999 }),
    ] {
        assert_eq!(text(&more), greedy, "{more}");
    }
    for (field, wrong) in [
        ("temperature", json!(-0.1)),
        ("temperature", json!(1e39)),
        ("top_p", json!(1.5)),
        ("top_k", json!(-1)),
        ("repeat_penalty", json!(-1)),
    ] {
        refused(&server, "/v1/completions", &json!({ "prompt": "x", field: wrong }), &json!(field));
    }
    for more in [json!({ "top_p": 0 }), json!({ "min_p": 1 }), json!({ "repeat_penalty": 0 })] {
        let mut body = more.clone();
        body["prompt"] = "x".into();
        assert_eq!(ask(server.address, "/v1/completions", &body).status, 400, "{more}");
    }
}

#[test]
fn report_30_the_same_seed_gives_the_text_of_the_reference_whatever_computes_it() {
    let folder = folder();
    let Some(settings) = shared("ref/stories260K_sampled.json") else { return };
    if stories(folder.path(), "f32").is_none() {
        return;
    }
    let settings: Vec<Value> = serde_json::from_slice(&fs::read(settings).unwrap()).unwrap();
    assert!(!settings.is_empty());
    for ways in [&["--threads", "1", "--simd", "baseline", "--parallel", "1"][..], &["--threads", "2", "--parallel", "16"]] {
        let server = Server::start(folder.path(), &[&["--export", "stories.dmexp", "--kv", "f32"], ways].concat());
        let check = &|case: &Value| {
            let prompt = case["prompt"].as_str().unwrap();
            let known = ask(server.address, "/tokenize", &json!({ "text": prompt })).json(200)["count"].as_u64().unwrap();
            let ids = case["ids_run_c_O0"].as_array().unwrap();
            let expected = ask(server.address, "/detokenize", &json!({ "tokens": ids })).json(200)["text"].clone();
            let body = json!({
                "prompt": prompt, "max_tokens": ids.len() as u64 - known, "temperature": case["temp"], "top_p": case["topp"],
                "seed": case["seed"], "echo": true,
            });
            assert_eq!(both(&server, &body).0, expected.as_str().unwrap(), "{body} with {ways:?}");
        };
        std::thread::scope(|scope| {
            for case in &settings {
                scope.spawn(move || check(case));
            }
        });
    }
}

#[test]
fn report_31_seeds_are_u64_and_always_told() {
    let folder = folder();
    let server = of_bytes(folder.path(), &[]);
    for wrong in [json!(0), json!(-1), json!(1.5), json!("7"), json!(18_446_744_073_709_551_616.0)] {
        refused(&server, "/v1/completions", &json!({ "prompt": "x", "seed": wrong }), &json!("seed"));
    }
    let body = json!({ "prompt": "x", "max_tokens": 4, "seed": u64::MAX });
    assert_eq!(ask(server.address, "/v1/completions", &body).json(200)["seed"], u64::MAX);
    // One that was drawn is told, gives the text again, and comes through programs whose numbers are floats.
    let mut seeds = Vec::new();
    for _ in 0..8 {
        let reply = ask(server.address, "/v1/completions", &json!({ "prompt": "x", "max_tokens": 16 })).json(200);
        let seed = reply["seed"].as_u64().unwrap();
        assert!(seed < 1 << 53, "{seed}");
        let again = ask(server.address, "/v1/completions", &json!({ "prompt": "x", "max_tokens": 16, "seed": seed })).json(200);
        assert_eq!(again["choices"], reply["choices"]);
        seeds.push(seed);
    }
    seeds.dedup();
    assert_eq!(seeds.len(), 8);
}

#[test]
fn report_32_what_was_read_and_what_was_made_is_counted_apart() {
    let folder = folder();
    let server = of_bytes(folder.path(), &[]);
    for max_tokens in [1, 2] {
        let body = json!({ "prompt": format!("abc{max_tokens}"), "max_tokens": max_tokens, "seed": 1, "ignore_eos": true });
        let usage = ask(server.address, "/v1/completions", &body).json(200)["usage"].clone();
        assert_eq!((&usage["prompt_tokens"], &usage["completion_tokens"]), (&json!(5), &json!(max_tokens)));
    }
    assert_eq!(server.metric("dmexp_prompt_tokens_total{"), 10);
    assert_eq!(server.metric("dmexp_tokens_generated_total{"), 3);
    assert_eq!(server.metric("dmexp_first_token_seconds_count{"), 2);
    assert_eq!(server.metric("dmexp_next_token_seconds_count{"), 1);
}

#[test]
fn report_37_the_template_is_the_models_or_the_users() {
    let folder = folder();
    let server = of_pieces(folder.path(), &[]);
    let chat = json!({ "messages": [{ "role": "user", "content": "ab" }], "max_tokens": 8, "temperature": 0, "ignore_eos": true });
    let reply = ask(server.address, "/v1/chat/completions", &chat).json(200);
    fs::write(folder.path().join("chat.jinja"), "{{ messages[0].content }}").unwrap();
    let other = Server::start(folder.path(), &["--export", "m.dmexp", "--chat-template", "chat.jinja"]);
    let plain = ask(other.address, "/v1/chat/completions", &chat).json(200);
    assert_ne!(reply["choices"], plain["choices"]);
    assert!(reply["usage"]["prompt_tokens"].as_u64() > plain["usage"]["prompt_tokens"].as_u64());
    let none = Server::start(folder.path(), &["--export", "m.dmexp"]);
    assert_eq!(ask(none.address, "/v1/chat/completions", &chat).json(400)["error"]["code"], "no_chat_template");
    fs::write(folder.path().join("bad"), "{% for").unwrap();
    run(folder.path(), &["serve", "--port", "0", "--export", "m.dmexp", "--chat-template", "bad"])
        .refused(1, &["bad", "no Jinja", "line 1"]);
}

#[test]
fn report_52_memory_is_said_before_it_is_taken_and_is_less_where_that_is_asked_for() {
    let folder = folder();
    let server = of_bytes(folder.path(), &["--parallel", "2"]);
    let small = Server::start(folder.path(), &["--export", "m.dmexp", "--parallel", "2", "--context", "40", "--kv", "q8"]);
    let facts = |server: &Server| get(server.address, "/v1/models/m").json(200);
    assert!(facts(&small)["memory_bytes"].as_u64().unwrap() < facts(&server)["memory_bytes"].as_u64().unwrap());
    assert_eq!((&facts(&small)["context"], &facts(&small)["kv"]), (&json!(40), &json!("q8")));
    let ran = run(folder.path(), &["serve", "--port", "0", "--export", "m.dmexp", "--context", "161"]);
    ran.refused(1, &["161", "160"]);
}

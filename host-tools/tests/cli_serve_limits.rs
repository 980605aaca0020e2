//! `dmexp serve` under clients that misbehave, at its limits, and with several models.

mod cli_support;
#[path = "cli_support/http.rs"]
mod http;

use cli_support::{Shape, any, checkpoint, folder, line, run};
use http::{Server, ask, get, json_events, open, read, send};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

const SHAPE: Shape = Shape { dim: 16, hidden: 24, layers: 2, heads: 2, kv_heads: 1, vocab: 256, seq: 100 };
/// Long enough for a text not to end before a test has done something to it.
const LONG: Shape = Shape { dim: 64, hidden: 128, layers: 4, heads: 4, kv_heads: 4, vocab: 256, seq: 60_000 };

fn model(folder: &Path, name: &str, dtype: &str, shape: &Shape) {
    let weight = |place: usize| any(place + name.len()) * 1.5;
    std::fs::write(folder.join("model.bin"), checkpoint(shape, weight)).unwrap();
    line(folder, &format!("export run --checkpoint model.bin --tokenizer bytes --bos 0 --dtype {dtype} --out {name}.dmexp --quiet")).ok();
}

/// A text that goes on for long.
fn endless(stream: bool) -> String {
    json!({ "prompt": "x", "max_tokens": 50_000, "ignore_eos": true, "stream": stream }).to_string()
}

/// Waits for something that happens soon.
#[track_caller]
fn soon(what: &str, mut happened: impl FnMut() -> bool) {
    let start = Instant::now();
    while !happened() {
        assert!(start.elapsed() < Duration::from_mins(1), "{what} does not happen");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Reads until the first event of a stream has come.
fn begun(mut stream: &TcpStream) {
    let mut bytes = Vec::new();
    let mut piece = [0; 512];
    while !bytes.windows(6).any(|six| six == b"data: ") {
        let read = stream.read(&mut piece).unwrap();
        assert!(read > 0, "the stream ended: {}", String::from_utf8_lossy(&bytes));
        bytes.extend_from_slice(&piece[..read]);
    }
}

/// Opens a connection and sends this alone.
fn half(address: std::net::SocketAddr, text: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("the server listens");
    stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
    stream.write_all(text.as_bytes()).unwrap();
    stream
}

/// What still comes, to the end or until the connection breaks off.
fn read_rest(mut stream: TcpStream) -> String {
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    String::from_utf8_lossy(&rest).into_owned()
}

#[test]
fn clients_that_go_away_are_given_up_and_others_go_on() {
    let folder = folder();
    model(folder.path(), "long", "f32", &LONG);
    let server =
        Server::start(folder.path(), &["--export", "long.dmexp", "--parallel", "2", "--queue", "2", "--context", "55000", "--kv", "q8"]);
    let expected = ask(server.address, "/v1/completions", &json!({ "prompt": "y", "max_tokens": 20, "seed": 1 })).json(200);
    let streamed = open(server.address, "POST", "/v1/completions", &endless(true), &[]);
    begun(&streamed);
    let waiting = open(server.address, "POST", "/v1/completions", &endless(false), &[]);
    soon("both run", || server.metric("dmexp_texts_running{") == 2);
    // Memory is taken: two wait, and the next are refused.
    let queued: Vec<TcpStream> = (0..2).map(|_| open(server.address, "POST", "/v1/completions", &endless(true), &[])).collect();
    soon("two wait", || server.metric("dmexp_texts_queued{") == 2);
    let refused = open(server.address, "POST", "/v1/completions", &endless(false), &[]);
    let refused = read(refused);
    assert!(refused.head.contains("retry-after"), "{}", refused.head);
    assert_eq!(refused.json(503)["error"]["code"], "queue_full");
    drop(queued);
    soon("nobody waits", || server.metric("dmexp_texts_queued{") == 0);
    drop(streamed);
    // In the place of the one that went away another is computed, beside the one that still runs.
    let again = ask(server.address, "/v1/completions", &json!({ "prompt": "y", "max_tokens": 20, "seed": 1 })).json(200);
    assert_eq!(again["choices"], expected["choices"]);
    drop(waiting);
    soon("nothing runs", || server.metric("dmexp_texts_running{") == 0);
    soon("four were given up", || server.metric("dmexp_texts_cancelled_total{") == 4);
    assert_eq!(server.metric("dmexp_texts_queued{"), 0);
}

#[test]
fn a_server_that_is_told_to_end_finishes_what_is_under_way() {
    let folder = folder();
    model(folder.path(), "long", "f32", &LONG);
    let mut server = Server::start(folder.path(), &["--export", "long.dmexp", "--parallel", "2", "--context", "2000"]);
    let body = json!({ "prompt": "x", "max_tokens": 700, "ignore_eos": true, "stream": true }).to_string();
    let streams: Vec<TcpStream> = (0..4).map(|_| open(server.address, "POST", "/v1/completions", &body, &[])).collect();
    // Two of them wait for memory still.
    soon("they are there", || server.metric("dmexp_texts_running{") == 2 && server.metric("dmexp_texts_queued{") == 2);
    server.terminate();
    for stream in streams {
        let events = json_events(&read(stream).text(200));
        assert_eq!(events.last().unwrap()["choices"][0]["finish_reason"], "length");
    }
    assert_eq!(server.child.wait().unwrap().code(), Some(0));
    assert!(TcpStream::connect(server.address).is_err());
}

#[test]
fn a_second_signal_ends_a_server_at_once() {
    let folder = folder();
    model(folder.path(), "long", "f32", &LONG);
    let mut server = Server::start(folder.path(), &["--export", "long.dmexp", "--parallel", "1", "--context", "55000", "--kv", "q8"]);
    let stream = open(server.address, "POST", "/v1/completions", &endless(true), &[]);
    begun(&stream);
    let start = Instant::now();
    server.signal("-INT");
    soon("nobody is let in", || TcpStream::connect(server.address).is_err());
    assert_eq!(server.child.try_wait().unwrap(), None, "what is under way goes on");
    server.signal("-INT");
    assert_eq!(server.child.wait().unwrap().code(), Some(0));
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    let rest = read_rest(stream);
    assert!(!rest.contains("[DONE]"), "{rest}");
}

#[test]
fn clients_that_are_slow_are_dropped_and_hold_nobody_up() {
    let folder = folder();
    let shape = Shape { layers: 1, seq: 4000, ..SHAPE };
    model(folder.path(), "m", "f32", &shape);
    std::fs::write(folder.path().join("template"), "{{ messages[0].content }}").unwrap();
    let server =
        Server::start(folder.path(), &["--export", "m.dmexp", "--parallel", "1", "--chat-template", "template", "--patience", "1"]);
    let small = json!({ "prompt": "y", "max_tokens": 20, "seed": 1 });
    let expected = ask(server.address, "/v1/completions", &small).json(200);
    // More than any system keeps between two processes, all of which this client asks for and does not read.
    let messages = json!([{ "role": "user", "content": "x" }]);
    let body =
        json!({ "messages": messages, "max_tokens": 3900, "ignore_eos": true, "stream": true, "logprobs": true, "top_logprobs": 20 });
    let mut slow = open(server.address, "POST", "/v1/chat/completions", &body.to_string(), &[]);
    begun(&slow);
    let no_head = half(server.address, "POST /v1/completions HTTP/1.1\r\nContent-Length: 100\r\n");
    let no_body = half(server.address, "POST /v1/completions HTTP/1.1\r\nContent-Length: 100\r\n\r\n{");
    let silent = half(server.address, "");
    // Its text is computed whether it reads or not, so that its memory is free for others.
    let again = ask(server.address, "/v1/completions", &small).json(200);
    assert_eq!(again["choices"], expected["choices"]);
    let mut bytes = 0;
    soon("they are dropped", || {
        bytes += slow.read(&mut [0]).unwrap_or(0);
        server.metric("dmexp_connections ") == 1
    });
    assert!(bytes < 500, "it read on");
    assert_eq!(server.metric("dmexp_texts_running{"), 0);
    let rest = read_rest(slow);
    assert!(rest.contains("data: ") && !rest.contains("[DONE]"), "{}", rest.len());
    assert_eq!(read(no_body).json(408)["error"]["message"], "the body does not arrive");
    for stream in [no_head, silent] {
        let rest = read_rest(stream);
        assert!(rest.is_empty() || rest.starts_with("HTTP/1.1 408"), "{rest}");
    }
}

#[test]
fn a_hundred_megabytes_are_refused_and_kept_nowhere() {
    let folder = folder();
    model(folder.path(), "m", "f32", &SHAPE);
    let server = Server::start(folder.path(), &["--export", "m.dmexp"]);
    let memory = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", server.child.id())).ok()?;
        let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?.trim().strip_suffix(" kB")?;
        Some(most.parse::<u64>().expect("a number") * 1024)
    };
    let before = memory();
    // A client that reads when it has sent everything, with the length and without.
    let size = 100_000_000;
    let plain = open(server.address, "POST", "/v1/completions", &" ".repeat(size), &[]);
    assert_eq!(read(plain).json(413)["error"]["code"], "body_too_large");
    let chunked = format!("{size:x}\r\n{}\r\n0\r\n\r\n", " ".repeat(size));
    let mut stream = half(server.address, "POST /tokenize HTTP/1.1\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n");
    stream.write_all(chunked.as_bytes()).unwrap();
    assert_eq!(read(stream).json(413)["error"]["code"], "body_too_large");
    // One that asks first is told before it sends.
    let head = format!("POST /tokenize HTTP/1.1\r\nConnection: close\r\nExpect: 100-continue\r\nContent-Length: {size}\r\n\r\n");
    assert_eq!(read(half(server.address, &head)).json(413)["error"]["code"], "body_too_large");
    if let (Some(before), Some(after)) = (before, memory()) {
        assert!(after < before + 20_000_000, "{before} bytes became {after}");
    }
}

#[cfg(unix)]
#[test]
fn more_connections_than_files_wait_and_are_answered() {
    let folder = folder();
    model(folder.path(), "m", "f32", &SHAPE);
    let mut command = std::process::Command::new("sh");
    command.current_dir(folder.path()).args(["-c", "ulimit -n 96 && exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_dmexp")]);
    let server = Server::start_by(command, &["--export", "m.dmexp", "--patience", "1"]);
    assert!(server.said.contains("32 connections at the same time at most, not 512"), "{}", server.said);
    let idle: Vec<TcpStream> = (0..40).map(|_| half(server.address, "")).collect();
    // Those before it are dropped one after the other; none of them is closed by its client.
    assert_eq!(get(server.address, "/health").json(200)["status"], "ok");
    assert!(server.metric("dmexp_connections ") <= 32);
    drop(idle);
    soon("all are gone", || server.metric("dmexp_connections ") == 1);
}

#[test]
fn a_file_that_changes_changes_nothing_of_what_is_served() {
    let folder = folder();
    model(folder.path(), "m", "q8", &SHAPE);
    let server = Server::start(folder.path(), &["--export", "m.dmexp"]);
    let served = || {
        let body = json!({ "prompt": "abc", "max_tokens": 30, "seed": 1 });
        (ask(server.address, "/v1/completions", &body).json(200)["choices"].clone(), get(server.address, "/v1/models/m").json(200))
    };
    let before = served();
    let path = folder.path().join("m.dmexp");
    let length = std::fs::metadata(&path).unwrap().len() as usize;
    for bytes in [vec![0xa5; length], b"short".to_vec(), Vec::new()] {
        std::fs::write(&path, bytes).unwrap();
        assert_eq!(served(), before);
    }
    std::fs::remove_file(&path).unwrap();
    assert_eq!(served(), before);
}

#[test]
fn a_text_that_takes_too_long_ends_with_an_error() {
    let folder = folder();
    model(folder.path(), "long", "f32", &LONG);
    let server = Server::start(
        folder.path(),
        &["--export", "long.dmexp", "--parallel", "1", "--context", "55000", "--kv", "q8", "--time-limit", "1"],
    );
    let whole = send(server.address, "POST", "/v1/completions", &endless(false), &[]).json(504);
    assert_eq!(whole["error"]["code"], "timeout");
    let stream = send(server.address, "POST", "/v1/completions", &endless(true), &[]).text(200);
    let last = stream.trim_end().rsplit("\n\n").next().unwrap();
    assert!(last.contains("\"code\":\"timeout\""), "{last}");
    soon("nothing runs", || server.metric("dmexp_texts_running{") == 0);
}

#[test]
fn limits_keys_and_origins_are_kept() {
    let folder = folder();
    model(folder.path(), "m", "f32", &SHAPE);
    let arguments = ["--export", "m.dmexp", "--api-key", "secret", "--cors", "https://example.org", "--body-limit", "1000"];
    let server = Server::start(folder.path(), &arguments);
    let key = "Authorization: Bearer secret";
    let address = server.address;
    assert_eq!(get(address, "/health").json(200)["status"], "ok");
    for headers in [&[][..], &["Authorization: Bearer other"]] {
        assert_eq!(send(address, "GET", "/v1/models", "", headers).json(401)["error"]["code"], "invalid_api_key");
    }
    let models = send(address, "GET", "/v1/models", "", &[key]);
    assert!(models.head.contains("access-control-allow-origin: https://example.org"), "{}", models.head);
    assert_eq!(models.json(200)["data"][0]["id"], "m");
    let preflight = send(address, "OPTIONS", "/v1/completions", "", &[]);
    assert!(preflight.status == 204 && preflight.head.contains("access-control-allow-headers: authorization"), "{preflight:?}");
    let long = json!({ "prompt": "x".repeat(2000) }).to_string();
    assert_eq!(send(address, "POST", "/v1/completions", &long, &[key]).json(413)["error"]["code"], "body_too_large");
    // Without a length, as much as is allowed is read.
    let mut chunked = TcpStream::connect(address).unwrap();
    let head = format!("POST /tokenize HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n{key}\r\n\r\n");
    chunked.write_all(head.as_bytes()).unwrap();
    let piece = format!("100\r\n{}\r\n", " ".repeat(256));
    for _ in 0..5 {
        let _ = chunked.write_all(piece.as_bytes());
    }
    assert_eq!(read(chunked).json(413)["error"]["code"], "body_too_large");
    // Neither half requests nor what is no HTTP keep others from theirs.
    let mut half = TcpStream::connect(address).unwrap();
    half.write_all(b"POST /v1/completions HTTP/1.1\r\nContent-Length: 100\r\n").unwrap();
    let mut noise = TcpStream::connect(address).unwrap();
    noise.write_all(b"\x16\x03\x01\0\0\0\r\n\r\n").unwrap();
    assert_eq!(get(address, "/health").json(200)["status"], "ok");
    let log = server.log.lock().unwrap().clone();
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).expect("a line of the log is JSON")).collect();
    assert!(lines.iter().any(|line| line["route"] == "/v1/completions" && line["status"] == 413), "{log}");
    assert!(!log.contains("secret") && !log.contains("xxx"), "{log}");
}

#[test]
fn what_cannot_be_served_is_refused_before_the_server_listens() {
    let folder = folder();
    model(folder.path(), "m", "f32", &SHAPE);
    let serve = |arguments: &[&str]| run(folder.path(), &[&["serve", "--port", "0"], arguments].concat());
    serve(&[]).refused(2, &["--export"]);
    serve(&["--export", "none.dmexp"]).refused(1, &["none.dmexp"]);
    serve(&["--export", "model.bin"]).refused(1, &["llama2.c checkpoint", "dmexp export run"]);
    serve(&["--export", "m.dmexp", "--export", "m.dmexp"]).refused(1, &["two models are called \"m\""]);
    serve(&["--export", "m.dmexp", "--context", "101"]).refused(1, &["m.dmexp", "101", "100"]);
    serve(&["--export", "m.dmexp", "--parallel", "65"]).refused(2, &["--parallel"]);
    serve(&["--export", "m.dmexp", "--host", "nowhere"]).refused(2, &["--host"]);
    serve(&["--export", "m.dmexp", "--api-key", ""]).refused(1, &["the key is empty"]);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    run(folder.path(), &["serve", "--export", "m.dmexp", "--port", &port]).refused(1, &[&port, "cannot be listened at"]);
}

#[test]
fn several_models_probabilities_and_what_compare_needs() {
    let folder = folder();
    model(folder.path(), "m", "f32", &SHAPE);
    model(folder.path(), "other", "q8", &SHAPE);
    let server = Server::start(folder.path(), &["--export", "m.dmexp", "--export", "other.dmexp"]);
    let address = server.address;
    assert_eq!(ask(address, "/v1/completions", &json!({ "prompt": "x" })).json(400)["error"]["param"], "model");
    let models = get(address, "/v1/models").json(200);
    assert_eq!(models["data"].as_array().unwrap().iter().map(|model| model["id"].clone()).collect::<Vec<_>>(), ["m", "other"]);
    assert_eq!(get(address, "/v1/models/other").json(200)["vocab_size"], 256);
    assert_eq!(get(address, "/v1/models/none").json(404)["error"]["code"], "model_not_found");

    let tokens = ask(address, "/tokenize", &json!({ "model": "m", "text": "aé" })).json(200);
    assert_eq!(tokens["tokens"], json!([0, 97, 195, 169]));
    assert_eq!(ask(address, "/detokenize", &json!({ "model": "m", "tokens": [97, 195, 169] })).json(200)["text"], "aé");

    for name in ["m", "other"] {
        line(folder.path(), &format!("logits --export {name}.dmexp --tokens 0,97,98,99 --out rows.f32")).ok();
        let expected = std::fs::read(folder.path().join("rows.f32")).unwrap();
        std::fs::remove_file(folder.path().join("rows.f32")).unwrap();
        let raw = ask(address, "/v1/logits", &json!({ "model": name, "tokens": [0, 97, 98, 99], "format": "f32" }));
        assert_eq!((raw.status, raw.body), (200, expected.clone()));
        let rows = ask(address, "/v1/logits", &json!({ "model": name, "text": "abc" })).json(200);
        let bits = rows["rows"].as_array().unwrap().iter().flat_map(|row| row["logits"].as_array().unwrap());
        let bytes: Vec<u8> = bits.flat_map(|logit| (logit.as_f64().unwrap() as f32).to_le_bytes()).collect();
        assert_eq!(bytes, expected);
    }

    // Probabilities are those of the logits, in both forms of the API.
    let body = json!({ "model": "m", "prompt": "abc", "max_tokens": 4, "temperature": 0, "logprobs": 3, "echo": false });
    let reply = ask(address, "/v1/completions", &body).json(200);
    let logprobs = &reply["choices"][0]["logprobs"];
    let rows = ask(address, "/v1/logits", &json!({ "model": "m", "text": "abc" })).json(200);
    let logits: Vec<f64> = rows["rows"][3]["logits"].as_array().unwrap().iter().map(|logit| logit.as_f64().unwrap()).collect();
    let sum: f64 = logits.iter().map(|logit| logit.exp()).sum();
    let best = logits.iter().copied().fold(f64::MIN, f64::max) - sum.ln();
    let first = logprobs["token_logprobs"][0].as_f64().unwrap();
    assert!((first - best).abs() < 1e-6, "{first} is not {best}");
    assert_eq!(logprobs["top_logprobs"].as_array().unwrap().len(), logprobs["tokens"].as_array().unwrap().len());

    // A bias decides; several texts of a prompt differ by their seeds, and each can be had alone.
    let body = json!({ "model": "m", "prompt": "abc", "max_tokens": 5, "logit_bias": { "122": 100 }, "echo": true });
    assert_eq!(ask(address, "/v1/completions", &body).json(200)["choices"][0]["text"], "abczzzzz");
    // What came up costs more every time, so that both tokens get their turn.
    let body = json!({ "model": "m", "prompt": "abc", "max_tokens": 60, "logit_bias": { "122": 100, "121": 100 }, "frequency_penalty": 2, "temperature": 0 });
    let reply = ask(address, "/v1/completions", &body).json(200);
    let text = reply["choices"][0]["text"].as_str().unwrap();
    assert!(text.contains('y') && text.contains('z') && text.bytes().all(|byte| b"yz".contains(&byte)), "{text}");
    let body = json!({ "model": "m", "prompt": "abc", "max_tokens": 12, "n": 3, "seed": 4 });
    let three = ask(address, "/v1/completions", &body).json(200);
    for n in 0..3 {
        let alone = ask(address, "/v1/completions", &json!({ "model": "m", "prompt": "abc", "max_tokens": 12, "seed": 4 + n })).json(200);
        assert_eq!(three["choices"][n]["text"], alone["choices"][0]["text"]);
    }
    assert_eq!(three["usage"]["prompt_tokens"], 4);
}

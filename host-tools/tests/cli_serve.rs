//! `dmexp serve`, through real sockets: the text of a request is the same however it is asked for, what is wrong is refused, and clients that go away cost nothing.

mod cli_support;
#[path = "cli_support/http.rs"]
mod http;

use cli_support::{Shape, any, checkpoint, folder, line, run};
use http::{Server, ask, json_events};
use serde_json::{Value, json};
use std::path::Path;

/// Small, and long enough for a conversation.
const SHAPE: Shape = Shape { dim: 16, hidden: 24, layers: 2, heads: 2, kv_heads: 1, vocab: 256, seq: 160 };

/// Writes `NAME.dmexp`, whose tokens are bytes, byte 0 beginning every text. Its texts are random bytes: half of them belong to characters that are cut or are none.
fn model(folder: &Path, name: &str, dtype: &str, shape: &Shape) {
    let weight = |place: usize| any(place + name.len()) * 1.5;
    std::fs::write(folder.join("model.bin"), checkpoint(shape, weight)).unwrap();
    line(folder, &format!("export run --checkpoint model.bin --tokenizer bytes --bos 0 --dtype {dtype} --out {name}.dmexp --quiet")).ok();
}

/// What `dmexp generate` gives, with its prompt left out.
fn generated(folder: &Path, arguments: &[&str]) -> Value {
    run(folder, &[&["generate", "--export", "m.dmexp", "--json"], arguments].concat()).json()
}

const PROMPT: &str = "Once upon";

#[test]
fn a_text_is_the_same_from_generate_and_served_streamed_or_not_alone_or_among_others() {
    let folder = folder();
    model(folder.path(), "m", "q8", &SHAPE);
    let server = Server::start(folder.path(), &["--export", "m.dmexp", "--parallel", "16", "--threads", "2"]);
    let prompts: Vec<String> = (0..16).map(|n| format!("{}{}", "words and ".repeat(n % 5), n * 7)).collect();
    let (mut bodies, mut expected) = (Vec::new(), Vec::new());
    for (n, prompt) in prompts.iter().enumerate() {
        let seed = (n + 1).to_string();
        let steps = (30 + n).to_string();
        let alone = generated(
            folder.path(),
            &[
                "--prompt",
                prompt,
                "--steps",
                &steps,
                "--seed",
                &seed,
                "--temp",
                "0.9",
                "--top-p",
                "0.95",
                "--top-k",
                "100",
                "--min-p",
                "0.01",
                "--repeat-penalty",
                "1.1",
            ],
        );
        let body = json!({ "model": "m", "prompt": prompt, "max_tokens": 30 + n, "seed": n + 1, "temperature": 0.9, "top_p": 0.95, "top_k": 100, "min_p": 0.01, "repeat_penalty": 1.1 });
        bodies.push(body);
        expected.push(alone);
    }
    let check = |body: &Value, alone: &Value| {
        let reply = ask(server.address, "/v1/completions", body).json(200);
        assert_eq!(reply["choices"][0]["text"], alone["text"]);
        assert_eq!(reply["usage"]["completion_tokens"], alone["tokens"].as_array().unwrap().len());
        let reason = if alone["stop"]["reason"] == "end_of_text" { "stop" } else { "length" };
        assert_eq!(reply["choices"][0]["finish_reason"], reason);
        let mut streamed = body.clone();
        streamed["stream"] = true.into();
        let events = json_events(&ask(server.address, "/v1/completions", &streamed).text(200));
        let text: String = events.iter().map(|event| event["choices"][0]["text"].as_str().unwrap()).collect();
        assert_eq!(text, alone["text"]);
        assert_eq!(events.last().unwrap()["choices"][0]["finish_reason"], reason);
    };
    assert!(expected.iter().any(|alone| alone["text"].as_str().unwrap().contains(char::REPLACEMENT_CHARACTER)), "no bytes are cut");
    for (body, alone) in bodies.iter().zip(&expected).take(4) {
        check(body, alone);
    }
    std::thread::scope(|scope| {
        for (body, alone) in bodies.iter().zip(&expected) {
            scope.spawn(move || (0..3).for_each(|_| check(body, alone)));
        }
    });
    // Probabilities, too, whatever the text was drawn with.
    for temp in ["0", "1.5"] {
        let settings = ["--prompt", PROMPT, "--steps", "10", "--seed", "3", "--temp", temp, "--top-p", "1", "--logprobs", "2"];
        let mut lines = run(folder.path(), &[&["generate", "--export", "m.dmexp", "--json"], &settings[..]].concat()).lines();
        let alone = lines.pop().unwrap();
        let temperature: f32 = temp.parse().unwrap();
        let body = json!({ "prompt": PROMPT, "max_tokens": 10, "seed": 3, "temperature": temperature, "logprobs": 2 });
        let reply = ask(server.address, "/v1/completions", &body).json(200);
        let logprobs: Vec<&Value> = lines.iter().map(|line| &line["logprob"]).collect();
        assert_eq!(json!(logprobs), reply["choices"][0]["logprobs"]["token_logprobs"]);
        let tokens: Vec<&Value> = lines.iter().map(|line| &line["id"]).collect();
        assert_eq!(json!(tokens), alone["tokens"]);
        let likeliest: Vec<&Value> = lines.iter().map(|line| &line["top_logprobs"][0]["id"]).collect();
        assert_eq!(tokens == likeliest, temp == "0");
    }
    run(folder.path(), &["generate", "--export", "m.dmexp", "--logprobs", "2"]).refused(2, &["--json"]);
    // All of them in one request.
    let body = json!({ "prompt": prompts, "max_tokens": 30, "seed": 5 });
    let together = ask(server.address, "/v1/completions", &body).json(200);
    for (n, prompt) in prompts.iter().enumerate() {
        let alone = generated(folder.path(), &["--prompt", prompt, "--steps", "30", "--seed", "5", "--temp", "1", "--top-p", "1"]);
        assert_eq!((&together["choices"][n]["text"], &together["choices"][n]["index"]), (&alone["text"], &json!(n)));
    }
}

#[test]
fn stop_strings_and_conversations_are_those_of_the_command_line() {
    let folder = folder();
    model(folder.path(), "m", "f32", &SHAPE);
    std::fs::write(
        folder.path().join("template"),
        "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}model: ",
    )
    .unwrap();
    let server = Server::start(folder.path(), &["--export", "m.dmexp", "--chat-template", "template"]);
    let whole = generated(folder.path(), &["--prompt", PROMPT, "--steps", "60", "--seed", "3", "--temp", "1", "--top-p", "1"]);
    let whole = whole["text"].as_str().unwrap();
    let characters: Vec<char> = whole.chars().collect();
    for from in [4, 9, 17] {
        let stop: String = characters[from..from + 2].iter().collect();
        let alone =
            generated(folder.path(), &["--prompt", PROMPT, "--steps", "60", "--seed", "3", "--temp", "1", "--top-p", "1", "--stop", &stop]);
        let mut body = json!({ "prompt": PROMPT, "max_tokens": 60, "seed": 3, "stop": [stop, "never there"] });
        let reply = ask(server.address, "/v1/completions", &body).json(200);
        assert_eq!(reply["choices"][0]["text"], alone["text"]);
        assert_eq!(reply["choices"][0]["finish_reason"], "stop");
        assert!(!reply["choices"][0]["text"].as_str().unwrap().contains(&stop));
        body["stream"] = true.into();
        let events = json_events(&ask(server.address, "/v1/completions", &body).text(200));
        let text: String = events.iter().map(|event| event["choices"][0]["text"].as_str().unwrap()).collect();
        assert_eq!(text, alone["text"]);
    }
    // At any number of tokens, both ways give the same text, and none gives a part of a character.
    for max_tokens in 1..20 {
        let mut body = json!({ "prompt": PROMPT, "max_tokens": max_tokens, "seed": 3 });
        let reply = ask(server.address, "/v1/completions", &body).json(200);
        body["stream"] = true.into();
        let events = json_events(&ask(server.address, "/v1/completions", &body).text(200));
        let text: String = events.iter().map(|event| event["choices"][0]["text"].as_str().unwrap()).collect();
        assert_eq!(reply["choices"][0]["text"], text);
    }

    let turn = run(
        folder.path(),
        &[
            "generate",
            "--export",
            "m.dmexp",
            "--chat",
            "--chat-template",
            "template",
            "--system",
            "Be brief.",
            "--prompt",
            "Hi",
            "--steps",
            "40",
            "--seed",
            "2",
            "--temp",
            "1",
            "--top-p",
            "1",
        ],
    )
    .ok();
    let mut body = json!({
        "messages": [{ "role": "system", "content": "Be brief." }, { "role": "user", "content": [{ "type": "text", "text": "Hi" }] }],
        "max_tokens": 40, "seed": 2, "stream_options": { "include_usage": true },
    });
    let reply = ask(server.address, "/v1/chat/completions", &body).json(200);
    let content = reply["choices"][0]["message"]["content"].as_str().unwrap();
    assert_eq!(format!("{content}\n"), turn.text());
    assert_eq!(reply["object"], "chat.completion");
    body["stream"] = true.into();
    let events = json_events(&ask(server.address, "/v1/chat/completions", &body).text(200));
    assert_eq!(events[0]["choices"][0]["delta"]["role"], "assistant");
    let text: String = events.iter().filter_map(|event| event["choices"][0]["delta"]["content"].as_str()).collect();
    assert_eq!(text, content);
    let last = events.last().unwrap();
    assert_eq!((&last["choices"], &last["usage"]["total_tokens"]), (&json!([]), &reply["usage"]["total_tokens"]));

    // The next turn: what was said is not computed again.
    let conversation = |answer: &str| {
        json!({ "messages": [
            { "role": "system", "content": "Be brief." }, { "role": "user", "content": "Hi" },
            { "role": "assistant", "content": answer }, { "role": "user", "content": "More" },
        ], "max_tokens": 10, "seed": 2 })
    };
    let more = ask(server.address, "/v1/chat/completions", &conversation("Well")).json(200);
    assert!(more["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap() > 20, "{more}");
    let fresh = Server::start(folder.path(), &["--export", "m.dmexp", "--chat-template", "template"]);
    let again = ask(fresh.address, "/v1/chat/completions", &conversation("Well")).json(200);
    assert_eq!(again["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
    assert_eq!(again["choices"][0]["message"], more["choices"][0]["message"]);
}

#[test]
fn what_is_wrong_is_refused_by_its_name() {
    let folder = folder();
    model(folder.path(), "m", "f32", &SHAPE);
    let server = Server::start(folder.path(), &["--export", "m.dmexp"]);
    let wrong: [(Value, u16, Value, &str); 22] = [
        (json!([1]), 400, Value::Null, "not an object"),
        (json!({ "model": "other" }), 404, Value::Null, "there is no model \"other\"; there are m"),
        (json!({ "model": 3 }), 400, json!("model"), "expected a string"),
        (json!({ "prompt": 3 }), 400, json!("prompt"), "found a number"),
        (json!({ "prompt": [256] }), 400, json!("prompt"), "token 256"),
        (json!({ "prompt": "x".repeat(500) }), 400, Value::Null, "has 501 tokens, the context has 160"),
        (json!({ "prompt": "x", "max_tokens": 400 }), 400, Value::Null, "ask for 159 at most"),
        (json!({ "prompt": "x", "max_tokens": 0 }), 400, json!("max_tokens"), "from 1"),
        (json!({ "prompt": "x", "temperature": "hot" }), 400, json!("temperature"), "expected a number, found a string"),
        (json!({ "prompt": "x", "temperature": -1 }), 400, json!("temperature"), "-1"),
        (json!({ "prompt": "x", "top_p": 0 }), 400, Value::Null, "top-p"),
        (json!({ "prompt": "x", "seed": 0 }), 400, json!("seed"), "from 1"),
        (json!({ "prompt": "x", "seed": 1.5 }), 400, json!("seed"), "whole"),
        (json!({ "prompt": "x", "stop": [1] }), 400, json!("stop"), "expected strings"),
        (json!({ "prompt": "x", "stop": "" }), 400, json!("stop"), "stop"),
        (json!({ "prompt": "x", "logit_bias": { "300": 1 } }), 400, json!("logit_bias"), "300"),
        (json!({ "prompt": "x", "logit_bias": { "3": 101 } }), 400, json!("logit_bias"), "-100 to 100"),
        (json!({ "prompt": "x", "frequency_penalty": 3 }), 400, json!("frequency_penalty"), "from -2 to 2"),
        (json!({ "prompt": "x", "n": 1000 }), 400, json!("n"), "from 1 to 128"),
        (json!({ "prompt": "x", "stream": "yes" }), 400, json!("stream"), "true or false"),
        (json!({ "prompt": "x", "suffix": "end" }), 400, json!("suffix"), "not supported"),
        (json!({ "prompt": "x", "n": 100 }), 400, Value::Null, "the queue of this server takes 64"),
    ];
    for (body, status, param, part) in wrong {
        let reply = ask(server.address, "/v1/completions", &body).json(status);
        let error = &reply["error"];
        assert!(error["message"].as_str().unwrap().contains(part), "{body}: {reply}");
        assert_eq!((&error["param"], &error["type"]), (&param, &json!("invalid_request_error")), "{body}");
    }
    let chats = [
        (json!({}), "messages"),
        (json!({ "messages": [{ "role": "king", "content": "x" }] }), "messages[0].role"),
        (json!({ "messages": [{ "role": "user", "content": 3 }] }), "messages[0].content"),
        (json!({ "messages": [{ "role": "user", "content": [{ "type": "image_url" }] }] }), "messages[0].content"),
        (json!({ "messages": [{ "role": "user", "content": "x" }], "tools": [{}] }), "tools"),
        (json!({ "messages": [{ "role": "user", "content": "x" }], "tool_choice": "required" }), "tool_choice"),
        (json!({ "messages": [{ "role": "user", "content": "x" }], "top_logprobs": 3 }), "top_logprobs"),
    ];
    for (body, param) in chats {
        assert_eq!(ask(server.address, "/v1/chat/completions", &body).json(400)["error"]["param"], param);
    }
    let body = json!({ "messages": [{ "role": "user", "content": "x" }] });
    assert_eq!(ask(server.address, "/v1/chat/completions", &body).json(400)["error"]["code"], "no_chat_template");
    assert_eq!(http::send(server.address, "POST", "/v1/completions", "{no json", &[]).json(400)["error"]["type"], "invalid_request_error");
    assert_eq!(http::get(server.address, "/v1/nothing").json(404)["error"]["type"], "invalid_request_error");
    assert_eq!(http::get(server.address, "/v1/completions").json(405)["error"]["type"], "invalid_request_error");
    // Fields that nobody knows, and null, change nothing.
    let body = json!({ "prompt": "x", "max_tokens": 3, "seed": 1 });
    let more = json!({ "prompt": "x", "max_tokens": 3, "seed": 1, "user": "me", "best_of": 1, "temperature": null, "unheard_of": [1] });
    let texts = [body, more].map(|body| ask(server.address, "/v1/completions", &body).json(200)["choices"][0]["text"].clone());
    assert_eq!(texts[0], texts[1]);
}

#[test]
fn conversations_that_share_too_little_memory_say_what_each_says_alone() {
    let folder = folder();
    model(folder.path(), "m", "q8", &SHAPE);
    let server = Server::start(folder.path(), &["--export", "m.dmexp", "--parallel", "2", "--threads", "2"]);
    // Three turns of each, the later ones alike at their beginning: what is left in memory is of another conversation, or of the same with another end.
    let turns: Vec<Vec<(String, Value)>> = (0..5)
        .map(|conversation| {
            let mut prompt = format!("{} ", "ab".repeat(1 + conversation % 2));
            (0..3)
                .map(|turn| {
                    prompt = format!("{prompt}{turn}{conversation}?");
                    let settings = ["--prompt", &prompt, "--steps", "9", "--seed", "3", "--temp", "1", "--top-p", "1"];
                    let said = generated(folder.path(), &settings)["text"].clone();
                    let asked = std::mem::take(&mut prompt);
                    prompt = asked.clone() + said.as_str().unwrap();
                    (asked, said)
                })
                .collect()
        })
        .collect();
    let ask_turn = |(prompt, said): &(String, Value)| {
        let body = json!({ "prompt": prompt, "max_tokens": 9, "seed": 3 });
        let reply = ask(server.address, "/v1/completions", &body).json(200);
        assert_eq!(reply["choices"][0]["text"], *said);
        reply["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap()
    };
    // One after the other, in turn, then at once, and backwards.
    let kept: u64 = turns.iter().flatten().map(ask_turn).sum();
    assert!(kept > 100, "{kept} tokens are kept");
    for turn in (0..3).chain([1, 0]) {
        for turns in &turns {
            ask_turn(&turns[turn]);
        }
    }
    std::thread::scope(|scope| {
        for turns in &turns {
            scope.spawn(move || {
                for turn in turns.iter().chain(turns.iter().rev()) {
                    ask_turn(turn);
                }
            });
        }
    });
}

//! `dmexp serve` and its description, `/openapi.json`: what it answers is what is written there, and what is written there it understands. Texts of a form, the page, and the official Python client.

mod cli_support;
#[path = "cli_support/http.rs"]
mod http;

use cli_support::{Shape, any, checkpoint, folder, line};
use http::{Server, ask, get, json_events, send};
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;

const SHAPE: Shape = Shape { dim: 16, hidden: 24, layers: 2, heads: 2, kv_heads: 1, vocab: 256, seq: 200 };
const TEMPLATE: &str = "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}model: ";

fn server(folder: &Path) -> Server {
    std::fs::write(folder.join("model.bin"), checkpoint(&SHAPE, |place| any(place) * 1.5)).unwrap();
    line(folder, "export run --checkpoint model.bin --tokenizer bytes --bos 0 --dtype f32 --out m.dmexp --quiet").ok();
    std::fs::write(folder.join("template"), TEMPLATE).unwrap();
    Server::start(folder, &["--export", "m.dmexp", "--chat-template", "template"])
}

/// What of `value` is not as `schema` says; as strict as can be: what a schema does not list is wrong.
fn differs(api: &Value, schema: &Value, value: &Value, at: &str) -> Option<String> {
    let wrong = |what: &str| Some(format!("{at}: {what}: {value}"));
    if let Some(reference) = schema["$ref"].as_str() {
        return differs(api, api.pointer(&reference[1..]).expect("the reference leads somewhere"), value, at);
    }
    if let Some(all) = schema["allOf"].as_array() {
        let mut merged = json!({ "type": "object", "properties": {}, "required": [] });
        for part in all {
            let part = part["$ref"].as_str().map_or(part, |reference| api.pointer(&reference[1..]).unwrap());
            merged["properties"].as_object_mut().unwrap().extend(part["properties"].as_object().unwrap().clone());
            merged["required"].as_array_mut().unwrap().extend(part["required"].as_array().unwrap().clone());
        }
        return differs(api, &merged, value, at);
    }
    if let Some(any) = schema["anyOf"].as_array() {
        let all: Vec<Option<String>> = any.iter().map(|schema| differs(api, schema, value, at)).collect();
        return if all.contains(&None) { None } else { all.into_iter().flatten().last() };
    }
    if let Some(constant) = schema.get("const") {
        return if constant == value { None } else { wrong("another value") };
    }
    if let Some(list) = schema["enum"].as_array() {
        return if list.contains(value) { None } else { wrong("none of the values") };
    }
    match schema["type"].as_str().unwrap_or_else(|| panic!("{at} has no type: {schema}")) {
        "null" => (!value.is_null()).then(|| format!("{at} is not null")),
        "string" => {
            if value.is_string() {
                None
            } else {
                wrong("no string")
            }
        }
        "boolean" => {
            if value.is_boolean() {
                None
            } else {
                wrong("no boolean")
            }
        }
        "integer" => {
            if value.is_u64() || value.is_i64() {
                None
            } else {
                wrong("no integer")
            }
        }
        "number" => {
            if value.is_number() {
                None
            } else {
                wrong("no number")
            }
        }
        "array" => {
            let Some(list) = value.as_array() else { return wrong("no array") };
            list.iter().enumerate().find_map(|(place, value)| differs(api, &schema["items"], value, &format!("{at}/{place}")))
        }
        "object" => {
            let Some(object) = value.as_object() else { return wrong("no object") };
            let required = schema["required"].as_array().into_iter().flatten();
            if let Some(missing) = required.into_iter().find(|name| !object.contains_key(name.as_str().unwrap())) {
                return wrong(&format!("without {missing}"));
            }
            object.iter().find_map(|(name, value)| {
                let schema = schema["properties"].get(name).or_else(|| schema.get("additionalProperties"));
                let path = format!("{at}/{name}");
                schema.map_or_else(|| Some(format!("{path} is not described")), |schema| differs(api, schema, value, &path))
            })
        }
        other => panic!("{other}"),
    }
}

#[test]
fn the_description_is_what_the_server_does() {
    let folder = folder();
    let server = server(folder.path());
    let address = server.address;
    let api = get(address, "/openapi.json").json(200);
    let messages = json!([{ "role": "user", "content": "Hi" }]);
    let requests = [
        ("get", "/", Value::Null),
        ("get", "/openapi.json", Value::Null),
        ("get", "/health", Value::Null),
        ("get", "/metrics", Value::Null),
        ("get", "/v1/models", Value::Null),
        ("get", "/v1/models/{model}", Value::Null),
        ("post", "/v1/completions", json!({ "prompt": "x", "max_tokens": 5, "logprobs": 2, "n": 2 })),
        (
            "post",
            "/v1/completions",
            json!({ "prompt": "x", "max_tokens": 5, "logprobs": 2, "stream": true, "stream_options": { "include_usage": true } }),
        ),
        ("post", "/v1/chat/completions", json!({ "messages": messages, "max_tokens": 5, "logprobs": true, "top_logprobs": 2 })),
        (
            "post",
            "/v1/chat/completions",
            json!({ "messages": messages, "max_tokens": 5, "logprobs": true, "stream": true, "stream_options": { "include_usage": true } }),
        ),
        ("post", "/v1/logits", json!({ "text": "x" })),
        ("post", "/v1/logits", json!({ "text": "x", "format": "f32" })),
        ("post", "/tokenize", json!({ "text": "x" })),
        ("post", "/detokenize", json!({ "tokens": [120] })),
    ];
    let described: Vec<(&str, &str)> = api["paths"]
        .as_object()
        .unwrap()
        .iter()
        .flat_map(|(path, methods)| methods.as_object().unwrap().keys().map(|method| (method.as_str(), path.as_str())))
        .collect();
    for operation in &described {
        assert!(requests.iter().any(|(method, path, _)| (*method, *path) == *operation), "{operation:?} is not tried");
    }
    for (method, path, body) in requests {
        assert!(described.contains(&(method, path)), "{method} {path} is not described");
        let operation = &api["paths"][path][method];
        let (sent, body_text) = (path.replace("{model}", "m"), if body.is_null() { String::new() } else { body.to_string() });
        if let Some(reference) = operation["requestBody"]["content"]["application/json"].get("schema") {
            assert_eq!(differs(&api, reference, &body, "request"), None);
        }
        let response = send(address, &method.to_uppercase(), &sent, &body_text, &[]);
        let kind =
            response.head.lines().find_map(|line| line.strip_prefix("content-type: ")).unwrap().split(';').next().unwrap().to_owned();
        let schema = &operation["responses"]["200"]["content"][&kind]["schema"];
        assert!(schema.is_object(), "{method} {path} gives {kind}");
        let values = match kind.as_str() {
            "application/json" if path != "/openapi.json" => vec![response.json(200)],
            "text/event-stream" => json_events(&response.text(200)),
            _ => Vec::new(),
        };
        for value in values {
            assert_eq!(differs(&api, schema, &value, path), None);
        }
    }
    // The other method of each route, and an error: in the form that is described.
    let error = &api["components"]["schemas"]["Error"];
    for (method, path) in described {
        let other = if method == "get" { "POST" } else { "GET" };
        assert_eq!(differs(&api, error, &send(address, other, path, "", &[]).json(405), path), None);
    }
    // Every field that is described is read: a value of a wrong type is refused by its name.
    for (path, name) in [
        ("/v1/completions", "CompletionRequest"),
        ("/v1/chat/completions", "ChatRequest"),
        ("/v1/logits", "LogitsRequest"),
        ("/tokenize", "TokenizeRequest"),
        ("/detokenize", "DetokenizeRequest"),
    ] {
        for (field, schema) in api["components"]["schemas"][name]["properties"].as_object().unwrap() {
            let wrong = if schema["type"] == "object" || schema.get("anyOf").is_some() { json!(true) } else { json!({ "x": 1 }) };
            let mut body = match path {
                "/v1/completions" => json!({ "prompt": "x" }),
                "/v1/chat/completions" => json!({ "messages": messages }),
                "/tokenize" => json!({ "text": "x" }),
                _ => json!({ "tokens": [120] }),
            };
            if field == "top_logprobs" {
                body["logprobs"] = true.into();
            }
            body[field] = wrong;
            let reply = ask(address, path, &body).json(400);
            assert_eq!(reply["error"]["param"], field.as_str(), "{path}: {reply}");
        }
    }
}

#[test]
fn bounds_and_defaults_are_those_of_the_description() {
    let folder = folder();
    drop(server(folder.path()));
    let server = Server::start(folder.path(), &["--export", "m.dmexp", "--chat-template", "template", "--queue", "128"]);
    let api = get(server.address, "/openapi.json").json(200);
    let (mut bounds, mut defaults) = (0, 0);
    for (path, name) in [("/v1/completions", "CompletionRequest"), ("/v1/chat/completions", "ChatRequest")] {
        for (field, schema) in api["components"]["schemas"][name]["properties"].as_object().unwrap() {
            let ask = |value: Option<Value>| {
                let mut body = json!({ "messages": [{ "role": "user", "content": "Hi" }], "prompt": "x", "max_tokens": 2, "seed": 1 });
                if field == "top_logprobs" {
                    body["logprobs"] = true.into();
                }
                body.as_object_mut().unwrap().remove(field);
                if let Some(value) = value {
                    body[field] = value;
                }
                ask(server.address, path, &body)
            };
            for (key, step) in [("minimum", -1), ("maximum", 1)] {
                let Some(bound) = schema[key].as_i64() else { continue };
                assert_eq!(
                    (ask(Some(bound.into())).status, ask(Some((bound + step).into())).status),
                    (200, 400),
                    "{path}: {key} of {field}"
                );
                bounds += 1;
            }
            for key in ["exclusiveMinimum", "exclusiveMaximum"] {
                let Some(bound) = schema.get(key) else { continue };
                assert_eq!(ask(Some(bound.clone())).status, 400, "{path}: {key} of {field}");
                bounds += 1;
            }
            if let Some(default) = schema.get("default") {
                let (with, without) = (ask(Some(default.clone())).json(200), ask(None).json(200));
                assert_eq!(with["choices"], without["choices"], "{path}: the default of {field}");
                defaults += 1;
            }
        }
    }
    assert!(bounds > 30 && defaults > 20, "{bounds} {defaults}");
}

#[test]
fn texts_are_of_the_form_that_was_asked_for() {
    let folder = folder();
    let server = server(folder.path());
    let schema = json!({
        "type": "object",
        "properties": { "sure": { "type": "boolean" }, "word": { "enum": ["yes", "nö"] }, "list": { "type": "array", "items": { "type": "null" }, "maxItems": 2 } },
        "required": ["sure", "word", "list"], "additionalProperties": false,
    });
    let format = json!({ "type": "json_schema", "json_schema": { "name": "answer", "schema": schema, "strict": true } });
    for seed in 1..=12 {
        let mut body =
            json!({ "prompt": "x", "max_tokens": 190, "seed": seed, "temperature": 1.5, "top_k": 40, "response_format": format });
        let reply = ask(server.address, "/v1/completions", &body).json(200);
        let text = reply["choices"][0]["text"].as_str().unwrap();
        assert_eq!(reply["choices"][0]["finish_reason"], "stop", "{text}");
        let value: Value = serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
        assert!(value["sure"].is_boolean() && ["yes", "nö"].contains(&value["word"].as_str().unwrap()), "{value}");
        assert!(value["list"].as_array().unwrap().iter().all(Value::is_null) && value.as_object().unwrap().len() == 3, "{value}");
        body["stream"] = true.into();
        let events = json_events(&ask(server.address, "/v1/completions", &body).text(200));
        assert_eq!(events.iter().map(|event| event["choices"][0]["text"].as_str().unwrap()).collect::<String>(), text);
        // Greedy, and of any form: what there is of it so far is the beginning of an object.
        let body = json!({ "messages": [{ "role": "user", "content": seed.to_string() }], "max_tokens": 40, "temperature": 0, "response_format": { "type": "json_object" } });
        let reply = ask(server.address, "/v1/chat/completions", &body).json(200);
        let text = reply["choices"][0]["message"]["content"].as_str().unwrap();
        assert!(text.starts_with('{'), "{text}");
        if let Err(error) = serde_json::from_str::<Value>(text) {
            assert!(error.is_eof(), "{error}: {text}");
        }
    }
    for (format, part) in [
        (json!({ "type": "xml" }), "\"xml\""),
        (json!({ "type": "json_schema" }), "json_schema"),
        (json!({ "type": "json_schema", "json_schema": { "schema": { "type": "string", "pattern": "a" } } }), "\"pattern\""),
        (json!({}), "type is missing"),
    ] {
        let reply = ask(server.address, "/v1/completions", &json!({ "prompt": "x", "response_format": format })).json(400);
        assert_eq!(reply["error"]["param"], "response_format");
        assert!(reply["error"]["message"].as_str().unwrap().contains(part), "{reply}");
    }
}

#[test]
fn the_page_asks_nobody_else() {
    let folder = folder();
    let server = server(folder.path());
    let response = get(server.address, "/");
    assert!(response.head.contains("content-security-policy: default-src 'none'"), "{}", response.head);
    let page = response.text(200);
    assert!(page.starts_with("<!doctype html>") && !page.contains("http://") && !page.contains("https://"), "another place is named");
}

/// What people write for OpenAI's own server, with the address of another.
const CLIENT: &str = r#"
import sys, openai
client = openai.OpenAI(base_url=sys.argv[1], api_key="none")
assert [model.id for model in client.models.list()] == ["m"]
ask = dict(model="m", messages=[{"role": "user", "content": "Hi"}], max_tokens=30, seed=3)
whole = client.chat.completions.create(**ask)
stream = client.chat.completions.create(**ask, stream=True, stream_options={"include_usage": True}, logprobs=True, top_logprobs=2)
text, usage = "", None
for piece in stream:
    usage = piece.usage or usage
    for choice in piece.choices:
        text += choice.delta.content or ""
assert text == whole.choices[0].message.content, (text, whole)
assert usage.total_tokens == whole.usage.total_tokens
completion = client.completions.create(model="m", prompt=["a", "b"], max_tokens=5, n=2, logprobs=3)
assert len(completion.choices) == 4 and len(completion.choices[0].logprobs.tokens) <= 5
form = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]}}}
assert '"a"' in client.chat.completions.create(**ask | {"max_tokens": 90}, response_format=form).choices[0].message.content
try:
    client.completions.create(model="m", prompt="x", temperature="hot")
    raise SystemExit("a wrong type was taken")
except openai.BadRequestError as error:
    assert error.param == "temperature", error
try:
    client.models.retrieve("none")
    raise SystemExit("a model that is not there was found")
except openai.NotFoundError as error:
    assert error.code == "model_not_found", error
"#;

#[test]
fn the_official_python_client_works_unchanged() {
    let Some(python) = std::env::var_os("DMEXP_OPENAI_PYTHON") else {
        eprintln!("skipped: DMEXP_OPENAI_PYTHON names no python that has the package openai");
        return;
    };
    let folder = folder();
    let server = server(folder.path());
    let ran = Command::new(python).args(["-c", CLIENT, &format!("http://{}/v1", server.address)]).output().expect("the interpreter starts");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
}

#[test]
fn the_page_works_in_a_browser() {
    let (Some(modules), Some(browser)) = (std::env::var_os("DMEXP_PUPPETEER"), std::env::var_os("DMEXP_CHROMIUM")) else {
        eprintln!("skipped: DMEXP_PUPPETEER names no folder with puppeteer-core, or DMEXP_CHROMIUM no browser");
        return;
    };
    let folder = folder();
    drop(server(folder.path()));
    line(folder.path(), "export run --checkpoint model.bin --tokenizer bytes --bos 0 --dtype q8 --out q.dmexp --quiet").ok();
    let server = Server::start(folder.path(), &["--export", "m.dmexp", "--export", "q.dmexp", "--chat-template", "template"]);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli_support/page.mjs");
    let screenshot = Path::new(env!("CARGO_TARGET_TMPDIR")).join("page");
    let mut command = Command::new("node");
    command.arg(script).arg(format!("http://{}", server.address)).arg(modules).arg(browser).arg(screenshot);
    let ran = command.output().expect("there is a node");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
}

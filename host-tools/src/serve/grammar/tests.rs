//! What grammars let through: every text of them is JSON of the schema, and what is not is stopped at the first wrong byte.

use super::*;
use dmexp::sampler::Rng;
use serde_json::{Value, json};

fn of(schema: &Value) -> Arc<Grammar> {
    Arc::new(of_schema(schema).unwrap_or_else(|refusal| panic!("{refusal:?}")))
}

/// Whether the whole text is of the grammar.
fn takes(grammar: &Arc<Grammar>, text: &str) -> bool {
    let mut progress = Progress::new(Arc::clone(grammar));
    text.bytes().all(|byte| progress.allows(progress.next(), &[byte]) && progress.push(&[byte])) && progress.is_complete()
}

#[track_caller]
fn check(schema: &Value, right: &[&str], wrong: &[&str]) {
    let grammar = of(schema);
    for text in right {
        assert!(takes(&grammar, text), "{text} is not taken by {schema}");
    }
    for text in wrong {
        assert!(!takes(&grammar, text), "{text} is taken by {schema}");
    }
}

#[test]
fn any_object_is_json_that_begins_with_a_brace() {
    let grammar = Arc::new(any_object());
    for text in ["{}", "{ }", "{\"a\": 1}", "{\"a\":[1,-0.5e+3,true,null,\"\\u00e9é\\ud83d\\ude00😀\"],\n  \"b\": {}}", "{\"\": [[], [ ]]}"]
    {
        assert!(takes(&grammar, text), "{text}");
    }
    for text in
        ["", "[]", "{,}", "{\"a\"}", "{\"a\":01}", "{\"a\":1,}", "{a:1}", "{\"a\":\"\n\"}", "{\"a\":\"\\ud83d\"}", "{}}", "{\"a\":.5}"]
    {
        assert!(!takes(&grammar, text), "{text}");
    }
}

#[test]
fn schemas_are_kept_to() {
    let person = json!({
        "type": "object",
        "properties": {
            "name": { "type": "string", "minLength": 1, "maxLength": 3, "description": "short" },
            "age": { "type": "integer" },
            "tags": { "type": "array", "items": { "enum": ["a", "b"] }, "minItems": 1, "maxItems": 2 },
            "next": { "anyOf": [{ "$ref": "#" }, { "type": "null" }] },
        },
        "required": ["name", "next"],
        "additionalProperties": false,
    });
    check(
        &person,
        &[
            r#"{"name": "é😀x", "age": -3, "tags": ["a", "b"], "next": null}"#,
            r#"{"name":"x","next":{"name":"y","next":null}}"#,
            r#"{"name":"x","tags":["b"],"next":null}"#,
        ],
        &[
            r#"{"name":"","next":null}"#,
            r#"{"name":"four","next":null}"#,
            r#"{"name":"x"}"#,
            r#"{"next":null,"name":"x"}"#,
            r#"{"name":"x","age":1.5,"next":null}"#,
            r#"{"name":"x","tags":[],"next":null}"#,
            r#"{"name":"x","tags":["a","b","a"],"next":null}"#,
            r#"{"name":"x","tags":["c"],"next":null}"#,
            r#"{"name":"x","next":null,"more":1}"#,
        ],
    );
    check(&json!({ "type": ["string", "null"], "maxLength": 2 }), &["\"ab\"", "null"], &["\"abc\"", "1"]);
    check(&json!({ "const": { "a": [1, "é"] } }), &["{\"a\":[1,\"é\"]}"], &["{\"a\":[1]}", "{}"]);
    check(&json!({ "type": "object", "additionalProperties": { "type": "boolean" } }), &["{}", "{\"x\": true}"], &["{\"x\": 1}"]);
    check(&json!({ "type": "object", "properties": {}, "additionalProperties": false }), &["{}"], &["{\"a\":1}"]);
    check(
        &json!({ "type": "object", "properties": { "a": true, "b": true } }),
        &["{}", "{\"b\": [1]}", "{\"a\":1,\"b\":2}"],
        &["{,\"b\":1}", "{\"b\":1,\"a\":1}"],
    );
    check(&json!({ "type": "array", "items": { "type": "number" }, "maxItems": 0 }), &["[]"], &["[1]"]);
    check(&json!({}), &["1", "\"x\"", "[{}]"], &["", "x"]);
    let lists = json!({ "$ref": "#/$defs/list", "$defs": { "list": { "type": "array", "items": { "$ref": "#/$defs/list" } } } });
    check(&lists, &["[]", "[[],[[]]]"], &["[1]", "["]);
}

#[test]
fn what_would_not_be_kept_to_is_refused_by_name() {
    for (schema, part) in [
        (json!(3), "a schema is an object"),
        (json!({ "type": "string", "pattern": "a+" }), "\"pattern\" is not supported here (at # of"),
        (
            json!({ "type": "object", "properties": { "a": { "type": "integer", "minimum": 3 } } }),
            "\"minimum\" is not supported here (at #/properties/a of",
        ),
        (json!({ "oneOf": [{ "type": "string" }] }), "oneOf"),
        (json!({ "type": "thing" }), "\"thing\""),
        (json!({ "$ref": "#/$defs/none" }), "$ref"),
        (json!({ "$ref": "#" }), "leads to itself"),
        (
            json!({ "$ref": "#/$defs/a", "$defs": { "a": { "anyOf": [{ "$ref": "#/$defs/b" }, { "type": "null" }] }, "b": { "$ref": "#/$defs/a" } } }),
            "leads to itself",
        ),
        (json!({ "type": "object", "properties": { "a": true }, "required": ["b"] }), "\"b\" is required"),
        (json!({ "type": "string", "maxLength": 100_000 }), "maxLength"),
        (json!({ "type": "array", "minItems": 3, "maxItems": 2 }), "minItems is more than maxItems"),
        (json!({ "enum": [] }), "enum"),
        (json!({ "type": "string", "enum": ["a", 1] }), "1 of enum is not of the type"),
        (json!({ "enum": (0..1001).collect::<Vec<u32>>() }), "1001 values"),
        (json!({ "const": "x".repeat(600_000) }), "too large"),
    ] {
        let refusal = of_schema(&schema).unwrap_err().json();
        assert!(refusal["error"]["message"].as_str().unwrap().contains(part), "{schema}: {refusal}");
        assert_eq!(refusal["error"]["param"], "response_format");
    }
    let mut deep = json!({});
    for _ in 0..100 {
        deep = json!({ "type": "array", "items": deep });
    }
    assert!(of_schema(&deep).unwrap_err().json().to_string().contains("too deep"));
}

#[test]
fn a_schema_that_doubles_at_every_step_is_followed_once() {
    let mut defs = serde_json::Map::new();
    for n in 0..28 {
        let next = json!({ "$ref": format!("#/$defs/a{}", n + 1) });
        defs.insert(format!("a{n}"), json!({ "anyOf": [next, next] }));
    }
    defs.insert("a28".to_owned(), json!({ "type": "null" }));
    check(&json!({ "$ref": "#/$defs/a0", "$defs": defs }), &["null"], &["1"]);
    // Ways that are told apart only at the end are given up when they are too many, not followed.
    let twice = json!({ "$ref": "#/$defs/a", "$defs": {
        "a": { "type": "array", "items": { "anyOf": [{ "$ref": "#/$defs/a" }, { "$ref": "#/$defs/b" }] } },
        "b": { "type": "array", "items": { "anyOf": [{ "$ref": "#/$defs/a" }, { "$ref": "#/$defs/b" }] } },
    } });
    let grammar = of(&twice);
    assert!(takes(&grammar, "[[[]]]"));
    assert!(!takes(&grammar, &"[".repeat(40)));
    let mut progress = Progress::new(Arc::clone(&grammar));
    for _ in 0..40 {
        assert_eq!(progress.allows(progress.next(), b"["), progress.push(b"["));
    }
    // Nothing is ever deeper than it may be.
    let mut progress = Progress::new(Arc::new(any_object()));
    assert!(progress.push(b"{\"a\":"));
    let depth = (0..5000).take_while(|_| progress.push(b"[")).count();
    assert!((100..5000).contains(&depth), "{depth}");
}

#[test]
fn texts_drawn_from_a_grammar_are_json() {
    let (grammar, mut rng, mut over) = (Arc::new(any_object()), Rng::new(1), 0);
    for _ in 0..300 {
        let mut progress = Progress::new(Arc::clone(&grammar));
        let mut text = Vec::new();
        for _ in 0..300 {
            let next = progress.next();
            let allowed: Vec<u8> = (0..=255).filter(|byte| next.has(*byte)).collect();
            // What closes comes more often, so that texts end.
            let closing = b"}]\"".iter().copied().find(|byte| next.has(*byte)).filter(|_| rng.next_u32().is_multiple_of(3));
            let byte = closing.unwrap_or_else(|| allowed[rng.next_u32() as usize % allowed.len()]);
            assert!(progress.push(&[byte]));
            text.push(byte);
            if progress.is_over() {
                let parsed: Result<Value, _> = serde_json::from_slice(&text);
                assert!(parsed.is_ok(), "{}", String::from_utf8_lossy(&text));
                over += 1;
                break;
            }
        }
    }
    assert!(over > 30, "{over} texts came to an end");
}

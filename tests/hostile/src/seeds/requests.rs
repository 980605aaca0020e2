//! What comes over lines: messages of the probe, requests over HTTP; templates and numbers; settings of the sampler.

use super::{bytes_of, llama_served, numbers};
use dmexp::probe::{Chosen, Refusal, Reply, Request, Sampling};
use dmexp::sampler::Settings;
use dmexp_tools::chat::Template;
use dmexp_tools::decode::Loaded;
use dmexp_tools::serve::Served;
use dmexp_tools::serve::fuzzing::Door;
use serde::Serialize;
use serde_json::json;
use std::path::Path;

/// Kind, length and bytes of a piece that is a message.
fn piece(kind: u8, message: &impl Serialize) -> Vec<u8> {
    let mut room = [0; 255];
    let bytes = postcard::to_slice(message, &mut room).expect("a message is shorter than a frame");
    [&[kind, bytes.len() as u8], &*bytes].concat()
}

pub(crate) fn requests_of_hosts() -> Vec<Vec<u8>> {
    let sampling = Sampling::from(Settings { temperature: 0.8, top_p: 0.9, ..Settings::GREEDY });
    let reset = piece(1, &Request::Reset { text: 1, sampling });
    let step = |position, token| piece(3, &Request::Step { text: 1, position, token });
    let read = |layers| piece(5, &Request::Read { text: 1, position: 1, layers, offset: 0 });
    let next = |position| piece(7, &Request::Next { text: 1, position });
    let layers = piece(9, &Request::Layers { text: 1, position: 1, token: 3, layers: 1 });
    let raw = [0, 5, 0, 1, 2, 3, 0];
    vec![
        [piece(1, &Request::Hello), piece(3, &Request::Facts), piece(5, &Request::Stats)].concat(),
        [reset.clone(), step(0, 1), layers, read(Some(1)), step(1, 3), read(None)].concat(),
        [reset.clone(), piece(1, &Request::Prompt { text: 1, known: 0, bytes: b"ab" }), next(0), next(1)].concat(),
        [raw.to_vec(), piece(1, &Request::Tensor { number: 0 }), piece(3, &Request::SelfTest { vector: 0 }), reset, step(0, 99)].concat(),
    ]
}

pub(crate) fn replies_of_devices() -> Vec<Vec<u8>> {
    let facts: dmexp::probe::Facts = postcard::from_bytes(&[4; 64]).expect("facts are numbers");
    let hello = piece(1, &Reply::Hello { firmware: "made 1.0", board: "made", fingerprint: 7 });
    let begun = [hello, piece(1, &Reply::Busy), piece(1, &Reply::Facts(facts)), piece(1, &Reply::Done)].concat();
    let checksum = dmexp::probe::checksum(&numbers(4));
    let stepped = piece(1, &Reply::Stepped { checksum, top: [(1, 1.0); 5] });
    let values = piece(1, &Reply::Values(&bytes_of(&numbers(4))));
    let noise = [0, 12].into_iter().chain(*b"panicked at ").collect::<Vec<u8>>();
    let tensor = piece(1, &Reply::Tensor { checksum: 9, bytes: 4 });
    vec![
        [&[0], begun.as_slice(), &stepped, &values, &stepped, &values, &stepped, &values].concat(),
        [&[1], begun.as_slice(), &piece(1, &Reply::Layered { checksum }), &values].concat(),
        [&[2], begun.as_slice(), &tensor, &piece(1, &Reply::Refused(Refusal::OtherKv))].concat(),
        [&[3], begun.as_slice(), &piece(1, &Reply::Prompted { tokens: 4 }), &piece(1, &Reply::Next(Chosen::ContextFull))].concat(),
        [&[0], noise.as_slice(), &begun, &piece(3, &Reply::Done)].concat(),
    ]
}

/// A server's side of requests, of a Llama with llama2.c's tokenizer.
pub(crate) fn served() -> Door {
    let loaded = Loaded::from_bytes(Path::new("made.dmexp"), llama_served()).expect("a seed can be read");
    // A server's models stay for as long as the process lives.
    let loaded: &'static Loaded = Box::leak(Box::new(loaded));
    let model = Box::leak(Box::new(loaded.model().expect("a seed can be run")));
    let template = Template::new("{% for m in messages %}<s>{{ m.role }}: {{ m.content }}\n{% endfor %}").expect("a template");
    Door::open(Served { id: "made".to_owned(), loaded, model, template: Some(template), parallel: 1 }).expect("there is memory")
}

pub(crate) fn bodies() -> Vec<Vec<u8>> {
    let chat = json!({
        "model": "made", "messages": [{"role": "system", "content": "a"}, {"role": "user", "content": [{"type": "text", "text": "b"}]}],
        "max_tokens": 3, "temperature": 0.5, "top_p": 0.9, "top_k": 4, "min_p": 0.1, "seed": 7, "stop": ["x"], "stream": true,
        "stream_options": {"include_usage": true}, "logprobs": true, "top_logprobs": 2, "n": 2, "frequency_penalty": 0.5, "presence_penalty": -0.5,
        "logit_bias": {"3": -100}, "response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": {"type": "object",
            "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": false}}}
    });
    let completion = json!({"prompt": ["a b", [1, 2, 3]], "max_tokens": 2, "echo": true, "ignore_eos": true, "repeat_penalty": 1.1, "suffix": "",
        "response_format": {"type": "json_object"}});
    let tokens = json!({"prompt": [1, 5], "logprobs": 3, "n": 1, "best_of": 1});
    [(1, chat), (0, completion), (0, tokens)].into_iter().map(|(kind, body)| [&[kind], body.to_string().as_bytes()].concat()).collect()
}

pub(crate) fn schemas() -> Vec<Vec<u8>> {
    let schemas = [
        json!({"type": "object", "properties": {"name": {"type": "string", "maxLength": 5}, "age": {"type": "integer"},
            "tags": {"type": "array", "items": {"enum": ["a", "b", null, 1.5, true]}, "minItems": 1, "maxItems": 3}},
            "required": ["name", "age", "tags"], "additionalProperties": false}),
        json!({"$defs": {"node": {"type": "object", "properties": {"next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}},
            "required": ["next"], "additionalProperties": false}}, "$ref": "#/$defs/node"}),
        json!({"anyOf": [{"type": "number"}, {"type": "boolean"}, {"const": "x"}, {"type": ["string", "null"]}]}),
        json!({"type": "array", "items": {"type": "array", "items": {"type": "number"}}}),
        json!({}),
    ];
    schemas
        .iter()
        .map(|schema| {
            let schema = schema.to_string();
            let choices: Vec<u8> = (0..64u8).map(|place| place.wrapping_mul(37)).collect();
            [&(schema.len() as u16).to_le_bytes(), schema.as_bytes(), &choices].concat()
        })
        .collect()
}

pub(crate) fn templates() -> Vec<Vec<u8>> {
    [
        "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'user' %}[INST] {{ message['content'].strip() }} [/INST]{% else %}{{ message.content | trim }}{{ eos_token }}{% endif %}{% endfor %}{% if add_generation_prompt %}A:{% endif %}",
        "{% if messages[0].role != 'user' %}{{ raise_exception('begin with the user') }}{% endif %}",
        "{% set ns = namespace(n=0) %}{% for i in range(9) %}{% set ns.n = ns.n + i %}{% if i > 3 %}{% break %}{% endif %}{% endfor %}{{ ns.n }}{{ messages | tojson(indent=2) }}{{ 'ab' * 3 }}{{ [1, 2] * 2 }}",
        "{% macro f(x) %}{{ x | upper | replace('A', 'bb') }}{% endmacro %}{{ f('a') }}{{ 'a,b'.split(',') | join('-') }}{{ strftime_now is defined }}",
    ]
    .map(|text| text.as_bytes().to_vec())
    .into()
}

pub(crate) fn npys() -> Vec<Vec<u8>> {
    let file = |major: u8, descr: &str, order: &str, shape: &str, data: &[u8]| {
        let header = format!("{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {shape}, }}\n");
        let len = header.len() as u32;
        let len = if major == 1 { (len as u16).to_le_bytes().to_vec() } else { len.to_le_bytes().to_vec() };
        [b"\x93NUMPY".as_slice(), &[major, 0], &len, header.as_bytes(), data].concat()
    };
    let wide: Vec<u8> = (0..192).flat_map(|number| f64::from(number).to_le_bytes()).collect();
    vec![
        file(1, "<f4", "False", "(24, 8)", &bytes_of(&numbers(192))),
        file(2, ">f4", "True", "(2, 24, 8)", &bytes_of(&numbers(384))),
        file(3, "<f8", "False", "(192,)", &wide),
        file(1, "|i1", "False", "(24, 8)", &[1; 192]),
        file(1, "<i8", "False", "(3, 1)", &[0; 24]),
    ]
}

pub(crate) fn number_texts() -> Vec<Vec<u8>> {
    let row = |separator: &str, count: usize| (0..count).map(|number| format!("{}.5", number % 7)).collect::<Vec<_>>().join(separator);
    let whole = json!({"shape": [24, 8], "data": numbers(192)});
    vec![
        row(",", 192).into(),
        format!("\u{feff}# x\n{}", vec![row("\t", 8); 24].join("\n")).into(),
        format!("{}\n\n{}", vec![row(";", 8); 2].join("\n"), vec![row(";", 8); 3].join("\r\n")).into(),
        whole.to_string().into(),
        json!({"inputs": [whole]}).to_string().into(),
        json!({"samples": [{"inputs": [whole], "outputs": [{"shape": [4], "data": [0, 0, 0, 1]}]}]}).to_string().into(),
    ]
}

pub(crate) fn samplings() -> Vec<Vec<u8>> {
    let seed = |temperature: f32, top_p: f32, top_k: u32, min_p: f32, penalty: f32, text: u32| {
        let head = [temperature.to_bits(), top_p.to_bits(), top_k, min_p.to_bits(), penalty.to_bits(), 64, 7, 0, text];
        [head.iter().flat_map(|word| word.to_le_bytes()).collect(), bytes_of(&numbers(64))].concat()
    };
    vec![
        seed(0.0, 1.0, 0, 0.0, 1.0, 0),
        seed(1.0, 0.9, 0, 0.0, 1.1, 5),
        seed(0.7, 1.0, 8, 0.0, 1.0, 3),
        seed(1.5, 0.95, 5, 0.05, 1.3, 7),
        seed(1.0, 1.0, 0, 0.2, 1.0, 0),
    ]
}

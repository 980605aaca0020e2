//! JSON, and JSON of a schema, as a grammar. Every text of the grammar is valid by the schema; not every valid text is of the grammar: properties come in the schema's order, and those that it does not list
//! are left out where it lists any. A keyword that would not be kept to is refused.

use super::super::fields::kind;
use super::super::refusal::{Answer, Refusal};
use super::{Bytes, Grammar, Part, Rule, literal};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// What says nothing of the form of a text.
const NOTES: [&str; 10] =
    ["title", "description", "default", "examples", "$schema", "$id", "$comment", "$defs", "definitions", "deprecated"];
/// The most elements or characters that a bound may ask for: each is a rule.
const MOST: u64 = 2000;
/// The most rules of a grammar.
const MOST_RULES: usize = 20_000;
/// The most parts of a grammar: each byte of its texts is one.
const MOST_PARTS: usize = 500_000;
/// How deep schemas may lie within each other.
const DEPTH: usize = 64;

/// The grammar of any JSON object.
pub(crate) fn any_object() -> Grammar {
    let mut maker = Maker::new(&Value::Null);
    maker.grammar.start = maker.object;
    maker.grammar
}

/// The grammar of `schema`.
///
/// # Errors
/// A [`Refusal`] that names the keyword which is not supported, and where it stands.
pub(crate) fn of_schema(schema: &Value) -> Answer<Grammar> {
    let mut maker = Maker::new(schema);
    maker.grammar.start = maker.schema(schema, "#", DEPTH)?;
    if maker.grammar.is_left_recursive() {
        return Err(refused("#", "a $ref leads to itself and nothing else"));
    }
    Ok(maker.grammar)
}

struct Maker<'v> {
    grammar: Grammar,
    root: &'v Value,
    /// Rules of schemas that are referred to.
    named: BTreeMap<String, Rule>,
    space: Rule,
    character: Rule,
    string: Rule,
    integer: Rule,
    number: Rule,
    value: Rule,
    object: Rule,
    array: Rule,
}

fn refused(at: &str, what: impl std::fmt::Display) -> Refusal {
    Refusal::field("response_format", format_args!("{what} (at {at} of the schema)"))
}

impl<'v> Maker<'v> {
    /// The rules of JSON itself.
    fn new(root: &'v Value) -> Self {
        let mut grammar = Grammar::default();
        let byte = |first, last| Part::Byte(Bytes::range(first, last));
        // A space, or a line break and what indents the next line.
        let blank = Part::Byte(Bytes::range(b' ', b' ').and(b'\t', b'\t'));
        let mut indent = grammar.rule(&[&[]]);
        for _ in 0..16 {
            indent = grammar.rule(&[&[], &[blank, Part::Rule(indent)]]);
        }
        let space = grammar.rule(&[&[], &literal(" "), &[byte(b'\n', b'\n'), Part::Rule(indent)]]);
        let tail = byte(0x80, 0xBF);
        let hex = Part::Byte(Bytes::range(b'0', b'9').and(b'a', b'f').and(b'A', b'F'));
        // Surrogates come in pairs, the higher first: D800 to DBFF, then DC00 to DFFF.
        let (slash, u, d) = (byte(b'\\', b'\\'), byte(b'u', b'u'), Part::Byte(Bytes::range(b'd', b'd').and(b'D', b'D')));
        let high = Part::Byte(Bytes::range(b'8', b'9').and(b'a', b'b').and(b'A', b'B'));
        let low = Part::Byte(Bytes::range(b'c', b'f').and(b'C', b'F'));
        let other_hex = Part::Byte(Bytes::range(b'0', b'9').and(b'a', b'c').and(b'A', b'C').and(b'e', b'f').and(b'E', b'F'));
        let simple = "\"\\/bfnrt".bytes().fold(Bytes::default(), |all, byte| all.and(byte, byte));
        let character = grammar.rule(&[
            &[Part::Byte(Bytes::range(b' ', b'!').and(b'#', b'[').and(b']', 0x7F))],
            &[byte(0xC2, 0xDF), tail],
            &[byte(0xE0, 0xE0), byte(0xA0, 0xBF), tail],
            &[Part::Byte(Bytes::range(0xE1, 0xEC).and(0xEE, 0xEF)), tail, tail],
            &[byte(0xED, 0xED), byte(0x80, 0x9F), tail],
            &[byte(0xF0, 0xF0), byte(0x90, 0xBF), tail, tail],
            &[byte(0xF1, 0xF3), tail, tail, tail],
            &[byte(0xF4, 0xF4), byte(0x80, 0x8F), tail, tail],
            &[slash, Part::Byte(simple)],
            &[slash, u, other_hex, hex, hex, hex],
            &[slash, u, d, byte(b'0', b'7'), hex, hex],
            &[slash, u, d, high, hex, hex, slash, u, d, low, hex, hex],
        ]);
        let characters = grammar.declare();
        grammar.add(characters, &[]);
        grammar.add(characters, &[Part::Rule(character), Part::Rule(characters)]);
        let quote = byte(b'"', b'"');
        let string = grammar.rule(&[&[quote, Part::Rule(characters), quote]]);
        let digit = byte(b'0', b'9');
        let mut digits = grammar.rule(&[&[]]);
        for _ in 0..15 {
            digits = grammar.rule(&[&[], &[digit, Part::Rule(digits)]]);
        }
        let natural = grammar.rule(&[&literal("0"), &[byte(b'1', b'9'), Part::Rule(digits)]]);
        let integer = grammar.rule(&[&[Part::Rule(natural)], &[byte(b'-', b'-'), Part::Rule(natural)]]);
        let fraction = grammar.rule(&[&[], &[byte(b'.', b'.'), digit, Part::Rule(digits)]]);
        let e = Part::Byte(Bytes::range(b'e', b'e').and(b'E', b'E'));
        let sign = grammar.rule(&[&[], &[Part::Byte(Bytes::range(b'+', b'+').and(b'-', b'-'))]]);
        let two = grammar.rule(&[&[], &[digit]]);
        let exponent = grammar.rule(&[&[], &[e, Part::Rule(sign), digit, Part::Rule(two)]]);
        let number = grammar.rule(&[&[Part::Rule(integer), Part::Rule(fraction), Part::Rule(exponent)]]);
        let value = grammar.declare();
        let mut maker =
            Self { grammar, root, named: BTreeMap::new(), space, character, string, integer, number, value, object: value, array: value };
        maker.object = maker.map(value);
        maker.array = maker.list(value, 0, None);
        for parts in ["true", "false", "null"].map(literal) {
            maker.grammar.add(value, &parts);
        }
        for rule in [string, number, maker.object, maker.array] {
            maker.grammar.add(value, &[Part::Rule(rule)]);
        }
        maker
    }

    /// An object with any keys and values of this rule.
    fn map(&mut self, value: Rule) -> Rule {
        let member = self.member(&[Part::Rule(self.string)], value);
        let rest = self.grammar.declare();
        let comma = [&literal(",")[..], &[Part::Rule(self.space), Part::Rule(member), Part::Rule(rest)]].concat();
        self.grammar.add(rest, &[]);
        self.grammar.add(rest, &comma);
        let members = self.grammar.rule(&[&[], &[Part::Rule(member), Part::Rule(rest)]]);
        self.enclosed("{", members, "}")
    }

    /// A key and its value.
    fn member(&mut self, key: &[Part], value: Rule) -> Rule {
        let space = Part::Rule(self.space);
        let parts = [key, &literal(":"), &[space, Part::Rule(value), space]].concat();
        self.grammar.rule(&[&parts])
    }

    fn enclosed(&mut self, open: &str, inside: Rule, close: &str) -> Rule {
        let parts = [&literal(open)[..], &[Part::Rule(self.space), Part::Rule(inside)], &literal(close)].concat();
        self.grammar.rule(&[&parts])
    }

    /// An array of so many elements.
    fn list(&mut self, element: Rule, least: u64, most: Option<u64>) -> Rule {
        let item = self.grammar.rule(&[&[Part::Rule(element), Part::Rule(self.space)]]);
        let next = [&literal(",")[..], &[Part::Rule(self.space), Part::Rule(item)]].concat();
        let next = self.grammar.rule(&[&next]);
        let rest = self.repeated(next, least.saturating_sub(1), most.map(|most| most.saturating_sub(1)));
        let items = self.grammar.declare();
        if least == 0 {
            self.grammar.add(items, &[]);
        }
        if most != Some(0) {
            self.grammar.add(items, &[Part::Rule(item), Part::Rule(rest)]);
        }
        self.enclosed("[", items, "]")
    }

    /// A rule so many times, one after the other.
    fn repeated(&mut self, rule: Rule, least: u64, most: Option<u64>) -> Rule {
        let mut rest = match most {
            None => {
                let any = self.grammar.declare();
                self.grammar.add(any, &[]);
                self.grammar.add(any, &[Part::Rule(rule), Part::Rule(any)]);
                any
            }
            Some(_) => self.grammar.rule(&[&[]]),
        };
        for _ in least..most.unwrap_or(least) {
            rest = self.grammar.rule(&[&[], &[Part::Rule(rule), Part::Rule(rest)]]);
        }
        for _ in 0..least {
            rest = self.grammar.rule(&[&[Part::Rule(rule), Part::Rule(rest)]]);
        }
        rest
    }

    /// The rule of a schema.
    fn schema(&mut self, schema: &Value, at: &str, depth: usize) -> Answer<Rule> {
        let Some(depth) = depth.checked_sub(1) else { return Err(refused(at, "schemas lie too deep within each other")) };
        self.room(0, at)?;
        let object = match schema {
            Value::Bool(true) => return Ok(self.value),
            Value::Object(object) => object,
            other => return Err(refused(at, format_args!("a schema is an object, not {}", kind(other)))),
        };
        if let Some(reference) = object.get("$ref") {
            known(object, at, &["$ref"])?;
            return self.reference(reference, at, depth);
        }
        for (key, list) in [("enum", object.get("enum")), ("const", object.get("const"))] {
            let Some(list) = list else { continue };
            known(object, at, &[key, "type"])?;
            let values = if key == "const" { std::slice::from_ref(list) } else { list.as_array().map_or(&[][..], Vec::as_slice) };
            if values.is_empty() {
                return Err(refused(at, "enum is no array of values"));
            }
            if values.len() > super::MOST {
                return Err(refused(at, format_args!("enum has {} values, {} are taken at most", values.len(), super::MOST)));
            }
            let typed = |value: &Value| match object.get("type") {
                None => true,
                Some(Value::Array(names)) => names.iter().any(|name| is_of_type(name, value)),
                Some(name) => is_of_type(name, value),
            };
            let rule = self.grammar.declare();
            for value in values {
                let text = value.to_string();
                self.room(text.len(), at)?;
                if !typed(value) {
                    return Err(refused(at, format_args!("{text} of {key} is not of the type beside it")));
                }
                self.grammar.add(rule, &literal(&text));
            }
            return Ok(rule);
        }
        if let Some(alternatives) = object.get("anyOf") {
            known(object, at, &["anyOf"])?;
            let list = alternatives.as_array().filter(|list| !list.is_empty());
            let list = list.ok_or_else(|| refused(at, "anyOf is no array of schemas"))?;
            let rule = self.grammar.declare();
            for (place, schema) in list.iter().enumerate() {
                let alternative = self.schema(schema, &format!("{at}/anyOf/{place}"), depth)?;
                self.grammar.add(rule, &[Part::Rule(alternative)]);
            }
            return Ok(rule);
        }
        match object.get("type") {
            None if object.contains_key("properties") => self.typed("object", object, at, depth),
            None if object.contains_key("items") => self.typed("array", object, at, depth),
            None => known(object, at, &[]).map(|()| self.value),
            Some(Value::String(name)) => self.typed(name, object, at, depth),
            Some(Value::Array(names)) if !names.is_empty() => {
                let rule = self.grammar.declare();
                for name in names {
                    let name = name.as_str().ok_or_else(|| refused(at, "type is no array of names"))?;
                    // Keywords of one type say nothing of the others.
                    let own: Map<String, Value> =
                        object.iter().filter(|(key, _)| concerns(name, key)).map(|(key, value)| (key.clone(), value.clone())).collect();
                    known(
                        object,
                        at,
                        &[
                            "type",
                            "properties",
                            "required",
                            "additionalProperties",
                            "items",
                            "minItems",
                            "maxItems",
                            "minLength",
                            "maxLength",
                        ],
                    )?;
                    let alternative = self.typed(name, &own, at, depth)?;
                    self.grammar.add(rule, &[Part::Rule(alternative)]);
                }
                Ok(rule)
            }
            Some(_) => Err(refused(at, "type is neither a name nor an array of names")),
        }
    }

    /// Refuses what would make the grammar larger than it may be.
    fn room(&self, bytes: usize, at: &str) -> Answer<()> {
        if self.grammar.rules.len() > MOST_RULES || self.grammar.parts.len() + bytes > MOST_PARTS {
            return Err(refused(at, "the schema is too large"));
        }
        Ok(())
    }

    fn reference(&mut self, reference: &Value, at: &str, depth: usize) -> Answer<Rule> {
        let path = reference.as_str().and_then(|path| path.strip_prefix('#'));
        let target = path.and_then(|path| self.root.pointer(path));
        let (Some(path), Some(target)) = (path, target) else {
            return Err(refused(at, format_args!("$ref {reference} is nothing in this schema")));
        };
        if let Some(rule) = self.named.get(path) {
            return Ok(*rule);
        }
        let rule = self.grammar.declare();
        self.named.insert(path.to_owned(), rule);
        let made = self.schema(target, &format!("#{path}"), depth)?;
        self.grammar.add(rule, &[Part::Rule(made)]);
        Ok(rule)
    }

    fn typed(&mut self, name: &str, object: &Map<String, Value>, at: &str, depth: usize) -> Answer<Rule> {
        match name {
            "null" => known(object, at, &["type"]).map(|()| self.grammar.rule(&[&literal("null")])),
            "boolean" => known(object, at, &["type"]).map(|()| self.grammar.rule(&[&literal("true"), &literal("false")])),
            "integer" => known(object, at, &["type"]).map(|()| self.integer),
            "number" => known(object, at, &["type"]).map(|()| self.number),
            "string" => {
                known(object, at, &["type", "minLength", "maxLength"])?;
                let (least, most) = bounds(object, at, ("minLength", "maxLength"))?;
                if (least, most) == (0, None) {
                    return Ok(self.string);
                }
                let characters = self.repeated(self.character, least, most);
                let parts = [&literal("\"")[..], &[Part::Rule(characters)], &literal("\"")].concat();
                Ok(self.grammar.rule(&[&parts]))
            }
            "array" => {
                known(object, at, &["type", "items", "minItems", "maxItems"])?;
                let (least, most) = bounds(object, at, ("minItems", "maxItems"))?;
                let element = object.get("items").map_or(Ok(self.value), |items| self.schema(items, &format!("{at}/items"), depth))?;
                Ok(self.list(element, least, most))
            }
            "object" => self.properties(object, at, depth),
            other => Err(refused(at, format_args!("type {other:?} is none of JSON's"))),
        }
    }

    fn properties(&mut self, object: &Map<String, Value>, at: &str, depth: usize) -> Answer<Rule> {
        known(object, at, &["type", "properties", "required", "additionalProperties"])?;
        let none = Map::new();
        let listed = match object.get("properties") {
            None => &none,
            Some(properties) => properties.as_object().ok_or_else(|| refused(at, "properties is no object"))?,
        };
        let required = match object.get("required") {
            None => Vec::new(),
            Some(list) => {
                let names = list.as_array().map(|list| list.iter().map(Value::as_str).collect::<Option<Vec<&str>>>());
                names.flatten().ok_or_else(|| refused(at, "required is no array of names"))?
            }
        };
        if let Some(name) = required.iter().find(|name| !listed.contains_key(**name)) {
            return Err(refused(at, format_args!("{name:?} is required, but is none of the properties")));
        }
        if listed.is_empty() {
            return match object.get("additionalProperties") {
                None | Some(Value::Bool(true)) => Ok(self.object),
                Some(Value::Bool(false)) => {
                    let nothing = self.grammar.rule(&[&[]]);
                    Ok(self.enclosed("{", nothing, "}"))
                }
                Some(schema) => {
                    let value = self.schema(schema, &format!("{at}/additionalProperties"), depth)?;
                    Ok(self.map(value))
                }
            };
        }
        // From the last property to the first: what may follow where one was written before, and where none was.
        let (mut after, mut first) = (self.grammar.rule(&[&[]]), self.grammar.rule(&[&[]]));
        for (name, schema) in listed.iter().rev() {
            self.room(name.len(), at)?;
            let value = self.schema(schema, &format!("{at}/properties/{name}"), depth)?;
            let member = self.member(&literal(&Value::from(name.as_str()).to_string()), value);
            let begins = [Part::Rule(member), Part::Rule(after)];
            let follows = [&literal(",")[..], &[Part::Rule(self.space)], &begins].concat();
            let (new_after, new_first) = (self.grammar.rule(&[&follows]), self.grammar.rule(&[&begins]));
            if !required.contains(&name.as_str()) {
                self.grammar.add(new_after, &[Part::Rule(after)]);
                self.grammar.add(new_first, &[Part::Rule(first)]);
            }
            (after, first) = (new_after, new_first);
        }
        Ok(self.enclosed("{", first, "}"))
    }
}

/// Whether a value is of the type of this name.
fn is_of_type(name: &Value, value: &Value) -> bool {
    match name.as_str() {
        Some("null") => value.is_null(),
        Some("boolean") => value.is_boolean(),
        Some("integer") => value.is_i64() || value.is_u64(),
        Some("number") => value.is_number(),
        Some("string") => value.is_string(),
        Some("array") => value.is_array(),
        Some("object") => value.is_object(),
        _ => false,
    }
}

/// Whether a keyword says something of values of this type.
fn concerns(name: &str, key: &str) -> bool {
    let own: &[&str] = match name {
        "object" => &["properties", "required", "additionalProperties"],
        "array" => &["items", "minItems", "maxItems"],
        "string" => &["minLength", "maxLength"],
        _ => &[],
    };
    key == "type" || own.contains(&key)
}

/// Refuses keywords that are neither among these nor notes.
fn known(object: &Map<String, Value>, at: &str, keys: &[&str]) -> Answer<()> {
    match object.keys().find(|key| !keys.contains(&key.as_str()) && !NOTES.contains(&key.as_str())) {
        Some(key) => Err(refused(at, format_args!("the keyword {key:?} is not supported here"))),
        None => Ok(()),
    }
}

/// How many there may be.
fn bounds(object: &Map<String, Value>, at: &str, (least, most): (&str, &str)) -> Answer<(u64, Option<u64>)> {
    let bound = |key: &str| {
        let number = |value: &Value| {
            let number = value.as_u64().filter(|number| *number <= MOST);
            number.ok_or_else(|| refused(at, format_args!("{key}: {value} is no whole number up to {MOST}")))
        };
        object.get(key).map(number).transpose()
    };
    let (from, to) = (bound(least)?.unwrap_or(0), bound(most)?);
    if to.is_some_and(|to| to < from) {
        return Err(refused(at, format_args!("{least} is more than {most}")));
    }
    Ok((from, to))
}

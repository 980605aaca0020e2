//! JSON files beside a checkpoint, read strictly: a key that stands twice in one object is refused, not settled by whoever reads last. Used by the readers of Hugging Face models and tokenizers.

use super::{Kind, Mapping, recognise};
use crate::error::{Error, Result};
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use std::fmt;
use std::path::Path;

/// Reads a file that must be one JSON object.
///
/// # Errors
/// With the path: [`Class::Unreadable`](crate::error::Class::Unreadable); [`Class::Damaged`](crate::error::Class::Damaged) for what is not JSON, not an object, or has a key twice.
pub(super) fn read_object(path: &Path) -> Result<Map<String, Value>> {
    let file = Mapping::open(path)?;
    match recognise(file.bytes()) {
        kind @ (Kind::LfsPointer | Kind::Html | Kind::Compressed(_)) => Err(kind.not_imported(path)),
        _ => object(file.bytes()).map_err(|error| error.in_file(path)),
    }
}

/// Parses one JSON object.
///
/// # Errors
/// Those of [`read_object`], without a path.
pub(super) fn object(bytes: &[u8]) -> Result<Map<String, Value>> {
    match value(bytes)? {
        Value::Object(object) => Ok(object),
        other => Err(Error::damaged(format!("is {}, not a JSON object", kind(&other)))),
    }
}

fn value(bytes: &[u8]) -> Result<Value> {
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let value = Strict.deserialize(&mut deserializer).and_then(|value| deserializer.end().map(|()| value));
    value.map_err(|error| Error::damaged(format!("is not the JSON that it should be: {error}")))
}

/// What a value is, in words.
pub(super) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a truth value",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// A value as it stands in an error: short.
pub(super) fn shown(value: &Value) -> String {
    let text = value.to_string();
    if text.chars().count() <= 80 {
        return text;
    }
    let start: String = text.chars().take(77).collect();
    format!("{start}...")
}

/// An object, and what it is called in errors: getters for its keys. A key that is null counts as absent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Keys<'v> {
    table: &'v Map<String, Value>,
    /// Before the name of a key: `rope_scaling.` or nothing.
    prefix: &'v str,
}

impl<'v> Keys<'v> {
    /// The keys of `table`, named in errors with `prefix` before them.
    pub(super) fn new(table: &'v Map<String, Value>, prefix: &'v str) -> Self {
        Self { table, prefix }
    }

    /// The value of a key, null left out.
    pub(super) fn value(&self, key: &str) -> Option<&'v Value> {
        self.table.get(key).filter(|value| !value.is_null())
    }

    /// Whether a key is there, be it null.
    pub(super) fn has(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    fn typed<T>(&self, key: &str, allowed: &str, read: impl FnOnce(&'v Value) -> Option<T>) -> Result<Option<T>> {
        match self.value(key) {
            None => Ok(None),
            Some(value) => read(value).map(Some).ok_or_else(|| self.wrong(key, value, allowed)),
        }
    }

    /// A whole number from 0 to 2^32 - 1.
    pub(super) fn u32(&self, key: &str) -> Result<Option<u32>> {
        self.typed(key, "a whole number from 0 to 4294967295", |value| value.as_u64().and_then(|number| u32::try_from(number).ok()))
    }

    /// A finite number.
    pub(super) fn f64(&self, key: &str) -> Result<Option<f64>> {
        self.typed(key, "a finite number", |value| value.as_f64().filter(|number| number.is_finite()))
    }

    /// True or false.
    pub(super) fn bool(&self, key: &str) -> Result<Option<bool>> {
        self.typed(key, "true or false", Value::as_bool)
    }

    /// A string.
    pub(super) fn text(&self, key: &str) -> Result<Option<&'v str>> {
        self.typed(key, "a string", Value::as_str)
    }

    /// An object.
    pub(super) fn object(&self, key: &str) -> Result<Option<&'v Map<String, Value>>> {
        self.typed(key, "an object", Value::as_object)
    }

    /// A list.
    pub(super) fn list(&self, key: &str) -> Result<Option<&'v [Value]>> {
        self.typed(key, "a list", |value| value.as_array().map(Vec::as_slice))
    }

    /// A value that has to be there.
    pub(super) fn required<T>(&self, key: &str, value: Option<T>) -> Result<T> {
        value.ok_or_else(|| Error::damaged(format!("has no {}{key}", self.prefix)))
    }

    /// The error for a key whose value cannot be.
    pub(super) fn wrong(&self, key: &str, value: &Value, allowed: &str) -> Error {
        Error::damaged(format!("{}{key} is {}; it can be {allowed}", self.prefix, shown(value)))
    }
}

/// Makes a [`Value`], refusing what `serde_json` would settle in silence.
struct Strict;

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> std::result::Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> std::result::Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> std::result::Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> std::result::Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> std::result::Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> std::result::Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("a number is not finite"))
    }

    fn visit_str<E>(self, value: &str) -> std::result::Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> std::result::Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> std::result::Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(value) = access.next_element_seed(Strict)? {
            list.push(value);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> std::result::Result<Value, A::Error> {
        let mut table = Map::new();
        while let Some(key) = access.next_key::<String>()? {
            if table.contains_key(&key) {
                return Err(A::Error::custom(format_args!("the key {key:?} stands twice in one object")));
            }
            let value = access.next_value_seed(Strict)?;
            table.insert(key, value);
        }
        Ok(Value::Object(table))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_one_object_is_refused() {
        for (text, said) in [
            ("", "EOF"),
            ("[1]", "is a list, not a JSON object"),
            ("{} {}", "trailing characters"),
            (r#"{"a": 1, "b": {"c": 1, "c": 2}}"#, r#"the key "c" stands twice in one object at line 1"#),
            (r#"{"a": NaN}"#, "line 1"),
            (r#"{"a": 1e999}"#, "number out of range"),
        ] {
            let error = object(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
        assert!(object("[".repeat(100_000).as_bytes()).unwrap_err().to_string().contains("recursion limit"));
        assert!(object(b"{\"a\": \"\xff\"}").is_err());
    }

    #[test]
    fn what_is_no_json_at_all_is_told_what_it_is() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("config.json");
        for (bytes, said) in [
            (b"version https://git-lfs.github.com/spec/v1\n".as_slice(), "git lfs pull"),
            (b"<!DOCTYPE html><html>", "web page"),
            (b"\x1f\x8b\x08\0", "gzip"),
        ] {
            std::fs::write(&path, bytes).unwrap();
            let error = read_object(&path).unwrap_err().to_string();
            assert!(error.contains("config.json: ") && error.contains(said), "{error}");
        }
    }

    #[test]
    fn values_are_those_of_serde_json() {
        let text = r#"{"a": [1, -2, 3.5, null, true, "x"], "b": {"c": {}}, "d": 18446744073709551615}"#;
        assert_eq!(Value::Object(object(text.as_bytes()).unwrap()), serde_json::from_str::<Value>(text).unwrap());
    }

    #[test]
    fn getters_name_key_value_and_what_is_allowed() {
        let table = object(br#"{"n": 3, "x": 0.5, "t": "a", "l": [], "none": null, "big": 4294967296}"#).unwrap();
        let keys = Keys::new(&table, "rope_scaling.");
        assert_eq!((keys.u32("n").unwrap(), keys.u32("none").unwrap(), keys.u32("absent").unwrap()), (Some(3), None, None));
        assert_eq!((keys.f64("n").unwrap(), keys.f64("x").unwrap(), keys.text("t").unwrap()), (Some(3.0), Some(0.5), Some("a")));
        let error = keys.u32("big").unwrap_err().to_string();
        assert_eq!(error, "rope_scaling.big is 4294967296; it can be a whole number from 0 to 4294967295");
        assert!(keys.bool("t").is_err() && keys.object("l").is_err() && keys.list("t").is_err());
        assert_eq!(keys.required("absent", None::<u32>).unwrap_err().to_string(), "has no rope_scaling.absent");
    }
}

//! The two directions between TOML text and typed values, used by both headers: writing so that a value has one spelling, and reading so that every refusal names its key.

use super::HeaderError;
use std::fmt::Write as _;
use toml::{Table, Value};

/// A type of value: how it is read, and what to say when it is not one.
pub(super) struct Kind<T> {
    allowed: &'static str,
    read: fn(&Value) -> Option<T>,
}

pub(super) const U32: Kind<u32> = Kind { allowed: "a whole number from 0 to 4294967295", read: |v| v.as_integer()?.try_into().ok() };
pub(super) const U64: Kind<u64> =
    Kind { allowed: "a whole number from 0 to 9223372036854775807", read: |v| v.as_integer()?.try_into().ok() };
pub(super) const BOOL: Kind<bool> = Kind { allowed: "true or false", read: Value::as_bool };
pub(super) const TEXT: Kind<String> = Kind { allowed: "a string", read: |v| v.as_str().map(String::from) };
pub(super) const F32: Kind<f32> = Kind {
    allowed: "a finite number with a decimal point, within single precision",
    read: |v| Some(v.as_float()? as f32).filter(|f| f.is_finite()),
};
pub(super) const F64: Kind<f64> =
    Kind { allowed: "a finite number with a decimal point", read: |v| v.as_float().filter(|f| f.is_finite()) };
pub(super) const U32_LIST: Kind<Vec<u32>> =
    Kind { allowed: "a list of whole numbers from 0 to 4294967295", read: |v| v.as_array()?.iter().map(|item| (U32.read)(item)).collect() };
pub(super) const I64: Kind<i64> = Kind { allowed: "a whole number", read: Value::as_integer };
pub(super) const I64_LIST: Kind<Vec<i64>> =
    Kind { allowed: "a list of whole numbers", read: |v| v.as_array()?.iter().map(|item| (I64.read)(item)).collect() };
pub(super) const NUMBERS_OR_ONE: Kind<Vec<i64>> =
    Kind { allowed: "a whole number or a list of them", read: |v| (I64.read)(v).map(|one| vec![one]).or_else(|| (I64_LIST.read)(v)) };
pub(super) const NUMBER: Kind<f32> = Kind {
    allowed: "a finite number within single precision",
    read: |v| Some(v.as_float().or_else(|| v.as_integer().map(|whole| whole as f64))? as f32).filter(|f| f.is_finite()),
};
pub(super) const U32_LISTS: Kind<Vec<Vec<u32>>> =
    Kind { allowed: "a list of lists of whole numbers", read: |v| v.as_array()?.iter().map(|item| (U32_LIST.read)(item)).collect() };
pub(super) const PAIR: Kind<(u32, u32)> = Kind {
    allowed: "two whole numbers: [before, after]",
    read: |v| match (U32_LIST.read)(v)?.as_slice() {
        [before, after] => Some((*before, *after)),
        _ => None,
    },
};
pub(super) const PAIRS: Kind<Vec<(u32, u32)>> =
    Kind { allowed: "a list of pairs [before, after]", read: |v| v.as_array()?.iter().map(|item| (PAIR.read)(item)).collect() };
pub(super) const TEXT_LIST: Kind<Vec<String>> =
    Kind { allowed: "a list of strings", read: |v| v.as_array()?.iter().map(|item| (TEXT.read)(item)).collect() };
pub(super) const TABLE: Kind<Table> = Kind { allowed: "a table", read: |v| v.as_table().cloned() };
pub(super) const TABLE_LIST: Kind<Vec<Table>> =
    Kind { allowed: "a list of tables", read: |v| v.as_array()?.iter().map(|item| item.as_table().cloned()).collect() };

/// A table of the header whose keys are taken one by one; what is left over is unknown.
pub(super) struct Keys {
    path: String,
    table: Table,
    known: Vec<&'static str>,
}

impl Keys {
    /// Parses a whole header.
    pub(super) fn parse(text: &str) -> Result<Self, HeaderError> {
        match text.parse::<Table>() {
            Ok(table) => Ok(Self::new(String::new(), table)),
            Err(error) => Err(HeaderError::Toml { message: error.to_string().trim_end().into() }),
        }
    }

    /// The keys of `table`, which is called `path` in errors.
    pub(super) fn new(path: String, table: Table) -> Self {
        Self { path, table, known: Vec::new() }
    }

    /// The full name of `key`.
    pub(super) fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() { key.into() } else { format!("{}.{key}", self.path) }
    }

    /// Takes a key that may be absent.
    pub(super) fn optional<T>(&mut self, key: &'static str, kind: &Kind<T>) -> Result<Option<T>, HeaderError> {
        self.known.push(key);
        match self.table.remove(key) {
            None => Ok(None),
            Some(value) => match (kind.read)(&value) {
                Some(read) => Ok(Some(read)),
                None => Err(HeaderError::wrong(self.path_of(key), show(&value), kind.allowed)),
            },
        }
    }

    /// Takes a key that must be there.
    pub(super) fn required<T>(&mut self, key: &'static str, kind: &Kind<T>) -> Result<T, HeaderError> {
        match self.optional(key, kind)? {
            Some(value) => Ok(value),
            None => Err(HeaderError::wrong(self.path_of(key), "nothing", kind.allowed)),
        }
    }

    /// Takes a key that may be there and has no effect, but must have its type.
    pub(super) fn ignored<T>(&mut self, key: &'static str, kind: &Kind<T>) -> Result<(), HeaderError> {
        self.optional(key, kind).map(|_| ())
    }

    /// Takes a key whose value is one of a few names.
    pub(super) fn named<T: Copy>(&mut self, key: &'static str, choices: &[(&'static str, T)]) -> Result<T, HeaderError> {
        let name = self.required(key, &TEXT)?;
        if let Some((_, value)) = choices.iter().find(|(choice, _)| *choice == name) {
            return Ok(*value);
        }
        let names: Vec<_> = choices.iter().map(|(choice, _)| string(choice)).collect();
        Err(HeaderError::wrong(self.path_of(key), string(&name), names.join(" or ")))
    }

    /// Takes a key whose value is one of a few names, or that is left out for `absent`.
    pub(super) fn named_or<T: Copy>(&mut self, key: &'static str, choices: &[(&'static str, T)], absent: T) -> Result<T, HeaderError> {
        if self.table.contains_key(key) {
            return self.named(key, choices);
        }
        self.known.push(key);
        Ok(absent)
    }

    /// Takes a key whose value must be `allowed`, because it follows from the rest of the header.
    pub(super) fn equal<T: PartialEq + std::fmt::Display>(
        &mut self,
        key: &'static str,
        kind: &Kind<T>,
        allowed: &T,
    ) -> Result<(), HeaderError> {
        let found = self.required(key, kind)?;
        if found == *allowed { Ok(()) } else { Err(HeaderError::wrong(self.path_of(key), found, allowed)) }
    }

    /// Refuses what is left over.
    pub(super) fn refuse_rest(self) -> Result<(), HeaderError> {
        match self.rest().into_iter().next() {
            None => Ok(()),
            Some(key) => Err(HeaderError::UnknownKey { key, known: self.known.join(", ") }),
        }
    }

    /// Adds what is left over to the list of unknown keys.
    pub(super) fn list_rest(self, unknown: &mut Vec<String>) {
        unknown.extend(self.rest());
    }

    fn rest(&self) -> Vec<String> {
        let mut keys: Vec<_> = self.table.keys().map(|key| self.path_of(key)).collect();
        keys.sort();
        keys
    }
}

/// A value as errors show it: its TOML spelling, cut where it is long.
pub(super) fn show(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(80) {
        None => text,
        Some((end, _)) => format!("{}...", text.get(..end).unwrap_or_default()),
    }
}

/// A number in the shortest decimal digits that give the same `f64`, never with an exponent, always with a point: as dormouse writes them.
pub(super) fn float(value: f64) -> String {
    let mut text = value.to_string();
    if !text.contains('.') {
        text.push_str(".0");
    }
    text
}

/// A TOML basic string.
pub(super) fn string(value: &str) -> String {
    let mut text = String::with_capacity(value.len() + 2);
    text.push('"');
    for c in value.chars() {
        match c {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            '\0'..='\u{1f}' | '\u{7f}' => {
                let _ = write!(text, "\\u{:04X}", u32::from(c));
            }
            other => text.push(other),
        }
    }
    text.push('"');
    text
}

/// A TOML array on one line.
pub(super) fn list<T>(items: &[T], show: impl Fn(&T) -> String) -> String {
    let items: Vec<_> = items.iter().map(show).collect();
    format!("[{}]", items.join(", "))
}

/// Header text under construction.
#[derive(Default)]
pub(super) struct Text(pub(super) String);

impl Text {
    /// An empty line and `[name]` (or whatever `head` is).
    pub(super) fn head(&mut self, head: &str) {
        self.0.push('\n');
        self.0.push_str(head);
        self.0.push('\n');
    }

    /// `key = value`, the value already in its TOML spelling.
    pub(super) fn raw(&mut self, key: &str, value: &str) {
        self.0.push_str(key);
        self.0.push_str(" = ");
        self.0.push_str(value);
        self.0.push('\n');
    }

    /// A number or truth value.
    pub(super) fn plain(&mut self, key: &str, value: impl std::fmt::Display) {
        self.raw(key, &value.to_string());
    }

    /// A string.
    pub(super) fn text(&mut self, key: &str, value: &str) {
        self.raw(key, &string(value));
    }

    /// A single-precision number, in the digits of the double that it widens to.
    pub(super) fn float(&mut self, key: &str, value: f32) {
        self.raw(key, &float(f64::from(value)));
    }

    /// A checksum, in hexadecimal.
    pub(super) fn crc(&mut self, key: &str, value: u32) {
        self.raw(key, &format!("{value:#010x}"));
    }
}

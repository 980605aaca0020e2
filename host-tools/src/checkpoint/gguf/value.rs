//! The typed values of GGUF's metadata, borrowed from the file.

use super::cursor::{COPY, Cursor};
use crate::error::{Error, Result};

/// A value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Value<'a> {
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Bool(bool),
    Text(&'a [u8]),
    Array(List<'a>),
}

/// An array: checked when the file was opened, so that going through it cannot fail.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct List<'a> {
    kind: u32,
    pub(super) len: u64,
    bytes: &'a [u8],
}

const TEXT: u32 = 8;
const ARRAY: u32 = 9;

/// Bytes of a value of this kind; `None` for strings, arrays and kinds that are not known.
fn width(kind: u32) -> Option<u64> {
    match kind {
        0 | 1 | 7 => Some(1),
        2 | 3 => Some(2),
        4..=6 => Some(4),
        10..=12 => Some(8),
        _ => None,
    }
}

fn kind_name(kind: u32) -> &'static str {
    match kind {
        0 | 2 | 4 | 10 => "unsigned integers",
        1 | 3 | 5 | 11 => "signed integers",
        6 | 12 => "floats",
        7 => "booleans",
        _ => "strings",
    }
}

impl<'a> Value<'a> {
    /// Reads the value of `key`, its kind first.
    pub(super) fn read(cursor: &mut Cursor<'a>, key: &str) -> Result<Self> {
        let at = cursor.at();
        let kind = cursor.u32("a metadata value")?;
        let what = format!("the value of {key}");
        match kind {
            TEXT => cursor.bytes(&what).map(Self::Text),
            ARRAY => List::read(cursor, key).map(Self::Array),
            _ => match width(kind) {
                Some(width) => scalar(kind, cursor.take(width, &what)?).map_err(|error| error.at(format!("byte {at}"))),
                None => Err(unknown_kind(kind, key, at)),
            },
        }
    }

    /// What it is, in words.
    pub(super) fn describe(&self) -> String {
        match self {
            Self::Unsigned(value) => value.to_string(),
            Self::Signed(value) => value.to_string(),
            Self::Float(value) => value.to_string(),
            Self::Bool(value) => value.to_string(),
            Self::Text(text) => {
                let text = String::from_utf8_lossy(text);
                let short: String = text.chars().take(60).collect();
                if short.len() < text.len() { format!("{short:?}...") } else { format!("{short:?}") }
            }
            Self::Array(list) => format!("an array of {} {}", list.len, kind_name(list.kind)),
        }
    }
}

fn unknown_kind(kind: u32, key: &str, at: usize) -> Error {
    Error::damaged(format!("{key} has a value of the unknown kind {kind}")).at(format!("byte {at}")).advise(COPY)
}

fn scalar(kind: u32, bytes: &[u8]) -> Result<Value<'static>> {
    // Little-endian: the bytes that are not there are zeros.
    let mut word = [0; 8];
    for (to, from) in word.iter_mut().zip(bytes) {
        *to = *from;
    }
    let bits = u64::from_le_bytes(word);
    Ok(match kind {
        1 => Value::Signed(i64::from(bits as u8 as i8)),
        3 => Value::Signed(i64::from(bits as u16 as i16)),
        5 => Value::Signed(i64::from(bits as u32 as i32)),
        11 => Value::Signed(bits as i64),
        6 => Value::Float(f64::from(f32::from_bits(bits as u32))),
        12 => Value::Float(f64::from_bits(bits)),
        7 if bits > 1 => return Err(Error::damaged(format!("a boolean is {bits}, which is neither 0 nor 1")).advise(COPY)),
        7 => Value::Bool(bits == 1),
        _ => Value::Unsigned(bits),
    })
}

impl<'a> List<'a> {
    fn read(cursor: &mut Cursor<'a>, key: &str) -> Result<Self> {
        let at = cursor.at();
        let what = format!("the array of {key}");
        let kind = cursor.u32(&what)?;
        let len = cursor.u64(&what)?;
        let start = *cursor;
        let least = match kind {
            TEXT => 8,
            ARRAY => {
                let what = format!("{key} is an array of arrays, which no key that this version knows is");
                return Err(Error::damaged(what).at(format!("byte {at}")));
            }
            _ => width(kind).ok_or_else(|| unknown_kind(kind, key, at))?,
        };
        let needed = len.checked_mul(least).filter(|needed| *needed <= cursor.left());
        let Some(needed) = needed else {
            let what = format!("{key} is said to be an array of {len}, but only {} bytes are left in the file", cursor.left());
            return Err(Error::damaged(what).at(format!("byte {at}")).advise(COPY));
        };
        let bytes = if kind == TEXT {
            for _ in 0..len {
                cursor.bytes(&what)?;
            }
            let mut whole = start;
            whole.take((cursor.at() - start.at()) as u64, &what)?
        } else {
            cursor.take(needed, &what)?
        };
        let list = Self { kind, len, bytes };
        if kind == 7 && bytes.iter().any(|byte| *byte > 1) {
            return Err(Error::damaged(format!("{key} has a boolean that is neither 0 nor 1")).at(format!("byte {at}")).advise(COPY));
        }
        Ok(list)
    }

    /// Whether its elements are strings.
    pub(super) fn is_text(&self) -> bool {
        self.kind == TEXT
    }

    /// The elements.
    pub(super) fn values(&self) -> impl Iterator<Item = Value<'a>> {
        let (kind, bytes) = (self.kind, self.bytes);
        let mut cursor = Cursor::new(bytes, 0);
        (0..self.len).map_while(move |_| match kind {
            TEXT => cursor.bytes("").ok().map(Value::Text),
            _ => scalar(kind, cursor.take(width(kind)?, "").ok()?).ok(),
        })
    }
}

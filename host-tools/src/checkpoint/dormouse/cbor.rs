//! As much of CBOR (RFC 8949) as burn's records use: whole numbers, text, lists, maps, simple values, all of definite length. What a length promises is compared with the bytes that
//! are there before anything is kept.

use crate::error::{Error, Result};

/// Lists and maps within each other.
const DEPTH_LIMIT: u32 = 8;

/// One item.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Item<'a> {
    Number(u64),
    Text(&'a str),
    List(Vec<Item<'a>>),
    Map(Vec<(&'a str, Item<'a>)>),
    /// A negative number, bytes, a float, true, false, null: nothing that is looked at.
    Other,
}

impl<'a> Item<'a> {
    /// The value of `key` in a map.
    pub(super) fn get(&self, key: &str) -> Option<&Item<'a>> {
        match self {
            Self::Map(entries) => entries.iter().find(|(name, _)| *name == key).map(|(_, item)| item),
            _ => None,
        }
    }
}

/// Reads one item, which must be all of `bytes`; `start` is where they lie in the file, for errors.
///
/// # Errors
/// [`Class::Damaged`](crate::error::Class::Damaged) with the byte.
pub(super) fn parse(bytes: &[u8], start: u64) -> Result<Item<'_>> {
    let mut reader = Reader { rest: bytes, len: bytes.len(), start };
    let item = reader.item(0)?;
    if reader.rest.is_empty() { Ok(item) } else { Err(reader.damaged("is followed by bytes that belong to nothing")) }
}

struct Reader<'a> {
    rest: &'a [u8],
    len: usize,
    start: u64,
}

impl<'a> Reader<'a> {
    fn damaged(&self, what: &str) -> Error {
        let at = self.start + (self.len - self.rest.len()) as u64;
        Error::damaged(format!("the list of tensors (CBOR) {what}")).at(format!("byte {at}")).advise("copy the checkpoint again")
    }

    fn take(&mut self, len: u64) -> Result<&'a [u8]> {
        let split = usize::try_from(len).ok().and_then(|len| self.rest.split_at_checked(len));
        let Some((taken, rest)) = split else { return Err(self.damaged("ends early")) };
        self.rest = rest;
        Ok(taken)
    }

    /// Major type and argument of the next item.
    fn head(&mut self) -> Result<(u8, u64)> {
        let lead = self.take(1)?.first().copied().unwrap_or(0);
        let len = match lead & 31 {
            small @ 0..24 => return Ok((lead >> 5, u64::from(small))),
            24 => 1,
            25 => 2,
            26 => 4,
            27 => 8,
            31 => return Err(self.damaged("has an item of indefinite length")),
            _ => return Err(self.damaged("has an item of reserved form")),
        };
        let argument = self.take(len)?.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
        Ok((lead >> 5, argument))
    }

    fn text(&mut self, len: u64) -> Result<&'a str> {
        let bytes = self.take(len)?;
        std::str::from_utf8(bytes).map_err(|_| self.damaged("has text that is not UTF-8"))
    }

    /// Refuses a number of items that the bytes left cannot hold, at `least` bytes each.
    fn count(&self, count: u64, least: u64) -> Result<()> {
        match count.checked_mul(least) {
            Some(bytes) if bytes <= self.rest.len() as u64 => Ok(()),
            _ => Err(self.damaged("announces more items than there are bytes")),
        }
    }

    fn item(&mut self, depth: u32) -> Result<Item<'a>> {
        if depth > DEPTH_LIMIT {
            return Err(self.damaged("is nested more than 8 deep"));
        }
        let (major, argument) = self.head()?;
        Ok(match major {
            0 => Item::Number(argument),
            2 => {
                self.take(argument)?;
                Item::Other
            }
            3 => Item::Text(self.text(argument)?),
            4 => {
                self.count(argument, 1)?;
                Item::List((0..argument).map(|_| self.item(depth + 1)).collect::<Result<_>>()?)
            }
            5 => {
                self.count(argument, 2)?;
                Item::Map(self.entries(argument, depth)?)
            }
            1 | 7 => Item::Other,
            _ => return Err(self.damaged("has a tag")),
        })
    }

    fn entries(&mut self, count: u64, depth: u32) -> Result<Vec<(&'a str, Item<'a>)>> {
        let mut names = std::collections::HashSet::new();
        let mut entries = Vec::new();
        for _ in 0..count {
            let (3, len) = self.head()? else { return Err(self.damaged("has a key that is not text")) };
            let name = self.text(len)?;
            if !names.insert(name) {
                return Err(self.damaged(&format!("has the key {name:?} twice")));
            }
            entries.push((name, self.item(depth + 1)?));
        }
        Ok(entries)
    }
}

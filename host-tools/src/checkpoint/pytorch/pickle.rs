//! Python's pickle, protocols 2 to 5, as data: a stack machine that makes values and nothing else. Anything that would import or run something is refused by name, and what a hostile file
//! can make it hold is bounded by limits that no checkpoint comes near.

use super::call;
use super::globals;
use super::value::{Id, Value};
use crate::error::{Error, Result};
use std::cell::Cell;
use std::collections::HashMap;

/// The most values, and the most entries of the stack.
const VALUE_LIMIT: usize = 1 << 20;
/// The most bytes.
const LENGTH_LIMIT: usize = 1 << 26;

/// What one pickle held.
#[derive(Debug)]
pub(super) struct Pickle<'p> {
    values: Vec<Value<'p>>,
    root: Id,
}

impl<'p> Pickle<'p> {
    /// The outermost value.
    pub(super) fn root(&self) -> &Value<'p> {
        self.value(self.root)
    }

    /// The value of this number.
    pub(super) fn value(&self, id: Id) -> &Value<'p> {
        self.values.get(id as usize).unwrap_or(&Value::Other)
    }

    /// The values of all keys that are strings, where `value` is a dict.
    pub(super) fn entries<'a>(&'a self, value: &'a Value<'p>) -> Option<impl Iterator<Item = (&'p str, &'a Value<'p>)> + 'a> {
        let Value::Dict(pairs) = value else { return None };
        Some(pairs.iter().filter_map(|(key, value)| match self.value(*key) {
            Value::Text(text) => Some((*text, self.value(*value))),
            _ => None,
        }))
    }

    /// All values.
    pub(super) fn values(&self) -> &[Value<'p>] {
        &self.values
    }
}

/// Reads the pickle that begins at `start` of `bytes` and ends before `end`; returns where the byte after it is.
///
/// # Errors
/// [`Class::NotAModel`](crate::error::Class::NotAModel) for one that names what is not allowed, [`Class::Damaged`](crate::error::Class::Damaged) for bytes that are no pickle; with the byte.
pub(super) fn read(bytes: &[u8], start: usize, end: usize) -> Result<(Pickle<'_>, usize)> {
    let end = end.min(start.saturating_add(LENGTH_LIMIT)).min(bytes.len());
    let mut machine = Machine {
        bytes,
        at: start,
        op: start,
        end,
        values: Vec::new(),
        stack: Vec::new(),
        marks: Vec::new(),
        memo: HashMap::new(),
        copied: Cell::new(0),
    };
    let root = machine.run()?;
    Ok((Pickle { values: machine.values, root }, machine.at))
}

pub(super) struct Machine<'p> {
    bytes: &'p [u8],
    at: usize,
    /// Where the opcode at work is.
    op: usize,
    end: usize,
    pub(super) values: Vec<Value<'p>>,
    stack: Vec<Id>,
    marks: Vec<usize>,
    memo: HashMap<u64, Id>,
    /// Elements copied from one container to another.
    copied: Cell<usize>,
}

impl<'p> Machine<'p> {
    fn run(&mut self) -> Result<Id> {
        loop {
            self.op = self.at;
            let opcode = self.byte()?;
            match opcode {
                b'.' => return self.pop(),
                0x80 => {
                    let protocol = self.byte()?;
                    if !(2..=5).contains(&protocol) {
                        return Err(self.not_a_model(format!("is a pickle of protocol {protocol}; 2 to 5 are read")));
                    }
                }
                // A frame only says how many bytes belong together.
                0x95 => {
                    self.number(8)?;
                }
                b'(' => {
                    self.room()?;
                    self.marks.push(self.stack.len());
                }
                b'0' => {
                    if self.marks.last() == Some(&self.stack.len()) {
                        self.marks.pop();
                    } else {
                        self.pop()?;
                    }
                }
                b'1' => {
                    self.down_to_mark()?;
                }
                b'2' => {
                    let top = self.top()?;
                    self.push_id(top)?;
                }
                b'q' | b'r' | 0x94 => self.put(opcode)?,
                b'h' | b'j' => {
                    let number = self.number(if opcode == b'h' { 1 } else { 4 })?;
                    let id = self.memo.get(&number).copied();
                    let id = id.ok_or_else(|| self.damaged(format!("asks for memo {number}, which was never kept")))?;
                    self.push_id(id)?;
                }
                b'c' | 0x93 => self.global(opcode)?,
                b'R' => {
                    let (arguments, callee) = (self.pop()?, self.pop()?);
                    let value = call::reduce(self, callee, arguments)?;
                    self.push(value)?;
                }
                b'b' => {
                    let (_, object) = (self.pop()?, self.top()?);
                    // State of its own, as `_metadata` of a state dict: nothing that weights need.
                    if !matches!(self.value(object), Value::Dict(_) | Value::Tensor(_)) {
                        return Err(self.damaged(format!("gives state to {}", self.value(object).kind())));
                    }
                }
                b'Q' => {
                    let id = self.pop()?;
                    let value = call::persistent(self, id)?;
                    self.push(value)?;
                }
                _ => {
                    if !self.literal(opcode)? && !self.container(opcode)? {
                        return Err(self.refused(opcode));
                    }
                }
            }
        }
    }

    /// Opcodes that push what follows them.
    fn literal(&mut self, opcode: u8) -> Result<bool> {
        let value = match opcode {
            b'N' => Value::None,
            0x88 => Value::Bool(true),
            0x89 => Value::Bool(false),
            b'K' => Value::Integer(self.number(1)? as i64),
            b'M' => Value::Integer(self.number(2)? as i64),
            b'J' => Value::Integer(i64::from(self.number(4)? as u32 as i32)),
            0x8a => self.long(1)?,
            0x8b => self.long(4)?,
            b'G' => Value::Float(f64::from_bits((self.number(8)?).swap_bytes())),
            b'X' => Value::Text(self.text(4)?),
            0x8c => Value::Text(self.text(1)?),
            0x8d => Value::Text(self.text(8)?),
            // Strings of Python 2, which pickled text as bytes.
            b'U' => self.old_text(1)?,
            b'T' => self.old_text(4)?,
            b'C' => self.skip(1)?,
            b'B' => self.skip(4)?,
            0x8e => self.skip(8)?,
            _ => return Ok(false),
        };
        self.push(value)?;
        Ok(true)
    }

    /// Opcodes that make or fill tuples, lists, sets and dicts.
    fn container(&mut self, opcode: u8) -> Result<bool> {
        let value = match opcode {
            b')' => Value::Tuple(Vec::new()),
            b']' | 0x8f => Value::List(Vec::new()),
            b'}' => Value::Dict(Vec::new()),
            b't' => Value::Tuple(self.down_to_mark()?),
            b'l' | 0x91 => Value::List(self.down_to_mark()?),
            b'd' => {
                let items = self.down_to_mark()?;
                Value::Dict(self.pairs(&items)?)
            }
            0x85..=0x87 => {
                let mut items = Vec::new();
                for _ in 0x84..opcode {
                    items.push(self.pop()?);
                }
                items.reverse();
                Value::Tuple(items)
            }
            b'a' => {
                let item = self.pop()?;
                self.extend(&[item])?;
                return Ok(true);
            }
            b'e' | 0x90 => {
                let items = self.down_to_mark()?;
                self.extend(&items)?;
                return Ok(true);
            }
            b's' => {
                let (value, key) = (self.pop()?, self.pop()?);
                self.set(vec![(key, value)])?;
                return Ok(true);
            }
            b'u' => {
                let items = self.down_to_mark()?;
                let pairs = self.pairs(&items)?;
                self.set(pairs)?;
                return Ok(true);
            }
            _ => return Ok(false),
        };
        self.push(value)?;
        Ok(true)
    }

    fn put(&mut self, opcode: u8) -> Result<()> {
        let number = match opcode {
            b'q' => self.number(1)?,
            b'r' => self.number(4)?,
            _ => self.memo.len() as u64,
        };
        let top = self.top()?;
        self.memo.insert(number, top);
        Ok(())
    }

    fn global(&mut self, opcode: u8) -> Result<()> {
        let (module, name) = if opcode == b'c' {
            (self.line()?, self.line()?)
        } else {
            let (name, module) = (self.pop()?, self.pop()?);
            match (self.value(module), self.value(name)) {
                (Value::Text(module), Value::Text(name)) => (*module, *name),
                (module, name) => return Err(self.damaged(format!("names {} of {}", name.kind(), module.kind()))),
            }
        };
        let global = globals::find(module, name).ok_or_else(|| self.names(module, name))?;
        self.push(Value::Global(global))
    }

    /// The error of an opcode that is not read: those that name a class say which.
    fn refused(&mut self, opcode: u8) -> Error {
        match opcode {
            b'i' => match (self.line(), self.line()) {
                (Ok(module), Ok(name)) => self.names(module, name),
                (Err(error), _) | (_, Err(error)) => error,
            },
            b'o' | 0x81 | 0x92 => self.not_a_model("is a pickle that makes objects, which is more than tensors need".to_owned()),
            0x82..=0x84 | b'P' => self.not_a_model("is a pickle that asks its reader for objects of its own".to_owned()),
            b'I' | b'L' | b'F' | b'S' | b'V' | b'p' | b'g' => self.not_a_model("is a pickle of protocol 0; 2 to 5 are read".to_owned()),
            _ => self.damaged(format!("holds the byte {opcode:#04x} where an instruction should be")),
        }
    }

    fn names(&self, module: &str, name: &str) -> Error {
        self.not_a_model(format!("is a pickle that names {}", brief(&format!("{module}.{name}"))))
    }

    /// [`Class::NotAModel`](crate::error::Class::NotAModel), at the opcode.
    pub(super) fn not_a_model(&self, what: String) -> Error {
        Error::not_a_model(what)
            .at(format!("byte {}", self.op))
            .advise("tensors and plain data are read, and nothing is ever run: save the model again as a state dict (torch.save(model.state_dict(), ..))")
    }

    /// [`Class::Damaged`](crate::error::Class::Damaged), at the opcode.
    pub(super) fn damaged(&self, what: impl AsRef<str>) -> Error {
        Error::damaged(format!("the pickle {}", what.as_ref())).at(format!("byte {}", self.op)).advise("copy or download the file again")
    }

    pub(super) fn value(&self, id: Id) -> &Value<'p> {
        self.values.get(id as usize).unwrap_or(&Value::Other)
    }

    pub(super) fn pairs(&self, items: &[Id]) -> Result<Vec<(Id, Id)>> {
        let (pairs, rest) = items.as_chunks::<2>();
        if !rest.is_empty() {
            return Err(self.damaged("has a dict with a key and no value"));
        }
        Ok(pairs.iter().map(|[key, value]| (*key, *value)).collect())
    }

    fn extend(&mut self, items: &[Id]) -> Result<()> {
        let list = self.top()?;
        match self.values.get_mut(list as usize) {
            Some(Value::List(list)) => list.extend_from_slice(items),
            _ => return Err(self.damaged(format!("adds elements to {}", self.value(list).kind()))),
        }
        Ok(())
    }

    fn set(&mut self, pairs: Vec<(Id, Id)>) -> Result<()> {
        let dict = self.top()?;
        match self.values.get_mut(dict as usize) {
            Some(Value::Dict(dict)) => dict.extend(pairs),
            _ => return Err(self.damaged(format!("sets keys of {}", self.value(dict).kind()))),
        }
        Ok(())
    }

    /// Counts elements that are copied from one container to another: a few bytes of pickle can ask for as many copies as they like.
    pub(super) fn copy<T: Copy>(&self, items: &[T]) -> Result<Vec<T>> {
        self.copied.set(self.copied.get().saturating_add(items.len()));
        if self.copied.get() > VALUE_LIMIT {
            return Err(self.damaged(format!("copies more than {VALUE_LIMIT} values: no checkpoint does")));
        }
        Ok(items.to_vec())
    }

    fn room(&self) -> Result<()> {
        if self.values.len() >= VALUE_LIMIT || self.stack.len() >= VALUE_LIMIT || self.marks.len() >= VALUE_LIMIT {
            return Err(self.damaged(format!("has more than {VALUE_LIMIT} values: no checkpoint has")));
        }
        Ok(())
    }

    fn push(&mut self, value: Value<'p>) -> Result<()> {
        self.room()?;
        self.stack.push(self.values.len() as Id);
        self.values.push(value);
        Ok(())
    }

    fn push_id(&mut self, id: Id) -> Result<()> {
        self.room()?;
        self.stack.push(id);
        Ok(())
    }

    /// The top of the stack, above the last mark.
    fn top(&self) -> Result<Id> {
        let floor = self.marks.last().copied().unwrap_or(0);
        let above = self.stack.get(floor..).and_then(<[Id]>::last);
        above.copied().ok_or_else(|| self.damaged("takes from an empty stack"))
    }

    fn pop(&mut self) -> Result<Id> {
        let top = self.top()?;
        self.stack.pop();
        Ok(top)
    }

    fn down_to_mark(&mut self) -> Result<Vec<Id>> {
        let mark = self.marks.pop().ok_or_else(|| self.damaged("takes values up to a mark that is not there"))?;
        Ok(self.stack.split_off(mark.min(self.stack.len())))
    }

    fn byte(&mut self) -> Result<u8> {
        Ok(self.number(1)? as u8)
    }

    /// A little-endian number of up to 8 bytes.
    fn number(&mut self, len: usize) -> Result<u64> {
        let bytes = self.take(len as u64)?;
        Ok(bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    fn take(&mut self, len: u64) -> Result<&'p [u8]> {
        let end = usize::try_from(len).ok().and_then(|len| self.at.checked_add(len)).filter(|end| *end <= self.end);
        let taken = end.and_then(|end| self.bytes.get(self.at..end));
        let taken =
            taken.ok_or_else(|| self.damaged(format!("calls for {len} bytes where {} are left", self.end.saturating_sub(self.at))))?;
        self.at += taken.len();
        Ok(taken)
    }

    /// Bytes after a length of `size` bytes.
    fn counted(&mut self, size: usize) -> Result<&'p [u8]> {
        let len = self.number(size)?;
        self.take(len)
    }

    fn skip(&mut self, size: usize) -> Result<Value<'p>> {
        self.counted(size).map(|_| Value::Bytes)
    }

    fn text(&mut self, size: usize) -> Result<&'p str> {
        let bytes = self.counted(size)?;
        std::str::from_utf8(bytes).map_err(|_| self.damaged("has a string that is not UTF-8"))
    }

    fn old_text(&mut self, size: usize) -> Result<Value<'p>> {
        let bytes = self.counted(size)?;
        Ok(std::str::from_utf8(bytes).map_or(Value::Bytes, Value::Text))
    }

    fn long(&mut self, size: usize) -> Result<Value<'p>> {
        let bytes = self.counted(size)?;
        if bytes.len() > 8 {
            return Ok(Value::Long(bytes));
        }
        let negative = bytes.last().is_some_and(|byte| byte & 0x80 != 0);
        let filled = bytes.iter().rev().fold(if negative { u64::MAX } else { 0 }, |number, byte| number << 8 | u64::from(*byte));
        Ok(Value::Integer(filled.cast_signed()))
    }

    /// Text up to a line feed.
    fn line(&mut self) -> Result<&'p str> {
        let rest = self.bytes.get(self.at..self.end).unwrap_or_default();
        let len = rest.iter().take(4096).position(|byte| *byte == b'\n').ok_or_else(|| self.damaged("names something without an end"))?;
        let line = self.take(len as u64 + 1)?;
        std::str::from_utf8(line.get(..len).unwrap_or_default()).map_err(|_| self.damaged("names something that is not UTF-8"))
    }
}

/// At most 80 characters, so that an error stays readable.
fn brief(text: &str) -> String {
    if text.chars().count() > 80 { text.chars().take(79).chain(['\u{2026}']).collect() } else { text.to_owned() }
}

//! The regular expressions of pre-tokenizers, by hand. With L for `\p{L}`, N for `\p{N}`, the first alternative that matches taking as much as it can:
//!
//! - `gpt2`: `'s|'t|'re|'ve|'m|'ll|'d| ?L+| ?N+| ?[^\sLN]+|\s+(?!\S)|\s+`
//! - `smollm`: each N by itself; what lies between as `gpt2`, as if the text began and ended there
//! - `llama-bpe`: `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\nLN]?L+|N{1,3}| ?[^\sLN]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
//! - `qwen2`: the same with `N` for `N{1,3}`

use super::classes::{Class, first};
use crate::format::tokenizer::PreTokenizer;

/// The parts of a text with where they begin; together they are the text, and none is empty.
pub(super) struct Parts<'t> {
    pre_tokenizer: PreTokenizer,
    rest: &'t [u8],
    /// Where `rest` begins.
    start: usize,
    /// How far the next number of `smollm` is.
    to_number: usize,
}

impl<'t> Parts<'t> {
    pub(super) fn new(pre_tokenizer: PreTokenizer, text: &'t [u8]) -> Self {
        Self { pre_tokenizer, rest: text, start: 0, to_number: 0 }
    }

    /// Bytes of the part that `rest` begins with.
    fn next_len(&mut self) -> usize {
        let text = self.rest;
        match self.pre_tokenizer {
            PreTokenizer::Gpt2 => gpt2(text),
            PreTokenizer::Smollm => {
                if self.to_number == 0 {
                    if let Some((Class::Number, len)) = first(text) {
                        return len;
                    }
                    self.to_number = run(text, |class| class != Class::Number);
                }
                let len = gpt2(text.get(..self.to_number).unwrap_or(text));
                self.to_number = self.to_number.saturating_sub(len);
                len
            }
            PreTokenizer::LlamaBpe => cl100k(text, 3),
            PreTokenizer::Qwen2 => cl100k(text, 1),
            _ => text.len(),
        }
    }
}

impl<'t> Iterator for Parts<'t> {
    type Item = (usize, &'t [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        // A part of no bytes would never end; there is none.
        let len = self.next_len().max(1);
        let (part, rest) = self.rest.split_at_checked(len)?;
        let start = self.start;
        self.rest = rest;
        self.start = start.saturating_add(len);
        Some((start, part))
    }
}

fn gpt2(text: &[u8]) -> usize {
    if let Some(len) = contraction(text, false) {
        return len;
    }
    let space = usize::from(text.first() == Some(&b' '));
    let rest = text.get(space..).unwrap_or(&[]);
    match first(rest) {
        None | Some((Class::Space, _)) => white_space(text),
        Some((class, _)) => space + run(rest, |other| other == class),
    }
}

fn cl100k(text: &[u8], numbers: usize) -> usize {
    if let Some(len) = contraction(text, true) {
        return len;
    }
    let Some((class, len)) = first(text) else { return 0 };
    match class {
        Class::Letter => return run(text, letter),
        Class::Number => {
            let mut left = numbers;
            return run(text, |class| {
                let taken = class == Class::Number && left > 0;
                left = left.saturating_sub(1);
                taken
            });
        }
        Class::Other | Class::Space => {}
    }
    if !text.first().is_some_and(newline) {
        let letters = run(text.get(len..).unwrap_or(&[]), letter);
        if letters > 0 {
            return len + letters;
        }
    }
    let space = usize::from(text.first() == Some(&b' '));
    let others = run(text.get(space..).unwrap_or(&[]), |class| class == Class::Other);
    if others > 0 {
        let end = space + others;
        return end + text.iter().skip(end).take_while(|byte| newline(byte)).count();
    }
    let spaces = run(text, |class| class == Class::Space);
    match text.get(..spaces).and_then(|spaces| spaces.iter().rposition(newline)) {
        Some(last) => last + 1,
        None => white_space(text),
    }
}

/// `\s+(?!\S)|\s+`: white space to the end of the text; before a word without its last character, unless that is all.
fn white_space(text: &[u8]) -> usize {
    let (mut len, mut last) = (0, 0);
    while let Some((Class::Space, more)) = first(text.get(len..).unwrap_or(&[])) {
        len += more;
        last = more;
    }
    if len == text.len() || len == last { len } else { len - last }
}

/// The length of `'s`, `'t`, `'re`, `'ve`, `'m`, `'ll` or `'d`.
fn contraction(text: &[u8], any_case: bool) -> Option<usize> {
    let [b'\'', letters @ ..] = text else { return None };
    let fold = |byte: u8| if any_case { byte.to_ascii_lowercase() } else { byte };
    match *letters {
        // U+017F, the long s, which is an s where case does not matter.
        [0xC5, 0xBF, ..] if any_case => Some(3),
        [one, ..] if matches!(fold(one), b's' | b't' | b'm' | b'd') => Some(2),
        [one, two, ..] if matches!([fold(one), fold(two)], [b'r' | b'v', b'e'] | [b'l', b'l']) => Some(3),
        _ => None,
    }
}

/// Bytes of the characters at the beginning of `text` whose classes are `wanted`.
fn run(text: &[u8], mut wanted: impl FnMut(Class) -> bool) -> usize {
    let mut len = 0;
    while let Some((class, more)) = first(text.get(len..).unwrap_or(&[])) {
        if !wanted(class) {
            break;
        }
        len += more;
    }
    len
}

fn letter(class: Class) -> bool {
    class == Class::Letter
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the form that the iterators call it in")]
fn newline(byte: &u8) -> bool {
    matches!(byte, b'\r' | b'\n')
}

//! What pre-tokenizers ask of a character: letter (general category L), number (N), white space, or none of them.

use super::tables::{OFFSETS, RUNS, STARTS};

/// A character's class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    Other,
    Letter,
    Number,
    Space,
}

/// Class and length in bytes of the character that `text` begins with; a byte that begins none is [`Class::Other`] by itself.
pub(super) fn first(text: &[u8]) -> Option<(Class, usize)> {
    let lead = *text.first()?;
    if lead.is_ascii() {
        return Some((ascii(lead), 1));
    }
    let len = match lead {
        0xC2..=0xDF => 2,
        0xE0..=0xEF => 3,
        0xF0..=0xF4 => 4,
        _ => 1,
    };
    let character = text.get(..len).and_then(|bytes| core::str::from_utf8(bytes).ok()).and_then(|text| text.chars().next());
    Some(character.map_or((Class::Other, 1), |character| (of(character), len)))
}

const fn ascii(byte: u8) -> Class {
    match byte {
        b'A'..=b'Z' | b'a'..=b'z' => Class::Letter,
        b'0'..=b'9' => Class::Number,
        9..=13 | b' ' => Class::Space,
        _ => Class::Other,
    }
}

/// The class of `character`.
pub(super) fn of(character: char) -> Class {
    let code = character as u32;
    if matches!(code, 9..=13 | 0x20 | 0x85 | 0xA0 | 0x1680 | 0x2000..=0x200A | 0x2028 | 0x2029 | 0x202F | 0x205F | 0x3000) {
        return Class::Space;
    }
    // The last block of runs that begins at or below the character; the first begins at 0.
    let block = STARTS.partition_point(|start| *start <= code).saturating_sub(1);
    let (Some(start), Some(offset)) = (STARTS.get(block), OFFSETS.get(block)) else { return Class::Other };
    let (mut end, mut run, mut shift) = (*start, 0u32, 0);
    for byte in RUNS.iter().skip(usize::from(*offset)) {
        run |= u32::from(byte & 0x7F) << shift;
        if byte & 0x80 != 0 {
            shift = (shift + 7) & 31;
            continue;
        }
        end = end.saturating_add(run >> 2);
        if code < end {
            return match run & 3 {
                1 => Class::Letter,
                2 => Class::Number,
                _ => Class::Other,
            };
        }
        (run, shift) = (0, 0);
    }
    Class::Other
}

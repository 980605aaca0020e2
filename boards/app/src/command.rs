//! The words of a command, without a heap.

#[cfg(any(feature = "measure", feature = "probe"))]
use dmexp::format::KvDType;

/// The type of keys and values of this name.
#[cfg(any(feature = "measure", feature = "probe"))]
pub(crate) fn kv(word: &[u8]) -> Option<KvDType> {
    match word {
        b"f32" => Some(KvDType::F32),
        b"f16" => Some(KvDType::F16),
        b"q8" => Some(KvDType::Q8),
        _ => None,
    }
}

/// Takes words off the front of a command line.
pub(crate) struct Words<'a>(&'a [u8]);

impl<'a> Words<'a> {
    pub(crate) fn new(line: &'a [u8]) -> Self {
        Self(line)
    }

    /// The next word; empty at the end of the line.
    pub(crate) fn next(&mut self) -> &'a [u8] {
        let line = self.0.trim_ascii_start();
        let len = line.iter().position(|byte| *byte == b' ').unwrap_or(line.len());
        let (word, rest) = line.split_at_checked(len).unwrap_or((line, &[]));
        self.0 = rest;
        word
    }

    /// The next word as a decimal number.
    pub(crate) fn number(&mut self) -> Option<u32> {
        let word = self.next();
        if word.is_empty() {
            return None;
        }
        word.iter().try_fold(0u32, |number, byte| {
            let digit = byte.wrapping_sub(b'0');
            if digit > 9 { None } else { number.checked_mul(10)?.checked_add(u32::from(digit)) }
        })
    }
}

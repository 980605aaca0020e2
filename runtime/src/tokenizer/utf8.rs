//! Whole characters out of tokens that may hold parts of them: between a tokenizer and whoever shows text.

use crate::format::utf8::missing;

/// Takes text as bytes of whole characters; false: it takes no more.
pub(crate) type Sink<'s> = &'s mut dyn FnMut(&[u8]) -> bool;

/// U+FFFD.
const REPLACEMENT: &[u8] = "\u{FFFD}".as_bytes();

/// Passes bytes on as text, never splitting a character; bytes that are not UTF-8 become U+FFFD exactly where `String::from_utf8_lossy` would put it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Utf8Stream {
    /// The beginning of a character whose other bytes have not come yet.
    held: [u8; 3],
    len: u8,
}

impl Utf8Stream {
    /// Nothing held back.
    pub const fn new() -> Self {
        Self { held: [0; 3], len: 0 }
    }

    /// Takes more bytes and gives the text that is complete to `sink`, in one or more parts. At most 3 bytes are held back.
    ///
    /// # Errors
    /// The first error of `sink`; the rest of `bytes` is lost then.
    pub fn push<E>(&mut self, bytes: &[u8], sink: impl FnMut(&str) -> Result<(), E>) -> Result<(), E> {
        in_text(sink, |sink| self.push_bytes(bytes, sink))
    }

    /// [`Utf8Stream::push`] with the text as bytes, compiled once for all sinks. False if `sink` was, which is not called again then.
    #[inline(never)]
    pub(crate) fn push_bytes(&mut self, bytes: &[u8], sink: Sink<'_>) -> bool {
        let mut rest = bytes;
        while let [first, tail @ ..] = rest {
            match self.take(*first, sink) {
                Some(true) => rest = tail,
                Some(false) => {}
                None => return false,
            }
        }
        true
    }

    /// Ends the text: what is held back can no longer become a character.
    ///
    /// # Errors
    /// That of `sink`.
    pub fn finish<E>(&mut self, sink: impl FnMut(&str) -> Result<(), E>) -> Result<(), E> {
        in_text(sink, |sink| self.finish_bytes(sink))
    }

    /// [`Utf8Stream::finish`] with the text as bytes. False if `sink` was.
    pub(crate) fn finish_bytes(&mut self, sink: Sink<'_>) -> bool {
        core::mem::take(&mut self.len) == 0 || sink(REPLACEMENT)
    }

    /// How many bytes are held back.
    #[cfg(test)]
    pub(super) fn held_len(self) -> usize {
        usize::from(self.len)
    }

    /// Adds `byte` to what is held and gives the character to `sink` when it is whole. False if the byte does not belong there: what was held is replaced then, and
    /// the byte is still to be taken. `None` if `sink` takes no more.
    fn take(&mut self, byte: u8, sink: Sink<'_>) -> Option<bool> {
        let held = usize::from(self.len);
        let [a, b, c] = self.held;
        let mut joined = [a, b, c, 0];
        if let Some(place) = joined.get_mut(held) {
            *place = byte;
        }
        let joined = joined.get(..=held).unwrap_or(&[]);
        self.len = 0;
        match missing(joined) {
            Some(0) => sink(joined).then_some(true),
            Some(_) => {
                self.hold(joined);
                Some(true)
            }
            None => sink(REPLACEMENT).then_some(held == 0),
        }
    }

    fn hold(&mut self, bytes: &[u8]) {
        for (place, byte) in self.held.iter_mut().zip(bytes) {
            *place = *byte;
        }
        self.len = bytes.len().min(self.held.len()) as u8;
    }
}

/// Runs `work`, whose sink takes bytes, on one that takes text and can fail.
pub(crate) fn in_text<E>(mut sink: impl FnMut(&str) -> Result<(), E>, work: impl FnOnce(Sink<'_>) -> bool) -> Result<(), E> {
    let mut outcome = Ok(());
    // Whole characters alone come here.
    work(&mut |bytes| {
        outcome = core::str::from_utf8(bytes).map_or(Ok(()), &mut sink);
        outcome.is_ok()
    });
    outcome
}

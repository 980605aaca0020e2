//! Whole characters out of tokens that may hold parts of them: between a tokenizer and whoever shows text.

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
    pub fn push<E>(&mut self, bytes: &[u8], mut sink: impl FnMut(&str) -> Result<(), E>) -> Result<(), E> {
        self.push_to(bytes, &mut sink)
    }

    /// [`Utf8Stream::push`], compiled once for all sinks.
    #[inline(never)]
    fn push_to<E>(&mut self, bytes: &[u8], sink: &mut dyn FnMut(&str) -> Result<(), E>) -> Result<(), E> {
        let mut rest = bytes;
        while let [first, tail @ ..] = rest {
            if self.take(*first, sink)? {
                rest = tail;
            }
        }
        Ok(())
    }

    /// Ends the text: what is held back can no longer become a character.
    ///
    /// # Errors
    /// That of `sink`.
    pub fn finish<E>(&mut self, mut sink: impl FnMut(&str) -> Result<(), E>) -> Result<(), E> {
        if self.len == 0 {
            return Ok(());
        }
        self.len = 0;
        sink("\u{FFFD}")
    }

    /// How many bytes are held back.
    #[cfg(test)]
    pub(super) fn held_len(self) -> usize {
        usize::from(self.len)
    }

    /// Adds `byte` to what is held and gives the character to `sink` when it is whole. False if the byte does not belong there: what was held is replaced then, and
    /// the byte is still to be taken.
    fn take<E>(&mut self, byte: u8, sink: &mut dyn FnMut(&str) -> Result<(), E>) -> Result<bool, E> {
        let held = usize::from(self.len);
        let [a, b, c] = self.held;
        let mut joined = [a, b, c, 0];
        if let Some(place) = joined.get_mut(held) {
            *place = byte;
        }
        let joined = joined.get(..=held).unwrap_or(&[]);
        self.len = 0;
        match core::str::from_utf8(joined) {
            Ok(text) => sink(text).map(|()| true),
            Err(error) if error.error_len().is_none() => {
                self.hold(joined);
                Ok(true)
            }
            Err(_) => sink("\u{FFFD}").map(|()| held == 0),
        }
    }

    fn hold(&mut self, bytes: &[u8]) {
        for (place, byte) in self.held.iter_mut().zip(bytes) {
            *place = *byte;
        }
        self.len = bytes.len().min(self.held.len()) as u8;
    }
}

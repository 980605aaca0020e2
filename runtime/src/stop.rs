//! Ends a text at given strings without showing any part of them: used by the session's streaming and by the command line.

use crate::format::{Error, Rule};

/// The longest stop string in bytes.
pub const STOP_LEN_LIMIT: usize = 64;

/// Holds back the end of a text while it could be the beginning of a stop string.
///
/// The first stop string to be completed ends the text. Where two are completed by the same byte, the longer one is cut off.
#[derive(Clone, Debug)]
pub struct StopStrings<'a> {
    strings: &'a [&'a str],
    held: [u8; STOP_LEN_LIMIT],
    len: usize,
}

impl<'a> StopStrings<'a> {
    /// None: text passes through at once.
    pub const NONE: Self = Self { strings: &[], held: [0; STOP_LEN_LIMIT], len: 0 };

    /// Stops at any of `strings`.
    ///
    /// # Errors
    /// [`Error::Stop`] for an empty string or one longer than [`STOP_LEN_LIMIT`].
    pub fn new(strings: &'a [&'a str]) -> Result<Self, Error> {
        for string in strings {
            if string.is_empty() {
                return Err(Error::Stop { rule: Rule::NotZero, found: 0, allowed: 1 });
            }
            if string.len() > STOP_LEN_LIMIT {
                return Err(Error::Stop { rule: Rule::TooLarge, found: string.len() as u64, allowed: STOP_LEN_LIMIT as u64 });
            }
        }
        Ok(Self { strings, ..Self::NONE })
    }

    /// Forgets what is held back: before another text.
    pub fn reset(&mut self) {
        self.len = 0;
    }

    /// Takes more text and gives what is certain not to belong to a stop string to `sink`. True when a stop string was completed: the text is over.
    ///
    /// # Errors
    /// What `sink` returns.
    pub fn push<E>(&mut self, text: &str, mut sink: impl FnMut(&str) -> Result<(), E>) -> Result<bool, E> {
        self.push_to(text, &mut sink)
    }

    /// [`StopStrings::push`], compiled once for all sinks.
    #[inline(never)]
    fn push_to<E>(&mut self, text: &str, sink: &mut dyn FnMut(&str) -> Result<(), E>) -> Result<bool, E> {
        if self.strings.is_empty() {
            return sink(text).map(|()| false);
        }
        let mut rest = text;
        while let Some((character, after)) = first_character(rest) {
            rest = after;
            // What is held is shorter than the longest stop string, so one more character may not fit: its oldest characters are then certain.
            while self.len + character.len() > STOP_LEN_LIMIT {
                self.release_one(sink)?;
            }
            for byte in character.bytes() {
                if let Some(place) = self.held.get_mut(self.len) {
                    *place = byte;
                    self.len += 1;
                }
            }
            let mut stop_len = 0;
            for string in self.strings {
                if string.len() > stop_len && self.held().ends_with(string.as_bytes()) {
                    stop_len = string.len();
                }
            }
            if stop_len > 0 {
                self.len -= stop_len;
                self.finish_to(sink)?;
                return Ok(true);
            }
            while self.len > 0 && !self.could_begin_a_stop() {
                self.release_one(sink)?;
            }
        }
        Ok(false)
    }

    /// The end of the text: gives what is held back to `sink`.
    ///
    /// # Errors
    /// What `sink` returns.
    pub fn finish<E>(&mut self, mut sink: impl FnMut(&str) -> Result<(), E>) -> Result<(), E> {
        self.finish_to(&mut sink)
    }

    fn finish_to<E>(&mut self, sink: &mut dyn FnMut(&str) -> Result<(), E>) -> Result<(), E> {
        while self.len > 0 {
            self.release_one(sink)?;
        }
        Ok(())
    }

    fn held(&self) -> &[u8] {
        self.held.get(..self.len).unwrap_or(&[])
    }

    fn could_begin_a_stop(&self) -> bool {
        self.strings.iter().any(|string| string.as_bytes().starts_with(self.held()))
    }

    /// Gives the oldest character held to `sink`.
    fn release_one<E>(&mut self, sink: &mut dyn FnMut(&str) -> Result<(), E>) -> Result<(), E> {
        // Only whole characters are held.
        let mut character = [0; 4];
        let first = character_len(self.held.first().copied().unwrap_or(0)).min(self.len);
        for (to, from) in character.iter_mut().zip(&self.held) {
            *to = *from;
        }
        let result = core::str::from_utf8(character.get(..first).unwrap_or(&[])).map_or(Ok(()), sink);
        self.len -= first;
        for place in 0..self.len {
            let byte = self.held.get(place + first).copied().unwrap_or(0);
            if let Some(slot) = self.held.get_mut(place) {
                *slot = byte;
            }
        }
        result
    }
}

/// The length of the character that begins with this byte.
fn character_len(first: u8) -> usize {
    match first {
        0..0xC0 => 1,
        0xC0..0xE0 => 2,
        0xE0..0xF0 => 3,
        _ => 4,
    }
}

fn first_character(text: &str) -> Option<(&str, &str)> {
    text.split_at_checked(character_len(*text.as_bytes().first()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn run(strings: &[&str], parts: &[&str]) -> (String, bool) {
        let mut stop = StopStrings::new(strings).unwrap();
        let mut out = String::new();
        for part in parts {
            let over = stop
                .push(part, |text| {
                    out.push_str(text);
                    Ok::<(), ()>(())
                })
                .unwrap();
            if over {
                return (out, true);
            }
        }
        stop.finish(|text| {
            out.push_str(text);
            Ok::<(), ()>(())
        })
        .unwrap();
        (out, false)
    }

    #[test]
    fn nothing_of_the_stop_string_is_shown() {
        assert_eq!(run(&["the end"], &["this is th", "e e", "nd of it"]), ("this is ".into(), true));
        assert_eq!(run(&["the end"], &["this is th", "e edge"]), ("this is the edge".into(), false));
        assert_eq!(run(&["aab"], &["a", "a", "a", "b", "c"]), ("a".into(), true));
        assert_eq!(run(&["é!", "!"], &["caf", "é", "!"]), ("caf".into(), true));
        assert_eq!(run(&[], &["a", "b"]), ("ab".into(), false));
    }

    #[test]
    fn empty_and_long_strings_are_refused() {
        assert!(StopStrings::new(&[""]).is_err());
        let long = "x".repeat(STOP_LEN_LIMIT + 1);
        assert!(StopStrings::new(&[&long]).is_err());
        assert!(StopStrings::new(&[&long[1..]]).is_ok());
    }

    proptest! {
        /// However the text is cut into parts, the result is that of a search in the whole text.
        #[test]
        fn parts_do_not_matter(text in "[ab é]{0,40}", stops in prop::collection::vec("[ab é]{1,4}", 1..3), cuts in prop::collection::vec(0usize..40, 0..6)) {
            let stops: Vec<&str> = stops.iter().map(String::as_str).collect();
            let mut boundaries: Vec<usize> = cuts.into_iter().map(|c| text.floor_char_boundary(c)).collect();
            boundaries.extend([0, text.len()]);
            boundaries.sort_unstable();
            let parts: Vec<&str> = boundaries.windows(2).map(|w| &text[w[0]..w[1]]).collect();
            let first = text.char_indices().map(|(i, c)| i + c.len_utf8()).find_map(|end| {
                stops.iter().filter(|s| text[..end].ends_with(**s)).map(|s| end - s.len()).min()
            });
            let expected = first.map_or((text.clone(), false), |start| (text[..start].to_string(), true));
            prop_assert_eq!(run(&stops, &parts), expected);
        }
    }
}

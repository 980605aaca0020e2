//! Ends a text at given strings without showing any part of them: used by the session's streaming and by the command line.

use crate::format::{Error, Rule};
use crate::tokenizer::utf8::{Sink, in_text};

/// The longest stop string in bytes.
pub const STOP_LEN_LIMIT: usize = 64;

/// Holds back the end of a text while it could be the beginning of a stop string.
///
/// The first stop string to be completed ends the text. Where two are completed by the same byte, the longer one is cut off.
#[derive(Clone, Debug)]
pub struct StopStrings<'a> {
    strings: &'a [&'a str],
    held: Held,
    /// What looks for the strings; `None` where there are none. Not called by its name, so that firmware without stop strings need not hold it.
    search: Option<Search>,
}

/// Takes more text, or the end of it, and gives what is certain not to belong to a stop string to the sink.
type Search = fn(&mut Held, &[&str], Option<&[u8]>, Sink<'_>) -> Progress;

/// How a text goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// More may follow.
    GoesOn,
    /// A stop string was completed: it is over.
    Stopped,
    /// The sink takes no more.
    Refused,
}

impl<'a> StopStrings<'a> {
    /// None: text passes through at once.
    pub const NONE: Self = Self::none();

    /// [`StopStrings::NONE`], put together rather than copied: zeros need no flash.
    #[inline]
    pub(crate) const fn none() -> Self {
        Self { strings: &[], held: Held { bytes: [0; STOP_LEN_LIMIT], len: 0 }, search: None }
    }

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
        Ok(Self { strings, search: if strings.is_empty() { None } else { Some(search) }, ..Self::NONE })
    }

    /// Forgets what is held back: before another text.
    pub fn reset(&mut self) {
        self.held.len = 0;
    }

    /// Takes more text and gives what is certain not to belong to a stop string to `sink`. True when a stop string was completed: the text is over.
    ///
    /// # Errors
    /// What `sink` returns.
    pub fn push<E>(&mut self, text: &str, sink: impl FnMut(&str) -> Result<(), E>) -> Result<bool, E> {
        let mut stopped = false;
        in_text(sink, |sink| {
            let progress = self.push_bytes(text.as_bytes(), sink);
            stopped = progress == Progress::Stopped;
            progress != Progress::Refused
        })?;
        Ok(stopped)
    }

    /// [`StopStrings::push`] with the text, whole characters, as bytes.
    pub(crate) fn push_bytes(&mut self, text: &[u8], sink: Sink<'_>) -> Progress {
        match self.search {
            Some(search) => search(&mut self.held, self.strings, Some(text), sink),
            None if sink(text) => Progress::GoesOn,
            None => Progress::Refused,
        }
    }

    /// The end of the text: gives what is held back to `sink`.
    ///
    /// # Errors
    /// What `sink` returns.
    pub fn finish<E>(&mut self, sink: impl FnMut(&str) -> Result<(), E>) -> Result<(), E> {
        in_text(sink, |sink| self.finish_bytes(sink))
    }

    /// [`StopStrings::finish`] with the text as bytes. False if `sink` was.
    pub(crate) fn finish_bytes(&mut self, sink: Sink<'_>) -> bool {
        self.search.is_none_or(|search| search(&mut self.held, self.strings, None, sink) != Progress::Refused)
    }
}

/// The end of the text so far, whole characters.
#[derive(Clone, Debug)]
struct Held {
    bytes: [u8; STOP_LEN_LIMIT],
    len: usize,
}

#[inline(never)]
fn search(held: &mut Held, strings: &[&str], text: Option<&[u8]>, sink: Sink<'_>) -> Progress {
    let Some(mut rest) = text else {
        return if held.release_all(sink) { Progress::GoesOn } else { Progress::Refused };
    };
    while let Some((character, after)) = first_character(rest) {
        rest = after;
        // What is held is shorter than the longest stop string, so one more character may not fit: its oldest characters are then certain.
        while held.len + character.len() > STOP_LEN_LIMIT {
            if !held.release_one(sink) {
                return Progress::Refused;
            }
        }
        for byte in character {
            if let Some(place) = held.bytes.get_mut(held.len) {
                *place = *byte;
                held.len += 1;
            }
        }
        let mut stop_len = 0;
        for string in strings {
            if string.len() > stop_len && held.as_bytes().ends_with(string.as_bytes()) {
                stop_len = string.len();
            }
        }
        if stop_len > 0 {
            held.len -= stop_len;
            return if held.release_all(sink) { Progress::Stopped } else { Progress::Refused };
        }
        while held.len > 0 && !strings.iter().any(|string| string.as_bytes().starts_with(held.as_bytes())) {
            if !held.release_one(sink) {
                return Progress::Refused;
            }
        }
    }
    Progress::GoesOn
}

impl Held {
    fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or(&[])
    }

    /// Gives everything to `sink`, character by character.
    fn release_all(&mut self, sink: Sink<'_>) -> bool {
        while self.len > 0 {
            if !self.release_one(sink) {
                return false;
            }
        }
        true
    }

    /// Gives the oldest character to `sink`.
    fn release_one(&mut self, sink: Sink<'_>) -> bool {
        let mut character = [0; 4];
        let first = character_len(self.bytes.first().copied().unwrap_or(0)).min(self.len);
        for (to, from) in character.iter_mut().zip(&self.bytes) {
            *to = *from;
        }
        let going_on = sink(character.get(..first).unwrap_or(&[]));
        self.len -= first;
        for place in 0..self.len {
            let byte = self.bytes.get(place + first).copied().unwrap_or(0);
            if let Some(slot) = self.bytes.get_mut(place) {
                *slot = byte;
            }
        }
        going_on
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

fn first_character(text: &[u8]) -> Option<(&[u8], &[u8])> {
    text.split_at_checked(character_len(*text.first()?))
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

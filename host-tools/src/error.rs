//! The one error of the host tools: which file, what is wrong, where, and what to do next. Made by the importers and the exporter, printed by the command line as one line.

use std::fmt::{self, Write as _};
use std::io;
use std::path::{Path, PathBuf};

/// What host tools return.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What sort of trouble it is; the command line turns it into an exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Class {
    /// The file is missing, or the system does not let it be read.
    Unreadable,
    /// The file is something else, or a version or flavour that this software does not read.
    NotAModel,
    /// The file is of a known format, but bytes are missing, left over or impossible.
    Damaged,
    /// Every part may be right by itself, but they do not belong together: header and body, model and tokenizer.
    Mismatch,
    /// A value that the element type asked for cannot hold.
    Unrepresentable,
    /// The request is not possible: options that contradict each other or the model, a prompt that is too long.
    Request,
    /// The system does not let the output be written.
    Unwritable,
    /// The user stopped it.
    Cancelled,
}

/// Why a file was refused: one sentence, with the path, the place and advice where there are any.
#[derive(Debug)]
pub struct Error {
    class: Class,
    path: PathBuf,
    what: String,
    place: Option<String>,
    advice: Option<String>,
    source: Option<io::Error>,
}

impl Error {
    /// An error of this class that says `what` is wrong; no path, place or advice yet.
    pub fn new(class: Class, what: impl Into<String>) -> Self {
        Self { class, path: PathBuf::new(), what: what.into(), place: None, advice: None, source: None }
    }

    /// The system's refusal to let `path` be read.
    pub fn unreadable(path: &Path, source: io::Error) -> Self {
        let mut error = Self::new(Class::Unreadable, format!("cannot be read: {source}")).in_file(path);
        error.source = Some(source);
        error
    }

    /// The system's refusal to let `path` be written.
    pub fn unwritable(path: &Path, source: io::Error) -> Self {
        let mut error = Self::new(Class::Unwritable, format!("cannot be written: {source}")).in_file(path);
        error.source = Some(source);
        error
    }

    /// [`Class::NotAModel`].
    pub fn not_a_model(what: impl Into<String>) -> Self {
        Self::new(Class::NotAModel, what)
    }

    /// [`Class::Damaged`].
    pub fn damaged(what: impl Into<String>) -> Self {
        Self::new(Class::Damaged, what)
    }

    /// [`Class::Mismatch`].
    pub fn mismatch(what: impl Into<String>) -> Self {
        Self::new(Class::Mismatch, what)
    }

    /// Names the file.
    #[must_use]
    pub fn in_file(mut self, path: &Path) -> Self {
        self.path = path.to_path_buf();
        self
    }

    /// Names the place within the file: "byte 36".
    #[must_use]
    pub fn at(mut self, place: impl Into<String>) -> Self {
        self.place = Some(place.into());
        self
    }

    /// Says what to do next.
    #[must_use]
    pub fn advise(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }

    /// The sort of trouble.
    pub fn class(&self) -> Class {
        self.class
    }

    /// The file; empty where none was named.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// The most characters of what an error says was found: it quotes from the input, which may be a whole file without an end of a line.
const WHAT_LIMIT: usize = 2000;

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = OneLine(f);
        if !self.path.as_os_str().is_empty() {
            write!(line, "{}: ", shown_path(&self.path))?;
        }
        match self.what.char_indices().nth(WHAT_LIMIT) {
            Some((end, _)) => write!(line, "{} [..]", self.what.get(..end).unwrap_or_default())?,
            None => line.write_str(&self.what)?,
        }
        if let Some(place) = &self.place {
            write!(line, " (at {place})")?;
        }
        if let Some(advice) = &self.advice {
            write!(line, "; {advice}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|source| source as _)
    }
}

/// Whether a terminal obeys the character instead of showing it: a control character, or a mark that breaks a line or turns text round.
pub fn drives_terminal(c: char) -> bool {
    c.is_control() || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A path for people: characters that a terminal obeys and bytes that are no text are escaped, so that it neither breaks a line nor drives the terminal.
pub fn shown_path(path: &Path) -> String {
    let mut text = String::new();
    for chunk in path.as_os_str().as_encoded_bytes().utf8_chunks() {
        for c in chunk.valid().chars() {
            if drives_terminal(c) { text.extend(c.escape_default()) } else { text.push(c) }
        }
        for byte in chunk.invalid() {
            text.extend(byte.escape_ascii().map(char::from));
        }
    }
    text
}

/// Escapes what a terminal obeys, so that a path or a piece of a file cannot break the line or drive the terminal.
struct OneLine<'a, 'b>(&'a mut fmt::Formatter<'b>);

impl fmt::Write for OneLine<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for c in text.chars() {
            if drives_terminal(c) {
                write!(self.0, "{}", c.escape_default())?;
            } else {
                self.0.write_char(c)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_one_line_with_path_place_and_advice() {
        let error = Error::damaged("dim is 0").at("byte 0").advise("export it again").in_file(Path::new("a\nb.bin"));
        assert_eq!(error.to_string(), "a\\nb.bin: dim is 0 (at byte 0); export it again");
        assert_eq!(error.class(), Class::Damaged);
        assert_eq!(Error::mismatch("x").to_string(), "x");
        assert_eq!(Error::mismatch("a\u{202e}b").to_string(), "a\\u{202e}b");
    }

    #[test]
    fn what_was_found_is_quoted_in_part() {
        let told = Error::damaged("x".repeat(1_000_000)).advise("look at it").to_string();
        assert!(told.len() < 2 * WHAT_LIMIT && told.ends_with("x [..]; look at it"), "{} bytes", told.len());
    }

    #[cfg(unix)]
    #[test]
    fn a_path_that_is_no_text_is_shown_byte_by_byte() {
        use std::os::unix::ffi::OsStrExt;
        let path = Path::new(std::ffi::OsStr::from_bytes(b"caf\xc3\xa9 \xff\x1b[31m.bin"));
        assert_eq!(shown_path(path), "caf\u{e9} \\xff\\u{1b}[31m.bin");
        assert!(Error::damaged("x").in_file(path).to_string().starts_with("caf\u{e9} \\xff\\u{1b}[31m.bin: x"));
    }

    #[test]
    fn an_unreadable_file_keeps_the_systems_reason() {
        let error = Error::unreadable(Path::new("m.bin"), io::Error::from(io::ErrorKind::NotFound));
        assert_eq!(error.class(), Class::Unreadable);
        assert!(std::error::Error::source(&error).is_some());
        assert!(error.to_string().starts_with("m.bin: cannot be read: "));
    }
}

//! Text and numbers without `core::fmt`, which costs kilobytes of flash and carries panic paths. Called by the application.

use dmexp::format::Error;
use embedded_io::Write;

/// Stands for a number that an error does not have.
const NONE: u64 = u64::MAX;

/// Writes to a board's output. After a failure nothing more is written; [`Text::finish`] says so, so that not every word needs a check.
pub(crate) struct Text<'a, W> {
    out: &'a mut W,
    failed: bool,
}

impl<'a, W: Write> Text<'a, W> {
    pub(crate) fn new(out: &'a mut W) -> Self {
        Self { out, failed: false }
    }

    /// Whether everything was written.
    pub(crate) fn finish(self) -> Result<(), Error> {
        if self.failed { Err(Error::Output) } else { Ok(()) }
    }

    #[inline(never)]
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.failed = self.failed || self.out.write_all(bytes).is_err();
    }

    pub(crate) fn say(&mut self, words: &str) {
        self.bytes(words.as_bytes());
    }

    /// A space and `value` in decimal.
    #[inline(never)]
    pub(crate) fn number(&mut self, value: u32) {
        let mut text = [b' '; 11];
        let mut first = text.len();
        let mut rest = value;
        for digit in text.iter_mut().skip(1).rev() {
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
            first -= 1;
            if rest == 0 {
                break;
            }
        }
        self.bytes(text.get(first.saturating_sub(1)..).unwrap_or(&[]));
    }

    /// A line `@name value`, the form that `cargo xtask bench` reads.
    #[cfg(any(feature = "info", feature = "measure"))]
    #[inline(never)]
    pub(crate) fn figure(&mut self, name: &str, value: u32) {
        self.say("@");
        self.say(name);
        self.number(value);
        self.say("\n");
    }

    /// What kind of error it is, with its place and numbers where it has them: whoever has only the chip's output looks the rest up.
    pub(crate) fn error(&mut self, error: &Error) {
        #[cfg(feature = "reader")]
        if let Some((name, numbers)) = of_files(error) {
            return self.named(name, numbers);
        }
        let (name, numbers): (&str, [u64; 3]) = match *error {
            Error::Config { found, allowed, .. } => ("configuration: found, allowed", [found, allowed, NONE]),
            Error::Tokenizer { found, allowed, .. } => ("tokenizer: found, allowed", [found, allowed, NONE]),
            Error::ArenaTooSmall { needed, found } => ("arena: needed, found", [needed, found, NONE]),
            Error::Context { found, allowed } => ("context: asked for, allowed", [found, allowed, NONE]),
            Error::PromptTooLong { tokens, room } => ("prompt: tokens, room", [tokens, room, NONE]),
            Error::NonFiniteLogits { position } => ("logits not finite at position", [u64::from(position), NONE, NONE]),
            Error::ArithmeticSelfCheck { operation, .. } => {
                ("this chip's float arithmetic is not IEEE: check", [u64::from(operation), NONE, NONE])
            }
            _ => ("see dmexp export verify on a host", [NONE; 3]),
        };
        self.named(name, numbers);
    }

    fn named(&mut self, name: &str, numbers: [u64; 3]) {
        self.say(name);
        for number in numbers.into_iter().take_while(|number| *number != NONE) {
            self.number(u32::try_from(number).unwrap_or(u32::MAX));
        }
        self.say("\n");
    }
}

/// The errors that only files have: a built-in model was checked while the firmware compiled.
#[cfg(feature = "reader")]
fn of_files(error: &Error) -> Option<(&'static str, [u64; 3])> {
    Some(match *error {
        Error::NotDmexp { .. } => ("not a .dmexp file", [NONE; 3]),
        Error::Version { found } => ("format version", [u64::from(found), 2, NONE]),
        Error::Truncated { needed, found, .. } => ("the file ends early: needed, found", [needed, found, NONE]),
        Error::Layout { offset, found, allowed, .. } => ("the file's layout: offset, found, allowed", [offset, found, allowed]),
        Error::Checksum { stored, computed, .. } => ("checksum: stored, computed", [u64::from(stored), u64::from(computed), NONE]),
        Error::Tensor { tensor, found, allowed, .. } => ("tensor, found, allowed", [u64::from(tensor), found, allowed]),
        Error::Shape { tensor, .. } | Error::TensorName { tensor } => {
            ("tensor does not fit the configuration", [u64::from(tensor), NONE, NONE])
        }
        // Whoever compares chooses the file on a host, where it is in order.
        #[cfg(feature = "probe")]
        Error::TomlNotBuilt => ("a file of format 1, which only hosts read: export it with --format 2", [NONE; 3]),
        #[cfg(feature = "probe")]
        Error::OtherArchitecture { .. } => ("a model of a kind that this firmware was built without", [NONE; 3]),
        _ => return None,
    })
}

/// Writes `value` as eight hexadecimal digits: for hard faults.
pub(crate) fn write_hex32<W: Write>(out: &mut W, value: u32) -> Result<(), W::Error> {
    let mut digits = [0u8; 8];
    let mut rest = value;
    for slot in &mut digits {
        rest = rest.rotate_left(4);
        let nibble = (rest & 15) as u8;
        *slot = if nibble < 10 { b'0' + nibble } else { b'a' + (nibble - 10) };
    }
    out.write_all(&digits)
}

//! TOML without a heap: a text is walked expression by expression (`key = value` or `[table]`), each checked as it passes. Used by the parent module alone.
//!
//! Tokens, and the checks within strings, numbers and keys, are `toml_parser`'s; how tokens make expressions is decided here, because that crate's parser wants all tokens at once.
//! Beyond TOML's own rules: arrays and inline tables nest at most [`DEPTH_LIMIT`] deep, keys have no escapes, and a date-time has no space in it.

use crate::{Error, Rule};
use toml_parser::lexer::{Lexer, TokenKind};
use toml_parser::{ParseError, Raw, Source, Span, decoder};

/// How deep arrays and inline tables may nest.
pub(super) const DEPTH_LIMIT: u32 = 8;

/// A piece of the file that is TOML, with the place of its first byte in the file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Text<'a> {
    pub(super) text: &'a str,
    pub(super) at: u64,
}

/// A walk through a text; a copy of it walks on from the same place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scanner<'a> {
    rest: Text<'a>,
    at_start: bool,
}

/// One expression.
#[derive(Clone, Copy, Debug)]
pub(super) enum Expression<'a> {
    /// `[key]`, or `[[key]]` where `array`.
    Table { key: Key<'a>, array: bool },
    /// `key = value`.
    Pair { key: Key<'a>, value: Value<'a> },
}

/// A key as written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key<'a> {
    /// Its first part, without quotes.
    pub(super) first: &'a str,
    /// All of it: the same as `first` for a key of one part, else the text with its dots.
    pub(super) whole: &'a str,
    /// Whether it has further parts after a dot.
    pub(super) dotted: bool,
    /// Its place in the file.
    pub(super) at: u64,
}

/// A value whose text was checked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Value<'a> {
    raw: &'a str,
    kind: Kind,
    /// Its place in the file.
    pub(super) at: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    String,
    Boolean(bool),
    Integer,
    Float,
    DateTime,
    Array,
    Table,
}

impl<'a> Scanner<'a> {
    pub(super) const fn new(text: Text<'a>) -> Self {
        Self { rest: text, at_start: true }
    }

    /// What was not walked through yet.
    pub(super) const fn rest(&self) -> Text<'a> {
        self.rest
    }

    /// The next expression, its line read to the end; `None` at the end of the text.
    pub(super) fn next(&mut self) -> Result<Option<Expression<'a>>, Error> {
        // A byte-order mark may begin a file, and the lexer passes over it wherever it is made to begin.
        if !self.at_start && self.rest.text.starts_with('\u{feff}') {
            return Err(Error::Toml { offset: self.rest.at, rule: Rule::Syntax });
        }
        let mut tokens = Tokens::new(self.rest);
        let expression = loop {
            let (kind, span) = tokens.next();
            match kind {
                TokenKind::Whitespace | TokenKind::Newline | TokenKind::Comment => tokens.check_blank(kind, span)?,
                TokenKind::Eof => break None,
                TokenKind::LeftSquareBracket => break Some(tokens.table()?),
                TokenKind::Atom | TokenKind::BasicString | TokenKind::LiteralString => break Some(tokens.pair(kind, span)?),
                _ => return Err(tokens.syntax(span)),
            }
        };
        if expression.is_some() {
            tokens.end_of_line()?;
        }
        let end = tokens.end;
        self.rest = Text { text: self.rest.text.get(end..).unwrap_or(""), at: self.rest.at + end as u64 };
        self.at_start = false;
        Ok(expression)
    }
}

/// Tokens of a text, one of them looked at ahead.
#[derive(Debug)]
struct Tokens<'a> {
    text: Text<'a>,
    source: Source<'a>,
    lexer: LexerDebug<'a>,
    peeked: Option<(TokenKind, Span)>,
    /// Where the last token taken ends.
    end: usize,
}

/// `Lexer` has no `Debug`.
struct LexerDebug<'a>(Lexer<'a>);

impl core::fmt::Debug for LexerDebug<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Lexer")
    }
}

impl<'a> Tokens<'a> {
    fn new(text: Text<'a>) -> Self {
        let source = Source::new(text.text);
        Self { text, source, lexer: LexerDebug(source.lex()), peeked: None, end: 0 }
    }

    fn peek(&mut self) -> (TokenKind, Span) {
        let end = self.text.text.len();
        let lexer = &mut self.lexer.0;
        *self.peeked.get_or_insert_with(|| lexer.next().map_or((TokenKind::Eof, Span::new_unchecked(end, end)), |t| (t.kind(), t.span())))
    }

    fn next(&mut self) -> (TokenKind, Span) {
        let token = self.peek();
        self.peeked = None;
        self.end = token.1.end();
        token
    }

    fn take_if(&mut self, kind: TokenKind) -> bool {
        let found = self.peek().0 == kind;
        if found {
            self.next();
        }
        found
    }

    fn error(&self, span: Span, rule: Rule) -> Error {
        Error::Toml { offset: self.text.at + span.start() as u64, rule }
    }

    fn syntax(&self, span: Span) -> Error {
        self.error(span, Rule::Syntax)
    }

    fn raw(&self, span: Span) -> Result<Raw<'a>, Error> {
        self.source.get(span).ok_or_else(|| self.syntax(span))
    }

    /// The text between two places, as a string of this encoding (`None`: a bare word).
    fn encoded(&self, kind: TokenKind, span: Span) -> Result<Raw<'a>, Error> {
        Ok(Raw::new_unchecked(self.raw(span)?.as_str(), kind.encoding(), span))
    }

    /// Checks white space, a newline or a comment.
    fn check_blank(&self, kind: TokenKind, span: Span) -> Result<(), Error> {
        let raw = self.raw(span)?;
        let mut wrong = false;
        let mut sink = |_: ParseError| wrong = true;
        match kind {
            TokenKind::Newline => raw.decode_newline(&mut sink),
            TokenKind::Comment => raw.decode_comment(&mut sink),
            _ => (),
        }
        if wrong { Err(self.syntax(span)) } else { Ok(()) }
    }

    /// Passes over white space, newlines and comments, as they may stand within arrays.
    fn skip_blank(&mut self) -> Result<(), Error> {
        loop {
            let (kind, span) = self.peek();
            if !matches!(kind, TokenKind::Whitespace | TokenKind::Newline | TokenKind::Comment) {
                return Ok(());
            }
            self.check_blank(kind, span)?;
            self.next();
        }
    }

    fn end_of_line(&mut self) -> Result<(), Error> {
        self.take_if(TokenKind::Whitespace);
        let (kind, span) = self.peek();
        if kind == TokenKind::Comment {
            self.check_blank(kind, span)?;
            self.next();
        }
        match self.next() {
            (TokenKind::Eof, _) => Ok(()),
            (TokenKind::Newline, span) => self.check_blank(TokenKind::Newline, span),
            (_, span) => Err(self.syntax(span)),
        }
    }

    /// What follows the first bracket of `[key]` or `[[key]]`.
    fn table(&mut self) -> Result<Expression<'a>, Error> {
        let array = self.take_if(TokenKind::LeftSquareBracket);
        self.take_if(TokenKind::Whitespace);
        let (kind, span) = self.next();
        let key = self.key(kind, span)?;
        for _ in 0..=u32::from(array) {
            let (kind, span) = self.next();
            if kind != TokenKind::RightSquareBracket {
                return Err(self.syntax(span));
            }
        }
        Ok(Expression::Table { key, array })
    }

    fn pair(&mut self, kind: TokenKind, span: Span) -> Result<Expression<'a>, Error> {
        let (key, value) = self.key_and_value(kind, span, 0)?;
        Ok(Expression::Pair { key, value })
    }

    fn key_and_value(&mut self, kind: TokenKind, span: Span, depth: u32) -> Result<(Key<'a>, Value<'a>), Error> {
        let key = self.key(kind, span)?;
        let (kind, span) = self.next();
        if kind != TokenKind::Equals {
            return Err(self.syntax(span));
        }
        self.take_if(TokenKind::Whitespace);
        Ok((key, self.value(depth)?))
    }

    /// A key whose first part is the token given, and the white space after it.
    fn key(&mut self, kind: TokenKind, span: Span) -> Result<Key<'a>, Error> {
        let first = self.key_part(kind, span)?;
        let (mut whole, mut dotted) = (span, false);
        self.take_if(TokenKind::Whitespace);
        while self.take_if(TokenKind::Dot) {
            self.take_if(TokenKind::Whitespace);
            let (kind, part) = self.next();
            self.key_part(kind, part)?;
            whole = whole.append(part);
            dotted = true;
            self.take_if(TokenKind::Whitespace);
        }
        let whole = if dotted { self.raw(whole)?.as_str() } else { first };
        Ok(Key { first, whole, dotted, at: self.text.at + span.start() as u64 })
    }

    fn key_part(&self, kind: TokenKind, span: Span) -> Result<&'a str, Error> {
        let quote = match kind {
            TokenKind::Atom => "",
            TokenKind::BasicString => "\"",
            TokenKind::LiteralString => "'",
            _ => return Err(self.syntax(span)),
        };
        let raw = self.encoded(kind, span)?;
        let mut wrong = false;
        raw.decode_key(&mut (), &mut |_: ParseError| wrong = true);
        let name = raw.as_str().strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote));
        match name {
            Some(name) if !wrong => {
                if kind == TokenKind::BasicString && has_escape(name) {
                    Err(self.error(span, Rule::Escape))
                } else {
                    Ok(name)
                }
            }
            _ => Err(self.syntax(span)),
        }
    }

    fn value(&mut self, depth: u32) -> Result<Value<'a>, Error> {
        let (kind, mut span) = self.next();
        let at = self.text.at + span.start() as u64;
        let kind = match kind {
            TokenKind::LeftSquareBracket | TokenKind::LeftCurlyBracket => {
                if depth >= DEPTH_LIMIT {
                    return Err(self.error(span, Rule::Depth));
                }
                let is_array = kind == TokenKind::LeftSquareBracket;
                span = span.append(self.items(is_array, depth)?);
                if is_array { Kind::Array } else { Kind::Table }
            }
            TokenKind::BasicString | TokenKind::MlBasicString | TokenKind::LiteralString | TokenKind::MlLiteralString => {
                self.scalar(self.encoded(kind, span)?, span)?
            }
            TokenKind::Atom | TokenKind::Dot => {
                // The lexer takes a number apart at its point.
                while let (TokenKind::Atom | TokenKind::Dot, next) = self.peek() {
                    span = span.append(next);
                    self.next();
                }
                self.scalar(self.raw(span)?, span)?
            }
            _ => return Err(self.syntax(span)),
        };
        Ok(Value { raw: self.raw(span)?.as_str(), kind, at })
    }

    fn scalar(&self, raw: Raw<'a>, span: Span) -> Result<Kind, Error> {
        let mut wrong = false;
        let kind = raw.decode_scalar(&mut (), &mut |_: ParseError| wrong = true);
        // The decoder lets a radix without digits pass.
        let digits = raw.as_str().bytes().skip(2).any(|byte| byte.is_ascii_hexdigit());
        let bare_radix = matches!(kind, decoder::ScalarKind::Integer(radix) if radix.value() != 10) && !digits;
        if wrong || bare_radix {
            return Err(self.syntax(span));
        }
        Ok(match kind {
            decoder::ScalarKind::String => Kind::String,
            decoder::ScalarKind::Boolean(value) => Kind::Boolean(value),
            decoder::ScalarKind::DateTime => Kind::DateTime,
            decoder::ScalarKind::Float => Kind::Float,
            decoder::ScalarKind::Integer(_) => Kind::Integer,
        })
    }

    /// The items of an array or inline table up to its closing bracket, whose place is given back.
    fn items(&mut self, is_array: bool, depth: u32) -> Result<Span, Error> {
        let close = if is_array { TokenKind::RightSquareBracket } else { TokenKind::RightCurlyBracket };
        loop {
            self.skip_blank()?;
            let (kind, span) = self.peek();
            if kind == close {
                self.next();
                return Ok(span);
            }
            if is_array {
                self.value(depth + 1)?;
            } else {
                self.next();
                self.key_and_value(kind, span, depth + 1)?;
            }
            self.skip_blank()?;
            let (kind, span) = self.peek();
            if kind != close && kind != TokenKind::Comma {
                return Err(self.syntax(span));
            }
            self.take_if(TokenKind::Comma);
        }
    }
}

fn has_escape(text: &str) -> bool {
    text.bytes().any(|byte| byte == b'\\')
}

impl<'a> Value<'a> {
    /// The text of a string, borrowed from the header.
    ///
    /// # Errors
    /// [`Rule::Type`], or [`Rule::Escape`] where the text is not what is written.
    pub(super) fn string(&self) -> Result<Text<'a>, Rule> {
        if self.kind != Kind::String {
            return Err(Rule::Type);
        }
        let quote = ["\"\"\"", "'''", "\"", "'"].into_iter().find(|quote| self.raw.starts_with(quote)).unwrap_or("");
        let body = self.raw.strip_prefix(quote).unwrap_or("");
        let trimmed = match body.strip_prefix('\n').or_else(|| body.strip_prefix("\r\n")) {
            Some(trimmed) if quote.len() == 3 => trimmed,
            _ => body,
        };
        let text = trimmed.strip_suffix(quote).ok_or(Rule::Syntax)?;
        if quote.starts_with('"') && has_escape(text) {
            return Err(Rule::Escape);
        }
        Ok(Text { text, at: self.at + (quote.len() + body.len() - trimmed.len()) as u64 })
    }

    /// # Errors
    /// [`Rule::Type`].
    pub(super) fn boolean(&self) -> Result<bool, Rule> {
        match self.kind {
            Kind::Boolean(value) => Ok(value),
            _ => Err(Rule::Type),
        }
    }

    /// An integer that is not negative.
    ///
    /// # Errors
    /// [`Rule::Type`]; [`Rule::Range`] for a negative one; [`Rule::TooLarge`] past 63 bits.
    pub(super) fn integer(&self) -> Result<u64, Rule> {
        if self.kind != Kind::Integer {
            return Err(Rule::Type);
        }
        let (negative, digits) = match self.raw.strip_prefix('-') {
            Some(digits) => (true, digits),
            None => (false, self.raw.strip_prefix('+').unwrap_or(self.raw)),
        };
        let prefixes = [("0x", 16), ("0o", 8), ("0b", 2)];
        let (digits, radix) =
            prefixes.into_iter().find_map(|(prefix, radix)| Some((digits.strip_prefix(prefix)?, radix))).unwrap_or((digits, 10));
        let mut value = 0u64;
        for digit in digits.bytes().filter(|byte| *byte != b'_') {
            let digit = match digit {
                b'0'..=b'9' => digit - b'0',
                b'a'..=b'f' => digit - b'a' + 10,
                b'A'..=b'F' => digit - b'A' + 10,
                _ => return Err(Rule::Syntax),
            };
            value = value.checked_mul(radix).and_then(|value| value.checked_add(u64::from(digit))).ok_or(Rule::TooLarge)?;
        }
        match value {
            1.. if negative => Err(Rule::Range),
            value if value > i64::MAX as u64 => Err(Rule::TooLarge),
            value => Ok(value),
        }
    }

    /// A finite number, read in double precision and then narrowed, as writers widen it before they print it.
    ///
    /// # Errors
    /// [`Rule::Type`]; [`Rule::Finite`] for nan, inf and what is too large for an `f32`; [`Rule::Length`] past 64 characters.
    pub(super) fn float(&self) -> Result<f32, Rule> {
        if self.kind != Kind::Float && self.kind != Kind::Integer {
            return Err(Rule::Type);
        }
        let mut buffer = [0u8; 64];
        let mut len = 0;
        for byte in self.raw.bytes().filter(|byte| *byte != b'_') {
            *buffer.get_mut(len).ok_or(Rule::Length)? = byte;
            len += 1;
        }
        let text = core::str::from_utf8(buffer.get(..len).unwrap_or(&[])).map_err(|_| Rule::Syntax)?;
        let value = text.parse::<f64>().map_err(|_| Rule::Type)? as f32;
        if value.is_finite() { Ok(value) } else { Err(Rule::Finite) }
    }

    /// The items of an array.
    ///
    /// # Errors
    /// [`Rule::Type`].
    pub(super) fn items(&self) -> Result<Items<'a>, Rule> {
        if self.kind != Kind::Array {
            return Err(Rule::Type);
        }
        let mut tokens = Tokens::new(Text { text: self.raw, at: self.at });
        tokens.next();
        Ok(Items { tokens })
    }
}

/// The items of an array that was checked.
#[derive(Debug)]
pub(super) struct Items<'a> {
    tokens: Tokens<'a>,
}

impl<'a> Iterator for Items<'a> {
    type Item = Value<'a>;

    fn next(&mut self) -> Option<Value<'a>> {
        self.tokens.skip_blank().ok()?;
        self.tokens.take_if(TokenKind::Comma);
        self.tokens.skip_blank().ok()?;
        // The closing bracket is not a value.
        self.tokens.value(1).ok()
    }
}

/// The keys of one table so far, to see one that is given twice.
#[derive(Debug)]
pub(super) struct Keys<'a, const N: usize> {
    seen: [&'a str; N],
    count: usize,
}

impl<'a, const N: usize> Keys<'a, N> {
    pub(super) const fn new() -> Self {
        Self { seen: [""; N], count: 0 }
    }

    /// # Errors
    /// [`Error::Toml`] with [`Rule::Duplicate`], or [`Rule::Depth`] at the `N + 1`st key.
    pub(super) fn add(&mut self, key: &Key<'a>) -> Result<(), Error> {
        if self.seen.iter().take(self.count).any(|seen| *seen == key.whole) {
            return Err(Error::Toml { offset: key.at, rule: Rule::Duplicate });
        }
        let slot = self.seen.get_mut(self.count).ok_or(Error::Toml { offset: key.at, rule: Rule::Depth })?;
        *slot = key.whole;
        self.count += 1;
        Ok(())
    }
}

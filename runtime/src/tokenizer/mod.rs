//! Text to tokens and back, from the arrays of a model file, without a heap: used by sessions and by the command line.
//!
//! Encoding follows llama2.c's `encode` (merge the best-scored pair first, the leftmost among equals) but takes time in proportion to
//! n log n. Two rules are stricter there than here, so that no text can turn into what it does not say:
//! - control tokens (begin, end, padding, unknown) and byte tokens are never found by their text: a typed `<s>` or `<0x0A>` stays text;
//! - byte tokens take no part in merges.
//!
//! Byte-level BPE (the cargo feature `bpe`) follows Hugging Face's `tokenizers`, in the same time; there too, special tokens are never found by their text.
//!
//! With Llama's vocabularies neither makes a difference. Text that is not UTF-8 is encoded byte by byte; nothing is ever lost: what has no
//! token is an error. U+2581, the stand-in for a space in sentencepiece's own files, is an ordinary character here, as in llama2.c.

mod bpe;
#[cfg(feature = "bpe")]
mod byte_level;
pub(crate) mod utf8;

#[cfg(test)]
mod tests;

use crate::format::file::ModelFile;
use crate::format::tokenizer::{NO_TOKEN, TokenizerFacts, TokenizerKind};
use crate::format::vocabulary::Vocabulary;
use crate::format::{Error, Rule, TensorView, TokenizerKey};

pub use utf8::Utf8Stream;

/// A tokenizer that borrows its arrays from a model file, at any alignment.
///
/// ```
/// use dmexp::tokenizer::Tokenizer;
///
/// let mut scratch = [0; Tokenizer::scratch_words(2)];
/// let count = Tokenizer::BYTES.encode(b"Hi", true, &mut scratch)?;
/// assert_eq!(scratch[..count], [72, 105]);
/// assert_eq!(Tokenizer::BYTES.decode(72, 105).as_bytes(), b"i");
/// # Ok::<(), dmexp::format::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Tokenizer<'a> {
    vocabulary: Vocabulary<'a>,
}

impl<'a> Tokenizer<'a> {
    /// No tokenizer: encoding is an error, decoding gives nothing.
    pub const NONE: Self = Self::from_parts(TokenizerFacts::NONE, [TensorView::EMPTY; 4]);

    /// One token a byte, of its value, and no others.
    pub const BYTES: Self =
        Self::from_parts(TokenizerFacts { kind: TokenizerKind::Bytes, n_pieces: 256, ..TokenizerFacts::NONE }, [TensorView::EMPTY; 4]);

    /// A tokenizer of `facts` with `arrays` in the order of [`TokenizerKind::arrays`] (any, where the kind has none).
    ///
    /// Nothing is checked here: `include_model!` did so at compile time, others call [`Tokenizer::check`] next. With arrays that were not
    /// checked the results are wrong, but nothing panics.
    pub const fn from_parts(facts: TokenizerFacts, arrays: [TensorView<'a>; 4]) -> Self {
        Self { vocabulary: Vocabulary::from_parts(facts, arrays) }
    }

    /// The tokenizer of an opened file, checked.
    ///
    /// # Errors
    /// Those of [`Vocabulary::bind`].
    pub fn bind(file: &ModelFile<'a>) -> Result<Self, Error> {
        Vocabulary::bind(file).map(|vocabulary| Self { vocabulary })
    }

    /// Checks facts and arrays against each other: see [`Vocabulary::check`].
    ///
    /// # Errors
    /// [`Error::Tokenizer`] with the first fact that is wrong.
    pub fn check(&self) -> Result<(), Error> {
        self.vocabulary.check()
    }

    /// What the file says of this tokenizer.
    pub const fn facts(&self) -> &TokenizerFacts {
        self.vocabulary.facts()
    }

    /// Whether `token` ends a text.
    pub fn ends_text(&self, token: u32) -> bool {
        self.facts().is_eos(token)
    }

    /// Whether `token` is a control token, which has no text and which text never becomes: see [`Vocabulary::is_special`].
    pub fn is_special(&self, token: u32) -> bool {
        self.vocabulary.is_special(token)
    }

    /// The same tokenizer without the space before a text: for text that goes on behind other text.
    #[must_use]
    pub const fn without_dummy_prefix(self) -> Self {
        Self { vocabulary: self.vocabulary.without_dummy_prefix() }
    }

    /// Words of scratch that [`Tokenizer::encode`] needs for any text of `text_len` bytes with any tokenizer: 7 a byte and a few more.
    pub const fn scratch_words(text_len: usize) -> usize {
        text_len.saturating_add(1).saturating_mul(bpe::WORDS_PER_SYMBOL).saturating_add(1)
    }

    /// Encodes `text`, which need not be UTF-8, and returns how many tokens there are: they are at the beginning of `scratch`.
    ///
    /// `at_start` says that a text begins here: the begin-of-text token goes first if the tokenizer wants one (`add_bos`). The space before
    /// the text (`dummy_prefix`) goes before any text that is not empty. No end-of-text token is added.
    ///
    /// Text has to be normalised already where [`TokenizerFacts::normalizer`] names a form (Qwen 2's tokenizers want composed characters, NFC: `é` as U+00E9, not as `e` and U+0301): the tables for
    /// it are larger than this crate. Other text gets other tokens than the model was trained on. The commands of the host normalise it.
    ///
    /// # Errors
    /// [`Error::ScratchTooSmall`] before anything is done (at most [`Tokenizer::scratch_words`] are asked for); [`Error::NoToken`] with the
    /// first character that has no token and whose bytes have none; [`Error::Tokenizer`] if the file carries no tokenizer.
    pub fn encode(&self, text: &[u8], at_start: bool, scratch: &mut [u32]) -> Result<usize, Error> {
        let bos = if at_start && self.facts().add_bos { Some(self.facts().bos) } else { None };
        match self.facts().kind {
            TokenizerKind::Bytes => self.encode_bytes(text, bos, scratch),
            TokenizerKind::SentencepieceBpe => bpe::encode(self, text, bos, scratch),
            #[cfg(feature = "bpe")]
            TokenizerKind::ByteLevelBpe => {
                let head = bpe::begin(bos, scratch)?;
                byte_level::encode(self, text, head, scratch)
            }
            _ => Err(Error::Tokenizer { key: TokenizerKey::Kind, rule: Rule::Missing, found: 0, allowed: 0 }),
        }
    }

    fn encode_bytes(&self, text: &[u8], bos: Option<u32>, scratch: &mut [u32]) -> Result<usize, Error> {
        let head = usize::from(bos.is_some());
        let needed = text.len().saturating_add(head);
        let found = scratch.len();
        let Some((first, rest)) = scratch.get_mut(..needed).and_then(|places| places.split_at_mut_checked(head)) else {
            return Err(Error::ScratchTooSmall { needed: needed as u64, found: found as u64 });
        };
        if let (Some(bos), [first]) = (bos, first) {
            *first = bos;
        }
        for (offset, (place, &byte)) in rest.iter_mut().zip(text).enumerate() {
            // A byte whose token means begin, end or padding has no token of its own.
            if u32::from(byte) >= self.facts().n_pieces || self.vocabulary.is_reserved(u32::from(byte)) {
                return Err(Error::NoToken { offset: offset as u64, byte });
            }
            *place = u32::from(byte);
        }
        Ok(needed)
    }

    /// The text of `token` where it follows `previous`; [`NO_TOKEN`] as `previous` says that nothing stands before.
    ///
    /// The space that `dummy_prefix` put there is dropped at the beginning of a text (after begin-of-text or nothing): one space, and
    /// nowhere else. Begin, end and padding have no text; byte tokens are their byte; unknown is its piece. A token that the vocabulary
    /// does not have gives nothing.
    #[inline(never)]
    pub fn decode(&self, previous: u32, token: u32) -> Piece<'a> {
        let facts = self.facts();
        if token >= facts.n_pieces || self.vocabulary.is_special(token) {
            return Piece::EMPTY;
        }
        match facts.kind {
            TokenizerKind::Bytes => Piece::byte(token as u8),
            TokenizerKind::SentencepieceBpe => {
                if let Some(byte) = self.vocabulary.byte_of(token) {
                    return Piece::byte(byte);
                }
                match self.piece(token) {
                    [b' ', rest @ ..] if facts.dummy_prefix && (previous == facts.bos || previous == NO_TOKEN) => {
                        Piece(Text::Borrowed(rest))
                    }
                    piece => Piece(Text::Borrowed(piece)),
                }
            }
            #[cfg(feature = "bpe")]
            TokenizerKind::ByteLevelBpe => Piece(Text::Borrowed(self.piece(token))),
            _ => Piece::EMPTY,
        }
    }

    fn is_byte_level(&self) -> bool {
        cfg!(feature = "bpe") && self.facts().kind == TokenizerKind::ByteLevelBpe
    }

    /// The bytes of a piece as they are stored (a byte token's are its name, `<0x41>`); none for a token that the vocabulary does not have.
    pub fn piece(&self, token: u32) -> &'a [u8] {
        self.vocabulary.piece(token)
    }
}

/// The bytes of one token: part of a text, not always whole characters (see [`Utf8Stream`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece<'a>(Text<'a>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Text<'a> {
    Borrowed(&'a [u8]),
    Byte([u8; 1]),
}

impl Piece<'_> {
    /// No text.
    pub const EMPTY: Self = Piece(Text::Borrowed(&[]));

    const fn byte(byte: u8) -> Self {
        Piece(Text::Byte([byte]))
    }

    /// The bytes.
    pub const fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Text::Borrowed(bytes) => bytes,
            Text::Byte(byte) => byte,
        }
    }
}

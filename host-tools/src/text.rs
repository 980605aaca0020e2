//! Text to tokens on a host: normalised first where the model's own tokenizer does so, which the runtime has no tables for.

use dmexp::tokenizer::Tokenizer;
use dmexp_format::Error;
use dmexp_format::tokenizer::{Normalizer, TokenizerFacts};
use std::borrow::Cow;
use unicode_normalization_alignments::UnicodeNormalization;

/// The tokens of `text`, as [`Tokenizer::encode`] gives them for the normalised text.
///
/// # Errors
/// Those of [`Tokenizer::encode`]; places count in the normalised text.
pub fn encode(tokenizer: &Tokenizer<'_>, text: &[u8], at_start: bool) -> Result<Vec<u32>, Error> {
    let text = normalised(tokenizer.facts(), text);
    let mut scratch = vec![0; Tokenizer::scratch_words(text.len())];
    let count = tokenizer.encode(&text, at_start, &mut scratch)?;
    scratch.truncate(count);
    Ok(scratch)
}

/// `text` as the tokenizer of `facts` wants it. What is not UTF-8 stays as it is, and characters on its two sides are not composed with each other.
pub fn normalised<'t>(facts: &TokenizerFacts, text: &'t [u8]) -> Cow<'t, [u8]> {
    if facts.normalizer != Normalizer::Nfc || text.is_ascii() {
        return Cow::Borrowed(text);
    }
    let mut composed = Vec::with_capacity(text.len());
    for chunk in text.utf8_chunks() {
        let characters = chunk.valid().nfc().map(|(character, _)| character);
        composed.extend_from_slice(characters.collect::<String>().as_bytes());
        composed.extend_from_slice(chunk.invalid());
    }
    Cow::Owned(composed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use dmexp_format::tokenizer::TokenizerKind;

    const NFC: TokenizerFacts = TokenizerFacts { kind: TokenizerKind::ByteLevelBpe, normalizer: Normalizer::Nfc, ..TokenizerFacts::NONE };

    #[test]
    fn characters_are_composed_where_the_tokenizer_wants_it() {
        let apart = "e\u{301}t\u{e9} \u{1112}\u{1161}\u{11ab} A\u{30a} \u{212b}".as_bytes();
        assert_eq!(*normalised(&NFC, apart), *"\u{e9}t\u{e9} \u{d55c} \u{c5} \u{c5}".as_bytes());
        assert_eq!(*normalised(&TokenizerFacts::NONE, apart), *apart);
        assert!(matches!(normalised(&NFC, b"plain text"), Cow::Borrowed(b"plain text")));
    }

    #[test]
    fn what_is_not_utf8_stays_and_parts() {
        assert_eq!(*normalised(&NFC, b"e\xCC\x81\xFFe\xCC\x81"), *b"\xC3\xA9\xFF\xC3\xA9");
        assert_eq!(*normalised(&NFC, b"e\xFF\xCC\x81"), *b"e\xFF\xCC\x81");
        assert_eq!(*normalised(&NFC, b"\xC3"), *b"\xC3");
    }
}

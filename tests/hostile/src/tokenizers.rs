//! Tokenizers: their files, and texts and tokens that are arbitrary.

use crate::{Outcome, checkpoints, seeds};
use dmexp::format::tokenizer::NO_TOKEN;
use dmexp::tokenizer::{Tokenizer, Utf8Stream};
use dmexp_tools::checkpoint::{TokenizerSource, tokenizer_bin, tokenizer_file};
use dmexp_tools::decode::TokenizerArrays;
use dmexp_tools::error::Result;
use dmexp_tools::text;
use std::sync::LazyLock;

/// Texts that any tokenizer may be given.
const TEXTS: [&str; 4] = ["", "Once upon a time", "  a\u{e9}\n\u{1f600}\u{2581}", "\0\u{7f}aaaaaaaaaaaaaaaa"];

/// llama2.c's tokenizer.bin.
pub(crate) fn bin(bytes: &[u8]) -> Outcome {
    let vocab_size = bytes.len().min(300) as u32;
    // Told by itself how many pieces there are, and for a model that has another number.
    let _ = tokenizer_bin::parse(bytes, vocab_size);
    file(bytes)
}

/// A file that is one of the three by its bytes.
pub(crate) fn file(bytes: &[u8]) -> Outcome {
    let path = checkpoints::put("tokenizer", bytes);
    match tokenizer_file::read(&path, None).and_then(|source| used(&source).map(|()| source)) {
        Ok(source) => Outcome::accepted(&format!("{source:?}")),
        Err(error) => Outcome::refused_by_command(&error),
    }
}

/// Binds a tokenizer and uses it.
fn used(source: &TokenizerSource) -> Result<()> {
    let arrays = TokenizerArrays::new(source);
    let tokenizer = arrays.tokenizer()?;
    for text in TEXTS {
        tokens_of(&tokenizer, text.as_bytes());
    }
    let n = tokenizer.facts().n_pieces;
    for token in (0..n.min(300)).chain([n.saturating_sub(1), n, u32::MAX]) {
        tokenizer.decode(NO_TOKEN, token);
        tokenizer.decode(token, 0);
    }
    Ok(())
}

/// The tokens of a text, all of them in the vocabulary; `None` where a character has none.
fn tokens_of(tokenizer: &Tokenizer<'_>, text: &[u8]) -> Option<Vec<u32>> {
    let tokens = text::encode(tokenizer, text, true).ok()?;
    assert!(tokens.iter().all(|token| *token < tokenizer.facts().n_pieces), "tokens are of the vocabulary");
    assert!(tokens.len() <= text.len() + 3, "{} tokens of {} bytes", tokens.len(), text.len());
    Some(tokens)
}

fn decoded(tokenizer: &Tokenizer<'_>, tokens: &[u32]) -> Vec<u8> {
    let mut previous = NO_TOKEN;
    let mut bytes = Vec::new();
    for token in tokens {
        bytes.extend_from_slice(tokenizer.decode(previous, *token).as_bytes());
        previous = *token;
    }
    bytes
}

/// Tokenizers whose every text comes back: they have every byte.
static WHOLE: LazyLock<Vec<TokenizerArrays>> = LazyLock::new(|| seeds::tokenizers().iter().map(TokenizerArrays::new).collect());

fn chosen(bytes: &[u8]) -> Option<(Tokenizer<'static>, &[u8])> {
    let (first, rest) = bytes.split_first()?;
    let arrays = &WHOLE[usize::from(*first) % WHOLE.len()];
    Some((arrays.tokenizer().expect("it is right"), rest))
}

/// A text behind the number of a tokenizer.
///
/// # Panics
/// If it does not come back.
pub(crate) fn encode(bytes: &[u8]) -> Outcome {
    let Some((tokenizer, text)) = chosen(bytes) else { return Outcome::Refused };
    let Some(tokens) = tokens_of(&tokenizer, text) else { return Outcome::Refused };
    let back = decoded(&tokenizer, &tokens);
    let normalised = text::normalised(tokenizer.facts(), text);
    assert_eq!(back.escape_ascii().to_string(), normalised.escape_ascii().to_string(), "the text comes back");
    // Too little memory is said before anything is done, and exactly enough is enough.
    let mut scratch = vec![0; Tokenizer::scratch_words(normalised.len())];
    assert_eq!(tokenizer.encode(&normalised, true, &mut scratch), Ok(tokens.len()));
    assert_eq!(scratch.get(..tokens.len()), Some(tokens.as_slice()));
    for short in [0, 1, normalised.len() / 2] {
        let mut scratch = vec![0; short];
        if let Ok(count) = tokenizer.encode(&normalised, true, &mut scratch) {
            assert_eq!(scratch.get(..count), Some(tokens.as_slice()));
        }
    }
    Outcome::accepted(&tokens)
}

/// Tokens of 32 bits behind the number of a tokenizer.
///
/// # Panics
/// If what comes out is no text, or another when it comes in pieces.
pub(crate) fn decode(bytes: &[u8]) -> Outcome {
    let Some((tokenizer, rest)) = chosen(bytes) else { return Outcome::Refused };
    let (words, _) = rest.as_chunks();
    let tokens: Vec<u32> = words.iter().map(|word| u32::from_le_bytes(*word)).collect();
    let all = decoded(&tokenizer, &tokens);
    let mut stream = Utf8Stream::new();
    let mut shown = String::new();
    let mut previous = NO_TOKEN;
    let mut sink = |text: &str| {
        shown.push_str(text);
        Ok::<_, ()>(())
    };
    for token in &tokens {
        stream.push(tokenizer.decode(previous, *token).as_bytes(), &mut sink).expect("a string takes everything");
        previous = *token;
    }
    stream.finish(&mut sink).expect("a string takes everything");
    assert_eq!(shown, String::from_utf8_lossy(&all), "piece by piece it is the same text");
    Outcome::accepted(&all)
}

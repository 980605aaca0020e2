//! A turn as tokens, and what a tokenizer's special tokens are called.

use super::{Feed, Specials, TokenNames};
use crate::error::Result;
use crate::text;
use dmexp::tokenizer::Tokenizer;
use dmexp_format::tokenizer::NO_TOKEN;

/// The tokens of a turn. With `fresh` a text begins, so begin-of-text goes first where the tokenizer wants it and the template did not write it.
///
/// The space that some tokenizers put before a text goes before what stands at the beginning or behind a special token, as in llama.cpp; not before what goes on behind other text.
///
/// # Errors
/// Those of [`Tokenizer::encode`].
pub fn encode(tokenizer: &Tokenizer<'_>, feed: &[Feed], fresh: bool) -> Result<Vec<u32>> {
    let facts = tokenizer.facts();
    let mut tokens = Vec::new();
    if fresh && facts.add_bos && feed.first() != Some(&Feed::Token(facts.bos)) {
        tokens.push(facts.bos);
    }
    let mut begins = fresh;
    for part in feed {
        match part {
            Feed::Token(token) => tokens.push(*token),
            Feed::Text(text) => {
                let tokenizer = if begins { *tokenizer } else { tokenizer.without_dummy_prefix() };
                tokens.append(&mut text::encode(&tokenizer, text.as_bytes(), false)?);
            }
        }
        begins = matches!(part, Feed::Token(_));
    }
    Ok(tokens)
}

/// What a template writes for `token`: its piece, without the line breaks that llama2.c's tokenizer.bin puts around begin and end of text.
fn spelling(tokenizer: &Tokenizer<'_>, token: u32) -> String {
    let piece = String::from_utf8_lossy(tokenizer.piece(token));
    let bare = piece.trim_matches('\n');
    if bare.starts_with('<') && bare.ends_with('>') { bare.to_owned() } else { piece.into_owned() }
}

/// The special tokens of `tokenizer` by their spelling.
pub fn specials(tokenizer: &Tokenizer<'_>) -> Specials {
    let facts = tokenizer.facts();
    let named = std::iter::once(facts.bos).chain(facts.eos).filter(|token| *token != NO_TOKEN);
    let listed = (0..facts.n_pieces).filter(|token| tokenizer.is_special(*token));
    Specials::new(named.chain(listed).map(|token| (token, spelling(tokenizer, token))))
}

/// What templates call the special tokens of `tokenizer` by: empty for those that it has not.
pub fn names(tokenizer: &Tokenizer<'_>) -> TokenNames {
    let facts = tokenizer.facts();
    let name = |token: u32| if token == NO_TOKEN { String::new() } else { spelling(tokenizer, token) };
    TokenNames { bos: name(facts.bos), eos: name(facts.eos[0]), pad: name(facts.pad), unk: name(facts.unk) }
}

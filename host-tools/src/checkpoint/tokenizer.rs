//! A tokenizer as its source has it, and the arrays that a `.dmexp` file carries of it. Made by the readers of tokenizers, written by the exporter.

use crate::error::{Error, Result};
use dmexp_format::tokenizer::{NO_TOKEN, TokenizerFacts, TokenizerKind};

/// Pieces, scores and facts.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenizerSource {
    /// The text of each token, by id; empty for [`TokenizerKind::Bytes`].
    pub pieces: Vec<Vec<u8>>,
    /// The score of each piece, by id; empty for [`TokenizerKind::Bytes`].
    pub scores: Vec<f32>,
    /// Kind, special tokens and flags. `arrays` is all [`NO_TOKEN`]: only the exporter knows which tensors they become.
    pub facts: TokenizerFacts,
    /// The name of the source file without its folder; empty where it was made from nothing.
    pub file_name: String,
    /// What a user should know of it, one sentence each.
    pub notes: Vec<String>,
}

impl TokenizerSource {
    /// Token = byte, for a model of at most 256 tokens; with `bos`, every prompt begins with that token.
    ///
    /// # Errors
    /// [`Class::Mismatch`](crate::error::Class::Mismatch) for a vocabulary of 0 or more than 256, or a `bos` outside it.
    pub fn bytes(vocab_size: u32, bos: Option<u32>) -> Result<Self> {
        if !(1..=256).contains(&vocab_size) {
            let what = format!("the model has {vocab_size} tokens; with bytes as tokens it can have 1 to 256");
            return Err(Error::mismatch(what).advise("give the model's own tokenizer"));
        }
        if let Some(bos) = bos.filter(|bos| *bos >= vocab_size) {
            return Err(Error::mismatch(format!("token {bos} is to begin every text, but the model's tokens are 0 to {}", vocab_size - 1)));
        }
        let facts = TokenizerFacts {
            kind: TokenizerKind::Bytes,
            n_pieces: vocab_size,
            add_bos: bos.is_some(),
            bos: bos.unwrap_or(NO_TOKEN),
            max_piece_len: 1,
            ..TokenizerFacts::NONE
        };
        let notes = if vocab_size < 256 {
            vec![format!("text with bytes of {vocab_size} or more is refused: the model has no token for them")]
        } else {
            Vec::new()
        };
        Ok(Self { pieces: Vec::new(), scores: Vec::new(), facts, file_name: String::new(), notes })
    }

    /// The contents of the four arrays of a `sentencepiece_bpe` tokenizer, little-endian, in the order of [`dmexp_format::tokenizer::ARRAY_NAMES`]: all pieces' bytes one after the other;
    /// the n+1 offsets into them; the n scores; the n ids sorted by piece bytes, lowest id first among equals. All empty for [`TokenizerKind::Bytes`].
    pub fn arrays(&self) -> [Vec<u8>; 4] {
        if self.pieces.is_empty() {
            return [const { Vec::new() }; 4];
        }
        let mut offsets = Vec::with_capacity(4 * (self.pieces.len() + 1));
        let mut end = 0u32;
        offsets.extend_from_slice(&end.to_le_bytes());
        for piece in &self.pieces {
            end += piece.len() as u32;
            offsets.extend_from_slice(&end.to_le_bytes());
        }
        let mut sorted: Vec<u32> = (0..).zip(&self.pieces).map(|(id, _)| id).collect();
        sorted.sort_by_key(|id| (&self.pieces[*id as usize], *id));
        [
            self.pieces.concat(),
            offsets,
            self.scores.iter().flat_map(|score| score.to_le_bytes()).collect(),
            sorted.iter().flat_map(|id| id.to_le_bytes()).collect(),
        ]
    }
}

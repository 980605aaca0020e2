//! A tokenizer as its source has it, and the arrays that a `.dmexp` file carries of it. Made by the readers of tokenizers, written by the exporter.

use crate::error::{Error, Result};
use dmexp_format::tokenizer::{NO_TOKEN, TokenizerFacts, TokenizerKind};

/// Pieces, scores or merges, and facts.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenizerSource {
    /// The text of each token, by id; empty for [`TokenizerKind::Bytes`].
    pub pieces: Vec<Vec<u8>>,
    /// The score of each piece, by id; empty but for [`TokenizerKind::SentencepieceBpe`].
    pub scores: Vec<f32>,
    /// Left and right token of each merge, by rank; empty but for [`TokenizerKind::ByteLevelBpe`].
    pub merges: Vec<(u32, u32)>,
    /// Tokens that text never becomes and that have no text, rising, each once; `facts.n_special` of them. Begin and end of text count as such whether they are here or not.
    pub special: Vec<u32>,
    /// The text of the chat template.
    pub chat_template: Option<String>,
    /// Kind, special tokens and flags. `arrays` is all [`NO_TOKEN`]: only the exporter knows which tensors they become.
    pub facts: TokenizerFacts,
    /// The name of the source file without its folder; empty where it was made from nothing.
    pub file_name: String,
    /// What a user should know of it, one sentence each.
    pub notes: Vec<String>,
}

impl TokenizerSource {
    /// No tokenizer: what the readers start from.
    pub const NONE: Self = Self {
        pieces: Vec::new(),
        scores: Vec::new(),
        merges: Vec::new(),
        special: Vec::new(),
        chat_template: None,
        facts: TokenizerFacts::NONE,
        file_name: String::new(),
        notes: Vec::new(),
    };

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
        Ok(Self { facts, notes, ..Self::NONE })
    }

    /// The contents of the kind's four arrays, little-endian, in the order of [`TokenizerKind::arrays`], which says what each is. All empty for a kind without arrays.
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
        let sorted = self.ordinary_by_piece();
        let values = match self.facts.kind {
            TokenizerKind::ByteLevelBpe => words(self.merge_table(&sorted)),
            _ => self.scores.iter().flat_map(|score| score.to_le_bytes()).collect(),
        };
        [self.pieces.concat(), offsets, values, words(sorted.into_iter().chain(self.special.iter().copied()))]
    }

    /// The tokens that are not special, by piece, the lowest first among equals.
    fn ordinary_by_piece(&self) -> Vec<u32> {
        let mut sorted: Vec<u32> = (0..).zip(&self.pieces).map(|(id, _)| id).filter(|id| self.special.binary_search(id).is_err()).collect();
        sorted.sort_by_key(|id| (&self.pieces[*id as usize], *id));
        sorted
    }

    /// Left, right, rank and result of each merge, by (left, right). A result that is no piece is [`NO_TOKEN`], which checks refuse.
    fn merge_table(&self, sorted: &[u32]) -> impl Iterator<Item = u32> {
        let piece = |id: u32| self.pieces.get(id as usize).map_or(&[][..], Vec::as_slice);
        let row = |(&(left, right), rank): (&(u32, u32), u32)| {
            let joined = [piece(left), piece(right)].concat();
            let place = sorted.binary_search_by(|id| piece(*id).cmp(&joined));
            [left, right, rank, place.map_or(NO_TOKEN, |place| sorted[place])]
        };
        let mut rows: Vec<_> = self.merges.iter().zip(0..).map(row).collect();
        rows.sort_unstable();
        rows.into_iter().flatten()
    }
}

fn words(words: impl IntoIterator<Item = u32>) -> Vec<u8> {
    words.into_iter().flat_map(u32::to_le_bytes).collect()
}

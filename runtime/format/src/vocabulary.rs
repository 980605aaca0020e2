//! The pieces of a `sentencepiece_bpe` tokenizer where they lie, looked up and checked without a heap: used by the runtime's tokenizer, by `verify` and by
//! `include_model!`.

use crate::file::ModelFile;
use crate::tokenizer::{NO_TOKEN, TokenizerFacts, TokenizerKind};
use crate::{DType, Error, Rule, TensorView, TokenizerKey};
use core::cmp::Ordering;

/// A tokenizer's facts with the arrays that its file has for it, borrowed at any alignment. Kinds without arrays have empty ones.
#[derive(Clone, Copy, Debug)]
pub struct Vocabulary<'a> {
    facts: TokenizerFacts,
    pieces: &'a [u8],
    offsets: TensorView<'a>,
    scores: TensorView<'a>,
    sorted: TensorView<'a>,
}

impl<'a> Vocabulary<'a> {
    /// `facts` with `arrays` in the order of [`ARRAY_NAMES`](crate::tokenizer::ARRAY_NAMES) (any, where the kind has none). Nothing is checked: see [`Vocabulary::check`].
    pub const fn from_parts(facts: TokenizerFacts, arrays: [TensorView<'a>; 4]) -> Self {
        let [pieces, offsets, scores, sorted] = arrays;
        Self { facts, pieces: pieces.bytes(), offsets, scores, sorted }
    }

    /// The vocabulary of an opened file, checked.
    ///
    /// # Errors
    /// Those of [`ModelFile::tokenizer_facts`] and [`Vocabulary::check`].
    pub fn bind(file: &ModelFile<'a>) -> Result<Self, Error> {
        let facts = file.tokenizer_facts()?;
        let vocabulary = Self::from_parts(facts, facts.arrays.map(|number| file.tensor(number).unwrap_or(TensorView::EMPTY)));
        vocabulary.check()?;
        Ok(vocabulary)
    }

    /// What the file says of its tokenizer.
    pub const fn facts(&self) -> &TokenizerFacts {
        &self.facts
    }

    /// The score of a piece; 0 for a token that the vocabulary does not have.
    pub fn score(&self, token: u32) -> f32 {
        self.scores.get_f32(token as usize)
    }

    /// The bytes of a piece as they are stored (a byte token's are its name, `<0x41>`); none for a token that the vocabulary does not have.
    pub fn piece(&self, token: u32) -> &'a [u8] {
        let index = token as usize;
        let (Some(start), Some(end)) = (self.offsets.get_u32(index), self.offsets.get_u32(index.saturating_add(1))) else { return &[] };
        self.pieces.get(start as usize..end as usize).unwrap_or(&[])
    }

    /// The byte that `token` stands for, if it is a byte token.
    pub fn byte_of(&self, token: u32) -> Option<u8> {
        if self.facts.byte_base == NO_TOKEN {
            return None;
        }
        u8::try_from(token.checked_sub(self.facts.byte_base)?).ok()
    }

    /// Whether text can never become `token`.
    pub fn is_reserved(&self, token: u32) -> bool {
        let facts = &self.facts;
        token == facts.bos || token == facts.pad || token == facts.unk || facts.is_eos(token) || self.byte_of(token).is_some()
    }

    /// The lowest token whose piece is `head` followed by `tail`, reserved ones left out.
    pub fn find(&self, head: &[u8], tail: &[u8]) -> Option<u32> {
        let (mut low, mut high) = (0usize, self.facts.n_pieces as usize);
        while low < high {
            let middle = low + (high - low) / 2;
            if compare(self.piece(self.sorted.get_u32(middle)?), head, tail) == Ordering::Less {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        // Equal pieces stand together, lowest token first; only the few reserved ones are passed over.
        loop {
            let token = self.sorted.get_u32(low)?;
            if compare(self.piece(token), head, tail) != Ordering::Equal {
                return None;
            }
            if !self.is_reserved(token) {
                return Some(token);
            }
            low += 1;
        }
    }

    /// Checks facts and arrays against each other: after this, encoding and decoding cannot go wrong on the file's account.
    ///
    /// For `sentencepiece_bpe`: arrays of the right types and lengths; offsets that begin at 0, rise, and end where the pieces do (an empty piece is refused: nothing
    /// could ever mean it); the longest piece exactly `max_piece_len`; finite scores; `sorted` in strictly rising order of (bytes, token), which with n entries below n makes it a
    /// permutation; byte tokens named `<0x00>` to `<0xFF>`; a piece of one space where `dummy_prefix` wants it. Two pieces may be equal. A vocabulary without byte tokens is allowed:
    /// characters that it does not have are then errors of encoding.
    ///
    /// Takes one pass over each array.
    ///
    /// # Errors
    /// [`Error::Tokenizer`] with the first fact that is wrong.
    pub fn check(&self) -> Result<(), Error> {
        // Without a tokenizer the special tokens are the model's, which `open` compared with its vocabulary.
        if let TokenizerKind::None = self.facts.kind {
            return Ok(());
        }
        self.facts.check(self.facts.n_pieces)?;
        match self.facts.kind {
            TokenizerKind::SentencepieceBpe => {
                self.check_lengths()?;
                self.check_offsets()?;
                self.check_scores()?;
                self.check_sorted()?;
                self.check_bytes()?;
                if self.facts.dummy_prefix && self.find(b" ", b"").is_none() {
                    return Err(wrong(TokenizerKey::DummyPrefix, Rule::Missing, 0, 1));
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn check_lengths(&self) -> Result<(), Error> {
        let count = u64::from(self.facts.n_pieces);
        if count == 0 {
            return Err(wrong(TokenizerKey::VocabSize, Rule::NotZero, 0, 1));
        }
        let arrays = [
            (TokenizerKey::Offsets, &self.offsets, DType::U32, count + 1),
            (TokenizerKey::Scores, &self.scores, DType::F32, count),
            (TokenizerKey::Sorted, &self.sorted, DType::U32, count),
        ];
        for (key, array, dtype, len) in arrays {
            if array.dtype() != dtype {
                return Err(wrong(key, Rule::DType, u64::from(array.dtype().code()), u64::from(dtype.code())));
            }
            if array.dims().count() != len {
                return Err(wrong(key, Rule::Length, array.dims().count(), len));
            }
        }
        Ok(())
    }

    fn check_offsets(&self) -> Result<(), Error> {
        let mut start = match self.offsets.get_u32(0) {
            Some(0) => 0,
            first => return Err(wrong(TokenizerKey::Offsets, Rule::Zero, first.map_or(0, u64::from), 0)),
        };
        let mut longest = 0;
        for index in 1..=self.facts.n_pieces as usize {
            let end = self.offsets.get_u32(index).unwrap_or(0);
            if end <= start {
                return Err(wrong(TokenizerKey::Offsets, Rule::Order, u64::from(end), u64::from(start)));
            }
            longest = longest.max(end - start);
            start = end;
        }
        if start as usize != self.pieces.len() {
            return Err(wrong(TokenizerKey::Pieces, Rule::Length, self.pieces.len() as u64, u64::from(start)));
        }
        if longest != self.facts.max_piece_len {
            return Err(wrong(TokenizerKey::MaxPieceLen, Rule::Equal, u64::from(self.facts.max_piece_len), u64::from(longest)));
        }
        Ok(())
    }

    fn check_scores(&self) -> Result<(), Error> {
        for index in 0..self.facts.n_pieces as usize {
            let score = self.scores.get_f32(index);
            if !score.is_finite() {
                return Err(wrong(TokenizerKey::Scores, Rule::Finite, u64::from(score.to_bits()), index as u64));
            }
        }
        Ok(())
    }

    fn check_sorted(&self) -> Result<(), Error> {
        let mut before: Option<u32> = None;
        for index in 0..self.facts.n_pieces as usize {
            let token = self.sorted.get_u32(index).unwrap_or(NO_TOKEN);
            if token >= self.facts.n_pieces {
                return Err(wrong(TokenizerKey::Sorted, Rule::TooLarge, u64::from(token), u64::from(self.facts.n_pieces)));
            }
            if let Some(before) = before
                && self.piece(before).cmp(self.piece(token)).then(before.cmp(&token)) != Ordering::Less
            {
                return Err(wrong(TokenizerKey::Sorted, Rule::Order, u64::from(token), u64::from(before)));
            }
            before = Some(token);
        }
        Ok(())
    }

    fn check_bytes(&self) -> Result<(), Error> {
        if self.facts.byte_base == NO_TOKEN {
            return Ok(());
        }
        for byte in 0..=u8::MAX {
            let token = self.facts.byte_base.saturating_add(u32::from(byte));
            if self.piece(token) != byte_name(byte) {
                return Err(wrong(TokenizerKey::ByteBase, Rule::Equal, u64::from(token), u64::from(byte)));
            }
        }
        Ok(())
    }
}

/// Compares `piece` with `head` followed by `tail`, bytewise.
fn compare(piece: &[u8], head: &[u8], tail: &[u8]) -> Ordering {
    match piece.split_at_checked(head.len()) {
        Some((first, rest)) => first.cmp(head).then_with(|| rest.cmp(tail)),
        // Shorter than `head`: less where it is a prefix, which is what comparing slices says.
        None => piece.cmp(head),
    }
}

/// How the piece of a byte token is written: `<0x41>`.
fn byte_name(byte: u8) -> [u8; 6] {
    let digit = |value: u8| if value < 10 { b'0' + value } else { b'A' + (value - 10) };
    [b'<', b'0', b'x', digit(byte >> 4), digit(byte & 15), b'>']
}

fn wrong(key: TokenizerKey, rule: Rule, found: u64, allowed: u64) -> Error {
    Error::Tokenizer { key, rule, found, allowed }
}

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
    offsets: &'a [[u8; 4]],
    scores: &'a [[u8; 4]],
    sorted: &'a [[u8; 4]],
}

impl<'a> Vocabulary<'a> {
    /// `facts` with `arrays` in the order of [`ARRAY_NAMES`](crate::tokenizer::ARRAY_NAMES) (any, where the kind has none). Nothing is checked: see [`Vocabulary::check`].
    pub const fn from_parts(facts: TokenizerFacts, arrays: [TensorView<'a>; 4]) -> Self {
        let [pieces, offsets, scores, sorted] = arrays;
        let (offsets, scores, sorted) = (words(&offsets, DType::U32), words(&scores, DType::F32), words(&sorted, DType::U32));
        Self { facts, pieces: pieces.bytes(), offsets, scores, sorted }
    }

    /// The vocabulary of an opened file, checked.
    ///
    /// # Errors
    /// Those of [`ModelFile::tokenizer_facts`] and [`Vocabulary::check`].
    #[inline(never)]
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
        f32::from_bits(word(self.scores, token as usize).unwrap_or(0))
    }

    /// The bytes of a piece as they are stored (a byte token's are its name, `<0x41>`); none for a token that the vocabulary does not have.
    pub fn piece(&self, token: u32) -> &'a [u8] {
        let index = token as usize;
        let (Some(start), Some(end)) = (word(self.offsets, index), word(self.offsets, index.wrapping_add(1))) else { return &[] };
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
            if compare(self.piece(word(self.sorted, middle)?), head, tail) == Ordering::Less {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        // Equal pieces stand together, lowest token first; only the few reserved ones are passed over.
        loop {
            let token = word(self.sorted, low)?;
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
    #[inline(never)]
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

    #[inline(never)]
    fn check_lengths(&self) -> Result<(), Error> {
        let count = self.facts.n_pieces as usize;
        if count == 0 {
            return Err(wrong(TokenizerKey::VocabSize, Rule::NotZero, 0, 1));
        }
        let arrays = [
            (TokenizerKey::Offsets, self.offsets.len(), count.saturating_add(1)),
            (TokenizerKey::Scores, self.scores.len(), count),
            (TokenizerKey::Sorted, self.sorted.len(), count),
        ];
        for (key, found, wanted) in arrays {
            if found != wanted {
                return Err(wrong(key, Rule::Length, found as u32, wanted as u32));
            }
        }
        Ok(())
    }

    #[inline(never)]
    fn check_offsets(&self) -> Result<(), Error> {
        let mut start = word(self.offsets, 0).unwrap_or(0);
        if start != 0 {
            return Err(wrong(TokenizerKey::Offsets, Rule::Zero, start, 0));
        }
        let mut longest = 0;
        for index in 1..=self.facts.n_pieces as usize {
            let end = word(self.offsets, index).unwrap_or(0);
            if end <= start {
                return Err(wrong(TokenizerKey::Offsets, Rule::Order, end, start));
            }
            longest = longest.max(end - start);
            start = end;
        }
        if start as usize != self.pieces.len() {
            return Err(wrong(TokenizerKey::Pieces, Rule::Length, self.pieces.len() as u32, start));
        }
        if longest != self.facts.max_piece_len {
            return Err(wrong(TokenizerKey::MaxPieceLen, Rule::Equal, self.facts.max_piece_len, longest));
        }
        Ok(())
    }

    #[inline(never)]
    fn check_scores(&self) -> Result<(), Error> {
        for index in 0..self.facts.n_pieces as usize {
            let score = self.score(index as u32);
            if !score.is_finite() {
                return Err(wrong(TokenizerKey::Scores, Rule::Finite, score.to_bits(), index as u32));
            }
        }
        Ok(())
    }

    #[inline(never)]
    fn check_sorted(&self) -> Result<(), Error> {
        let mut before: Option<u32> = None;
        for index in 0..self.facts.n_pieces as usize {
            let token = word(self.sorted, index).unwrap_or(NO_TOKEN);
            if token >= self.facts.n_pieces {
                return Err(wrong(TokenizerKey::Sorted, Rule::TooLarge, token, self.facts.n_pieces));
            }
            if let Some(before) = before
                && self.piece(before).cmp(self.piece(token)).then(before.cmp(&token)) != Ordering::Less
            {
                return Err(wrong(TokenizerKey::Sorted, Rule::Order, token, before));
            }
            before = Some(token);
        }
        Ok(())
    }

    #[inline(never)]
    fn check_bytes(&self) -> Result<(), Error> {
        if self.facts.byte_base == NO_TOKEN {
            return Ok(());
        }
        for byte in 0..=u8::MAX {
            let token = self.facts.byte_base.saturating_add(u32::from(byte));
            if self.piece(token) != byte_name(byte) {
                return Err(wrong(TokenizerKey::ByteBase, Rule::Equal, token, u32::from(byte)));
            }
        }
        Ok(())
    }
}

/// The words of an array of this type; none of an array of another.
const fn words<'a>(array: &TensorView<'a>, dtype: DType) -> &'a [[u8; 4]] {
    if array.dtype().code() == dtype.code() { array.bytes().as_chunks::<4>().0 } else { &[] }
}

fn word(words: &[[u8; 4]], index: usize) -> Option<u32> {
    words.get(index).map(|word| u32::from_le_bytes(*word))
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

#[cold]
#[inline(never)]
fn wrong(key: TokenizerKey, rule: Rule, found: u32, allowed: u32) -> Error {
    Error::Tokenizer { key, rule, found: u64::from(found), allowed: u64::from(allowed) }
}

//! The pieces of a tokenizer where they lie, looked up and checked without a heap: used by the runtime's tokenizer, by `verify` and by
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
    /// Left, right, rank, result of each merge.
    #[cfg(feature = "bpe")]
    merges: &'a [[u8; 16]],
}

impl<'a> Vocabulary<'a> {
    /// `facts` with `arrays` in the order of [`TokenizerKind::arrays`] (any, where the kind has none). Nothing is checked: see [`Vocabulary::check`].
    pub const fn from_parts(facts: TokenizerFacts, arrays: [TensorView<'a>; 4]) -> Self {
        let [pieces, offsets, values, sorted] = arrays;
        Self {
            facts,
            pieces: pieces.bytes(),
            offsets: words(&offsets, DType::U32),
            scores: words(&values, DType::F32),
            sorted: words(&sorted, DType::U32),
            #[cfg(feature = "bpe")]
            merges: words(&values, DType::U32),
        }
    }

    /// The vocabulary of an opened file, checked.
    ///
    /// # Errors
    /// Those of [`ModelFile::tokenizer_facts`] and [`Vocabulary::check`].
    #[inline(never)]
    pub fn bind(file: &ModelFile<'a>) -> Result<Self, Error> {
        let facts = file.tokenizer_facts()?;
        let [pieces, offsets, values, sorted] = facts.arrays;
        let vocabulary = Self {
            facts,
            pieces: bytes(file, pieces, DType::U8),
            offsets: bytes(file, offsets, DType::U32).as_chunks().0,
            scores: bytes(file, values, DType::F32).as_chunks().0,
            sorted: bytes(file, sorted, DType::U32).as_chunks().0,
            #[cfg(feature = "bpe")]
            merges: bytes(file, values, DType::U32).as_chunks().0,
        };
        vocabulary.check()?;
        Ok(vocabulary)
    }

    /// The same vocabulary with `dummy_prefix` off.
    #[must_use]
    pub const fn without_dummy_prefix(mut self) -> Self {
        self.facts.dummy_prefix = false;
        self
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

    /// The special tokens besides those that [`TokenizerFacts`] names, rising.
    fn special(&self) -> &'a [[u8; 4]] {
        self.sorted.get(self.n_ordinary()..).unwrap_or(&[])
    }

    /// How many tokens are not in [`Vocabulary::special`].
    fn n_ordinary(&self) -> usize {
        self.facts.n_pieces.saturating_sub(self.facts.n_special) as usize
    }

    /// Whether `token` is a control token: it has no text, and text never becomes it. Begin and end of text are, those that the file lists are, and padding is but for
    /// `byte_level_bpe`, where some models pad with an ordinary piece.
    pub fn is_special(&self, token: u32) -> bool {
        let facts = &self.facts;
        token == facts.bos
            || facts.is_eos(token)
            || token == facts.pad && facts.kind != TokenizerKind::ByteLevelBpe
            || self.special().binary_search_by_key(&token, |word| u32::from_le_bytes(*word)).is_ok()
    }

    /// Whether text can never become `token`.
    pub fn is_reserved(&self, token: u32) -> bool {
        let unknown = token == self.facts.unk && self.facts.kind != TokenizerKind::ByteLevelBpe;
        unknown || self.is_special(token) || self.byte_of(token).is_some()
    }

    /// Rank and result of the merge of `left` and `right`, if there is one.
    #[cfg(feature = "bpe")]
    pub fn merge(&self, left: u32, right: u32) -> Option<(u32, u32)> {
        let place = self.merges.binary_search_by_key(&(left, right), |merge| {
            let [left, right, ..] = merge_words(merge);
            (left, right)
        });
        let [_, _, rank, result] = merge_words(self.merges.get(place.ok()?)?);
        Some((rank, result))
    }

    /// The lowest token whose piece is `head` followed by `tail`, reserved ones left out.
    pub fn find(&self, head: &[u8], tail: &[u8]) -> Option<u32> {
        let ordinary = self.sorted.get(..self.n_ordinary())?;
        let (mut low, mut high) = (0usize, ordinary.len());
        while low < high {
            let middle = low + (high - low) / 2;
            if compare(self.piece(word(ordinary, middle)?), head, tail) == Ordering::Less {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        // Equal pieces stand together, lowest token first; only the few reserved ones are passed over.
        loop {
            let token = word(ordinary, low)?;
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
    /// For kinds with arrays: arrays of the right types and lengths; offsets that begin at 0, rise, and end where the pieces do (an empty piece is refused: nothing
    /// could ever mean it); the longest piece exactly `max_piece_len`; `sorted`: ordinary tokens in strictly rising order of (bytes, token), then the special ones rising, which with n entries
    /// below n and none in both parts makes it a permutation. For `sentencepiece_bpe` besides: finite scores; byte tokens named `<0x00>` to `<0xFF>`; a piece of one space where `dummy_prefix` wants it;
    /// two pieces may be equal. A vocabulary without tokens for all bytes is allowed: text with what it does not have is then an error of encoding. For `byte_level_bpe` besides: no two ordinary
    /// pieces are equal; merges in strictly rising order of (left, right), of tokens that there are, with ranks below the number of merges; each merge's result is the piece that its two sides
    /// make, and not a special token.
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
                self.check_arrays((TokenizerKey::Scores, self.scores.len(), self.facts.n_pieces as usize))?;
                self.check_scores()?;
                self.check_bytes()?;
                if self.facts.dummy_prefix && self.find(b" ", b"").is_none() {
                    return Err(wrong(TokenizerKey::DummyPrefix, Rule::Missing, 0, 1));
                }
                Ok(())
            }
            #[cfg(feature = "bpe")]
            TokenizerKind::ByteLevelBpe => {
                self.check_arrays((TokenizerKey::Merges, self.merges.len(), self.merges.len().max(1)))?;
                self.check_merges()
            }
            _ => Ok(()),
        }
    }

    /// Checks the arrays that kinds with arrays share; `values` is the key, length and wanted length of the one that they do not.
    fn check_arrays(&self, values: (TokenizerKey, usize, usize)) -> Result<(), Error> {
        self.check_lengths(values)?;
        self.check_offsets()?;
        self.check_sorted()?;
        self.check_special()
    }

    #[inline(never)]
    fn check_lengths(&self, values: (TokenizerKey, usize, usize)) -> Result<(), Error> {
        let count = self.facts.n_pieces as usize;
        if count == 0 {
            return Err(wrong(TokenizerKey::VocabSize, Rule::NotZero, 0, 1));
        }
        let arrays = [
            (TokenizerKey::Offsets, self.offsets.len(), count.saturating_add(1)),
            values,
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
            let special = index >= self.n_ordinary();
            if index == self.n_ordinary() {
                before = None;
            }
            if let Some(before) = before {
                let bytes = if special { Ordering::Equal } else { self.piece(before).cmp(self.piece(token)) };
                if bytes == Ordering::Equal && !special && self.facts.kind == TokenizerKind::ByteLevelBpe {
                    return Err(wrong(TokenizerKey::Pieces, Rule::Duplicate, token, before));
                }
                if bytes.then(before.cmp(&token)) != Ordering::Less {
                    return Err(wrong(TokenizerKey::Sorted, Rule::Order, token, before));
                }
            }
            before = Some(token);
        }
        Ok(())
    }

    /// No special token is among the ordinary ones.
    #[inline(never)]
    fn check_special(&self) -> Result<(), Error> {
        let ordinary = self.sorted.get(..self.n_ordinary()).unwrap_or(&[]);
        for token in self.special().iter().map(|word| u32::from_le_bytes(*word)) {
            let piece = self.piece(token);
            let place = ordinary.binary_search_by(|word| {
                let other = u32::from_le_bytes(*word);
                self.piece(other).cmp(piece).then(other.cmp(&token))
            });
            if place.is_ok() {
                return Err(wrong(TokenizerKey::Special, Rule::Duplicate, token, token));
            }
        }
        Ok(())
    }

    #[cfg(feature = "bpe")]
    #[inline(never)]
    fn check_merges(&self) -> Result<(), Error> {
        let (n_pieces, count) = (self.facts.n_pieces, self.merges.len() as u32);
        let mut before: Option<(u32, u32)> = None;
        for (index, merge) in (0..).zip(self.merges) {
            let [left, right, rank, result] = merge_words(merge);
            if let Some(unknown) = [left, right, result].into_iter().find(|token| *token >= n_pieces) {
                return Err(wrong(TokenizerKey::Merges, Rule::TooLarge, unknown, n_pieces));
            }
            if rank >= count {
                return Err(wrong(TokenizerKey::Merges, Rule::TooLarge, rank, count));
            }
            match before.map(|before| before.cmp(&(left, right))) {
                None | Some(Ordering::Less) => before = Some((left, right)),
                Some(Ordering::Equal) => return Err(wrong(TokenizerKey::Merges, Rule::Duplicate, index, count)),
                Some(Ordering::Greater) => return Err(wrong(TokenizerKey::Merges, Rule::Order, index, count)),
            }
            if compare(self.piece(result), self.piece(left), self.piece(right)) != Ordering::Equal {
                return Err(wrong(TokenizerKey::Merges, Rule::Equal, result, index));
            }
            if self.is_reserved(result) {
                return Err(wrong(TokenizerKey::Merges, Rule::Unsupported, result, index));
            }
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

/// The elements of an array of this type, or the rows of `N` / 4 of them; none of an array of another.
const fn words<'a, const N: usize>(array: &TensorView<'a>, dtype: DType) -> &'a [[u8; N]] {
    if array.dtype().code() == dtype.code() { array.bytes().as_chunks::<N>().0 } else { &[] }
}

/// The bytes of tensor `number`; none where it has another type.
#[inline(never)]
fn bytes<'a>(file: &ModelFile<'a>, number: u32, dtype: DType) -> &'a [u8] {
    file.tensor(number).filter(|array| array.dtype() == dtype).map_or(&[], |array| array.bytes())
}

#[cfg(feature = "bpe")]
fn merge_words(merge: &[u8; 16]) -> [u32; 4] {
    let (words, _) = merge.as_chunks::<4>();
    let mut numbers = words.iter().map(|word| u32::from_le_bytes(*word));
    [0; 4].map(|none| numbers.next().unwrap_or(none))
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

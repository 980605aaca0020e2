//! The check of a tokenizer's arrays, without a heap: once when a file is opened at run time, and by whoever builds or verifies one.

use core::cmp::Ordering;

use super::Tokenizer;
use crate::format::tokenizer::{NO_TOKEN, TokenizerKind};
use crate::format::{DType, Error, Rule, TokenizerKey};

impl Tokenizer<'_> {
    /// Checks facts and arrays against each other: after this, encoding and decoding cannot go wrong on the file's account.
    ///
    /// For `sentencepiece_bpe`: arrays of the right types and lengths; offsets that begin at 0, rise, and end where the pieces do (an empty piece is refused: nothing
    /// could ever mean it); the longest piece exactly `max_piece_len`; finite scores; `sorted` in strictly rising order of (bytes, token), which with n entries below n makes it a
    /// permutation; byte tokens named `<0x00>` to `<0xFF>`; a piece of one space where `dummy_prefix` wants it. Two pieces may be equal. A vocabulary without byte tokens is allowed:
    /// characters that it does not have are then errors of [`Tokenizer::encode`].
    ///
    /// Takes one pass over each array.
    ///
    /// # Errors
    /// [`Error::Tokenizer`] with the first fact that is wrong.
    pub fn check(&self) -> Result<(), Error> {
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

/// How the piece of a byte token is written: `<0x41>`.
fn byte_name(byte: u8) -> [u8; 6] {
    let digit = |value: u8| if value < 10 { b'0' + value } else { b'A' + (value - 10) };
    [b'<', b'0', b'x', digit(byte >> 4), digit(byte & 15), b'>']
}

fn wrong(key: TokenizerKey, rule: Rule, found: u64, allowed: u64) -> Error {
    Error::Tokenizer { key, rule, found, allowed }
}

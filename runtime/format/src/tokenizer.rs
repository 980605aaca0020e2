//! What a file says of its tokenizer: the kind, the special tokens, and which tensors hold its arrays. The tokenizers themselves are in the runtime.

use crate::bytes::u32_at;
use crate::{DType, Error, Rule, TokenizerKey};

/// Bytes of the tokenizer record in a format-2 index.
pub const TOKENIZER_RECORD_LEN: usize = 96;

/// The longest piece in bytes, for every kind: a chip holds one piece in RAM.
pub const PIECE_LEN_LIMIT: u32 = 256;

/// Stands for "no token" in records.
pub const NO_TOKEN: u32 = u32::MAX;

/// How text becomes tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[repr(u32)]
pub enum TokenizerKind {
    /// The file carries none: tokens in, tokens out.
    None = 0,
    /// Token = byte.
    Bytes = 1,
    /// Sentencepiece-style BPE: pieces with scores, merged best score first; bytes where no piece fits.
    SentencepieceBpe = 2,
    /// Byte-level BPE as GPT-2 has it: text is split by a [`PreTokenizer`], then bytes are merged, the pair of the lowest rank first. Needs the cargo feature `bpe`.
    ByteLevelBpe = 3,
}

impl TokenizerKind {
    /// The name in headers.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Bytes => "bytes",
            Self::SentencepieceBpe => "sentencepiece_bpe",
            Self::ByteLevelBpe => "byte_level_bpe",
        }
    }

    /// Names and types of the kind's arrays, in the order of [`TokenizerFacts::arrays`]; `None` for a kind without arrays.
    ///
    /// `n` is the number of pieces: `tokenizer.pieces` u8, all pieces' bytes one after the other; `tokenizer.offsets` u32, n+1 rising numbers, piece i = the bytes from `offsets[i]` to
    /// `offsets[i+1]`; `tokenizer.scores` f32, n, or `tokenizer.merges` u32, [m, 4]: left, right, rank, result of each merge, in rising order of (left, right); `tokenizer.sorted` u32, the n ids:
    /// those of ordinary pieces sorted by piece bytes, lowest id first among equals, then the [`TokenizerFacts::n_special`] special ones in rising order.
    pub const fn arrays(self) -> Option<&'static [(&'static str, DType); 4]> {
        match self {
            Self::SentencepieceBpe => Some(&SENTENCEPIECE_ARRAYS),
            Self::ByteLevelBpe if cfg!(feature = "bpe") => Some(&BYTE_LEVEL_ARRAYS),
            Self::None | Self::Bytes | Self::ByteLevelBpe => None,
        }
    }
}

const SENTENCEPIECE_ARRAYS: [(&str, DType); 4] = [
    ("tokenizer.pieces", DType::U8),
    ("tokenizer.offsets", DType::U32),
    ("tokenizer.scores", DType::F32),
    ("tokenizer.sorted", DType::U32),
];
const BYTE_LEVEL_ARRAYS: [(&str, DType); 4] = [
    ("tokenizer.pieces", DType::U8),
    ("tokenizer.offsets", DType::U32),
    ("tokenizer.merges", DType::U32),
    ("tokenizer.sorted", DType::U32),
];

/// How `byte_level_bpe` splits text before it merges: the regular expressions that models were trained with, by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
#[repr(u32)]
pub enum PreTokenizer {
    /// The whole text is one part.
    #[default]
    None = 0,
    /// GPT-2: contractions, ` ?` before runs of letters, of numbers, of others; white space without the last before a word.
    Gpt2 = 1,
    /// `SmolLM`: each number by itself, then as GPT-2.
    Smollm = 2,
    /// Llama 3: as cl100k, numbers in threes.
    LlamaBpe = 3,
    /// Qwen 2: as Llama 3, but each number by itself.
    Qwen2 = 4,
}

impl PreTokenizer {
    /// All, in the order of their numbers.
    pub const ALL: [Self; 5] = [Self::None, Self::Gpt2, Self::Smollm, Self::LlamaBpe, Self::Qwen2];

    /// The name in headers.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Gpt2 => "gpt2",
            Self::Smollm => "smollm",
            Self::LlamaBpe => "llama-bpe",
            Self::Qwen2 => "qwen2",
        }
    }

    const fn from_code(code: u32) -> Option<Self> {
        Some(match code {
            0 => Self::None,
            1 => Self::Gpt2,
            2 => Self::Smollm,
            3 => Self::LlamaBpe,
            4 => Self::Qwen2,
            _ => return None,
        })
    }
}

/// What is done to text before `byte_level_bpe` splits it. Hosts do it; on a chip, which has no room for the tables, text has to be normalised already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Normalizer {
    /// Nothing.
    #[default]
    None,
    /// Characters are composed: Unicode's normalisation form C (Qwen 2).
    Nfc,
}

impl Normalizer {
    /// The name in headers, where [`Normalizer::None`] is left out.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Nfc => "nfc",
        }
    }
}

/// Facts of a tokenizer, as the index records them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenizerFacts {
    /// How text becomes tokens.
    pub kind: TokenizerKind,
    /// Number of pieces; equals the model's `vocab_size` (0 for [`TokenizerKind::None`]).
    pub n_pieces: u32,
    /// Whether a prompt begins with `bos`.
    pub add_bos: bool,
    /// Whether a space is put before non-empty text.
    pub dummy_prefix: bool,
    /// Begin of text, or [`NO_TOKEN`].
    pub bos: u32,
    /// Padding, or [`NO_TOKEN`].
    pub pad: u32,
    /// Unknown, or [`NO_TOKEN`].
    pub unk: u32,
    /// The token of byte 0, those of the other 255 bytes follow; or [`NO_TOKEN`] where bytes have none.
    pub byte_base: u32,
    /// Length of the longest piece in bytes, at most [`PIECE_LEN_LIMIT`].
    pub max_piece_len: u32,
    /// The tensors that hold the arrays (see [`TokenizerKind::arrays`]), or [`NO_TOKEN`] each.
    pub arrays: [u32; 4],
    /// How many special tokens there are besides the ones named here: text never becomes one, and they have no text.
    pub n_special: u32,
    /// How `byte_level_bpe` splits text; [`PreTokenizer::None`] for other kinds.
    pub pre_tokenizer: PreTokenizer,
    /// Whether `byte_level_bpe` takes a part that is a piece as that piece, whatever its merges say.
    pub ignore_merges: bool,
    /// What the model's own tokenizer does to text before it splits it; [`Normalizer::None`] for other kinds than `byte_level_bpe`.
    pub normalizer: Normalizer,
    /// End of text: each of these stops generation. Unused places are [`NO_TOKEN`] and come last.
    pub eos: [u32; 8],
}

impl TokenizerFacts {
    /// No tokenizer.
    pub const NONE: Self = Self {
        kind: TokenizerKind::None,
        n_pieces: 0,
        add_bos: false,
        dummy_prefix: false,
        bos: NO_TOKEN,
        pad: NO_TOKEN,
        unk: NO_TOKEN,
        byte_base: NO_TOKEN,
        max_piece_len: 0,
        arrays: [NO_TOKEN; 4],
        n_special: 0,
        pre_tokenizer: PreTokenizer::None,
        ignore_merges: false,
        normalizer: Normalizer::None,
        eos: [NO_TOKEN; 8],
    };

    /// Whether `token` ends a text.
    pub fn is_eos(&self, token: u32) -> bool {
        token != NO_TOKEN && self.eos.contains(&token)
    }

    /// Reads the record and checks what can be checked without the arrays: kind, special tokens below `n_pieces`, no gaps in the list of
    /// ends, `n_pieces` equal to the model's `vocab_size` unless there is no tokenizer.
    ///
    /// # Errors
    /// [`Error::Tokenizer`] with the first fact that is wrong.
    pub const fn from_record(record: &[u8; TOKENIZER_RECORD_LEN], vocab_size: u32) -> Result<Self, Error> {
        let kind = match u32_at(record, 0) {
            0 => TokenizerKind::None,
            1 => TokenizerKind::Bytes,
            2 => TokenizerKind::SentencepieceBpe,
            3 if cfg!(feature = "bpe") => TokenizerKind::ByteLevelBpe,
            3 => return Err(Error::TokenizerNotBuilt { kind: TokenizerKind::ByteLevelBpe }),
            other => return Err(wrong(TokenizerKey::Kind, Rule::Unknown, other, 3)),
        };
        let flags = u32_at(record, 8);
        let known = if let TokenizerKind::ByteLevelBpe = kind { 15 } else { 3 };
        if flags > known {
            return Err(wrong(TokenizerKey::Kind, Rule::Unknown, flags, known));
        }
        let Some(pre_tokenizer) = PreTokenizer::from_code(u32_at(record, 80)) else {
            return Err(wrong(TokenizerKey::PreTokenizer, Rule::Unknown, u32_at(record, 80), PreTokenizer::Qwen2 as u32));
        };
        let facts = Self {
            kind,
            n_pieces: u32_at(record, 4),
            add_bos: flags & 1 != 0,
            dummy_prefix: flags & 2 != 0,
            bos: u32_at(record, 12),
            pad: u32_at(record, 16),
            unk: u32_at(record, 20),
            byte_base: u32_at(record, 24),
            max_piece_len: u32_at(record, 28),
            arrays: [u32_at(record, 32), u32_at(record, 36), u32_at(record, 40), u32_at(record, 44)],
            n_special: u32_at(record, 84),
            pre_tokenizer,
            ignore_merges: flags & 4 != 0,
            normalizer: if flags & 8 != 0 { Normalizer::Nfc } else { Normalizer::None },
            eos: [
                u32_at(record, 48),
                u32_at(record, 52),
                u32_at(record, 56),
                u32_at(record, 60),
                u32_at(record, 64),
                u32_at(record, 68),
                u32_at(record, 72),
                u32_at(record, 76),
            ],
        };
        let reserved = u32_at(record, 88) | u32_at(record, 92);
        if reserved != 0 {
            return Err(wrong(TokenizerKey::Kind, Rule::Zero, reserved, 0));
        }
        match facts.check(vocab_size) {
            Ok(()) => Ok(facts),
            Err(error) => Err(error),
        }
    }

    /// The record of a format-2 index: the inverse of [`TokenizerFacts::from_record`].
    pub fn to_record(&self) -> [u8; TOKENIZER_RECORD_LEN] {
        let [a0, a1, a2, a3] = self.arrays;
        let [e0, e1, e2, e3, e4, e5, e6, e7] = self.eos;
        let nfc = u32::from(self.normalizer == Normalizer::Nfc);
        let flags = u32::from(self.add_bos) | u32::from(self.dummy_prefix) << 1 | u32::from(self.ignore_merges) << 2 | nfc << 3;
        let head = [self.kind as u32, self.n_pieces, flags, self.bos, self.pad, self.unk, self.byte_base, self.max_piece_len];
        let tail = [a0, a1, a2, a3, e0, e1, e2, e3, e4, e5, e6, e7, self.pre_tokenizer as u32, self.n_special, 0, 0];
        let mut record = [0; TOKENIZER_RECORD_LEN];
        for (bytes, word) in record.chunks_exact_mut(4).zip(head.into_iter().chain(tail)) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        record
    }

    /// The checks of [`TokenizerFacts::from_record`].
    ///
    /// # Errors
    /// [`Error::Tokenizer`] with the first fact that is wrong.
    pub const fn check(&self, vocab_size: u32) -> Result<(), Error> {
        if let TokenizerKind::None = self.kind {
            if self.n_pieces != 0 {
                return Err(wrong(TokenizerKey::VocabSize, Rule::Zero, self.n_pieces, 0));
            }
        } else if self.n_pieces != vocab_size {
            return Err(wrong(TokenizerKey::VocabSize, Rule::Equal, self.n_pieces, vocab_size));
        }
        if let TokenizerKind::Bytes = self.kind
            && self.n_pieces > 256
        {
            return Err(wrong(TokenizerKey::VocabSize, Rule::TooLarge, self.n_pieces, 256));
        }
        if let TokenizerKind::ByteLevelBpe = self.kind {
            // A space before the text and byte tokens by number are sentencepiece's.
            if self.dummy_prefix {
                return Err(wrong(TokenizerKey::DummyPrefix, Rule::Zero, 1, 0));
            }
            if self.byte_base != NO_TOKEN {
                return Err(wrong(TokenizerKey::ByteBase, Rule::Equal, self.byte_base, NO_TOKEN));
            }
        } else if self.pre_tokenizer as u32 != 0 {
            return Err(wrong(TokenizerKey::PreTokenizer, Rule::Zero, self.pre_tokenizer as u32, 0));
        }
        let special_allowed = if self.kind.arrays().is_some() { self.n_pieces } else { 0 };
        if self.n_special > special_allowed {
            return Err(wrong(TokenizerKey::Special, Rule::TooLarge, self.n_special, special_allowed));
        }
        if self.kind.arrays().is_some() {
            if self.max_piece_len == 0 || self.max_piece_len > PIECE_LEN_LIMIT {
                return Err(wrong(TokenizerKey::MaxPieceLen, Rule::Range, self.max_piece_len, PIECE_LEN_LIMIT));
            }
            if self.byte_base != NO_TOKEN && (self.n_pieces < 256 || self.byte_base > self.n_pieces - 256) {
                return Err(wrong(TokenizerKey::ByteBase, Rule::TooLarge, self.byte_base, self.n_pieces.saturating_sub(256)));
            }
        }
        let specials = [(TokenizerKey::Bos, self.bos), (TokenizerKey::Pad, self.pad), (TokenizerKey::Unk, self.unk)];
        let mut rest: &[(TokenizerKey, u32)] = &specials;
        while let [(key, token), tail @ ..] = rest {
            // Without a tokenizer the ids still name tokens of the model.
            if *token != NO_TOKEN && *token >= vocab_size {
                return Err(wrong(*key, Rule::TooLarge, *token, vocab_size));
            }
            rest = tail;
        }
        let mut ends: &[u32] = &self.eos;
        let mut ended = false;
        while let [token, tail @ ..] = ends {
            if *token == NO_TOKEN {
                ended = true;
            } else if ended {
                return Err(wrong(TokenizerKey::Eos, Rule::Order, *token, NO_TOKEN));
            } else if *token >= vocab_size {
                return Err(wrong(TokenizerKey::Eos, Rule::TooLarge, *token, vocab_size));
            }
            ends = tail;
        }
        if self.add_bos && self.bos == NO_TOKEN {
            return Err(wrong(TokenizerKey::Bos, Rule::Missing, self.bos, vocab_size));
        }
        Ok(())
    }
}

#[cold]
#[inline(never)]
const fn wrong(key: TokenizerKey, rule: Rule, found: u32, allowed: u32) -> Error {
    Error::Tokenizer { key, rule, found: found as u64, allowed: allowed as u64 }
}

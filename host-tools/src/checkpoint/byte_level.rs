//! A byte-level BPE vocabulary as `tokenizer.json` and GGUF files write it, to a [`TokenizerSource`].
//!
//! In both, pieces are text in which each character stands for one byte: printable ASCII and Latin-1 for themselves, the other 68 bytes for U+0100 and up
//! (`bytes_to_unicode` of GPT-2). The pieces of special tokens are plain text.

use super::TokenizerSource;
use crate::error::{Error, Result};
use dmexp_format::tokenizer::{NO_TOKEN, Normalizer, PIECE_LEN_LIMIT, PreTokenizer, TokenizerFacts, TokenizerKind};
use std::collections::{BTreeSet, HashMap};

/// What the source says; [`ByteLevelBpe::build`] checks it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ByteLevelBpe {
    /// The piece of each token, by id, as the source writes it.
    pub pieces: Vec<String>,
    /// The two pieces of each merge as the source writes them, the first merge first.
    pub merges: Vec<(String, String)>,
    /// Tokens that text never becomes; begin and end of text need not be among them.
    pub special: Vec<u32>,
    /// How text is split.
    pub pre_tokenizer: PreTokenizer,
    /// Whether a part that is a piece is taken as that piece, whatever the merges say (Llama 3).
    pub ignore_merges: bool,
    /// What is done to text before it is split.
    pub normalizer: Normalizer,
    /// Whether a prompt begins with `bos`.
    pub add_bos: bool,
    /// Begin of text.
    pub bos: Option<u32>,
    /// End of text: each stops generation; at most 8.
    pub eos: Vec<u32>,
    /// Padding.
    pub pad: Option<u32>,
    /// Unknown.
    pub unk: Option<u32>,
    /// The chat template's text.
    pub chat_template: Option<String>,
    /// The name of the source file without its folder.
    pub file_name: String,
}

impl ByteLevelBpe {
    /// Adds special tokens without meaning until there are `vocab_size`: some models have more rows than their tokenizers have tokens.
    pub fn fill(&mut self, vocab_size: u32) {
        for id in self.pieces.len() as u32..vocab_size {
            self.pieces.push(format!("<|unused {id}|>"));
            self.special.push(id);
        }
    }

    /// The tokenizer.
    ///
    /// # Errors
    /// [`Class::Damaged`](crate::error::Class::Damaged), with token or merge by number and text: a piece that is empty, too long, given twice or not byte-level text; a merge of
    /// what is no piece, into what is no piece, or given twice; a special token past the vocabulary; no merges at all.
    pub fn build(self) -> Result<TokenizerSource> {
        let vocab_size = self.pieces.len() as u32;
        let mut special: BTreeSet<u32> = self.special.iter().copied().collect();
        special.extend(self.bos);
        special.extend(&self.eos);
        if let Some(past) = special.iter().chain(&self.pad).chain(&self.unk).find(|token| **token >= vocab_size) {
            return Err(Error::damaged(format!("names token {past} as a special one; the vocabulary has {vocab_size}")));
        }
        let pieces = self.pieces.iter().zip(0..).map(|(text, id)| piece(text, id, special.contains(&id))).collect::<Result<Vec<_>>>()?;
        let mut ids = HashMap::with_capacity(pieces.len());
        let mut special_ids = HashMap::new();
        for (piece, id) in pieces.iter().zip(0u32..) {
            let seen = if special.contains(&id) { &mut special_ids } else { &mut ids };
            if let Some(first) = seen.insert(piece.as_slice(), id) {
                return Err(Error::damaged(format!("tokens {first} and {id} are both {:?}", String::from_utf8_lossy(piece))));
            }
        }
        let merges = self.merges.iter().zip(0..).map(|(pair, rank)| merge(pair, rank, &ids)).collect::<Result<Vec<_>>>()?;
        if merges.is_empty() {
            return Err(Error::damaged("has no merges: a byte-level BPE tokenizer cannot be without"));
        }
        let mut ranks = HashMap::with_capacity(merges.len());
        for (merge, rank) in merges.iter().zip(0u32..) {
            if let Some(first) = ranks.insert(*merge, rank) {
                let (left, right) = &self.merges[rank as usize];
                return Err(Error::damaged(format!("merges {first} and {rank} are both {left:?} with {right:?}")));
            }
        }
        let mut notes = Vec::new();
        let missing: Vec<_> =
            (0..=u8::MAX).filter(|byte| !ids.contains_key([*byte].as_slice())).map(|byte| format!("{byte:02x}")).collect();
        if !missing.is_empty() {
            notes.push(format!(
                "the vocabulary has no token for {} of the 256 bytes ({}): text with them is refused",
                missing.len(),
                missing.join(" ")
            ));
        }
        if self.eos.len() > 8 {
            return Err(Error::damaged(format!("has {} tokens that end a text; at most 8 are carried", self.eos.len())));
        }
        let mut eos = [NO_TOKEN; 8];
        for (place, token) in eos.iter_mut().zip(&self.eos) {
            *place = *token;
        }
        let facts = TokenizerFacts {
            kind: TokenizerKind::ByteLevelBpe,
            n_pieces: vocab_size,
            add_bos: self.add_bos,
            bos: self.bos.unwrap_or(NO_TOKEN),
            pad: self.pad.unwrap_or(NO_TOKEN),
            unk: self.unk.unwrap_or(NO_TOKEN),
            max_piece_len: pieces.iter().map(Vec::len).max().unwrap_or(0) as u32,
            n_special: special.len() as u32,
            pre_tokenizer: self.pre_tokenizer,
            ignore_merges: self.ignore_merges,
            normalizer: self.normalizer,
            eos,
            ..TokenizerFacts::NONE
        };
        facts.check(vocab_size).map_err(|error| Error::damaged(error.to_string()))?;
        Ok(TokenizerSource {
            pieces,
            scores: Vec::new(),
            merges,
            special: special.into_iter().collect(),
            chat_template: self.chat_template,
            facts,
            file_name: self.file_name,
            notes,
        })
    }
}

/// The bytes of a piece.
fn piece(text: &str, id: u32, special: bool) -> Result<Vec<u8>> {
    let bytes = if special {
        text.as_bytes().to_vec()
    } else {
        let undo = |(character, at): (char, usize)| {
            byte_of(character).ok_or_else(|| {
                let what = format!("token {id} is {text:?}, where {character:?} (character {at}) stands for no byte");
                Error::damaged(what).advise("a token with such text is special, or the vocabulary is not byte-level")
            })
        };
        text.chars().zip(0..).map(undo).collect::<Result<_>>()?
    };
    match bytes.len() {
        0 => Err(Error::damaged(format!("token {id} has no text"))),
        len if len > PIECE_LEN_LIMIT as usize => {
            Err(Error::damaged(format!("token {id} has {len} bytes; at most {PIECE_LEN_LIMIT} are carried")))
        }
        _ => Ok(bytes),
    }
}

/// The tokens of a merge, once what they make is known to be a piece too.
fn merge((left, right): &(String, String), rank: u32, ids: &HashMap<&[u8], u32>) -> Result<(u32, u32)> {
    let wrong = |what: &str, text: &str| Error::damaged(format!("merge {rank} ({left:?} with {right:?}): {what} {text:?} is not a piece"));
    let bytes = |text: &str| text.chars().map(byte_of).collect::<Option<Vec<u8>>>();
    let find = |text: &str| Some((*ids.get(bytes(text)?.as_slice())?, bytes(text)?));
    let (left_id, mut joined) = find(left).ok_or_else(|| wrong("its left side", left))?;
    let (right_id, tail) = find(right).ok_or_else(|| wrong("its right side", right))?;
    joined.extend(tail);
    if !ids.contains_key(joined.as_slice()) {
        return Err(wrong("what it makes,", &format!("{left}{right}")));
    }
    Ok((left_id, right_id))
}

/// The byte that `character` stands for.
fn byte_of(character: char) -> Option<u8> {
    /// The other bytes, in the order in which U+0100 and up stand for them: 00 to 20, 7F to A0, AD.
    const OTHERS: u32 = 0x100;
    Some(match character as u32 {
        code @ (0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF) => code as u8,
        code @ OTHERS..=0x120 => (code - OTHERS) as u8,
        code @ 0x121..=0x142 => (code - 0x121 + 0x7F) as u8,
        0x143 => 0xAD,
        _ => return None,
    })
}

/// The character that stands for `byte`: the inverse of what [`ByteLevelBpe::build`] undoes, for writers of `tokenizer.json`.
pub fn character_of(byte: u8) -> char {
    let code = u32::from(byte);
    let code = match byte {
        0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF => code,
        0..=0x20 => 0x100 + code,
        0x7F..=0xA0 => 0x121 + code - 0x7F,
        0xAD => 0x143,
    };
    char::from_u32(code).unwrap_or('\u{FFFD}')
}

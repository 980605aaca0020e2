//! Reader of llama2.c's tokenizer.bin: the longest piece's length, then score, length and bytes of each piece, and no count. Called by the exporter, and by `recognise`.

use super::{Kind, Mapping, TokenizerSource, recognise};
use crate::error::{Error, Result};
use dmexp_format::tokenizer::{NO_TOKEN, PIECE_LEN_LIMIT, TokenizerFacts, TokenizerKind};
use std::path::Path;

const UNK: u32 = 0;
const BOS: u32 = 1;
const EOS: u32 = 2;
/// The first of 256 byte tokens.
const BYTES: u32 = 3;

/// Reads the tokenizer of a model with `vocab_size` tokens.
///
/// # Errors
/// With the path: [`Class::Unreadable`](crate::error::Class::Unreadable), [`Class::NotAModel`](crate::error::Class::NotAModel) for a file that is something else,
/// [`Class::Damaged`](crate::error::Class::Damaged) for lengths, scores or a longest piece that cannot be, [`Class::Mismatch`](crate::error::Class::Mismatch) where the number of pieces is not
/// `vocab_size` (says both).
pub fn read(path: &Path, vocab_size: u32) -> Result<TokenizerSource> {
    let file = Mapping::open(path)?;
    let source = parse(file.bytes(), vocab_size).map_err(|error| error.in_file(path))?;
    Ok(TokenizerSource { file_name: file.file_name(), ..source })
}

/// Reads a tokenizer from memory, like [`read`]; errors name no file.
///
/// # Errors
/// Those of [`read`], without [`Class::Unreadable`](crate::error::Class::Unreadable).
pub fn parse(bytes: &[u8], vocab_size: u32) -> Result<TokenizerSource> {
    let Some((head, body)) = bytes.split_first_chunk() else {
        return Err(Error::damaged(format!("is too short for a tokenizer.bin: {} bytes", bytes.len())));
    };
    // A file that begins as something else is better told so than that its first length is wrong.
    match recognise(bytes) {
        Kind::TokenizerBin { .. } | Kind::Unknown { .. } | Kind::Llama2cWrongSize => {}
        other => {
            return Err(Error::not_a_model(format!("is {}, not a tokenizer.bin", other.sentence()))
                .advise("name the tokenizer.bin that the model was trained with"));
        }
    }
    // Counted before anything is kept: a mismatch names the true count, and the memory needed is known to be no more than the file's.
    let (mut count, mut longest, mut total) = (0u64, 0, 0);
    for entry in Entries::new(body) {
        let len = entry?.1.len() as u64;
        longest = longest.max(len);
        total += len;
        count += 1;
    }
    if count != u64::from(vocab_size) {
        let what = format!("has {count} pieces, the model has {vocab_size} tokens");
        return Err(Error::mismatch(what).advise("name the tokenizer that the model was trained with"));
    }
    if u32::try_from(total).is_err() {
        return Err(Error::damaged(format!("has pieces of {total} bytes together; a model file holds {} at most", u32::MAX)));
    }
    let stated = u32::from_le_bytes(*head);
    if u64::from(stated) != longest {
        return Err(Error::damaged(format!("says that its longest piece has {stated} bytes; it has {longest}"))
            .at("byte 0")
            .advise("make it again"));
    }
    if vocab_size <= EOS {
        return Err(Error::damaged(format!("has {vocab_size} pieces; it needs at least {}: unknown, begin and end of text", EOS + 1)));
    }
    let mut pieces = Vec::with_capacity(vocab_size as usize);
    let mut scores = Vec::with_capacity(vocab_size as usize);
    for entry in Entries::new(body) {
        let (score, piece) = entry?;
        scores.push(score);
        pieces.push(piece.to_vec());
    }
    if !pieces.iter().any(|piece| piece == b" ") {
        return Err(Error::damaged("has no piece \" \", which begins every text").advise("make it again with llama2.c's tokenizer.py"));
    }
    let byte_base = byte_base(&pieces)?;
    let mut notes = Vec::new();
    if byte_base == NO_TOKEN {
        notes.push("the tokenizer has no byte tokens: a character without a piece is an error".to_owned());
    }
    let mut eos = [NO_TOKEN; 8];
    eos[0] = EOS;
    let facts = TokenizerFacts {
        kind: TokenizerKind::SentencepieceBpe,
        n_pieces: vocab_size,
        add_bos: true,
        dummy_prefix: true,
        bos: BOS,
        pad: NO_TOKEN,
        unk: UNK,
        byte_base,
        max_piece_len: stated,
        eos,
        ..TokenizerFacts::NONE
    };
    facts.check(vocab_size).map_err(|error| Error::damaged(error.to_string()))?;
    Ok(TokenizerSource { pieces, scores, facts, notes, ..TokenizerSource::NONE })
}

/// The number of pieces, where the bytes are a whole tokenizer.bin or at least begin like one: `None` for anything else.
pub(super) fn looks_like(bytes: &[u8]) -> Option<u32> {
    let (_, body) = bytes.split_first_chunk::<4>()?;
    let mut count = 0;
    let mut begins = false;
    for entry in Entries::new(body) {
        match entry {
            Ok((_, piece)) => begins |= count == 0 && piece == b"<unk>",
            // Cut or edited further on: still what it is.
            Err(_) if begins => return Some(count),
            Err(_) => return None,
        }
        count += 1;
    }
    (count > EOS).then_some(count)
}

/// The pieces one after the other; ends after the first error.
struct Entries<'a> {
    rest: &'a [u8],
    offset: u64,
    id: u64,
}

impl<'a> Entries<'a> {
    fn new(body: &'a [u8]) -> Self {
        Self { rest: body, offset: 4, id: 0 }
    }

    fn entry(&mut self) -> Result<(f32, &'a [u8])> {
        let (id, at) = (self.id, format!("byte {}", self.offset));
        let ends =
            |what: &str| Error::damaged(format!("ends within {what} of piece {id}")).at(at.clone()).advise("copy or download it again");
        let (score, rest) = self.rest.split_first_chunk().ok_or_else(|| ends("the score"))?;
        let (len, rest) = rest.split_first_chunk().ok_or_else(|| ends("the length"))?;
        let (score, len) = (f32::from_le_bytes(*score), i32::from_le_bytes(*len));
        if !score.is_finite() {
            return Err(Error::damaged(format!("the score of piece {id} is {score}")).at(at));
        }
        let len = match u32::try_from(len) {
            Ok(len @ 1..=PIECE_LEN_LIMIT) => len as usize,
            _ => return Err(Error::damaged(format!("the length of piece {id} is {len}; it can be 1 to {PIECE_LEN_LIMIT}")).at(at)),
        };
        let (piece, rest) = rest.split_at_checked(len).ok_or_else(|| ends("the bytes"))?;
        self.rest = rest;
        self.offset += 8 + len as u64;
        self.id += 1;
        Ok((score, piece))
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<(f32, &'a [u8])>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let entry = self.entry();
        if entry.is_err() {
            self.rest = &[];
        }
        Some(entry)
    }
}

/// Where the byte tokens are: all 256 at their place, or none at all.
fn byte_base(pieces: &[Vec<u8>]) -> Result<u32> {
    let mut named = (0..=u8::MAX).zip(pieces.iter().skip(BYTES as usize));
    let is_byte = |byte: u8, piece: &[u8]| piece == format!("<0x{byte:02X}>").as_bytes();
    match named.next() {
        Some((byte, first)) if is_byte(byte, first) => {}
        _ => return Ok(NO_TOKEN),
    }
    let mut right = 1;
    for (byte, piece) in named {
        if !is_byte(byte, piece) {
            let id = BYTES + u32::from(byte);
            let what =
                format!("piece {id} is {:?}; after {right} byte tokens it should be \"<0x{byte:02X}>\"", String::from_utf8_lossy(piece));
            return Err(Error::damaged(what).advise("make it again with llama2.c's tokenizer.py"));
        }
        right += 1;
    }
    if right != 256 {
        return Err(Error::damaged(format!("has {right} of 256 byte tokens")).advise("make it again with llama2.c's tokenizer.py"));
    }
    Ok(BYTES)
}

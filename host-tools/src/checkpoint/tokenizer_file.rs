//! Which reader a tokenizer file goes to: told by its bytes, never by its name. Used by the command line and by readers of folders.

use super::{Kind, TokenizerSource, recognise_path, sentencepiece_model, tokenizer_bin, tokenizer_json};
use crate::error::{Error, Result};
use std::path::Path;

/// What a tokenizer can be, for messages.
pub const KINDS: &str = "tokenizer.json, a sentencepiece model (tokenizer.model) or llama2.c's tokenizer.bin";

/// The names that tokenizers have in folders, in the order in which they are looked for.
const NAMES: [&str; 3] = ["tokenizer.json", "tokenizer.model", "tokenizer.bin"];

/// Reads the tokenizer at `path`, or the one in that folder, for a model with `vocab_size` tokens (`None`: as many as the tokenizer has).
///
/// # Errors
/// Those of the readers, with the path; [`Class::NotAModel`](crate::error::Class::NotAModel) for what is no tokenizer.
pub fn read(path: &Path, vocab_size: Option<u32>) -> Result<TokenizerSource> {
    match recognise_path(path)? {
        Kind::TokenizerBin { pieces } => tokenizer_bin::read(path, vocab_size.unwrap_or(pieces)),
        Kind::SentencepieceModel => sentencepiece_model::read(path, vocab_size),
        Kind::Json => tokenizer_json::read(path, vocab_size),
        Kind::Directory(_) => match in_folder(path, vocab_size)? {
            Some(source) => Ok(source),
            None => Err(Error::not_a_model(format!("is a folder without any of {}", NAMES.join(", "))).in_file(path)),
        },
        // Bytes without a mark of their own are told what is wrong with them as a tokenizer.bin, which has none.
        Kind::Unknown { .. } | Kind::Llama2cWrongSize => tokenizer_bin::read(path, vocab_size.unwrap_or(0)),
        other => Err(Error::not_a_model(format!("is {}, not a tokenizer", other.sentence())).advise(format!("name {KINDS}")).in_file(path)),
    }
}

/// The tokenizer that lies in `folder`, if one does.
///
/// # Errors
/// Those of the readers, with the path.
pub(super) fn in_folder(folder: &Path, vocab_size: Option<u32>) -> Result<Option<TokenizerSource>> {
    let Some(path) = NAMES.iter().map(|name| folder.join(name)).find(|path| path.is_file()) else { return Ok(None) };
    read(&path, vocab_size).map(Some)
}

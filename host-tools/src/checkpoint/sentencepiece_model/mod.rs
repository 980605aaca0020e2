//! Reader of sentencepiece models (tokenizer.model) of the type BPE. The fields are those of sentencepiece's `sentencepiece_model.proto`; what would change the tokens of a text and is not done here is
//! refused by name.

mod protobuf;

#[cfg(test)]
mod tests;

use super::tokenizer_settings::{Settings, end_list};
use super::{Kind, Mapping, TokenizerSource, recognise, tokenizer_settings};
use crate::decode::TokenizerArrays;
use crate::error::{Error, Result};
use dmexp_format::tokenizer::{NO_TOKEN, TokenizerFacts, TokenizerKind};
use protobuf::Fields;
use std::path::Path;

/// Sentencepiece's stand-in for a space.
const SPACE: &str = "\u{2581}";

/// What a piece is for; numbers of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sort {
    Normal,
    Unknown,
    Control,
    UserDefined,
    Unused,
    Byte,
}

#[derive(Clone, Debug)]
struct Piece<'a> {
    text: &'a str,
    score: f32,
    sort: Sort,
}

/// Settings of training and normalisation that matter to us, with the format's defaults.
#[expect(clippy::struct_excessive_bools, reason = "they are the format's")]
#[derive(Clone, Debug)]
struct Model<'a> {
    pieces: Vec<Piece<'a>>,
    kind: u64,
    suffix: bool,
    bos: Option<u32>,
    eos: Option<u32>,
    pad: Option<u32>,
    normalizer: String,
    rules: bool,
    dummy_prefix: bool,
    remove_spaces: bool,
    escape_spaces: bool,
}

/// Reads the tokenizer of a model with `vocab_size` tokens (`None`: as many as the file has), with the settings that stand beside it.
///
/// # Errors
/// With the path: [`Class::Unreadable`](crate::error::Class::Unreadable), [`Class::NotAModel`](crate::error::Class::NotAModel) for another file, another type than BPE, or a setting that this
/// version does not have, [`Class::Damaged`](crate::error::Class::Damaged), [`Class::Mismatch`](crate::error::Class::Mismatch) where it does not fit the model.
pub(super) fn read(path: &Path, vocab_size: Option<u32>) -> Result<TokenizerSource> {
    let file = Mapping::open(path)?;
    let settings = tokenizer_settings::beside(path)?;
    let source = parse(file.bytes(), vocab_size, &settings).map_err(|error| error.in_file(path))?;
    Ok(TokenizerSource { file_name: file.file_name(), ..source })
}

/// Reads a tokenizer from memory, like [`read`].
pub(super) fn parse(bytes: &[u8], vocab_size: Option<u32>, settings: &Settings) -> Result<TokenizerSource> {
    let kind = recognise(bytes);
    if kind != Kind::SentencepieceModel {
        return Err(Error::not_a_model(format!("is {}, not a sentencepiece model", kind.sentence())));
    }
    let model = model(bytes)?;
    supported(&model)?;
    let own = model.pieces.len() as u64;
    let count = vocab_size.map_or(own, u64::from);
    if own > count {
        let what = format!("has {own} pieces, the model has {count} tokens");
        return Err(Error::mismatch(what).advise("name the tokenizer that the model was trained with"));
    }
    let mut source = TokenizerSource { notes: settings.notes.clone(), ..TokenizerSource::NONE };
    if own < count {
        source.notes.push(format!("{} of the model's {count} tokens have no piece: they are special tokens without text", count - own));
    }
    let count = u32::try_from(count).map_err(|_| Error::damaged(format!("has {count} pieces: too many")))?;
    for (id, piece) in (0u32..).zip(&model.pieces) {
        let text = if piece.sort == Sort::Normal { piece.text.replace(SPACE, " ") } else { piece.text.to_owned() };
        source.pieces.push(text.into_bytes());
        source.scores.push(piece.score);
        if piece.sort == Sort::Control {
            source.special.push(id);
        }
    }
    for id in own as u32..count {
        source.pieces.push(format!("<|unused {id}|>").into_bytes());
        source.scores.push(0.0);
        source.special.push(id);
    }
    source.facts = facts(&model, count, settings)?;
    source.facts.n_special = source.special.len() as u32;
    source.facts.max_piece_len = source.pieces.iter().map(Vec::len).max().unwrap_or(0) as u32;
    if source.facts.byte_base == NO_TOKEN {
        source.notes.push("the tokenizer has no byte tokens: a character without a piece is an error".to_owned());
    }
    source.chat_template.clone_from(&settings.chat_template);
    TokenizerArrays::new(&source).tokenizer()?;
    Ok(source)
}

fn facts(model: &Model<'_>, count: u32, settings: &Settings) -> Result<TokenizerFacts> {
    let find = |key: &str, text: &Option<String>| match text {
        None => Ok(None),
        Some(text) => match (0u32..).zip(&model.pieces).find(|(_, piece)| piece.text == text) {
            Some((id, _)) => Ok(Some(id)),
            None => Err(Error::mismatch(format!("{key} is {text:?}, which the tokenizer does not have"))),
        },
    };
    let of_sort = |sort: Sort| (0u32..).zip(&model.pieces).find(|(_, piece)| piece.sort == sort).map(|(id, _)| id);
    let bos = find("bos_token", &settings.bos)?.or(model.bos).or(settings.bos_id);
    let eos = find("eos_token", &settings.eos)?.or(model.eos);
    Ok(TokenizerFacts {
        kind: TokenizerKind::SentencepieceBpe,
        n_pieces: count,
        dummy_prefix: model.dummy_prefix,
        bos: bos.unwrap_or(NO_TOKEN),
        // Sentencepiece itself adds none; the programs that use such models do, unless they are told not to.
        add_bos: bos.is_some() && settings.add_bos.unwrap_or(true),
        pad: find("pad_token", &settings.pad)?.or(model.pad).or(settings.pad_id).unwrap_or(NO_TOKEN),
        unk: of_sort(Sort::Unknown).unwrap_or(NO_TOKEN),
        byte_base: byte_base(&model.pieces)?,
        eos: end_list(&settings.ends(eos)?),
        ..TokenizerFacts::NONE
    })
}

/// Where the byte tokens are: all 256 one after the other, or none.
fn byte_base(pieces: &[Piece<'_>]) -> Result<u32> {
    let mut bytes = (0u32..).zip(pieces).filter(|(_, piece)| piece.sort == Sort::Byte);
    let Some((base, _)) = bytes.clone().next() else { return Ok(NO_TOKEN) };
    for byte in 0..=u8::MAX {
        let (name, wanted) = (format!("<0x{byte:02X}>"), base + u32::from(byte));
        match bytes.next() {
            Some((id, piece)) if id == wanted && piece.text == name => {}
            Some((id, piece)) => {
                return Err(Error::not_a_model(format!(
                    "the byte token {:?} is piece {id}, where {name:?} is wanted as piece {wanted}",
                    piece.text
                )));
            }
            None => return Err(Error::damaged(format!("has {byte} of 256 byte tokens"))),
        }
    }
    match bytes.next() {
        Some((id, piece)) => Err(Error::damaged(format!("has more than 256 byte tokens: piece {id}, {:?}", piece.text))),
        None => Ok(base),
    }
}

/// Refuses what is not done here.
fn supported(model: &Model<'_>) -> Result<()> {
    let refuse = |what: String| Err(Error::not_a_model(what).advise("text would become other tokens than the model was trained with"));
    match model.kind {
        2 => {}
        1 => return refuse("is a sentencepiece model of the type UNIGRAM; this version has BPE".to_owned()),
        3 => return refuse("is a sentencepiece model of the type WORD; this version has BPE".to_owned()),
        4 => return refuse("is a sentencepiece model of the type CHAR; this version has BPE".to_owned()),
        other => return refuse(format!("is a sentencepiece model of the unknown type {other}; this version has BPE")),
    }
    if model.rules {
        return refuse(format!("its normalizer {:?} changes text by rules, which this version does not do", model.normalizer));
    }
    if model.remove_spaces {
        return refuse("its normalizer removes extra spaces (remove_extra_whitespaces), which this version does not do".to_owned());
    }
    if !model.escape_spaces || model.suffix {
        let name = if model.suffix { "treat_whitespace_as_suffix is true" } else { "escape_whitespaces is false" };
        return refuse(format!("its {name}, which this version does not have"));
    }
    let other = (0u32..).zip(&model.pieces).find(|(_, piece)| matches!(piece.sort, Sort::UserDefined | Sort::Unused));
    match other {
        Some((id, piece)) => {
            let sort = if piece.sort == Sort::Unused { "unused" } else { "defined by the user" };
            refuse(format!("piece {id}, {:?}, is {sort}, a sort that this version does not have", piece.text))
        }
        None => Ok(()),
    }
}

fn model(bytes: &[u8]) -> Result<Model<'_>> {
    let mut model = Model {
        pieces: Vec::new(),
        kind: 1,
        suffix: false,
        bos: Some(1),
        eos: Some(2),
        pad: None,
        normalizer: String::new(),
        rules: false,
        dummy_prefix: true,
        remove_spaces: true,
        escape_spaces: true,
    };
    let mut fields = Fields::new(bytes, 0);
    while let Some(field) = fields.next() {
        let (number, field) = field?;
        let Some(message) = field.bytes().filter(|_| (1..=3).contains(&number)) else { continue };
        let start = fields.offset() - message.len();
        let inner = Fields::new(message, start);
        match number {
            1 => {
                let id = model.pieces.len();
                model.pieces.push(piece(inner).map_err(|error| error.at(format!("piece {id}, byte {start}")))?);
            }
            2 => trainer(&mut model, inner)?,
            _ => normalizer(&mut model, inner)?,
        }
    }
    Ok(model)
}

fn piece(fields: Fields<'_>) -> Result<Piece<'_>> {
    let mut piece = Piece { text: "", score: 0.0, sort: Sort::Normal };
    for field in fields {
        let (number, field) = field?;
        match (number, field.bytes(), field.float(), field.number()) {
            (1, Some(text), ..) => piece.text = std::str::from_utf8(text).map_err(|_| Error::damaged("a piece is not UTF-8"))?,
            (2, _, Some(score), _) if score.is_finite() => piece.score = score,
            (2, _, Some(score), _) => return Err(Error::damaged(format!("a score is {score}"))),
            (3, .., Some(sort)) => {
                piece.sort = match sort {
                    1 => Sort::Normal,
                    2 => Sort::Unknown,
                    3 => Sort::Control,
                    4 => Sort::UserDefined,
                    5 => Sort::Unused,
                    6 => Sort::Byte,
                    other => return Err(Error::damaged(format!("a piece is of the sort {other}; the sorts are 1 to 6"))),
                }
            }
            (1..=3, ..) => return Err(Error::damaged(format!("field {number} of a piece is of another type"))),
            _ => {}
        }
    }
    if piece.text.is_empty() { Err(Error::damaged("a piece is empty")) } else { Ok(piece) }
}

fn trainer(model: &mut Model<'_>, fields: Fields<'_>) -> Result<()> {
    for field in fields {
        let (number, field) = field?;
        let Some(value) = field.number() else { continue };
        // Ids are i32, -1 for none.
        let id = u32::try_from(value.cast_signed()).ok();
        match number {
            3 => model.kind = value,
            24 => model.suffix = value != 0,
            41 => model.bos = id,
            42 => model.eos = id,
            43 => model.pad = id,
            _ => {}
        }
    }
    Ok(())
}

fn normalizer(model: &mut Model<'_>, fields: Fields<'_>) -> Result<()> {
    for field in fields {
        let (number, field) = field?;
        match (number, field.bytes(), field.number()) {
            (1, Some(name), _) => model.normalizer = String::from_utf8_lossy(name).into_owned(),
            (2 | 6, Some(rules), _) => model.rules |= !rules.is_empty(),
            (3, _, Some(value)) => model.dummy_prefix = value != 0,
            (4, _, Some(value)) => model.remove_spaces = value != 0,
            (5, _, Some(value)) => model.escape_spaces = value != 0,
            _ => {}
        }
    }
    Ok(())
}

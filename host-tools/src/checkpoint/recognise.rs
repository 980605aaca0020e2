//! What a file is, by its bytes and never by its name. Used by `open` and by commands that were given the wrong file.

use super::{Mapping, llama2c, rustyml, tokenizer_bin};
use crate::error::{Error, Result};
use std::path::Path;

/// What a file turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// No bytes at all.
    Empty,
    /// A folder.
    Directory(DirectoryHint),
    /// Exported already; the format version as its byte says.
    Dmexp {
        /// The version byte.
        version: u8,
    },
    /// A llama2.c checkpoint; any version that stands in its header, known or not.
    Llama2c {
        /// 0 where the file has no magic.
        version: i32,
    },
    /// Begins with (most of) the header of a llama2.c checkpoint of version 0, but its values or the file's length cannot be.
    Llama2cWrongSize,
    /// A llama2.c header with the bytes of each number the other way round.
    Llama2cBigEndian,
    /// GGUF of any version.
    Gguf,
    /// The formats of llama.cpp before GGUF.
    Ggml,
    /// A zip archive; `pytorch` where it begins as `torch.save` writes them.
    Zip {
        /// Whether the first member is a pickle.
        pytorch: bool,
    },
    /// A bare pickle: what `torch.save` wrote before version 1.6.
    Pickle,
    /// Safetensors.
    Safetensors,
    /// A training checkpoint of dormouse, with its magic or in the older form without.
    DormouseCheckpoint,
    /// A burn record.
    Burnpack,
    /// A `RustyML` model; any format version that stands in its header, known or not.
    RustyMl {
        /// The version.
        version: u32,
    },
    /// llama2.c's tokenizer.bin.
    TokenizerBin {
        /// How many pieces it has.
        pieces: u32,
    },
    /// A sentencepiece model.
    SentencepieceModel,
    /// A web page.
    Html,
    /// What Git leaves in place of a large file that was not fetched.
    LfsPointer,
    /// Compressed: "gzip", "xz", "bzip2" or "zstd".
    Compressed(&'static str),
    /// A program.
    Elf,
    /// JSON.
    Json,
    /// Some other text.
    Text,
    /// None of these.
    Unknown {
        /// The first bytes, zero where the file is shorter.
        first: [u8; 8],
    },
}

/// What a folder seems to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DirectoryHint {
    /// `config.json`, as Hugging Face models have.
    HuggingFace,
    /// `params.json`, as Meta's models have.
    Meta,
    /// Safetensors files without a `config.json`.
    Safetensors,
    /// Nothing known.
    Other,
}

/// Tells what the bytes of a whole file are.
pub fn recognise(bytes: &[u8]) -> Kind {
    if bytes.is_empty() {
        return Kind::Empty;
    }
    if let Some(kind) = by_magic(bytes) {
        return kind;
    }
    if is_html(bytes) {
        return Kind::Html;
    }
    if let Some(kind) = by_structure(bytes) {
        return kind;
    }
    if is_text(bytes) {
        let first = bytes.iter().find(|byte| !byte.is_ascii_whitespace());
        return if matches!(first, Some(b'{' | b'[')) { Kind::Json } else { Kind::Text };
    }
    match llama2c::v0(bytes) {
        llama2c::V0::Exact => Kind::Llama2c { version: 0 },
        llama2c::V0::Near => Kind::Llama2cWrongSize,
        llama2c::V0::BigEndian => Kind::Llama2cBigEndian,
        llama2c::V0::No => {
            let mut first = [0; 8];
            for (to, from) in first.iter_mut().zip(bytes) {
                *to = *from;
            }
            Kind::Unknown { first }
        }
    }
}

/// Tells what a file or folder is.
///
/// # Errors
/// [`Class::Unreadable`](crate::error::Class::Unreadable).
pub fn recognise_path(path: &Path) -> Result<Kind> {
    if path.is_dir() {
        return directory(path).map(Kind::Directory).map_err(|source| Error::unreadable(path, source));
    }
    Ok(recognise(Mapping::open(path)?.bytes()))
}

fn directory(path: &Path) -> std::io::Result<DirectoryHint> {
    if path.join("config.json").is_file() {
        return Ok(DirectoryHint::HuggingFace);
    }
    if path.join("params.json").is_file() {
        return Ok(DirectoryHint::Meta);
    }
    for entry in std::fs::read_dir(path)? {
        if Path::new(&entry?.file_name()).extension().is_some_and(|extension| extension == "safetensors") {
            return Ok(DirectoryHint::Safetensors);
        }
    }
    Ok(DirectoryHint::Other)
}

fn by_magic(bytes: &[u8]) -> Option<Kind> {
    let word = u32_at(bytes, 0);
    if let Some(rest) = bytes.strip_prefix(b"DMEXPRT") {
        return Some(Kind::Dmexp { version: rest.first().copied().unwrap_or(0) });
    }
    if word == Some(llama2c::MAGIC) {
        return Some(Kind::Llama2c { version: u32_at(bytes, 4).unwrap_or(0).cast_signed() });
    }
    if word == Some(llama2c::MAGIC.swap_bytes()) {
        return Some(Kind::Llama2cBigEndian);
    }
    if bytes.starts_with(b"PK\x03\x04") || bytes.starts_with(b"PK\x05\x06") {
        // The first member's name begins at byte 30; `torch.save` writes the pickle first.
        let name_len = usize::from(u16::from_le_bytes([*bytes.get(26).unwrap_or(&0), *bytes.get(27).unwrap_or(&0)]));
        let pytorch = bytes.get(30..30 + name_len).is_some_and(|name| name.ends_with(b".pkl") || name.ends_with(b"/.format_version"));
        return Some(Kind::Zip { pytorch });
    }
    // An opcode follows, which is never 0; a llama2.c checkpoint of dim 384 or 640 begins with 0x80 too.
    if let [0x80, 2..=5, 1..=0xff, ..] = bytes {
        return Some(Kind::Pickle);
    }
    if let [b'B', b'Z', b'h', b'1'..=b'9', ..] = bytes {
        return Some(Kind::Compressed("bzip2"));
    }
    if let Some(rest) = bytes.strip_prefix(&rustyml::MAGIC) {
        return Some(Kind::RustyMl { version: rest.first().map_or(0, |version| u32::from(*version)) });
    }
    let magics: [(&[u8], Kind); 12] = [
        (b"GGUF", Kind::Gguf),
        (b"lmgg", Kind::Ggml),
        (b"fmgg", Kind::Ggml),
        (b"tjgg", Kind::Ggml),
        (b"DMCK\0", Kind::DormouseCheckpoint),
        (b"NRUB", Kind::Burnpack),
        (b"\x1f\x8b\x08", Kind::Compressed("gzip")),
        (b"\xfd7zXZ\0", Kind::Compressed("xz")),
        (b"\x28\xb5\x2f\xfd", Kind::Compressed("zstd")),
        (b"\x7fELF", Kind::Elf),
        (b"version https://git-lfs", Kind::LfsPointer),
        (b"version https://hawser", Kind::LfsPointer),
    ];
    magics.into_iter().find(|(magic, _)| bytes.starts_with(magic)).map(|(_, kind)| kind)
}

fn by_structure(bytes: &[u8]) -> Option<Kind> {
    if let Some([b'{', b'"' | b'}' | b' ' | b'\n', ..]) = bytes.get(8..)
        && u64_at(bytes, 0).is_some_and(|len| (2..=1 << 32).contains(&len))
    {
        return Some(Kind::Safetensors);
    }
    // dormouse's older container has no magic: a step and two lengths, then a burn record.
    if bytes.get(24..28) == Some(b"NRUB") {
        return Some(Kind::DormouseCheckpoint);
    }
    if let Some(pieces) = tokenizer_bin::looks_like(bytes) {
        return Some(Kind::TokenizerBin { pieces });
    }
    // A sentencepiece model is a protobuf whose first field holds pieces: text (field 1), score (field 2, a float).
    if let [0x0a, piece_len, 0x0a, text_len, rest @ ..] = bytes
        && usize::from(*piece_len) >= usize::from(*text_len) + 7
        && *piece_len < 0x80
        && rest.get(usize::from(*text_len)) == Some(&0x15)
    {
        return Some(Kind::SentencepieceModel);
    }
    None
}

fn is_html(bytes: &[u8]) -> bool {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes).trim_ascii_start();
    [b"<!doctype html".as_slice(), b"<html"].iter().any(|tag| bytes.get(..tag.len()).is_some_and(|start| start.eq_ignore_ascii_case(tag)))
}

/// Whether the first few thousand bytes are UTF-8 without control characters; a character cut by the limit does not count against it.
fn is_text(bytes: &[u8]) -> bool {
    let head = bytes.get(..4096).unwrap_or(bytes);
    let valid = match std::str::from_utf8(head) {
        Ok(text) => text,
        Err(error) if error.error_len().is_none() && head.len() < bytes.len() => {
            std::str::from_utf8(&head[..error.valid_up_to()]).unwrap_or_default()
        }
        Err(_) => return false,
    };
    !valid.is_empty() && valid.chars().all(|c| !c.is_control() || matches!(c, '\t' | '\n' | '\r' | '\x0c' | '\x1b'))
}

fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    bytes.get(offset..)?.first_chunk().map(|word| u32::from_le_bytes(*word))
}

fn u64_at(bytes: &[u8], offset: usize) -> Option<u64> {
    bytes.get(offset..)?.first_chunk().map(|word| u64::from_le_bytes(*word))
}

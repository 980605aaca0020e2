//! The headers of llama2.c checkpoints, versions 0, 1 and 2: bytes to a checked shape.

use crate::error::{Error, Result};
use dmexp_format::arch::llama::{LlamaConfig, RopeLayout};

/// The first four bytes of versions 1 and 2, read as a little-endian number.
pub(crate) const MAGIC: u32 = 0x616b_3432;
/// Bytes of the header of version 0.
pub(crate) const V0_LEN: u64 = 28;
/// Bytes of the headers of versions 1 and 2, zeros at the end counted.
pub(crate) const PADDED_LEN: u64 = 256;

const FIELDS: [&str; 7] = ["dim", "hidden_dim", "n_layers", "n_heads", "n_kv_heads", "vocab_size", "seq_len"];
const LAYERS: usize = 2;
const VOCAB: usize = 5;

/// What a header says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Header {
    pub(crate) version: u32,
    pub(crate) config: LlamaConfig,
    /// Elements that share a scale; 0 where values are f32.
    pub(crate) group: u32,
}

/// The seven numbers at `offset`.
pub(crate) fn seven(bytes: &[u8], offset: usize) -> Option<[i32; 7]> {
    let words = bytes.get(offset..offset.checked_add(28)?)?.as_chunks().0;
    let mut numbers = [0; 7];
    for (number, word) in numbers.iter_mut().zip(words) {
        *number = i32::from_le_bytes(*word);
    }
    Some(numbers)
}

/// How many of the seven numbers a model could have: tells a header with a mistake from bytes that are no header.
pub(crate) fn plausible(numbers: [i32; 7]) -> usize {
    let limits = FIELDS.iter().enumerate().map(|(place, _)| limit(place));
    numbers
        .iter()
        .zip(limits)
        .enumerate()
        .filter(|(place, (number, limit))| {
            let size = if *place == VOCAB { number.unsigned_abs() } else { u32::try_from(**number).unwrap_or(0) };
            (1..=*limit).contains(&size)
        })
        .count()
}

fn limit(place: usize) -> u32 {
    if place == LAYERS { LlamaConfig::LAYER_LIMIT } else { LlamaConfig::SIZE_LIMIT }
}

/// Reads the header of version 0: no magic, and a negative vocabulary size where the classifier is not the embedding.
pub(crate) fn v0(bytes: &[u8]) -> Result<Header> {
    let numbers = seven(bytes, 0).ok_or_else(|| short(bytes, V0_LEN))?;
    let vocab = numbers[VOCAB];
    let mut sizes = numbers;
    if vocab < 0 && vocab != i32::MIN {
        sizes[VOCAB] = -vocab;
    }
    Ok(Header { version: 0, config: shape(sizes, 0, vocab > 0)?, group: 0 })
}

/// Reads the header of version 1 or 2, which begins with the magic.
pub(crate) fn padded(bytes: &[u8]) -> Result<Header> {
    let version =
        bytes.get(4..).and_then(<[u8]>::first_chunk).map(|word| i32::from_le_bytes(*word)).ok_or_else(|| short(bytes, PADDED_LEN))?;
    let version = match version {
        1 => 1,
        2 => 2,
        other => {
            return Err(Error::not_a_model(format!("is a llama2.c checkpoint of version {other}; versions 0, 1 and 2 are read"))
                .at("byte 4")
                .advise("export it again with llama2.c's export.py, --version 0, 1 or 2"));
        }
    };
    let head = bytes.get(..PADDED_LEN as usize).ok_or_else(|| short(bytes, PADDED_LEN))?;
    let numbers = seven(head, 8).ok_or_else(|| short(bytes, PADDED_LEN))?;
    let tied = match head[36] {
        0 => false,
        1 => true,
        other => return Err(Error::damaged(format!("the flag for a shared classifier is {other}; it can be 0 or 1")).at("byte 36")),
    };
    let config = shape(numbers, 8, tied)?;
    let (group, reserved) = if version == 2 {
        let group = i32::from_le_bytes([head[37], head[38], head[39], head[40]]);
        let group = u32::try_from(group).ok().filter(|group| *group > 0);
        let group = group.ok_or_else(|| Error::damaged("the group size is not a positive number").at("byte 37"))?;
        (group, 41)
    } else {
        (0, 37)
    };
    if let Some(place) = head.iter().skip(reserved).position(|byte| *byte != 0) {
        let place = reserved + place;
        return Err(
            Error::damaged(format!("a reserved byte of the header is {:#04x}; it must be 0", head[place])).at(format!("byte {place}"))
        );
    }
    Ok(Header { version, config, group })
}

fn short(bytes: &[u8], needed: u64) -> Error {
    Error::damaged(format!("the header of a llama2.c checkpoint has {needed} bytes, the file ends after {}", bytes.len()))
        .advise("copy or download it again")
}

/// The configuration that seven sizes give; `offset` is where they stand in the file.
fn shape(sizes: [i32; 7], offset: usize, tied_embeddings: bool) -> Result<LlamaConfig> {
    let mut checked = [0; 7];
    for (place, ((size, name), checked)) in sizes.into_iter().zip(FIELDS).zip(&mut checked).enumerate() {
        let limit = limit(place);
        let found = u32::try_from(size).ok().filter(|size| (1..=limit).contains(size));
        *checked = found.ok_or_else(|| {
            Error::damaged(format!("read as a llama2.c header, {name} is {size}; it can be 1 to {limit}"))
                .at(format!("byte {}", offset + 4 * place))
                .advise("the file is damaged or something else")
        })?;
    }
    let [dim, hidden_dim, n_layers, n_heads, n_kv_heads, vocab_size, max_seq_len] = checked;
    if dim % n_heads != 0 {
        let what = format!("read as a llama2.c header, dim {dim} is not a multiple of n_heads {n_heads}");
        return Err(Error::damaged(what).at(format!("byte {}", offset + 12)).advise("the file is damaged or something else"));
    }
    let config = LlamaConfig {
        dim,
        hidden_dim,
        n_layers,
        n_heads,
        n_kv_heads,
        head_dim: dim / n_heads,
        vocab_size,
        max_seq_len,
        norm_eps: 1e-5,
        rope_layout: RopeLayout::Interleaved,
        attention_factor: 1.0,
        tied_embeddings,
        qkv_bias: false,
        sliding_window: 0,
    };
    config.validate().map_err(|error| {
        Error::damaged(format!("read as a llama2.c header: {error}"))
            .at(format!("byte {offset}"))
            .advise("the file is damaged or something else")
    })?;
    Ok(config)
}

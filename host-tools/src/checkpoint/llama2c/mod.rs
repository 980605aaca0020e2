//! Reader of llama2.c checkpoints: version 0 (seven numbers, no magic), 1 (magic, f32) and 2 (magic, q80). Called by `checkpoint::open`, and by `recognise` for what tells version 0.

mod header;
mod layout;
mod tables;

use crate::checkpoint::{Checkpoint, Config, Encoding, Fixed, LlamaSource, Mapping, Provenance, rope};
use crate::error::{Error, Result};
use header::Header;
use layout::Fault;
use std::collections::BTreeMap;
use tables::{THETA, Tables};

pub(super) use header::MAGIC;

const FIXED: [Fixed; 6] = [
    Fixed { key: "norm_eps", value: "0.00001", why: WHY },
    Fixed { key: "rope_theta", value: "10000", why: WHY },
    Fixed { key: "rope_layout", value: "interleaved", why: WHY },
    Fixed { key: "attention_factor", value: "1", why: WHY },
    Fixed { key: "qkv_bias", value: "false", why: WHY },
    Fixed { key: "sliding_window", value: "0", why: WHY },
];
const WHY: &str = "fixed by llama2.c";

/// How bytes without a magic compare with version 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum V0 {
    /// A valid header, and exactly the bytes that it calls for.
    Exact,
    /// Most of a header: one value is impossible, or the length is another.
    Near,
    /// Most of a header, with the bytes of each number the other way round.
    BigEndian,
    /// Something else.
    No,
}

/// Numbers that must be possible for bytes to be taken for a damaged header: of random bytes fewer than one in 10^10 pass.
const NEAR: usize = 5;

/// What bytes are as version 0.
pub(super) fn v0(bytes: &[u8]) -> V0 {
    if let Ok(header) = header::v0(bytes)
        && [true, false].into_iter().any(|tables| layout::file_len(&header, tables) == Ok(bytes.len() as u64))
    {
        return V0::Exact;
    }
    match header::seven(bytes, 0) {
        Some(numbers) if header::plausible(numbers) >= NEAR => V0::Near,
        Some(numbers) if header::plausible(numbers.map(i32::swap_bytes)) >= NEAR => V0::BigEndian,
        _ => V0::No,
    }
}

/// Opens a file that `recognise` takes for a llama2.c checkpoint.
pub(super) fn open(file: Mapping) -> Result<Checkpoint> {
    let (config, arrays, importer) = read(&file).map_err(|error| error.in_file(file.path()))?;
    let provenance = Provenance { file_name: file.file_name(), importer, source_bytes: file.bytes().len() as u64, licence: None };
    Checkpoint::new(vec![file], arrays, Config::Llama(config), None, provenance)
}

fn read(file: &Mapping) -> Result<(LlamaSource, Vec<super::Array>, &'static str)> {
    let bytes = file.bytes();
    let has_magic = bytes.first_chunk().is_some_and(|word| u32::from_le_bytes(*word) == MAGIC);
    let header = if has_magic { header::padded(bytes)? } else { header::v0(bytes)? };
    let with_tables = check_len(&header, bytes.len() as u64)?;
    let (arrays, tables_at) = layout::arrays(&header, with_tables).map_err(|fault| describe(fault, &header))?;
    let config = header.config;
    if let Some(at) = tables_at {
        check_tables(&header, bytes, at)?;
    } else if header.version == 0
        && let Some(Encoding::F32 { offset }) = arrays.last().filter(|_| !config.tied_embeddings).and_then(super::Array::encoding)
    {
        check_not_tables(&header, bytes, offset)?;
    }
    let source = LlamaSource {
        config,
        rope_theta: THETA,
        rope_scaling: BTreeMap::new(),
        inv_freq: rope::inv_freq(THETA, config.head_dim),
        fixed: FIXED.to_vec(),
    };
    let importer = match header.version {
        0 => "llama2.c v0",
        1 => "llama2.c v1",
        _ => "llama2.c v2 (q80)",
    };
    Ok((source, arrays, importer))
}

fn describe(fault: Fault, header: &Header) -> Error {
    match fault {
        Fault::TooLarge => Error::damaged("the sizes in the header call for more than 2^64 bytes").at("byte 0"),
        Fault::Group(kind, count) => {
            let what = format!("the group size {} does not divide the {count} elements of {}", header.group, kind.name());
            Error::damaged(what).at("byte 37").advise("export it again with a group size that divides every matrix")
        }
    }
}

/// Compares the file's length with what the header calls for; returns whether the file has the tables of cosines and sines.
fn check_len(header: &Header, found: u64) -> Result<bool> {
    let len = |header: &Header, tables| layout::file_len(header, tables).map_err(|fault| describe(fault, header));
    let bare = len(header, false)?;
    if found == bare {
        return Ok(false);
    }
    let whole = if header.version == 0 { len(header, true)? } else { bare };
    if found == whole {
        return Ok(true);
    }
    let expected = if header.version == 0 {
        format!("the header calls for {whole} bytes, or {bare} without the tables of cosines and sines, and the file has {found}")
    } else {
        format!("the header calls for {bare} bytes, and the file has {found}")
    };
    let mut other = *header;
    other.config.tied_embeddings = !header.config.tied_embeddings;
    let fits_other =
        [true, false].into_iter().any(|tables| (header.version == 0 || !tables) && layout::file_len(&other, tables) == Ok(found));
    if fits_other {
        let (says, is) = if header.config.tied_embeddings {
            ("the embedding is", "one of its own")
        } else {
            ("it has one of its own", "only the embedding")
        };
        let field = if header.version == 0 { "the sign of vocab_size" } else { "the flag for a shared classifier" };
        let place = if header.version == 0 { "byte 20" } else { "byte 36" };
        let what = format!("{expected}: {field} says of the classifier that {says}, but there is room for {is}");
        return Err(Error::mismatch(what).at(place).advise("export it again from the training checkpoint"));
    }
    let advice = if found < bare {
        format!("{} bytes are missing: copy or download it again", bare - found)
    } else if found < whole {
        format!("{} bytes of the tables are missing: copy or download it again", whole - found)
    } else {
        format!("{} bytes are left over: something was appended, or the header was edited", found - whole)
    };
    Err(Error::damaged(expected).advise(advice))
}

/// Version 0 takes theta for granted, so a file whose tables say another one would run and be wrong.
fn check_tables(header: &Header, bytes: &[u8], at: u64) -> Result<()> {
    let Some(tables) = tables_from(header, bytes, at) else {
        return Ok(());
    };
    let Some(difference) = tables.compare(THETA) else {
        return Ok(());
    };
    let found = match tables.theta() {
        Some(theta) => format!("they fit a rope theta of {theta}"),
        None => "they fit no rope theta that could be found".to_owned(),
    };
    let tables::Difference { sine, position, pair, found: value, expected } = difference;
    let name = if sine { "sine" } else { "cosine" };
    let what = format!(
        "the tables of cosines and sines are not those of llama2.c's rope theta 10000: {found} ({name} of position {position}, pair {pair}: {value}, expected {expected:.6})"
    );
    Err(Error::mismatch(what)
        .at(format!("byte {at}"))
        .advise("the file is damaged, or made by a program that changed the format: export it from the training checkpoint instead"))
}

/// Where the classifier should begin, the tables may begin: in a file that was cut by as many bytes as they have, or under a `vocab_size` whose sign was lost.
fn check_not_tables(header: &Header, bytes: &[u8], at: u64) -> Result<()> {
    let rest = usize::try_from(at).ok().and_then(|at| bytes.get(at..)).unwrap_or_default();
    let tables = Tables { bytes: rest, positions: header.config.max_seq_len, head_dim: header.config.head_dim };
    if tables.cosines_come_first(THETA) {
        let what = "vocab_size is negative, which calls for a classifier, but where it should begin are the tables of cosines and sines";
        return Err(Error::mismatch(what)
            .at(format!("byte {at}"))
            .advise("the file was cut or its header edited: copy or export it again"));
    }
    Ok(())
}

fn tables_from<'a>(header: &Header, bytes: &'a [u8], at: u64) -> Option<Tables<'a>> {
    let start = usize::try_from(at).ok()?;
    let len = usize::try_from(layout::tables_len(&header.config)).ok()?;
    let bytes = bytes.get(start..start.checked_add(len)?)?;
    Some(Tables { bytes, positions: header.config.max_seq_len, head_dim: header.config.head_dim })
}

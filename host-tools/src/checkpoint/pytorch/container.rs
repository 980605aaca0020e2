//! The two containers of `torch.save`: a zip archive of stored members, and, before version 1.6, pickles followed by the storages. Both give one pickle and say where each storage lies; weights
//! stay in the mapping.

use super::pickle::{self, Pickle};
use super::value::{Element, Storage, Value};
use crate::checkpoint::Mapping;
use crate::error::{Error, Result};
use dmexp_format::crc32;
use std::collections::HashMap;
use std::io::Cursor;
use std::ops::Range;
use zip::{CompressionMethod, ZipArchive};

/// What the first pickle of the older container holds: 0x1950a86a20f9469cfc6c.
const LEGACY_MAGIC: [u8; 10] = [0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19];
const LEGACY_PROTOCOL: i64 = 1001;
/// The length of a zip archive's last record without its comment.
const END_LENGTH: usize = 22;
/// A tensor or two a member: far more than any checkpoint has.
const MEMBER_LIMIT: usize = 1 << 18;

/// A file of `torch.save`'s: its pickle, and where its storages lie.
#[derive(Debug)]
pub(super) struct Container<'f> {
    pub(super) pickle: Pickle<'f>,
    storages: HashMap<String, Place>,
}

/// Where one storage lies.
#[derive(Clone, Debug)]
struct Place {
    bytes: Range<u64>,
    /// CRC-32 of the bytes, which the zip archive has.
    crc32: Option<u32>,
}

impl<'f> Container<'f> {
    /// Opens either container.
    ///
    /// # Errors
    /// Without the path: [`Class::NotAModel`](crate::error::Class::NotAModel), [`Class::Damaged`](crate::error::Class::Damaged).
    pub(super) fn open(file: &'f Mapping) -> Result<Self> {
        if file.bytes().starts_with(b"PK") { archive(file) } else { legacy(file.bytes()) }
    }

    /// Where the elements of a storage lie: the first byte.
    ///
    /// # Errors
    /// [`Class::Damaged`](crate::error::Class::Damaged) where it is not there, is of another length, or has another checksum than the archive says.
    pub(super) fn locate(&self, storage: &Storage<'_>) -> Result<u64> {
        let Some(place) = self.storages.get(storage.key) else {
            return Err(Error::damaged(format!("storage {:?} is not in the file", storage.key)));
        };
        let (found, needed) = (place.bytes.end - place.bytes.start, storage.count.checked_mul(storage.element.size()));
        if Some(found) != needed {
            let what = format!(
                "storage {:?} has {found} bytes, but {} elements of {} are named",
                storage.key,
                storage.count,
                storage.element.size()
            );
            return Err(Error::damaged(what).at(format!("byte {}", place.bytes.start)).advise("copy or download the file again"));
        }
        Ok(place.bytes.start)
    }

    /// Reads the storages of these keys and compares them with their checksums, where the container has any.
    ///
    /// # Errors
    /// [`Class::Damaged`](crate::error::Class::Damaged), with the member and both sums.
    pub(super) fn check(&self, file: &Mapping, keys: &[&str]) -> Result<()> {
        let places = keys.iter().filter_map(|key| Some((*key, self.storages.get(*key)?)));
        for (key, place) in places {
            let Some(expected) = place.crc32 else { continue };
            let bytes = slice(file.bytes(), &place.bytes)?;
            compare(&format!("storage {key:?}"), bytes, expected).map_err(|error| error.at(format!("byte {}", place.bytes.start)))?;
            file.release(place.bytes.clone());
        }
        Ok(())
    }
}

fn compare(what: &str, bytes: &[u8], expected: u32) -> Result<()> {
    let found = crc32::checksum(&[bytes]);
    if found != expected {
        return Err(Error::damaged(format!("the CRC-32 of {what} is {found:08x}; the archive says {expected:08x}"))
            .advise("copy or download the file again; it may also have been written with torch.serialization.set_crc32_options(False)"));
    }
    Ok(())
}

fn slice<'f>(bytes: &'f [u8], range: &Range<u64>) -> Result<&'f [u8]> {
    let found = usize::try_from(range.start).ok().zip(usize::try_from(range.end).ok()).and_then(|(start, end)| bytes.get(start..end));
    found.ok_or_else(|| Error::damaged(format!("bytes {} to {} are past the end of the file", range.start, range.end)))
}

/// A member of the archive.
struct Member {
    name: String,
    bytes: Range<u64>,
    crc32: u32,
}

fn archive(file: &Mapping) -> Result<Container<'_>> {
    let bytes = file.bytes();
    let members = members(bytes)?;
    let mut pickles = members.iter().filter(|member| member.name.split_once('/').is_some_and(|(_, name)| name == "data.pkl"));
    let (Some(pickle), None) = (pickles.next(), pickles.next()) else {
        return Err(Error::not_a_model("is a zip archive without a data.pkl in its one folder: not what torch.save writes"));
    };
    let prefix = pickle.name.strip_suffix("data.pkl").unwrap_or_default();
    let text = |name: &str| {
        let member = members.iter().find(|member| member.name.strip_prefix(prefix) == Some(name));
        member.map(|member| slice(bytes, &member.bytes).map(<[u8]>::trim_ascii)).transpose()
    };
    if let Some(order) = text("byteorder")?
        && order != b"little"
    {
        return Err(Error::not_a_model(format!("has numbers of byte order {:?}; little-endian is read", order.escape_ascii().to_string())));
    }
    let start = pickle.bytes.start;
    compare("data.pkl", slice(bytes, &pickle.bytes)?, pickle.crc32).map_err(|error| error.at(format!("byte {start}")))?;
    let (values, end) = pickle::read(bytes, start as usize, pickle.bytes.end as usize)?;
    if end as u64 != pickle.bytes.end {
        return Err(Error::damaged("the pickle ends before its member does").at(format!("byte {end}")));
    }
    let storages = members
        .iter()
        .filter_map(|member| {
            let key = member.name.strip_prefix(prefix)?.strip_prefix("data/")?;
            Some((key.to_owned(), Place { bytes: member.bytes.clone(), crc32: Some(member.crc32) }))
        })
        .collect();
    Ok(Container { pickle: values, storages })
}

/// All members, each of them stored and none over another.
fn members(bytes: &[u8]) -> Result<Vec<Member>> {
    let damaged =
        |error: zip::result::ZipError| Error::damaged(format!("the zip archive: {error}")).advise("copy or download the file again");
    let mut archive = ZipArchive::new(Cursor::new(bytes)).map_err(damaged)?;
    if archive.len() > MEMBER_LIMIT {
        return Err(Error::damaged(format!("the zip archive has {} members: no checkpoint has", archive.len())));
    }
    if archive.has_duplicate_names() {
        return Err(Error::damaged("the zip archive has two members of one name"));
    }
    let mut members = Vec::new();
    for number in 0..archive.len() {
        let member = archive.by_index_raw(number).map_err(damaged)?;
        let name =
            std::str::from_utf8(member.name_raw()).map_err(|_| Error::damaged(format!("the name of member {number} is not UTF-8")))?;
        let name = name.to_owned();
        let refuse = |what: String| Error::damaged(format!("member {name:?} of the zip archive {what}"));
        if name.contains('\\') || name.split('/').any(|part| part == ".." || part.is_empty()) {
            return Err(refuse("would lie outside its folder, or is a folder".to_owned()));
        }
        if member.encrypted() || member.compression() != CompressionMethod::Stored {
            let what = format!("member {name:?} of the zip archive is compressed or encrypted ({})", member.compression());
            return Err(
                Error::not_a_model(what).advise("torch.save stores its members as they are: unpack it and pack it again with zip -0")
            );
        }
        let (size, packed) = (member.size(), member.compressed_size());
        let start = member.data_start().ok_or_else(|| refuse("has no data".to_owned()))?;
        let end = start.checked_add(size).filter(|end| *end <= bytes.len() as u64);
        let end = end.ok_or_else(|| refuse(format!("has {size} bytes from byte {start} on, and the file ends after {}", bytes.len())))?;
        if size != packed {
            return Err(refuse(format!("has {size} bytes, but {packed} are stored")));
        }
        members.push(Member { name, bytes: start..end, crc32: member.crc32() });
    }
    let end = bytes.len().saturating_sub(END_LENGTH + archive.comment().len());
    if !bytes.get(end..).is_some_and(|record| record.starts_with(b"PK\x05\x06")) {
        return Err(Error::damaged("bytes are left over behind the end of the zip archive").advise("copy or download the file again"));
    }
    if archive.has_overlapping_entries().map_err(damaged)? {
        return Err(Error::damaged("members of the zip archive lie over one another"));
    }
    Ok(members)
}

/// Five pickles (magic, protocol, system, object, keys of the storages), then for every key the count of its elements and the elements.
fn legacy(bytes: &[u8]) -> Result<Container<'_>> {
    let (magic, at) = pickle::read(bytes, 0, bytes.len())?;
    if !matches!(magic.root(), Value::Long(bytes) if *bytes == LEGACY_MAGIC) {
        return Err(Error::not_a_model(format!("is a pickle of {}, not a PyTorch checkpoint", magic.root().kind()))
            .at("byte 0")
            .advise("save the model with torch.save"));
    }
    let (protocol, at) = pickle::read(bytes, at, bytes.len())?;
    match protocol.root() {
        Value::Integer(LEGACY_PROTOCOL) => {}
        Value::Integer(other) => {
            return Err(Error::not_a_model(format!("is a PyTorch checkpoint of protocol {other}; {LEGACY_PROTOCOL} is read")));
        }
        other => return Err(Error::damaged(format!("the protocol of the checkpoint is {}", other.kind()))),
    }
    let (system, at) = pickle::read(bytes, at, bytes.len())?;
    let little = system.entries(system.root()).and_then(|mut entries| entries.find(|(key, _)| *key == "little_endian"));
    if !matches!(little, Some((_, Value::Bool(true)))) {
        return Err(Error::not_a_model("does not say that its numbers are little-endian"));
    }
    let (pickle, at) = pickle::read(bytes, at, bytes.len())?;
    let (keys, mut at) = pickle::read(bytes, at, bytes.len())?;
    let Value::List(list) = keys.root() else {
        return Err(Error::damaged(format!("the list of storages is {}", keys.root().kind())));
    };
    let elements: HashMap<&str, Element> = pickle
        .values()
        .iter()
        .filter_map(|value| if let Value::Storage(storage) = value { Some((storage.key, storage.element)) } else { None })
        .collect();
    let mut storages = HashMap::new();
    for key in list {
        let Value::Text(key) = keys.value(*key) else {
            return Err(Error::damaged("the list of storages names something that is no string"));
        };
        let Some(element) = elements.get(key) else {
            return Err(Error::damaged(format!("storage {key:?} has no type: nothing names it")));
        };
        let short =
            || Error::damaged(format!("storage {key:?} is cut off")).at(format!("byte {at}")).advise("copy or download the file again");
        let count = bytes.get(at..).and_then(<[u8]>::first_chunk).map(|count| u64::from_le_bytes(*count)).ok_or_else(short)?;
        let start = at as u64 + 8;
        let end = count.checked_mul(element.size()).and_then(|len| start.checked_add(len)).filter(|end| *end <= bytes.len() as u64);
        let end = end.ok_or_else(short)?;
        if storages.insert((*key).to_owned(), Place { bytes: start..end, crc32: None }).is_some() {
            return Err(Error::damaged(format!("storage {key:?} is there twice")));
        }
        at = end as usize;
    }
    if at != bytes.len() {
        return Err(Error::damaged(format!("{} bytes are left over after the last storage", bytes.len() - at)).at(format!("byte {at}")));
    }
    Ok(Container { pickle, storages })
}

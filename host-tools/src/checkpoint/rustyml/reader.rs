//! The bytes of a `RustyML` file (formats 3 and 4, of `RustyML` 0.16 and 0.17) to its layers. Everything is compared with the bytes that are there before it is believed.
//!
//! The encoding is postcard's: lengths as variable-length integers of seven bits a byte, floats at any alignment, no checksum and no total length.

use crate::error::{Error, Result};

/// The first five bytes: the number 0x524D4C4D ("RMLM") as a variable-length integer.
pub(in crate::checkpoint) const MAGIC: [u8; 5] = [0xcd, 0x98, 0xb5, 0x92, 0x05];
const MAGIC_NUMBER: u32 = 0x524d_4c4d;
/// How deep layers may lie in layers: as deep as `RustyML`'s own builder allows.
const DEPTH_LIMIT: u32 = 64;
/// The most layers and arrays together: as many tensors as a `.dmexp` holds.
const RECORD_LIMIT: u32 = 65_536;
const TEXT_LIMIT: u64 = 128;
const RANK_LIMIT: u64 = 8;

/// A whole file.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::checkpoint) struct Model {
    /// 3 or 4.
    pub(in crate::checkpoint) version: u32,
    pub(in crate::checkpoint) layers: Vec<FileLayer>,
    /// Bytes after the last layer, which `RustyML` does not look at.
    pub(in crate::checkpoint) trailing: usize,
}

/// The shapes that a layer was built for, batch axis first; an axis that is free is `None`.
pub(in crate::checkpoint) type Build = Vec<Vec<Option<u64>>>;

/// A layer's record.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::checkpoint) struct FileLayer {
    pub(in crate::checkpoint) type_name: String,
    pub(in crate::checkpoint) build: Option<Build>,
    pub(in crate::checkpoint) arrays: Vec<FileArray>,
    /// By name; format 4 alone, and only layers that users wrote themselves.
    pub(in crate::checkpoint) sublayers: Vec<(String, FileLayer)>,
}

/// An array's record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::checkpoint) struct FileArray {
    pub(in crate::checkpoint) name: String,
    pub(in crate::checkpoint) trainable: bool,
    pub(in crate::checkpoint) shape: Vec<u64>,
    /// The first value, in bytes from the file's start.
    pub(in crate::checkpoint) offset: u64,
    /// How many values there are, whatever the shape says.
    pub(in crate::checkpoint) count: u64,
}

/// Reads a file, in the order of `RustyML`: header, magic, version, body.
///
/// # Errors
/// [`Class::NotAModel`](crate::error::Class::NotAModel) for what is not a file of these formats, [`Class::Damaged`](crate::error::Class::Damaged) for a body that cannot be read; with the byte.
pub(in crate::checkpoint) fn read(bytes: &[u8]) -> Result<Model> {
    let mut cursor = Cursor { bytes, at: 0, records: 0 };
    let (Ok(magic), version) = (cursor.u32(), cursor.u32()) else { return Err(short_header(bytes)) };
    let Ok(version) = version else { return Err(short_header(bytes)) };
    if magic != MAGIC_NUMBER {
        let what = format!("is not a RustyML model file: expected magic {MAGIC_NUMBER:#010x}, found {magic:#010x}");
        let advice = "a model saved before RustyML 0.14 has no header: load it with that version and save it with 0.16 or 0.17";
        return Err(Error::not_a_model(what).at("byte 0").advise(advice));
    }
    if !(3..=4).contains(&version) {
        let what = format!("is a RustyML model file of format version {version}; this software reads versions 3 and 4");
        let advice = match version {
            0..=2 => "load it with the version of RustyML that wrote it and save it again with 0.16 or 0.17",
            _ => "save it again with RustyML 0.17, or use a newer version of dmexp",
        };
        return Err(Error::not_a_model(what).at("byte 5").advise(advice));
    }
    let count = cursor.count(if version == 3 { 3 } else { 4 }, "layers")?;
    let mut layers = Vec::new();
    for _ in 0..count {
        layers.push(cursor.layer(version, 0)?);
    }
    Ok(Model { version, layers, trailing: bytes.len() - cursor.at })
}

fn short_header(bytes: &[u8]) -> Error {
    Error::not_a_model(format!("is too short to contain the header of a RustyML model: {} bytes", bytes.len()))
        .advise("copy the file again, or name the model file")
}

/// What is left of the file.
struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
    records: u32,
}

impl<'a> Cursor<'a> {
    fn left(&self) -> u64 {
        (self.bytes.len() - self.at) as u64
    }

    fn damaged(&self, what: impl Into<String>) -> Error {
        Error::damaged(what).at(format!("byte {}", self.at)).advise("the file is damaged or was cut: copy or save it again")
    }

    fn take(&mut self, len: u64, what: &str) -> Result<&'a [u8]> {
        let found = usize::try_from(len).ok().and_then(|len| self.bytes.get(self.at..self.at.checked_add(len)?));
        let Some(found) = found else {
            return Err(self.damaged(format!("ends within {what}: {len} bytes are needed and {} are left", self.left())));
        };
        self.at += found.len();
        Ok(found)
    }

    fn byte(&mut self, what: &str) -> Result<u8> {
        Ok(self.take(1, what)?.first().copied().unwrap_or(0))
    }

    /// A variable-length integer of at most `bits` bits.
    fn varint(&mut self, bits: u32, what: &str) -> Result<u64> {
        let start = self.at;
        let mut value = 0u64;
        for shift in (0..bits).step_by(7) {
            let byte = self.byte(what)?;
            let group = u64::from(byte & 0x7f);
            // The last byte may only fill up the bits that are left.
            if bits - shift < 7 && group >> (bits - shift) != 0 {
                break;
            }
            value |= group << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        self.at = start;
        Err(self.damaged(format!("{what}: no integer of {bits} bits")))
    }

    fn u32(&mut self) -> Result<u32> {
        self.varint(32, "the header").map(|value| value as u32)
    }

    /// The length of a list whose items have at least `least` bytes each.
    fn count(&mut self, least: u64, what: &str) -> Result<u64> {
        let count = self.varint(64, what)?;
        if count > self.left() / least {
            return Err(self.damaged(format!("states {count} {what}, for which the {} bytes left are too few", self.left())));
        }
        Ok(count)
    }

    fn record(&mut self) -> Result<()> {
        self.records += 1;
        if self.records > RECORD_LIMIT {
            return Err(self.damaged(format!("has more than {RECORD_LIMIT} layers and arrays")));
        }
        Ok(())
    }

    fn text(&mut self, what: &str) -> Result<String> {
        let len = self.count(1, what)?;
        if len > TEXT_LIMIT {
            return Err(self.damaged(format!("{what} has {len} bytes; at most {TEXT_LIMIT} are read")));
        }
        let bytes = self.take(len, what)?;
        match std::str::from_utf8(bytes) {
            Ok(text) => Ok(text.to_owned()),
            Err(_) => Err(self.damaged(format!("{what} is not UTF-8"))),
        }
    }

    fn option(&mut self, what: &str) -> Result<bool> {
        match self.byte(what)? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(self.damaged(format!("{what}: {other} is neither 0 (none) nor 1 (some)"))),
        }
    }

    fn rank(&mut self, least: u64) -> Result<u64> {
        let rank = self.count(least, "axes")?;
        if rank > RANK_LIMIT {
            return Err(self.damaged(format!("a shape of {rank} axes; at most {RANK_LIMIT} are read")));
        }
        Ok(rank)
    }

    fn layer(&mut self, version: u32, depth: u32) -> Result<FileLayer> {
        self.record()?;
        if depth > DEPTH_LIMIT {
            return Err(self.damaged(format!("layers lie more than {DEPTH_LIMIT} deep in layers")));
        }
        let type_name = self.text("the type of a layer")?;
        let build = if self.option("the shapes that a layer was built for")? { Some(self.build()?) } else { None };
        let mut arrays = Vec::new();
        for _ in 0..self.count(4, "arrays")? {
            arrays.push(self.array()?);
        }
        let mut sublayers = Vec::new();
        if version > 3 {
            for _ in 0..self.count(5, "sublayers")? {
                let name = self.text("the name of a sublayer")?;
                sublayers.push((name, self.layer(version, depth + 1)?));
            }
        }
        Ok(FileLayer { type_name, build, arrays, sublayers })
    }

    fn build(&mut self) -> Result<Build> {
        let mut shapes = Vec::new();
        for _ in 0..self.count(1, "shapes of inputs")? {
            self.record()?;
            let mut shape = Vec::new();
            for _ in 0..self.rank(1)? {
                shape.push(if self.option("an axis")? { Some(self.varint(64, "an axis")?) } else { None });
            }
            shapes.push(shape);
        }
        Ok(shapes)
    }

    fn array(&mut self) -> Result<FileArray> {
        self.record()?;
        let name = self.text("the name of an array")?;
        let trainable = match self.varint(32, "the kind of an array")? {
            0 => true,
            1 => false,
            other => return Err(self.damaged(format!("array {name:?} is of kind {other}; 0 (trainable) and 1 (non-trainable) are known"))),
        };
        let mut shape = Vec::new();
        for _ in 0..self.rank(1)? {
            shape.push(self.varint(64, "an axis")?);
        }
        let count = self.count(4, "values")?;
        let offset = self.at as u64;
        self.take(4 * count, "the values of an array")?;
        Ok(FileArray { name, trainable, shape, offset, count })
    }
}

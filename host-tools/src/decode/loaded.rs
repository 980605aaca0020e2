//! A `.dmexp` file, mapped or copied and its container checked: what all decoders borrow from.

use crate::checkpoint::{self, Mapping};
use crate::error::{Error, Result};
use dmexp::Model;
use dmexp::format::Error as FormatError;
use dmexp_format::file::ModelFile;
use std::path::Path;

/// What is smaller is read from caches as fast as from a mapping. Above, decoding from a copy is some 5% faster, which makes up for the copying after 50 to 80 tokens (docs/host-speed.md).
const COPIED_FROM: u64 = 32_000_000;

/// How a file comes to memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Load {
    /// Read from the disk or the system's cache when it is wanted: the first token comes soonest.
    #[default]
    Map,
    /// Read as a whole before anything else, into huge pages where the system has them.
    Copy,
    /// [`Load::Copy`] for large files where there is twice the memory for it, [`Load::Map`] for others.
    Auto,
}

impl Load {
    /// Every way.
    pub const ALL: [Self; 3] = [Self::Map, Self::Copy, Self::Auto];

    /// Its name in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Map => "map",
            Self::Copy => "copy",
            Self::Auto => "auto",
        }
    }

    /// Whether a file of `bytes` bytes is copied.
    fn copies(self, bytes: u64) -> bool {
        match self {
            Self::Map => false,
            Self::Copy => true,
            Self::Auto => bytes >= COPIED_FROM && available_memory().is_some_and(|available| available / 2 >= bytes),
        }
    }
}

/// Bytes of memory that the system could give; `None` where it does not say.
fn available_memory() -> Option<u64> {
    let facts = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = facts.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// A mapped or copied `.dmexp`.
///
/// Of a mapped file only the head is read when it is opened, however large it is; weights come from the disk when they are first used. Should another process change the file meanwhile, results
/// change with it (or the system ends this process, where it was cut): replace model files by renaming, as the exporter does, and a file that is in use stays as it is.
#[derive(Debug)]
pub struct Loaded {
    mapping: Mapping,
}

impl Loaded {
    /// Opens a `.dmexp` and maps it. Its payload is not read: [`super::verify_all`] does that.
    ///
    /// # Errors
    /// With the path: [`Class::Unreadable`](crate::error::Class::Unreadable); for what is no `.dmexp`, what it is and the command that converts it where there is one;
    /// [`Class::Damaged`](crate::error::Class::Damaged) or [`Class::Mismatch`](crate::error::Class::Mismatch) with the first check of the container that failed.
    pub fn open(path: &Path) -> Result<Self> {
        Self::open_as(path, Load::Map)
    }

    /// Opens a `.dmexp` and maps or copies it, which is all the same for the results.
    ///
    /// # Errors
    /// Those of [`Loaded::open`]; [`Class::Unreadable`](crate::error::Class::Unreadable) where there is no memory for the copy.
    pub fn open_as(path: &Path, load: Load) -> Result<Self> {
        if path.is_dir() {
            return Err(checkpoint::not_a_dmexp(path));
        }
        let mapped = Self::new(Mapping::open(path)?)?;
        if !load.copies(mapped.bytes().len() as u64) {
            return Ok(mapped);
        }
        Self::new(Mapping::copy(path)?)
    }

    /// Takes a file that is in memory already; `name` is what errors call it.
    ///
    /// # Errors
    /// Those of [`Loaded::open`], without [`Class::Unreadable`](crate::error::Class::Unreadable).
    pub fn from_bytes(name: &Path, bytes: Vec<u8>) -> Result<Self> {
        Self::new(Mapping::from_bytes(name, bytes))
    }

    fn new(mapping: Mapping) -> Result<Self> {
        if !mapping.bytes().starts_with(b"DMEXPRT") {
            return Err(checkpoint::recognise(mapping.bytes()).not_a_dmexp(mapping.path()));
        }
        let loaded = Self { mapping };
        loaded.file()?;
        Ok(loaded)
    }

    /// The path it was opened by.
    pub fn path(&self) -> &Path {
        self.mapping.path()
    }

    /// Whether the file was left alone since it was mapped; asked when all is computed. A copy always was.
    ///
    /// # Errors
    /// [`Class::Unreadable`](crate::error::Class::Unreadable) if it was written to.
    pub fn unchanged(&self) -> Result<()> {
        self.mapping.unchanged()
    }

    /// All bytes of the file.
    pub fn bytes(&self) -> &[u8] {
        self.mapping.bytes()
    }

    /// Gives back the memory that holds `piece`, a part of the file's bytes: it is read again when it is wanted again.
    pub(super) fn release(&self, piece: &[u8]) {
        if let Some(start) = piece.as_ptr().addr().checked_sub(self.bytes().as_ptr().addr()) {
            self.mapping.release(start as u64..start as u64 + piece.len() as u64);
        }
    }

    /// The checked container. Checked anew at each call, which reads the head of the file once more.
    ///
    /// # Errors
    /// None, unless the file was changed since it was opened.
    pub fn file(&self) -> Result<ModelFile<'_>> {
        ModelFile::open(self.bytes()).map_err(|error| Error::from(error).in_file(self.path()))
    }

    /// The model: its tensors checked against its configuration, and the arrays of its tokenizer against each other. Of the payload only those arrays are read.
    ///
    /// # Errors
    /// What [`Model::bind`] refuses, with path and the tensor's name.
    pub fn model(&self) -> Result<Model<'_>> {
        Model::bind(&self.file()?).map_err(|error| self.explain(error))
    }

    /// An error of the runtime, with the path and, where it is about a tensor, that tensor's name.
    pub fn explain(&self, error: FormatError) -> Error {
        let number = match error {
            FormatError::Tensor { tensor, .. }
            | FormatError::TensorName { tensor }
            | FormatError::Shape { tensor, .. }
            | FormatError::DTypeNotBuilt { tensor, .. }
            | FormatError::NonFinite { tensor, .. }
            | FormatError::Checksum { tensor, .. } => Some(tensor),
            _ => None,
        };
        if let FormatError::MissingTensor { wanted } = error {
            let spec = self.file().ok().and_then(|file| file.dormouse_config().ok()?.tensor(wanted));
            let name = spec.map_or_else(|| format!("tensor {wanted}"), |spec| format!("the tensor {spec} {:?}", spec.dims.as_slice()));
            return Error::mismatch(format!("has not {name}, which the configuration calls for"))
                .advise("export it again")
                .in_file(self.path());
        }
        let name = number.and_then(|number| self.file().ok()?.tensor_name(number));
        let explained = Error::from(error).in_file(self.path());
        match name {
            Some(name) => explained.at(format!("tensor {name}")),
            None => explained,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_copied_where_it_pays_and_there_is_room() {
        assert!(!Load::default().copies(COPIED_FROM));
        assert!(Load::Copy.copies(1));
        assert!(!Load::Auto.copies(COPIED_FROM - 1));
        assert_eq!(Load::Auto.copies(COPIED_FROM), available_memory().is_some_and(|available| available >= 2 * COPIED_FROM));
        assert!(!Load::Auto.copies(u64::MAX / 2));
    }
}

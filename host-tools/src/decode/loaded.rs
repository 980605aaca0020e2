//! A `.dmexp` file, mapped and its container checked: what all decoders borrow from.

use crate::checkpoint::{self, Mapping};
use crate::error::{Error, Result};
use dmexp::Model;
use dmexp::format::Error as FormatError;
use dmexp_format::file::ModelFile;
use std::path::Path;

/// A mapped `.dmexp`.
///
/// Only the head of the file is read when it is opened, however large it is; weights come from the disk when they are first used. Should another process change the file meanwhile, results
/// change with it (or the system ends this process, where it was cut): replace model files by renaming, as the exporter does, and a file that is in use stays as it is.
#[derive(Debug)]
pub struct Loaded {
    mapping: Mapping,
}

impl Loaded {
    /// Opens a `.dmexp`. Its payload is not read: [`super::verify_all`] does that.
    ///
    /// # Errors
    /// With the path: [`Class::Unreadable`](crate::error::Class::Unreadable); for what is no `.dmexp`, what it is and the command that converts it where there is one;
    /// [`Class::Damaged`](crate::error::Class::Damaged) or [`Class::Mismatch`](crate::error::Class::Mismatch) with the first check of the container that failed.
    pub fn open(path: &Path) -> Result<Self> {
        if path.is_dir() {
            return Err(checkpoint::not_a_dmexp(path));
        }
        Self::new(Mapping::open(path)?)
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

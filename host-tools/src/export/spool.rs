//! Quantised tensors between the two passes of an export: searching their scales is expensive, so the first pass keeps the bytes in a temporary file, and the second one copies them.

use crate::error::Result;
use crate::target::Target;
use std::collections::BTreeMap;
use std::io::{self, Read, Seek, SeekFrom, Write};
use tempfile::NamedTempFile;

/// The bytes of tensors, by their numbers.
#[derive(Debug, Default)]
pub(super) struct Spool {
    file: Option<NamedTempFile>,
    end: u64,
    places: BTreeMap<usize, (u64, u64)>,
}

impl Spool {
    /// Keeps the bytes of tensor `number`, in the folder of `target`.
    ///
    /// # Errors
    /// [`Class::Unwritable`](crate::error::Class::Unwritable).
    pub(super) fn add(&mut self, number: usize, bytes: &[u8], target: &Target) -> Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            empty => empty.insert(target.temporary()?),
        };
        file.write_all(bytes).map_err(|error| target.failed(error))?;
        self.places.insert(number, (self.end, bytes.len() as u64));
        self.end += bytes.len() as u64;
        Ok(())
    }

    /// Writes the bytes of tensor `number` to `out`; `None` if it was not kept.
    pub(super) fn copy(&self, number: usize, out: &mut dyn Write) -> Option<io::Result<()>> {
        let (start, len) = *self.places.get(&number)?;
        let mut file = self.file.as_ref()?.as_file();
        let copied = file.seek(SeekFrom::Start(start)).and_then(|_| io::copy(&mut file.take(len), out));
        Some(copied.and_then(|copied| if copied == len { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }))
    }
}

//! Files that are read as a whole: texts and numbers. Models and tokenizers are mapped instead ([`crate::checkpoint::Mapping`]).

use crate::error::{Class, Error, Result};
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// The most bytes of a text or a list of tokens: far past every context, and little enough for any host. Without it an endless input would take all memory.
pub const TEXT_LIMIT: u64 = 64_000_000;

/// The most bytes of numbers: samples and inputs of a network.
pub const NUMBERS_LIMIT: u64 = 1_000_000_000;

/// The bytes of a file, or of whatever else can be opened by this name and has an end.
///
/// # Errors
/// [`Class::Unreadable`]; [`Class::Request`] for one of more than `limit` bytes, which is not read where the system says its length.
pub fn read(path: &Path, limit: u64) -> Result<Vec<u8>> {
    let unreadable = |error| Error::unreadable(path, error);
    let file = File::open(path).map_err(unreadable)?;
    let metadata = file.metadata().map_err(unreadable)?;
    if metadata.is_dir() {
        return Err(Error::new(Class::Unreadable, "is a folder").advise("name a file in it").in_file(path));
    }
    if metadata.len() > limit {
        return Err(too_long(limit).in_file(path));
    }
    all_of(file, path, limit)
}

/// All that comes from `source`, which errors call `name`.
///
/// # Errors
/// Those of [`read`].
pub fn all_of(source: impl Read, name: &Path, limit: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    source.take(limit + 1).read_to_end(&mut bytes).map_err(|error| Error::unreadable(name, error))?;
    if bytes.len() as u64 > limit {
        return Err(too_long(limit).in_file(name));
    }
    Ok(bytes)
}

fn too_long(limit: u64) -> Error {
    Error::new(Class::Request, format!("has more than {limit} bytes")).advise("give less of it")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_end_is_refused() {
        let error = all_of(std::io::repeat(b'a'), Path::new("stdin"), 1000).unwrap_err();
        assert_eq!(error.to_string(), "stdin: has more than 1000 bytes; give less of it");
        assert_eq!(all_of(&b"abc"[..], Path::new("stdin"), 3).unwrap(), b"abc");
    }

    #[test]
    fn a_file_is_as_long_as_it_may_be() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("text");
        std::fs::write(&path, "abc").unwrap();
        assert_eq!(read(&path, 3).unwrap(), b"abc");
        assert_eq!(read(&path, 2).unwrap_err().class(), Class::Request);
        // Opening a folder is no error on every system.
        assert_eq!(read(folder.path(), 3).unwrap_err().class(), Class::Unreadable);
        assert_eq!(read(&folder.path().join("no"), 3).unwrap_err().class(), Class::Unreadable);
    }
}

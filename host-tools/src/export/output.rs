//! The file that comes out: a temporary one in the same folder, which takes the target's name when it is whole. Whatever goes wrong before leaves the target as it was and nothing beside it.

use crate::checkpoint::Checkpoint;
use crate::error::{Class, Error, Result};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// Where the export goes, looked at before any work is done.
#[derive(Debug)]
pub(super) struct Target {
    /// The file itself, past symbolic links, so that a link stays one.
    path: PathBuf,
    folder: PathBuf,
}

impl Target {
    /// Looks at what is there now.
    ///
    /// # Errors
    /// [`Class::Unwritable`] for a folder that is not there or cannot be written to, for a target that is no regular file or is write-protected; [`Class::Request`] for one that is the source.
    pub(super) fn new(out: &Path, checkpoint: &Checkpoint) -> Result<Self> {
        let unwritable = |what: &str, advice: &str| Error::new(Class::Unwritable, what).advise(advice).in_file(out);
        if out.file_name().is_none() {
            return Err(unwritable("is not the name of a file", "name the file to write"));
        }
        let path = match fs::metadata(out) {
            Ok(metadata) if metadata.is_dir() => return Err(unwritable("is a folder", "name a file in it")),
            Ok(metadata) if !metadata.is_file() => return Err(unwritable("is not a regular file", "name another file")),
            Ok(metadata) if metadata.permissions().readonly() => {
                return Err(unwritable("is write-protected", "name another file, or make it writable"));
            }
            Ok(_) => fs::canonicalize(out).map_err(|source| failed(out, source))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => out.to_path_buf(),
            Err(error) => return Err(failed(out, error)),
        };
        if checkpoint.files().iter().any(|file| fs::canonicalize(file.path()).is_ok_and(|source| source == path)) {
            let what = "is the checkpoint itself: the export would replace it";
            return Err(Error::new(Class::Request, what).advise("name another file").in_file(out));
        }
        let folder = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent.to_path_buf(),
            _ => PathBuf::from("."),
        };
        if !folder.is_dir() {
            return Err(unwritable("cannot be written: its folder does not exist", "make the folder, or name another"));
        }
        Ok(Self { path, folder })
    }

    /// A new file beside the target, gone when it is dropped.
    pub(super) fn temporary(&self) -> Result<NamedTempFile> {
        let mut prefix = std::ffi::OsString::from(".");
        prefix.push(self.path.file_name().unwrap_or_default());
        prefix.push(".");
        let mut builder = tempfile::Builder::new();
        builder.prefix(&prefix).suffix(".tmp");
        // Temporary files are private unless told otherwise; an export is a file like any other, within what the user's umask allows.
        #[cfg(unix)]
        builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
        builder.tempfile_in(&self.folder).map_err(|source| failed(&self.path, source))
    }

    /// Gives `file` the target's name, once its bytes are on the disk.
    pub(super) fn commit(&self, file: NamedTempFile) -> Result<()> {
        file.as_file().sync_all().map_err(|source| failed(&self.path, source))?;
        file.persist(&self.path).map_err(|error| failed(&self.path, error.error))?;
        // The name is in the folder; where a folder cannot be synced the file is whole all the same.
        if let Ok(folder) = File::open(&self.folder) {
            let _ = folder.sync_all();
        }
        Ok(())
    }

    /// The error of a write that failed.
    pub(super) fn failed(&self, source: io::Error) -> Error {
        failed(&self.path, source)
    }
}

fn failed(path: &Path, source: io::Error) -> Error {
    Error::unwritable(path, source)
}

//! A folder that comes out whole or not at all: filled under another name beside its place, which it gets when all is there. Used where a format is several files.

use crate::error::{Class, Error, Result};
use crate::target::{builder, sync_name};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Where a folder goes: a name that nothing has yet, or an empty folder.
#[derive(Debug)]
pub struct FolderTarget {
    path: PathBuf,
    /// Gone, with all in it, when this is dropped.
    temporary: TempDir,
}

impl FolderTarget {
    /// Makes the temporary folder beside `out`.
    ///
    /// # Errors
    /// [`Class::Unwritable`] for a name that is taken, and for a place that cannot be written to.
    pub fn new(out: &Path) -> Result<Self> {
        let unwritable = |what: &str, advice: &str| Error::new(Class::Unwritable, what).advise(advice).in_file(out);
        let failed = |source: io::Error| Error::unwritable(out, source.raw_os_error().map_or(source, io::Error::from_raw_os_error));
        let Some(name) = out.file_name() else {
            return Err(unwritable("is not the name of a folder", "name the folder to make"));
        };
        match fs::symlink_metadata(out) {
            Ok(metadata) if !metadata.is_dir() => return Err(unwritable("is there already, and is no folder", "name another folder")),
            Ok(_) if fs::read_dir(out).map_err(failed)?.next().is_some() => {
                return Err(unwritable("is a folder with something in it, which is never replaced", "name a new folder"));
            }
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            Ok(_) | Err(_) => {}
        }
        let parent = match out.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        if !parent.is_dir() {
            return Err(unwritable("cannot be written: the folder that it goes into does not exist", "make that folder, or name another"));
        }
        #[cfg_attr(not(unix), allow(unused_mut, reason = "permissions are of Unix"))]
        let mut builder = builder();
        // Temporary folders are private unless told otherwise; what comes out is like any other, within what the user's umask allows.
        #[cfg(unix)]
        builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o777));
        let temporary = builder.tempdir_in(parent).map_err(failed)?;
        Ok(Self { path: parent.join(name), temporary })
    }

    /// The temporary folder.
    pub fn path(&self) -> &Path {
        self.temporary.path()
    }

    /// A new file in the folder; `name` may lead into a folder that is in it.
    ///
    /// # Errors
    /// [`Class::Unwritable`].
    pub fn file(&self, name: &str) -> Result<File> {
        File::create_new(self.temporary.path().join(name)).map_err(|source| self.failed(source))
    }

    /// Gives the folder its name, once the bytes of all files in it are on the disk.
    ///
    /// # Errors
    /// [`Class::Unwritable`].
    pub fn commit(self) -> Result<()> {
        sync(self.temporary.path()).map_err(|source| self.failed(source))?;
        // An empty folder of this name gives way; one that is not empty any more stays, and the rename fails.
        if self.path.is_dir() {
            fs::remove_dir(&self.path).map_err(|source| self.failed(source))?;
        }
        fs::rename(self.temporary.path(), &self.path).map_err(|source| self.failed(source))?;
        sync_name(&self.path);
        Ok(())
    }

    /// The error of a write that failed.
    pub fn failed(&self, source: io::Error) -> Error {
        let source = source.raw_os_error().map_or(source, io::Error::from_raw_os_error);
        Error::unwritable(&self.path, source)
    }
}

/// Sees to it that the bytes of all files in the folder and in those in it are on the disk.
fn sync(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        // Windows flushes only what may be written to.
        if path.is_dir() { sync(&path)? } else { File::options().write(true).open(&path)?.sync_all()? }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_folder_is_there_whole_or_not_at_all() {
        let place = TempDir::new().unwrap();
        let out = place.path().join("model");
        let target = FolderTarget::new(&out).unwrap();
        target.file("a").unwrap().write_all(b"text").unwrap();
        assert!(!out.exists());
        drop(target);
        assert!(names(place.path()).is_empty());
        for _ in 0..2 {
            let target = FolderTarget::new(&out).unwrap();
            target.file("a").unwrap().write_all(b"text").unwrap();
            target.commit().unwrap();
            assert_eq!((names(place.path()), names(&out)), (vec!["model".to_owned()], vec!["a".to_owned()]));
            fs::remove_file(out.join("a")).unwrap();
        }
    }

    #[test]
    fn what_is_there_already_is_never_replaced() {
        let place = TempDir::new().unwrap();
        let (full, file) = (place.path().join("full"), place.path().join("file"));
        fs::create_dir(&full).unwrap();
        fs::write(full.join("x"), "x").unwrap();
        fs::write(&file, "x").unwrap();
        for (out, why) in [
            (full.clone(), "with something in it"),
            (file, "is no folder"),
            (place.path().join("no/model"), "does not exist"),
            (place.path().join(".."), "not the name of a folder"),
        ] {
            let error = FolderTarget::new(&out).unwrap_err();
            assert_eq!(error.class(), Class::Unwritable);
            assert!(error.to_string().contains(why), "{error}");
        }
        // Filled while the other was written.
        let out = place.path().join("late");
        let target = FolderTarget::new(&out).unwrap();
        fs::create_dir(&out).unwrap();
        fs::write(out.join("x"), "x").unwrap();
        assert_eq!(target.commit().unwrap_err().class(), Class::Unwritable);
        assert_eq!(
            (names(place.path()), names(&out)),
            (vec!["file".to_owned(), "full".to_owned(), "late".to_owned()], vec!["x".to_owned()])
        );
    }
}

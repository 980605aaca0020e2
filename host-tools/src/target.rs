//! A file that comes out whole or not at all: written under another name in its folder, which is taken when all is there. Used by the exporter and by every command that writes a file;
//! whatever goes wrong leaves what was there as it was, and nothing beside it.

use crate::error::{Class, Error, Result, shown_path};
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use tempfile::{NamedTempFile, TempDir};

/// Where a file goes, looked at before any work is done.
#[derive(Debug)]
pub struct Target {
    /// As it was asked for: what errors call it.
    asked: PathBuf,
    /// The file itself, past symbolic links, so that a link stays one.
    path: PathBuf,
    folder: PathBuf,
}

impl Target {
    /// Looks at what is there now. `sources` are the files that are read: none of them is ever replaced.
    ///
    /// # Errors
    /// [`Class::Unwritable`] for a folder that is not there or cannot be written to, and for a target that is no regular file, is write-protected or is a link that leads nowhere;
    /// [`Class::Request`] for one that is a source.
    pub fn new<'p>(out: &Path, sources: impl IntoIterator<Item = &'p Path>) -> Result<Self> {
        let unwritable = |what: &str, advice: &str| Error::new(Class::Unwritable, what).advise(advice).in_file(out);
        let is_folder = out.is_dir();
        // A separator at the end asks for a folder, which `file_name` does not see.
        if !is_folder && (out.file_name().is_none() || out.as_os_str().as_encoded_bytes().last().is_some_and(|byte| is_separator(*byte))) {
            return Err(unwritable("is not the name of a file", "name the file to write"));
        }
        let path = match fs::metadata(out) {
            Ok(_) if is_folder => return Err(unwritable("is a folder", "name a file in it")),
            Ok(metadata) if !metadata.is_file() => return Err(unwritable("is not a regular file", "name another file")),
            Ok(_) => fs::canonicalize(out).map_err(|source| Error::unwritable(out, source))?,
            Err(_) if fs::symlink_metadata(out).is_ok() => {
                return Err(unwritable("is a symbolic link that leads nowhere", "remove the link, or name another file"));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => out.to_path_buf(),
            Err(error) => return Err(Error::unwritable(out, error)),
        };
        if let Some(source) = sources.into_iter().find(|source| fs::canonicalize(source).is_ok_and(|source| source == path)) {
            let what = format!("is what is read ({}): it would be replaced", shown_path(source));
            return Err(Error::new(Class::Request, what).advise("name another file").in_file(out));
        }
        if fs::metadata(&path).is_ok_and(|metadata| metadata.permissions().readonly()) {
            return Err(unwritable("is write-protected", "name another file, or make it writable"));
        }
        let folder = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent.to_path_buf(),
            _ => PathBuf::from("."),
        };
        if !folder.is_dir() {
            return Err(unwritable("cannot be written: its folder does not exist", "make the folder, or name another"));
        }
        Ok(Self { asked: out.to_path_buf(), path, folder })
    }

    /// Whether both are one file: the second that is written would replace the first.
    pub fn is_that_of(&self, other: &Self) -> bool {
        let place = |target: &Self| (fs::canonicalize(&target.folder).ok(), target.path.file_name().map(ToOwned::to_owned));
        place(self) == place(other)
    }

    /// A new file beside the target, gone when it is dropped. Its name does not grow with the target's, which may be as long as the system allows.
    ///
    /// # Errors
    /// [`Class::Unwritable`].
    pub fn temporary(&self) -> Result<NamedTempFile> {
        #[cfg_attr(not(unix), allow(unused_mut, reason = "permissions are of Unix"))]
        let mut builder = builder();
        // Temporary files are private unless told otherwise; what comes out is a file like any other, within what the user's umask allows.
        #[cfg(unix)]
        builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
        builder.tempfile_in(&self.folder).map_err(|source| self.failed(source))
    }

    /// A new private folder beside the target, for what is in the way of no user; gone with all in it when it is dropped.
    ///
    /// # Errors
    /// [`Class::Unwritable`].
    pub fn temporary_folder(&self) -> Result<TempDir> {
        builder().tempdir_in(&self.folder).map_err(|source| self.failed(source))
    }

    /// Gives `file` the target's name, once its bytes are on the disk.
    ///
    /// # Errors
    /// [`Class::Unwritable`].
    pub fn commit(&self, file: NamedTempFile) -> Result<()> {
        file.as_file().sync_all().map_err(|source| self.failed(source))?;
        file.persist(&self.path).map_err(|error| self.failed(error.error))?;
        sync_name(&self.path);
        Ok(())
    }

    /// The whole of it: what `fill` writes gets the target's name.
    ///
    /// # Errors
    /// Those of `fill`; [`Class::Unwritable`].
    pub fn write(&self, fill: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
        let mut file = self.temporary()?;
        let mut out = BufWriter::new(file.as_file_mut());
        fill(&mut out)?;
        out.flush().map_err(|source| self.failed(source))?;
        drop(out);
        self.commit(file)
    }

    /// The error of a write that failed.
    pub fn failed(&self, source: io::Error) -> Error {
        // The system's words alone: the name of the temporary file is of no use to anybody.
        let source = source.raw_os_error().map_or(source, io::Error::from_raw_os_error);
        Error::unwritable(&self.asked, source)
    }
}

/// The names of temporary files and folders, `.dmexp-XXXXXX.tmp`, by which a user knows what a process left that was killed (docs/files.md).
pub(crate) fn builder() -> tempfile::Builder<'static, 'static> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".dmexp-").suffix(".tmp");
    builder
}

/// Sees to it that the name of a new file or folder is on the disk. Where a folder cannot be synced what it names is whole all the same.
pub(crate) fn sync_name(path: &Path) {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if let Ok(folder) = File::open(folder) {
        let _ = folder.sync_all();
    }
}

fn is_separator(byte: u8) -> bool {
    std::path::is_separator(char::from(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new(out: &Path) -> Result<Target> {
        Target::new(out, [])
    }

    fn names(folder: &TempDir) -> Vec<String> {
        let mut names: Vec<_> =
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    fn write(out: &Path, text: &str) -> Result<()> {
        new(out)?.write(|out| out.write_all(text.as_bytes()).map_err(|error| Error::unwritable("x".as_ref(), error)))
    }

    #[test]
    fn the_target_is_the_old_file_or_the_whole_new_one() {
        let folder = TempDir::new().unwrap();
        let out = folder.path().join("out");
        write(&out, "one").unwrap();
        write(&out, "two").unwrap();
        let failed = new(&out).unwrap().write(|out| {
            out.write_all(b"half").unwrap();
            Err(Error::damaged("the source broke off"))
        });
        assert!(failed.is_err());
        assert_eq!(fs::read(&out).unwrap(), b"two");
        assert_eq!(names(&folder), ["out"]);
    }

    #[test]
    fn a_name_as_long_as_the_system_allows_is_a_name() {
        let folder = TempDir::new().unwrap();
        let out = folder.path().join("n".repeat(255));
        write(&out, "text").unwrap();
        assert_eq!(fs::read(&out).unwrap(), b"text");
        // One more is too long, and the error is about it and nothing else.
        let error = write(&folder.path().join("n".repeat(256)), "text").unwrap_err().to_string();
        assert!(error.contains("cannot be written") && !error.contains(".dmexp-"), "{error}");
    }

    #[test]
    fn what_is_no_file_is_refused_before_any_work() {
        let folder = TempDir::new().unwrap();
        let path = |name: &str| folder.path().join(name);
        for (out, why) in [
            (path("new/"), "not the name of a file"),
            (path(".."), "is a folder"),
            (path("."), "is a folder"),
            (path("no/x"), "folder does not exist"),
            (path("no/.."), "not the name of a file"),
        ] {
            let error = new(&out).unwrap_err();
            assert_eq!(error.class(), Class::Unwritable);
            assert!(error.to_string().contains(why), "{error}");
        }
        assert!(names(&folder).is_empty());
    }

    #[test]
    fn two_targets_may_be_one_file() {
        let folder = TempDir::new().unwrap();
        let at = |name: &str| new(&folder.path().join(name)).unwrap();
        fs::create_dir(folder.path().join("sub")).unwrap();
        assert!(at("a").is_that_of(&at("sub/../a")) && !at("a").is_that_of(&at("b")) && !at("a").is_that_of(&at("sub/a")));
    }

    #[cfg(unix)]
    #[test]
    fn devices_and_pipes_are_never_replaced() {
        let error = new(Path::new("/dev/null")).unwrap_err();
        assert!(error.to_string().contains("not a regular file"), "{error}");
        let folder = TempDir::new().unwrap();
        let socket = folder.path().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        assert!(new(&socket).unwrap_err().to_string().contains("not a regular file"));
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&socket, &link).unwrap();
        assert!(new(&link).unwrap_err().to_string().contains("not a regular file"));
    }

    #[cfg(unix)]
    #[test]
    fn links_stay_links_and_sources_are_seen_through_them() {
        let folder = TempDir::new().unwrap();
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        fs::write(&file, "old").unwrap();
        std::os::unix::fs::symlink("file", &link).unwrap();
        write(&link, "new").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read(&file).unwrap(), b"new");
        for (out, source) in [(&link, &file), (&file, &link), (&file, &file)] {
            let error = Target::new(out, [source.as_path()]).unwrap_err();
            assert_eq!(error.class(), Class::Request, "{error}");
        }
        let dangling = folder.path().join("dangling");
        std::os::unix::fs::symlink("nothing", &dangling).unwrap();
        assert!(new(&dangling).unwrap_err().to_string().contains("leads nowhere"));
        assert_eq!(names(&folder), ["dangling", "file", "link"]);
    }
}

//! A file's bytes, memory-mapped so that weights larger than memory can be read piece by piece. Used by every importer.

use crate::error::{Class, Error, Result};
use memmap2::{Mmap, MmapMut};
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The bytes of one file, and where it came from.
#[derive(Debug)]
pub struct Mapping {
    path: PathBuf,
    bytes: Bytes,
}

#[derive(Debug)]
enum Bytes {
    Mapped(Mmap, Stamp),
    Copied(Mmap),
    Owned(Vec<u8>),
}

impl Mapping {
    /// Maps a regular file.
    ///
    /// # Errors
    /// [`Class::Unreadable`]: no such file, no permission, not a regular file, larger than this machine can address, or shorter in the mapping than on the disk.
    pub fn open(path: &Path) -> Result<Self> {
        let unreadable = |source| Error::unreadable(path, source);
        let Some((file, length)) = regular(path)? else { return Ok(Self::from_bytes(path, Vec::new())) };
        let stamp = Stamp::new(file).map_err(unreadable)?;
        // SAFETY: the mapping is private to this process and only read. Should another process write to or cut the file meanwhile, then values change or the system ends this
        // process; that cannot be ruled out for any mapped file and is the user's own doing. No reference to the bytes assumes more of them than that they are bytes.
        #[expect(unsafe_code, reason = "mapping a file has no safe form")]
        let map = unsafe { Mmap::map(&stamp.file) }.map_err(unreadable)?;
        if map.len() != length {
            let what = format!("has {length} bytes, but only {} of them could be mapped", map.len());
            return Err(Error::new(Class::Unreadable, what).in_file(path));
        }
        Ok(Self { path: path.to_path_buf(), bytes: Bytes::Mapped(map, stamp) })
    }

    /// Reads a regular file into memory of its own: in huge pages where the system has them, from which large weights are read faster than from a mapping, and which nobody else can change.
    ///
    /// # Errors
    /// Those of [`Mapping::open`]; [`Class::Unreadable`] where there is not that much memory.
    pub fn copy(path: &Path) -> Result<Self> {
        let Some((file, length)) = regular(path)? else { return Ok(Self::from_bytes(path, Vec::new())) };
        let stamp = Stamp::new(file).map_err(|error| Error::unreadable(path, error))?;
        let mut memory = MmapMut::map_anon(length).map_err(|error| {
            let what = format!("has {length} bytes, for which this machine gives no memory ({error})");
            Error::new(Class::Unreadable, what).advise("use --load map").in_file(path)
        })?;
        // Where the system has no huge pages, reading the copy is slower and nothing else is different.
        #[cfg(target_os = "linux")]
        let _ = memory.advise(memmap2::Advice::HugePage);
        let unreadable = |error| Error::unreadable(path, error);
        (&stamp.file).read_exact(&mut memory).map_err(unreadable)?;
        stamp.check(path)?;
        let copy = memory.make_read_only().map_err(unreadable)?;
        Ok(Self { path: path.to_path_buf(), bytes: Bytes::Copied(copy) })
    }

    /// Takes bytes that are in memory already; `path` is what errors call them.
    pub fn from_bytes(path: &Path, bytes: Vec<u8>) -> Self {
        Self { path: path.to_path_buf(), bytes: Bytes::Owned(bytes) }
    }

    /// All bytes.
    pub fn bytes(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Mapped(map, _) | Bytes::Copied(map) => map,
            Bytes::Owned(bytes) => bytes,
        }
    }

    /// Gives the memory that holds these bytes back to the system, which reads them again when they are wanted again.
    pub(crate) fn release(&self, bytes: Range<u64>) {
        #[cfg(unix)]
        if let Bytes::Mapped(map, _) = &self.bytes
            && let (Ok(start), Ok(end)) = (usize::try_from(bytes.start), usize::try_from(bytes.end))
            && start < end
            && end <= map.len()
        {
            // SAFETY: the range lies within the mapping, which is of a file and only ever read, so the pages that are dropped come back with the same bytes.
            #[expect(unsafe_code, reason = "the advice is unsafe for memory that was written to, which this never is")]
            let advised = unsafe { map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, start, end - start) };
            // Where the system does not take the advice, more memory is in use and nothing else is different.
            drop(advised);
        }
        #[cfg(not(unix))]
        let _ = bytes;
    }

    /// Asks the system whether the file was written to since it was opened: what was computed of a mapping would then be of no file at all. A file of the same name that took its place is another
    /// one and changes nothing.
    ///
    /// # Errors
    /// [`Class::Unreadable`] if it was.
    pub fn unchanged(&self) -> Result<()> {
        if let Bytes::Mapped(_, stamp) = &self.bytes { stamp.check(&self.path) } else { Ok(()) }
    }

    /// The path it was opened by.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file's name without its folder.
    pub fn file_name(&self) -> String {
        self.path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
    }
}

/// A file and what the system said of it when it was opened.
#[derive(Debug)]
struct Stamp {
    file: File,
    seen: (u64, Option<SystemTime>),
}

impl Stamp {
    fn new(file: File) -> io::Result<Self> {
        Ok(Self { seen: Self::look(&file)?, file })
    }

    /// Length and time of the last write, which not every file system keeps.
    fn look(file: &File) -> io::Result<(u64, Option<SystemTime>)> {
        let metadata = file.metadata()?;
        Ok((metadata.len(), metadata.modified().ok()))
    }

    fn check(&self, path: &Path) -> Result<()> {
        if Self::look(&self.file).map_err(|error| Error::unreadable(path, error))? == self.seen {
            return Ok(());
        }
        let advice = "run it again when nothing writes to the file; whoever replaces a file renames another to its name";
        Err(Error::new(Class::Unreadable, "was written to while it was read, so nothing that came of it counts")
            .advise(advice)
            .in_file(path))
    }
}

/// A regular file and its length; `None` for an empty one, which cannot be mapped.
fn regular(path: &Path) -> Result<Option<(File, usize)>> {
    let unreadable = |source| Error::unreadable(path, source);
    // Looked at before it is opened: opening a pipe waits for whoever writes to it.
    let metadata = std::fs::metadata(path).map_err(unreadable)?;
    if !metadata.is_file() {
        return Err(Error::new(Class::Unreadable, "is not a regular file").in_file(path));
    }
    let length = metadata.len();
    if length == 0 {
        return Ok(None);
    }
    let Ok(addressed) = usize::try_from(length) else {
        let what = format!("has {length} bytes; this machine addresses {}", usize::MAX);
        return Err(Error::new(Class::Unreadable, what).advise("use a 64-bit build").in_file(path));
    };
    Ok(Some((File::open(path).map_err(unreadable)?, addressed)))
}

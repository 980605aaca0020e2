//! A file that appears whole or not at all: written under another name beside its place, and renamed. For what commands write besides exports.

use dmexp_tools::error::{Class, Error, Result};
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// Lets `fill` write the file `path`, which must not be `source`. What it held before is replaced when all is written, and kept if anything fails.
///
/// # Errors
/// Those of `fill` and of [`not_the_same`]; [`Class::Unwritable`].
pub(crate) fn write(path: &Path, source: &Path, fill: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
    not_the_same(path, source)?;
    let unwritable = |source: io::Error| Error::unwritable(path, source);
    if path.is_dir() {
        return Err(Error::new(Class::Unwritable, "is a folder").advise("name a file in it").in_file(path));
    }
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let mut builder = tempfile::Builder::new();
    builder.prefix(".dmexp-").suffix(".tmp");
    // Temporary files are private unless told otherwise; this one is a file like any other, within what the user's umask allows.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    let mut file = builder.tempfile_in(folder).map_err(unwritable)?;
    let mut out = BufWriter::new(file.as_file_mut());
    fill(&mut out)?;
    out.flush().map_err(unwritable)?;
    drop(out);
    file.as_file().sync_all().map_err(unwritable)?;
    file.persist(path).map_err(|error| unwritable(error.error))?;
    Ok(())
}

/// Refuses to replace what is read.
///
/// # Errors
/// [`Class::Request`] if both paths are one file.
pub(crate) fn not_the_same(out: &Path, source: &Path) -> Result<()> {
    match (out.canonicalize(), source.canonicalize()) {
        (Ok(one), Ok(other)) if one == other => {
            let what = format!("is what is read ({}): it would be replaced", source.display());
            Err(Error::new(Class::Request, what).advise("name another file").in_file(out))
        }
        _ => Ok(()),
    }
}

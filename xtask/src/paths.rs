//! Where things are in the repository. Used by every task.

use std::path::{Path, PathBuf};

/// The repository's root folder.
pub(crate) fn root() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here)
}

/// The firmware workspace.
pub(crate) fn boards() -> PathBuf {
    root().join("boards")
}

/// Tools that xtask obtains or compiles. Ignored by git; deleting it costs a download.
pub(crate) fn tools() -> PathBuf {
    root().join("target/tools")
}

//! Tests of the importers: files made in memory, and the ones in ../shared/data where that folder is.

mod arrays;
mod byte_level;
mod hostile;
mod kinds;
mod llama2c;
mod made;
mod meta;
mod pickles;
mod pytorch;
mod tokenizers;
pub(in crate::checkpoint) mod torch;
mod user_reports;

use std::path::PathBuf;

/// A file of the shared test data; `None`, said in one line, where the folder is absent.
pub(in crate::checkpoint) fn data(name: &str) -> Option<PathBuf> {
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/data"));
    if !folder.is_dir() {
        eprintln!("skipped: {name} is not here (no ../shared/data)");
        return None;
    }
    Some(folder.join(name))
}

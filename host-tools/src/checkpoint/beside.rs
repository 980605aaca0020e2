//! The files that readers look at besides the one that they were given. Used where something is written: none of them is ever replaced.

use super::{Checkpoint, Mapping};
use std::path::{Path, PathBuf};

/// The names that the files of a Hugging Face model have.
const NAMES: [&str; 13] = [
    "config.json",
    "generation_config.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer.bin",
    "params.json",
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
];

/// The files in the folder `path`, or beside the file `path`, that its reader looks at; whether they are there or not.
pub fn beside(path: &Path) -> impl Iterator<Item = PathBuf> {
    let folder = if path.is_dir() { path } else { path.parent().unwrap_or(Path::new("")) };
    NAMES.iter().map(|name| folder.join(name))
}

impl Checkpoint {
    /// All that was read of the source, or would have been had it been there.
    pub fn sources(&self) -> Vec<PathBuf> {
        let files = self.files().iter().map(Mapping::path);
        files.flat_map(|file| std::iter::once(file.to_path_buf()).chain(beside(file))).collect()
    }
}

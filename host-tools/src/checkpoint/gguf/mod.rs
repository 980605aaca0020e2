//! Reader of GGUF files, versions 2 and 3, of the Llama family. Called by `checkpoint::open`.
//!
//! Written by hand because the file may be hostile: [`container`] compares every count, length and offset with the bytes that are there before anything is allocated. [`config`] and
//! [`tensors`] are strict: what the Llama graph does not compute is refused by name.

pub(super) mod blocks;
mod config;
mod container;
mod cursor;
mod rotation;
mod sentencepiece;
mod tensors;
mod tokenizer;
mod value;

#[cfg(test)]
pub(super) mod tests;

use crate::checkpoint::{Array, Checkpoint, Config, LlamaSource, Mapping, Provenance, TokenizerSource};
use crate::error::{Error, Result};
use container::{AGAIN, Container, TensorType};

/// Opens a file that begins with "GGUF".
pub(super) fn open(file: Mapping) -> Result<Checkpoint> {
    let read = read(&file).map_err(|error| error.in_file(file.path()))?;
    let provenance =
        Provenance { file_name: file.file_name(), importer: read.importer, source_bytes: file.bytes().len() as u64, licence: read.licence };
    Checkpoint::new(vec![file], read.arrays, Config::Llama(read.source), read.tokenizer, provenance)
}

struct Read {
    source: LlamaSource,
    arrays: Vec<Array>,
    tokenizer: Option<TokenizerSource>,
    importer: &'static str,
    licence: Option<String>,
}

fn read(file: &Mapping) -> Result<Read> {
    let container = Container::parse(file.bytes())?;
    let family = config::family(&container)?;
    check_quantisation(&container)?;
    let source = config::read(&container, family)?;
    let arrays = tensors::arrays(&container, &source.config)?;
    let tokenizer = tokenizer::read(&container, source.config.vocab_size)?;
    let importer = if container.version == 2 { "GGUF v2" } else { "GGUF v3" };
    let licence = container.text("general.license")?.filter(|licence| !licence.is_empty()).map(str::to_owned);
    Ok(Read { source, arrays, tokenizer, importer, licence })
}

/// Block formats changed once, before GGUF; files say which they hold.
fn check_quantisation(container: &Container<'_>) -> Result<()> {
    let in_blocks = container.tensors.iter().any(|tensor| matches!(tensor.kind, TensorType::Blocks(_)));
    match container.unsigned("general.quantization_version")? {
        Some(version) if version != 2 && in_blocks => {
            let what = format!("general.quantization_version is {version}; 2 is read");
            Err(Error::not_a_model(what).advise(AGAIN))
        }
        _ => Ok(()),
    }
}

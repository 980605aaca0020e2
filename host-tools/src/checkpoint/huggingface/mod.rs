//! Reader of Hugging Face models: a folder with config.json and weights (safetensors or `pytorch_model.bin`, in one file or several). Called by `checkpoint::open`.
//!
//! config.json is read as the transformers library reads it for `LlamaForCausalLM`, `MistralForCausalLM` and `Qwen2ForCausalLM`; what our graph does not carry is refused by name ([`config`], [`keys`]).

mod config;
mod files;
mod keys;
mod names;
mod rope;
mod safetensors;

#[cfg(test)]
mod tests;

use super::{Checkpoint, Config, Mapping, Provenance, json, tokenizer_file};
use crate::checkpoint::array::{Array, ArrayView};
use crate::error::{Error, Result};
use files::Weights;
pub(crate) use names::tensor_name;
use names::{EMBEDDING, LM_HEAD, Tensors};
use std::path::Path;

const CONFIG: &str = "config.json";
const ADAPTER: &str = "adapter_config.json";

/// Opens the model in `folder`.
pub(super) fn open(folder: &Path) -> Result<Checkpoint> {
    build(folder, || files::open(folder))
}

/// Opens the model whose weights are all in `file`, with the config.json beside it.
pub(super) fn open_file(file: Mapping) -> Result<Checkpoint> {
    let path = file.path().to_path_buf();
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    if !folder.join(CONFIG).is_file() {
        let what = "is a safetensors file without a config.json beside it: its shape says too little of the model";
        return Err(Error::not_a_model(what).advise("put the model's config.json into the same folder").in_file(&path));
    }
    build(folder, || {
        let name = file.file_name();
        let (files, tensors) = files::single(file)?;
        Ok(Weights { name, files, tensors, notes: Vec::new() })
    })
}

fn build(folder: &Path, weights: impl FnOnce() -> Result<Weights>) -> Result<Checkpoint> {
    let path = folder.join(CONFIG);
    let in_config = |error: Error| if error.path().as_os_str().is_empty() { error.in_file(&path) } else { error };
    let table = json::read_object(&path)?;
    if folder.join(ADAPTER).is_file() {
        let what = format!("has an {ADAPTER}: the library adds the weights of an adapter to the model's, this version does not");
        return Err(Error::not_a_model(what)
            .advise("merge the adapter into the model; where that is done, move its files to another folder")
            .in_file(folder));
    }
    let mut model = config::read(&table).map_err(in_config)?;
    let Weights { name, mut files, mut tensors, notes } = weights()?;
    model.notes.extend(notes);
    let in_folder = |error: Error| if error.path().as_os_str().is_empty() { error.in_file(folder) } else { error };
    model.source.config.tied_embeddings = tied(model.tied, &mut tensors, &files).map_err(in_folder)?;
    let arrays = names::arrays(&model.source.config, tensors).map_err(in_folder)?;
    // The configuration is a source too: it counts in the checksum of the source, and is not written over.
    files.push(Mapping::open(&path)?);
    let provenance = Provenance {
        file_name: name,
        importer: "Hugging Face",
        source_bytes: files.iter().map(|file| file.bytes().len() as u64).sum(),
        licence: None,
    };
    let (tokenizer, refused_tokenizer) = match tokenizer_file::in_folder(folder, Some(model.source.config.vocab_size)) {
        Ok(tokenizer) => (tokenizer, None),
        Err(error) => (None, Some(error)),
    };
    let checkpoint = Checkpoint::new(files, arrays, Config::Llama(model.source), tokenizer, provenance)?;
    Ok(Checkpoint { notes: model.notes, refused_tokenizer, ..checkpoint })
}

/// Whether the classifier is the embedding; where it is, a stored copy of it is taken out of `tensors`.
fn tied(stated: Option<bool>, tensors: &mut Tensors, files: &[Mapping]) -> Result<bool> {
    match (stated, tensors.contains_key(LM_HEAD)) {
        // The library's default for these models is a classifier of its own, which it would then make up.
        (None, false) => {
            let what = format!("has no tensor {LM_HEAD}, and config.json does not say tie_word_embeddings");
            Err(Error::mismatch(what).advise("if the classifier is the embedding, tie_word_embeddings should be true"))
        }
        (None | Some(false), true) => Ok(false),
        (Some(false), false) => {
            let what = format!("tie_word_embeddings is false, but there is no tensor {LM_HEAD}");
            Err(Error::mismatch(what).advise("the classifier is missing; if it is the embedding, tie_word_embeddings should be true"))
        }
        (Some(true), false) => Ok(true),
        (Some(true), true) => {
            let Some(head) = tensors.remove(LM_HEAD) else { return Ok(true) };
            match tensors.get(EMBEDDING) {
                Some(embedding) if !equal(&head.array, &embedding.array, files)? => {
                    let what = format!("tie_word_embeddings is true, but {LM_HEAD} is stored and differs from {EMBEDDING}");
                    Err(Error::mismatch(what).advise("if the classifier is one of its own, tie_word_embeddings should be false"))
                }
                _ => Ok(true),
            }
        }
    }
}

/// Whether two arrays have the same dims and values, bit for bit.
fn equal(a: &Array, b: &Array, files: &[Mapping]) -> Result<bool> {
    if a.dims != b.dims {
        return Ok(false);
    }
    a.check(files)?;
    b.check(files)?;
    let other = ArrayView::new(b, files);
    let mut same = true;
    let mut values = Vec::new();
    ArrayView::new(a, files).for_each_chunk(1 << 16, |start, chunk| {
        values.resize(chunk.len(), 0.0);
        let count = if same { other.read(start, &mut values)? } else { 0 };
        same &= count == chunk.len() && chunk.iter().zip(&values).all(|(a, b)| a.to_bits() == b.to_bits());
        Ok::<(), Error>(())
    })?;
    Ok(same)
}

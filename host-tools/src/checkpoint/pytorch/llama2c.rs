//! llama2.c's training checkpoint, `ckpt.pt`: a dict with `model` (names and tensors) and `model_args`; the optimizer and what else is in it is left where it is.

use super::args::{Arg, Args};
use super::assemble::{Stated, assemble};
use super::container::Container;
use super::state;
use super::value::Value;
use crate::checkpoint::{Checkpoint, Mapping};
use crate::error::{Error, Result};

/// Opens a file that `recognise` takes for a `PyTorch` checkpoint.
///
/// # Errors
/// With the path: those of the container; [`Class::NotAModel`](crate::error::Class::NotAModel) for what is no checkpoint of llama2.c, with advice;
/// [`Class::Mismatch`](crate::error::Class::Mismatch) for tensors and arguments that do not fit.
pub(in crate::checkpoint) fn open(file: Mapping) -> Result<Checkpoint> {
    let path = file.path().to_owned();
    read(file).map_err(|error| if error.path().as_os_str().is_empty() { error.in_file(&path) } else { error })
}

fn read(file: Mapping) -> Result<Checkpoint> {
    let container = Container::open(&file)?;
    let pickle = &container.pickle;
    let entry = |wanted: &str| {
        let mut found = pickle.entries(pickle.root())?.filter(|(key, _)| *key == wanted).map(|(_, value)| value);
        found.next().filter(|_| found.next().is_none())
    };
    let (Some(model), Some(model_args)) = (entry("model"), entry("model_args")) else {
        return Err(other(&container));
    };
    let mut args = Args::from_pickle("model_args", pickle, model_args)?;
    let vocab_size = args.required("vocab_size")?;
    let max_seq_len = args.required("max_seq_len")?;
    // For training alone.
    match args.take("dropout") {
        None | Some(Arg::Float(_) | Arg::Integer(_)) => {}
        Some(found) => return Err(args.wrong("dropout", &found, "a number")),
    }
    let stated = Stated::take(args, Some(vocab_size), max_seq_len)?;
    let arrays = state::arrays(&container, model, &file, 0)?;
    drop(container);
    assemble(vec![file], arrays, stated, "llama2.c ckpt.pt")
}

/// The error of a `PyTorch` file that is something else: what to name instead.
fn other(container: &Container<'_>) -> Error {
    let pickle = &container.pickle;
    let Some(entries) = pickle.entries(pickle.root()) else {
        return Error::not_a_model(format!("is a PyTorch file that holds {}, not a checkpoint", pickle.root().kind()));
    };
    let entries: Vec<_> = entries.collect();
    let has = |name: &str| entries.iter().any(|(key, _)| *key == name);
    if has("tok_embeddings.weight") {
        return Error::not_a_model("is the weights of a model of Meta's without its arguments")
            .advise("name the folder, which has a params.json beside them");
    }
    if has("model.embed_tokens.weight") {
        return Error::not_a_model("is the weights of a Hugging Face model without its configuration")
            .advise("name the folder, which has a config.json beside them");
    }
    let shown: Vec<_> =
        entries.iter().filter(|(_, value)| !matches!(value, Value::Other)).map(|(key, _)| format!("{key:?}")).take(6).collect();
    Error::not_a_model(format!(
        "is a PyTorch file without model and model_args; it has {}",
        if shown.is_empty() { "nothing".to_owned() } else { shown.join(", ") }
    ))
    .advise("checkpoints of llama2.c's train.py, and folders of Meta's and Hugging Face's models are read")
}

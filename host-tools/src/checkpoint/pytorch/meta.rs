//! Meta's folders: `params.json` and `consolidated.NN.pth`, one file a part of the model that ran on one machine.

use super::args::{Arg, Args};
use super::assemble::{Stated, assemble, equal};
use super::tensors;
use crate::checkpoint::array::Array;
use crate::checkpoint::{Checkpoint, Fixed, Mapping};
use crate::error::{Error, Result};
use std::path::{Path, PathBuf};

/// The positions that are taken where `params.json` states none: what llama2.c's export.py takes.
const MAX_SEQ_LEN: u32 = 2048;
const MAX_SEQ_LEN_NOTE: Fixed = Fixed { key: "max_seq_len", value: "2048", why: "not stated; what llama2.c's export.py takes" };

/// Opens a folder with a `params.json`.
///
/// # Errors
/// With the path of the file at fault, or the folder's.
pub(in crate::checkpoint) fn open(folder: &Path) -> Result<Checkpoint> {
    let params = Mapping::open(&folder.join("params.json"))?;
    let paths = shards(folder)?;
    let stated = read_params(&params).map_err(|error| error.in_file(params.path()))?;
    let mut files = Vec::new();
    let mut parts = Vec::new();
    for (number, path) in paths.iter().enumerate() {
        let file = Mapping::open(path)?;
        parts.push(tensors(&file, number)?);
        files.push(file);
    }
    let in_folder = |error: Error| if error.path().as_os_str().is_empty() { error.in_file(folder) } else { error };
    let arrays = join(parts, &files, stated.dim()).map_err(in_folder)?;
    // Part of what the model is: counted, and hashed with the others.
    files.push(params);
    assemble(files, arrays, stated, "Meta").map_err(in_folder)
}

fn read_params(params: &Mapping) -> Result<Stated> {
    let mut args = Args::from_json("params.json", params.bytes())?;
    // -1 says that it is the tokenizer's.
    let vocab_size = match args.take("vocab_size") {
        None | Some(Arg::Integer(-1)) => None,
        Some(Arg::Integer(size)) if size > 0 => u32::try_from(size).ok(),
        Some(found) => return Err(args.wrong("vocab_size", &found, "-1 or a positive number")),
    };
    match args.take("use_scaled_rope") {
        None | Some(Arg::Bool(false)) => {}
        Some(Arg::Bool(true)) => {
            return Err(Error::not_a_model("has use_scaled_rope, and params.json does not state the scaling")
                .advise("name the Hugging Face folder of the same model, whose config.json states it"));
        }
        Some(found) => return Err(args.wrong("use_scaled_rope", &found, "true or false")),
    }
    // How many sequences Meta's program runs at once: no part of the model.
    args.take("max_batch_size");
    let max_seq_len = args.size("max_seq_len")?;
    let mut stated = Stated::take(args, vocab_size, max_seq_len.unwrap_or(MAX_SEQ_LEN))?;
    if max_seq_len.is_none() {
        stated.note(MAX_SEQ_LEN_NOTE);
    }
    Ok(stated)
}

/// The parts, in their order: consolidated.00.pth and on, none missing.
fn shards(folder: &Path) -> Result<Vec<PathBuf>> {
    let unreadable = |source| Error::unreadable(folder, source);
    let mut numbers = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(unreadable)? {
        let name = entry.map_err(unreadable)?.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix("consolidated.")?.strip_suffix(".pth"));
        if let Some(number) = number.filter(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())) {
            numbers.push(number.to_owned());
        }
    }
    numbers.sort_by_key(|number| number.parse::<u64>().unwrap_or(u64::MAX));
    for (expected, number) in numbers.iter().enumerate() {
        if number.parse() != Ok(expected) {
            return Err(Error::mismatch(format!("has consolidated.{number}.pth where part {expected} should be"))
                .advise("copy or download the missing part")
                .in_file(folder));
        }
    }
    if numbers.is_empty() {
        return Err(Error::not_a_model("has a params.json and no consolidated.00.pth").in_file(folder));
    }
    Ok(numbers.into_iter().map(|number| folder.join(format!("consolidated.{number}.pth"))).collect())
}

/// Puts the parts of every tensor together: vectors are the same in all parts, matrices are cut along one axis.
fn join(parts: Vec<Vec<Array>>, files: &[Mapping], dim: u32) -> Result<Vec<Array>> {
    let mut parts = parts.into_iter();
    let first = parts.next().unwrap_or_default();
    let mut joined: Vec<Vec<Array>> = first.into_iter().map(|array| vec![array]).collect();
    for (number, part) in (1..).zip(parts) {
        if part.len() != joined.len() {
            return Err(Error::mismatch(format!("part 0 has {} tensors and part {number} has {}", joined.len(), part.len())));
        }
        let mut part: std::collections::HashMap<String, Array> = part.into_iter().map(|array| (array.name.clone(), array)).collect();
        for arrays in &mut joined {
            let Some(name) = arrays.first().map(|array| &array.name) else { continue };
            let array = part.remove(name).ok_or_else(|| Error::mismatch(format!("part {number} has no tensor {name}")))?;
            arrays.push(array);
        }
    }
    joined.into_iter().map(|arrays| together(arrays, files, dim)).collect()
}

fn together(mut arrays: Vec<Array>, files: &[Mapping], dim: u32) -> Result<Array> {
    let (Some(first), true) = (arrays.first(), arrays.len() > 1) else {
        return arrays.pop().ok_or_else(|| Error::mismatch("has no parts"));
    };
    let name = first.name.clone();
    if first.dims.rank() == 1 {
        for (number, other) in arrays.iter().enumerate().skip(1) {
            if !equal(first, other, files)? {
                return Err(Error::mismatch(format!("{name} is not the same in part 0 and part {number}")));
            }
        }
        return Ok(first.clone());
    }
    // Embeddings were cut along their columns, and since Llama 3 along their rows.
    let by_columns = name.ends_with("attention.wo.weight")
        || name.ends_with("feed_forward.w2.weight")
        || name == "tok_embeddings.weight" && first.dims.cols() != dim;
    Array::concat(name, usize::from(by_columns), arrays)
}

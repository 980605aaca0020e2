//! Which files of a folder hold the weights, and all their tensors together.

use super::names::{Found, Tensors};
use super::safetensors;
use crate::checkpoint::json::{self, Keys};
use crate::checkpoint::{Kind, Mapping, pytorch, recognise};
use crate::error::{Error, Result};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Component, Path};

/// The weights of a model.
#[derive(Debug)]
pub(super) struct Weights {
    /// The file that was looked for: the weights themselves, or their index.
    pub(super) name: String,
    pub(super) files: Vec<Mapping>,
    pub(super) tensors: Tensors,
    /// What a user should know.
    pub(super) notes: Vec<String>,
}

/// Where the library looks for weights, in its order; the index of a file in several parts stands after the whole file.
const NAMES: [(&str, bool); 4] = [
    ("model.safetensors", false),
    ("model.safetensors.index.json", true),
    ("pytorch_model.bin", false),
    ("pytorch_model.bin.index.json", true),
];

/// Opens the weights of the model in `folder`.
///
/// # Errors
/// With the path: [`Class::NotAModel`](crate::error::Class::NotAModel) where there are none; those of the files' readers; [`Class::Damaged`](crate::error::Class::Damaged) and
/// [`Class::Mismatch`](crate::error::Class::Mismatch) for an index that does not fit its files.
pub(super) fn open(folder: &Path) -> Result<Weights> {
    let mut present = NAMES.iter().filter(|(name, _)| folder.join(name).is_file());
    let Some((name, is_index)) = present.next() else {
        let names = NAMES.map(|(name, _)| name).join(", ");
        return Err(Error::not_a_model(format!("has a config.json, but none of {names}")).in_file(folder));
    };
    let notes = present.map(|(other, _)| format!("{other} was not read: the weights are those of {name}")).collect();
    let path = folder.join(name);
    let (files, tensors) = if *is_index { indexed(folder, &path)? } else { single(Mapping::open(&path)?)? };
    Ok(Weights { name: (*name).to_owned(), files, tensors, notes })
}

/// The weights in one file.
pub(super) fn single(file: Mapping) -> Result<(Vec<Mapping>, Tensors)> {
    let tensors = of_file(&file, 0)?;
    Ok((vec![file], tensors))
}

/// The tensors of one file, which is number `number` of the checkpoint.
fn of_file(file: &Mapping, number: usize) -> Result<Tensors> {
    match recognise(file.bytes()) {
        // What does not look like any format is told what is wrong with it as the format that its name says.
        Kind::Safetensors | Kind::Empty | Kind::Unknown { .. } => {
            safetensors::tensors(file, number).map_err(|error| error.in_file(file.path()))
        }
        Kind::Zip { pytorch: true } | Kind::Pickle => {
            let file_name = file.file_name();
            let arrays = pytorch::tensors(file, number)?.into_iter();
            Ok(arrays.map(|array| (array.name.clone(), Found { array, file_name: file_name.clone() })).collect())
        }
        other => Err(other.not_imported(file.path())),
    }
}

/// The weights in the parts that an index names.
fn indexed(folder: &Path, path: &Path) -> Result<(Vec<Mapping>, Tensors)> {
    let map = weight_map(path)?;
    let mut parts: Vec<&str> = map.values().map(String::as_str).collect();
    parts.sort_unstable();
    parts.dedup();
    let mut files = Vec::new();
    let mut all = Tensors::new();
    for (number, part) in parts.into_iter().enumerate() {
        let file = Mapping::open(&folder.join(part))?;
        for (name, found) in of_file(&file, number)? {
            match map.get(&name) {
                Some(place) if place == part => {}
                Some(place) => {
                    let what = format!("has a tensor {name}, which the index says is in {place}");
                    return Err(Error::mismatch(what).in_file(file.path()));
                }
                None => return Err(Error::mismatch(format!("has a tensor {name}, which is not in the index")).in_file(file.path())),
            }
            all.insert(name, found);
        }
        files.push(file);
    }
    match map.iter().find(|(name, _)| !all.contains_key(*name)) {
        Some((name, part)) => Err(Error::mismatch(format!("says that {name} is in {part}, where it is not")).in_file(path)),
        None => Ok((files, all)),
    }
}

/// Which part each tensor is in.
fn weight_map(path: &Path) -> Result<BTreeMap<String, String>> {
    let index = json::read_object(path)?;
    let read = || {
        let keys = Keys::new(&index, "");
        let table = keys.required("weight_map", keys.object("weight_map")?)?;
        let entries = table.iter().map(|(name, part)| match part {
            Value::String(part) if is_plain(part) => Ok((name.clone(), part.clone())),
            other => Err(Keys::new(table, "weight_map.").wrong(name, other, "the name of a file in the same folder")),
        });
        let map: BTreeMap<_, _> = entries.collect::<Result<_>>()?;
        if map.is_empty() {
            return Err(Error::damaged("weight_map is empty"));
        }
        Ok(map)
    };
    read().map_err(|error| error.in_file(path))
}

/// Whether a name is that of a file in the same folder, on any system.
fn is_plain(name: &str) -> bool {
    let mut components = Path::new(name).components();
    matches!((components.next(), components.next()), (Some(Component::Normal(_)), None)) && !name.contains(['/', '\\', ':', '\0'])
}

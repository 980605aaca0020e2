//! State dicts: names and tensors to arrays of a checkpoint.

use super::container::Container;
use super::pickle::Pickle;
use super::value::{Element, Tensor, Value};
use crate::checkpoint::array::Array;
use crate::checkpoint::{Encoding, Mapping};
use crate::error::{Error, Result};
use dmexp_format::Dims;
use std::collections::HashSet;

/// What `torch.compile` puts before every name.
const COMPILED: &str = "_orig_mod.";

/// The tensors of a file that holds a state dict (names and tensors, nothing else) in the order in which they were saved; `number` is the file's among the checkpoint's. For other readers.
///
/// # Errors
/// With the path: [`Class::NotAModel`](crate::error::Class::NotAModel) and [`Class::Damaged`](crate::error::Class::Damaged) of the container;
/// [`Class::Mismatch`](crate::error::Class::Mismatch) for what is no tensor of f32, f16 or bf16, by name.
pub(in crate::checkpoint) fn tensors(file: &Mapping, number: usize) -> Result<Vec<Array>> {
    let read = || {
        let container = Container::open(file)?;
        arrays(&container, container.pickle.root(), file, number)
    };
    read().map_err(|error| error.in_file(file.path()))
}

/// The tensors of a dict, named as it names them but for a prefix of `torch.compile`'s.
pub(super) fn arrays(container: &Container<'_>, dict: &Value<'_>, file: &Mapping, number: usize) -> Result<Vec<Array>> {
    let pickle = &container.pickle;
    let (Some(entries), Value::Dict(pairs)) = (pickle.entries(dict), dict) else {
        return Err(Error::not_a_model(format!("holds {} where the tensors should be", dict.kind())));
    };
    let mut arrays = Vec::new();
    let mut names = HashSet::new();
    let mut storages = Vec::new();
    for (name, value) in entries {
        let name = name.strip_prefix(COMPILED).unwrap_or(name);
        if name.is_empty() || name.chars().any(char::is_control) {
            return Err(Error::mismatch(format!("has a tensor of the name {name:?}")));
        }
        if !names.insert(name) {
            return Err(Error::mismatch(format!("has two tensors {name}")));
        }
        let Value::Tensor(tensor) = value else {
            return Err(Error::mismatch(format!("has {} {name}, which is no tensor", value.kind())));
        };
        let (array, key) = array(container, pickle, tensor, name, number)?;
        arrays.push(array);
        storages.push(key);
    }
    if arrays.len() != pairs.len() {
        return Err(Error::mismatch("has a tensor whose name is no string"));
    }
    storages.sort_unstable();
    storages.dedup();
    container.check(file, &storages)?;
    Ok(arrays)
}

fn array<'p>(container: &Container<'p>, pickle: &Pickle<'p>, tensor: &Tensor, name: &str, number: usize) -> Result<(Array, &'p str)> {
    let Value::Storage(storage) = pickle.value(tensor.storage) else {
        return Err(Error::damaged(format!("{name} has no storage")));
    };
    let start = container.locate(storage)?;
    let encoding = match storage.element {
        Element::F32 => Encoding::F32 { offset: start },
        Element::F16 => Encoding::F16 { offset: start },
        Element::Bf16 => Encoding::Bf16 { offset: start },
        Element::Other(type_name, _) => {
            let what = format!("{name} is of type {type_name}; weights are read from float32, float16 and bfloat16");
            return Err(Error::mismatch(what).advise("convert the tensors before saving them"));
        }
    };
    let rank = tensor.sizes.len();
    let mut sizes = [1; 4];
    if rank > 4 || rank == 0 {
        return Err(Error::mismatch(format!("{name} has {rank} axes; a weight has 1 to 4")));
    }
    for (place, size) in sizes.iter_mut().zip(&tensor.sizes) {
        *place = u32::try_from(*size).map_err(|_| Error::mismatch(format!("{name} has {size} elements along an axis")))?;
    }
    let dims = Dims::new(0, rank as u32, sizes).map_err(|_| Error::mismatch(format!("{name} is of the sizes {:?}", tensor.sizes)))?;
    // Against the storage, whose bytes are known to be there: a view must not reach into its neighbours.
    let last = tensor
        .sizes
        .iter()
        .zip(&tensor.strides)
        .try_fold(tensor.offset, |at, (size, stride)| at.checked_add((size - 1).checked_mul(*stride)?));
    if last.is_none_or(|last| last >= storage.count) {
        let what = format!(
            "{name} (sizes {:?}, strides {:?}, offset {}) reaches past its storage of {} elements",
            tensor.sizes, tensor.strides, tensor.offset, storage.count
        );
        return Err(Error::damaged(what).at(format!("byte {start}")));
    }
    Ok((Array::strided(name, dims, number, encoding, tensor.offset, &tensor.strides)?, storage.key))
}

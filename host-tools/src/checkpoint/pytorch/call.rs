//! What a pickle's calls make: containers, storages and tensors, out of the values that they are called with. Used by the pickle reader.

use super::globals::Global;
use super::pickle::Machine;
use super::value::{Id, Storage, Tensor, Value};
use crate::error::Result;

/// More axes than any tensor has.
const AXIS_LIMIT: usize = 16;

/// What calling `callee` with the tuple `arguments` gives.
pub(super) fn reduce<'p>(machine: &Machine<'p>, callee: Id, arguments: Id) -> Result<Value<'p>> {
    let Value::Global(global) = machine.value(callee) else {
        return Err(machine.damaged(format!("calls {}", machine.value(callee).kind())));
    };
    let Value::Tuple(arguments) = machine.value(arguments) else {
        return Err(machine.damaged(format!("calls something with {}", machine.value(arguments).kind())));
    };
    match (global, arguments.as_slice()) {
        (Global::Dict, []) | (Global::DefaultDict, [_]) => Ok(Value::Dict(Vec::new())),
        (Global::Dict, [items]) | (Global::DefaultDict, [_, items]) => dict(machine, *items),
        (Global::List, []) => Ok(Value::List(Vec::new())),
        (Global::Tuple, []) => Ok(Value::Tuple(Vec::new())),
        (Global::List, [items]) => elements(machine, *items).map(Value::List),
        (Global::Tuple, [items]) => elements(machine, *items).map(Value::Tuple),
        // What follows are gradients and hooks, and of a lazily negated or conjugated tensor a dict that says so.
        (Global::RebuildTensor, [storage, offset, sizes, strides, rest @ ..]) => match rest.get(2).map(|id| machine.value(*id)) {
            Some(Value::Dict(marks)) if !marks.is_empty() => {
                Err(machine.not_a_model("has a tensor that is a negated or conjugated view of its numbers".to_owned()))
            }
            _ => tensor(machine, *storage, *offset, *sizes, *strides),
        },
        (Global::RebuildParameter, [tensor, ..]) => match machine.value(*tensor) {
            Value::Tensor(tensor) => Ok(Value::Tensor(tensor.clone())),
            other => Err(machine.damaged(format!("makes a parameter of {}", other.kind()))),
        },
        (Global::Inert, _) => Ok(Value::Other),
        (global, arguments) => Err(machine.damaged(format!("calls {global:?} with {} arguments", arguments.len()))),
    }
}

/// The storage that a persistent id ('storage', type, key, location, count, ..) stands for.
pub(super) fn persistent<'p>(machine: &Machine<'p>, id: Id) -> Result<Value<'p>> {
    let Value::Tuple(parts) = machine.value(id) else {
        return Err(machine.damaged(format!("has a persistent id that is {}", machine.value(id).kind())));
    };
    let values: Vec<_> = parts.iter().map(|part| machine.value(*part)).collect();
    match values.as_slice() {
        [
            Value::Text("storage"),
            Value::Global(Global::Storage(element)),
            Value::Text(key),
            Value::Text(_),
            Value::Integer(count),
            rest @ ..,
        ] => {
            let count = u64::try_from(*count).map_err(|_| machine.damaged(format!("has a storage of {count} elements")))?;
            // Before version 0.4 a storage could be a view of another.
            if !matches!(rest, [] | [Value::None]) {
                return Err(
                    machine.not_a_model("is a pickle with storages that are views of others, as PyTorch before 0.4 wrote them".to_owned())
                );
            }
            Ok(Value::Storage(Storage { element: *element, key, count }))
        }
        _ => Err(machine.damaged("has a persistent id that is no storage")),
    }
}

fn dict<'p>(machine: &Machine<'p>, items: Id) -> Result<Value<'p>> {
    if let Value::Dict(pairs) = machine.value(items) {
        return machine.copy(pairs).map(Value::Dict);
    }
    let mut flat = Vec::new();
    for item in elements(machine, items)? {
        match elements(machine, item)?.as_slice() {
            [key, value] => flat.extend([*key, *value]),
            other => return Err(machine.damaged(format!("makes a dict of {} values a key", other.len()))),
        }
    }
    machine.pairs(&flat).map(Value::Dict)
}

fn elements(machine: &Machine<'_>, id: Id) -> Result<Vec<Id>> {
    match machine.value(id) {
        Value::List(items) | Value::Tuple(items) => machine.copy(items),
        other => Err(machine.damaged(format!("takes the elements of {}", other.kind()))),
    }
}

fn tensor<'p>(machine: &Machine<'p>, storage: Id, offset: Id, sizes: Id, strides: Id) -> Result<Value<'p>> {
    let Value::Storage(_) = machine.value(storage) else {
        return Err(machine.damaged(format!("makes a tensor of {}", machine.value(storage).kind())));
    };
    let number = |id: Id| match machine.value(id) {
        Value::Integer(number) => {
            u64::try_from(*number).map_err(|_| machine.damaged(format!("has a tensor with the size, stride or offset {number}")))
        }
        other => Err(machine.damaged(format!("has a tensor with a size, stride or offset that is {}", other.kind()))),
    };
    let numbers = |id: Id| -> Result<Vec<u64>> {
        let items = elements(machine, id)?;
        if items.len() > AXIS_LIMIT {
            return Err(machine.damaged(format!("has a tensor of {} axes", items.len())));
        }
        items.into_iter().map(number).collect()
    };
    let (sizes, strides) = (numbers(sizes)?, numbers(strides)?);
    if sizes.len() != strides.len() {
        return Err(machine.damaged(format!("has a tensor with {} sizes and {} strides", sizes.len(), strides.len())));
    }
    Ok(Value::Tensor(Tensor { storage, offset: number(offset)?, sizes, strides }))
}

//! Layers and wiring to nodes with shapes: axes and targets that depend on an input are resolved here, and every result's shape follows.

use super::layer_keys::Pending;
use super::{HeaderError, Keys, NamedLayer, SequentialNode, SequentialSettings, shown_shape};
use crate::Dims;
use crate::arch::sequential::{Fault, NO_AXIS, NODE_LIMIT, Op, shape};
use crate::host::toml_text::{U32, U32_LIST};
use toml::Table;

/// A node before its shape is known; an input has no layer.
pub(super) struct Call {
    pub(super) layer: Option<u32>,
    pub(super) inputs: Vec<u32>,
}

/// The wiring of `count` layers one after the other.
pub(super) fn chain(count: u32) -> Vec<Call> {
    let calls = (0..count).map(|layer| Call { layer: Some(layer), inputs: vec![layer] });
    std::iter::once(Call { layer: None, inputs: Vec::new() }).chain(calls).collect()
}

/// Reads `[[node]]` tables: `input = 0`, or `layer = 7` with `inputs = [3, 5]`.
pub(super) fn calls(path: &str, tables: Vec<Table>) -> Result<Vec<Call>, HeaderError> {
    let mut calls = Vec::new();
    let mut next = 0u32;
    for (number, table) in tables.into_iter().enumerate() {
        let mut keys = Keys::new(format!("{path}[{number}]"), table);
        if let Some(input) = keys.optional("input", &U32)? {
            if input != next {
                return Err(HeaderError::wrong(keys.path_of("input"), input, format!("{next}: inputs are numbered in their order")));
            }
            next += 1;
            calls.push(Call { layer: None, inputs: Vec::new() });
        } else {
            calls.push(Call { layer: Some(keys.required("layer", &U32)?), inputs: keys.required("inputs", &U32_LIST)? });
        }
        keys.refuse_rest()?;
    }
    Ok(calls)
}

/// The model: each node's shape follows from its layer and its inputs.
pub(super) fn wire(
    path: &str,
    pending: Vec<Pending>,
    inputs: &[Vec<u32>],
    calls: Vec<Call>,
    outputs: Vec<u32>,
    labels: Vec<String>,
) -> Result<SequentialSettings, HeaderError> {
    let key = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    if calls.len() as u64 > u64::from(NODE_LIMIT) {
        return Err(HeaderError::wrong(key("node"), format!("{} nodes", calls.len()), format!("at most {NODE_LIMIT} nodes")));
    }
    let mut layers: Vec<(Pending, bool)> = pending.into_iter().map(|pending| (pending, false)).collect();
    let mut inputs = inputs.iter();
    let mut nodes: Vec<SequentialNode> = Vec::new();
    let mut tensors = vec![0; layers.len()];
    for (number, call) in calls.into_iter().enumerate() {
        let node = key(&format!("node[{number}]"));
        let shape = match call.layer {
            None => {
                let sizes =
                    inputs.next().ok_or_else(|| HeaderError::wrong(&node, "an input", "as many inputs as there are shapes of inputs"))?;
                let allowed = "1 to 4 sizes from 1 to 16777216, without the batch axis";
                shape(sizes.iter().copied()).map_err(|_| HeaderError::wrong(key("inputs"), format!("{sizes:?}"), allowed))?
            }
            Some(layer) => {
                let count = layers.len();
                let Some((pending, called)) = layers.get_mut(layer as usize) else {
                    return Err(HeaderError::wrong(format!("{node}.layer"), layer, format!("a layer from 0 to {}", count - 1)));
                };
                let late = call.inputs.iter().find(|from| **from as usize >= number);
                if let Some(late) = late {
                    return Err(HeaderError::wrong(format!("{node}.inputs"), late, format!("nodes before this one, below {number}")));
                }
                let given: Vec<Dims> = call.inputs.iter().filter_map(|from| nodes.get(*from as usize)).map(|from| from.shape).collect();
                let layer_path = key(&format!("layer[{layer}]"));
                resolve(&layer_path, pending, *called, &given)?;
                *called = true;
                if let Some(place) = tensors.get_mut(layer as usize) {
                    *place = pending.named.layer.roles().count() as u32;
                }
                pending.named.layer.check().map_err(|fault| misfit(&layer_path, &pending.named, fault, &given))?;
                pending.named.layer.output(given.iter().copied()).map_err(|fault| misfit(&layer_path, &pending.named, fault, &given))?
            }
        };
        nodes.push(SequentialNode { layer: call.layer, inputs: call.inputs, shape });
    }
    if inputs.next().is_some() {
        return Err(HeaderError::wrong(key("inputs"), "a shape that no node is the input of", "as many shapes as inputs"));
    }
    let mut first = 0;
    let mut named = Vec::new();
    for (number, ((pending, called), count)) in layers.into_iter().zip(tensors).enumerate() {
        if !called {
            return Err(HeaderError::wrong(key(&format!("layer[{number}]")), "a layer that no node calls", "layers that are called"));
        }
        let mut layer = pending.named;
        layer.layer.first_tensor = if count == 0 { 0 } else { first };
        first += count;
        named.push(layer);
    }
    Ok(SequentialSettings { layers: named, nodes, outputs, labels })
}

/// Gives axes that count from the end, and a target with a size that follows, their values; at later calls they must be the same.
fn resolve(path: &str, pending: &mut Pending, again: bool, inputs: &[Dims]) -> Result<(), HeaderError> {
    let Some(input) = inputs.first() else { return Ok(()) };
    let rank = i64::from(input.rank()) + 1;
    let mut axes = [NO_AXIS; 4];
    if pending.axes.len() > axes.len() {
        return Err(HeaderError::wrong(format!("{path}.axis"), format!("{:?}", pending.axes), "at most 4 axes"));
    }
    for (place, axis) in axes.iter_mut().zip(&pending.axes) {
        let from_start = if *axis < 0 { rank.saturating_add(*axis) } else { *axis };
        if from_start < 1 || from_start >= rank {
            let allowed = format!("an axis of {} but the batch's: 1 to {}, or -1 to {}", shown_shape(input), rank - 1, 1 - rank);
            return Err(HeaderError::wrong(format!("{path}.axis"), axis, allowed));
        }
        *place = from_start as u8 - 1;
    }
    let layer = &mut pending.named.layer;
    if again && layer.axes != axes {
        let found = "inputs of different rank, for which it means different axes";
        return Err(HeaderError::wrong(format!("{path}.axis"), found, "axes that count from the start"));
    }
    layer.axes = axes;
    if layer.op == Op::Reshape {
        let sizes = target(path, &pending.target, input)?;
        if again && layer.sizes != sizes {
            return Err(HeaderError::wrong(
                format!("{path}.target_shape"),
                "inputs for which -1 means different sizes",
                "sizes without -1",
            ));
        }
        layer.sizes = sizes;
    }
    Ok(())
}

/// The sizes of a reshape, of which one may be -1: what the others leave.
fn target(path: &str, wanted: &[i64], input: &Dims) -> Result<[u32; 9], HeaderError> {
    let wrong = |allowed: String| HeaderError::wrong(format!("{path}.target_shape"), format!("{wanted:?}"), allowed);
    let known = wanted.iter().filter(|size| **size > 0).fold(1u64, |product, size| product.saturating_mul(*size as u64));
    let open = wanted.iter().filter(|size| **size == -1).count();
    if wanted.is_empty() || wanted.len() > 4 || open > 1 || wanted.iter().any(|size| *size < -1 || *size == 0) {
        return Err(wrong("1 to 4 sizes above 0, one of which may be -1".to_owned()));
    }
    let rest = input.count() / known;
    if known.saturating_mul(if open == 1 { rest } else { 1 }) != input.count() {
        return Err(wrong(format!("as many elements as the input {} has: {}", shown_shape(input), input.count())));
    }
    let mut sizes = [0; 9];
    for (place, size) in sizes.iter_mut().zip(wanted) {
        let size = if *size == -1 { rest } else { *size as u64 };
        *place = u32::try_from(size).map_err(|_| wrong("sizes below 2^32".to_owned()))?;
    }
    Ok(sizes)
}

/// A layer that does not take its input.
fn misfit(path: &str, named: &NamedLayer, fault: Fault, inputs: &[Dims]) -> HeaderError {
    let shapes: Vec<_> = inputs.iter().map(shown_shape).collect();
    let Fault { key, rule, found, allowed } = fault;
    let shown = if inputs.is_empty() { "no input".to_owned() } else { shapes.join(", ") };
    let found = if key.is_float() { f32::from_bits(found).to_string() } else { found.to_string() };
    let what = format!("{found}, which {rule}");
    HeaderError::wrong(format!("{path}: {} of `{}`", key.name(), named.type_name), what, format!("{allowed}, for the input {shown}"))
}

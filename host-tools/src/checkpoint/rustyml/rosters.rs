//! The positions of a `RustyML` file, and those of a model as `RustyML` would write them.

use super::super::roster::{Build, Member, Position, Roster};
use super::reader::{FileLayer, Model};
use dmexp_format::Dims;
use dmexp_format::arch::sequential::{Layer, Op, Role};
use dmexp_format::host::SequentialSettings;

/// The positions of a file.
pub(super) fn file_roster(model: &Model) -> Roster {
    let positions = model.layers.iter().enumerate().map(|(number, layer)| of_file(number.to_string(), layer));
    Roster { positions: positions.collect() }
}

fn of_file(path: String, layer: &FileLayer) -> Position {
    let member = |array: &super::FileArray| Member {
        name: array.name.clone(),
        trainable: array.trainable,
        shape: array.shape.clone(),
        count: array.count,
    };
    let sublayers = layer.sublayers.iter().map(|(name, inner)| (name.clone(), of_file(format!("{path}.{name}"), inner)));
    Position {
        type_name: layer.type_name.clone(),
        build: layer.build.clone(),
        arrays: layer.arrays.iter().map(member).collect(),
        sublayers: sublayers.collect(),
        path,
    }
}

/// The positions of a model, with types, build shapes, names, kinds and shapes as `RustyML` has them.
pub(crate) fn model_roster(settings: &SequentialSettings) -> Roster {
    let positions = (0u32..).zip(&settings.layers).map(|(number, named)| {
        let inputs = settings.inputs_of(number);
        let layer = &named.layer;
        let arrays = layer.roles().filter(|role| !role.is_computed()).filter_map(|role| {
            let shape = source_shape(layer, role, *inputs.first()?)?;
            let count = shape.iter().product();
            Some(Member { name: role.name().to_owned(), trainable: role.is_trainable(), shape, count })
        });
        Position {
            path: number.to_string(),
            type_name: named.type_name.clone(),
            build: build_of(layer, &inputs),
            arrays: arrays.collect(),
            sublayers: Vec::new(),
        }
    });
    Roster { positions: positions.collect() }
}

/// What `RustyML` records of the shapes that a layer was built for.
fn build_of(layer: &Layer, inputs: &[Dims]) -> Option<Build> {
    let axes = |input: &Dims| input.as_slice().iter().map(|size| Some(u64::from(*size))).collect::<Vec<_>>();
    let with_batch = |axes: Vec<Option<u64>>| std::iter::once(None).chain(axes).collect::<Vec<_>>();
    let shapes = inputs.iter().map(|input| {
        with_batch(match layer.op {
            // Two axes whatever the input has.
            Op::Dense => vec![Some(u64::from(input.cols()))],
            // Any number of steps.
            Op::SimpleRnn | Op::Lstm | Op::Gru => vec![None, Some(u64::from(input.cols()))],
            Op::Embedding => vec![None; input.rank() as usize],
            _ => axes(input),
        })
    });
    (layer.op != Op::Rescaling).then(|| shapes.collect())
}

/// The shape that `RustyML` gives a layer's array; `None` for a role that the layer has not.
pub(crate) fn source_shape(layer: &Layer, role: Role, input: Dims) -> Option<Vec<u64>> {
    let stored: Vec<u64> = layer.tensor_dims(role, input).ok()?.as_slice().iter().map(|size| u64::from(*size)).collect();
    let (units, channels, depth) = (u64::from(layer.units), u64::from(input.cols()), u64::from(layer.depth));
    let kernel = || layer.window().into_iter().take(usize::from(layer.spatial)).map(u64::from);
    let with = |axes: [u64; 2]| kernel().chain(axes).collect();
    Some(match (layer.op, role) {
        (Op::Conv, Role::Kernel) => with([channels, units]),
        (Op::ConvTranspose, Role::Kernel) => with([units, channels]),
        (Op::DepthwiseConv, Role::Kernel) | (_, Role::DepthwiseKernel) => with([channels, depth]),
        (_, Role::PointwiseKernel) => kernel().map(|_| 1).chain([channels * depth, units]).collect(),
        (_, Role::Kernel | Role::RecurrentKernel) => stored.into_iter().rev().collect(),
        (Op::Dense | Op::SimpleRnn | Op::Lstm | Op::Gru, Role::Bias) => std::iter::once(1).chain(stored).collect(),
        _ => stored,
    })
}

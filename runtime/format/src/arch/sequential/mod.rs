//! Small networks: layers one after the other, or wired as a graph. The configuration in a format-2 index, the checks on it, and the tensors that it wants.
//!
//! The record (docs/format/index.md) has fixed-width parts: [`Layer`]s, [`Node`]s (an input, or one call of a layer), the links between them, the outputs, and the labels of the first output.
//! Nodes come in an order in which they can be computed, each with the shape of its result, so that whoever runs them infers nothing. [`Sequential::parse`] checks that what is recorded is what
//! follows from layers and inputs.

mod golden;
mod layer;
mod ops;
mod plan;
mod shapes;
mod tensors;
mod view;

#[cfg(test)]
mod tests;

pub use golden::{GOLDEN_INPUTS, GOLDEN_OUTPUTS, Samples};
pub use layer::{Flags, LAYER_RECORD_LEN, Layer, NO_AXIS, SIZE_LIMIT};
pub use ops::{Activation, Interpolation, Op, Padding};
pub use plan::{SLOT_WORDS, Slot, SlotWords, Usage, plan, scratch_words, works_in_place};
pub use shapes::{pad_before, resample_from, shape, window_len};
pub use tensors::{Role, Wanted, check_tensors};
pub use view::{HEAD_LEN, LABEL_LIMIT, LAYER_LIMIT, LINK_LIMIT, NODE_LIMIT, NODE_RECORD_LEN, Node, Sequential};

use crate::{Error, Rule};

/// What is wrong with a layer; with the layer's number it is an [`Error::Layer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Which field.
    pub key: LayerKey,
    /// What is wrong.
    pub rule: Rule,
    /// The value found (the bit pattern where the field is a float).
    pub found: u32,
    /// The value or limit allowed.
    pub allowed: u32,
}

impl Fault {
    const fn new(key: LayerKey, rule: Rule, found: u32, allowed: u32) -> Self {
        Self { key, rule, found, allowed }
    }

    /// As the error of this layer.
    pub const fn of_layer(self, layer: u32) -> Error {
        Error::Layer { layer, key: self.key, rule: self.rule, found: self.found, allowed: self.allowed }
    }
}

/// A part of the wiring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the names are the parts")]
pub enum NodeKey {
    /// The record as a whole.
    Record,
    Layers,
    Nodes,
    Links,
    Inputs,
    Outputs,
    Shape,
    Labels,
    /// Where its result and its work space lie.
    Place,
}

impl NodeKey {
    /// The part in words.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Record => "configuration record",
            Self::Layers => "layers",
            Self::Nodes => "nodes",
            Self::Links => "links",
            Self::Inputs => "inputs",
            Self::Outputs => "outputs",
            Self::Shape => "shape",
            Self::Labels => "labels",
            Self::Place => "place in the arena",
        }
    }
}

/// A field of a layer, or what it is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the names are the fields")]
pub enum LayerKey {
    Type,
    Activation,
    Flags,
    Padding,
    Interpolation,
    Units,
    Depth,
    Window,
    Strides,
    Dilation,
    /// The target of a reshape, or the shape of a result.
    Shape,
    Epsilon,
    Scale,
    Offset,
    Alpha,
    Axis,
    /// How many inputs there are.
    Inputs,
    /// How many axes an input has.
    Rank,
    /// An input's shape.
    Input,
    Tensors,
    Calls,
    Reserved,
}

impl LayerKey {
    /// The field in words.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Type => "type",
            Self::Activation => "activation",
            Self::Flags => "flags",
            Self::Padding => "padding",
            Self::Interpolation => "interpolation",
            Self::Units => "units, filters or groups",
            Self::Depth => "depth_multiplier or input_dim",
            Self::Window => "kernel, pool or amounts",
            Self::Strides => "strides",
            Self::Dilation => "dilation_rate",
            Self::Shape => "shape of the result",
            Self::Epsilon => "epsilon",
            Self::Scale => "scale",
            Self::Offset => "offset",
            Self::Alpha => "alpha or negative_slope",
            Self::Axis => "axis",
            Self::Inputs => "number of inputs",
            Self::Rank => "number of axes of the input",
            Self::Input => "shape of the input",
            Self::Tensors => "tensors",
            Self::Calls => "number of nodes that call it",
            Self::Reserved => "reserved",
        }
    }

    /// Whether the value found stands for the bits of an `f32`.
    pub const fn is_float(self) -> bool {
        matches!(self, Self::Epsilon | Self::Scale | Self::Offset | Self::Alpha)
    }
}

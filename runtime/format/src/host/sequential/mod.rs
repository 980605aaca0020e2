//! The `[config]` of a sequential model: layers, wiring and labels, owned. From tables to the index's record and back to text; `[config]` and the architecture files of importers are one schema
//! (docs/format/sequential.md).

mod layer_keys;
mod layer_text;
mod types;
mod wiring;

#[cfg(test)]
mod tests;

use super::HeaderError;
use super::toml_text::{Keys, TABLE_LIST, TEXT, TEXT_LIST, Text, U32_LIST, U32_LISTS, list, string};
use crate::Dims;
use crate::arch::sequential::{
    Fault, GOLDEN_INPUTS, GOLDEN_OUTPUTS, LABEL_LIMIT, LAYER_LIMIT, LINK_LIMIT, Layer, NODE_LIMIT, Node, Sequential, Wanted,
};
use toml::Table;

/// A sequential model apart from its tensors.
#[derive(Clone, Debug, PartialEq)]
pub struct SequentialSettings {
    /// The layers; a tensor's name begins with its layer's place.
    pub layers: Vec<NamedLayer>,
    /// The inputs and the calls of layers, in an order in which they can be computed.
    pub nodes: Vec<SequentialNode>,
    /// The nodes whose results are the model's.
    pub outputs: Vec<u32>,
    /// What the elements of the first output mean; empty where nobody said.
    pub labels: Vec<String>,
}

/// A layer with the name of its type in `RustyML`.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedLayer {
    /// `Conv1D`, `Reverse(-2)`.
    pub type_name: String,
    /// What it does.
    pub layer: Layer,
}

/// An input, or one call of a layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SequentialNode {
    /// The layer that is called; `None` for an input.
    pub layer: Option<u32>,
    /// The nodes whose results are its inputs, each before it.
    pub inputs: Vec<u32>,
    /// The shape of its result, without the batch axis.
    pub shape: Dims,
}

impl SequentialSettings {
    /// Reads the tables of a model: `kind`, `input_shape` or `inputs`, `outputs`, `classes`, `layer`, `node`. `path` is what errors call the table; "" for a file's top.
    ///
    /// # Errors
    /// [`HeaderError`] with the first key that is wrong, or the first layer that does not fit its input.
    pub fn from_table(path: &str, table: Table) -> Result<Self, HeaderError> {
        let mut keys = Keys::new(path.to_owned(), table);
        let graph = keys.named("kind", &[("sequential", false), ("graph", true)])?;
        let layers = keys.required("layer", &TABLE_LIST)?;
        if layers.is_empty() || layers.len() as u64 > u64::from(LAYER_LIMIT) {
            let allowed = format!("1 to {LAYER_LIMIT} layers");
            return Err(HeaderError::wrong(keys.path_of("layer"), format!("{} layers", layers.len()), allowed));
        }
        let (inputs, calls, outputs) = if graph {
            let inputs = keys.required("inputs", &U32_LISTS)?;
            let calls = keys.required("node", &TABLE_LIST)?;
            (inputs, wiring::calls(&keys.path_of("node"), calls)?, keys.required("outputs", &U32_LIST)?)
        } else {
            let (inputs, count) = (vec![keys.required("input_shape", &U32_LIST)?], layers.len() as u32);
            (inputs, wiring::chain(count), vec![count])
        };
        let labels = keys.optional("classes", &TEXT_LIST)?.unwrap_or_default();
        let layer_path = keys.path_of("layer");
        keys.refuse_rest()?;
        let layers = layers.into_iter().enumerate().map(|(number, table)| layer_keys::parse(format!("{layer_path}[{number}]"), table));
        let settings = wiring::wire(path, layers.collect::<Result<_, _>>()?, &inputs, calls, outputs, labels)?;
        settings.check()?;
        Ok(settings)
    }

    /// Checks what [`Sequential::parse`] checks of its record, and that labels and lists are within their limits.
    ///
    /// # Errors
    /// [`HeaderError`] with the first thing that is wrong.
    pub fn check(&self) -> Result<(), HeaderError> {
        for (name, count, limit) in [
            ("layers", self.layers.len(), LAYER_LIMIT),
            ("nodes", self.nodes.len(), NODE_LIMIT),
            ("outputs", self.outputs.len(), NODE_LIMIT),
            ("inputs of a node", self.nodes.iter().map(|node| node.inputs.len()).max().unwrap_or(0), LINK_LIMIT),
        ] {
            if count as u64 > u64::from(limit) {
                return Err(HeaderError::wrong(format!("config: {name}"), count, format!("at most {limit}")));
            }
        }
        if let Some(label) = self.labels.iter().find(|label| label.is_empty() || label.len() as u64 > u64::from(LABEL_LIMIT)) {
            return Err(HeaderError::wrong("config.classes", string(label), format!("texts of 1 to {LABEL_LIMIT} bytes")));
        }
        Sequential::parse(&self.to_record())?;
        Ok(())
    }

    /// The configuration record of the index.
    pub fn to_record(&self) -> Vec<u8> {
        let links: Vec<u32> = self.nodes.iter().flat_map(|node| node.inputs.iter().copied()).collect();
        let labels: Vec<u8> = self.labels.iter().flat_map(|label| std::iter::once(label.len() as u8).chain(label.bytes())).collect();
        let counts = [self.layers.len(), self.nodes.len(), links.len(), self.outputs.len(), self.labels.len(), labels.len(), 0, 0];
        let mut record: Vec<u8> = counts.into_iter().flat_map(|count| (count as u32).to_le_bytes()).collect();
        record.extend(self.layers.iter().flat_map(|named| named.layer.to_record()));
        let mut first = 0u32;
        for node in &self.nodes {
            let count = node.inputs.len();
            let compact = match node.layer {
                None => Node::input(node.shape),
                Some(layer) => Node::call(layer, first, count as u16, node.shape),
            };
            record.extend(compact.to_record());
            first += count as u32;
        }
        record.extend(links.into_iter().chain(self.outputs.iter().copied()).flat_map(u32::to_le_bytes));
        record.extend(labels);
        record.resize(record.len().next_multiple_of(4), 0);
        record
    }

    /// The tensors that the layers want, in the file's order.
    ///
    /// # Errors
    /// [`Fault`] of the layer with this number where dims are past the limits.
    pub fn tensors(&self) -> Result<Vec<Wanted>, (u32, Fault)> {
        let mut wanted = Vec::new();
        for (number, named) in (0u32..).zip(&self.layers) {
            let Some(input) = self.input_of(number) else { continue };
            for role in named.layer.roles() {
                let dims = named.layer.tensor_dims(role, input).map_err(|fault| (number, fault))?;
                wanted.push(Wanted { layer: number, role, dims });
            }
        }
        Ok(wanted)
    }

    /// The golden vectors of `samples` samples: names and dims, those of the inputs first.
    pub fn golden_tensors(&self, samples: u32) -> impl Iterator<Item = (String, Dims)> {
        let inputs =
            self.nodes.iter().filter(|node| node.layer.is_none()).enumerate().map(|(place, node)| (GOLDEN_INPUTS, place, node.shape));
        let outputs = self.shapes(&self.outputs).into_iter().enumerate().map(|(place, shape)| (GOLDEN_OUTPUTS, place, shape));
        inputs.chain(outputs).map(move |(prefix, place, shape)| {
            (format!("{prefix}{place}"), Dims::matrix(samples, u32::try_from(shape.count()).unwrap_or(u32::MAX)))
        })
    }

    /// The shapes of the inputs of the first call of layer `number`.
    pub fn inputs_of(&self, number: u32) -> Vec<Dims> {
        let call = self.nodes.iter().find(|node| node.layer == Some(number));
        call.map_or_else(Vec::new, |node| self.shapes(&node.inputs))
    }

    fn input_of(&self, number: u32) -> Option<Dims> {
        self.inputs_of(number).first().copied()
    }

    /// The shapes of the results of these nodes.
    pub fn shapes(&self, nodes: &[u32]) -> Vec<Dims> {
        nodes.iter().filter_map(|node| self.nodes.get(*node as usize)).map(|node| node.shape).collect()
    }

    /// Whether it is one input and its layers one after the other: what `RustyML` calls `Sequential`.
    pub fn is_chain(&self) -> bool {
        let count = self.layers.len() as u32;
        let calls = wiring::chain(count);
        let same = self.nodes.iter().zip(&calls).all(|(node, call)| node.layer == call.layer && node.inputs == call.inputs);
        same && self.nodes.len() == calls.len() && self.outputs == [count]
    }

    pub(super) fn write(&self, text: &mut Text) {
        text.head("[config]");
        let chain = self.is_chain();
        text.text("kind", if chain { "sequential" } else { "graph" });
        let sizes = |shape: &Dims| list(shape.as_slice(), u32::to_string);
        let inputs: Vec<Dims> = self.nodes.iter().filter(|node| node.layer.is_none()).map(|node| node.shape).collect();
        if chain {
            text.raw("input_shape", &inputs.first().map_or_else(String::new, sizes));
        } else {
            text.raw("inputs", &list(&inputs, sizes));
            text.raw("outputs", &list(&self.outputs, u32::to_string));
        }
        if !self.labels.is_empty() {
            text.raw("classes", &list(&self.labels, |label| string(label)));
        }
        for named in &self.layers {
            text.head("[[config.layer]]");
            layer_text::write(text, named);
        }
        if !chain {
            let mut input = 0;
            for node in &self.nodes {
                text.head("[[config.node]]");
                match node.layer {
                    None => {
                        text.plain("input", input);
                        input += 1;
                    }
                    Some(layer) => {
                        text.plain("layer", layer);
                        text.raw("inputs", &list(&node.inputs, u32::to_string));
                    }
                }
            }
        }
    }
}

/// The keys of a layer's table, one a line: `type = "Dense"`, `units = 3`.
pub fn layer_text(named: &NamedLayer) -> String {
    let mut text = Text::default();
    layer_text::write(&mut text, named);
    text.0
}

/// Whether `RustyML`'s format 3 knows a type of this name; `None` for no type at all. `Reverse` has its axis with it.
pub fn type_in_format_3(type_name: &str) -> Option<bool> {
    let stem = type_name.split_once('(').map_or(type_name, |(stem, _)| stem);
    types::of(stem).map(|_| !types::SINCE_FORMAT_4.contains(&type_name))
}

/// A shape as `RustyML` prints it, batch axis first: `(None, 49, 10)`.
pub fn shown_shape(shape: &Dims) -> String {
    let sizes: Vec<_> = shape.as_slice().iter().map(|size| format!(", {size}")).collect();
    format!("(None{})", sizes.concat())
}

/// The type of the layer in `table`, without the axis that `RustyML` adds to some.
fn type_key(keys: &mut Keys) -> Result<String, HeaderError> {
    keys.required("type", &TEXT)
}

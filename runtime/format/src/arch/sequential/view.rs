//! The checked view of a sequential configuration record.

use super::layer::{LAYER_RECORD_LEN, Layer};
use super::{LayerKey, NodeKey};
use crate::bytes::{array, part, u16_at, u32_at};
use crate::{Dims, Error, Rule};

/// Bytes of the record's head: six counts.
pub const HEAD_LEN: usize = 32;
/// Bytes of a node's record.
pub const NODE_RECORD_LEN: usize = 28;
/// The most layers.
pub const LAYER_LIMIT: u32 = 1024;
/// The most nodes.
pub const NODE_LIMIT: u32 = 4096;
/// The most inputs of one node.
pub const LINK_LIMIT: u32 = 1024;
/// The longest label in bytes.
pub const LABEL_LIMIT: u32 = 255;

/// Stands for "no layer" in a node's record: an input.
const INPUT: u32 = u32::MAX;

/// An input of the model, or one call of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    layer: u32,
    first_link: u32,
    links: u16,
    shape: Dims,
}

impl Node {
    /// An input of this shape.
    pub const fn input(shape: Dims) -> Self {
        Self { layer: INPUT, first_link: 0, links: 0, shape }
    }

    /// A call of `layer` whose `links` inputs begin at `first_link` in the list of links, and whose result has this shape.
    pub const fn call(layer: u32, first_link: u32, links: u16, shape: Dims) -> Self {
        Self { layer, first_link, links, shape }
    }

    /// The layer that it calls; `None` for an input of the model.
    pub const fn layer(&self) -> Option<u32> {
        if self.layer == INPUT { None } else { Some(self.layer) }
    }

    /// The shape of its result, without the batch axis.
    pub const fn shape(&self) -> Dims {
        self.shape
    }

    fn from_record(record: &[u8; NODE_RECORD_LEN], node: u32) -> Result<Self, Error> {
        let (links, rank) = (u16_at(record, 8), u16_at(record, 10));
        let sizes = [u32_at(record, 12), u32_at(record, 16), u32_at(record, 20), u32_at(record, 24)];
        let wrong = |rule, found, allowed| Error::Node { node, key: NodeKey::Shape, rule, found, allowed };
        let shape = Dims::new(0, u32::from(rank), sizes).map_err(|_| wrong(Rule::Rank, u32::from(rank), 4))?;
        if shape.padded() != sizes {
            return Err(wrong(Rule::Rank, u32::from(rank), 4));
        }
        Ok(Self { layer: u32_at(record, 0), first_link: u32_at(record, 4), links, shape })
    }

    /// The record.
    pub fn to_record(&self) -> [u8; NODE_RECORD_LEN] {
        let [a, b, c, d] = self.shape.padded();
        let mut record = [0; NODE_RECORD_LEN];
        let packed = u32::from(self.links) | self.shape.rank() << 16;
        for (bytes, word) in record.chunks_exact_mut(4).zip([self.layer, self.first_link, packed, a, b, c, d]) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        record
    }
}

/// A sequential configuration, checked. Small and borrowed: pass it by value.
#[derive(Clone, Copy, Debug)]
pub struct Sequential<'a> {
    layers: &'a [u8],
    nodes: &'a [u8],
    links: &'a [u8],
    outputs: &'a [u8],
    labels: &'a [u8],
    num_labels: u32,
}

impl<'a> Sequential<'a> {
    /// Checks a configuration record: every layer by itself, every node's inputs, and that each node's shape is the one that follows.
    ///
    /// # Errors
    /// [`Error::Node`] with [`NodeKey::Record`] where the parts do not fit the record, [`Error::Layer`], [`Error::Node`]: the first thing that is wrong.
    pub fn parse(record: &'a [u8]) -> Result<Self, Error> {
        let model = Self::split(record)?;
        model.check_layers()?;
        model.check_nodes()?;
        model.check_outputs()?;
        model.check_labels()?;
        Ok(model)
    }

    /// The parts of the record, which must fill it.
    fn split(record: &'a [u8]) -> Result<Self, Error> {
        let [layers, nodes, links, outputs, num_labels, labels_len, r0, r1] = [0, 4, 8, 12, 16, 20, 24, 28].map(|at| u32_at(record, at));
        for (key, count, least, most) in [
            (NodeKey::Layers, layers, 1, LAYER_LIMIT),
            (NodeKey::Nodes, nodes, 2, NODE_LIMIT),
            (NodeKey::Outputs, outputs, 1, NODE_LIMIT),
            (NodeKey::Links, links, 1, NODE_LIMIT.saturating_mul(LINK_LIMIT)),
        ] {
            if count < least || count > most {
                return Err(whole(key, Rule::Range, count, most));
            }
        }
        if r0 | r1 != 0 {
            return Err(whole(NodeKey::Record, Rule::Zero, r0 | r1, 0));
        }
        let mut at = HEAD_LEN;
        let mut cut = |count: u32, size: usize| {
            let found = part(record, at, (count as usize).checked_mul(size)?)?;
            at = at.checked_add(found.len())?;
            Some(found)
        };
        let parts = (|| {
            let (layers, nodes) = (cut(layers, LAYER_RECORD_LEN)?, cut(nodes, NODE_RECORD_LEN)?);
            let (links, outputs) = (cut(links, 4)?, cut(outputs, 4)?);
            Some(Self { layers, nodes, links, outputs, labels: cut(labels_len, 1)?, num_labels })
        })();
        let short = |at: usize| whole(NodeKey::Record, Rule::Length, record.len() as u32, at as u32);
        let Some(model) = parts else { return Err(short(at)) };
        let (_, padding) = record.split_at_checked(at).unwrap_or_default();
        if record.len() != at.saturating_add(3) & !3 || padding.iter().any(|byte| *byte != 0) {
            return Err(short(at));
        }
        Ok(model)
    }

    fn check_layers(&self) -> Result<(), Error> {
        let mut next = 0u32;
        for (number, record) in (0u32..).zip(self.layers.as_chunks::<LAYER_RECORD_LEN>().0) {
            let layer = Layer::from_record(record).map_err(|fault| fault.of_layer(number))?;
            let tensors = layer.roles().count() as u32;
            let expected = if tensors == 0 { 0 } else { next };
            if layer.first_tensor != expected {
                let (key, found) = (LayerKey::Tensors, layer.first_tensor);
                return Err(Error::Layer { layer: number, key, rule: Rule::Equal, found, allowed: expected });
            }
            next = next.saturating_add(tensors);
            if !self.nodes().any(|node| node.layer == number) {
                return Err(Error::Layer { layer: number, key: LayerKey::Calls, rule: Rule::NotZero, found: 0, allowed: 1 });
            }
        }
        Ok(())
    }

    fn check_nodes(&self) -> Result<(), Error> {
        let mut link = 0u32;
        for (number, record) in (0u32..).zip(self.nodes.as_chunks::<NODE_RECORD_LEN>().0) {
            let node = Node::from_record(record, number)?;
            let wrong = |key, rule, found, allowed| Err(Error::Node { node: number, key, rule, found, allowed });
            let Some(layer_number) = node.layer() else {
                if node.links != 0 || node.first_link != 0 {
                    return wrong(NodeKey::Links, Rule::Zero, u32::from(node.links).max(node.first_link), 0);
                }
                continue;
            };
            let Some(layer) = self.layer(layer_number) else {
                return wrong(NodeKey::Layers, Rule::TooLarge, layer_number, self.num_layers().saturating_sub(1));
            };
            if node.first_link != link {
                return wrong(NodeKey::Links, Rule::Equal, node.first_link, link);
            }
            link = link.saturating_add(u32::from(node.links));
            if link > self.num_links() {
                return wrong(NodeKey::Links, Rule::TooLarge, link, self.num_links());
            }
            if let Some(late) = self.links_of(&node).find(|from| *from >= number) {
                return wrong(NodeKey::Inputs, Rule::Order, late, number);
            }
            let inputs = self.links_of(&node).filter_map(|from| self.node(from)).map(|from| from.shape);
            let shape = layer.output(inputs).map_err(|fault| fault.of_layer(layer_number))?;
            if !shape.equals(&node.shape) {
                return Err(Error::NodeShape { node: number, found: node.shape.padded(), expected: shape.padded() });
            }
        }
        if link == self.num_links() { Ok(()) } else { Err(whole(NodeKey::Links, Rule::Equal, self.num_links(), link)) }
    }

    fn check_outputs(&self) -> Result<(), Error> {
        let nodes = self.num_nodes();
        match self.outputs().find(|output| *output >= nodes) {
            Some(output) => Err(whole(NodeKey::Outputs, Rule::TooLarge, output, nodes.saturating_sub(1))),
            None => Ok(()),
        }
    }

    /// As many labels as the last axis of the first output has elements, or none.
    fn check_labels(&self) -> Result<(), Error> {
        let mut rest = self.labels;
        let mut count = 0u32;
        while !rest.is_empty() {
            let Some((label, after)) = split_label(rest) else {
                return Err(whole(NodeKey::Labels, Rule::Utf8, count, self.num_labels));
            };
            if label.is_empty() {
                return Err(whole(NodeKey::Labels, Rule::NotZero, count, self.num_labels));
            }
            count = count.saturating_add(1);
            rest = after;
        }
        if count != self.num_labels {
            return Err(whole(NodeKey::Labels, Rule::Equal, self.num_labels, count));
        }
        let classes = self.outputs().next().and_then(|output| self.node(output)).map_or(0, |node| node.shape.cols());
        if count == 0 || count == classes { Ok(()) } else { Err(whole(NodeKey::Labels, Rule::Equal, count, classes)) }
    }

    /// How many layers.
    pub const fn num_layers(&self) -> u32 {
        (self.layers.len() / LAYER_RECORD_LEN) as u32
    }

    /// How many nodes.
    pub const fn num_nodes(&self) -> u32 {
        (self.nodes.len() / NODE_RECORD_LEN) as u32
    }

    const fn num_links(&self) -> u32 {
        (self.links.len() / 4) as u32
    }

    /// How many tensors the layers want.
    pub fn num_tensors(&self) -> u32 {
        self.layers().fold(0, |sum, layer| sum.saturating_add(layer.roles().count() as u32))
    }

    /// Layer `number`; `None` only past the last.
    pub fn layer(&self, number: u32) -> Option<Layer> {
        let record = array::<LAYER_RECORD_LEN>(self.layers, (number as usize).checked_mul(LAYER_RECORD_LEN)?)?;
        Layer::from_record(&record).ok()
    }

    /// All layers, in the order of their numbers.
    pub fn layers(&self) -> impl Iterator<Item = Layer> + Clone + use<'a> {
        self.layers.as_chunks::<LAYER_RECORD_LEN>().0.iter().map_while(|record| Layer::from_record(record).ok())
    }

    /// Node `number`; `None` only past the last.
    pub fn node(&self, number: u32) -> Option<Node> {
        let record = array::<NODE_RECORD_LEN>(self.nodes, (number as usize).checked_mul(NODE_RECORD_LEN)?)?;
        Node::from_record(&record, number).ok()
    }

    /// All nodes, in an order in which they can be computed.
    pub fn nodes(&self) -> impl Iterator<Item = Node> + Clone + use<'a> {
        self.nodes.as_chunks::<NODE_RECORD_LEN>().0.iter().map_while(|record| Node::from_record(record, 0).ok())
    }

    /// The nodes whose results are the inputs of `node`, each before it; none of an input.
    pub fn links_of(&self, node: &Node) -> impl Iterator<Item = u32> + Clone + use<'a> {
        let links = self.links.as_chunks::<4>().0;
        links.iter().skip(node.first_link as usize).take(usize::from(node.links)).map(|word| u32::from_le_bytes(*word))
    }

    /// The shape of the first input of node `number`; `None` for an input of the model.
    pub fn input_shape(&self, number: u32) -> Option<Dims> {
        let node = self.node(number)?;
        self.node(self.links_of(&node).next()?).map(|from| from.shape)
    }

    /// The nodes that are the model's inputs, in the order in which they are given.
    pub fn inputs(&self) -> impl Iterator<Item = u32> + Clone + use<'a> {
        (0u32..).zip(self.nodes()).filter(|(_, node)| node.layer().is_none()).map(|(number, _)| number)
    }

    /// The nodes whose results are the model's.
    pub fn outputs(&self) -> impl Iterator<Item = u32> + Clone + use<'a> {
        self.outputs.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word))
    }

    /// What the elements of the first output mean, in order; none where the model does not say.
    pub fn labels(&self) -> impl Iterator<Item = &'a str> + Clone + use<'a> {
        let mut rest = self.labels;
        core::iter::from_fn(move || {
            let (label, after) = split_label(rest)?;
            rest = after;
            Some(label)
        })
    }

    /// Whether it is one input and its layers one after the other, each called once: what `RustyML` calls `Sequential`.
    pub fn is_chain(&self) -> bool {
        let chained = (0u32..).zip(self.nodes()).all(|(number, node)| match (number.checked_sub(1), node.layer()) {
            (None, None) => true,
            (Some(before), Some(layer)) => layer == before && self.links_of(&node).eq([before]),
            _ => false,
        });
        chained && self.num_nodes() == self.num_layers().saturating_add(1) && self.outputs().eq([self.num_layers()])
    }
}

/// A label and what follows it: its length in one byte, then UTF-8.
fn split_label(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let (len, rest) = bytes.split_first()?;
    let (label, rest) = rest.split_at_checked(usize::from(*len))?;
    Some((core::str::from_utf8(label).ok()?, rest))
}

const fn whole(key: NodeKey, rule: Rule, found: u32, allowed: u32) -> Error {
    Error::Node { node: u32::MAX, key, rule, found, allowed }
}

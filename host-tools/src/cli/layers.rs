//! The layers of a sequential model, node by node, as `dmexp export info` lists them.

use super::output::{grouped, shown, table};
use dmexp_format::arch::sequential::{Activation, Flags, Layer, Op, Padding, Sequential};
use dmexp_format::host::sequential::shown_shape;
use serde_json::{Value, json};

/// What is said of one node.
struct Line {
    name: String,
    layer: Option<u32>,
    inputs: Vec<u32>,
    shape: String,
    params: u64,
    macs: u64,
    settings: String,
}

/// One line a node; `names` are `RustyML`'s names of the types, where the file has a header.
fn lines(model: &Sequential<'_>, names: &[String]) -> Vec<Line> {
    let of = |(number, node): (u32, dmexp_format::arch::sequential::Node)| {
        let (layer_number, shape) = (node.layer(), shown_shape(&node.shape()));
        let inputs: Vec<u32> = model.links_of(&node).collect();
        let layer = layer_number.and_then(|layer| model.layer(layer));
        let Some((layer_number, layer)) = layer_number.zip(layer) else {
            return Line { name: "input".to_owned(), layer: None, inputs, shape, params: 0, macs: 0, settings: String::new() };
        };
        let input = model.input_shape(number);
        let roles = layer.roles().filter(|role| !role.is_computed());
        let sizes = roles.filter_map(|role| layer.tensor_dims(role, input?).ok()).map(|dims| dims.count());
        let name = names.get(layer_number as usize).cloned().unwrap_or_else(|| format!("{:?}", layer.op));
        let macs = input.map_or(0, |input| layer.macs(input, node.shape()));
        Line { name, layer: Some(layer_number), inputs, shape, params: sizes.sum(), macs, settings: settings(&layer) }
    };
    (0u32..).zip(model.nodes()).map(of).collect()
}

/// What is worth knowing beside the shape.
fn settings(layer: &Layer) -> String {
    let mut words = Vec::new();
    let row =
        |sizes: [u32; 3]| sizes.into_iter().take(usize::from(layer.spatial)).map(|size| size.to_string()).collect::<Vec<_>>().join("x");
    match layer.op {
        Op::Conv | Op::ConvTranspose | Op::DepthwiseConv | Op::SeparableConv | Op::MaxPooling | Op::AveragePooling => {
            words.push(format!("window {}", row(layer.window())));
            words.push(format!("stride {}", row(layer.strides())));
            if layer.dilation().into_iter().any(|size| size > 1) {
                words.push(format!("dilation {}", row(layer.dilation())));
            }
            if layer.padding != Padding::Valid {
                words.push(format!("padding {}", layer.padding.name()));
            }
        }
        Op::ZeroPadding | Op::Cropping => words.push(format!("{} before, {} after", row(layer.window()), row(layer.strides()))),
        Op::UpSampling => words.push(format!("by {}, {}", row(layer.window()), layer.interpolation.name())),
        Op::BatchNormalization | Op::LayerNormalization | Op::GroupNormalization | Op::InstanceNormalization => {
            words.push(format!("epsilon {}", layer.a));
        }
        Op::Rescaling => words.push(format!("scale {}, offset {}", layer.a, layer.b)),
        _ => {}
    }
    if layer.op == Op::GroupNormalization {
        words.push(format!("{} groups", layer.units));
    }
    let axes: Vec<String> = layer.used_axes().map(|axis| (u32::from(axis) + 1).to_string()).collect();
    if !axes.is_empty() {
        words.push(format!("axes {}", axes.join(" ")));
    }
    if layer.activation != Activation::Linear {
        let number = if layer.activation.has_parameter() { format!(" {}", layer.a) } else { String::new() };
        words.push(format!("{}{number}", layer.activation.name()));
    }
    for (flag, word) in [(Flags::SEQUENCES, "every step"), (Flags::BACKWARDS, "from the end")] {
        if layer.flags.has(flag) {
            words.push(word.to_owned());
        }
    }
    words.join(", ")
}

fn joined(inputs: &[u32]) -> String {
    inputs.iter().map(u32::to_string).collect::<Vec<_>>().join(" ")
}

/// The table.
pub(super) fn layer_table(model: &Sequential<'_>, names: &[String]) -> String {
    let header = ["node", "layer", "type", "inputs", "shape", "parameters", "MACs", "settings"];
    let lines = lines(model, names);
    // A layer that several nodes call has its parameters once.
    let mut seen = Vec::new();
    let mut total = (0u64, 0u64);
    for line in &lines {
        if !seen.contains(&line.layer) {
            seen.push(line.layer);
            total.0 = total.0.saturating_add(line.params);
        }
        total.1 = total.1.saturating_add(line.macs);
    }
    let rows = (0u32..).zip(lines).map(|(number, line)| {
        let layer = line.layer.map_or_else(|| "-".to_owned(), |layer| layer.to_string());
        let (params, macs) = (grouped(line.params), grouped(line.macs));
        [number.to_string(), layer, shown(&line.name), joined(&line.inputs), line.shape, params, macs, line.settings]
    });
    let empty = String::new;
    let sums = [empty(), empty(), "all".to_owned(), empty(), empty(), grouped(total.0), grouped(total.1), empty()];
    table(header, &[0, 1, 5, 6], rows.chain([sums]))
}

/// The same as JSON.
pub(super) fn layer_json(model: &Sequential<'_>, names: &[String]) -> Value {
    let nodes = (0u32..).zip(lines(model, names)).map(|(number, line)| {
        let shape = model.node(number).map(|node| node.shape());
        json!({
            "node": number,
            "layer": line.layer,
            "type": line.name,
            "inputs": line.inputs,
            "shape": shape.map(|shape| shape.as_slice().to_vec()),
            "parameters": line.params,
            "macs": line.macs,
            "settings": line.settings,
        })
    });
    json!({
        "nodes": nodes.collect::<Vec<_>>(),
        "outputs": model.outputs().collect::<Vec<_>>(),
        "labels": model.labels().collect::<Vec<_>>(),
    })
}

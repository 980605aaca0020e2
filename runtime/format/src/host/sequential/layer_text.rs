//! A layer to the keys of its `[[layer]]` table: all of them, so that nothing is implied.

use super::{NamedLayer, list};
use crate::arch::sequential::{Activation, Flags, Layer, Op};
use crate::host::toml_text::Text;

pub(super) fn write(text: &mut Text, named: &NamedLayer) {
    let layer = &named.layer;
    let (type_name, reversed) = match named.type_name.strip_suffix(')').and_then(|name| name.split_once('(')) {
        Some((name, axis)) => (name, Some(axis)),
        None => (named.type_name.as_str(), None),
    };
    text.text("type", type_name);
    let axes: Vec<u32> = layer.used_axes().map(|axis| u32::from(axis) + 1).collect();
    match layer.op {
        Op::Dense | Op::SimpleRnn | Op::Lstm | Op::Gru => text.plain("units", layer.units),
        Op::Conv | Op::ConvTranspose | Op::DepthwiseConv | Op::SeparableConv => write_convolution(text, layer),
        Op::MaxPooling | Op::AveragePooling => {
            write_sizes(text, layer, "pool_size", "pool_size", layer.window());
            write_sizes(text, layer, "stride", "strides", layer.strides());
            text.text("padding", layer.padding.name());
        }
        Op::BatchNormalization | Op::InstanceNormalization | Op::GroupNormalization | Op::LayerNormalization => {
            text.float("epsilon", layer.a);
            text.plain("center", layer.flags.has(Flags::CENTER));
            text.plain("scale", layer.flags.has(Flags::SCALE));
            if layer.op == Op::GroupNormalization {
                text.plain("num_groups", layer.units);
            }
            if layer.op == Op::LayerNormalization {
                text.raw("axis", &list(&axes, u32::to_string));
            }
        }
        Op::UnitNormalization => text.raw("axis", &list(&axes, u32::to_string)),
        Op::Embedding => {
            text.plain("input_dim", layer.depth);
            text.plain("output_dim", layer.units);
        }
        Op::PRelu => text.raw("shared_axes", &list(&axes, u32::to_string)),
        Op::Activation => match layer.activation {
            Activation::LeakyRelu => text.float("negative_slope", layer.a),
            Activation::Elu => text.float("alpha", layer.a),
            Activation::Softmax => axes.iter().for_each(|axis| text.plain("axis", axis)),
            Activation::Gelu | Activation::GeluTanh => text.plain("approximate", layer.activation == Activation::GeluTanh),
            _ => {}
        },
        Op::Reshape => {
            let sizes: Vec<u32> = layer.sizes.into_iter().take_while(|size| *size != 0).collect();
            text.raw("target_shape", &list(&sizes, u32::to_string));
        }
        Op::Permute => text.raw("dims", &list(&axes, u32::to_string)),
        Op::RepeatVector => text.plain("n", layer.units),
        Op::Rescaling => {
            text.float("scale", layer.a);
            text.float("offset", layer.b);
        }
        Op::Reverse => text.raw("axis", reversed.unwrap_or_default()),
        Op::ZeroPadding => write_amounts(text, layer, "padding"),
        Op::Cropping => write_amounts(text, layer, "cropping"),
        Op::UpSampling => {
            write_sizes(text, layer, "size", "size", layer.window());
            if layer.spatial == 2 {
                text.text("interpolation", layer.interpolation.name());
            }
        }
        Op::Concatenate => axes.iter().for_each(|axis| text.plain("axis", axis)),
        _ => {}
    }
    match layer.op {
        Op::Dense | Op::Conv | Op::ConvTranspose | Op::DepthwiseConv | Op::SeparableConv => {
            write_activation(text, layer);
            text.plain("use_bias", layer.flags.has(Flags::BIAS));
        }
        Op::SimpleRnn | Op::Lstm | Op::Gru => {
            write_activation(text, layer);
            text.plain("return_sequences", layer.flags.has(Flags::SEQUENCES));
            text.plain("go_backwards", layer.flags.has(Flags::BACKWARDS));
        }
        _ => {}
    }
}

fn write_convolution(text: &mut Text, layer: &Layer) {
    if layer.op != Op::DepthwiseConv {
        text.plain("filters", layer.units);
    }
    if matches!(layer.op, Op::DepthwiseConv | Op::SeparableConv) {
        text.plain("depth_multiplier", layer.depth);
    }
    write_sizes(text, layer, "kernel_size", "kernel_size", layer.window());
    write_sizes(text, layer, "stride", "strides", layer.strides());
    write_sizes(text, layer, "dilation_rate", "dilation_rate", layer.dilation());
    text.text("padding", layer.padding.name());
}

fn write_activation(text: &mut Text, layer: &Layer) {
    text.text("activation", layer.activation.name());
    match layer.activation {
        Activation::LeakyRelu => text.float("negative_slope", layer.a),
        Activation::Elu => text.float("alpha", layer.a),
        _ => {}
    }
}

fn write_sizes(text: &mut Text, layer: &Layer, one: &str, more: &str, sizes: [u32; 3]) {
    let sizes: Vec<u32> = sizes.into_iter().take(usize::from(layer.spatial)).collect();
    match sizes.as_slice() {
        [size] => text.plain(one, size),
        sizes => text.raw(more, &list(sizes, u32::to_string)),
    }
}

fn write_amounts(text: &mut Text, layer: &Layer, key: &str) {
    let pairs = layer.window().into_iter().zip(layer.strides()).take(usize::from(layer.spatial));
    let pairs: Vec<String> = pairs.map(|(before, after)| format!("[{before}, {after}]")).collect();
    match pairs.as_slice() {
        [pair] => text.raw(key, pair),
        pairs => text.raw(key, &list(pairs, String::clone)),
    }
}

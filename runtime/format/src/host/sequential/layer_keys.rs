//! The keys of a `[[layer]]` table to a layer.

use super::types;
use super::{HeaderError, Keys, NamedLayer, string, type_key};
use crate::arch::sequential::{Activation, Flags, Interpolation, Layer, Op, Padding};
use crate::host::toml_text::{BOOL, I64, I64_LIST, NUMBER, NUMBERS_OR_ONE, PAIR, PAIRS, TEXT, U32, U32_LIST};
use toml::Table;

/// A layer whose axes and target may depend on its input.
pub(super) struct Pending {
    pub(super) named: NamedLayer,
    /// As written: the batch counts, and below 0 they count from the end.
    pub(super) axes: Vec<i64>,
    /// Of a reshape, as written.
    pub(super) target: Vec<i64>,
}

/// The keys of one layer.
pub(super) fn parse(path: String, table: Table) -> Result<Pending, HeaderError> {
    let mut keys = Keys::new(path, table);
    let mut type_name = type_key(&mut keys)?;
    let Some((op, spatial, activation)) = types::of(&type_name) else {
        return Err(HeaderError::wrong(keys.path_of("type"), string(&type_name), "a layer type of RustyML 0.16 or 0.17"));
    };
    let mut layer = Layer { spatial, activation, ..Layer::new(op) };
    let (mut axes, mut target) = (Vec::new(), Vec::new());
    match op {
        Op::Dense => {
            layer.units = keys.required("units", &U32)?;
            parse_activation(&mut keys, &mut layer, Some(Activation::Linear))?;
            layer.flags = bias(&mut keys)?;
        }
        Op::Conv | Op::ConvTranspose | Op::DepthwiseConv | Op::SeparableConv => parse_convolution(&mut keys, &mut layer)?,
        Op::MaxPooling | Op::AveragePooling => {
            let pool = spatial_sizes(&mut keys, "pool_size", "pool_size", spatial, None)?;
            let strides = spatial_sizes(&mut keys, "stride", "strides", spatial, Some(pool))?;
            layer.sizes = rows([pool, strides, [0; 3]]);
            layer.padding = parse_padding(&mut keys)?;
        }
        Op::BatchNormalization | Op::InstanceNormalization | Op::GroupNormalization | Op::LayerNormalization => {
            layer.a = keys.required("epsilon", &NUMBER)?;
            let (center, scale) = (keys.optional("center", &BOOL)?.unwrap_or(true), keys.optional("scale", &BOOL)?.unwrap_or(true));
            layer.flags = Flags::default().with(Flags::SCALE, scale).with(Flags::CENTER, center);
            match op {
                Op::BatchNormalization => keys.ignored("momentum", &NUMBER)?,
                Op::GroupNormalization => layer.units = keys.required("num_groups", &U32)?,
                Op::LayerNormalization => axes = keys.optional("axis", &NUMBERS_OR_ONE)?.unwrap_or_else(|| vec![-1]),
                _ => {}
            }
        }
        Op::UnitNormalization => axes = keys.optional("axis", &NUMBERS_OR_ONE)?.unwrap_or_else(|| vec![-1]),
        Op::SimpleRnn | Op::Lstm | Op::Gru => {
            layer.units = keys.required("units", &U32)?;
            parse_activation(&mut keys, &mut layer, None)?;
            let mut flag = |key| keys.optional(key, &BOOL).map(Option::unwrap_or_default);
            let (sequences, backwards) = (flag("return_sequences")?, flag("go_backwards")?);
            layer.flags = Flags::default().with(Flags::SEQUENCES, sequences).with(Flags::BACKWARDS, backwards);
        }
        Op::Embedding => {
            layer.depth = keys.required("input_dim", &U32)?;
            layer.units = keys.required("output_dim", &U32)?;
        }
        Op::PRelu => {
            axes = keys.optional("shared_axes", &I64_LIST)?.unwrap_or_default();
            keys.ignored("alpha", &NUMBER)?;
        }
        Op::Activation => match activation {
            Activation::LeakyRelu => layer.a = keys.optional("negative_slope", &NUMBER)?.unwrap_or(0.3),
            Activation::Elu => layer.a = keys.optional("alpha", &NUMBER)?.unwrap_or(1.0),
            Activation::Softmax => axes = vec![keys.optional("axis", &I64)?.unwrap_or(-1)],
            Activation::Gelu if keys.optional("approximate", &BOOL)?.unwrap_or(false) => layer.activation = Activation::GeluTanh,
            _ => {}
        },
        Op::Identity => {
            if type_name == "GaussianNoise" {
                keys.ignored("stddev", &NUMBER)?;
            } else if type_name.ends_with("Dropout") || type_name.starts_with("SpatialDropout") {
                keys.ignored("rate", &NUMBER)?;
            }
        }
        Op::Reshape => target = keys.required("target_shape", &I64_LIST)?,
        Op::Permute => axes = keys.required("dims", &I64_LIST)?,
        Op::RepeatVector => layer.units = keys.required("n", &U32)?,
        Op::Rescaling => {
            layer.a = keys.required("scale", &NUMBER)?;
            layer.b = keys.optional("offset", &NUMBER)?.unwrap_or(0.0);
        }
        Op::Reverse => {
            let axis = keys.required("axis", &I64)?;
            // RustyML's name of the type has the axis as it was given.
            type_name = format!("Reverse({axis})");
            axes = vec![axis];
        }
        Op::ZeroPadding => layer.sizes = parse_amounts(&mut keys, "padding", spatial)?,
        Op::Cropping => layer.sizes = parse_amounts(&mut keys, "cropping", spatial)?,
        Op::UpSampling => {
            layer.sizes = rows([spatial_sizes(&mut keys, "size", "size", spatial, None)?, [0; 3], [0; 3]]);
            if spatial == 2
                && let Some(name) = keys.optional("interpolation", &TEXT)?
            {
                layer.interpolation = Interpolation::from_name(&name).ok_or_else(|| {
                    let allowed = "\"nearest\", \"bilinear\", \"bicubic\", \"lanczos3\" or \"lanczos5\"";
                    HeaderError::wrong(keys.path_of("interpolation"), string(&name), allowed)
                })?;
            }
        }
        Op::Concatenate => axes = vec![keys.required("axis", &I64)?],
        _ => {}
    }
    // What does not depend on the input is checked when the whole model is.
    keys.refuse_rest()?;
    Ok(Pending { named: NamedLayer { type_name, layer }, axes, target })
}

fn parse_convolution(keys: &mut Keys, layer: &mut Layer) -> Result<(), HeaderError> {
    let spatial = layer.spatial;
    if layer.op != Op::DepthwiseConv {
        layer.units = keys.required("filters", &U32)?;
    }
    if matches!(layer.op, Op::DepthwiseConv | Op::SeparableConv) {
        layer.depth = keys.optional("depth_multiplier", &U32)?.unwrap_or(1);
    }
    let kernel = spatial_sizes(keys, "kernel_size", "kernel_size", spatial, None)?;
    let strides = spatial_sizes(keys, "stride", "strides", spatial, Some(ones(spatial)))?;
    let dilation = spatial_sizes(keys, "dilation_rate", "dilation_rate", spatial, Some(ones(spatial)))?;
    layer.sizes = rows([kernel, strides, dilation]);
    layer.padding = parse_padding(keys)?;
    parse_activation(keys, layer, Some(Activation::Linear))?;
    layer.flags = bias(keys)?;
    Ok(())
}

/// 1 for each spatial axis.
fn ones(spatial: u8) -> [u32; 3] {
    let mut ones = [0; 3];
    ones.iter_mut().take(usize::from(spatial)).for_each(|size| *size = 1);
    ones
}

fn rows(rows: [[u32; 3]; 3]) -> [u32; 9] {
    let mut sizes = [0; 9];
    for (place, size) in sizes.iter_mut().zip(rows.as_flattened()) {
        *place = *size;
    }
    sizes
}

/// One number on one axis (under the key `one`), a list on more (under `more`).
fn spatial_sizes(
    keys: &mut Keys,
    one: &'static str,
    more: &'static str,
    spatial: u8,
    default: Option<[u32; 3]>,
) -> Result<[u32; 3], HeaderError> {
    let (key, found) =
        if spatial == 1 { (one, keys.optional(one, &U32)?.map(|size| vec![size])) } else { (more, keys.optional(more, &U32_LIST)?) };
    let count = usize::from(spatial);
    let Some(found) = found else {
        return default.ok_or_else(|| HeaderError::wrong(keys.path_of(key), "nothing", format!("{count} sizes")));
    };
    if found.len() != count {
        return Err(HeaderError::wrong(keys.path_of(key), format!("{found:?}"), format!("{count} sizes, one for each axis")));
    }
    let mut sizes = [0; 3];
    for (place, size) in sizes.iter_mut().zip(found) {
        *place = size;
    }
    Ok(sizes)
}

/// Before and after: a pair on one axis, a list of pairs on more.
fn parse_amounts(keys: &mut Keys, key: &'static str, spatial: u8) -> Result<[u32; 9], HeaderError> {
    let pairs = if spatial == 1 { vec![keys.required(key, &PAIR)?] } else { keys.required(key, &PAIRS)? };
    if pairs.len() != usize::from(spatial) {
        return Err(HeaderError::wrong(keys.path_of(key), format!("{pairs:?}"), format!("{spatial} pairs [before, after]")));
    }
    let (mut before, mut after) = ([0; 3], [0; 3]);
    for ((first, last), (from, to)) in before.iter_mut().zip(&mut after).zip(pairs) {
        (*first, *last) = (from, to);
    }
    Ok(rows([before, after, [0; 3]]))
}

fn parse_padding(keys: &mut Keys) -> Result<Padding, HeaderError> {
    let Some(name) = keys.optional("padding", &TEXT)? else { return Ok(Padding::Valid) };
    Padding::from_name(&name)
        .ok_or_else(|| HeaderError::wrong(keys.path_of("padding"), string(&name), "\"valid\", \"same\" or, of Conv1D, \"causal\""))
}

fn bias(keys: &mut Keys) -> Result<Flags, HeaderError> {
    Ok(Flags::default().with(Flags::BIAS, keys.optional("use_bias", &BOOL)?.unwrap_or(true)))
}

/// The activation and its number, which must be given where it has one.
fn parse_activation(keys: &mut Keys, layer: &mut Layer, default: Option<Activation>) -> Result<(), HeaderError> {
    let name = match default {
        Some(default) => keys.optional("activation", &TEXT)?.unwrap_or_else(|| default.name().to_owned()),
        None => keys.required("activation", &TEXT)?,
    };
    layer.activation = Activation::from_name(&name).ok_or_else(|| {
        let allowed = "\"linear\", \"relu\", \"sigmoid\", \"tanh\", \"softmax\", \"leaky_relu\", \"elu\", \"selu\", \"softplus\", \"softsign\", \
                       \"hard_sigmoid\", \"exponential\", \"gelu\", \"gelu_tanh\", \"silu\" or \"mish\"";
        HeaderError::wrong(keys.path_of("activation"), string(&name), allowed)
    })?;
    match layer.activation {
        Activation::LeakyRelu => layer.a = keys.required("negative_slope", &NUMBER)?,
        Activation::Elu => layer.a = keys.required("alpha", &NUMBER)?,
        _ => {}
    }
    Ok(())
}

//! A sequential `.dmexp` as a `RustyML` file of format 3 or 4: the inverse of the importer, value for value.

use super::super::roster::{Build, Position};
use super::reader::MAGIC;
use super::rosters::{model_roster, source_shape};
use crate::decode::Loaded;
use crate::error::{Class, Error, Result};
use dmexp_format::arch::sequential::{Layer, Op, Role};
use dmexp_format::host::sequential::type_in_format_3;
use dmexp_format::host::{Config, Header, SequentialSettings};
use dmexp_format::{Dims, TensorView};

/// The format that [`to_rustyml`] writes unless another is asked for.
pub const NEWEST: u32 = 4;

/// The bytes of the `RustyML` file, of format `version`, with the model in `loaded`. Weights that are stored in 16 bits are widened, which is exact.
///
/// # Errors
/// With the path: [`Class::Request`] for another version, a type that format 3 does not know, another architecture, or a file without a header, which alone has the names of the types;
/// [`Class::Damaged`] and [`Class::Mismatch`] for a file that is not what it should be.
pub fn to_rustyml(loaded: &Loaded, version: u32) -> Result<Vec<u8>> {
    let request = |what: String, advice: &str| Err(Error::new(Class::Request, what).advise(advice).in_file(loaded.path()));
    if !(3..=4).contains(&version) {
        return request(format!("RustyML format {version} is not written"), "write 3 (RustyML 0.16) or 4 (RustyML 0.17)");
    }
    let file = loaded.file()?;
    let Some(text) = file.header_text() else {
        return request("was stripped for firmware and has no names of layer types".to_owned(), "name the file that it was made of");
    };
    let header = Header::parse(text).map_err(|error| Error::mismatch(error.to_string()).in_file(loaded.path()))?.0;
    let Config::Sequential(settings) = &header.config else {
        let what = format!("is a model of the architecture {:?}; a RustyML file holds sequential ones", header.arch().name());
        return request(what, "write another format");
    };
    dmexp_format::arch::sequential::check_tensors(&file).map_err(|error| loaded.explain(error))?;
    let roster = model_roster(settings);
    let mut out = MAGIC.to_vec();
    varint(&mut out, u64::from(version));
    varint(&mut out, roster.positions.len() as u64);
    let mut views = file.tensors().map(|tensor| tensor.view);
    for (number, position) in (0u32..).zip(&roster.positions) {
        if version == 3 && type_in_format_3(&position.type_name) == Some(false) {
            let what = format!("layer {number} is a `{}`, which RustyML format 3 does not know", position.type_name);
            return request(what, "write format 4");
        }
        layer(&mut out, settings, number, position, &mut views);
        if version > 3 {
            // No sublayers: no built-in layer has any.
            varint(&mut out, 0);
        }
    }
    Ok(out)
}

fn layer<'a>(
    out: &mut Vec<u8>,
    settings: &SequentialSettings,
    number: u32,
    position: &Position,
    views: &mut impl Iterator<Item = TensorView<'a>>,
) {
    string(out, &position.type_name);
    build(out, position.build.as_ref());
    varint(out, position.arrays.len() as u64);
    let Some(layer) = settings.layers.get(number as usize).map(|named| named.layer) else { return };
    let input = settings.inputs_of(number).first().copied();
    let stored = layer.roles().zip(views).filter(|(role, _)| !role.is_computed());
    for ((role, view), member) in stored.zip(&position.arrays) {
        let layout = input.and_then(|input| source_layout(&layer, role, input, view.dims()));
        let Some((shape, places)) = layout else { continue };
        string(out, &member.name);
        out.push(u8::from(!member.trainable));
        varint(out, shape.len() as u64);
        for size in &shape {
            varint(out, *size);
        }
        varint(out, member.count);
        out.extend(places.flat_map(|place| view.get_f32(place).to_le_bytes()));
    }
}

/// The shape that `RustyML` gives a layer's array, and where its values, in `RustyML`'s order, lie in the tensor of these dims that stores it. `None` for a role that the layer has not.
pub(crate) fn source_layout(layer: &Layer, role: Role, input: Dims, stored: Dims) -> Option<(Vec<u64>, Box<dyn Iterator<Item = usize>>)> {
    let shape = source_shape(layer, role, input)?;
    let places = places(layer.op, role, &shape, stored.rows() as usize, stored.cols() as usize);
    Some((shape, places))
}

/// Where the values of an array, in `RustyML`'s order, lie in the tensor that stores it.
fn places(op: Op, role: Role, shape: &[u64], rows: usize, cols: usize) -> Box<dyn Iterator<Item = usize>> {
    if !role.is_transposed() {
        return Box::new(0..rows * cols);
    }
    if op == Op::ConvTranspose && role == Role::Kernel {
        // (taps, filters, channels), stored as (filters, taps * channels).
        let channels = shape.last().map_or(1, |size| *size as usize).max(1);
        let blocks = (0..cols / channels).flat_map(move |tap| (0..rows).map(move |row| row * cols + tap * channels));
        return Box::new(blocks.flat_map(move |start| start..start + channels));
    }
    Box::new((0..cols).flat_map(move |col| (0..rows).map(move |row| row * cols + col)))
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value > 0x7f {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn string(out: &mut Vec<u8>, text: &str) {
    varint(out, text.len() as u64);
    out.extend(text.bytes());
}

fn build(out: &mut Vec<u8>, build: Option<&Build>) {
    let Some(shapes) = build else { return out.push(0) };
    out.push(1);
    varint(out, shapes.len() as u64);
    for shape in shapes {
        varint(out, shape.len() as u64);
        for axis in shape {
            match axis {
                None => out.push(0),
                Some(size) => {
                    out.push(1);
                    varint(out, *size);
                }
            }
        }
    }
}

//! `RustyML`'s files (`Sequential::save_to_path`, `Graph`): weights with their layers' types and shapes, and an architecture file for what they do not say (docs/format/sequential.md).
//!
//! The architecture is read first as far as it goes by itself; what it leaves out and the file knows (units, kernel sizes) is filled in; then shapes are inferred through the whole model and
//! compared with the shapes that the file's layers were built for, which shows most wrong strides, paddings and pools before a number is computed.

mod architecture;
mod fold;
mod reader;
mod rosters;
mod writer;

#[cfg(test)]
mod tests;

#[cfg(test)]
pub(crate) use architecture::of_table;
pub(super) use reader::MAGIC;
pub(crate) use rosters::model_roster;
pub(crate) use writer::source_layout;
pub use writer::{NEWEST, to_rustyml};

use super::array::Array;
use super::roster::{self, Roster};
use super::{Checkpoint, Config, Encoding, Mapping, Provenance};
use crate::error::{Class, Error, Result};
use dmexp_format::arch::sequential::{Op, Role, Wanted};
use dmexp_format::host::SequentialSettings;
use dmexp_format::host::sequential::shown_shape;
use reader::{FileArray, Model};
use std::path::Path;

/// A sequential model as its source has it.
#[derive(Clone, Debug, PartialEq)]
pub struct SequentialSource {
    /// Layers, wiring, labels.
    pub settings: SequentialSettings,
}

/// A `RustyML` file by itself, without an architecture: what a partial load takes from.
#[derive(Debug)]
pub struct RustyMl {
    mapping: Mapping,
    model: Model,
}

impl RustyMl {
    /// Opens a file.
    ///
    /// # Errors
    /// In this order: [`Class::Unreadable`]; [`Class::NotAModel`] for what is no file of formats 3 and 4; [`Class::Damaged`] for a body that cannot be read.
    pub fn open(path: &Path) -> Result<Self> {
        Self::from_mapping(Mapping::open(path)?)
    }

    fn from_mapping(mapping: Mapping) -> Result<Self> {
        let model = reader::read(mapping.bytes()).map_err(|error| explain(error, &mapping))?;
        Ok(Self { mapping, model })
    }

    /// The path it was opened by.
    pub fn path(&self) -> &Path {
        self.mapping.path()
    }

    /// The file's format: 3 or 4.
    pub fn version(&self) -> u32 {
        self.model.version
    }

    /// The positions that it holds.
    pub fn roster(&self) -> Roster {
        rosters::file_roster(&self.model)
    }

    /// What a user should know of the file, one sentence each.
    pub fn notes(&self) -> Vec<String> {
        match self.model.trailing {
            0 => Vec::new(),
            count => vec![format!("{count} bytes after the last layer were passed over, as RustyML passes them over")],
        }
    }

    /// The arrays of `settings` that are named in `wanted` and that the file has, as a checkpoint stores them; each must have the shape that the layer calls for.
    ///
    /// # Errors
    /// [`Class::Mismatch`] for one that the file has not, or with another number of values.
    fn arrays<'w>(&self, settings: &SequentialSettings, wanted: impl Iterator<Item = &'w Wanted>) -> Result<Vec<Array>> {
        wanted
            .map(|wanted| {
                let op = settings.layers.get(wanted.layer as usize).map_or(Op::Identity, |named| named.layer.op);
                let found = self.model.layers.get(wanted.layer as usize);
                let found = found.and_then(|layer| layer.arrays.iter().find(|array| array.name == wanted.role.name()));
                let found = found.filter(|array| array.count == wanted.dims.count());
                found.map_or_else(|| Err(Error::mismatch(format!("has no array {wanted}"))), |array| turned(wanted, op, array))
            })
            .collect()
    }

    /// As a checkpoint of the model `settings`, with those of its tensors alone that `wanted` names.
    pub(crate) fn into_checkpoint(self, settings: SequentialSettings, wanted: &[Wanted]) -> Result<Checkpoint> {
        let arrays = self.arrays(&settings, wanted.iter()).map_err(|error| error.in_file(self.mapping.path()))?;
        let provenance = Provenance {
            file_name: self.mapping.file_name(),
            importer: if self.model.version == 3 { "RustyML format 3" } else { "RustyML format 4" },
            source_bytes: self.mapping.bytes().len() as u64,
            licence: None,
        };
        let notes = self.notes();
        let config = Config::Sequential(SequentialSource { settings });
        let mut checkpoint = Checkpoint::new(vec![self.mapping], arrays, config, None, provenance)?;
        checkpoint.notes = notes;
        Ok(checkpoint)
    }
}

/// The error of whoever names such a file without an architecture.
pub(super) fn without_architecture(kind: &super::Kind, path: &Path) -> Error {
    Error::new(Class::Request, "is a RustyML model, which has weights but not what its layers do with them")
        .advise(format!("describe its architecture in a file and name it with --arch; {}", kind.advice(path)))
        .in_file(path)
}

/// What a file is that is none of `RustyML`'s, where its bytes say.
fn explain(error: Error, mapping: &Mapping) -> Error {
    let error = error.in_file(mapping.path());
    if error.class() != Class::NotAModel || mapping.bytes().starts_with(&MAGIC) {
        return error;
    }
    match super::recognise(mapping.bytes()) {
        super::Kind::Unknown { .. } | super::Kind::Empty | super::Kind::RustyMl { .. } => error,
        kind => error.at(format!("byte 0; it is {}", kind.sentence())),
    }
}

/// Opens a `RustyML` file with the architecture that `arch` describes.
///
/// # Errors
/// Those of [`RustyMl::open`], then those of the architecture file, then [`Class::Mismatch`] where both do not belong together, with the path and both sides.
pub fn open(path: &Path, arch: &Path) -> Result<Checkpoint> {
    let file = RustyMl::open(path)?;
    let settings = architecture::read(arch, &file.model)?;
    let model = model_roster(&settings);
    roster::strict(&model, &file.roster()).map_err(|error| hint(error, &settings, &model, &file.roster()).in_file(path))?;
    let wanted = wanted(&settings)?;
    let notes = unseen(&settings);
    let mut checkpoint = file.into_checkpoint(settings, &wanted)?;
    checkpoint.notes.extend(notes);
    Ok(checkpoint)
}

/// What nothing in the file can confirm: a dense layer takes inputs of any number of axes, and the record has two.
fn unseen(settings: &SequentialSettings) -> Vec<String> {
    let mut notes = Vec::new();
    for (number, named) in (0u32..).zip(&settings.layers) {
        let Some(input) = settings.inputs_of(number).first().copied().filter(|input| input.rank() > 1) else { continue };
        if named.layer.op == Op::Dense {
            let shape = shown_shape(&input);
            notes.push(format!(
                "layer {number} (`Dense`) gets {shape} and works on the last axis; the file does not record whether it did so in training"
            ));
        }
    }
    notes
}

/// The tensors of a model that a source has.
pub(crate) fn wanted(settings: &SequentialSettings) -> Result<Vec<Wanted>> {
    let mut wanted = settings.tensors().map_err(|(layer, fault)| Error::mismatch(fault.of_layer(layer).to_string()))?;
    wanted.retain(|tensor| !tensor.role.is_computed());
    Ok(wanted)
}

/// Where the shapes of a layer's input disagree: the layers that make them, with what the architecture says of them.
fn hint(error: Error, settings: &SequentialSettings, model: &Roster, file: &Roster) -> Error {
    let Some(number) = roster::first_build_mismatch(model, file) else { return error };
    let call = settings.nodes.iter().find(|node| node.layer == Some(number as u32));
    let makers = call.into_iter().flat_map(|call| &call.inputs).filter_map(|node| {
        let node = settings.nodes.get(*node as usize)?;
        let shape = shown_shape(&node.shape);
        let Some(layer) = node.layer else { return Some(format!("the model's input is {shape}")) };
        let from: Vec<_> = settings.shapes(&node.inputs).iter().map(shown_shape).collect();
        let text = architecture::keys_of(settings.layers.get(layer as usize)?);
        Some(format!("layer {layer} makes {shape} of {} with {text}", from.join(" and ")))
    });
    let makers: Vec<_> = makers.collect();
    error.advise(format!("the architecture says: {}", makers.join("; ")))
}

/// An array as a `.dmexp` has it: kernels with the axis that is summed over last.
fn turned(wanted: &Wanted, op: Op, array: &FileArray) -> Result<Array> {
    let encoding = Encoding::F32 { offset: array.offset };
    let name = wanted.to_string();
    if !wanted.role.is_transposed() {
        return Ok(Array::whole(name, wanted.dims, 0, encoding));
    }
    if op == Op::ConvTranspose && wanted.role == Role::Kernel {
        // (taps, filters, channels): the block of each tap is a piece of every row.
        let [.., filters, channels] = array.shape.as_slice() else { return Err(Error::mismatch(format!("{name} has no filters"))) };
        let block = dmexp_format::Dims::matrix(*filters as u32, *channels as u32);
        let taps = array.count / block.count().max(1);
        let parts: Vec<_> = (0..taps)
            .map(|tap| {
                let offset = array.offset + 4 * tap * block.count();
                Array::whole(format!("{name} (tap {tap})"), block, 0, Encoding::F32 { offset })
            })
            .collect();
        return Array::concat(name, 1, parts);
    }
    let rows = wanted.dims.rows();
    Array::strided(name, wanted.dims, 0, encoding, 0, &[1, rows])
}

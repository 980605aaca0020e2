//! A format-1 `.dmexp` of a dormouse model as a checkpoint: what dormouse's own exporter wrote, to be written in another type or form.

use super::super::array::Array;
use super::super::{Checkpoint, Config, Encoding, Mapping, Provenance};
use super::{DormouseConfig, DormouseSource};
use crate::error::{Error, Result};
use dmexp_format::DType;
use dmexp_format::arch::Architecture;
use dmexp_format::arch::dormouse::check::check_tensors;
use dmexp_format::file::ModelFile;
use dmexp_format::host::HeaderV1;
use toml::Table;

/// Opens the model; `None`, with the file given back, where it is another architecture's.
///
/// # Errors
/// With the path: those of opening the file and of comparing its tensors with its configuration.
pub(in super::super) fn open(mapping: Mapping) -> Result<std::result::Result<Checkpoint, Mapping>> {
    let is_dormouse = |file: &ModelFile<'_>| file.architecture() == Architecture::Dormouse && file.version() == 1;
    match ModelFile::open(mapping.bytes()) {
        Ok(file) if is_dormouse(&file) => (),
        _ => return Ok(Err(mapping)),
    }
    let (source, arrays) = read(&mapping).map_err(|error| error.in_file(mapping.path()))?;
    let provenance = Provenance {
        file_name: mapping.file_name(),
        importer: "dormouse .dmexp",
        source_bytes: mapping.bytes().len() as u64,
        licence: None,
    };
    Checkpoint::new(vec![mapping], arrays, Config::Dormouse(source), None, provenance).map(Ok)
}

fn read(mapping: &Mapping) -> Result<(DormouseSource, Vec<Array>)> {
    let file = ModelFile::open(mapping.bytes())?;
    file.verify_payload()?;
    check_tensors(&file)?;
    let (header, _) = HeaderV1::parse(file.header_text().unwrap_or_default()).map_err(|error| Error::damaged(error.to_string()))?;
    let table: Table =
        header.config.parse().map_err(|error: toml::de::Error| Error::damaged(format!("the configuration: {}", error.message())))?;
    let mut arrays = Vec::new();
    for tensor in file.tensors() {
        let offset = file.fixed().payload_start() + tensor.offset;
        let encoding = match tensor.view.dtype() {
            DType::F16 => Encoding::F16 { offset },
            DType::Bf16 => Encoding::Bf16 { offset },
            _ => Encoding::F32 { offset },
        };
        arrays.push(Array::whole(tensor.name, tensor.view.dims(), 0, encoding));
    }
    let config = DormouseConfig::from_table(table)?;
    Ok((DormouseSource { config, step: header.step, source: header.source, kda_scale: None, turned: None }, arrays))
}

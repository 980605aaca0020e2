//! A `.dmexp` as a checkpoint, for writing it in another format: its float tensors by name, with q and k in the row order that the other format wants.

use super::array::Array;
use super::{Checkpoint, Config, Encoding, LlamaSource, Mapping, Provenance, rope};
use crate::error::{Class, Error, Result};
use dmexp_format::DType;
use dmexp_format::arch::llama::{RopeLayout, TensorKind};
use dmexp_format::file::ModelFile;
use dmexp_format::host::Header;
use std::collections::BTreeMap;
use std::path::Path;

/// Bases that are tried where the file states none: those of the families that there are.
const THETAS: [f64; 4] = [10_000.0, 500_000.0, 1_000_000.0, 100_000.0];

impl Checkpoint {
    /// The model in the `.dmexp` at `path`, whose container is known to be sound, with rotated pairs as `layout` has them.
    ///
    /// # Errors
    /// With the path: [`Class::Unreadable`]; [`Class::Request`] for another architecture, and for tensors that are no floats; [`Class::Damaged`] for what is no such file after all.
    pub(crate) fn of_dmexp(path: &Path, layout: RopeLayout) -> Result<Self> {
        let mapping = Mapping::open(path)?;
        let (source, arrays) = read(&mapping, layout).map_err(|error| error.in_file(path))?;
        let provenance =
            Provenance { file_name: mapping.file_name(), importer: "dmexp", source_bytes: mapping.bytes().len() as u64, licence: None };
        Self::new(vec![mapping], arrays, Config::Llama(source), None, provenance)
    }
}

fn read(mapping: &Mapping, layout: RopeLayout) -> Result<(LlamaSource, Vec<Array>)> {
    let file = ModelFile::open(mapping.bytes())?;
    let mut config = file.llama_config()?;
    let mut inv_freq = vec![0.0; (config.head_dim / 2) as usize];
    file.rope_inv_freq(&mut inv_freq)?;
    let mut arrays = Vec::new();
    for number in 0..config.weight_tensors() {
        let Some(spec) = config.tensor(number) else { break };
        let name = spec.to_string();
        let tensor = file.tensor(number).ok_or_else(|| Error::mismatch(format!("has no tensor {name}")))?;
        let offset = (tensor.bytes().as_ptr().addr() - mapping.bytes().as_ptr().addr()) as u64;
        let encoding = match tensor.dtype() {
            DType::F32 => Encoding::F32 { offset },
            DType::F16 => Encoding::F16 { offset },
            DType::Bf16 => Encoding::Bf16 { offset },
            other => {
                return Err(Error::new(Class::Request, format!("stores {name} as {other}, which other formats do not have"))
                    .advise("export the training checkpoint as f32, f16 or bf16, and write that file"));
            }
        };
        let rotated = matches!(spec.kind, TensorKind::Wq | TensorKind::Wk | TensorKind::Bq | TensorKind::Bk);
        let array = Array::whole(name, spec.dims, 0, encoding);
        arrays.push(match (config.rope_layout, layout) {
            (RopeLayout::Half, RopeLayout::Interleaved) if rotated => array.interleave_halves(config.head_dim)?,
            (RopeLayout::Interleaved, RopeLayout::Half) if rotated => array.separate_halves(config.head_dim)?,
            _ => array,
        });
    }
    config.rope_layout = layout;
    let (stated, rope_scaling) = stated(&file);
    let fits = |theta: &f64| rope::inv_freq(*theta, config.head_dim) == inv_freq;
    // 0 where no base gives the frequencies: a format that needs one refuses that.
    let rope_theta = stated.or_else(|| THETAS.into_iter().find(fits)).unwrap_or(0.0);
    Ok((LlamaSource { config, rope_theta, rope_scaling, inv_freq, fixed: Vec::new() }, arrays))
}

/// The base of the rotation and its scaling as the header states them.
fn stated(file: &ModelFile<'_>) -> (Option<f64>, BTreeMap<String, dmexp_format::host::Scalar>) {
    if let Some(text) = file.config_text() {
        let theta = text.parse::<toml::Table>().ok().and_then(|table| table.get("rope_theta")?.as_float());
        return (theta, BTreeMap::new());
    }
    let header = file.header_text().and_then(|text| Header::parse(text).ok());
    match header.map(|(header, _)| header.config) {
        Some(dmexp_format::host::Config::Llama(settings)) => (settings.rope_theta, settings.rope_scaling),
        _ => (None, BTreeMap::new()),
    }
}

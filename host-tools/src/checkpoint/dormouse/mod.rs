//! Training checkpoints of dormouse: `<name>.bin` with the snapshot of its configuration beside it, `<name>.config.toml`. The optimizer and the teacher are passed over, and the n-gram memory
//! (`<name>.ngram`) is never opened.

mod burnpack;
mod canonical;
mod cbor;
mod config;
mod container;
mod exported;
mod tensors;
mod turned;

#[cfg(test)]
mod tests;

pub use config::DormouseConfig;
pub(super) use exported::open as open_exported;

use super::array::Array;
use super::{Checkpoint, Config, Encoding, Kind, Mapping, Provenance, recognise};
use crate::error::{Class, Error, Result};
use burnpack::Entry;
use dmexp_format::Dims;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use tensors::Variant;
use toml::{Table, Value};

/// What a `.dmexp` says of a dormouse model besides its tensors.
#[derive(Clone, Debug, PartialEq)]
pub struct DormouseSource {
    /// What is computed.
    pub config: DormouseConfig,
    /// The training step.
    pub step: u64,
    /// Where it came from, as upstream writes it: `<path>@step<n>`.
    pub source: String,
    /// What the results of the recurrence are multiplied by, where a user named it: neither the checkpoint nor format 1 says so.
    pub kda_scale: Option<f32>,
    /// The configuration as format 2 records it, where the arrays are as format 2 holds them.
    pub(crate) turned: Option<dmexp_format::arch::dormouse::DormouseConfig>,
}

/// The snapshot that belongs to a checkpoint: `latest.config.toml` for `latest.bin`.
pub fn snapshot_of(path: &Path) -> PathBuf {
    path.with_extension("config.toml")
}

/// Opens a checkpoint that has no snapshot, as a model of this configuration.
///
/// # Errors
/// Those of [`checkpoint::open`](super::open); [`Class::Request`] where there is a snapshot, or `path` is not a checkpoint of dormouse.
pub fn open_as(path: &Path, config: DormouseConfig) -> Result<Checkpoint> {
    let file = Mapping::open(path)?;
    match recognise(file.bytes()) {
        Kind::DormouseCheckpoint => open(file, Some(config)),
        other => {
            let what = format!("is {}: --preset and --set are for checkpoints of dormouse", other.sentence());
            Err(Error::new(Class::Request, what).advise("leave them out").in_file(path))
        }
    }
}

/// Opens the checkpoint in `file` with the snapshot beside it, or with `given` where there is none.
///
/// # Errors
/// [`Class::Request`] where there is neither, or both; those of container, record and configuration, in the order unreadable, not a model or another version, damaged, mismatch.
pub(super) fn open(file: Mapping, given: Option<DormouseConfig>) -> Result<Checkpoint> {
    let path = file.path().to_path_buf();
    let in_file = |error: Error| if error.path().as_os_str().is_empty() { error.in_file(&path) } else { error };
    let container = container::read(file.bytes()).map_err(in_file)?;
    let record = file.bytes().get(container.start..container.start.saturating_add(container.len)).unwrap_or(&[]);
    let entries = burnpack::read(record, container.start as u64).map_err(in_file)?;
    if entries.is_empty() {
        return Err(in_file(
            Error::damaged("its model section holds no tensors").advise("this checkpoint holds no model: export another one"),
        ));
    }
    let mut notes = Vec::new();
    let (config, snapshot) = configuration(&path, given, container.latched, &mut notes)?;
    let arrays = arrays(&config, &entries).map_err(in_file)?;
    let source = format!("{}@step{}", path.display(), container.step);
    let provenance =
        Provenance { file_name: file.file_name(), importer: container.importer, source_bytes: file.bytes().len() as u64, licence: None };
    let source = DormouseSource { config, step: container.step, source, kda_scale: None, turned: None };
    // The snapshot is among the files so that no export replaces it.
    let files = std::iter::once(file).chain(snapshot).collect();
    let mut checkpoint = Checkpoint::new(files, arrays, Config::Dormouse(source), None, provenance).map_err(in_file)?;
    checkpoint.notes = notes;
    Ok(checkpoint)
}

/// The configuration, and the snapshot that it was read from.
fn configuration(
    path: &Path,
    given: Option<DormouseConfig>,
    latched: bool,
    notes: &mut Vec<String>,
) -> Result<(DormouseConfig, Option<Mapping>)> {
    let snapshot = snapshot_of(path);
    match (snapshot.is_file(), given) {
        (true, Some(_)) => {
            let what = format!("{} says what the model is: --preset and --set are for checkpoints without one", snapshot.display());
            Err(Error::new(Class::Request, what).advise("leave them out"))
        }
        (false, Some(config)) => Ok((config, None)),
        (false, None) => {
            let what = format!("has no {} beside it, which says what the model is", snapshot.file_name().unwrap_or_default().display());
            Err(Error::new(Class::Request, what)
                .in_file(path)
                .advise("copy it from where the training ran, or name --preset (and --set) as it was trained with"))
        }
        (true, None) => {
            let file = Mapping::open(&snapshot)?;
            let config = read_snapshot(file.bytes(), latched, notes).map_err(|error| error.in_file(&snapshot))?;
            Ok((config, Some(file)))
        }
    }
}

/// The configuration in a snapshot, and what its training says that the export cannot.
fn read_snapshot(bytes: &[u8], latched: bool, notes: &mut Vec<String>) -> Result<DormouseConfig> {
    let text = std::str::from_utf8(bytes).map_err(|error| Error::damaged("is not UTF-8").at(format!("byte {}", error.valid_up_to())))?;
    let mut root: Table = text.parse().map_err(|error: toml::de::Error| {
        let error_at = error.span().map_or(0, |span| span.start);
        Error::damaged(format!("is not TOML: {}", error.message())).at(format!("byte {error_at}"))
    })?;
    let Some(Value::Table(model)) = root.remove("model") else {
        return Err(Error::damaged("has no table [model]").advise("a snapshot of dormouse's training has one"));
    };
    let quant = root.get("train").and_then(|train| train.get("quant")).and_then(Value::as_str);
    if !latched && !quant.is_some_and(|quant| quant.eq_ignore_ascii_case("fp32")) {
        let how = quant.map_or("in a way that the snapshot does not name (fp8 on some machines)".to_owned(), |quant| format!("as {quant}"));
        notes.push(format!("the experts' factors were trained {how}; a .dmexp means ternary factors, as dormouse's own export does"));
    }
    DormouseConfig::from_table(model)
}

/// The arrays in the configuration's order, which must be all that there are.
fn arrays(config: &DormouseConfig, entries: &[Entry]) -> Result<Vec<Array>> {
    let mut by_name: HashMap<&str, &Entry> = entries.iter().map(|entry| (entry.name.as_str(), entry)).collect();
    let rows = |name: &str| by_name.get(name).map_or(0, |entry| u64::from(entry.dims.padded()[0]));
    let variant = Variant {
        conf_markov: rows("aux.conf.proj.weight") != config.size("d_model"),
        attnres_gain: by_name.contains_key("loop_block.attnres.0.gain"),
    };
    let mut arrays = Vec::with_capacity(entries.len());
    for (name, dims) in tensors::list(config, variant)? {
        let Some(entry) = by_name.remove(name.as_str()) else {
            return Err(Error::mismatch(format!("has no tensor {name} {:?}, which the configuration calls for", dims.as_slice())));
        };
        if entry.dims != dims {
            let what = format!("has {name} {:?}; the configuration calls for {:?}", entry.dims.as_slice(), dims.as_slice());
            return Err(Error::mismatch(what));
        }
        arrays.push(Array::whole(name, dims, 0, Encoding::F32 { offset: entry.offset }));
    }
    // Named in the file's order, so that the same file always gives the same error.
    match entries.iter().find(|entry| by_name.contains_key(entry.name.as_str())) {
        Some(extra) => {
            let what = format!("has a tensor {} {:?}, which the configuration does not call for", extra.name, extra.dims.as_slice());
            Err(Error::mismatch(what))
        }
        None => Ok(arrays),
    }
}

impl Checkpoint {
    /// Drops the tensors of a dormouse model that inference never reads. Returns how many there were.
    ///
    /// # Errors
    /// [`Class::Request`] for another architecture.
    pub fn strip_unread(&mut self) -> Result<usize> {
        let Config::Dormouse(source) = &self.config else { return Err(only_dormouse("--strip")) };
        let before = self.arrays.len();
        self.arrays.retain(|array| tensors::is_read(&source.config, &array.name));
        Ok(before - self.arrays.len())
    }

    /// Names the scale of the recurrence, which the checkpoint does not say.
    ///
    /// # Errors
    /// [`Class::Request`] for another architecture.
    pub fn set_kda_scale(&mut self, scale: f32) -> Result<()> {
        let Config::Dormouse(source) = &mut self.config else { return Err(only_dormouse("--kda-scale")) };
        source.kda_scale = Some(scale);
        Ok(())
    }

    /// Writes the ternary factors of a dormouse model as their codes: the same function, which narrowing then leaves as it is. Returns how many layers there were.
    ///
    /// # Errors
    /// [`Class::Request`] for another architecture.
    pub fn canonical_factors(&mut self) -> Result<usize> {
        let Config::Dormouse(_) = &self.config else { return Err(only_dormouse("--canonical")) };
        let layers: Vec<String> = self.arrays.iter().filter_map(|array| array.name.strip_suffix(".Tsct.u").map(str::to_owned)).collect();
        for layer in &layers {
            let names = ["u", "s", "v"].map(|part| format!("{layer}.Tsct.{part}"));
            let [Some(u), Some(s), Some(v)] = names.each_ref().map(|name| self.array(name)) else { continue };
            for (name, values) in names.iter().zip(canonical::rewrite(u, s, v)?) {
                let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
                let file = self.files.len();
                self.files.push(Mapping::from_bytes(self.path(), bytes));
                let dims = |array: &Array| -> Dims { array.dims };
                if let Some(array) = self.arrays.iter_mut().find(|array| array.name == *name) {
                    *array = Array::whole(name.clone(), dims(array), file, Encoding::F32 { offset: 0 });
                }
            }
        }
        Ok(layers.len())
    }
}

fn only_dormouse(option: &str) -> Error {
    Error::new(Class::Request, format!("{option} is for dormouse's models")).advise("leave it out")
}

//! Architecture files: the TOML of docs/format/sequential.md, or the same in JSON; and what they leave out, filled in from the file's arrays.

use super::reader::{FileArray, FileLayer, Model};
use crate::checkpoint::json;
use crate::error::{Error, Result};
use crate::input;
use dmexp_format::host::HeaderError;
use dmexp_format::host::sequential::{NamedLayer, SequentialSettings, layer_text};
use std::path::Path;
use toml::{Table, Value};

/// The longest architecture file.
const LIMIT: u64 = 16 << 20;

/// Reads the architecture of `model`.
///
/// # Errors
/// With the path of the architecture file: [`Class::Unreadable`](crate::error::Class::Unreadable); [`Class::Damaged`](crate::error::Class::Damaged) for what is neither TOML nor JSON;
/// [`Class::Mismatch`](crate::error::Class::Mismatch) for keys that are wrong, layers that do not fit their inputs, and another number or other types of layers than the file has.
pub(super) fn read(path: &Path, model: &Model) -> Result<SequentialSettings> {
    let text = text(path)?;
    let mut table = tables(&text).and_then(normalised).map_err(|error| error.in_file(path))?;
    let types = complete(&mut table, model);
    SequentialSettings::from_table("", table).map_err(|error| match types {
        // What the file knows could not be filled in.
        Some(mismatch) if matches!(error, HeaderError::Wrong { ref found, .. } if found == "nothing") => mismatch.in_file(path),
        _ => Error::mismatch(told(&error)).in_file(path),
    })
}

/// An architecture that leaves nothing out, as its JSON spells it.
#[cfg(test)]
pub(crate) fn of_table(table: Table) -> Result<SequentialSettings> {
    SequentialSettings::from_table("", normalised(table)?).map_err(|error| Error::mismatch(told(&error)))
}

fn text(path: &Path) -> Result<String> {
    let advice = "name the architecture file: TOML, or the same in JSON";
    String::from_utf8(input::read(path, LIMIT)?).map_err(|_| Error::damaged("is not text").advise(advice).in_file(path))
}

fn tables(text: &str) -> Result<Table> {
    if text.trim_start().starts_with('{') {
        let table = json::object(text.as_bytes())?;
        let wrong = |error| Error::damaged(format!("is not the JSON of an architecture: {error}"));
        serde_json::from_value(table.into()).map_err(wrong)
    } else {
        text.parse().map_err(|error: toml::de::Error| {
            let refused = Error::damaged(format!("is not the TOML of an architecture: {}", error.message()));
            match error.span() {
                Some(span) => refused.at(format!("byte {}", span.start)),
                None => refused,
            }
        })
    }
}

/// A header error without the word "header".
fn told(error: &HeaderError) -> String {
    match error {
        HeaderError::Wrong { key, found, allowed } => format!("{key}: found {found}, allowed: {allowed}"),
        HeaderError::UnknownKey { key, known } => format!("the key {key} is not known; known there: {known}"),
        HeaderError::Rule(error) => error.to_string(),
        other => other.to_string(),
    }
}

/// One table for both spellings: `[model]`, `[[layer]]`, `[[node]]`, `[meta]`, or JSON's `kind`, `layers`, `nodes`; JSON may also be the `arch` of a larger object.
fn normalised(mut document: Table) -> Result<Table> {
    if let Some(Value::Table(inner)) = document.remove("arch") {
        document = inner;
    }
    let mut table = match document.remove("model") {
        Some(Value::Table(model)) => model,
        Some(other) => return Err(Error::mismatch(format!("model is {}, not a table", other.type_str()))),
        None => Table::new(),
    };
    if let Some(Value::Table(mut meta)) = document.remove("meta")
        && let Some(classes) = meta.remove("classes")
    {
        table.insert("classes".to_owned(), classes);
    }
    // What training scripts note beside the architecture.
    for key in ["train_epochs", "input_kind", "vocab"] {
        document.remove(key);
    }
    for (plural, key) in [("layers", "layer"), ("nodes", "node")] {
        if let Some(list) = document.remove(plural) {
            document.entry(key).or_insert(list);
        }
    }
    for (key, value) in document {
        if table.contains_key(&key) {
            return Err(Error::mismatch(format!("{key} is given twice: at the top and in [model]")));
        }
        table.insert(key, value);
    }
    Ok(table)
}

/// Fills in what the architecture leaves out and the file knows. Where types or their number differ there is nothing to fill in: the difference.
fn complete(table: &mut Table, model: &Model) -> Option<Error> {
    let Some(Value::Array(layers)) = table.get_mut("layer") else { return None };
    let mut different = None;
    if layers.len() != model.layers.len() {
        let (wanted, found) = (layers.len(), model.layers.len());
        different = Some(Error::mismatch(format!("layer count mismatch: the model has {wanted} layers, the file has {found}")));
    }
    for (number, (layer, found)) in layers.iter_mut().zip(&model.layers).enumerate() {
        let Value::Table(layer) = layer else { continue };
        let type_name = layer.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
        if type_name == found.type_name {
            fill(layer, &type_name, found);
        } else if !found.type_name.starts_with("Reverse(") && different.is_none() {
            let what = format!("layer {number} type mismatch: the model has `{type_name}`, the file has `{}`", found.type_name);
            different = Some(Error::mismatch(what));
        }
    }
    if table.get("kind").and_then(Value::as_str) == Some("sequential") && !table.contains_key("input_shape") {
        let first =
            model.layers.first().and_then(|layer| layer.build.as_deref()?.first()?.get(1..)?.iter().copied().collect::<Option<Vec<_>>>());
        if let Some(shape) = first {
            let sizes = shape.into_iter().map(|size| Value::Integer(i64::try_from(size).unwrap_or(i64::MAX)));
            table.insert("input_shape".to_owned(), Value::Array(sizes.collect()));
        }
    }
    different
}

fn fill(layer: &mut Table, type_name: &str, found: &FileLayer) {
    let shape = |name: &str| found.arrays.iter().find(|array| array.name == name).map(|array: &FileArray| array.shape.clone());
    let mut put = |key: &str, value: Value| {
        layer.entry(key).or_insert(value);
    };
    let whole = |size: u64| Value::Integer(i64::try_from(size).unwrap_or(i64::MAX));
    let kernel_size = |sizes: &[u64]| match sizes {
        [one] => whole(*one),
        more => Value::Array(more.iter().map(|size| whole(*size)).collect()),
    };
    let is = |stem: &str| type_name.starts_with(stem);
    match (shape("kernel").or_else(|| shape("depthwise_kernel")).as_deref(), type_name) {
        (Some([_, units]), "Dense" | "SimpleRNN") => put("units", whole(*units)),
        (Some([_, units]), "LSTM") => put("units", whole(units / 4)),
        (Some([_, units]), "GRU") => put("units", whole(units / 3)),
        (Some([sizes @ .., filters, _]), name) if name.ends_with("Transpose") && !sizes.is_empty() => {
            put("filters", whole(*filters));
            put("kernel_size", kernel_size(sizes));
        }
        (Some([sizes @ .., _, filters]), _) if is("Conv") && !sizes.is_empty() => {
            put("filters", whole(*filters));
            put("kernel_size", kernel_size(sizes));
        }
        (Some([sizes @ .., _, depth]), _) if (is("Depthwise") || is("Separable")) && !sizes.is_empty() => {
            put("depth_multiplier", whole(*depth));
            put("kernel_size", kernel_size(sizes));
        }
        _ => {}
    }
    if let Some([.., filters]) = shape("pointwise_kernel").as_deref() {
        put("filters", whole(*filters));
    }
    if let Some([rows, width]) = shape("embeddings").as_deref() {
        put("input_dim", whole(*rows));
        put("output_dim", whole(*width));
    }
}

/// A layer's keys on one line.
pub(super) fn keys_of(named: &NamedLayer) -> String {
    layer_text(named).trim_end().replace('\n', ", ")
}

//! What will be written of a dormouse model: format 1, as dormouse's own exporter does, or format 2 with its factors as codes. Used by `plan`.

use super::Options;
use super::plan::{Plan, Planned, Source, Values};
use crate::checkpoint::{Checkpoint, DormouseSource};
use crate::error::{Class, Error, Result};
use dmexp_format::DType;
use dmexp_format::arch::dormouse::DormouseConfig;
use dmexp_format::arch::dormouse::tensors::Form;
use dmexp_format::host::{self, TensorSpec};

/// Plans the export of a dormouse model: in format 1 every tensor in the type asked for, in the checkpoint's order; in format 2 what inference reads.
///
/// # Errors
/// [`Class::Request`] for what the format has no place for.
pub(super) fn plan<'c>(checkpoint: &'c Checkpoint, source: &'c DormouseSource, options: &Options) -> Result<Plan<'c>> {
    let request = |what: &str, advice: &str| Err(Error::new(Class::Request, what).advise(advice).in_file(checkpoint.path()));
    if options.quality.is_some() {
        return request("a model of dormouse cannot be measured with a text in the same run", "use dmexp compare dtypes, or dmexp score");
    }
    if let Some(config) = &source.turned {
        options.check()?;
        return Ok(Plan {
            source: Source::Dormouse(source),
            tokenizer: host::Tokenizer::NONE,
            tensors: turned(checkpoint, config, options)?,
            warnings: checkpoint.notes.clone(),
        });
    }
    // Said here, because the general errors name format 2 as the way out.
    if options.dtype.is_quantised() || !options.select.is_empty() {
        return request(
            "format 1 has one type for a model of dormouse, and it is f32, f16 or bf16",
            "name one of them for all tensors, or export format 2",
        );
    }
    if options.alignment.is_some() || options.sha256 {
        return request("format 1 has no alignment and no place for a SHA-256", "leave them out, or export format 2");
    }
    options.check()?;
    let spec =
        |name: &str, dims| TensorSpec { name: name.to_owned(), dtype: options.dtype, dims, group: 0, trainable: true, transposed: false };
    let tensors =
        checkpoint.arrays().map(|array| Planned { spec: spec(array.name(), array.dims()), values: Values::Array(array) }).collect();
    Ok(Plan { source: Source::Dormouse(source), tokenizer: host::Tokenizer::NONE, tensors, warnings: checkpoint.notes.clone() })
}

/// The tensors of format 2: factors as codes, single numbers in f32, matrices and tables in the type asked for (with t2, which only factors are sure to fit, in bf16).
fn turned<'c>(checkpoint: &'c Checkpoint, config: &DormouseConfig, options: &Options) -> Result<Vec<Planned<'c>>> {
    let mut tensors = Vec::new();
    for array in checkpoint.arrays() {
        let Some(wanted) = config.find(array.name()).and_then(|number| config.tensor(number)) else { continue };
        let chosen = options.select.iter().rev().find(|select| host::name_matches(&select.pattern, array.name()));
        let asked = if options.dtype == DType::T2 { DType::Bf16 } else { options.dtype };
        let (dtype, group) = match (wanted.form, chosen) {
            (Form::Plain, _) => (DType::F32, 0),
            (Form::FactorFirst | Form::FactorLast, _) => (DType::T2, 0),
            (_, Some(select)) => (select.dtype, select.group.unwrap_or(options.group)),
            (_, None) => (asked, options.group),
        };
        let grouped = matches!(dtype, DType::Q8 | DType::Q4) && group < array.dims().cols();
        let spec = TensorSpec {
            name: array.name().to_owned(),
            dtype,
            dims: array.dims(),
            group: if grouped { group } else { 0 },
            trainable: true,
            transposed: wanted.form.is_turned(),
        };
        tensors.push(Planned { spec, values: Values::Array(array) });
    }
    for select in &options.select {
        let fits = |form: Form| matches!(form, Form::Table | Form::InputFirst);
        let named = |planned: &&Planned<'_>| host::name_matches(&select.pattern, &planned.spec.name);
        let matrix = |planned: &Planned<'_>| {
            config.find(&planned.spec.name).and_then(|number| config.tensor(number)).is_some_and(|spec| fits(spec.form))
        };
        if !tensors.iter().filter(named).any(matrix) {
            let what =
                format!("no matrix of this model is called {:?} (ternary factors are always codes, single numbers f32)", select.pattern);
            return Err(Error::new(Class::Request, what).advise("dmexp export info --tensors lists the names"));
        }
    }
    Ok(tensors)
}

//! Small networks on the host: numbers in, numbers out, with the bits that a chip computes. Called by `dmexp predict`, by the exporter (golden vectors) and by `verify`.

mod csv;
mod golden;
mod json;
mod npy;
#[cfg(test)]
mod tests;

pub use csv::{line as csv_line, read as read_csv, write as write_csv};
pub use golden::{Compared, Tolerance, replay};
pub(crate) use golden::{compute, recomputed, tensors_of};
pub use json::{Sample, read as read_json, samples, write as write_json};
pub use npy::{read as read_npy, write as write_npy};

use crate::decode::Loaded;
use crate::error::{Error, Result};
use dmexp::format::arch::sequential::{Op, Usage};
use dmexp::{Prediction, Predictor};
use dmexp_format::Dims;
use dmexp_format::arch::Architecture;

/// An array of numbers, row-major.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tensor {
    /// The sizes of its axes, the batch first where it has one.
    pub shape: Vec<usize>,
    /// As many numbers as the shape says.
    pub data: Vec<f32>,
}

impl Tensor {
    /// The numbers in this shape.
    ///
    /// # Errors
    /// [`Class::Mismatch`](crate::error::Class::Mismatch) for another number of them.
    pub fn new(shape: Vec<usize>, data: Vec<f32>) -> Result<Self> {
        let count = shape.iter().try_fold(1usize, |count, size| count.checked_mul(*size));
        if count != Some(data.len()) {
            return Err(Error::mismatch(format!("has {} numbers, which the shape {} does not hold", data.len(), shown(&shape))));
        }
        Ok(Self { shape, data })
    }
}

/// A size as a file states it. One past what this machine can count is as good as the most: no data has either, so both are refused in the same words on every machine.
fn size(stated: u64) -> usize {
    usize::try_from(stated).unwrap_or(usize::MAX)
}

/// A shape as `RustyML` prints it: `(2, 49, 10)`, `(4,)`.
pub fn shown(shape: &[usize]) -> String {
    let sizes: Vec<_> = shape.iter().map(usize::to_string).collect();
    if let [one] = sizes.as_slice() { format!("({one},)") } else { format!("({})", sizes.join(", ")) }
}

/// The network in a file.
///
/// # Errors
/// [`Class::Request`](crate::error::Class::Request) for a language model; what [`Predictor::bind`] refuses.
pub fn predictor(loaded: &Loaded) -> Result<Predictor<'_>> {
    let file = loaded.file()?;
    if file.architecture() != Architecture::Sequential {
        let what = format!("is of the architecture {:?}, which takes text or tokens, not numbers", file.architecture().name());
        return Err(Error::new(crate::error::Class::Request, what).advise("use dmexp generate").in_file(loaded.path()));
    }
    Predictor::bind(&file).map_err(|error| loaded.explain(error))
}

/// Whether a layer of the network in a file is one of those that `is` picks.
///
/// # Errors
/// What a check of its configuration refuses.
pub fn has(loaded: &Loaded, is: impl Fn(Op) -> bool) -> Result<bool> {
    let model = loaded.file()?.sequential().map_err(|error| loaded.explain(error))?;
    Ok(model.layers().any(|layer| is(layer.op)))
}

/// Whether the first axis of the network's one input may have another length than the file says.
pub fn length_is_free(predictor: &Predictor<'_>) -> bool {
    let Some(first) = predictor.input_shape(0).and_then(|shape| shape.as_slice().first().copied()) else { return false };
    // Any other length shows it.
    let other = if first == 1 { 2 } else { first - 1 };
    predictor.num_inputs() == 1 && predictor.with_usage(Usage { lengths: &[other], streaming: false }).arena_len().is_ok()
}

/// Memory for a prediction.
///
/// # Errors
/// What the plan of the network's results refuses.
pub fn memory(predictor: &Predictor<'_>) -> Result<Vec<u32>> {
    Ok(vec![0; predictor.arena_len()?.div_ceil(4)])
}

/// The results for `inputs`, one tensor for each input of the network, each of the shape that the file says or of that shape behind a batch axis, whose length all share. The results have the batch axis.
/// Every row of a batch has the bits that it has alone. The first axis of an input of recurrent networks may have another length than the file says, the same for all rows.
///
/// # Errors
/// [`Class::Mismatch`](crate::error::Class::Mismatch) for another number of inputs, another shape, or batches of different lengths; [`Class::Request`](crate::error::Class::Request) for a number that is
/// not finite; what [`Prediction::run`] refuses. With the number of the input, and of the row.
pub fn predict(predictor: &Predictor<'_>, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
    let wanted: Vec<Dims> = (0..).map_while(|input| predictor.input_shape(input)).collect();
    if inputs.len() != wanted.len() {
        let what = format!("gives {} inputs, but the model takes {}", inputs.len(), wanted.len());
        return Err(Error::mismatch(what).advise("give a JSON list of {shape, data}, one for each input"));
    }
    let mut lengths = vec![0; wanted.len()];
    let mut batch = None;
    for (number, ((input, wanted), length)) in inputs.iter().zip(&wanted).zip(&mut lengths).enumerate() {
        let (rows, own) = fitted(input, *wanted).map_err(|error| error.at(format!("input {number}")))?;
        *length = own;
        if *batch.get_or_insert(rows) != rows {
            let what = format!("the inputs have batches of {} and {rows} rows", batch.unwrap_or(0));
            return Err(Error::mismatch(what).at(format!("input {number}")).advise("give every input as many rows"));
        }
        if let Some(place) = input.data.iter().position(|value| !value.is_finite()) {
            let what = format!("element {place} is {}: an input is a finite number", input.data.get(place).copied().unwrap_or(f32::NAN));
            return Err(Error::new(crate::error::Class::Request, what).at(format!("input {number}")));
        }
    }
    let batch = batch.unwrap_or(0);
    let predictor = predictor.with_usage(Usage { lengths: &lengths, streaming: false });
    let misfit = |error: dmexp::format::Error| {
        let shapes: Vec<_> = inputs.iter().zip(&wanted).zip(&lengths).filter(|(_, length)| **length > 0).collect();
        shapes.first().map_or_else(|| Error::from(error), |((input, wanted), _)| wrong_shape(input, **wanted).advise(error.to_string()))
    };
    let mut memory = vec![0u32; predictor.arena_len().map_err(misfit)?.div_ceil(4)];
    let mut prediction = Prediction::new(predictor, memory.as_mut_slice())?;
    let shapes: Vec<Dims> = (0..).map_while(|output| prediction.output_shape(output)).collect();
    let mut outputs: Vec<Tensor> = shapes
        .iter()
        .map(|shape| Tensor {
            shape: std::iter::once(batch).chain(shape.as_slice().iter().map(|size| *size as usize)).collect(),
            data: Vec::with_capacity(batch.saturating_mul(shape.count() as usize)),
        })
        .collect();
    for row in 0..batch {
        for (number, input) in (0u32..).zip(inputs) {
            let place = prediction.input_mut(number);
            let start = row * place.len();
            place.copy_from_slice(input.data.get(start..start + place.len()).unwrap_or_default());
        }
        prediction.run().map_err(|error| Error::from(error).at(format!("row {row}")))?;
        for (number, output) in (0u32..).zip(&mut outputs) {
            output.data.extend_from_slice(prediction.output(number));
        }
    }
    Ok(outputs)
}

/// How many rows an input has, and the length of its first axis where that is not the file's (0 otherwise).
fn fitted(input: &Tensor, wanted: Dims) -> Result<(usize, u32)> {
    let sizes: Vec<usize> = wanted.as_slice().iter().map(|size| *size as usize).collect();
    let (rows, own) = match input.shape.split_first() {
        Some((rows, own)) if own.len() == sizes.len() => (*rows, own),
        _ if input.shape.len() == sizes.len() => (1, input.shape.as_slice()),
        _ => return Err(wrong_shape(input, wanted)),
    };
    if rows == 0 || input.data.is_empty() {
        return Err(Error::mismatch("is empty"));
    }
    match (own, sizes.as_slice()) {
        _ if own == sizes => Ok((rows, 0)),
        ([length, rest @ ..], [_, wanted_rest @ ..]) if !rest.is_empty() && rest == wanted_rest => {
            Ok((rows, u32::try_from(*length).map_err(|_| wrong_shape(input, wanted))?))
        }
        // A list of numbers for an embedding.
        ([length], [_]) => Ok((rows, u32::try_from(*length).map_err(|_| wrong_shape(input, wanted))?)),
        _ => Err(wrong_shape(input, wanted)),
    }
}

fn wrong_shape(input: &Tensor, wanted: Dims) -> Error {
    let shape = dmexp_format::host::sequential::shown_shape(&wanted);
    Error::mismatch(format!(
        "has the shape {}; the model takes {shape}, where None is the batch, which may be left out",
        shown(&input.shape)
    ))
}

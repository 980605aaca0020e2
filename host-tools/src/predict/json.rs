//! Numbers as JSON: `{"shape": [1, 4], "data": [..]}`, lists of them, and samples with inputs and outputs.

use super::Tensor;
use crate::error::{Error, Result};
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawTensor {
    shape: Vec<u64>,
    data: Vec<f32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawInputs {
    inputs: Vec<RawTensor>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Inputs {
    One(RawTensor),
    List(Vec<RawTensor>),
    Object(RawInputs),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawSample {
    inputs: Vec<RawTensor>,
    outputs: Option<Vec<RawTensor>>,
}

/// What goes in, and what must come out where that is known.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// A tensor for each input.
    pub inputs: Vec<Tensor>,
    /// A tensor for each output.
    pub outputs: Option<Vec<Tensor>>,
}

/// The inputs of a network: a list of `{shape, data}`, one for each; one alone; or an object with `inputs`.
///
/// # Errors
/// [`Class::Damaged`](crate::error::Class::Damaged) for what is no JSON or other JSON; [`Class::Mismatch`](crate::error::Class::Mismatch) for data that is not of its shape.
pub fn read(text: &str) -> Result<Vec<Tensor>> {
    // First as it is, for an error that says where; then as what it must be.
    let value: Value = parsed(text)?;
    let wrong = || {
        Error::damaged("is not a list of {\"shape\": [..], \"data\": [..]}, one for each input")
            .advise("numbers are written without quotes, and null is none")
    };
    let list = match serde_json::from_value(value).map_err(|_| wrong())? {
        Inputs::One(one) => vec![one],
        Inputs::List(list) | Inputs::Object(RawInputs { inputs: list }) => list,
    };
    tensors(list, "input")
}

/// The samples of a file: a list of `{"inputs": [..], "outputs": [..]}`, one alone, or an object with `samples`, whose other keys are passed over. Outputs may be missing.
///
/// # Errors
/// Those of [`read`], with the sample.
pub fn samples(text: &str) -> Result<Vec<Sample>> {
    let mut value: Value = parsed(text)?;
    let list = match value.get_mut("samples").map(Value::take) {
        Some(list) => list,
        None if value.is_object() => Value::Array(vec![value]),
        None => value,
    };
    let Value::Array(list) = list else { return Err(Error::damaged("has no list of samples")) };
    if list.is_empty() {
        return Err(Error::damaged("has no samples"));
    }
    let samples = list.into_iter().enumerate().map(|(number, sample)| {
        let place = |error: Error| error.at(format!("sample {number}"));
        let raw: RawSample = serde_json::from_value(sample).map_err(|error| place(Error::damaged(format!("is no sample: {error}"))))?;
        let outputs = raw.outputs.map(|list| tensors(list, "output")).transpose().map_err(place)?;
        Ok(Sample { inputs: tensors(raw.inputs, "input").map_err(place)?, outputs })
    });
    samples.collect()
}

fn parsed(text: &str) -> Result<Value> {
    serde_json::from_str(text).map_err(|error| Error::damaged(format!("is no JSON: {error}")))
}

fn tensors(list: Vec<RawTensor>, what: &str) -> Result<Vec<Tensor>> {
    let made = list.into_iter().enumerate().map(|(number, raw)| {
        let shape = raw.shape.into_iter().map(super::size).collect();
        Tensor::new(shape, raw.data).map_err(|error| Error::mismatch(format!("{what} {number} {error}")))
    });
    made.collect()
}

/// The results as `{"outputs": [{"shape": .., "data": ..}]}`.
pub fn write(outputs: &[Tensor]) -> Value {
    // By way of text, so that a float of 32 bits keeps its own shortest digits.
    let number = |value: &f32| value.to_string().parse::<f64>().map_or(Value::Null, Value::from);
    let list = outputs.iter().map(|output| json!({ "shape": output.shape, "data": output.data.iter().map(number).collect::<Vec<_>>() }));
    json!({ "outputs": list.collect::<Vec<_>>() })
}

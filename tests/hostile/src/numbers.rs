//! Numbers for `predict`.

use crate::{Outcome, seeds};
use dmexp_format::Dims;
use dmexp_tools::decode::Loaded;
use dmexp_tools::error::Result;
use dmexp_tools::predict::{self, Tensor};
use std::sync::LazyLock;

static NETWORK: LazyLock<Loaded> = LazyLock::new(seeds::network);

/// Feeds the network with these inputs.
fn predicted(inputs: &[Tensor]) -> Result<Vec<Tensor>> {
    let outputs = predict::predict(&predict::predictor(&NETWORK)?, inputs)?;
    assert!(outputs.iter().flat_map(|output| &output.data).all(|value| value.is_finite()), "results are finite or an error");
    let written = predict::write_json(&outputs).to_string();
    serde_json::from_str::<serde_json::Value>(&written).expect("what is written is JSON");
    Ok(outputs)
}

fn outcome(inputs: &Result<Vec<Tensor>>) -> Outcome {
    match inputs.as_ref().map(|inputs| (predicted(inputs), inputs)) {
        Ok((Ok(_), inputs)) => Outcome::accepted(&format!("{inputs:?}")),
        Ok((Err(error), _)) => Outcome::refused_by_command(&error),
        Err(error) => Outcome::refused_by_command(error),
    }
}

/// An `.npy` file.
///
/// # Panics
/// If what is written of it is read as another array.
pub(crate) fn npy(bytes: &[u8]) -> Outcome {
    let read = predict::read_npy(bytes).map(|(tensor, _)| tensor);
    if let Ok(tensor) = &read {
        let (again, note) = predict::read_npy(&predict::write_npy(tensor)).expect("what is written can be read");
        assert!(note.is_none() && same(&again, tensor), "{again:?} of {tensor:?}");
    }
    outcome(&read.map(|tensor| vec![tensor]))
}

fn same(a: &Tensor, b: &Tensor) -> bool {
    let bits = |tensor: &Tensor| tensor.data.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
    a.shape == b.shape && bits(a) == bits(b)
}

/// JSON inputs, JSON samples, or lines of numbers.
///
/// # Panics
/// If what is written of lines is read as other numbers.
pub(crate) fn text(bytes: &[u8]) -> Outcome {
    let Ok(text) = std::str::from_utf8(bytes) else { return Outcome::Refused };
    if let Ok(samples) = predict::samples(text) {
        for sample in samples {
            let _ = predicted(&sample.inputs);
        }
    }
    if text.trim_start().starts_with(['[', '{']) {
        return outcome(&predict::read_json(text));
    }
    let wanted = Dims::new(0, 2, [24, 8, 1, 1]).expect("two axes");
    let _ = predict::read_csv(text, wanted, true);
    let read = predict::read_csv(text, wanted, false);
    if let Ok(tensor) = &read {
        let again = predict::read_csv(&predict::write_csv(tensor), wanted, false).expect("what is written can be read");
        assert!(
            again.data.iter().map(|value| value.to_bits()).eq(tensor.data.iter().map(|value| value.to_bits())),
            "{again:?} of {tensor:?}"
        );
    }
    outcome(&read.map(|tensor| vec![tensor]))
}

//! Golden vectors of a sequential file: inputs, and the outputs that this arithmetic gives for them, bit for bit. They are tensors after the layers': `golden.inputs.0` and so on for each input,
//! then `golden.outputs.0` and so on, each f32 with a row for every sample.

use super::Sequential;
use crate::file::{Entry, ModelFile, Tensor};
use crate::{ConfigKey, DType, Dims, Error, Rule, TensorView};

/// What the names of golden vectors begin with.
pub const GOLDEN_INPUTS: &str = "golden.inputs.";
/// What the names of their outputs begin with.
pub const GOLDEN_OUTPUTS: &str = "golden.outputs.";

/// The golden vectors of a file, checked against its model.
#[derive(Clone, Copy, Debug)]
pub struct Samples<'a> {
    file: ModelFile<'a>,
    first: u32,
    inputs: u32,
    count: u32,
}

impl<'a> Samples<'a> {
    /// The golden vectors of `file`, whose model is `model`; [`Samples::count`] is 0 where it has none.
    ///
    /// # Errors
    /// [`Error::Config`] for another number of tensors than the layers' and, if there are any more, one for each input and output; [`Error::TensorName`], [`Error::Tensor`] or [`Error::Shape`] for the
    /// first that is not what it must be.
    pub fn of(file: &ModelFile<'a>, model: &Sequential<'a>) -> Result<Self, Error> {
        let first = model.num_tensors();
        let (inputs, outputs) = (model.inputs().count() as u32, model.outputs().count() as u32);
        let (found, all) = (file.num_tensors(), first.saturating_add(inputs).saturating_add(outputs));
        if found == first {
            return Ok(Self { file: *file, first, inputs, count: 0 });
        }
        if found != all {
            let (found, allowed) = (u64::from(found), u64::from(if found < first { first } else { all }));
            return Err(Error::Config { key: ConfigKey::NumTensors, rule: Rule::Equal, found, allowed });
        }
        let mut count = None;
        let places = (0..inputs).map(|place| (GOLDEN_INPUTS, place)).chain((0..outputs).map(|place| (GOLDEN_OUTPUTS, place)));
        let ends = model.inputs().chain(model.outputs());
        for ((tensor, (prefix, place)), end) in (first..).zip(places).zip(ends) {
            let named = |name: &str| name.strip_prefix(prefix).is_some_and(|number| is_number(number, place));
            let Some(Tensor { view, flags, .. }) = file.entry(tensor).and_then(Entry::named).filter(|found| named(found.name)) else {
                return Err(Error::TensorName { tensor });
            };
            let wrong =
                |rule, found: u32, allowed: u32| Err(Error::Tensor { tensor, rule, found: u64::from(found), allowed: u64::from(allowed) });
            if view.dtype() != DType::F32 {
                return wrong(Rule::DType, view.dtype().code().into(), DType::F32.code().into());
            }
            if flags != NOT_TRAINED {
                return wrong(Rule::Equal, flags, NOT_TRAINED);
            }
            let rows = view.rows() as u32;
            let elements = model.node(end).map_or(0, |node| node.shape().count());
            let wanted = Dims::matrix(*count.get_or_insert(rows), u32::try_from(elements).unwrap_or(u32::MAX));
            if !view.dims().equals(&wanted) {
                return Err(Error::Shape { tensor, found: view.dims().padded(), expected: wanted.padded() });
            }
        }
        Ok(Self { file: *file, first, inputs, count: count.unwrap_or(0) })
    }

    /// How many samples.
    pub const fn count(&self) -> u32 {
        self.count
    }

    /// What goes into input `place`: `[samples, elements]`.
    pub fn inputs(&self, place: u32) -> Option<TensorView<'a>> {
        if place < self.inputs { self.file.tensor(self.first.saturating_add(place)) } else { None }
    }

    /// What must come out of output `place`, bit for bit: `[samples, elements]`.
    pub fn outputs(&self, place: u32) -> Option<TensorView<'a>> {
        self.file.tensor(self.first.saturating_add(self.inputs).saturating_add(place))
    }
}

/// The flags of a tensor that is neither trained nor turned.
const NOT_TRAINED: u32 = 2;

/// Whether `text` is `number` in decimal without leading zeros.
fn is_number(text: &str, number: u32) -> bool {
    (text == "0" || !text.starts_with(['0', '+'])) && text.parse() == Ok(number)
}

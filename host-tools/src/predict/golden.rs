//! Samples: what must come out for stated inputs. The exporter compares, computes and stores them; `verify` replays them.

use super::{Sample, Tensor, predict, predictor, shown};
use crate::decode::Loaded;
use crate::error::{Error, Result};
use dmexp_format::arch::sequential::Samples;
use dmexp_format::host::SequentialSettings;
use dmexp_format::{Dims, TensorView};

/// How far a result may be from what a sample says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    /// By itself.
    pub absolute: f32,
    /// As a part of what is expected.
    pub relative: f32,
}

impl Tolerance {
    /// What sums in another order and other functions of the last bit come to.
    pub const F32: Self = Self { absolute: 1e-5, relative: 1e-5 };
}

/// How results compare with what samples say of them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Compared {
    /// How many samples there are.
    pub samples: usize,
    /// How many of them say what must come out.
    pub known: usize,
    /// The largest difference of an element.
    pub worst: f32,
    /// The largest difference as a part of the tolerance.
    pub worst_part: f32,
}

/// The results for `samples` in the order of their rows, and how far they are from what the samples say. With a `tolerance` a result farther off is refused.
///
/// # Errors
/// Those of [`predict`]; [`Class::Mismatch`](crate::error::Class::Mismatch) for outputs of another number or shape, and for the first element that is too far off, with both values; with the sample.
pub(crate) fn compute(loaded: &Loaded, samples: &[Sample], tolerance: Option<Tolerance>) -> Result<(Vec<Vec<Tensor>>, Compared)> {
    let predictor = predictor(loaded)?;
    let mut compared = Compared { samples: samples.len(), ..Compared::default() };
    let mut all = Vec::with_capacity(samples.len());
    for (number, sample) in samples.iter().enumerate() {
        let place = |error: Error| Error::new(error.class(), format!("sample {number}: {error}"));
        let found = predict(&predictor, &sample.inputs).map_err(place)?;
        if let Some(known) = &sample.outputs {
            compared.known += 1;
            compare(&found, known, tolerance, &mut compared).map_err(place)?;
        }
        all.push(found);
    }
    Ok((all, compared))
}

fn compare(found: &[Tensor], known: &[Tensor], tolerance: Option<Tolerance>, compared: &mut Compared) -> Result<()> {
    if found.len() != known.len() {
        return Err(Error::mismatch(format!("gives {} outputs, but the model has {}", known.len(), found.len())));
    }
    for (output, (found, known)) in found.iter().zip(known).enumerate() {
        let without_batch = found.shape.split_first().filter(|(rows, _)| **rows == 1).map(|(_, rest)| rest);
        if known.shape != found.shape && without_batch != Some(known.shape.as_slice()) {
            let what = format!("output {output} has the shape {}, but the model gives {}", shown(&known.shape), shown(&found.shape));
            return Err(Error::mismatch(what));
        }
        for (element, (found, known)) in found.data.iter().zip(&known.data).enumerate() {
            let Tolerance { absolute, relative } = tolerance.unwrap_or(Tolerance::F32);
            let (difference, allowed) = ((found - known).abs(), absolute + relative * known.abs());
            // A NaN is too far off.
            let near = difference <= allowed;
            if tolerance.is_some() && !near {
                let what = format!(
                    "output {output}, element {element}: the model gives {found}, the sample says {known}; {allowed:e} off is allowed"
                );
                return Err(Error::mismatch(what)
                    .advise("an activation, an epsilon, an axis or a direction in the architecture may be another than in training"));
            }
            compared.worst = compared.worst.max(difference);
            compared.worst_part = compared.worst_part.max(difference / allowed);
        }
    }
    Ok(())
}

/// The golden vectors of the header's list: names, dims, bytes.
///
/// # Errors
/// [`Class::Mismatch`](crate::error::Class::Mismatch) for a sample of another length than the file says, which a golden vector cannot have.
pub(crate) fn tensors_of(
    settings: &SequentialSettings,
    samples: &[Sample],
    outputs: &[Vec<Tensor>],
) -> Result<Vec<(String, Dims, Vec<u8>)>> {
    let rows: usize = outputs.iter().map(|outputs| outputs.first().and_then(|output| output.shape.first()).copied().unwrap_or(0)).sum();
    let rows = u32::try_from(rows).map_err(|_| Error::mismatch("has too many samples"))?;
    let inputs = samples.first().map_or(0, |sample| sample.inputs.len());
    let made = settings.golden_tensors(rows).enumerate().map(|(place, (name, dims))| {
        let bytes: Vec<u8> = samples
            .iter()
            .zip(outputs)
            .filter_map(|(sample, outputs)| if place < inputs { sample.inputs.get(place) } else { outputs.get(place - inputs) })
            .flat_map(|tensor| &tensor.data)
            .flat_map(|value| value.to_le_bytes())
            .collect();
        if bytes.len() as u64 != dims.count() * 4 {
            let what = "has samples of another length than the model's input shape, and golden vectors are of that length";
            return Err(Error::mismatch(what).advise("set input_shape in the architecture to the samples' length"));
        }
        Ok((name, dims, bytes))
    });
    made.collect()
}

/// Runs every golden vector of a file and compares bit for bit; how many there are.
///
/// # Errors
/// [`Class::Damaged`](crate::error::Class::Damaged) for the first element that comes out otherwise, with both values.
pub fn replay(loaded: &Loaded) -> Result<u32> {
    let Some((samples, found)) = rerun(loaded)? else { return Ok(0) };
    for (output, found) in (0u32..).zip(&found) {
        let Some(expected) = samples.outputs(output).map(values) else { continue };
        let per_row = (found.data.len() / samples.count() as usize).max(1);
        for (place, (found, expected)) in found.data.iter().zip(&expected).enumerate() {
            if found.to_bits() != expected.to_bits() {
                let what = format!(
                    "golden vector {}: output {output}, element {}: computed {found} ({:08x}), the file says {expected} ({:08x})",
                    place / per_row,
                    place % per_row,
                    found.to_bits(),
                    expected.to_bits()
                );
                return Err(Error::damaged(what).advise("export it again").in_file(loaded.path()));
            }
        }
    }
    Ok(samples.count())
}

/// What the golden outputs of a file must be: the numbers of their tensors, and their bytes. Empty where the file has no golden vectors.
///
/// # Errors
/// Those of running them.
pub(crate) fn recomputed(loaded: &Loaded) -> Result<Vec<(usize, Vec<u8>)>> {
    let Some((_, found)) = rerun(loaded)? else { return Ok(Vec::new()) };
    let first = loaded.file()?.num_tensors() as usize - found.len();
    let bytes = |tensor: Tensor| tensor.data.iter().flat_map(|value| value.to_le_bytes()).collect();
    Ok((first..).zip(found.into_iter().map(bytes)).collect())
}

/// The golden vectors of a file, and what comes out for their inputs.
fn rerun(loaded: &Loaded) -> Result<Option<(Samples<'_>, Vec<Tensor>)>> {
    let file = loaded.file()?;
    let model = file.sequential().map_err(|error| loaded.explain(error))?;
    let samples = Samples::of(&file, &model).map_err(|error| loaded.explain(error))?;
    if samples.count() == 0 {
        return Ok(None);
    }
    let inputs = (0..).map_while(|place| samples.inputs(place)).zip(model.inputs()).map(|(view, node)| {
        let shape = model.node(node).map(|node| node.shape());
        let sizes = shape.iter().flat_map(|shape| shape.as_slice().to_vec()).map(|size| size as usize);
        Tensor { shape: std::iter::once(samples.count() as usize).chain(sizes).collect(), data: values(view) }
    });
    let found = predict(&predictor(loaded)?, &inputs.collect::<Vec<_>>()).map_err(|error| error.in_file(loaded.path()))?;
    Ok(Some((samples, found)))
}

fn values(view: TensorView<'_>) -> Vec<f32> {
    (0..view.dims().count() as usize).map(|place| view.get_f32(place)).collect()
}

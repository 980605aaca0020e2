//! A dormouse model as format 2 holds it: what inference reads, matrices with their inputs last, ternary factors as their codes times their size.

use super::super::array::Array;
use super::super::{Checkpoint, Config, Encoding, Mapping};
use super::DormouseSource;
use crate::error::{Error, Result};
use dmexp::ops::columns::mean_magnitude;
use dmexp_format::arch::dormouse::tensors::{Form, TensorSpec};
use dmexp_format::arch::dormouse::{DormouseConfig, Residual};
use dmexp_format::{DType, Dims, TensorView};

impl Checkpoint {
    /// The model as format 2 holds it, in memory; `None` for another architecture.
    ///
    /// # Errors
    /// [`Class::Mismatch`](crate::error::Class::Mismatch) for a configuration that this version does not run, or a tensor that is missing; those of reading an array.
    pub(crate) fn turned(&self) -> Result<Option<Self>> {
        let Config::Dormouse(source) = &self.config else { return Ok(None) };
        let model = self.model(source)?;
        let mut files = Vec::new();
        let mut arrays = Vec::new();
        for spec in (0..model.num_tensors()).filter_map(|number| model.tensor(number)).filter(|spec| spec.is_read) {
            let name = spec.to_string();
            let array =
                self.array(&name).ok_or_else(|| Error::mismatch(format!("has no tensor {name}, which its configuration calls for")))?;
            if array.dims() != spec.dims {
                let (found, wanted) = (array.dims(), spec.dims);
                let what = format!("has {name} {:?}; the configuration calls for {:?}", found.as_slice(), wanted.as_slice());
                return Err(Error::mismatch(what));
            }
            let values = as_stored(&spec, array.to_vec()?)?;
            array.release();
            let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
            arrays.push(Array::whole(name, spec.turned_dims(), files.len(), Encoding::F32 { offset: 0 }));
            files.push(Mapping::from_bytes(self.path(), bytes));
        }
        let config = Config::Dormouse(DormouseSource { turned: Some(model), ..source.clone() });
        let mut turned = Self::new(files, arrays, config, None, self.provenance.clone())?;
        turned.notes.clone_from(&self.notes);
        Ok(Some(turned))
    }

    /// The configuration as the runtime has it, with the scale of the recurrence that was named, or else the one that goes with the model's age.
    fn model(&self, source: &DormouseSource) -> Result<DormouseConfig> {
        let config =
            DormouseConfig::from_toml(&source.config.to_text()).map_err(|error| Error::mismatch(format!("the configuration's {error}")))?;
        let attnres_gain = config.residual != Residual::AttnRes || self.array("loop_block.attnres.0.gain").is_some();
        let of_old = self.array("aux.conf.proj.weight").is_some_and(|array| array.dims().padded()[0] == config.d_model);
        let guess = if of_old { 1.0 } else { 1.0 / (config.head_dim as f32).sqrt() };
        let kda_scale = Some(source.kda_scale.unwrap_or(guess));
        let config = DormouseConfig { attnres_gain, kda_scale, ..config };
        config.validate().map_err(|error| Error::mismatch(format!("the configuration's {error}")))?;
        Ok(config)
    }
}

/// The values in the order and of the size in which format 2 holds them.
fn as_stored(spec: &TensorSpec, mut values: Vec<f32>) -> Result<Vec<f32>> {
    if spec.form.is_factor() {
        let mean = mean_of(spec.dims, &values)?;
        let threshold = 0.7 * mean;
        for value in &mut values {
            // A value that is not finite stays, and is refused where it is written.
            if value.is_finite() {
                *value = if value.abs() > threshold { mean.copysign(*value) } else { 0.0 };
            }
        }
    }
    if !matches!(spec.form, Form::InputFirst | Form::FactorFirst) {
        return Ok(values);
    }
    let [rows, cols, ..] = spec.dims.padded().map(|size| size as usize);
    let columns = (0..cols).flat_map(|column| values.iter().skip(column).step_by(cols).take(rows).copied());
    Ok(columns.collect())
}

/// The mean magnitude, as the runtime takes it: the codes and their size must be the ones that it finds in a format-1 file.
fn mean_of(dims: Dims, values: &[f32]) -> Result<f32> {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    Ok(mean_magnitude(&TensorView::new(0, DType::F32, dims, &bytes)?))
}

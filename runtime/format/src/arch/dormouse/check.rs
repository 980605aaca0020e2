//! Whether a file holds what its dormouse configuration calls for, and nothing else: what `bind` and `verify` rely on.

use super::DormouseConfig;
use super::tensors::{Form, TensorSpec};
use crate::arch::Architecture;
use crate::file::{ModelFile, Tensor};
use crate::{ConfigKey, DType, Error, Rule};

/// What begins the names of heads that only train. Their dims are not looked at.
pub const TRAINING_ONLY: &str = "aux.";

/// A file that was compared with its configuration.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Checked {
    /// The configuration.
    pub config: DormouseConfig,
    /// What the file lets one guess about the time when the model was trained.
    pub age: Age,
    /// Tensors that inference does not read.
    pub unread: u32,
}

/// Whether the model was trained before dormouse changed the scale of its recurrence, on 2026-10-02: a head that only trains got more inputs the day before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Age {
    /// The head has the inputs of old.
    Before,
    /// It has those of later.
    After,
    /// The file has no such head.
    Unknown,
}

impl Checked {
    /// What the results of the recurrence are to be multiplied by: what the file says, else 1 for a model of old and 1 / sqrt(`head_dim`) for others.
    pub fn kda_scale(&self) -> KdaScale {
        match (self.config.kda_scale, self.age) {
            (Some(scale), _) => KdaScale::Given(scale),
            (None, Age::Before) => KdaScale::One,
            (None, _) => KdaScale::OfHeadDim,
        }
    }
}

/// A scale of the recurrence, before any square root is taken.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum KdaScale {
    /// This number.
    Given(f32),
    /// 1: dormouse before 2026-10-02.
    One,
    /// 1 / sqrt(`head_dim`): dormouse since.
    OfHeadDim,
}

/// Checks every tensor of a dormouse file against its configuration: names, dims, element types, that none is missing and none is there that nothing calls for. Reads no payload.
///
/// In format 1 the order is free, as it is for dormouse, tensors that inference does not read may be missing, and those for training alone (`aux.*`) are passed over. In format 2 the tensors
/// are those that inference reads, in order.
///
/// # Errors
/// [`Error::OtherArchitecture`]; those of [`ModelFile::dormouse_config`]; [`Error::TensorName`], [`Error::Shape`] or [`Error::Tensor`] for the first tensor that is wrong;
/// [`Error::MissingTensor`].
pub fn check_tensors(file: &ModelFile<'_>) -> Result<Checked, Error> {
    let found = file.architecture();
    if found != Architecture::Dormouse {
        return Err(Error::OtherArchitecture { found: found.code(), expected: Architecture::Dormouse.code() });
    }
    let config = file.dormouse_config()?;
    let (age, read) = if file.is_format_1() { by_name(&config, file)? } else { (Age::Unknown, in_order(&config, file)?) };
    let wanted = config.num_read();
    if read != wanted {
        return Err(missing(&config, file));
    }
    // The weights are found by their place among all elements, in words of 32 bits.
    if file.num_params() > u64::from(u32::MAX) {
        let (found, allowed) = (file.num_params(), u64::from(u32::MAX));
        return Err(Error::Config { key: ConfigKey::NumParams, rule: Rule::TooLarge, found, allowed });
    }
    Ok(Checked { config, age, unread: file.num_tensors().saturating_sub(read) })
}

fn by_name(config: &DormouseConfig, file: &ModelFile<'_>) -> Result<(Age, u32), Error> {
    let (mut age, mut read) = (Age::Unknown, 0);
    for tensor in file.tensors() {
        if tensor.name.starts_with(TRAINING_ONLY) {
            if tensor.name == "aux.conf.proj.weight" {
                let [inputs, ..] = tensor.view.dims().padded();
                age = if inputs == config.d_model { Age::Before } else { Age::After };
            }
            continue;
        }
        let spec = config.find(tensor.name).and_then(|number| config.tensor(number));
        let spec = spec.ok_or(Error::TensorName { tensor: tensor.number })?;
        check_dims(&tensor, spec.dims)?;
        // `open` made sure that no name is there twice.
        read += u32::from(spec.is_read);
    }
    Ok((age, read))
}

fn in_order(config: &DormouseConfig, file: &ModelFile<'_>) -> Result<u32, Error> {
    let mut tensors = file.tensors();
    let mut read = 0;
    for number in 0..config.num_tensors() {
        // The one reason why a tensor is none: dims that no tensor has.
        let spec = config.tensor(number).ok_or(Error::MissingTensor { wanted: number })?;
        if !spec.is_read {
            continue;
        }
        let tensor = tensors.next().ok_or(Error::MissingTensor { wanted: number })?;
        if !spec.role.is_named(tensor.name) {
            return Err(Error::TensorName { tensor: tensor.number });
        }
        check_dims(&tensor, spec.turned_dims())?;
        check_dtype(&tensor, &spec)?;
        read += 1;
    }
    match tensors.next() {
        Some(extra) => Err(Error::TensorName { tensor: extra.number }),
        None => Ok(read),
    }
}

fn check_dims(tensor: &Tensor<'_>, expected: crate::Dims) -> Result<(), Error> {
    let found = tensor.view.dims();
    if found.equals(&expected) {
        return Ok(());
    }
    Err(Error::Shape { tensor: tensor.number, found: found.padded(), expected: expected.padded() })
}

fn check_dtype(tensor: &Tensor<'_>, spec: &TensorSpec) -> Result<(), Error> {
    let dtype = tensor.view.dtype();
    let (fits, allowed) = match spec.form {
        Form::Plain => (dtype == DType::F32, DType::F32),
        Form::FactorFirst | Form::FactorLast => (dtype == DType::T2, DType::T2),
        Form::Table | Form::InputFirst => (dtype.is_weight(), DType::F32),
    };
    if fits {
        return Ok(());
    }
    Err(Error::Tensor { tensor: tensor.number, rule: Rule::DType, found: u64::from(dtype.code()), allowed: u64::from(allowed.code()) })
}

/// The first tensor that is read but not there.
#[cold]
fn missing(config: &DormouseConfig, file: &ModelFile<'_>) -> Error {
    let there = |number: u32| {
        let role = config.role(number);
        file.tensors().any(|tensor| role.is_some_and(|role| role.is_named(tensor.name)))
    };
    let is_read = |number: &u32| config.tensor(*number).is_none_or(|spec| spec.is_read);
    let wanted = (0..config.num_tensors()).filter(is_read).find(|number| !there(*number)).unwrap_or(u32::MAX);
    Error::MissingTensor { wanted }
}

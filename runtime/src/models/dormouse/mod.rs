//! The dormouse byte model: a loop over one block, whose attention is a delta-rule recurrence that goes on from one iteration to the next.
//!
//! Read it in this order: where the weights are (here), what a session keeps (`state`), which positions are computed when (`decode`), one iteration at one position (`block`) and its
//! arms. The arithmetic is that of docs/format/arithmetic.md; where dormouse leaves an order open, docs/dormouse.md says which one is taken here.

mod act_quant;
mod attention;
mod block;
mod decode;
mod experts;
mod kda;
mod linear;
mod memory;
mod residual;
mod state;
#[cfg(not(target_os = "none"))]
mod weights;

#[cfg(test)]
mod tests;

#[cfg(feature = "files")]
use crate::format::DType;
use crate::format::arch::dormouse::DormouseConfig;
#[cfg(feature = "files")]
use crate::format::arch::dormouse::check::{KdaScale, check_tensors};
use crate::format::arch::dormouse::tensors::Role;
#[cfg(feature = "files")]
use crate::format::file::ModelFile;
use crate::format::{ConfigKey, Error, Rule, TensorView};
use crate::ops::math::sqrt;

pub use state::State;

/// How the ternary factors of a format-1 file are taken. The file does not say how they were trained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Factors {
    /// As their signs, where they are large enough, times their mean magnitude: what dormouse's own `generate` does.
    #[default]
    Ternary,
    /// As they are.
    Raw,
    /// Those of the experts in 8 bits with a scale a row, as training in fp8 saw them; the others ternary.
    Fp8,
}

/// A model's weights, where they lie. Nothing is copied, and no step can fail on the file's account.
#[derive(Clone, Copy, Debug)]
pub struct Dormouse<'a> {
    config: DormouseConfig,
    weights: Weights<'a>,
    kda_scale: f32,
    scale_is_recorded: bool,
    factors: Factors,
}

/// Where tensors are.
#[derive(Clone, Copy, Debug)]
enum Weights<'a> {
    /// In a table, in the order of a format-2 file.
    Table(&'a [TensorView<'a>]),
    /// In a format-2 file, whose index knows.
    #[cfg(feature = "files")]
    Indexed(ModelFile<'a>),
    /// One after the other in a format-1 file, all of one type.
    #[cfg(feature = "toml")]
    Packed(ModelFile<'a>, DType),
}

#[cfg(feature = "files")]
impl<'a> Dormouse<'a> {
    /// The weights of an opened file: every tensor that inference reads is there with its dims, and nothing is there that the configuration does not call for.
    ///
    /// # Errors
    /// Those of [`check_tensors`]; [`Error::DTypeNotBuilt`] where the cargo feature for a tensor's element type was left out.
    #[inline(never)]
    pub fn bind(file: &ModelFile<'a>) -> Result<Self, Error> {
        let checked = check_tensors(file)?;
        for tensor in file.tensors() {
            let dtype = tensor.view.dtype();
            let built = match dtype {
                DType::F32 => cfg!(feature = "f32"),
                DType::F16 => cfg!(feature = "f16"),
                DType::Bf16 => cfg!(feature = "bf16"),
                DType::Q8 => cfg!(feature = "q8"),
                DType::Q4 => cfg!(feature = "q4"),
                DType::T2 => cfg!(feature = "t2"),
                _ => true,
            };
            let read_by_element = tensor.view.dims().rank() == 1 || tensor.view.dims().cols() == 1;
            if !(built || read_by_element && dtype.is_float()) {
                return Err(Error::DTypeNotBuilt { tensor: tensor.number, code: dtype.code() });
            }
        }
        #[cfg(feature = "toml")]
        let weights = file.single_dtype().map_or(Weights::Indexed(*file), |dtype| Weights::Packed(*file, dtype));
        #[cfg(not(feature = "toml"))]
        let weights = Weights::Indexed(*file);
        let (kda_scale, scale_is_recorded) = match checked.kda_scale() {
            KdaScale::Given(scale) => (scale, true),
            KdaScale::One => (1.0, false),
            KdaScale::OfHeadDim => (1.0 / sqrt(checked.config.head_dim as f32), false),
        };
        Ok(Self { config: checked.config, weights, kda_scale, scale_is_recorded, factors: Factors::Ternary })
    }
}

impl<'a> Dormouse<'a> {
    /// The weights in a table in the order of a format-2 file, which holds the tensors that inference reads.
    pub fn from_table(config: DormouseConfig, table: &'a [TensorView<'a>]) -> Self {
        let kda_scale = config.kda_scale.unwrap_or_else(|| 1.0 / sqrt(config.head_dim as f32));
        Self { config, weights: Weights::Table(table), kda_scale, scale_is_recorded: config.kda_scale.is_some(), factors: Factors::Ternary }
    }

    /// The same where the scale of the recurrence is known since the program was compiled.
    pub const fn from_parts(config: DormouseConfig, table: &'a [TensorView<'a>], kda_scale: f32) -> Self {
        Self { config, weights: Weights::Table(table), kda_scale, scale_is_recorded: true, factors: Factors::Ternary }
    }

    /// The model's configuration.
    pub const fn config(&self) -> &DormouseConfig {
        &self.config
    }

    /// What the results of the recurrence are multiplied by.
    pub const fn kda_scale(&self) -> f32 {
        self.kda_scale
    }

    /// Whether the file says so. Otherwise it is a guess from what only trains: dormouse changed it, and no file of its own says which one a model was trained with.
    pub const fn kda_scale_is_recorded(&self) -> bool {
        self.scale_is_recorded
    }

    /// How ternary factors are taken.
    pub const fn factors(&self) -> Factors {
        self.factors
    }

    /// The same model with another scale of the recurrence.
    ///
    /// # Errors
    /// [`Error::Config`] for one that is not finite and above 0.
    pub fn with_kda_scale(self, scale: f32) -> Result<Self, Error> {
        let rule = if scale.is_finite() { Rule::Positive } else { Rule::Finite };
        if rule == Rule::Finite || scale <= 0.0 {
            return Err(Error::Config { key: ConfigKey::KdaScale, rule, found: u64::from(scale.to_bits()), allowed: 0 });
        }
        Ok(Self { kda_scale: scale, ..self })
    }

    /// The same model with its factors taken in another way.
    ///
    /// # Errors
    /// [`Error::Config`] for a file that holds the codes of its factors alone (format 2).
    pub fn with_factors(self, factors: Factors) -> Result<Self, Error> {
        if factors != Factors::Ternary && self.is_turned() {
            return Err(Error::Config { key: ConfigKey::Factors, rule: Rule::Unsupported, found: factors as u64, allowed: 0 });
        }
        Ok(Self { factors, ..self })
    }

    /// How many tensors there are.
    #[cfg(feature = "probe")]
    pub(crate) fn num_tensors(&self) -> u32 {
        match self.weights {
            Weights::Table(table) => table.len() as u32,
            #[cfg(feature = "files")]
            Weights::Indexed(file) => file.num_tensors(),
            #[cfg(feature = "toml")]
            Weights::Packed(file, _) => file.num_tensors(),
        }
    }

    /// The bytes of the tensor of this number in the file's order.
    #[cfg(feature = "probe")]
    pub(crate) fn tensor_bytes(&self, number: u32) -> Option<&'a [u8]> {
        match self.weights {
            Weights::Table(table) => table.get(number as usize).map(TensorView::bytes),
            #[cfg(feature = "files")]
            Weights::Indexed(file) => file.tensor(number).map(|view| view.bytes()),
            #[cfg(feature = "toml")]
            Weights::Packed(file, _) => file.tensor(number).map(|view| view.bytes()),
        }
    }

    /// Whether matrices have their inputs last, and factors are codes: format 2.
    pub fn is_turned(&self) -> bool {
        match self.weights {
            Weights::Table(_) => true,
            #[cfg(feature = "files")]
            Weights::Indexed(_) => true,
            #[cfg(feature = "toml")]
            Weights::Packed(..) => false,
        }
    }

    /// Writes where each tensor is, by its number: what [`Dormouse::tensor`] is given. A tensor that is not there gets `u32::MAX`.
    fn find(&self, places: &mut [u32]) {
        match self.weights {
            #[cfg(feature = "toml")]
            Weights::Packed(file, _) => {
                places.fill(u32::MAX);
                let mut elements = 0u64;
                for tensor in file.tensors() {
                    if let Some(place) = self.config.find(tensor.name).and_then(|number| places.get_mut(number as usize)) {
                        // `check_tensors` made sure that all elements can be counted in 32 bits.
                        *place = elements as u32;
                    }
                    elements = elements.saturating_add(tensor.view.dims().count());
                }
            }
            _ => {
                let mut next = 0u32;
                for (number, place) in (0..).zip(places) {
                    let is_read = self.config.tensor(number).is_some_and(|spec| spec.is_read);
                    *place = if is_read { next } else { u32::MAX };
                    next = next.wrapping_add(u32::from(is_read));
                }
            }
        }
    }

    /// The tensor, or one without elements where there is none.
    fn tensor(&self, places: &[u32], role: Role) -> TensorView<'a> {
        let number = self.config.tensor_number(role) as usize;
        let found = places.get(number).filter(|place| **place != u32::MAX).and_then(|place| match self.weights {
            Weights::Table(table) => table.get(*place as usize).copied(),
            #[cfg(feature = "files")]
            Weights::Indexed(file) => file.tensor(*place),
            #[cfg(feature = "toml")]
            Weights::Packed(file, dtype) => {
                let dims = self.config.spec(role)?.dims;
                let size = dtype.size() as usize;
                let start = (*place as usize).checked_mul(size)?;
                let bytes = file.payload().get(start..)?.get(..(dims.count() as usize).checked_mul(size)?)?;
                TensorView::new(0, dtype, dims, bytes).ok()
            }
        });
        found.unwrap_or(TensorView::EMPTY)
    }
}

/// The first `count` values and the rest; both empty where there are not as many, which a layout rules out.
#[inline(never)]
fn split(values: &mut [f32], count: usize) -> (&mut [f32], &mut [f32]) {
    values.split_at_mut_checked(count).unwrap_or_default()
}

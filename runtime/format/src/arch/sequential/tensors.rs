//! Which tensors a layer wants, in their order, with their dims as stored; and whether a file holds them and nothing else.
//!
//! A matrix is stored with the axis that is summed over last, so that one result is one [`dot8`](https://docs.rs/dmexp) of a row: kernels of convolutions are `[filters, taps * channels]`, the taps in
//! row-major order and the channels of one tap together; depthwise kernels `[channels * depth, taps]`; recurrent kernels `[gates * units, inputs]`.

use super::golden::Samples;
use super::layer::{Flags, Layer};
use super::ops::{Interpolation, Op};
use super::{Fault, LayerKey, Sequential};
use crate::arch::Architecture;
use crate::file::{Entry, ModelFile, Tensor};
use crate::{DType, Dims, Error, Rule};
use core::fmt;

/// Which of a layer's tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Role {
    /// Of a dense, convolutional or recurrent layer.
    Kernel,
    /// From a recurrent layer's state.
    RecurrentKernel,
    /// The first stage of a separable convolution.
    DepthwiseKernel,
    /// The second stage of a separable convolution.
    PointwiseKernel,
    /// Added to the result.
    Bias,
    /// Multiplies what is normalised.
    Gamma,
    /// Added to what is normalised.
    Beta,
    /// Of the training's batches; not trained.
    MovingMean,
    /// Of the training's batches; not trained.
    MovingVariance,
    /// A row for each number.
    Embeddings,
    /// Of a `PReLU`: the input's shape, shared axes being 1.
    Alpha,
    /// What each row of an interpolating upsampling is made of: one weight a tap. The exporter computes it.
    HeightResampling,
    /// The same of each column.
    WidthResampling,
}

impl Role {
    /// The name after the layer's number and a dot.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::RecurrentKernel => "recurrent_kernel",
            Self::DepthwiseKernel => "depthwise_kernel",
            Self::PointwiseKernel => "pointwise_kernel",
            Self::Bias => "bias",
            Self::Gamma => "gamma",
            Self::Beta => "beta",
            Self::MovingMean => "moving_mean",
            Self::MovingVariance => "moving_variance",
            Self::Embeddings => "embeddings",
            Self::Alpha => "alpha",
            Self::HeightResampling => "height_resampling",
            Self::WidthResampling => "width_resampling",
        }
    }

    /// Whether training changes it.
    pub const fn is_trainable(self) -> bool {
        !matches!(self, Self::MovingMean | Self::MovingVariance) && !self.is_computed()
    }

    /// Whether it follows from the layer alone: no source has it.
    pub const fn is_computed(self) -> bool {
        matches!(self, Self::HeightResampling | Self::WidthResampling)
    }

    /// Whether it may be stored in another type than f32.
    pub const fn is_matrix(self) -> bool {
        self.is_transposed() || matches!(self, Self::Embeddings)
    }

    /// The types in which a layer of this operation may store it.
    pub const fn dtypes(self, op: Op) -> &'static [DType] {
        match self {
            // A transposed convolution adds each input to many outputs: it has no one row to sum over in integers.
            _ if self.is_transposed() && !matches!(op, Op::ConvTranspose) => &[DType::F32, DType::F16, DType::Bf16, DType::Q8],
            _ if self.is_matrix() => &[DType::F32, DType::F16, DType::Bf16],
            _ => &[DType::F32],
        }
    }

    /// Whether `RustyML` has its axes the other way round.
    pub const fn is_transposed(self) -> bool {
        matches!(self, Self::Kernel | Self::RecurrentKernel | Self::DepthwiseKernel | Self::PointwiseKernel)
    }
}

/// A tensor that a layer wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The layer's number.
    pub layer: u32,
    /// Which of its tensors.
    pub role: Role,
    /// The dims as stored.
    pub dims: Dims,
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.layer, self.role.name())
    }
}

impl Wanted {
    /// Whether `name` is this tensor's: the layer in decimal without leading zeros, a dot, and the role.
    pub fn is_named(&self, name: &str) -> bool {
        let Some((number, role)) = name.split_once('.') else { return false };
        let plain = number == "0" || !number.starts_with(['0', '+']);
        plain && role == self.role.name() && number.parse() == Ok(self.layer)
    }
}

impl Layer {
    /// The tensors that it wants, in the file's order.
    pub fn roles(&self) -> impl Iterator<Item = Role> + Clone + use<> {
        let has = |flag, role| if self.flags.has(flag) { Some(role) } else { None };
        let bias = has(Flags::BIAS, Role::Bias);
        let (gamma, beta) = (has(Flags::SCALE, Role::Gamma), has(Flags::CENTER, Role::Beta));
        let roles = match self.op {
            Op::Dense | Op::Conv | Op::ConvTranspose | Op::DepthwiseConv => [Some(Role::Kernel), bias, None, None],
            Op::SeparableConv => [Some(Role::DepthwiseKernel), Some(Role::PointwiseKernel), bias, None],
            Op::BatchNormalization => [gamma, beta, Some(Role::MovingMean), Some(Role::MovingVariance)],
            Op::LayerNormalization | Op::GroupNormalization | Op::InstanceNormalization => [gamma, beta, None, None],
            Op::SimpleRnn | Op::Lstm | Op::Gru => [Some(Role::Kernel), Some(Role::RecurrentKernel), Some(Role::Bias), None],
            Op::Embedding => [Some(Role::Embeddings), None, None, None],
            Op::PRelu => [Some(Role::Alpha), None, None, None],
            Op::UpSampling if self.interpolation != Interpolation::Nearest => {
                [Some(Role::HeightResampling), Some(Role::WidthResampling), None, None]
            }
            _ => [None; 4],
        };
        roles.into_iter().flatten()
    }

    /// How many blocks of `units` rows a recurrent layer's kernels have.
    pub const fn gates(&self) -> u32 {
        match self.op {
            Op::Lstm => 4,
            Op::Gru => 3,
            _ => 1,
        }
    }

    /// The dims, as stored, of the tensor in this role for an input of this shape.
    ///
    /// # Errors
    /// [`Fault`] of [`LayerKey::Tensors`] where a product of sizes is past 32 bits.
    pub fn tensor_dims(&self, role: Role, input: Dims) -> Result<Dims, Fault> {
        let (units, depth, channels) = (u64::from(self.units), u64::from(self.depth), u64::from(input.cols()));
        let taps = self.window().into_iter().take(usize::from(self.spatial)).fold(1u64, |taps, size| taps.saturating_mul(u64::from(size)));
        let rows = units.saturating_mul(u64::from(self.gates()));
        let filters = channels.saturating_mul(depth);
        match (self.op, role) {
            (Op::Conv | Op::ConvTranspose, Role::Kernel) => matrix(units, taps.saturating_mul(channels)),
            (Op::DepthwiseConv, Role::Kernel) | (_, Role::DepthwiseKernel) => matrix(filters, taps),
            (Op::DepthwiseConv, Role::Bias) => vector(filters),
            (_, Role::PointwiseKernel) => matrix(units, filters),
            (_, Role::Kernel) => matrix(rows, channels),
            (_, Role::RecurrentKernel) => matrix(rows, units),
            (_, Role::Bias) => vector(rows),
            (_, Role::Embeddings) => matrix(depth, units),
            (Op::LayerNormalization, _) => {
                let sizes = input.as_slice();
                let extent = |axis: u8| u64::from(sizes.get(usize::from(axis)).copied().unwrap_or(0));
                vector(self.used_axes().fold(1u64, |product, axis| product.saturating_mul(extent(axis))))
            }
            (_, Role::Alpha) => {
                let shared = |place: u8| self.used_axes().any(|axis| axis == place);
                super::shape((0u8..).zip(input.as_slice()).map(|(place, size)| if shared(place) { 1 } else { *size }))
            }
            (_, Role::HeightResampling | Role::WidthResampling) => {
                let place = usize::from(role == Role::WidthResampling);
                let along = |sizes: &[u32]| sizes.get(place).copied().map_or(0, u64::from);
                let rows = along(input.as_slice()).saturating_mul(along(&self.window()));
                matrix(rows, u64::from(self.interpolation.taps()))
            }
            (_, Role::Gamma | Role::Beta | Role::MovingMean | Role::MovingVariance) => vector(channels),
        }
    }
}

fn vector(n: u64) -> Result<Dims, Fault> {
    size(n).map(Dims::vector)
}

fn matrix(rows: u64, cols: u64) -> Result<Dims, Fault> {
    Ok(Dims::matrix(size(rows)?, size(cols)?))
}

fn size(n: u64) -> Result<u32, Fault> {
    // The limit of a shape's size, squared, is the most that a tensor may have; Dims checks products when the file is opened.
    u32::try_from(n).map_err(|_| Fault::new(LayerKey::Tensors, Rule::TooLarge, u32::MAX, u32::MAX))
}

/// Checks a sequential file: its configuration as [`Sequential::parse`] does, and every tensor against it: number, order, names, dims, element types, whether it is trained and stored the
/// other way round. Reads no payload.
///
/// # Errors
/// [`Error::OtherArchitecture`]; those of [`Sequential::parse`]; [`Error::TensorName`], [`Error::Shape`] or [`Error::Tensor`] for the first tensor that is not the one wanted at its place;
/// [`Error::Config`] where there are more.
pub fn check_tensors<'a>(file: &ModelFile<'a>) -> Result<Sequential<'a>, Error> {
    let found = file.architecture();
    if found != Architecture::Sequential {
        return Err(Error::OtherArchitecture { found: found.code(), expected: Architecture::Sequential.code() });
    }
    let model = file.sequential()?;
    for (number, node) in (0u32..).zip(model.nodes()) {
        let Some(layer_number) = node.layer() else { continue };
        let (Some(layer), Some(input)) = (model.layer(layer_number), model.input_shape(number)) else { continue };
        for (place, role) in (0u32..).zip(layer.roles()) {
            let tensor = layer.first_tensor.saturating_add(place);
            let dims = layer.tensor_dims(role, input).map_err(|fault| fault.of_layer(layer_number))?;
            check_tensor(file, tensor, &Wanted { layer: layer_number, role, dims }, layer.op)?;
        }
    }
    Samples::of(file, &model)?;
    Ok(model)
}

fn check_tensor(file: &ModelFile<'_>, number: u32, wanted: &Wanted, op: Op) -> Result<(), Error> {
    let Some(Tensor { view, flags, .. }) = file.entry(number).and_then(Entry::named).filter(|tensor| wanted.is_named(tensor.name)) else {
        return Err(Error::TensorName { tensor: number });
    };
    if !view.dims().equals(&wanted.dims) {
        return Err(Error::Shape { tensor: number, found: view.dims().padded(), expected: wanted.dims.padded() });
    }
    let dtype = view.dtype();
    if !wanted.role.dtypes(op).contains(&dtype) {
        let (found, allowed) = (u64::from(dtype.code()), u64::from(DType::F32.code()));
        return Err(Error::Tensor { tensor: number, rule: Rule::DType, found, allowed });
    }
    let expected = u32::from(wanted.role.is_transposed()) | u32::from(!wanted.role.is_trainable()) << 1;
    if flags == expected {
        Ok(())
    } else {
        Err(Error::Tensor { tensor: number, rule: Rule::Equal, found: u64::from(flags), allowed: u64::from(expected) })
    }
}

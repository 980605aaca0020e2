//! One call of a layer: what to run and on what. Made while firmware compiles, or from a file's records each time that it is run.

use super::{convolution, dense, depthwise, gather, merge, normalise, pooling, recurrent, table, upsampling};
use crate::format::arch::sequential::{Activation, Interpolation, Layer, LayerKey, Op};
use crate::format::{Dims, Error, Rule, TensorView};
use crate::ops::elementwise::{self, Activate};

/// What a layer does with one of its inputs.
pub type Kernel = fn(&mut Call<'_, '_>) -> Result<(), Error>;

/// A call of a layer, ready to run.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    /// The layer's number.
    pub number: u32,
    /// What it does, and with which numbers.
    pub layer: Layer,
    /// The code for it.
    pub kernel: Kernel,
    /// The code for its activation.
    pub activate: Activate,
    /// Its tensors in the order of [`Layer::roles`], [`TensorView::EMPTY`] after them.
    pub tensors: [TensorView<'a>; 4],
}

impl<'a> Step<'a> {
    /// The call of this layer with these tensors. As a constant it refers to the code of this layer alone, so that a program holds no other.
    #[must_use]
    pub const fn new(number: u32, layer: Layer, tensors: [TensorView<'a>; 4]) -> Self {
        Self { number, layer, kernel: kernel_of(&layer), activate: activation_of(layer.activation), tensors }
    }
}

/// What a kernel works on.
///
/// Of a layer that [`works_in_place`](crate::format::arch::sequential::works_in_place), `out` holds the first input already, where it has as many elements, and `x` is then empty.
#[derive(Debug)]
pub struct Call<'c, 'a> {
    /// What is called.
    pub(super) step: &'c Step<'a>,
    /// Which of the inputs this is, and how many there are.
    pub(super) place: u32,
    pub(super) inputs: u32,
    /// How long the inputs before were along the first axis of the layer.
    pub(super) before: u32,
    /// The input and its shape.
    pub(super) x: &'c [f32],
    pub(super) input: Dims,
    /// The result and its shape.
    pub(super) out: &'c mut [f32],
    pub(super) output: Dims,
    /// Work space: as many words as the plan has for this layer.
    pub(super) scratch: &'c mut [f32],
    /// Whether a recurrent layer begins anew.
    pub(super) fresh: bool,
}

impl<'a> Call<'_, 'a> {
    /// Does to the result what the layer does at its end.
    pub(super) fn activate(&mut self) {
        (self.step.activate)(self.out, self.output.cols() as usize, self.step.layer.a);
    }

    /// That the work space has fewer words than these.
    pub(super) const fn too_short(&self, words: usize) -> Error {
        Error::ArenaTooSmall { needed: (words as u64).saturating_mul(4), found: size_of_val::<[f32]>(self.scratch) as u64 }
    }

    /// Tensor `place` of the layer.
    pub(super) fn tensor(&self, place: usize) -> TensorView<'a> {
        self.step.tensors.get(place).copied().unwrap_or(TensorView::EMPTY)
    }
}

const fn activation_of(activation: Activation) -> Activate {
    match activation {
        Activation::Relu => elementwise::relu,
        Activation::Sigmoid => elementwise::sigmoids,
        Activation::Tanh => elementwise::tanhs,
        Activation::Softmax => elementwise::softmax,
        Activation::LeakyRelu => elementwise::leaky_relu,
        Activation::Elu => elementwise::elu,
        Activation::Selu => elementwise::selu,
        Activation::Softplus => elementwise::softplus,
        Activation::Softsign => elementwise::softsign,
        Activation::HardSigmoid => elementwise::hard_sigmoid,
        Activation::Exponential => elementwise::exponential,
        Activation::Gelu => elementwise::gelu,
        Activation::GeluTanh => elementwise::gelu_tanh,
        Activation::Silu => elementwise::silus,
        Activation::Mish => elementwise::mish,
        // Linear; what is not known is refused when the file is read.
        _ => elementwise::linear,
    }
}

const fn kernel_of(layer: &Layer) -> Kernel {
    match layer.op {
        Op::Dense => dense::run,
        Op::Conv => convolution::run,
        Op::ConvTranspose => convolution::run_transposed,
        Op::DepthwiseConv => depthwise::run,
        Op::SeparableConv => depthwise::run_separable,
        Op::BatchNormalization => normalise::batch,
        Op::LayerNormalization => normalise::layer,
        Op::GroupNormalization | Op::InstanceNormalization => normalise::group,
        Op::UnitNormalization => normalise::unit,
        Op::SimpleRnn => recurrent::simple,
        Op::Lstm => recurrent::lstm,
        Op::Gru => recurrent::gru,
        Op::Embedding => table::run,
        Op::PRelu => merge::prelu,
        Op::Activation => match layer.activation {
            Activation::Softmax => normalise::softmax,
            _ => activation,
        },
        Op::MaxPooling => pooling::largest,
        Op::AveragePooling => pooling::mean,
        Op::GlobalMaxPooling => pooling::largest_of_all,
        Op::GlobalAveragePooling => pooling::mean_of_all,
        Op::Permute => gather::permute,
        Op::RepeatVector => gather::repeat,
        Op::Reverse => gather::reverse,
        Op::ZeroPadding => gather::pad,
        Op::Cropping => gather::crop,
        Op::UpSampling => match layer.interpolation {
            Interpolation::Nearest => upsampling::repeat,
            _ => upsampling::resample,
        },
        Op::Rescaling => merge::rescale,
        Op::Add => merge::add,
        Op::Subtract => merge::subtract,
        Op::Multiply => merge::multiply,
        Op::Average => merge::average,
        Op::Maximum => merge::maximum,
        Op::Minimum => merge::minimum,
        Op::Concatenate => gather::concatenate,
        Op::Identity | Op::Flatten | Op::Reshape => nothing,
        // The list of operations may grow.
        _ => unknown,
    }
}

/// No result is better than another one.
fn unknown(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let (layer, found) = (call.step.number, u32::from(call.step.layer.op as u8));
    Err(Error::Layer { layer, key: LayerKey::Type, rule: Rule::Unknown, found, allowed: 0 })
}

fn nothing(_: &mut Call<'_, '_>) -> Result<(), Error> {
    Ok(())
}

fn activation(call: &mut Call<'_, '_>) -> Result<(), Error> {
    call.activate();
    Ok(())
}

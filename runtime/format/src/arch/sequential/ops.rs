//! What a layer does: operations, activations, padding and interpolation, each with its number in the index and its name in headers.

/// An operation. Layers that do nothing when a trained network runs (dropout, noise) are [`Op::Identity`].
///
/// Operations over space (convolutions, pooling, padding, cropping, upsampling) work on one, two or three axes: [`super::Layer::spatial`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(u8)]
pub enum Op {
    /// The input as it is.
    Identity = 0,
    /// `act(x K + b)` over the last axis.
    Dense = 1,
    /// Cross-correlation.
    Conv = 2,
    /// The transpose of a convolution.
    ConvTranspose = 3,
    /// One filter for each channel and multiplier.
    DepthwiseConv = 4,
    /// A depthwise convolution, then one of width 1.
    SeparableConv = 5,
    /// Normalisation by moving mean and variance, over the last axis' channels.
    BatchNormalization = 6,
    /// Normalisation over axes of one sample.
    LayerNormalization = 7,
    /// Normalisation over space and the channels of a group.
    GroupNormalization = 8,
    /// Group normalisation with one channel a group.
    InstanceNormalization = 9,
    /// Scales to the Euclidean length 1 over axes.
    UnitNormalization = 10,
    /// A recurrent layer with one state.
    SimpleRnn = 11,
    /// Long short-term memory; gates in the order input, forget, cell, output.
    Lstm = 12,
    /// Gated recurrent unit; gates in the order update, reset, candidate; reset before the product.
    Gru = 13,
    /// A row of a table for each number.
    Embedding = 14,
    /// `x >= 0 ? x : alpha * x` with a trained alpha.
    PRelu = 15,
    /// An activation by itself.
    Activation = 16,
    /// The largest of a window.
    MaxPooling = 17,
    /// The mean of what lies within a window.
    AveragePooling = 18,
    /// The largest of each channel.
    GlobalMaxPooling = 19,
    /// The mean of each channel.
    GlobalAveragePooling = 20,
    /// All axes become one.
    Flatten = 21,
    /// The same elements with other axes.
    Reshape = 22,
    /// The axes in another order.
    Permute = 23,
    /// A vector, several times.
    RepeatVector = 24,
    /// One axis from its end to its start.
    Reverse = 25,
    /// Zeros around the spatial axes.
    ZeroPadding = 26,
    /// The spatial axes without their ends.
    Cropping = 27,
    /// Each spatial axis longer by a whole factor.
    UpSampling = 28,
    /// `x * scale + offset`.
    Rescaling = 29,
    /// The sum of the inputs.
    Add = 30,
    /// The first input less the second.
    Subtract = 31,
    /// The product of the inputs.
    Multiply = 32,
    /// The mean of the inputs.
    Average = 33,
    /// The largest of the inputs.
    Maximum = 34,
    /// The smallest of the inputs.
    Minimum = 35,
    /// The inputs one after the other along an axis.
    Concatenate = 36,
}

/// Every operation, its place being its number.
const OPS: [Op; 37] = [
    Op::Identity,
    Op::Dense,
    Op::Conv,
    Op::ConvTranspose,
    Op::DepthwiseConv,
    Op::SeparableConv,
    Op::BatchNormalization,
    Op::LayerNormalization,
    Op::GroupNormalization,
    Op::InstanceNormalization,
    Op::UnitNormalization,
    Op::SimpleRnn,
    Op::Lstm,
    Op::Gru,
    Op::Embedding,
    Op::PRelu,
    Op::Activation,
    Op::MaxPooling,
    Op::AveragePooling,
    Op::GlobalMaxPooling,
    Op::GlobalAveragePooling,
    Op::Flatten,
    Op::Reshape,
    Op::Permute,
    Op::RepeatVector,
    Op::Reverse,
    Op::ZeroPadding,
    Op::Cropping,
    Op::UpSampling,
    Op::Rescaling,
    Op::Add,
    Op::Subtract,
    Op::Multiply,
    Op::Average,
    Op::Maximum,
    Op::Minimum,
    Op::Concatenate,
];

impl Op {
    /// The operation with this number in the index.
    pub fn from_code(code: u8) -> Option<Self> {
        OPS.get(usize::from(code)).copied()
    }

    /// The number in the index.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The most spatial axes it works on; 0 where it does not work over space. The least is 1.
    pub const fn spatial_limit(self) -> u8 {
        match self {
            Self::DepthwiseConv | Self::SeparableConv => 2,
            Self::Conv
            | Self::ConvTranspose
            | Self::MaxPooling
            | Self::AveragePooling
            | Self::GlobalMaxPooling
            | Self::GlobalAveragePooling
            | Self::ZeroPadding
            | Self::Cropping
            | Self::UpSampling => 3,
            _ => 0,
        }
    }

    /// The fewest and the most inputs.
    pub const fn inputs(self) -> (u32, u32) {
        match self {
            Self::Subtract => (2, 2),
            Self::Add | Self::Multiply | Self::Average | Self::Maximum | Self::Minimum | Self::Concatenate => (2, super::LINK_LIMIT),
            _ => (1, 1),
        }
    }
}

/// What is done to each element at a layer's end. `a` is [`super::Layer::a`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(u8)]
pub enum Activation {
    /// Nothing.
    Linear = 0,
    /// `x <= 0 ? 0 : x`
    Relu = 1,
    /// `1 / (1 + e^-x)`
    Sigmoid = 2,
    /// The hyperbolic tangent.
    Tanh = 3,
    /// `e^(x - max)` over their sum along an axis.
    Softmax = 4,
    /// `x >= 0 ? x : a x`
    LeakyRelu = 5,
    /// `x > 0 ? x : a (e^x - 1)`
    Elu = 6,
    /// Elu with fixed numbers, scaled.
    Selu = 7,
    /// `ln(1 + e^x)`
    Softplus = 8,
    /// `x / (1 + |x|)`
    Softsign = 9,
    /// `clamp(x + 3, 0, 6) / 6`
    HardSigmoid = 10,
    /// `e^x`
    Exponential = 11,
    /// `x Phi(x)` with the error function.
    Gelu = 12,
    /// `x sigmoid(2 sqrt(2/pi) (x + 0.044715 x^3))`
    GeluTanh = 13,
    /// `x sigmoid(x)`
    Silu = 14,
    /// `x tanh(softplus(x))`
    Mish = 15,
}

/// Every activation with its name in headers, its place being its number.
const ACTIVATIONS: [(Activation, &str); 16] = [
    (Activation::Linear, "linear"),
    (Activation::Relu, "relu"),
    (Activation::Sigmoid, "sigmoid"),
    (Activation::Tanh, "tanh"),
    (Activation::Softmax, "softmax"),
    (Activation::LeakyRelu, "leaky_relu"),
    (Activation::Elu, "elu"),
    (Activation::Selu, "selu"),
    (Activation::Softplus, "softplus"),
    (Activation::Softsign, "softsign"),
    (Activation::HardSigmoid, "hard_sigmoid"),
    (Activation::Exponential, "exponential"),
    (Activation::Gelu, "gelu"),
    (Activation::GeluTanh, "gelu_tanh"),
    (Activation::Silu, "silu"),
    (Activation::Mish, "mish"),
];

impl Activation {
    /// The activation with this number in the index.
    pub fn from_code(code: u8) -> Option<Self> {
        ACTIVATIONS.get(usize::from(code)).map(|(activation, _)| *activation)
    }

    /// The activation with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        ACTIVATIONS.iter().find(|(_, known)| *known == name).map(|(activation, _)| *activation)
    }

    /// The name in headers.
    pub fn name(self) -> &'static str {
        ACTIVATIONS.get(usize::from(self as u8)).map_or("", |(_, name)| name)
    }

    /// Whether it has a number of its own: [`super::Layer::a`].
    pub const fn has_parameter(self) -> bool {
        matches!(self, Self::LeakyRelu | Self::Elu)
    }
}

/// What lies outside the input of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Padding {
    /// Nothing: windows lie within the input.
    Valid = 0,
    /// As much as makes the output `ceil(n / stride)` long, the smaller half before.
    Same = 1,
    /// All of it before, so that no output sees later inputs.
    Causal = 2,
}

/// Every padding with its name in headers, its place being its number.
const PADDINGS: [(Padding, &str); 3] = [(Padding::Valid, "valid"), (Padding::Same, "same"), (Padding::Causal, "causal")];

impl Padding {
    /// The padding with this number in the index.
    pub fn from_code(code: u8) -> Option<Self> {
        PADDINGS.get(usize::from(code)).map(|(padding, _)| *padding)
    }

    /// The padding with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        PADDINGS.iter().find(|(_, known)| *known == name).map(|(padding, _)| *padding)
    }

    /// The name in headers.
    pub fn name(self) -> &'static str {
        PADDINGS.get(usize::from(self as u8)).map_or("", |(_, name)| name)
    }
}

/// How upsampling fills in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(u8)]
pub enum Interpolation {
    /// Repeats.
    Nearest = 0,
    /// Two taps.
    Bilinear = 1,
    /// Four taps (Keys, a = -0.5).
    Bicubic = 2,
    /// Six taps.
    Lanczos3 = 3,
    /// Ten taps.
    Lanczos5 = 4,
}

/// Every interpolation with its name in headers, its place being its number.
const INTERPOLATIONS: [(Interpolation, &str); 5] = [
    (Interpolation::Nearest, "nearest"),
    (Interpolation::Bilinear, "bilinear"),
    (Interpolation::Bicubic, "bicubic"),
    (Interpolation::Lanczos3, "lanczos3"),
    (Interpolation::Lanczos5, "lanczos5"),
];

impl Interpolation {
    /// How many neighbours an element is made of; 1 where it is one of them.
    pub const fn taps(self) -> u32 {
        match self {
            Self::Nearest => 1,
            Self::Bilinear => 2,
            Self::Bicubic => 4,
            Self::Lanczos3 => 6,
            Self::Lanczos5 => 10,
        }
    }

    /// The interpolation with this number in the index.
    pub fn from_code(code: u8) -> Option<Self> {
        INTERPOLATIONS.get(usize::from(code)).map(|(interpolation, _)| *interpolation)
    }

    /// The interpolation with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        INTERPOLATIONS.iter().find(|(_, known)| *known == name).map(|(interpolation, _)| *interpolation)
    }

    /// The name in headers.
    pub fn name(self) -> &'static str {
        INTERPOLATIONS.get(usize::from(self as u8)).map_or("", |(_, name)| name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_places_agree() {
        for (place, op) in OPS.iter().enumerate() {
            assert_eq!(usize::from(op.code()), place);
        }
        for (place, (activation, name)) in ACTIVATIONS.iter().enumerate() {
            assert_eq!((*activation as usize, Activation::from_name(name), activation.name()), (place, Some(*activation), *name));
        }
        for (place, (padding, name)) in PADDINGS.iter().enumerate() {
            assert_eq!((*padding as usize, Padding::from_name(name), padding.name()), (place, Some(*padding), *name));
        }
        for (place, (interpolation, name)) in INTERPOLATIONS.iter().enumerate() {
            let found = (*interpolation as usize, Interpolation::from_name(name), interpolation.name());
            assert_eq!(found, (place, Some(*interpolation), *name));
        }
        assert_eq!(
            (Op::from_code(37), Activation::from_code(16), Padding::from_code(3), Interpolation::from_code(5)),
            (None, None, None, None)
        );
    }
}

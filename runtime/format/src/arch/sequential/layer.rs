//! A layer's record in the index: everything that it does, in fixed-width fields, and the checks on each.

use super::ops::{Activation, Interpolation, Op, Padding};
use super::{Fault, LayerKey};
use crate::Rule;
use crate::bytes::u32_at;

/// Bytes of a layer's record.
pub const LAYER_RECORD_LEN: usize = 72;
/// Stands for "no axis" in [`Layer::axes`].
pub const NO_AXIS: u8 = u8::MAX;
/// The largest size of anything in a layer: far past every model of this kind, and small enough that products of two fit 64 bits.
pub const SIZE_LIMIT: u32 = 1 << 24;

/// What a layer has or does beside its operation. The numbers are the bits of the record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(pub u8);

impl Flags {
    /// It adds a bias.
    pub const BIAS: Self = Self(1);
    /// A normalisation multiplies by `gamma`.
    pub const SCALE: Self = Self(2);
    /// A normalisation adds `beta`.
    pub const CENTER: Self = Self(4);
    /// A recurrent layer gives its state after every step, not only the last.
    pub const SEQUENCES: Self = Self(8);
    /// A recurrent layer reads its input from the end.
    pub const BACKWARDS: Self = Self(16);

    /// Whether all of `other` are set.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// With `other` where `on`.
    #[must_use]
    pub const fn with(self, other: Self, on: bool) -> Self {
        if on { Self(self.0 | other.0) } else { self }
    }
}

/// A layer as the index records it. Which fields an operation uses is in docs/format/index.md; the others have the values of [`Layer::new`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Layer {
    /// What it does.
    pub op: Op,
    /// How many spatial axes it works on: 0 to 3.
    pub spatial: u8,
    /// What is done to its result; of a recurrent layer: to candidate and output.
    pub activation: Activation,
    /// What it has beside.
    pub flags: Flags,
    /// What lies outside its input.
    pub padding: Padding,
    /// How upsampling fills in.
    pub interpolation: Interpolation,
    /// Width of the result: units, filters, width of an embedding; how often a vector is repeated; groups of a normalisation.
    pub units: u32,
    /// Filters a channel (depthwise and separable convolutions); rows of an embedding.
    pub depth: u32,
    /// The number of its first tensor in the file's order; 0 where it has none.
    pub first_tensor: u32,
    /// Up to three rows of three: kernel, stride and dilation of each spatial axis; or before and after; or up to four sizes of a new shape.
    pub sizes: [u32; 9],
    /// Epsilon; scale; slope of `leaky_relu`; alpha of `elu`.
    pub a: f32,
    /// Offset of a rescaling.
    pub b: f32,
    /// Axes, 0 being the first after the batch, in the order in which they count; unused places are [`NO_AXIS`] and come last.
    pub axes: [u8; 4],
}

/// The fields that an operation uses.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Fields(u16);

impl Fields {
    const ACTIVATION: u16 = 1;
    const PADDING: u16 = 2;
    const UNITS: u16 = 4;
    const DEPTH: u16 = 8;
    const WINDOW: u16 = 16;
    const DILATION: u16 = 32;
    const AMOUNTS: u16 = 64;
    const FACTORS: u16 = 128;
    const SHAPE: u16 = 256;
    const EPSILON: u16 = 512;
    const SCALE: u16 = 1024;
    const AXES: u16 = 2048;

    const fn of(op: Op) -> Self {
        Self(match op {
            Op::Dense | Op::SimpleRnn | Op::Lstm | Op::Gru => Self::ACTIVATION | Self::UNITS,
            Op::Conv | Op::ConvTranspose => Self::ACTIVATION | Self::PADDING | Self::UNITS | Self::WINDOW | Self::DILATION,
            Op::DepthwiseConv => Self::ACTIVATION | Self::PADDING | Self::DEPTH | Self::WINDOW | Self::DILATION,
            Op::SeparableConv => Self::ACTIVATION | Self::PADDING | Self::UNITS | Self::DEPTH | Self::WINDOW | Self::DILATION,
            Op::BatchNormalization | Op::InstanceNormalization => Self::EPSILON,
            Op::LayerNormalization => Self::EPSILON | Self::AXES,
            Op::GroupNormalization => Self::EPSILON | Self::UNITS,
            Op::Embedding => Self::UNITS | Self::DEPTH,
            Op::UnitNormalization | Op::PRelu | Op::Permute | Op::Reverse | Op::Concatenate => Self::AXES,
            Op::Activation => Self::ACTIVATION | Self::AXES,
            Op::MaxPooling | Op::AveragePooling => Self::PADDING | Self::WINDOW,
            Op::Reshape => Self::SHAPE,
            Op::RepeatVector => Self::UNITS,
            Op::ZeroPadding | Op::Cropping => Self::AMOUNTS,
            Op::UpSampling => Self::FACTORS,
            Op::Rescaling => Self::SCALE,
            _ => 0,
        })
    }

    const fn has(self, field: u16) -> bool {
        self.0 & field != 0
    }
}

/// The flags that an operation may have.
const fn flags_of(op: Op) -> Flags {
    match op {
        Op::Dense | Op::Conv | Op::ConvTranspose | Op::DepthwiseConv | Op::SeparableConv => Flags::BIAS,
        Op::BatchNormalization | Op::LayerNormalization | Op::GroupNormalization | Op::InstanceNormalization => {
            Flags(Flags::SCALE.0 | Flags::CENTER.0)
        }
        Op::SimpleRnn | Op::Lstm | Op::Gru => Flags(Flags::SEQUENCES.0 | Flags::BACKWARDS.0),
        _ => Flags(0),
    }
}

impl Layer {
    /// A layer of this operation with every other field unused.
    pub const fn new(op: Op) -> Self {
        Self {
            op,
            spatial: 0,
            activation: Activation::Linear,
            flags: Flags(0),
            padding: Padding::Valid,
            interpolation: Interpolation::Nearest,
            units: 0,
            depth: 0,
            first_tensor: 0,
            sizes: [0; 9],
            a: 0.0,
            b: 0.0,
            axes: [NO_AXIS; 4],
        }
    }

    /// Kernel, pool or factor of each spatial axis; amounts before.
    pub const fn window(&self) -> [u32; 3] {
        let [a, b, c, ..] = self.sizes;
        [a, b, c]
    }

    /// Stride of each spatial axis; amounts after.
    pub const fn strides(&self) -> [u32; 3] {
        let [_, _, _, a, b, c, ..] = self.sizes;
        [a, b, c]
    }

    /// Dilation of each spatial axis.
    pub const fn dilation(&self) -> [u32; 3] {
        let [_, _, _, _, _, _, a, b, c] = self.sizes;
        [a, b, c]
    }

    /// The axes that are used.
    pub fn used_axes(&self) -> impl Iterator<Item = u8> + Clone + use<> {
        self.axes.into_iter().take_while(|axis| *axis != NO_AXIS)
    }

    /// Decodes a record and checks each field by itself.
    ///
    /// # Errors
    /// [`Fault`] with the first field that is wrong.
    pub fn from_record(record: &[u8; LAYER_RECORD_LEN]) -> Result<Self, Fault> {
        let [op, spatial, activation, flags, padding, interpolation, r0, r1, ..] = *record;
        let unknown = |key, found: u8| Fault::new(key, Rule::Unknown, u32::from(found), 0);
        let mut sizes = [0; 9];
        for (place, size) in sizes.iter_mut().enumerate() {
            *size = u32_at(record, 20 + 4 * place);
        }
        if (r0 | r1) != 0 {
            return Err(Fault::new(LayerKey::Reserved, Rule::Zero, u32::from(r0 | r1), 0));
        }
        let layer = Self {
            op: Op::from_code(op).ok_or_else(|| unknown(LayerKey::Type, op))?,
            spatial,
            activation: Activation::from_code(activation).ok_or_else(|| unknown(LayerKey::Activation, activation))?,
            flags: Flags(flags),
            padding: Padding::from_code(padding).ok_or_else(|| unknown(LayerKey::Padding, padding))?,
            interpolation: Interpolation::from_code(interpolation).ok_or_else(|| unknown(LayerKey::Interpolation, interpolation))?,
            units: u32_at(record, 8),
            depth: u32_at(record, 12),
            first_tensor: u32_at(record, 16),
            sizes,
            a: f32::from_bits(u32_at(record, 56)),
            b: f32::from_bits(u32_at(record, 60)),
            axes: u32_at(record, 64).to_le_bytes(),
        };
        let reserved = u32_at(record, 68);
        if reserved != 0 {
            return Err(Fault::new(LayerKey::Reserved, Rule::Zero, reserved, 0));
        }
        layer.check()?;
        Ok(layer)
    }

    /// The record: the inverse of [`Layer::from_record`].
    pub fn to_record(&self) -> [u8; LAYER_RECORD_LEN] {
        let [s0, s1, s2, s3, s4, s5, s6, s7, s8] = self.sizes;
        let words = [
            u32::from_le_bytes([self.op.code(), self.spatial, self.activation as u8, self.flags.0]),
            u32::from_le_bytes([self.padding as u8, self.interpolation as u8, 0, 0]),
            self.units,
            self.depth,
            self.first_tensor,
            s0,
            s1,
            s2,
            s3,
            s4,
            s5,
            s6,
            s7,
            s8,
            self.a.to_bits(),
            self.b.to_bits(),
            u32::from_le_bytes(self.axes),
            0,
        ];
        let mut record = [0; LAYER_RECORD_LEN];
        for (bytes, word) in record.chunks_exact_mut(4).zip(words) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        record
    }

    /// Checks each field by itself: what the operation uses is in its range, what it does not use is unused.
    ///
    /// # Errors
    /// [`Fault`] with the first field that is wrong.
    pub fn check(&self) -> Result<(), Fault> {
        let fields = Fields::of(self.op);
        let limit = self.op.spatial_limit();
        if self.spatial > limit || limit > 0 && self.spatial == 0 {
            return Err(Fault::new(LayerKey::Type, Rule::Range, u32::from(self.spatial), u32::from(limit)));
        }
        let flags = flags_of(self.op);
        if !flags.has(self.flags) {
            return Err(Fault::new(LayerKey::Flags, Rule::Unknown, u32::from(self.flags.0), u32::from(flags.0)));
        }
        let unused = |key, used, found: u32, neutral: u32| {
            if used || found == neutral { Ok(()) } else { Err(Fault::new(key, Rule::Equal, found, neutral)) }
        };
        unused(LayerKey::Activation, fields.has(Fields::ACTIVATION), self.activation as u32, 0)?;
        unused(LayerKey::Padding, fields.has(Fields::PADDING), self.padding as u32, 0)?;
        unused(LayerKey::Interpolation, self.op == Op::UpSampling && self.spatial == 2, self.interpolation as u32, 0)?;
        if self.padding == Padding::Causal && !(self.op == Op::Conv && self.spatial == 1) {
            return Err(Fault::new(LayerKey::Padding, Rule::Unsupported, self.padding as u32, 1));
        }
        for (key, used, found) in
            [(LayerKey::Units, fields.has(Fields::UNITS), self.units), (LayerKey::Depth, fields.has(Fields::DEPTH), self.depth)]
        {
            if used { in_range(key, found, 1)? } else { unused(key, false, found, 0)? }
        }
        self.check_sizes(fields)?;
        self.check_numbers(fields)?;
        self.check_axes(fields)
    }

    fn check_sizes(&self, fields: Fields) -> Result<(), Fault> {
        // Of each row of three: the least allowed, or nothing where it is not used.
        let (window, strides, dilation) = if fields.has(Fields::WINDOW) {
            (Some(1), Some(1), if fields.has(Fields::DILATION) { Some(1) } else { None })
        } else if fields.has(Fields::AMOUNTS) {
            (Some(0), Some(0), None)
        } else if fields.has(Fields::FACTORS) {
            (Some(1), None, None)
        } else if fields.has(Fields::SHAPE) {
            return self.check_shape();
        } else {
            (None, None, None)
        };
        let rows = [
            (LayerKey::Window, self.window(), window),
            (LayerKey::Strides, self.strides(), strides),
            (LayerKey::Dilation, self.dilation(), dilation),
        ];
        for (key, row, least) in rows {
            for (axis, size) in (0u8..).zip(row) {
                match least {
                    Some(least) if axis < self.spatial => in_range(key, size, least)?,
                    _ if size != 0 => return Err(Fault::new(key, Rule::Zero, size, 0)),
                    _ => {}
                }
            }
        }
        let most = |row: [u32; 3]| row.into_iter().max().unwrap_or(0);
        if matches!(self.op, Op::Conv | Op::ConvTranspose) && most(self.strides()) > 1 && most(self.dilation()) > 1 {
            return Err(Fault::new(LayerKey::Dilation, Rule::Unsupported, most(self.dilation()), 1));
        }
        Ok(())
    }

    /// Of a reshape: one to four sizes, then zeros.
    fn check_shape(&self) -> Result<(), Fault> {
        let mut sizes = self.sizes.into_iter();
        let first = sizes.next().unwrap_or(0);
        in_range(LayerKey::Shape, first, 1)?;
        let mut ended = false;
        for (place, size) in (1u32..).zip(sizes) {
            ended |= size == 0 || place > 3;
            if ended && size != 0 {
                return Err(Fault::new(LayerKey::Shape, Rule::Rank, size, 0));
            }
            in_range(LayerKey::Shape, size, 0)?;
        }
        Ok(())
    }

    fn check_numbers(&self, fields: Fields) -> Result<(), Fault> {
        let key = match self.op {
            Op::Rescaling => LayerKey::Scale,
            _ if fields.has(Fields::EPSILON) => LayerKey::Epsilon,
            _ => LayerKey::Alpha,
        };
        let used = fields.has(Fields::EPSILON) || fields.has(Fields::SCALE) || self.activation.has_parameter();
        for (key, used, number) in [(key, used, self.a), (LayerKey::Offset, fields.has(Fields::SCALE), self.b)] {
            if !number.is_finite() {
                return Err(Fault::new(key, Rule::Finite, number.to_bits(), 0));
            }
            if !used && number.to_bits() != 0 {
                return Err(Fault::new(key, Rule::Zero, number.to_bits(), 0));
            }
        }
        if fields.has(Fields::EPSILON) && self.a <= 0.0 {
            return Err(Fault::new(LayerKey::Epsilon, Rule::Positive, self.a.to_bits(), 0));
        }
        Ok(())
    }

    fn check_axes(&self, fields: Fields) -> Result<(), Fault> {
        let count = self.used_axes().count() as u32;
        let wrong = |rule, found, allowed| Err(Fault::new(LayerKey::Axis, rule, found, allowed));
        if self.axes.iter().skip(count as usize).any(|axis| *axis != NO_AXIS) {
            return wrong(Rule::Order, count, u32::from(NO_AXIS));
        }
        let (least, most) = match self.op {
            Op::Activation if self.activation == Activation::Softmax => (1, 1),
            Op::Reverse | Op::Concatenate => (1, 1),
            Op::Activation => (0, 0),
            Op::PRelu => (0, 4),
            _ if fields.has(Fields::AXES) => (1, 4),
            _ => (0, 0),
        };
        if count < least || count > most {
            return wrong(Rule::Range, count, most);
        }
        let mut seen = 0u32;
        for axis in self.used_axes() {
            let bit = 1u32.checked_shl(u32::from(axis)).unwrap_or(0);
            if axis > 3 {
                return wrong(Rule::TooLarge, u32::from(axis), 3);
            }
            if seen & bit != 0 {
                return wrong(Rule::Duplicate, u32::from(axis), 3);
            }
            seen |= bit;
        }
        // The axes of a permutation are all of them.
        if self.op == Op::Permute && seen != (1u32 << count).wrapping_sub(1) {
            return wrong(Rule::Missing, seen, count);
        }
        Ok(())
    }
}

fn in_range(key: LayerKey, found: u32, least: u32) -> Result<(), Fault> {
    if found < least {
        Err(Fault::new(key, Rule::TooSmall, found, least))
    } else if found > SIZE_LIMIT {
        Err(Fault::new(key, Rule::TooLarge, found, SIZE_LIMIT))
    } else {
        Ok(())
    }
}

//! From a layer's input shapes to the shape of its result: the one place that says so, for the importer and for the check of a file's records. Shapes are without the batch axis.

use super::layer::{Flags, Layer, SIZE_LIMIT};
use super::ops::{Op, Padding};
use super::{Fault, LayerKey};
use crate::{Dims, Rule};

/// How many outputs a window gives along an axis of `n` elements; `None` where it does not fit, or a number is 0.
pub fn window_len(n: u32, kernel: u32, stride: u32, dilation: u32, padding: Padding) -> Option<u32> {
    let reach = reach(kernel, dilation)?;
    match padding {
        Padding::Valid => n.checked_sub(reach)?.checked_div(stride)?.checked_add(1),
        Padding::Same | Padding::Causal => n.checked_add(stride.checked_sub(1)?)?.checked_div(stride),
    }
}

/// How many elements lie before the input where the first window of a convolution or a pool begins.
pub fn pad_before(n: u32, out: u32, kernel: u32, stride: u32, dilation: u32, padding: Padding) -> u32 {
    let reach = reach(kernel, dilation).unwrap_or(0);
    match padding {
        Padding::Valid => 0,
        Padding::Causal => reach.saturating_sub(1),
        Padding::Same => out.saturating_sub(1).saturating_mul(stride).saturating_add(reach).saturating_sub(n) / 2,
    }
}

/// The input element that weighs with the first of `taps` weights in element `out` of an axis that is `factor` times as long; below 0, and past the axis for later taps, nothing is there.
pub fn resample_from(out: u32, factor: u32, taps: u32) -> i64 {
    let (out, factor, taps) = (i64::from(out), i64::from(factor.max(1)), i64::from(taps));
    // The middle of the output element lies at (out + 1/2) / factor - 1/2.
    let doubled = out.saturating_mul(2).saturating_add(1).saturating_sub(factor);
    doubled.div_euclid(factor.saturating_mul(2)).saturating_add(1).saturating_sub(taps / 2)
}

/// How many elements a kernel spans.
fn reach(kernel: u32, dilation: u32) -> Option<u32> {
    kernel.checked_sub(1)?.checked_mul(dilation)?.checked_add(1)
}

/// A shape under construction.
struct Sizes {
    sizes: [u32; 4],
    rank: u32,
}

impl Sizes {
    const fn new() -> Self {
        Self { sizes: [1; 4], rank: 0 }
    }

    fn push(&mut self, size: u64) -> Result<(), Fault> {
        let Some(place) = self.sizes.get_mut(self.rank as usize) else {
            return Err(Fault::new(LayerKey::Shape, Rule::Rank, self.rank.saturating_add(1), 4));
        };
        if size == 0 {
            return Err(Fault::new(LayerKey::Shape, Rule::NotZero, 0, 1));
        }
        if size > u64::from(SIZE_LIMIT) {
            return Err(Fault::new(LayerKey::Shape, Rule::TooLarge, u32::try_from(size).unwrap_or(u32::MAX), SIZE_LIMIT));
        }
        *place = size as u32;
        self.rank = self.rank.saturating_add(1);
        Ok(())
    }

    fn dims(&self) -> Result<Dims, Fault> {
        // No size is 0 and there are at most four, so what is left to refuse are too many elements or no axes at all.
        Dims::new(0, self.rank, self.sizes).map_err(|_| Fault::new(LayerKey::Shape, Rule::TooLarge, self.rank, 4))
    }
}

/// The shape with these sizes.
///
/// # Errors
/// [`Fault`] of [`LayerKey::Shape`] unless they are one to four, each from 1 to [`SIZE_LIMIT`].
pub fn shape(sizes: impl IntoIterator<Item = u32>) -> Result<Dims, Fault> {
    let mut shape = Sizes::new();
    for size in sizes {
        shape.push(u64::from(size))?;
    }
    if shape.rank == 0 {
        return Err(Fault::new(LayerKey::Shape, Rule::Rank, 0, 4));
    }
    shape.dims()
}

fn rank_is(input: Dims, rank: u32) -> Result<(), Fault> {
    if input.rank() == rank { Ok(()) } else { Err(Fault::new(LayerKey::Rank, Rule::Equal, input.rank(), rank)) }
}

fn rank_at_least(input: Dims, rank: u32) -> Result<(), Fault> {
    if input.rank() >= rank { Ok(()) } else { Err(Fault::new(LayerKey::Rank, Rule::TooSmall, input.rank(), rank)) }
}

impl Layer {
    /// The shape of the result for inputs of these shapes, of which there must be as many as [`Op::inputs`] says.
    ///
    /// # Errors
    /// [`Fault`] of [`LayerKey::Rank`] or [`LayerKey::Input`] for an input that the operation does not take, of the field that does not fit it, or of [`LayerKey::Shape`] for a result past the limits.
    pub fn output(&self, inputs: impl IntoIterator<Item = Dims>) -> Result<Dims, Fault> {
        let mut inputs = inputs.into_iter();
        let (least, most) = self.op.inputs();
        let Some(first) = inputs.next() else { return Err(Fault::new(LayerKey::Inputs, Rule::TooSmall, 0, least)) };
        let (mut count, mut merged) = (1u32, first);
        for next in inputs {
            count = count.saturating_add(1);
            if count > most {
                return Err(Fault::new(LayerKey::Inputs, Rule::TooLarge, count, most));
            }
            merged = if self.op == Op::Concatenate { self.concatenated(merged, next)? } else { broadcast(merged, next)? };
        }
        if count < least {
            return Err(Fault::new(LayerKey::Inputs, Rule::TooSmall, count, least));
        }
        self.check_axes_of(first)?;
        if most > 1 { Ok(merged) } else { self.of_one(first) }
    }

    /// Multiplications with weights of its kernels for one input of this shape, whose result has the shape `output`.
    pub fn macs(&self, input: Dims, output: Dims) -> u64 {
        let (channels, units, depth) = (u64::from(input.cols()), u64::from(self.units), u64::from(self.depth));
        let taps = self.window().into_iter().take(usize::from(self.spatial)).fold(1u64, |taps, size| taps.saturating_mul(u64::from(size)));
        let filters = channels.saturating_mul(depth);
        let (each, times) = match self.op {
            Op::Dense => (channels.saturating_mul(units), input.rows()),
            Op::Conv => (taps.saturating_mul(channels).saturating_mul(units), output.rows()),
            Op::ConvTranspose => (taps.saturating_mul(channels).saturating_mul(units), input.rows()),
            Op::DepthwiseConv => (taps.saturating_mul(filters), output.rows()),
            Op::SeparableConv => (filters.saturating_mul(taps.saturating_add(units)), output.rows()),
            Op::SimpleRnn | Op::Lstm | Op::Gru => {
                (channels.saturating_add(units).saturating_mul(units).saturating_mul(u64::from(self.gates())), input.rows())
            }
            _ => (0, 0),
        };
        each.saturating_mul(times)
    }

    fn check_axes_of(&self, input: Dims) -> Result<(), Fault> {
        match self.used_axes().find(|axis| u32::from(*axis) >= input.rank()) {
            Some(axis) => Err(Fault::new(LayerKey::Axis, Rule::TooLarge, u32::from(axis), input.rank().saturating_sub(1))),
            None => Ok(()),
        }
    }

    fn of_one(&self, input: Dims) -> Result<Dims, Fault> {
        let sizes = input.as_slice();
        let with_last = |last: u64| {
            let mut out = Sizes::new();
            for size in sizes.iter().take(sizes.len().saturating_sub(1)) {
                out.push(u64::from(*size))?;
            }
            out.push(last)?;
            out.dims()
        };
        match self.op {
            Op::Dense => with_last(u64::from(self.units)),
            Op::Conv | Op::SeparableConv | Op::ConvTranspose => self.over_space(input, u64::from(self.units)),
            Op::DepthwiseConv => self.over_space(input, u64::from(input.cols()).saturating_mul(u64::from(self.depth))),
            Op::MaxPooling | Op::AveragePooling | Op::ZeroPadding | Op::Cropping | Op::UpSampling => {
                self.over_space(input, u64::from(input.cols()))
            }
            Op::GlobalMaxPooling | Op::GlobalAveragePooling => {
                rank_is(input, u32::from(self.spatial).saturating_add(1))?;
                shape([input.cols()])
            }
            Op::GroupNormalization => match input.cols().checked_rem(self.units) {
                Some(0) => Ok(input),
                _ => Err(Fault::new(LayerKey::Units, Rule::Divides, self.units, input.cols())),
            },
            Op::InstanceNormalization => rank_at_least(input, 2).map(|()| input),
            Op::SimpleRnn | Op::Lstm | Op::Gru => {
                rank_is(input, 2)?;
                if self.flags.has(Flags::SEQUENCES) { with_last(u64::from(self.units)) } else { shape([self.units]) }
            }
            Op::Embedding => shape(sizes.iter().copied().chain([self.units])),
            Op::Flatten => {
                rank_at_least(input, 2)?;
                let mut out = Sizes::new();
                out.push(input.count())?;
                out.dims()
            }
            Op::Reshape => {
                let target = shape(self.sizes.into_iter().take_while(|size| *size != 0))?;
                if target.count() == input.count() {
                    Ok(target)
                } else {
                    let short = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
                    Err(Fault::new(LayerKey::Shape, Rule::Equal, short(target.count()), short(input.count())))
                }
            }
            Op::Permute => {
                rank_is(input, self.used_axes().count() as u32)?;
                shape(self.used_axes().filter_map(|axis| sizes.get(usize::from(axis)).copied()))
            }
            Op::RepeatVector => {
                rank_is(input, 1)?;
                shape([self.units, input.cols()])
            }
            Op::Reverse => rank_at_least(input, 2).map(|()| input),
            _ => Ok(input),
        }
    }

    /// Operations over space: each spatial axis by itself, then the channels.
    fn over_space(&self, input: Dims, channels: u64) -> Result<Dims, Fault> {
        rank_is(input, u32::from(self.spatial).saturating_add(1))?;
        let mut out = Sizes::new();
        let rows = self.window().into_iter().zip(self.strides()).zip(self.dilation());
        for (n, ((window, stride), dilation)) in input.as_slice().iter().take(usize::from(self.spatial)).zip(rows) {
            out.push(self.along(*n, window, stride, dilation)?)?;
        }
        out.push(channels)?;
        out.dims()
    }

    /// Along one spatial axis.
    fn along(&self, n: u32, window: u32, stride: u32, dilation: u32) -> Result<u64, Fault> {
        let (n64, wide) = (u64::from(n), |number: u32| u64::from(number));
        let too_large = |allowed| Fault::new(LayerKey::Window, Rule::TooLarge, window, allowed);
        match self.op {
            Op::ConvTranspose => {
                let reach = reach(window, dilation).ok_or_else(|| too_large(SIZE_LIMIT))?;
                let beyond = if self.padding == Padding::Valid { wide(reach).saturating_sub(wide(stride)) } else { 0 };
                Ok(n64.saturating_mul(wide(stride)).saturating_add(beyond))
            }
            Op::MaxPooling | Op::AveragePooling => {
                if window > n {
                    return Err(too_large(n));
                }
                window_len(n, window, stride, 1, self.padding).map(wide).ok_or_else(|| too_large(n))
            }
            Op::ZeroPadding => Ok(n64.saturating_add(wide(window)).saturating_add(wide(stride))),
            Op::Cropping => n64
                .checked_sub(wide(window).saturating_add(wide(stride)))
                .filter(|left| *left > 0)
                .ok_or_else(|| Fault::new(LayerKey::Window, Rule::TooLarge, window.saturating_add(stride), n.saturating_sub(1))),
            Op::UpSampling => Ok(n64.saturating_mul(wide(window))),
            _ => window_len(n, window, stride, dilation, self.padding).map(wide).ok_or_else(|| too_large(n)),
        }
    }

    fn concatenated(&self, a: Dims, b: Dims) -> Result<Dims, Fault> {
        let axis = self.used_axes().next().unwrap_or(0);
        rank_is(b, a.rank())?;
        let mut out = Sizes::new();
        for (place, (x, y)) in (0u8..).zip(a.as_slice().iter().zip(b.as_slice())) {
            if place == axis {
                out.push(u64::from(*x).saturating_add(u64::from(*y)))?;
            } else if x == y {
                out.push(u64::from(*x))?;
            } else {
                return Err(Fault::new(LayerKey::Input, Rule::Equal, *y, *x));
            }
        }
        out.dims()
    }
}

/// The shape of two inputs together: right-aligned, extents equal or 1.
fn broadcast(a: Dims, b: Dims) -> Result<Dims, Fault> {
    let (long, short) = if a.rank() >= b.rank() { (a, b) } else { (b, a) };
    let missing = (long.rank() as usize).saturating_sub(short.rank() as usize);
    let mut out = Sizes::new();
    for (place, x) in long.as_slice().iter().enumerate() {
        let y = place.checked_sub(missing).and_then(|place| short.as_slice().get(place)).copied().unwrap_or(1);
        if *x != y && *x != 1 && y != 1 {
            return Err(Fault::new(LayerKey::Input, Rule::Equal, y, *x));
        }
        out.push(u64::from((*x).max(y)))?;
    }
    out.dims()
}

//! Normalisations, and the softmax along any axis: statistics are canonical sums over the natural order of what they are about.

use super::step::Call;
use super::walk::{Walk, strides};
use crate::format::arch::sequential::{Flags, Op};
use crate::format::{Error, TensorView};
#[cfg(not(target_os = "none"))]
use crate::ops::elementwise;
use crate::ops::math::{exp, sqrt};
use crate::ops::parts::next_mut;
use crate::ops::sum::{lanes_of, tree};

/// The largest factor of a unit normalisation.
const LARGEST: f32 = 1e12;
/// Channels that are taken at a time.
const BLOCK: usize = 8;

/// gamma and beta of a layer; 1 and 0 where it has none.
struct Affine<'a> {
    gamma: Numbers<'a>,
    beta: Numbers<'a>,
}

/// A vector of a layer.
enum Numbers<'a> {
    /// None: every element is this.
    All(f32),
    /// Where it can be read as it lies.
    Floats(&'a [f32]),
    /// At any address.
    Stored(TensorView<'a>),
}

impl<'a> Numbers<'a> {
    fn of(view: TensorView<'a>) -> Self {
        view.as_f32().map_or(Self::Stored(view), Self::Floats)
    }

    #[inline]
    fn at(&self, index: usize) -> f32 {
        match self {
            Self::All(number) => *number,
            Self::Floats(numbers) => numbers.get(index).copied().unwrap_or(0.0),
            Self::Stored(view) => view.get_float(index),
        }
    }
}

impl<'a> Affine<'a> {
    /// With the place of the first tensor after them.
    fn of(call: &Call<'_, 'a>) -> (Self, usize) {
        let flags = call.step.layer.flags;
        let (scale, center) = (flags.has(Flags::SCALE), flags.has(Flags::CENTER));
        let gamma = if scale { Numbers::of(call.tensor(0)) } else { Numbers::All(1.0) };
        let beta = if center { Numbers::of(call.tensor(usize::from(scale))) } else { Numbers::All(0.0) };
        (Self { gamma, beta }, usize::from(scale).wrapping_add(usize::from(center)))
    }

    /// Both as they lie, where both are there and can be read so.
    fn floats(&self) -> Option<[&'a [f32]; 2]> {
        match (&self.gamma, &self.beta) {
            (Numbers::Floats(gamma), Numbers::Floats(beta)) => Some([gamma, beta]),
            _ => None,
        }
    }

    #[inline]
    fn at(&self, index: usize) -> (f32, f32) {
        (self.gamma.at(index), self.beta.at(index))
    }
}

/// By moving mean and variance: `s = gamma / sqrt(variance + eps)`, `y = (x - mean) * s + beta`.
pub(super) fn batch(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let (affine, first) = Affine::of(call);
    let (mean, variance) = (call.tensor(first), call.tensor(first.wrapping_add(1)));
    let (channels, eps) = (call.output.cols() as usize, call.step.layer.a);
    let mut start = 0;
    while start < channels {
        let (mut means, mut scales, mut betas) = ([0.0; BLOCK], [0.0; BLOCK], [0.0; BLOCK]);
        for (j, ((m, s), b)) in means.iter_mut().zip(&mut scales).zip(&mut betas).enumerate() {
            let channel = start.wrapping_add(j);
            let (gamma, beta) = affine.at(channel);
            (*m, *s, *b) = (mean.get_float(channel), gamma / sqrt(variance.get_float(channel) + eps), beta);
        }
        let mut rest = &mut *call.out;
        while !rest.is_empty() {
            let row = next_mut(&mut rest, channels);
            for (((y, m), s), b) in row.iter_mut().skip(start).zip(means).zip(scales).zip(betas) {
                *y = (*y - m) * s + b;
            }
        }
        start = start.saturating_add(BLOCK);
    }
    Ok(())
}

/// The canonical sum of `term` of the elements at these offsets.
fn sum(x: &[f32], offsets: &Walk, term: impl Fn(f32) -> f32) -> f32 {
    // On hosts alone, where code may be large: vectors for what lies side by side.
    if let Some(x) = offsets.block().filter(|_| cfg!(not(target_os = "none"))).and_then(|len| x.get(..len)) {
        return tree(lanes_of(x, term));
    }
    let mut lanes = [0.0; 8];
    let mut lane = 0usize;
    offsets.visit(|at| {
        if let (Some(sum), Some(value)) = (lanes.get_mut(lane), x.get(at)) {
            *sum += term(*value);
        }
        lane = lane.wrapping_add(1) & 7;
    });
    tree(lanes)
}

/// `y = ((x - mean) * r) * gamma + beta` with the mean of `count` elements and `r = 1 / sqrt(mean of the squares of (x - mean) + eps)`.
///
/// `floats` are gamma and beta where they can be read as they lie: the same numbers as `affine` gives.
fn normalise(
    x: &mut [f32],
    offsets: &Walk,
    count: usize,
    eps: f32,
    floats: Option<[&[f32]; 2]>,
    mut affine: impl FnMut(usize) -> (f32, f32),
) {
    let count = count as f32;
    let mean = sum(x, offsets, |value| value) / count;
    let variance = sum(x, offsets, |value| (value - mean) * (value - mean)) / count;
    let r = 1.0 / sqrt(variance + eps);
    if let (Some([gamma, beta]), Some(x)) =
        (floats.filter(|_| cfg!(not(target_os = "none"))), offsets.block().and_then(|len| x.get_mut(..len)))
    {
        for ((y, gamma), beta) in x.iter_mut().zip(gamma).zip(beta) {
            *y = ((*y - mean) * r) * gamma + beta;
        }
        return;
    }
    let mut place = 0usize;
    offsets.visit(|at| {
        if let Some(y) = x.get_mut(at) {
            let (gamma, beta) = affine(place);
            *y = ((*y - mean) * r) * gamma + beta;
        }
        place = place.wrapping_add(1);
    });
}

/// Elements that hosts hold side by side at most.
#[cfg(not(target_os = "none"))]
const HELD: usize = 256;

/// Calls `each` with the elements at these `count` offsets, and their offsets: on hosts put side by side for it, and back again, where they are few.
fn gathered(x: &mut [f32], offsets: &Walk, count: usize, each: impl FnOnce(&mut [f32], &Walk)) {
    #[cfg(not(target_os = "none"))]
    if let Some(held) = [0.0; HELD].get_mut(..count) {
        let mut to = held.iter_mut();
        offsets.visit(|at| {
            if let (Some(to), Some(from)) = (to.next(), x.get(at)) {
                *to = *from;
            }
        });
        each(held, &Walk::new(0).slower(count, 1));
        let mut from = held.iter();
        offsets.visit(|at| {
            if let (Some(to), Some(from)) = (x.get_mut(at), from.next()) {
                *to = *from;
            }
        });
        return;
    }
    let _ = count;
    each(x, offsets);
}

/// Calls `each` with the offsets over the layer's axes, in the order in which it names them, for every place on the others; and with how many there are.
fn over_axes(call: &mut Call<'_, '_>, mut each: impl FnMut(&mut [f32], &Walk, usize)) {
    let (sizes, steps) = (call.output.padded(), strides(call.output.padded()));
    let axis = |axis: u8| {
        let axis = usize::from(axis);
        (sizes.get(axis).map_or(1, |size| *size as usize), steps.get(axis).copied().unwrap_or(0))
    };
    let named = call.step.layer.axes;
    // Those that are not used name no axis: one element, no stride.
    let count = named.into_iter().fold(1usize, |count, name| count.saturating_mul(axis(name).0));
    let others = (0..4u8).map(|other| if named.contains(&other) { (1, 0) } else { axis(other) });
    let inner = Walk::new(0).axes(named.map(axis).into_iter());
    if inner.block().is_some() {
        let mut rest = &mut *call.out;
        while !rest.is_empty() && count > 0 {
            each(next_mut(&mut rest, count), &inner, count);
        }
        return;
    }
    for start in Walk::new(0).axes(others) {
        let inner = Walk::new(start.cast_signed()).axes(named.map(axis).into_iter());
        gathered(call.out, &inner, count, |x, offsets| each(x, offsets, count));
    }
}

/// Over axes of one sample.
pub(super) fn layer(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let ((affine, _), eps) = (Affine::of(call), call.step.layer.a);
    over_axes(call, |x, offsets, count| normalise(x, offsets, count, eps, affine.floats(), |place| affine.at(place)));
    Ok(())
}

/// Over space and the channels of a group.
pub(super) fn group(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let ((affine, _), eps) = (Affine::of(call), call.step.layer.a);
    let channels = call.output.cols() as usize;
    let groups = if call.step.layer.op == Op::GroupNormalization { call.step.layer.units as usize } else { channels };
    let width = channels.checked_div(groups).unwrap_or(0);
    let places = call.out.len().checked_div(channels).unwrap_or(0);
    for group in 0..groups {
        let first = group.wrapping_mul(width);
        let offsets = Walk::new(first.cast_signed()).slower(width, 1).slower(places, channels.cast_signed());
        let mut next = 0usize;
        let affine = |_| {
            let channel = first.wrapping_add(next);
            next = next.wrapping_add(1);
            if next == width {
                next = 0;
            }
            affine.at(channel)
        };
        let count = places.saturating_mul(width);
        gathered(call.out, &offsets, count, |x, offsets| normalise(x, offsets, count, eps, None, affine));
    }
    Ok(())
}

/// `x * min(1 / sqrt(sum of the squares), 1e12)`.
pub(super) fn unit(call: &mut Call<'_, '_>) -> Result<(), Error> {
    over_axes(call, |x, offsets, _| {
        let factor = 1.0 / sqrt(sum(x, offsets, |value| value * value));
        let factor = if factor > LARGEST { LARGEST } else { factor };
        offsets.visit(|at| {
            if let Some(y) = x.get_mut(at) {
                *y *= factor;
            }
        });
    });
    Ok(())
}

/// The softmax along the layer's axis.
pub(super) fn softmax(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let [axis, ..] = call.step.layer.axes;
    if u32::from(axis).wrapping_add(1) == call.output.rank() {
        call.activate();
        return Ok(());
    }
    over_axes(call, |x, offsets, _| {
        #[cfg(not(target_os = "none"))]
        if let Some(x) = offsets.block().and_then(|len| x.get_mut(..len)) {
            return elementwise::softmax(x, x.len(), 0.0);
        }
        let at = |x: &[f32], at: usize| x.get(at).copied().unwrap_or(f32::NEG_INFINITY);
        let mut largest = f32::NEG_INFINITY;
        offsets.visit(|place| {
            let value = at(x, place);
            if value > largest {
                largest = value;
            }
        });
        offsets.visit(|place| {
            if let Some(y) = x.get_mut(place) {
                *y = exp(*y - largest);
            }
        });
        let total = sum(x, offsets, |value| value);
        offsets.visit(|place| {
            if let Some(y) = x.get_mut(place) {
                *y /= total;
            }
        });
    });
    Ok(())
}

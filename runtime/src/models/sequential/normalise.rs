//! Normalisations, and the softmax along any axis: statistics are canonical sums over the natural order of what they are about.

use super::sets::{Number, Numbers, Set, Work, for_sets};
use super::step::Call;
use super::walk::{Walk, strides};
use crate::format::Error;
use crate::format::arch::sequential::{Flags, Op};
use crate::ops::math::{exp, sqrt};
use crate::ops::parts::next_mut;

/// The largest factor of a unit normalisation.
const LARGEST: f32 = 1e12;
/// Channels that are taken at a time.
const BLOCK: usize = 8;

/// gamma and beta of a layer; 1 and 0 where it has none.
struct Affine<'a> {
    gamma: Numbers<'a>,
    beta: Numbers<'a>,
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
            for (((y, m), s), b) in row.iter_mut().skip(start).zip(&means).zip(&scales).zip(&betas) {
                *y = (*y - *m) * *s + *b;
            }
        }
        start = start.saturating_add(BLOCK);
    }
    Ok(())
}

/// `y = ((x - mean) * r) * gamma + beta` with the mean of a set and `r = 1 / sqrt(mean of the squares of (x - mean) + eps)`.
struct Normalise<'a> {
    affine: Affine<'a>,
    eps: f32,
    /// Channels of a group, whose gamma and beta are taken again and again; of a layer normalisation there is one of each for every element.
    width: Option<usize>,
}

impl Work for Normalise<'_> {
    fn on<S: Set>(&self, x: &mut [f32], set: &S, count: usize) {
        let (count, Affine { gamma, beta }) = (count as f32, &self.affine);
        let mean = set.sum(x, |value| value).map(|sum| sum / count);
        let variance = set.sum(x, |value| value.with(mean, |value, mean| (value - mean) * (value - mean)));
        let r = variance.map(|sum| 1.0 / sqrt(sum / count + self.eps));
        let normal = |value: S::Number| value.with(mean, |value, mean| value - mean).with(r, |value, r| value * r);
        let Some(width) = self.width else { return set.scale(x, normal, gamma, beta) };
        let mut channel = 0usize;
        set.update(x, |value| {
            let (gamma, beta) = (set.own(gamma, channel), set.own(beta, channel));
            channel = channel.wrapping_add(1);
            if channel == width {
                channel = 0;
            }
            normal(value).with(gamma, |value, gamma| value * gamma).with(beta, |value, beta| value + beta)
        });
    }
}

/// Does the work on the elements along the layer's axes, in the order in which it names them, for every place on the others.
fn over_axes(call: &mut Call<'_, '_>, work: &impl Work) {
    let (sizes, steps) = (call.output.padded(), strides(call.output.padded()));
    let axis = |axis: u8| {
        let axis = usize::from(axis);
        (sizes.get(axis).map_or(1, |size| *size as usize), steps.get(axis).copied().unwrap_or(0))
    };
    let named = call.step.layer.axes;
    // Those that are not used name no axis: one element, no stride.
    let others = (0..4u8).map(|other| if named.contains(&other) { (1, 0) } else { axis(other) });
    for_sets(call.out, Walk::new(0).axes(others), &Walk::new(0).axes(named.map(axis).into_iter()), work);
}

/// Over axes of one sample.
pub(super) fn layer(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let ((affine, _), eps) = (Affine::of(call), call.step.layer.a);
    over_axes(call, &Normalise { affine, eps, width: None });
    Ok(())
}

/// Over space and the channels of a group.
pub(super) fn group(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let ((affine, _), eps) = (Affine::of(call), call.step.layer.a);
    let channels = call.output.cols() as usize;
    let groups = if call.step.layer.op == Op::GroupNormalization { call.step.layer.units as usize } else { channels };
    let width = channels.checked_div(groups).unwrap_or(0);
    let places = call.out.len().checked_div(channels).unwrap_or(0);
    let elements = Walk::new(0).slower(width, 1).slower(places, channels.cast_signed());
    for_sets(call.out, Walk::new(0).slower(groups, width.cast_signed()), &elements, &Normalise { affine, eps, width: Some(width) });
    Ok(())
}

/// `x * min(1 / sqrt(sum of the squares), 1e12)`.
struct Unit;

impl Work for Unit {
    fn on<S: Set>(&self, x: &mut [f32], set: &S, _: usize) {
        let factor = set.sum(x, |value| value.map(|value| value * value)).map(|sum| {
            let factor = 1.0 / sqrt(sum);
            if factor > LARGEST { LARGEST } else { factor }
        });
        set.update(x, |value| value.with(factor, |value, factor| value * factor));
    }
}

/// The length of each set becomes 1.
pub(super) fn unit(call: &mut Call<'_, '_>) -> Result<(), Error> {
    over_axes(call, &Unit);
    Ok(())
}

/// The largest is subtracted, then `exp`, then each divided by their sum.
struct Softmax;

impl Work for Softmax {
    fn on<S: Set>(&self, x: &mut [f32], set: &S, _: usize) {
        let mut largest = S::Number::all(f32::NEG_INFINITY);
        set.visit(x, |value| largest = value.with(largest, |value, largest| if value > largest { value } else { largest }));
        set.update(x, |value| value.with(largest, |value, largest| exp(value - largest)));
        let total = set.sum(x, |value| value);
        set.update(x, |value| value.with(total, |value, total| value / total));
    }
}

/// The softmax along the layer's axis.
pub(super) fn softmax(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let [axis, ..] = call.step.layer.axes;
    if u32::from(axis).wrapping_add(1) == call.output.rank() {
        call.activate();
    } else {
        over_axes(call, &Softmax);
    }
    Ok(())
}

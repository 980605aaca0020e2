//! Layers that work on single elements of one or several inputs, which are right-aligned and repeated where they have one element along an axis.

use super::gather::take;
use super::step::Call;
use super::walk::{Walk, strides};
use crate::format::{Dims, Error};

/// Puts the first input into the result, and each other one onto it by `fold`.
fn merge(call: &mut Call<'_, '_>, fold: impl Fn(f32, f32) -> f32) {
    if call.place == 0 {
        // Where it is as large as the result it is there already.
        if !call.x.is_empty() {
            take(call.out, call.x, spread(call.input, call.output));
        }
        return;
    }
    if call.input == call.output {
        for (y, x) in call.out.iter_mut().zip(call.x) {
            *y = fold(*y, *x);
        }
        return;
    }
    for (y, at) in call.out.iter_mut().zip(spread(call.input, call.output)) {
        *y = fold(*y, call.x.get(at).copied().unwrap_or(0.0));
    }
}

/// The offsets in an array of shape `of` for every element of one of shape `to`.
fn spread(of: Dims, to: Dims) -> Walk {
    let missing = to.as_slice().len().saturating_sub(of.as_slice().len());
    let steps = strides(of.padded());
    let sizes = to.as_slice().iter().map(|size| *size as usize).enumerate();
    sizes.rev().fold(Walk::new(0), |walk, (axis, size)| {
        let own = axis.checked_sub(missing).and_then(|axis| Some((*of.as_slice().get(axis)?, *steps.get(axis)?)));
        let step = own.filter(|(own, _)| *own != 1).map_or(0, |(_, step)| step);
        walk.slower(size, step)
    })
}

/// The sum of the inputs, from the first to the last.
pub(super) fn add(call: &mut Call<'_, '_>) -> Result<(), Error> {
    merge(call, |y, x| y + x);
    Ok(())
}

/// The first input less the second.
pub(super) fn subtract(call: &mut Call<'_, '_>) -> Result<(), Error> {
    merge(call, |y, x| y - x);
    Ok(())
}

/// The product of the inputs, from the first to the last.
pub(super) fn multiply(call: &mut Call<'_, '_>) -> Result<(), Error> {
    merge(call, |y, x| y * x);
    Ok(())
}

/// The sum of the inputs divided by their number.
pub(super) fn average(call: &mut Call<'_, '_>) -> Result<(), Error> {
    merge(call, |y, x| y + x);
    if call.place.wrapping_add(1) == call.inputs {
        let count = call.inputs as f32;
        call.out.iter_mut().for_each(|y| *y /= count);
    }
    Ok(())
}

/// The largest of the inputs; the first NaN stays.
pub(super) fn maximum(call: &mut Call<'_, '_>) -> Result<(), Error> {
    merge(call, |y, x| if x > y || x.is_nan() && !y.is_nan() { x } else { y });
    Ok(())
}

/// The smallest of the inputs; the first NaN stays.
pub(super) fn minimum(call: &mut Call<'_, '_>) -> Result<(), Error> {
    merge(call, |y, x| if x < y || x.is_nan() && !y.is_nan() { x } else { y });
    Ok(())
}

/// `x * scale + offset`.
pub(super) fn rescale(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let (scale, offset) = (call.step.layer.a, call.step.layer.b);
    call.out.iter_mut().for_each(|y| *y = *y * scale + offset);
    Ok(())
}

/// `x >= 0 ? x : alpha * x`.
pub(super) fn prelu(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let alpha = call.tensor(0);
    for (y, at) in call.out.iter_mut().zip(spread(alpha.dims(), call.output)) {
        *y = if *y >= 0.0 { *y } else { alpha.get_float(at) * *y };
    }
    Ok(())
}

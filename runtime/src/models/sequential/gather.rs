//! Layers that move elements and compute nothing.

use super::step::Call;
use super::walk::{Walk, strides};
use crate::format::Error;
use crate::format::arch::sequential::NO_AXIS;
use crate::ops::parts::{copy, next_mut, parts};

/// `out[i] = x[the i-th offset]`.
pub(super) fn take(out: &mut [f32], x: &[f32], offsets: Walk) {
    let mut out = out.iter_mut();
    offsets.for_each(|at| {
        if let Some(y) = out.next() {
            *y = x.get(at).copied().unwrap_or(0.0);
        }
    });
}

/// The axes in another order.
pub(super) fn permute(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let from = strides(call.input.padded());
    let axes = call.step.layer.axes.map(|axis| if axis == NO_AXIS { 0 } else { from.get(usize::from(axis)).copied().unwrap_or(0) });
    let sizes = call.output.padded().map(|size| size as usize);
    take(call.out, call.x, Walk::new(0).axes(sizes.into_iter().zip(axes)));
    Ok(())
}

/// The input, several times.
pub(super) fn repeat(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let mut rest = &mut *call.out;
    while !rest.is_empty() && !call.x.is_empty() {
        copy(next_mut(&mut rest, call.x.len()), call.x);
    }
    Ok(())
}

/// One axis from its end to its start.
pub(super) fn reverse(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let [turned, ..] = call.step.layer.axes;
    let (sizes, steps) = (call.input.padded(), strides(call.input.padded()));
    let mut start = 0isize;
    let axes = (0u8..).zip(sizes.into_iter().zip(steps)).map(|(axis, (size, step))| {
        if axis != turned {
            return (size as usize, step);
        }
        start = step.wrapping_mul((size as isize).wrapping_sub(1));
        (size as usize, step.wrapping_neg())
    });
    let mut all = [(1, 0); 4];
    for (to, from) in all.iter_mut().zip(axes) {
        *to = from;
    }
    take(call.out, call.x, Walk::new(start).axes(all.into_iter()));
    Ok(())
}

/// Zeros around the spatial axes.
pub(super) fn pad(call: &mut Call<'_, '_>) -> Result<(), Error> {
    call.out.fill(0.0);
    let inner = within(call.input.padded(), call.output.padded(), call.step.layer.window());
    for (at, x) in inner.zip(call.x) {
        if let Some(y) = call.out.get_mut(at) {
            *y = *x;
        }
    }
    Ok(())
}

/// The spatial axes without their ends.
pub(super) fn crop(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let inner = within(call.output.padded(), call.input.padded(), call.step.layer.window());
    take(call.out, call.x, inner);
    Ok(())
}

/// The offsets of an array of sizes `inner` within one of sizes `outer`, `before` elements from the start of each spatial axis.
fn within(inner: [u32; 4], outer: [u32; 4], before: [u32; 3]) -> Walk {
    let steps = strides(outer);
    let start = steps.iter().zip(before).fold(0isize, |start, (step, before)| start.wrapping_add(step.wrapping_mul(before as isize)));
    Walk::new(start).axes(inner.map(|size| size as usize).into_iter().zip(steps))
}

/// The inputs one after the other along an axis.
pub(super) fn concatenate(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let [axis, ..] = call.step.layer.axes;
    let after =
        |sizes: [u32; 4]| sizes.into_iter().skip(usize::from(axis)).fold(1usize, |product, size| product.saturating_mul(size as usize));
    let (block, whole) = (after(call.input.padded()), after(call.output.padded()));
    let start = after(call.output.padded()).checked_div(call.output.padded().get(usize::from(axis)).map_or(1, |size| *size as usize));
    let start = start.unwrap_or(0).saturating_mul(call.before as usize);
    let mut rest = &mut *call.out;
    for x in parts(call.x, block) {
        let row = next_mut(&mut rest, whole);
        if let Some(y) = row.get_mut(start..start.saturating_add(x.len())) {
            copy(y, x);
        }
    }
    Ok(())
}

//! Recurrent layers. Every sum is (input's product + state's product) + bias; the state is kept in the work space, whose first words it has.

use super::dense::add;
use super::step::Call;
use crate::format::arch::sequential::Flags;
use crate::format::{Dims, Error, TensorView};
use crate::ops::activation::Activation;
use crate::ops::elementwise::sigmoids;
use crate::ops::ffn;
use crate::ops::matvec::matvec;
use crate::ops::parts::{copy, next_mut};

/// Calls `step` with the state, the rest of the work space and the input, for every step of time, and writes the hidden state: the first of the state's vectors.
///
/// `vectors` are those of the state, and those of the work space besides, each of as many elements as there are units.
fn over_time(call: &mut Call<'_, '_>, vectors: [usize; 2], mut step: impl FnMut(&mut [f32], &mut [f32], &[f32])) -> Result<(), Error> {
    let layer = &call.step.layer;
    let (units, inputs, [states, others]) = (layer.units as usize, call.input.cols() as usize, vectors);
    let needed = units.saturating_mul(states.saturating_add(others));
    if call.scratch.len() < needed {
        return Err(call.too_short(needed));
    }
    let (state, work) = call.scratch.split_at_mut_checked(units.saturating_mul(states)).unwrap_or_default();
    if call.fresh {
        state.fill(0.0);
    }
    let steps = call.x.len().checked_div(inputs).unwrap_or(0);
    let mut rest = &mut *call.out;
    for number in 0..steps {
        let read = if layer.flags.has(Flags::BACKWARDS) { steps.wrapping_sub(number).wrapping_sub(1) } else { number };
        let start = read.wrapping_mul(inputs);
        step(state, work, call.x.get(start..start.wrapping_add(inputs)).unwrap_or(&[]));
        if layer.flags.has(Flags::SEQUENCES) || number.wrapping_add(1) == steps {
            let out = next_mut(&mut rest, units);
            for (y, h) in out.iter_mut().zip(&*state) {
                *y = *h;
            }
        }
    }
    Ok(())
}

/// `z = (kernel x + recurrent h) + bias`; `again` has as many elements as `z`.
fn sums(z: &mut [f32], again: &mut [f32], x: &[f32], h: &[f32], codes: &mut [f32], [kernel, recurrent, bias]: &[TensorView<'_>; 3]) {
    matvec(z, kernel, &mut Activation::new(x, codes), None);
    matvec(again, recurrent, &mut Activation::new(h, codes), None);
    ffn::add(z, again);
    add(z, bias);
}

/// `h = act((x K + h U) + b)`.
pub(super) fn simple(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let tensors = [call.tensor(0), call.tensor(1), call.tensor(2)];
    let (units, number, activate) = (call.step.layer.units as usize, call.step.layer.a, call.step.activate);
    over_time(call, [1, 2], |h, work, x| {
        let mut work = work;
        let (z, again) = (next_mut(&mut work, units), next_mut(&mut work, units));
        sums(z, again, x, h, work, &tensors);
        activate(z, units, number);
        copy(h, z);
    })
}

/// Gates input, forget, cell, output: `c = (f * c) + (i * g)`, `h = o * act(c)`.
pub(super) fn lstm(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let tensors = [call.tensor(0), call.tensor(1), call.tensor(2)];
    let (units, number, activate) = (call.step.layer.units as usize, call.step.layer.a, call.step.activate);
    over_time(call, [2, 8], |state, work, x| {
        let (h, c) = state.split_at_mut_checked(units).unwrap_or_default();
        let (mut work, all) = (work, units.saturating_mul(4));
        let (z, again) = (next_mut(&mut work, all), next_mut(&mut work, all));
        sums(z, again, x, h, work, &tensors);
        let mut rest = z;
        let (input_forget, g) = (next_mut(&mut rest, units.saturating_mul(2)), next_mut(&mut rest, units));
        sigmoids(input_forget, units, 0.0);
        activate(g, units, number);
        sigmoids(rest, units, 0.0);
        let (i, f) = input_forget.split_at_mut_checked(units).unwrap_or_default();
        for (((c, i), f), g) in c.iter_mut().zip(i).zip(f).zip(&*g) {
            *c = (*f * *c) + (*i * *g);
        }
        copy(h, c);
        activate(h, units, number);
        for (h, o) in h.iter_mut().zip(rest) {
            *h *= *o;
        }
    })
}

/// Gates update, reset, candidate: `candidate = act((x K + (r * h) U) + b)`, `h = (z * h) + ((1 - z) * candidate)`.
pub(super) fn gru(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let [kernel, recurrent, bias] = [call.tensor(0), call.tensor(1), call.tensor(2)];
    let (units, number, activate) = (call.step.layer.units as usize, call.step.layer.a, call.step.activate);
    let gates = units.saturating_mul(2);
    over_time(call, [1, 7], |h, work, x| {
        let (mut work, all) = (work, units.saturating_mul(3));
        let (z, again, reset_h) = (next_mut(&mut work, all), next_mut(&mut work, all), next_mut(&mut work, units));
        matvec(z, &kernel, &mut Activation::new(x, work), None);
        let (update_reset, candidate) = z.split_at_mut_checked(gates).unwrap_or_default();
        {
            let again = again.get_mut(..gates).unwrap_or_default();
            matvec(again, &recurrent, &mut Activation::new(h, work), None);
            ffn::add(update_reset, again);
        }
        for (place, y) in update_reset.iter_mut().enumerate() {
            *y += bias.get_float(place);
        }
        sigmoids(update_reset, units, 0.0);
        let (update, reset) = update_reset.split_at_mut_checked(units).unwrap_or_default();
        for ((y, h), r) in reset_h.iter_mut().zip(&*h).zip(&*reset) {
            *y = *r * *h;
        }
        ffn::add(candidate, last_rows(again, &recurrent, gates, &mut Activation::new(reset_h, work)));
        for (place, y) in candidate.iter_mut().enumerate() {
            *y += bias.get_float(gates.wrapping_add(place));
        }
        activate(candidate, units, number);
        for ((h, z), candidate) in h.iter_mut().zip(update).zip(candidate) {
            *h = (*z * *h) + ((1.0 - *z) * *candidate);
        }
    })
}

/// The products of the rows of `w` from `first` on; `out` has an element for every row.
fn last_rows<'o>(out: &'o mut [f32], w: &TensorView<'_>, first: usize, x: &mut Activation<'_>) -> &'o [f32] {
    let row_bytes = w.cols().saturating_mul(w.dtype().size() as usize);
    let rest = w.bytes().get(first.saturating_mul(row_bytes)..).filter(|_| w.dtype().is_float());
    let dims = Dims::matrix(w.rows().saturating_sub(first) as u32, w.cols() as u32);
    let last = rest.and_then(|rest| TensorView::new(0, w.dtype(), dims, rest).ok());
    match last {
        Some(last) => matvec(out.get_mut(first..).unwrap_or_default(), &last, x, None),
        // The rows of a quantised matrix are no piece of its bytes.
        None => matvec(out, w, x, None),
    }
    out.get(first..).unwrap_or(&[])
}

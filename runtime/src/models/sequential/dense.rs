//! Dense layers: `act(x K + b)` over the last axis.

use super::step::Call;
use crate::format::{Error, TensorView};
use crate::ops::activation::Activation;
use crate::ops::matvec::{add_vector, matvec};
use crate::ops::parts::{next_mut, parts};

/// Each row of the input by itself.
pub(super) fn run(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let (kernel, bias) = (call.tensor(0), call.tensor(1));
    let (inputs, units) = (kernel.cols(), kernel.rows());
    let mut rest = &mut *call.out;
    for x in parts(call.x, inputs) {
        let out = next_mut(&mut rest, units);
        product(out, &kernel, x, call.scratch, &bias);
    }
    call.activate();
    Ok(())
}

/// `out = w x + bias`, the bias being there or empty.
pub(super) fn product(out: &mut [f32], w: &TensorView<'_>, x: &[f32], scratch: &mut [f32], bias: &TensorView<'_>) {
    matvec(out, w, &mut Activation::new(x, scratch), None);
    add(out, bias);
}

/// `out = out + bias`, the bias being there or empty.
pub(super) fn add(out: &mut [f32], bias: &TensorView<'_>) {
    match bias.as_f32() {
        Some(bias) => crate::ops::ffn::add(out, bias),
        None if bias.bytes().is_empty() => {}
        None => add_vector(out, bias),
    }
}

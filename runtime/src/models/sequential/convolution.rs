//! Convolutions and their transposes: each result is the `dot8` of a filter's row, (taps, channels), with the input under the window, zeros outside.

use super::dense::product;
use super::grid::Grid;
use super::step::Call;
use crate::format::Error;
use crate::ops::parts::next_mut;

/// A convolution.
pub(super) fn run(call: &mut Call<'_, '_>) -> Result<(), Error> {
    windows(call, &Grid::new(&call.step.layer, call.input, call.output))
}

/// A transposed convolution, turned round: every result looks for the inputs that reach it.
pub(super) fn run_transposed(call: &mut Call<'_, '_>) -> Result<(), Error> {
    windows(call, &Grid::transposed(&call.step.layer, call.input, call.output))
}

fn windows(call: &mut Call<'_, '_>, grid: &Grid) -> Result<(), Error> {
    let (kernel, bias) = (call.tensor(0), call.tensor(1));
    #[cfg(not(target_os = "none"))]
    if super::tiles::run(call.out, call.x, grid, &kernel, &bias) {
        call.activate();
        return Ok(());
    }
    let too_short = call.too_short(kernel.cols());
    let (patch, codes) = call.scratch.split_at_mut_checked(kernel.cols()).ok_or(too_short)?;
    let mut rest = &mut *call.out;
    for place in grid.places() {
        let out = next_mut(&mut rest, kernel.rows());
        product(out, &kernel, grid.patch(call.x, place, patch), codes, &bias);
    }
    call.activate();
    Ok(())
}

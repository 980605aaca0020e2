//! Embeddings: a row of a table for each number.

use super::step::Call;
use crate::format::Error;
use crate::ops::matvec::widen_row;
use crate::ops::parts::next_mut;

/// The rows of the numbers, each cut off towards zero.
pub(super) fn run(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let rows = call.tensor(0);
    let count = rows.rows() as u32;
    let mut rest = &mut *call.out;
    for (element, number) in (0u32..).zip(call.x) {
        // Neither holds for a NaN.
        if !(*number > -1.0 && *number < count as f32) {
            return Err(Error::NoRow { layer: call.step.number, element, found: number.to_bits(), rows: count });
        }
        widen_row(next_mut(&mut rest, rows.cols()), &rows, *number as usize);
    }
    Ok(())
}

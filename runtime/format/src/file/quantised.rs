//! What only reading the bytes of a quantised tensor can tell: codes, scales and multipliers that the format does not allow. Part of [`ModelFile::verify_payload`](super::ModelFile::verify_payload)
//! and of the writers.

use crate::bytes::u32_at;
use crate::{DType, Error, Plane, TensorView};

/// The largest magnitude that a scale is multiplied by: 255 * 15 + 32768, in q4.
const INTEGER_LIMIT: f32 = 36_593.0;

/// Checks the content of a quantised tensor, `tensor` being its number: codes and multipliers in their ranges, padding zero, scales finite and not negative, and no element past what f32
/// holds. For other tensors there is nothing to check.
///
/// # Errors
/// [`Error::Quantised`] for the first byte or number that is not allowed, plane by plane; [`Error::NonFinite`] for an element that is too large.
pub(crate) fn check(tensor: u32, view: &TensorView<'_>) -> Result<(), Error> {
    if !view.dtype().is_quantised() {
        return Ok(());
    }
    let refuse = |plane, place: usize, found| Err(Error::Quantised { tensor, plane, place: place as u64, found });
    let planes = view.planes();
    // How many elements lie in a byte, and how many whole bytes a row has.
    let per_byte = match view.dtype() {
        DType::Q8 => 1,
        DType::Q4 => 2,
        _ => 4,
    };
    let whole = view.cols() / per_byte;
    for (row, codes) in view.codes().chunks_exact((planes.row_stride as usize).max(1)).enumerate() {
        for (at, byte) in codes.iter().copied().enumerate() {
            let column = at.saturating_mul(per_byte);
            let place = row.saturating_mul(view.cols()).saturating_add(column);
            // The bits of the byte that hold no code.
            let unused =
                if at < whole { 0 } else { 0xff_u8.checked_shl(8 / per_byte as u32 * (view.cols() % per_byte) as u32).unwrap_or(0) };
            let unused = if at > whole { 0xff } else { unused };
            if byte & unused != 0 {
                return refuse(Plane::Padding, row.saturating_mul(codes.len()).saturating_add(at), u32::from(byte));
            }
            match view.dtype() {
                DType::Q8 if byte == 0x80 => return refuse(Plane::Codes, place, u32::from(byte)),
                DType::T2 => {
                    let threes = byte & byte >> 1 & 0x55;
                    if threes != 0 {
                        return refuse(Plane::Codes, place.saturating_add(threes.trailing_zeros() as usize / 2), 3);
                    }
                }
                _ => {}
            }
        }
    }
    let gaps = [
        ((view.codes().len()), planes.scales as usize),
        (planes.scales as usize + view.scales().len(), planes.multipliers as usize),
        (planes.multipliers as usize + view.multipliers().len(), planes.offsets as usize),
    ];
    for (start, end) in gaps {
        for (at, byte) in view.bytes().iter().enumerate().take(end).skip(start) {
            if *byte != 0 {
                return refuse(Plane::Padding, at, u32::from(*byte));
            }
        }
    }
    for number in 0..view.scales().len() / 4 {
        let bits = u32_at(view.scales(), number.saturating_mul(4));
        // Negative ones, zero among them, have the sign bit; infinities and NaNs all ones in the exponent.
        if bits >= f32::INFINITY.to_bits() {
            return refuse(Plane::Scales, number, bits);
        }
        if !(f32::from_bits(bits) * INTEGER_LIMIT).is_finite() {
            let (first, len) = match view.dtype() {
                DType::T2 => (0, view.dims().count() as usize),
                _ => (number.saturating_mul(view.cols()), view.cols()),
            };
            if let Some(element) = (first..first.saturating_add(len)).find(|element| !view.get_f32(*element).is_finite()) {
                return Err(Error::NonFinite { tensor, element: element as u64 });
            }
        }
    }
    match view.multipliers().iter().position(|multiplier| *multiplier == 0) {
        Some(place) => refuse(Plane::Multipliers, place, 0),
        None => Ok(()),
    }
}

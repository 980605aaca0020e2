//! Ternary tensors: stored as two bits only where that loses nothing.

use super::Quantised;
use crate::checkpoint::ArrayView;
use crate::error::{Class, Error, Result};
use crate::export::narrow::Refused;
use dmexp_format::host::TensorSpec;

/// Elements read at a time.
const CHUNK: usize = 1 << 16;

/// Codes `array`, whose values are 0, `s` and `-s` for one `s`.
///
/// # Errors
/// [`Class::Unrepresentable`] for any other value; those of reading the array and of `tick`.
pub(super) fn ternary(array: ArrayView<'_>, spec: &TensorSpec, tick: &mut dyn FnMut(u64) -> Result<()>) -> Result<Quantised> {
    let planes = spec.planes(0)?;
    let too_large = || Error::damaged(format!("tensor {} needs more memory than this machine addresses", spec.name));
    let mut bytes = vec![0u8; usize::try_from(planes.bytes).map_err(|_| too_large())?];
    let cols = u64::from(spec.dims.cols());
    let mut scale = 0f32;
    array.for_each_chunk(CHUNK, |first, values| {
        for (element, value) in (first..).zip(values.iter().copied()) {
            if !value.is_finite() {
                return Err(Refused { element, value, dtype: spec.dtype }.explain(&spec.name));
            }
            if value == 0.0 {
                continue;
            }
            if scale == 0.0 {
                scale = value.abs();
            }
            if value.abs() != scale {
                let what = format!(
                    "element {element} of tensor {} is {value}, another is {scale} in magnitude; t2 holds 0 and one value of both signs",
                    spec.name
                );
                return Err(Error::new(Class::Unrepresentable, what).advise("export it with --dtype q8, bf16 or f32"));
            }
            let place = element / cols * planes.row_stride + element % cols / 4;
            if let Some(byte) = bytes.get_mut(place as usize) {
                *byte |= (if value > 0.0 { 1 } else { 2 }) << (2 * (element % cols % 4));
            }
        }
        tick(values.len() as u64)
    })?;
    for (byte, of_scale) in bytes.iter_mut().skip(planes.scales as usize).zip(scale.to_le_bytes()) {
        *byte = of_scale;
    }
    Ok(Quantised { bytes, flushed: 0 })
}

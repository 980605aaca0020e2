//! What only reading the payload can tell: checksums, zero gaps, finite weights. Run by `dmexp export verify` and `include_model!`, and by a chip on request.

use super::{ModelFile, Tensor, quantised};
use crate::{DType, Error, Part, Rule, TensorView, crc32};

impl ModelFile<'_> {
    /// Reads the whole payload and checks it: each tensor's checksum, the gaps between tensors, the payload's checksum, that every f32, f16 and bf16 element is finite,
    /// and that quantised tensors hold what the format allows.
    ///
    /// # Errors
    /// [`Error::Checksum`], [`Error::Layout`] of [`Part::Payload`] for a gap that is not zero, [`Error::NonFinite`], [`Error::Quantised`].
    pub fn verify_payload(&self) -> Result<(), Error> {
        self.verify_pieces(&mut |bytes| crc32::checksum(&[bytes]), &mut |_| ())
    }

    /// The same, with `read` told each piece once it has been read, which happens several times: whoever mapped a large file can give the memory back.
    ///
    /// # Errors
    /// Those of [`ModelFile::verify_payload`].
    #[cfg(feature = "std")]
    pub fn verify_payload_with(&self, read: &mut dyn FnMut(&[u8])) -> Result<(), Error> {
        let read = core::cell::RefCell::new(read);
        self.verify_pieces(&mut |bytes| crc32::checksum_in_pieces(bytes, *read.borrow_mut()), &mut |bytes| read.borrow_mut()(bytes))
    }

    fn verify_pieces(&self, checksum: &mut impl FnMut(&[u8]) -> u32, read: &mut impl FnMut(&[u8])) -> Result<(), Error> {
        let payload = self.payload();
        let mut end = 0u64;
        for tensor in self.tensors() {
            if let Some(stored) = tensor.crc32 {
                check_crc(Part::TensorBytes, tensor.number, stored, checksum(tensor.view.bytes()))?;
            }
            check_gap(payload, end, &tensor, self.fixed().payload_start())?;
            end = tensor.offset + tensor.view.bytes().len() as u64;
        }
        check_crc(Part::Payload, u32::MAX, self.payload_crc(), checksum(payload))?;
        for tensor in self.tensors() {
            quantised::check(tensor.number, &tensor.view)?;
            if let Some(element) = first_non_finite(&tensor.view) {
                return Err(Error::NonFinite { tensor: tensor.number, element });
            }
            read(tensor.view.bytes());
        }
        Ok(())
    }

    /// The CRC-32 that the payload must have.
    pub fn payload_crc(&self) -> u32 {
        match self.index() {
            Some(index) => index.payload_crc(),
            None => self.fixed().checksum,
        }
    }
}

fn check_crc(part: Part, tensor: u32, stored: u32, computed: u32) -> Result<(), Error> {
    if computed == stored { Ok(()) } else { Err(Error::Checksum { part, tensor, stored, computed }) }
}

/// The bytes between the end of the tensor before and the start of this one.
fn check_gap(payload: &[u8], end: u64, tensor: &Tensor<'_>, payload_start: u64) -> Result<(), Error> {
    let gap = payload.get(end as usize..tensor.offset as usize).unwrap_or(&[]);
    match gap.iter().zip(end..).find(|(byte, _)| **byte != 0) {
        Some((byte, at)) => {
            Err(Error::Layout { part: Part::Payload, rule: Rule::Zero, offset: payload_start + at, found: u64::from(*byte), allowed: 0 })
        }
        None => Ok(()),
    }
}

/// The first element that is NaN or infinite: one whose exponent is all ones.
fn first_non_finite(view: &TensorView<'_>) -> Option<u64> {
    let bytes = view.bytes();
    let place = match view.dtype() {
        DType::F32 => bytes.as_chunks::<4>().0.iter().position(|b| !f32::from_le_bytes(*b).is_finite()),
        DType::F16 => halves_with(bytes, 0x7c00),
        DType::Bf16 => halves_with(bytes, 0x7f80),
        _ => None,
    };
    place.map(|place| place as u64)
}

fn halves_with(bytes: &[u8], exponent: u16) -> Option<usize> {
    bytes.as_chunks::<2>().0.iter().position(|b| u16::from_le_bytes(*b) & exponent == exponent)
}

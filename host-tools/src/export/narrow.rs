//! Values as an export stores them in f32, f16 and bf16: rounded to nearest even, subnormals kept, and refused where the element type cannot hold them. Used by both passes of the exporter.

use crate::error::{Class, Error};
use dmexp_format::DType;
use half::slice::{HalfBitsSliceExt, HalfFloatSliceExt};
use half::{bf16, f16};

/// Narrows pieces of one tensor after the other into one buffer.
#[derive(Debug)]
pub(crate) struct Narrower {
    dtype: DType,
    bytes: Vec<u8>,
    flushed: u64,
}

/// A value that cannot be stored.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Refused {
    /// Which element of the tensor.
    pub(crate) element: u64,
    /// Its value in the source.
    pub(crate) value: f32,
    /// The type that it was to be stored as.
    pub(crate) dtype: DType,
}

impl Narrower {
    pub(crate) fn new(dtype: DType) -> Self {
        Self { dtype, bytes: Vec::new(), flushed: 0 }
    }

    /// The bytes of `values`, the first of which is element `first`.
    pub(crate) fn narrow(&mut self, first: u64, values: &[f32]) -> Result<&[u8], Refused> {
        let finite = match self.dtype {
            DType::F16 => self.halves(values, 0x7c00, |from, to| to.reinterpret_cast_mut::<f16>().convert_from_f32_slice(from)),
            DType::Bf16 => self.halves(values, 0x7f80, |from, to| to.reinterpret_cast_mut::<bf16>().convert_from_f32_slice(from)),
            _ => {
                self.bytes.resize(4 * values.len(), 0);
                for (to, value) in self.bytes.as_chunks_mut().0.iter_mut().zip(values) {
                    *to = value.to_le_bytes();
                }
                values.iter().fold(0, |found, value| found | u32::from(!value.is_finite())) == 0
            }
        };
        if finite {
            return Ok(&self.bytes);
        }
        let dtype = self.dtype;
        let holds = |value: f32| match dtype {
            DType::F16 => f16::from_f32(value).is_finite(),
            DType::Bf16 => bf16::from_f32(value).is_finite(),
            _ => value.is_finite(),
        };
        let (element, value) = (first..).zip(values).find(|(_, value)| !holds(**value)).unwrap_or((first, &f32::NAN));
        Err(Refused { element, value: *value, dtype })
    }

    /// Narrows to 16 bits; whether all of them are finite, which is to say that their exponent is not all ones. In small blocks, one simple loop for each question: loops that the compiler
    /// turns into vector instructions.
    fn halves(&mut self, values: &[f32], exponent: u16, narrow: impl Fn(&[f32], &mut [u16])) -> bool {
        const BLOCK: usize = 1024;
        let mut halves = [0u16; BLOCK];
        let mut finite = true;
        self.bytes.resize(2 * values.len(), 0);
        for (values, bytes) in values.chunks(BLOCK).zip(self.bytes.chunks_mut(2 * BLOCK)) {
            let halves = &mut halves[..values.len()];
            narrow(values, halves);
            finite &= halves.iter().fold(0, |found, half| found | u16::from(half & exponent == exponent)) == 0;
            let lost =
                values.iter().zip(&*halves).fold(0u32, |lost, (value, half)| lost + u32::from(half << 1 == 0) * u32::from(*value != 0.0));
            self.flushed += u64::from(lost);
            for (to, half) in bytes.as_chunks_mut().0.iter_mut().zip(&*halves) {
                *to = half.to_le_bytes();
            }
        }
        finite
    }

    /// How many values became exactly 0 so far.
    pub(crate) fn flushed(&self) -> u64 {
        self.flushed
    }
}

impl Refused {
    /// The error: tensor, element, value, and the type that can hold it.
    pub(crate) fn explain(self, tensor: &str) -> Error {
        let Self { element, value, dtype } = self;
        if !value.is_finite() {
            return Error::damaged(format!("element {element} of tensor {tensor} is {value}"))
                .advise("no element type makes that a weight: the training went wrong, or the file is damaged");
        }
        let (most, advice) = match dtype {
            DType::F16 => ("65504", "export it with --dtype bf16, or f32"),
            DType::Q8 | DType::Q4 => ("3.4028e38, less the rounding of its scale", "export it with --dtype f32"),
            _ => ("3.3895314e38", "export it with --dtype f32"),
        };
        Error::new(Class::Unrepresentable, format!("element {element} of tensor {tensor} is {value}; {dtype} holds at most {most}"))
            .advise(advice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(dtype: DType, value: f32) -> Result<u16, Refused> {
        let mut narrower = Narrower::new(dtype);
        narrower.narrow(0, &[value]).map(|bytes| u16::from_le_bytes([bytes[0], bytes[1]]))
    }

    #[test]
    fn ties_go_to_even() {
        // Half-way between two f16 numbers: 1 + 1/2048 down to 1, 1 + 3/2048 up to 1 + 2/1024.
        assert_eq!(one(DType::F16, 1.0 + 1.0 / 2048.0), Ok(0x3c00));
        assert_eq!(one(DType::F16, 1.0 + 3.0 / 2048.0), Ok(0x3c02));
        assert_eq!(one(DType::F16, -1.0 - 3.0 / 2048.0), Ok(0xbc02));
        assert_eq!(one(DType::F16, f32::from_bits((1.0f32 + 1.0 / 2048.0).to_bits() + 1)), Ok(0x3c01));
        assert_eq!(one(DType::Bf16, 1.0 + 1.0 / 256.0), Ok(0x3f80));
        assert_eq!(one(DType::Bf16, 1.0 + 3.0 / 256.0), Ok(0x3f82));
    }

    #[test]
    fn only_overflow_to_infinity_is_refused() {
        assert_eq!(one(DType::F16, 65504.0), Ok(0x7bff));
        // Nearer to 65504 than to 65536.
        assert_eq!(one(DType::F16, 65519.996), Ok(0x7bff));
        for value in [65520.0, -65520.0, 1e30] {
            assert_eq!(one(DType::F16, value), Err(Refused { element: 0, value, dtype: DType::F16 }));
            assert!(one(DType::Bf16, value).is_ok());
        }
        assert_eq!(one(DType::Bf16, f32::from_bits(0x7f7f_7fff)), Ok(0x7f7f));
        assert!(one(DType::Bf16, f32::MAX).is_err());
        assert!(Narrower::new(DType::F32).narrow(0, &[f32::MAX]).is_ok());
        for dtype in [DType::F16, DType::Bf16, DType::F32] {
            for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                let refused = Narrower::new(dtype).narrow(7, &[0.0, value]).unwrap_err();
                assert_eq!(refused.element, 8);
            }
        }
    }

    #[test]
    fn subnormals_are_kept_and_lost_values_counted() {
        let smallest = 2.0f32.powi(-24);
        let mut narrower = Narrower::new(DType::F16);
        let bytes = narrower.narrow(0, &[smallest, -smallest, smallest / 2.0, smallest * 0.75, 0.0, -0.0]).unwrap();
        assert_eq!(bytes, [1, 0, 1, 0x80, 0, 0, 1, 0, 0, 0, 0, 0x80]);
        assert_eq!(narrower.flushed(), 1);
        let mut narrower = Narrower::new(DType::Bf16);
        assert_eq!(narrower.narrow(0, &[f32::from_bits(0x0001_0000), f32::from_bits(1)]).unwrap(), [1, 0, 0, 0]);
        assert_eq!(narrower.flushed(), 1);
    }

    #[test]
    fn a_refusal_names_tensor_element_value_and_what_can_hold_it() {
        let text = Refused { element: 3, value: 70000.0, dtype: DType::F16 }.explain("layers.0.attention.wq.weight").to_string();
        for part in ["layers.0.attention.wq.weight", "element 3", "70000", "f16", "65504", "bf16"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let text = Refused { element: 3, value: f32::MAX, dtype: DType::Bf16 }.explain("w").to_string();
        assert!(text.contains("--dtype f32"), "{text}");
        let text = Refused { element: 3, value: f32::NAN, dtype: DType::Bf16 }.explain("w").to_string();
        assert!(text.contains("element 3 of tensor w is NaN"), "{text}");
    }
}

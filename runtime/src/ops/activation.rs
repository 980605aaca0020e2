//! The input of matrices: a vector and, made when the first integer matrix asks for them, its integer codes. Made by the models, once for all matrices that share an input.
#![cfg_attr(not(all(feature = "q8", feature = "q4")), allow(dead_code, reason = "a build without all integer matrices"))]

#[cfg(any(feature = "q8", feature = "q4"))]
use super::chip;
use super::chip::Form;
#[cfg(any(feature = "q8", feature = "q4"))]
use super::integer::Integers;
#[cfg(any(feature = "q4", all(x86_64_host, feature = "q8")))]
use super::integer::only;
#[cfg(any(feature = "q4", all(x86_64_host, feature = "q8")))]
use crate::format::DType;
#[cfg(any(feature = "q8", feature = "q4"))]
use crate::format::TensorView;

/// A vector as matrices take it: floats, and integers in memory of the caller's.
#[derive(Debug)]
pub struct Activation<'a> {
    x: &'a [f32],
    codes: &'a mut [i16],
    sums: &'a mut [i32],
    scale: f32,
    /// The kind of matrix that the codes were made for: a machine may want them in another order for each.
    made_for: Option<Form>,
    /// The group that the sums were made for; 0 when there are none yet.
    summed: usize,
}

impl<'a> Activation<'a> {
    /// `x`, with [`activation_words`](crate::format::layout::activation_words) of scratch, whose contents do not matter. Without enough of it integer matrices give zeros.
    #[inline(never)]
    pub fn new(x: &'a [f32], scratch: &'a mut [f32]) -> Self {
        let codes = x.len().next_multiple_of(8);
        let (codes, sums) = scratch.split_at_mut_checked(codes / 2).unwrap_or_default();
        let (codes, sums) = (bytemuck::cast_slice_mut(codes), bytemuck::cast_slice_mut(sums));
        Self { x, codes, sums, scale: 0.0, made_for: None, summed: 0 }
    }

    /// The vector itself.
    pub fn floats(&self) -> &'a [f32] {
        self.x
    }

    /// The vector as integers for `w`, a q8 or q4 matrix.
    #[cfg(any(feature = "q8", feature = "q4"))]
    pub(crate) fn integers(&mut self, w: &TensorView<'_>) -> Integers<'_> {
        self.integers_as(w, chip::form(w))
    }

    /// The same with the codes in another form than the kernel for a single vector wants.
    #[cfg(any(feature = "q8", feature = "q4"))]
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "all of `integers` on a chip")]
    pub(crate) fn integers_as(&mut self, w: &TensorView<'_>, form: Form) -> Integers<'_> {
        #[cfg(not(any(feature = "q4", x86_64_host)))]
        let _ = w;
        if self.made_for != Some(form) {
            self.made_for = Some(form);
            self.scale = chip::quantise(self.codes, self.x, form);
            if chip::SUMS_OF_Q8 {
                self.summed = 0;
            }
        }
        #[cfg(any(feature = "q4", all(x86_64_host, feature = "q8")))]
        {
            let group = w.group_len();
            if (chip::SUMS_OF_Q8 || only(w.dtype()) == DType::Q4) && self.summed != group {
                self.summed = group;
                // Where the codes are put into another order, those behind the end stay out of it.
                #[cfg(x86_64_host)]
                let codes = self.codes.get_mut(..self.x.len()).unwrap_or_default();
                #[cfg(not(x86_64_host))]
                let codes = &*self.codes;
                chip::group_sums(self.sums, codes, group, form);
            }
        }
        Integers {
            codes: self.codes,
            sums: self.sums,
            scale: self.scale,
            #[cfg(x86_64_host)]
            form,
        }
    }
}

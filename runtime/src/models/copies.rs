//! Copies of an opened file's tensors in memory that the caller gives: for chips whose RAM is faster than their flash. Called by the models.

use crate::format::{Error, TensorView};

/// Copies begin at multiples of so many words, as planes do in files.
const ALIGNMENT: usize = 4;

/// A word for each tensor, the word at which its copy begins or 0 where it has none; then the copies.
#[derive(Clone, Copy, Debug)]
pub(super) struct Copies<'a>(&'a [u32]);

impl<'a> Copies<'a> {
    /// Every tensor stays where it is.
    pub(super) const NONE: Self = Self(&[]);

    /// Words of memory for copies of those of `count` tensors that `tensor` gives.
    pub(super) fn words_for(count: u32, tensor: impl Fn(u32) -> Option<TensorView<'a>>) -> u64 {
        (0..count).filter_map(tensor).fold(aligned(u64::from(count)), |words, view| words.saturating_add(words_of(&view)))
    }

    /// Copies those of `count` tensors that `tensor` gives to `memory`.
    ///
    /// # Errors
    /// [`Error::CopiesTooLarge`], [`Error::TooLargeForTarget`]; nothing is written then.
    #[inline(never)]
    pub(super) fn make(count: u32, tensor: impl Fn(u32) -> Option<TensorView<'a>>, memory: &'a mut [u32]) -> Result<Self, Error> {
        let needed = Self::words_for(count, &tensor);
        let bytes = |words: u64| words.saturating_mul(size_of::<u32>() as u64);
        // Places are words of the memory themselves.
        if needed > u64::from(u32::MAX) {
            return Err(Error::TooLargeForTarget { needed: bytes(needed), addressable: bytes(u64::from(u32::MAX)) });
        }
        if needed > memory.len() as u64 {
            return Err(Error::CopiesTooLarge { needed: bytes(needed), found: bytes(memory.len() as u64) });
        }
        let mut start = aligned(u64::from(count)) as usize;
        for number in 0..count {
            let mut place = 0;
            if let Some(view) = tensor(number) {
                let words = memory.get_mut(start..).unwrap_or_default();
                for (to, from) in bytemuck::cast_slice_mut(words).iter_mut().zip(view.bytes()) {
                    *to = *from;
                }
                place = start as u32;
                start = start.saturating_add(words_of(&view) as usize);
            }
            if let Some(entry) = memory.get_mut(number as usize) {
                *entry = place;
            }
        }
        Ok(Self(memory))
    }

    /// Tensor `number`, of which `view` is the original, where its copy lies; `None` where it has none.
    pub(super) fn find(&self, number: u32, view: &TensorView<'a>) -> Option<TensorView<'a>> {
        let start = self.0.get(number as usize).copied().filter(|start| *start > 0)?;
        view.moved(bytemuck::cast_slice(self.0.get(start as usize..)?).get(..view.bytes().len())?)
    }
}

/// Words of a tensor's copy.
fn words_of(view: &TensorView<'_>) -> u64 {
    aligned(view.bytes().len().div_ceil(size_of::<u32>()) as u64)
}

const fn aligned(words: u64) -> u64 {
    words.next_multiple_of(ALIGNMENT as u64)
}

#[cfg(test)]
mod tests {
    use super::Copies;
    use crate::format::{DType, Dims, Error, TensorView};

    #[test]
    fn copies_lie_in_the_memory_given_and_the_rest_stays() {
        let bytes: Vec<u8> = (0..100).collect();
        let view = |start: usize, len: usize| TensorView::new(0, DType::U8, Dims::vector(len as u32), &bytes[start..start + len]).unwrap();
        let tensors = [view(0, 33), view(33, 1), view(34, 66)];
        let wanted = |number: u32| tensors.get(number as usize).copied().filter(|_| number != 1);
        // 3 words of places, then 33 and 66 bytes, each up to 16 more.
        assert_eq!(Copies::words_for(3, wanted), 4 + 12 + 20);
        let mut short = [u32::MAX; 35];
        assert_eq!(Copies::make(3, wanted, &mut short).map(|_| ()), Err(Error::CopiesTooLarge { needed: 4 * 36, found: 4 * 35 }));
        let mut memory = [u32::MAX; 36];
        let range = memory.as_ptr_range();
        let copies = Copies::make(3, wanted, &mut memory).unwrap();
        for (number, original) in (0..).zip(&tensors) {
            let Some(copy) = copies.find(number, original) else {
                assert_eq!(number, 1);
                continue;
            };
            assert_eq!((copy.bytes(), copy.dims(), copy.dtype()), (original.bytes(), original.dims(), original.dtype()));
            assert!(range.contains(&copy.bytes().as_ptr().cast()) && copy.bytes().as_ptr().addr().is_multiple_of(4));
        }
        assert!(copies.find(3, &tensors[0]).is_none() && Copies::NONE.find(0, &tensors[0]).is_none());
    }
}

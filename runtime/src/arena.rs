//! The memory that a session needs: owned by the caller, in one piece or in two banks, sized by the layout, carved once.

#[cfg(any(feature = "llama", feature = "dormouse"))]
use crate::format::{Bank, Error};

/// Memory for one session, exactly as large as the model needs: `Arena<{ Stories::ARENA_LEN }>`.
///
/// Put it in a static (`static_cell::ConstStaticCell`, which is made of zeros where it lies; a cell that is given its value at run time may build it on the stack
/// first) or, on a host, anywhere. What it held before does not matter. It holds everything of a session but the [`Session`](crate::Session) itself: keys and values, activations, logits, the
/// sampler's order of them, the tokens so far; prompts are merged in it too.
///
/// Where a chip's RAM is split, two arenas will do, of `Stories::KV_LEN` and `Stories::WORK_LEN` bytes: see `Session::new_in_banks`.
///
/// ```
/// # use dmexp::{Arena, Memory};
/// let mut arena = Arena::<1024>::new();
/// assert_eq!(arena.words().len(), 256);
/// ```
#[repr(C, align(8))]
pub struct Arena<const BYTES: usize> {
    bytes: [u8; BYTES],
}

impl<const BYTES: usize> Arena<BYTES> {
    /// An arena of zeros.
    #[must_use]
    pub const fn new() -> Self {
        Self { bytes: [0; BYTES] }
    }
}

impl<const BYTES: usize> Default for Arena<BYTES> {
    fn default() -> Self {
        Self::new()
    }
}

/// Memory that a session can be put into: an [`Arena`], or on a host any slice of words.
pub trait Memory {
    /// The memory as words of 32 bits; a rest that fills no word is left out.
    fn words(&mut self) -> &mut [u32];
}

impl<const BYTES: usize> Memory for Arena<BYTES> {
    fn words(&mut self) -> &mut [u32] {
        let whole = BYTES - BYTES % size_of::<u32>();
        self.bytes.get_mut(..whole).and_then(|bytes| bytemuck::try_cast_slice_mut(bytes).ok()).unwrap_or_default()
    }
}

impl Memory for [u32] {
    fn words(&mut self) -> &mut [u32] {
        self
    }
}

/// The memory for keys and values, `kv_bytes`, and the memory for everything else, both together `total_bytes`, each as large as that or larger: `memory` and `work`, or both from `memory`.
#[cfg(any(feature = "llama", feature = "dormouse"))]
pub(crate) fn banks<'m>(
    (kv_bytes, total_bytes): (usize, usize),
    memory: &'m mut [u32],
    work: Option<&'m mut [u32]>,
) -> Result<(&'m mut [u32], &'m mut [u32]), Error> {
    let bytes = |words: &[u32]| words.len() as u64 * size_of::<u32>() as u64;
    let found = bytes(memory);
    let Some(work) = work else {
        let needed = total_bytes as u64;
        let too_small = Error::ArenaTooSmall { needed, found };
        if found < needed {
            return Err(too_small);
        }
        return memory.split_at_mut_checked(kv_bytes / size_of::<u32>()).ok_or(too_small);
    };
    for (bank, needed, found) in [(Bank::Kv, kv_bytes, found), (Bank::Work, total_bytes.saturating_sub(kv_bytes), bytes(work))] {
        if found < needed as u64 {
            return Err(Error::BankTooSmall { bank, needed: needed as u64, found });
        }
    }
    Ok((memory, work))
}

/// Takes parts off the front of a piece of memory.
#[cfg(any(feature = "llama", feature = "dormouse"))]
pub(crate) struct Carve<'m> {
    rest: &'m mut [u32],
}

#[cfg(any(feature = "llama", feature = "dormouse"))]
impl<'m> Carve<'m> {
    pub(crate) fn new(memory: &'m mut [u32]) -> Self {
        Self { rest: memory }
    }

    /// The next `count` words. The layout was compared with the memory's size before: an empty slice where it does not suffice.
    pub(crate) fn words(&mut self, count: usize) -> &'m mut [u32] {
        match core::mem::take(&mut self.rest).split_at_mut_checked(count) {
            Some((part, rest)) => {
                self.rest = rest;
                part
            }
            None => &mut [],
        }
    }

    /// The next `count` words, as floats, set to zero.
    pub(crate) fn floats(&mut self, count: usize) -> &'m mut [f32] {
        let floats: &mut [f32] = bytemuck::cast_slice_mut(self.words(count));
        floats.fill(0.0);
        floats
    }
}

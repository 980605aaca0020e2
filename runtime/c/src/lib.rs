//! The C interface: `include/dmexp.h` is made of this crate. No heap, no standard library; models and sessions live in memory that the caller gives.
//!
//! All functions that can fail return a [`DmexpError`] whose code is [`DmexpCode::Ok`] where they did what they were asked; after any other nothing was changed
//! that the caller can see, but by [`dmexp_generate`], whose session may have gone on.
//! No function may be called for one session from two threads at once.

#![cfg_attr(not(feature = "std"), no_std)]

mod error;
mod model;
mod self_test;
mod session;
mod stops;
mod text;

pub use error::{DmexpCode, DmexpError, dmexp_error_text};
pub use model::{DmexpKv, DmexpModel, dmexp_arena_len, dmexp_bank_lens, dmexp_open, dmexp_set_context, dmexp_set_kv, dmexp_vocab_size};
pub use self_test::dmexp_self_test;
pub use session::{
    DmexpSampling, DmexpSession, dmexp_logits, dmexp_position, dmexp_prompt, dmexp_push_tokens, dmexp_reset, dmexp_session_new,
    dmexp_session_new_in_banks,
};
pub use stops::{DmexpStops, DmexpString, dmexp_set_stops};
pub use text::{DmexpGenerated, DmexpKind, DmexpReason, DmexpStep, DmexpWrite, dmexp_generate, dmexp_poll, dmexp_step};

/// Nothing in this library panics; should the caller's own Rust code do so, there is nobody to tell. Chips abort anyway: there is no unwinding.
#[cfg(not(feature = "std"))]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {
        core::hint::spin_loop();
    }
}

/// A value in memory of the caller's, with a mark that it was put there.
#[repr(C)]
struct Held<T> {
    mark: u32,
    value: T,
}

impl<T> Held<T> {
    /// Puts `value` into the caller's memory at `place`.
    ///
    /// # Safety
    /// `place` is null or points to writable memory as large as `Self`, which no reference points into.
    unsafe fn put<O>(place: *mut O, mark: u32, value: T) -> Result<(), DmexpError> {
        const { assert!(size_of::<Self>() <= size_of::<O>() && align_of::<Self>() <= align_of::<O>()) };
        aligned(place)?;
        // SAFETY: not null and aligned, as was just seen; as large as `O`, which is as large as `Self`; by the caller's word nobody else looks at it.
        unsafe { place.cast::<Self>().write(Self { mark, value }) };
        Ok(())
    }

    /// The value at `place`.
    ///
    /// # Safety
    /// `place` is null or points to initialised memory as large as `O`, which nobody writes to meanwhile; what is marked there was put there by [`Held::put`] of the same type.
    unsafe fn at<'a, O>(place: *const O, mark: u32) -> Result<&'a T, DmexpError> {
        aligned(place)?;
        // SAFETY: not null, aligned and initialised; a mark can be read whatever else is there.
        let found = unsafe { place.cast::<u32>().read() };
        if found != mark {
            return Err(DmexpError::of(DmexpCode::NotMade));
        }
        // SAFETY: the mark says that a `Self` was put there.
        Ok(unsafe { &(*place.cast::<Self>()).value })
    }

    /// The value at `place`, to be changed.
    ///
    /// # Safety
    /// That of [`Held::at`], and no other reference to it lives.
    unsafe fn at_mut<'a, O>(place: *mut O, mark: u32) -> Result<&'a mut T, DmexpError> {
        // SAFETY: the caller's word is the same.
        unsafe { Self::at(place.cast_const(), mark) }?;
        // SAFETY: a `Self` is there, and no other reference to it.
        Ok(unsafe { &mut (*place.cast::<Self>()).value })
    }
}

/// Refuses null, and an address that is no multiple of what `T` wants.
fn aligned<T>(place: *const T) -> Result<(), DmexpError> {
    if place.is_null() {
        return Err(DmexpError::of(DmexpCode::Null));
    }
    if !place.is_aligned() {
        return Err(DmexpError::numbers(DmexpCode::Alignment, place.addr() as u64, align_of::<T>() as u64));
    }
    Ok(())
}

/// The slice of `len` elements at `start`; empty where there are none, whatever `start` is.
///
/// # Safety
/// `start` is null or points to `len` initialised elements that nobody writes to while `'a` lasts.
unsafe fn slice<'a, T>(start: *const T, len: usize) -> Result<&'a [T], DmexpError> {
    if len == 0 {
        return Ok(&[]);
    }
    aligned(start)?;
    // SAFETY: not null and aligned; the rest is the caller's word.
    Ok(unsafe { core::slice::from_raw_parts(start, len) })
}

/// Refuses two pieces of memory, by address and bytes, that share any.
fn apart(one: (usize, usize), other: (usize, usize)) -> Result<(), DmexpError> {
    let end = |(start, len): (usize, usize)| start.saturating_add(len);
    let shared = end(one).min(end(other)).saturating_sub(one.0.max(other.0));
    if shared == 0 { Ok(()) } else { Err(DmexpError::numbers(DmexpCode::Overlap, shared as u64, 0)) }
}

/// Memory of `len` bytes at `start` as words of 32 bits; a rest that fills no word is left out.
///
/// # Safety
/// `start` is null or points to `len` bytes of initialised memory that belong to the caller of this alone while `'a` lasts.
unsafe fn words<'a>(start: *mut core::ffi::c_void, len: usize) -> Result<&'a mut [u32], DmexpError> {
    let start = start.cast::<u32>();
    if len < size_of::<u32>() {
        return Ok(&mut []);
    }
    aligned(start)?;
    // SAFETY: not null and aligned; every bit pattern is a number; the rest is the caller's word.
    Ok(unsafe { core::slice::from_raw_parts_mut(start, len / size_of::<u32>()) })
}

/// Refuses an address that is neither null nor a multiple of what `T` wants: before anything is done whose outcome goes there.
fn aligned_or_null<T>(place: *const T) -> Result<(), DmexpError> {
    if place.is_null() { Ok(()) } else { aligned(place) }
}

/// Writes `value` where the caller wants it, if anywhere.
///
/// # Safety
/// `place` is null or points to writable memory for a `T`.
unsafe fn give<T>(place: *mut T, value: T) -> Result<(), DmexpError> {
    if !place.is_null() {
        aligned(place)?;
        // SAFETY: not null, aligned, and by the caller's word writable.
        unsafe { place.write(value) };
    }
    Ok(())
}

/// What a function returns to C.
fn told(outcome: Result<(), DmexpError>) -> DmexpError {
    outcome.err().unwrap_or(DmexpError::of(DmexpCode::Ok))
}

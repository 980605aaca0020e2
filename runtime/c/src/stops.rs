//! Strings at which a text ends.

use crate::session::{DmexpSession, session};
use crate::{DmexpCode, DmexpError, Held, slice, told};
use core::ffi::c_char;
use dmexp::StopStrings;

/// Bytes of text, without a zero byte behind them.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DmexpString {
    /// The first.
    pub text: *const c_char,
    /// How many.
    pub len: usize,
}

/// Room for stop strings: memory that the caller gives, which [`dmexp_set_stops`] fills. It may not be moved.
#[repr(C)]
pub struct DmexpStops {
    /// Nothing to look at: it gives the memory its alignment.
    aligned: u64,
    opaque: [usize; 16],
}

const STOPS_MARK: u32 = 0x444d_7833;

/// How many there may be.
const MOST: usize = 8;

/// Lets [`dmexp_generate`](crate::dmexp_generate) end a text at any of `count` strings (at most 8, each of 1 to 64 bytes of UTF-8), of which it shows no part; of none where `count` is 0, and `stops`
/// may be null then. `stops` and the strings' bytes stay where they are while the session is used, and one session has `stops` to itself.
///
/// # Safety
/// `session` points to memory of its type, `stops` to memory of its type that no other session uses, `strings` to so many strings, whose bytes are there while the session is used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dmexp_set_stops(
    session: *mut DmexpSession,
    stops: *mut DmexpStops,
    strings: *const DmexpString,
    count: usize,
) -> DmexpError {
    let set = || {
        // SAFETY: by the caller's word, here and below.
        let (session, strings) = unsafe { (self::session(session)?, slice(strings, count)?) };
        if strings.is_empty() {
            session.set_stops(StopStrings::NONE);
            return Ok(());
        }
        let mut texts: [&'static str; MOST] = [""; MOST];
        if count > MOST {
            return Err(DmexpError::numbers(DmexpCode::Stop, count as u64, MOST as u64));
        }
        for (place, string) in texts.iter_mut().zip(strings) {
            // SAFETY: the same.
            let bytes = unsafe { slice(string.text.cast::<u8>(), string.len) }?;
            *place = core::str::from_utf8(bytes)
                .map_err(|error| DmexpError::numbers(DmexpCode::Stop, error.valid_up_to() as u64, string.len as u64))?;
        }
        StopStrings::new(texts.get(..count).unwrap_or(&[]))?;
        // SAFETY: the same.
        let texts = unsafe {
            Held::put(stops, STOPS_MARK, texts)?;
            Held::<[&'static str; MOST]>::at(stops.cast_const(), STOPS_MARK)?
        };
        session.set_stops(StopStrings::new(texts.get(..count).unwrap_or(&[]))?);
        Ok(())
    };
    told(set())
}

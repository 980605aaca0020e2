//! Sessions in memory of the caller's: tokens in, logits out.

use crate::model::{DmexpModel, model};
use crate::{DmexpCode, DmexpError, Held, aligned, aligned_or_null, apart, give, slice, told, words};
use core::ffi::{c_char, c_void};
use dmexp::sampler::Settings;
use dmexp::{Sampler, Session};

/// One text being continued: memory that the caller gives, which [`dmexp_session_new`] fills. It may not be moved.
#[repr(C)]
pub struct DmexpSession {
    /// Nothing to look at: it gives the memory its alignment.
    aligned: u64,
    opaque: [usize; 126],
}

pub(crate) const SESSION_MARK: u32 = 0x444d_7832;

/// How the next token is chosen. All zero but the temperature and the seed is plain sampling; a null pointer in its place always takes the likeliest.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DmexpSampling {
    /// Divides the logits; 0 always takes the likeliest.
    pub temperature: f32,
    /// Keeps the likeliest that together have more than this part of the probability; 0 or 1 is off.
    pub top_p: f32,
    /// Keeps this many of the likeliest; 0 is off.
    pub top_k: u32,
    /// Keeps tokens that have at least this part of the best one's probability; 0 is off.
    pub min_p: f32,
    /// Divides positive logits of tokens that came up before; 0 or 1 is off.
    pub repeat_penalty: f32,
    /// How many of the newest tokens the penalty looks at.
    pub repeat_last_n: u32,
    /// Where the random numbers begin; 0 is 1.
    pub seed: u64,
}

/// # Safety
/// `sampling` is null or points to settings.
unsafe fn sampler(sampling: *const DmexpSampling) -> Result<Sampler, DmexpError> {
    if sampling.is_null() {
        return Ok(Sampler::greedy());
    }
    // SAFETY: by the caller's word, one element.
    let [asked] = unsafe { slice(sampling, 1) }? else { return Err(DmexpError::of(DmexpCode::Null)) };
    let off = |value: f32| if value == 0.0 { 1.0 } else { value };
    let settings = Settings {
        temperature: asked.temperature,
        top_p: off(asked.top_p),
        top_k: asked.top_k,
        min_p: asked.min_p,
        repeat_penalty: off(asked.repeat_penalty),
        repeat_last_n: asked.repeat_last_n,
        seed: asked.seed.max(1),
    };
    Ok(Sampler::new(settings)?)
}

/// # Safety
/// That of [`Held::at_mut`].
pub(crate) unsafe fn session<'a>(session: *mut DmexpSession) -> Result<&'a mut Session<'static>, DmexpError> {
    // SAFETY: the caller's word.
    unsafe { Held::at_mut(session, SESSION_MARK) }
}

/// Refuses memory of which the session or the model have a part.
fn apart_from_own(session: *const DmexpSession, model: *const DmexpModel, memory: (usize, usize)) -> Result<(), DmexpError> {
    apart((session.addr(), size_of::<DmexpSession>()), memory)?;
    apart((model.addr(), size_of::<DmexpModel>()), memory)
}

/// Makes a session of `model` in `arena`, `arena_len` bytes at an address that is a multiple of 4 (`dmexp_arena_len` says how many there must be). What the arena held does not matter.
/// `sampling` may be null.
///
/// # Safety
/// `session` points to memory of its type, `model` to an opened model that stays where it is, `arena` to so many bytes, which are the session's alone while it is used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dmexp_session_new(
    session: *mut DmexpSession,
    model: *const DmexpModel,
    arena: *mut c_void,
    arena_len: usize,
    sampling: *const DmexpSampling,
) -> DmexpError {
    let make = || {
        apart_from_own(session, model, (arena.addr(), arena_len))?;
        // SAFETY: by the caller's word, here and below.
        let (model, arena, sampler) = unsafe { (self::model(model)?, words(arena, arena_len)?, sampler(sampling)?) };
        let made = Session::new(model, arena, sampler)?;
        // SAFETY: by the caller's word.
        unsafe { Held::put(session, SESSION_MARK, made) }
    };
    told(make())
}

/// [`dmexp_session_new`] with memory in two pieces, for chips whose RAM is split: keys and values in `kv`, everything else in `work` (`dmexp_bank_lens` says how much).
///
/// # Safety
/// That of [`dmexp_session_new`], for both pieces.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dmexp_session_new_in_banks(
    session: *mut DmexpSession,
    model: *const DmexpModel,
    kv: *mut c_void,
    kv_len: usize,
    work: *mut c_void,
    work_len: usize,
    sampling: *const DmexpSampling,
) -> DmexpError {
    let make = || {
        apart((kv.addr(), kv_len), (work.addr(), work_len))?;
        apart_from_own(session, model, (kv.addr(), kv_len))?;
        apart_from_own(session, model, (work.addr(), work_len))?;
        // SAFETY: by the caller's word, here and below.
        let (model, sampler) = unsafe { (self::model(model)?, sampler(sampling)?) };
        // SAFETY: the same.
        let (kv, work) = unsafe { (words(kv, kv_len)?, words(work, work_len)?) };
        let made = Session::new_in_banks(model, kv, work, sampler)?;
        // SAFETY: by the caller's word.
        unsafe { Held::put(session, SESSION_MARK, made) }
    };
    told(make())
}

/// Puts `len` bytes of text behind what is known; at the beginning of a text the begin-of-text token goes before it, if the tokenizer wants one. `added` (may be null) gets the number of
/// tokens.
///
/// # Safety
/// `session` points to memory of its type; `text` to `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dmexp_prompt(session: *mut DmexpSession, text: *const c_char, len: usize, added: *mut u32) -> DmexpError {
    let prompt = || {
        aligned_or_null(added)?;
        // SAFETY: by the caller's word.
        let (session, text) = unsafe { (self::session(session)?, slice(text.cast(), len)?) };
        let count = session.prompt(text)?;
        // SAFETY: by the caller's word.
        unsafe { give(added, count) }
    };
    told(prompt())
}

/// Puts `count` tokens behind what is known.
///
/// # Safety
/// `session` points to memory of its type; `tokens` to `count` numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dmexp_push_tokens(session: *mut DmexpSession, tokens: *const u32, count: usize) -> DmexpError {
    let push = || {
        // SAFETY: by the caller's word.
        let (session, tokens) = unsafe { (self::session(session)?, slice(tokens, count)?) };
        Ok(session.push_tokens(tokens)?)
    };
    told(push())
}

/// Feeds all known tokens, and lets `logits` point to the logits after the last and `count` (may be null) be how many there are. They lie in the arena, until the session is used again.
///
/// # Safety
/// `session` points to memory of its type, `logits` to a pointer, `count` is null or points to a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dmexp_logits(session: *mut DmexpSession, logits: *mut *const f32, count: *mut usize) -> DmexpError {
    let compute = || {
        aligned(logits)?;
        aligned_or_null(count)?;
        // SAFETY: by the caller's word, here and below.
        let found = unsafe { self::session(session) }?.logits()?;
        // SAFETY: the same.
        unsafe { give(logits, found.as_ptr()) }?;
        // SAFETY: the same.
        unsafe { give(count, found.len()) }
    };
    told(compute())
}

/// Tokens fed so far; 0 where no session is there.
///
/// # Safety
/// `session` is null or points to memory of its type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dmexp_position(session: *mut DmexpSession) -> u32 {
    // SAFETY: by the caller's word.
    unsafe { self::session(session) }.map_or(0, |session| session.position())
}

/// Forgets everything: the next prompt begins a new text. The sampler goes on with its random numbers.
///
/// # Safety
/// `session` points to memory of its type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dmexp_reset(session: *mut DmexpSession) -> DmexpError {
    // SAFETY: by the caller's word.
    told(unsafe { self::session(session) }.map(Session::reset))
}

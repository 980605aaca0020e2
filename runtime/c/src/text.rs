//! Text: one step a call, or streamed to a callback.

use crate::session::{DmexpSession, session};
use crate::{DmexpError, aligned, aligned_or_null, give, slice, told};
use core::ffi::{c_char, c_void};
use dmexp::format::Error;
use dmexp::{Step, StopReason};
use embedded_io::{ErrorKind, ErrorType, Write};

/// What a step did.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DmexpKind {
    /// A token of the prompt was fed; more of the prompt follows.
    Prompt = 0,
    /// A new token was chosen.
    Token = 1,
    /// Nothing more comes.
    Stop = 2,
    /// A part of a step is done, by `dmexp_poll`: call it again.
    Busy = 3,
}

/// Why nothing more comes.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DmexpReason {
    /// Something comes.
    None = 0,
    /// The model said so.
    EndOfText = 1,
    /// As many tokens as were asked for.
    MaxTokens = 2,
    /// Every position of the context is used.
    ContextFull = 3,
    /// Something else.
    Other = 4,
    /// One of the strings of `dmexp_set_stops` came.
    StopString = 5,
}

/// One step.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DmexpStep {
    /// What it did.
    pub kind: DmexpKind,
    /// Why nothing more comes, after `DMEXP_KIND_STOP`.
    pub reason: DmexpReason,
    /// The token that was fed or chosen.
    pub token: u32,
    /// The bytes of a chosen token, which need not be whole characters; they lie in the file or in this library, without a zero byte behind them.
    pub text: *const c_char,
    /// How many there are.
    pub text_len: usize,
}

/// What [`dmexp_generate`] did.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DmexpGenerated {
    /// Tokens of the prompt, begin-of-text included.
    pub prompt_tokens: u32,
    /// New tokens.
    pub tokens: u32,
    /// Why it ended.
    pub reason: DmexpReason,
}

/// Takes `len` bytes of text, whole characters at a time; returns how many of them it took, 0 where it takes no more. `context` is what was given with the callback.
pub type DmexpWrite = Option<unsafe extern "C" fn(context: *mut c_void, text: *const c_char, len: usize) -> usize>;

/// Every byte, for tokens that are one byte: their text needs a place that stays.
static BYTES: [u8; 256] = {
    let mut bytes = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        bytes[byte] = byte as u8;
        byte += 1;
    }
    bytes
};

fn reason(stop: StopReason) -> DmexpReason {
    match stop {
        StopReason::EndOfText(_) => DmexpReason::EndOfText,
        StopReason::MaxTokens => DmexpReason::MaxTokens,
        StopReason::ContextFull => DmexpReason::ContextFull,
        StopReason::StopString => DmexpReason::StopString,
        _ => DmexpReason::Other,
    }
}

impl DmexpStep {
    /// Nothing is done yet.
    const BUSY: Self = Self { kind: DmexpKind::Busy, reason: DmexpReason::None, token: 0, text: c"".as_ptr(), text_len: 0 };

    fn of(step: Step<'static>) -> Self {
        let mut done = Self { kind: DmexpKind::Stop, ..Self::BUSY };
        match step {
            Step::Prompt { token } => (done.kind, done.token) = (DmexpKind::Prompt, token),
            Step::Token { token, text } => {
                (done.kind, done.token) = (DmexpKind::Token, token);
                // One byte has a place of its own in the library: the step's copy of it goes away.
                let bytes = match *text.as_bytes() {
                    [byte] => BYTES.get(usize::from(byte)..).and_then(|rest| rest.get(..1)).unwrap_or(&[]),
                    _ => text.as_bytes(),
                };
                (done.text, done.text_len) = (bytes.as_ptr().cast(), bytes.len());
            }
            Step::Stop(stop) => done.reason = reason(stop),
            _ => done.reason = DmexpReason::Other,
        }
        done
    }
}

/// Feeds the next known token. When it was the last one known, the next is chosen.
///
/// # Safety
/// `session` points to memory of its type, `step` to a step.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dmexp_step(session: *mut DmexpSession, step: *mut DmexpStep) -> DmexpError {
    let make = || {
        aligned(step)?;
        // SAFETY: by the caller's word.
        let done = unsafe { self::session(session) }?.step()?;
        // SAFETY: the same.
        unsafe { give(step, DmexpStep::of(done)) }
    };
    told(make())
}

/// Does a part of a [`dmexp_step`], so that a watchdog can be fed and other work done in between: the embedding, one layer, or logits and choice. The kind is `DMEXP_KIND_BUSY` until the step is
/// done. The bits are those of whole steps, which may also finish what this began.
///
/// # Safety
/// `session` points to memory of its type, `step` to a step.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dmexp_poll(session: *mut DmexpSession, step: *mut DmexpStep) -> DmexpError {
    let make = || {
        aligned(step)?;
        // SAFETY: by the caller's word.
        let done = unsafe { self::session(session) }?.poll()?;
        // SAFETY: the same.
        unsafe { give(step, done.map_or(DmexpStep::BUSY, DmexpStep::of)) }
    };
    told(make())
}

/// The caller's callback as a writer.
struct Callback {
    write: unsafe extern "C" fn(*mut c_void, *const c_char, usize) -> usize,
    context: *mut c_void,
}

/// The callback takes no more.
#[derive(Debug)]
struct Refused;

impl core::fmt::Display for Refused {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("the callback takes no more")
    }
}

impl core::error::Error for Refused {}

impl embedded_io::Error for Refused {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Other
    }
}

impl ErrorType for Callback {
    type Error = Refused;
}

impl Write for Callback {
    fn write(&mut self, bytes: &[u8]) -> Result<usize, Refused> {
        // SAFETY: the caller of `dmexp_generate` gave its word for the callback; the bytes are there for the time of the call.
        let taken = unsafe { (self.write)(self.context, bytes.as_ptr().cast(), bytes.len()) };
        if taken == 0 || taken > bytes.len() { Err(Refused) } else { Ok(taken) }
    }

    fn flush(&mut self) -> Result<(), Refused> {
        Ok(())
    }
}

/// Continues the prompt (`len` bytes, which may be none where something is known already) by at most `max_tokens` tokens and gives the new text to `write`, whole characters at a time.
/// `generated` may be null. Where `write` takes no more, the code is `DMEXP_CODE_OUTPUT`, and the session has gone on as far as it came: it can be continued behind the text that was not taken.
///
/// # Safety
/// `session` points to memory of its type, `prompt` to `len` bytes, `generated` is null or points to memory of its type; `write` may be called with `write_context`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dmexp_generate(
    session: *mut DmexpSession,
    prompt: *const c_char,
    len: usize,
    max_tokens: u32,
    write: DmexpWrite,
    write_context: *mut c_void,
    generated: *mut DmexpGenerated,
) -> DmexpError {
    let run = || {
        aligned_or_null(generated)?;
        // SAFETY: by the caller's word.
        let (session, prompt) = unsafe { (self::session(session)?, slice(prompt.cast::<u8>(), len)?) };
        let Some(write) = write else { return Err(DmexpError::of(crate::DmexpCode::Null)) };
        let prompt_tokens = session.prompt(prompt)?;
        let done = session.generate("", max_tokens, &mut Callback { write, context: write_context });
        let done = done.map_err(|error: Error| DmexpError::from(error))?;
        let told = DmexpGenerated { prompt_tokens, tokens: done.tokens, reason: reason(done.stop) };
        // SAFETY: by the caller's word.
        unsafe { give(generated, told) }
    };
    told(run())
}

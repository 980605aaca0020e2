//! Errors as C sees them: a code, and the numbers of both sides.

use core::ffi::c_char;
use dmexp::format::{Bank, Error};

/// What went wrong.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DmexpCode {
    /// Nothing.
    Ok = 0,
    /// A pointer is null that must not be.
    Null = 1,
    /// A pointer is no multiple of the alignment that it must have: found the address, allowed the alignment.
    Alignment = 2,
    /// The memory does not hold a model or a session that was made.
    NotMade = 3,
    /// The bytes are no .dmexp file.
    NotDmexp = 4,
    /// Another version of the format, the arithmetic or an architecture that this library does not read: found, allowed.
    Version = 5,
    /// The file is damaged or cut: found, allowed; place is the tensor or the offset, where it is about one.
    Damaged = 6,
    /// The parts of the file do not belong together, or its configuration is not possible: found, allowed; place is the tensor, where it is about one.
    Mismatch = 7,
    /// What the file or the call needs was left out of this library when it was built (a type of weights, of keys and values, a tokenizer, format 1): found is its code.
    NotBuilt = 8,
    /// The arena is too small: found and needed (allowed) bytes.
    ArenaTooSmall = 9,
    /// The memory for keys and values is too small: found and needed (allowed) bytes.
    KvBankTooSmall = 10,
    /// The memory for everything but keys and values is too small: found and needed (allowed) bytes.
    WorkBankTooSmall = 11,
    /// The context asked for is 0 or longer than the model was trained for: found, allowed.
    Context = 12,
    /// The prompt does not fit what is left of the context: found tokens, allowed positions.
    PromptTooLong = 13,
    /// There is nothing to go on from.
    NoPrompt = 14,
    /// A token that the vocabulary does not have: found, allowed.
    Token = 15,
    /// A byte of the text has no token: found the byte, place where in the text.
    NoToken = 16,
    /// The text is too long to be merged in the arena: found and needed (allowed) words.
    ScratchTooSmall = 17,
    /// A logit is not finite, so the weights are damaged: place is the position.
    NonFinite = 18,
    /// This machine's floats do not behave as IEEE 754 says (rounding, subnormals flushed, other routines linked): place is the check, found and allowed are bits.
    Arithmetic = 19,
    /// A setting of the sampler is out of its range: found is its bits.
    Sampling = 20,
    /// The callback did not take the text.
    Output = 21,
    /// The golden vectors of the file do not come out on this machine: place is the position, found and allowed are checksums.
    Golden = 22,
    /// The file has no golden vectors to test with.
    NoGolden = 23,
    /// Another error, which this version of the interface has no code for.
    Other = 24,
    /// Two pieces of memory that must be apart overlap: found is how many bytes they share.
    Overlap = 25,
    /// A stop string is empty or too long, or is no text in UTF-8, or there are too many: found bytes or strings, and how many may be.
    Stop = 26,
}

/// What a function found: a code, and numbers by which the cause is found. Numbers that a code does not speak of are 0.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DmexpError {
    /// What went wrong; `DMEXP_CODE_OK` where nothing did.
    pub code: DmexpCode,
    /// Where.
    pub place: u32,
    /// What is there.
    pub found: u64,
    /// What may be there, or is needed.
    pub allowed: u64,
}

impl DmexpError {
    pub(crate) fn of(code: DmexpCode) -> Self {
        Self { code, place: 0, found: 0, allowed: 0 }
    }

    pub(crate) fn numbers(code: DmexpCode, found: u64, allowed: u64) -> Self {
        Self { code, place: 0, found, allowed }
    }

    pub(crate) fn placed(code: DmexpCode, place: u32, found: u64, allowed: u64) -> Self {
        Self { code, place, found, allowed }
    }
}

impl From<Error> for DmexpError {
    fn from(error: Error) -> Self {
        use DmexpCode as Code;
        match error {
            Error::NotDmexp { .. } => Self::of(Code::NotDmexp),
            Error::Version { found } => Self::numbers(Code::Version, u64::from(found), 2),
            Error::UnknownArchitecture { code } => Self::numbers(Code::Version, u64::from(code), 0),
            Error::OtherArchitecture { found, expected } | Error::Arithmetic { found, expected } => {
                Self::numbers(Code::Version, u64::from(found), u64::from(expected))
            }
            Error::Truncated { needed, found, .. } => Self::numbers(Code::Damaged, found, needed),
            Error::TrailingBytes { expected, found } => Self::numbers(Code::Damaged, found, expected),
            Error::Layout { offset, found, allowed, .. } => {
                Self::placed(Code::Damaged, u32::try_from(offset).unwrap_or(u32::MAX), found, allowed)
            }
            Error::Checksum { tensor, stored, computed, .. } => Self::placed(Code::Damaged, tensor, u64::from(computed), u64::from(stored)),
            Error::Tensor { tensor, found, allowed, .. } => Self::placed(Code::Damaged, tensor, found, allowed),
            Error::NonFinite { tensor, element } | Error::Quantised { tensor, place: element, .. } => {
                Self::placed(Code::Damaged, tensor, element, 0)
            }
            Error::IndexMismatch { offset } | Error::Toml { offset, .. } => Self::numbers(Code::Damaged, offset, 0),
            Error::Config { found, allowed, .. } | Error::Tokenizer { found, allowed, .. } => Self::numbers(Code::Mismatch, found, allowed),
            Error::TensorName { tensor } | Error::Shape { tensor, .. } | Error::DuplicateName { first: tensor, .. } => {
                Self::placed(Code::Mismatch, tensor, 0, 0)
            }
            Error::DTypeNotBuilt { tensor, code } => Self::placed(Code::NotBuilt, tensor, u64::from(code), 0),
            Error::KvNotBuilt { kv } => Self::numbers(Code::NotBuilt, kv as u64, 0),
            Error::TokenizerNotBuilt { kind } => Self::numbers(Code::NotBuilt, kind as u64, 0),
            Error::TomlNotBuilt => Self::numbers(Code::NotBuilt, 1, 2),
            Error::ArenaTooSmall { needed, found } => Self::numbers(Code::ArenaTooSmall, found, needed),
            Error::BankTooSmall { bank: Bank::Kv, needed, found } => Self::numbers(Code::KvBankTooSmall, found, needed),
            Error::BankTooSmall { needed, found, .. } => Self::numbers(Code::WorkBankTooSmall, found, needed),
            Error::TooLargeForTarget { needed, addressable } => Self::numbers(Code::ArenaTooSmall, addressable, needed),
            Error::Context { found, allowed } => Self::numbers(Code::Context, found, allowed),
            Error::PromptTooLong { tokens, room } => Self::numbers(Code::PromptTooLong, tokens, room),
            Error::NoPrompt => Self::of(Code::NoPrompt),
            Error::Token { found, vocab_size } => Self::numbers(Code::Token, u64::from(found), u64::from(vocab_size)),
            Error::NoToken { offset, byte } => Self::placed(Code::NoToken, u32::try_from(offset).unwrap_or(u32::MAX), u64::from(byte), 0),
            Error::ScratchTooSmall { needed, found } => Self::numbers(Code::ScratchTooSmall, found, needed),
            Error::NonFiniteLogits { position } => Self::placed(Code::NonFinite, position, 0, 0),
            Error::ArithmeticSelfCheck { operation, found, expected } => {
                Self::placed(Code::Arithmetic, operation, u64::from(found), u64::from(expected))
            }
            Error::Sampling { found, .. } => Self::numbers(Code::Sampling, u64::from(found), 0),
            Error::Stop { found, allowed, .. } => Self::numbers(Code::Stop, found, allowed),
            Error::Golden { position, stored, computed } => Self::placed(Code::Golden, position, u64::from(computed), u64::from(stored)),
            Error::Output => Self::of(Code::Output),
            _ => Self::of(Code::Other),
        }
    }
}

/// What a code means, in one line that ends with a zero byte and never goes away.
#[unsafe(no_mangle)]
pub extern "C" fn dmexp_error_text(error: DmexpError) -> *const c_char {
    use DmexpCode as Code;
    let text = match error.code {
        Code::Ok => c"nothing went wrong",
        Code::Null => c"a pointer is null",
        Code::Alignment => c"a pointer is not aligned: the address, the alignment",
        Code::NotMade => c"this memory holds no model or session: call dmexp_open or dmexp_session_new first",
        Code::NotDmexp => c"not a .dmexp file: make one with `dmexp export run`",
        Code::Version => c"another version than this library reads: found, allowed",
        Code::Damaged => c"the file is damaged: found, allowed; see `dmexp export verify`",
        Code::Mismatch => c"the parts of the file do not belong together: found, allowed; see `dmexp export verify`",
        Code::NotBuilt => c"this library was built without what the model needs: its code; see the features of dmexp-c",
        Code::ArenaTooSmall => c"the arena is too small: bytes given, needed",
        Code::KvBankTooSmall => c"the memory for keys and values is too small: bytes given, needed",
        Code::WorkBankTooSmall => c"the memory for everything but keys and values is too small: bytes given, needed",
        Code::Context => c"the context is 0 or longer than the model's: asked for, allowed",
        Code::PromptTooLong => c"the prompt does not fit the context: tokens, room",
        Code::NoPrompt => c"there is no prompt and no token to begin with",
        Code::Token => c"the vocabulary has no such token: asked for, size",
        Code::NoToken => c"a byte of the text has no token: the byte",
        Code::ScratchTooSmall => c"the text is too long to be merged in the arena: words there, needed",
        Code::NonFinite => c"a logit is not finite: the weights are damaged",
        Code::Arithmetic => c"this machine's floats are not IEEE 754: bits found, expected; link the compiler's float routines, and let nothing flush subnormals",
        Code::Sampling => c"a setting of the sampler is out of its range: its bits",
        Code::Output => c"the output did not take the text",
        Code::Golden => c"the golden vectors of the file do not come out here: checksum found, expected",
        Code::NoGolden => c"the file has no golden vectors",
        Code::Overlap => c"two pieces of memory overlap: the bytes that they share",
        Code::Stop => c"a stop string is empty, too long or not UTF-8, or there are too many: found, allowed",
        Code::Other => c"an error that this version of the interface has no code for",
    };
    text.as_ptr()
}

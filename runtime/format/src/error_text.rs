//! What errors say: one sentence each, with the place and both sides.

use crate::{Bank, Error, Part, Plane, Rule};
use core::fmt;

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fixed => "the fixed part (magic, version, lengths, checksum)",
            Self::Header => "the TOML header",
            Self::Index => "the index",
            Self::Config => "the configuration record",
            Self::Tokenizer => "the tokenizer record",
            Self::Tensors => "the tensor records",
            Self::Names => "the tensor names",
            Self::Golden => "the golden vectors",
            Self::Padding => "the padding before the payload",
            Self::Payload => "the payload",
            Self::TensorBytes => "the tensor's bytes",
        })
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotZero => "must not be 0",
            Self::Zero => "must be 0",
            Self::TooLarge => "is larger than allowed",
            Self::TooSmall => "is smaller than allowed",
            Self::Equal => "is not the value it must be",
            Self::Multiple => "is not a multiple of what it must be",
            Self::Divides => "does not divide what it must",
            Self::Even => "must be even",
            Self::PowerOfTwo => "must be a power of two",
            Self::Finite => "must be a finite number",
            Self::Positive => "must be more than 0",
            Self::Missing => "is missing",
            Self::Duplicate => "is given twice",
            Self::Unknown => "is not a known value",
            Self::Type => "has the wrong type",
            Self::Utf8 => "is not UTF-8",
            Self::Ascii => "is not printable ASCII",
            Self::Syntax => "is not valid TOML",
            Self::Depth => "is nested too deeply or too large",
            Self::Escape => "has escapes, which a reader without a heap cannot borrow",
            Self::Rank => "must have 1 to 4 axes",
            Self::Length => "has not the bytes that dims and type need",
            Self::DType => "has an element type that is not allowed here",
            Self::Overlap => "overlaps another part or leaves a hole",
            Self::Order => "is not in rising order",
            Self::Range => "lies outside the range allowed",
            Self::Unsupported => "is not supported by this version",
        })
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NotDmexp { first } => write!(f, "not a .dmexp file: it begins with {first:02x?}, not with \"DMEXPRT\""),
            Self::Version { found } => write!(f, "format version {found}; this software reads versions 1 and 2"),
            Self::Truncated { part, needed, found } => {
                write!(f, "the file ends early: {part} ends at byte {needed}, the file has {found} bytes")
            }
            Self::TrailingBytes { expected, found } => write!(f, "the file should end at byte {expected} but has {found} bytes"),
            Self::Layout { part, rule, offset, found, allowed } => {
                write!(f, "{part}: the value {found} at offset {offset} {rule} ({allowed})")
            }
            Self::TomlNotBuilt => {
                f.write_str("a format-1 file: build with the cargo feature `toml` to read it, or export it again as format 2")
            }
            Self::TooLargeForTarget { needed, addressable } => write!(f, "needs {needed} bytes, this target addresses {addressable}"),
            Self::Checksum { part, tensor, stored, computed } => {
                write!(f, "checksum of {part}")?;
                if tensor != u32::MAX {
                    write!(f, " of tensor {tensor}")?;
                }
                write!(f, ": the file says {stored:08x}, the bytes give {computed:08x}: damaged or edited")
            }
            Self::Toml { offset, rule } => write!(f, "the header at byte {offset} {rule}"),
            Self::Config { key, rule, found, allowed: u64::MAX } => write!(f, "{} (see byte {found} of the file) {rule}", key.name()),
            Self::Config { key, rule, found, allowed } => {
                if key.is_float() {
                    write!(f, "{} = {} {rule}", key.name(), f32::from_bits(found as u32))
                } else {
                    write!(f, "{} = {found} {rule} ({allowed})", key.name())
                }
            }
            Self::UnknownArchitecture { code } => write!(f, "architecture {code} is not known to this version"),
            Self::OtherArchitecture { found, expected } => write!(f, "the file's architecture has code {found}, not {expected}"),
            Self::Arithmetic { found, expected } => {
                write!(f, "the file is made for arithmetic {found}, this software computes arithmetic {expected}")
            }
            Self::Tensor { tensor, rule, found, allowed: u64::MAX } => write!(f, "tensor {tensor} (see byte {found} of the file) {rule}"),
            Self::Tensor { tensor, rule, found, allowed } => write!(f, "tensor {tensor}: {found} {rule} ({allowed})"),
            Self::TensorName { tensor } => write!(f, "tensor {tensor} is not the one that the configuration calls for"),
            Self::MissingTensor { wanted } => write!(f, "tensor {wanted} of those that the configuration calls for is missing"),
            Self::Shape { tensor, found, expected } => {
                write!(f, "tensor {tensor} has dims {}, the configuration calls for {}", Sizes(found), Sizes(expected))
            }
            Self::Layer { .. }
            | Self::Node { .. }
            | Self::NodeShape { .. }
            | Self::NonFiniteResult { .. }
            | Self::NoRow { .. }
            | Self::CannotStream { .. } => sequential(self, f),
            Self::DuplicateName { first, second } => write!(f, "tensors {first} and {second} have the same name"),
            Self::Tokenizer { key, rule, found, allowed: u64::MAX } => {
                write!(f, "tokenizer: {key:?} (see byte {found} of the file) {rule}")
            }
            Self::Tokenizer { key, rule, found, allowed } => write!(f, "tokenizer: {key:?} {found} {rule} ({allowed})"),
            Self::DTypeNotBuilt { tensor, code } => match DTypeName(code).get() {
                Some(name) => write!(f, "tensor {tensor} is {name}: build with the cargo feature `{name}`"),
                None => write!(f, "tensor {tensor} has element type {code}"),
            },
            Self::KvNotBuilt { kv } => write!(f, "keys and values as {kv}: build with the cargo feature `kv-{kv}`"),
            Self::TokenizerNotBuilt { kind } => write!(f, "the tokenizer is {}: build with the cargo feature `bpe`", kind.name()),
            Self::NonFinite { tensor, element } => write!(f, "tensor {tensor}: element {element} is not finite"),
            Self::Quantised { tensor, plane, place, found } => quantised(f, tensor, plane, place, found),
            Self::Golden { position, stored, computed } => {
                write!(f, "golden vector: the logits at position {position} should have checksum {stored:08x}, they have {computed:08x}")
            }
            Self::IndexMismatch { offset } => write!(f, "the index is not what the header derives to, from byte {offset} of the index"),
            Self::ArenaTooSmall { needed, found } => write!(f, "the arena needs {needed} bytes, it has {found}"),
            Self::CopiesTooLarge { needed, found } => {
                write!(f, "copies of the tensors chosen need {needed} bytes, the memory for them has {found}")
            }
            Self::Context { found, allowed } => write!(f, "a context of {found} positions; the model allows 1 to {allowed}"),
            Self::ContextFull { context } => write!(f, "all {context} positions of the context are used"),
            Self::PromptTooLong { tokens, room } => write!(f, "the prompt has {tokens} tokens, the context has room for {room}"),
            Self::NoPrompt => f.write_str("nothing to begin with: the prompt is empty and the model has no begin-of-text token"),
            Self::Token { found, vocab_size } => write!(f, "token {found} is not in the vocabulary of {vocab_size}"),
            Self::NoToken { offset, byte } => write!(f, "byte {byte:#04x} at offset {offset} of the text has no token in this vocabulary"),
            Self::BankTooSmall { bank: Bank::Kv, needed, found } => {
                write!(f, "the memory for keys and values needs {needed} bytes, it has {found}")
            }
            Self::BankTooSmall { bank: Bank::Work, needed, found } => {
                write!(f, "the memory for everything but keys and values needs {needed} bytes, it has {found}")
            }
            Self::ScratchTooSmall { needed, found } => write!(f, "the tokenizer needs {needed} words of scratch, it has {found}"),
            Self::NonFiniteLogits { position } => {
                write!(f, "the logits at position {position} are not all finite")
            }
            Self::ArithmeticSelfCheck { operation, found, expected } => write!(
                f,
                "this machine's float arithmetic is not IEEE as set up now (check {operation}: {found:08x}, not {expected:08x}): rounding mode, flush-to-zero or replaced float routines; \
                 set no such mode, and link the compiler's routines or the feature soft-float (those in the ROM of an RP2040 flush subnormals)"
            ),
            Self::Sampling { key, rule, found } => write!(f, "{} = {} {rule} ({})", key.name(), f32::from_bits(found), key.allowed()),
            Self::Stop { rule, found, allowed } => write!(f, "a stop string of {found} bytes {rule} ({allowed})"),
            Self::Output => f.write_str("the output could not be written to"),
            Self::AcceleratorBusy => f.write_str("the accelerator has room for one session, and has gone on to another"),
            Self::Accelerator { code } => write!(f, "the accelerator failed with error {code}"),
        }
    }
}

/// What an error about a quantised tensor says.
fn quantised(f: &mut fmt::Formatter<'_>, tensor: u32, plane: Plane, place: u64, found: u32) -> fmt::Result {
    write!(f, "tensor {tensor}: ")?;
    match plane {
        Plane::Codes => write!(f, "the code of element {place} is {found:#x}, which stands for no value"),
        Plane::Scales => write!(f, "scale {place} is {}; scales are finite and not below 0", f32::from_bits(found)),
        Plane::Multipliers => write!(f, "multiplier {place} is {found}; multipliers are 1 to 255"),
        Plane::Padding => write!(f, "byte {place} is padding, but {found}, not 0"),
    }
}

/// What errors of sequential models say.
fn sequential(error: &Error, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match *error {
        Error::Layer { layer, key, rule, found, allowed } if key.is_float() => {
            write!(f, "layer {layer}: {} = {} {rule} ({allowed})", key.name(), f32::from_bits(found))
        }
        Error::Layer { layer, key, rule, found, allowed } => write!(f, "layer {layer}: {} = {found} {rule} ({allowed})", key.name()),
        Error::Node { node: u32::MAX, key, rule, found, allowed } => write!(f, "the wiring's {}: {found} {rule} ({allowed})", key.name()),
        Error::Node { node, key, rule, found, allowed } => write!(f, "node {node}: {}: {found} {rule} ({allowed})", key.name()),
        Error::NodeShape { node, found, expected } => {
            write!(f, "node {node} has shape {}, from its layer and inputs follows {}", Sizes(found), Sizes(expected))
        }
        Error::NonFiniteResult { output, element } => write!(f, "element {element} of output {output} is not finite"),
        Error::NoRow { layer, element, found, rows } => {
            let last = rows.saturating_sub(1);
            write!(f, "layer {layer}: number {element} is {}, the embedding has rows 0 to {last}", f32::from_bits(found))
        }
        Error::CannotStream { layer: u32::MAX } => {
            f.write_str("cannot be streamed: it has no recurrent layer, so nothing stays from run to run")
        }
        Error::CannotStream { layer } => write!(f, "cannot be streamed: layer {layer} needs other steps of time than those at hand"),
        _ => Ok(()),
    }
}

/// Dims as a list, without the ones that fill up the axes past the last.
struct Sizes([u32; 4]);

impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let used = self.0.iter().rposition(|size| *size != 1).map_or(1, |last| last + 1);
        f.debug_list().entries(self.0.iter().take(used)).finish()
    }
}

struct DTypeName(u8);

impl DTypeName {
    fn get(&self) -> Option<&'static str> {
        crate::DType::from_code(self.0).map(crate::DType::name)
    }
}

impl core::error::Error for Error {}

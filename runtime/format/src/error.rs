//! What can be wrong with a file, a configuration or a request: one flat error for format and runtime.
//!
//! Errors carry where (a byte offset from the file's start, or a tensor's number in the file's order) and both sides (found, allowed). Host tools add the
//! path, the tensor's name and advice.

use crate::arch::sequential::{LayerKey, NodeKey};
use crate::error_keys::{ConfigKey, SamplingKey, TokenizerKey};

/// Why a file, a configuration or a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The bytes do not begin with `DMEXPRT`.
    NotDmexp {
        /// The first bytes, zero where the file is shorter.
        first: [u8; 8],
    },
    /// A format version that this software does not read.
    Version {
        /// The version byte.
        found: u8,
    },
    /// The file ends early.
    Truncated {
        /// What does not fit.
        part: Part,
        /// Where it should end, in bytes from the file's start.
        needed: u64,
        /// The length of the file.
        found: u64,
    },
    /// There are bytes past the end of the payload.
    TrailingBytes {
        /// Where the file should end.
        expected: u64,
        /// The length of the file.
        found: u64,
    },
    /// A part of the file is longer, shorter or elsewhere than it may be.
    Layout {
        /// Which part.
        part: Part,
        /// What is wrong.
        rule: Rule,
        /// Where the value stands, in bytes from the file's start (within the index: from the index's start).
        offset: u64,
        /// The value found.
        found: u64,
        /// The value or limit allowed.
        allowed: u64,
    },
    /// The file is of format 1, whose TOML header this build does not read: the cargo feature `toml` is off.
    TomlNotBuilt,
    /// The file needs more memory than this target can address.
    TooLargeForTarget {
        /// Bytes needed.
        needed: u64,
        /// Bytes this target can address.
        addressable: u64,
    },
    /// A checksum does not match: the file was damaged or edited.
    Checksum {
        /// What the checksum covers.
        part: Part,
        /// The tensor, if it covers one (else `u32::MAX`).
        tensor: u32,
        /// The checksum in the file.
        stored: u32,
        /// The checksum of the bytes.
        computed: u32,
    },
    /// The TOML header cannot be read.
    Toml {
        /// Where, in bytes from the file's start.
        offset: u64,
        /// What is wrong.
        rule: Rule,
    },
    /// A key of the header or of the configuration is wrong.
    Config {
        /// Which key.
        key: ConfigKey,
        /// What is wrong.
        rule: Rule,
        /// The value found (the bit pattern where the key is a float), or the place in a format-1 header, in bytes from the file's start.
        found: u64,
        /// The value or limit allowed; `u64::MAX` where `found` is a place.
        allowed: u64,
    },
    /// The architecture is not known to this software (a code of the index, or `u32::MAX` for a name).
    UnknownArchitecture {
        /// The code in the index.
        code: u32,
    },
    /// The architecture is known, but this call is for another one.
    OtherArchitecture {
        /// The code of the file's architecture.
        found: u32,
        /// The code of the one asked for.
        expected: u32,
    },
    /// The file was made for another arithmetic.
    Arithmetic {
        /// The file's number.
        found: u32,
        /// This software's number.
        expected: u32,
    },
    /// A tensor's record is wrong in itself.
    Tensor {
        /// Its number in the file's order.
        tensor: u32,
        /// What is wrong.
        rule: Rule,
        /// The value found, or the place in a format-1 header, in bytes from the file's start.
        found: u64,
        /// The value or limit allowed; `u64::MAX` where `found` is a place.
        allowed: u64,
    },
    /// A tensor has another name than the configuration calls for at its place: one is missing, not wanted, or out of order.
    TensorName {
        /// Its number in the file's order.
        tensor: u32,
    },
    /// A tensor's dims are not those that the configuration calls for.
    Shape {
        /// Its number in the file's order.
        tensor: u32,
        /// The dims in the file.
        found: [u32; 4],
        /// The dims that the configuration calls for.
        expected: [u32; 4],
    },
    /// A tensor that the configuration calls for is not there.
    MissingTensor {
        /// Its number among those that the configuration calls for.
        wanted: u32,
    },
    /// A layer of a sequential model is wrong, by itself or for the inputs that it is given.
    Layer {
        /// Its number.
        layer: u32,
        /// Which of its fields.
        key: LayerKey,
        /// What is wrong.
        rule: Rule,
        /// The value found (the bit pattern where the field is a float).
        found: u32,
        /// The value or limit allowed.
        allowed: u32,
    },
    /// The wiring of a sequential model is wrong.
    Node {
        /// The node's number; `u32::MAX` where it is about all of them.
        node: u32,
        /// Which part.
        key: NodeKey,
        /// What is wrong.
        rule: Rule,
        /// The value found.
        found: u32,
        /// The value or limit allowed.
        allowed: u32,
    },
    /// A node of a sequential model has not the shape that follows from its layer and its inputs.
    NodeShape {
        /// The node's number.
        node: u32,
        /// The shape in the file.
        found: [u32; 4],
        /// The shape that follows.
        expected: [u32; 4],
    },
    /// Two tensors have one name.
    DuplicateName {
        /// The first.
        first: u32,
        /// The second.
        second: u32,
    },
    /// The tokenizer is wrong.
    Tokenizer {
        /// Which fact.
        key: TokenizerKey,
        /// What is wrong.
        rule: Rule,
        /// The value found.
        found: u64,
        /// The value or limit allowed.
        allowed: u64,
    },
    /// Support for this element type was left out of the build: turn on the cargo feature of its name.
    DTypeNotBuilt {
        /// The tensor that needs it.
        tensor: u32,
        /// The type's code in the index.
        code: u8,
    },
    /// Support for keys and values of this type was left out of the build: turn on the cargo feature `kv-` and its name.
    KvNotBuilt {
        /// The type asked for.
        kv: crate::dtype::KvDType,
    },
    /// Support for this kind of tokenizer was left out of the build.
    TokenizerNotBuilt {
        /// The kind that the file has.
        kind: crate::tokenizer::TokenizerKind,
    },
    /// A weight is NaN or infinite.
    NonFinite {
        /// The tensor.
        tensor: u32,
        /// The element within it.
        element: u64,
    },
    /// A quantised tensor holds a code, a scale or a multiplier that the format does not allow, or a byte of padding that is not 0.
    Quantised {
        /// The tensor.
        tensor: u32,
        /// Which of its parts.
        plane: Plane,
        /// The element (codes), the row (scales), which multiplier, or the byte from the tensor's start (padding).
        place: u64,
        /// What is there: the code or byte; the bit pattern of a scale.
        found: u32,
    },
    /// The golden vectors of the file do not come out.
    Golden {
        /// The position whose logits differ.
        position: u32,
        /// The checksum in the file.
        stored: u32,
        /// The checksum of the logits computed.
        computed: u32,
    },
    /// The index is not what the header derives to.
    IndexMismatch {
        /// The first byte that differs, from the index's start.
        offset: u64,
    },
    /// The caller's memory is too small.
    ArenaTooSmall {
        /// Bytes needed.
        needed: u64,
        /// Bytes given.
        found: u64,
    },
    /// One of the two pieces of memory of a session is too small.
    BankTooSmall {
        /// Which.
        bank: Bank,
        /// Bytes needed.
        needed: u64,
        /// Bytes given.
        found: u64,
    },
    /// The memory given for copies of tensors is too small.
    CopiesTooLarge {
        /// Bytes needed: a word for each tensor of the model, and the tensors chosen.
        needed: u64,
        /// Bytes given.
        found: u64,
    },
    /// The context asked for is 0 or more than the model was trained for.
    Context {
        /// Positions asked for.
        found: u64,
        /// The most the model allows.
        allowed: u64,
    },
    /// Every position of the context is used.
    ContextFull {
        /// Positions in the context.
        context: u32,
    },
    /// A prompt does not fit what is left of the context.
    PromptTooLong {
        /// Tokens in the prompt.
        tokens: u64,
        /// Positions left.
        room: u64,
    },
    /// There is no prompt and no token to begin with.
    NoPrompt,
    /// A token id that the vocabulary does not have.
    Token {
        /// The id.
        found: u32,
        /// The size of the vocabulary.
        vocab_size: u32,
    },
    /// The text has a byte that this tokenizer has no token for.
    NoToken {
        /// Where in the text.
        offset: u64,
        /// The byte.
        byte: u8,
    },
    /// The caller's room for tokens or scratch is too small.
    ScratchTooSmall {
        /// Words of 32 bits needed.
        needed: u64,
        /// Words of 32 bits given.
        found: u64,
    },
    /// A logit is NaN or infinite: the weights are damaged, keys or values are larger than the type they are kept as holds, or the arithmetic is not IEEE.
    NonFiniteLogits {
        /// The position of the step.
        position: u32,
    },
    /// An element of a result of a sequential model is NaN or infinite: an input is not finite or too large, or the weights are.
    NonFiniteResult {
        /// Which of the model's outputs.
        output: u32,
        /// The element within it.
        element: u32,
    },
    /// A sequential model that was to go on from its last state at each run cannot.
    CannotStream {
        /// The layer that needs other steps of time than those at hand; `u32::MAX` where no layer keeps a state.
        layer: u32,
    },
    /// A number that an embedding has no row for.
    NoRow {
        /// The layer's number.
        layer: u32,
        /// Which of the numbers that it was given.
        element: u32,
        /// The number's bit pattern (an `f32`).
        found: u32,
        /// How many rows there are.
        rows: u32,
    },
    /// This machine's float arithmetic does not give the canonical results: rounding mode, flush-to-zero, or a replaced float routine.
    ArithmeticSelfCheck {
        /// Which of the known operations differed.
        operation: u32,
        /// The bits it gave.
        found: u32,
        /// The bits it should give.
        expected: u32,
    },
    /// A sampling setting is out of its range.
    Sampling {
        /// Which setting.
        key: SamplingKey,
        /// What is wrong.
        rule: Rule,
        /// The bit pattern of the value (an `f32`).
        found: u32,
    },
    /// A stop string cannot be used.
    Stop {
        /// What is wrong.
        rule: Rule,
        /// Its length in bytes.
        found: u64,
        /// The length allowed.
        allowed: u64,
    },
    /// The output refused to be written to.
    Output,
    /// What computes the network in place of the processor has gone on to another session.
    AcceleratorBusy,
    /// What computes the network in place of the processor failed.
    Accelerator {
        /// Why, by the number that its driver has for it.
        code: u32,
    },
}

/// A part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Part {
    /// Magic, version, lengths and checksum.
    Fixed,
    /// The TOML header.
    Header,
    /// The binary index.
    Index,
    /// The configuration record of the index.
    Config,
    /// The tokenizer record of the index.
    Tokenizer,
    /// The tensor records of the index.
    Tensors,
    /// The tensor names of the index.
    Names,
    /// The golden vectors of the index.
    Golden,
    /// The zero bytes between index and payload.
    Padding,
    /// The tensors' bytes.
    Payload,
    /// The bytes of one tensor.
    TensorBytes,
}

/// A piece of a session's memory where that is given in two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Bank {
    /// Keys and values.
    Kv,
    /// Everything else: activations, logits, the tokens so far.
    Work,
}

/// A part of a quantised tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Plane {
    /// The integers.
    Codes,
    /// The `f32` scales.
    Scales,
    /// The multipliers of groups.
    Multipliers,
    /// The zero bytes after rows of codes and between the parts.
    Padding,
}

/// What is wrong with a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rule {
    /// It must not be 0.
    NotZero,
    /// It must be 0.
    Zero,
    /// It is larger than allowed.
    TooLarge,
    /// It is smaller than allowed.
    TooSmall,
    /// It must equal the allowed value.
    Equal,
    /// It must be a multiple of the allowed value.
    Multiple,
    /// It must divide the allowed value.
    Divides,
    /// It must be even.
    Even,
    /// It must be a power of two.
    PowerOfTwo,
    /// It must be a finite number.
    Finite,
    /// It must be more than 0.
    Positive,
    /// It must be given.
    Missing,
    /// It is given twice.
    Duplicate,
    /// It is not one of the known values.
    Unknown,
    /// It has the wrong type.
    Type,
    /// It is not UTF-8.
    Utf8,
    /// It is not printable ASCII.
    Ascii,
    /// It is not TOML.
    Syntax,
    /// It is nested too deeply or too large for a header.
    Depth,
    /// A string with escapes cannot be borrowed from the header.
    Escape,
    /// It must be 1 to 4 axes.
    Rank,
    /// The bytes are not as many as dims and type need.
    Length,
    /// The element type is not allowed here.
    DType,
    /// It overlaps another part, or leaves a hole.
    Overlap,
    /// It must rise.
    Order,
    /// It must lie within the range allowed.
    Range,
    /// Not supported by this version.
    Unsupported,
}

//! What a pickle holds, as plain data: values in a table, numbered, so that shared and recursive ones cost nothing and nothing is walked or freed recursively.

use super::globals::Global;

/// The number of a value.
pub(super) type Id = u32;

/// One value.
#[derive(Clone, Debug)]
pub(super) enum Value<'p> {
    None,
    Bool(bool),
    Integer(i64),
    /// An integer past 64 bits: its bytes, little-endian, two's complement.
    Long(&'p [u8]),
    Float(f64),
    Text(&'p str),
    Bytes,
    /// Also a set.
    List(Vec<Id>),
    Tuple(Vec<Id>),
    Dict(Vec<(Id, Id)>),
    Global(Global),
    Storage(Storage<'p>),
    Tensor(Tensor),
    /// Something that is allowed to be there and of no use here.
    Other,
}

/// Numbers that tensors share: where they lie is the container's business.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Storage<'p> {
    pub(super) element: Element,
    /// What the container calls it.
    pub(super) key: &'p str,
    /// How many elements.
    pub(super) count: u64,
}

/// A view into a storage.
#[derive(Clone, Debug)]
pub(super) struct Tensor {
    pub(super) storage: Id,
    /// The first element.
    pub(super) offset: u64,
    pub(super) sizes: Vec<u64>,
    /// In elements, one an axis.
    pub(super) strides: Vec<u64>,
}

/// The type of a storage's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Element {
    F32,
    F16,
    Bf16,
    /// A type that weights are not read from: its name, and bytes an element.
    Other(&'static str, u64),
}

impl Element {
    /// Bytes an element.
    pub(super) fn size(self) -> u64 {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
            Self::Other(_, size) => size,
        }
    }
}

impl Value<'_> {
    /// What it is, for errors.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::None => "None",
            Self::Bool(_) => "a truth value",
            Self::Integer(_) | Self::Long(_) => "an integer",
            Self::Float(_) => "a float",
            Self::Text(_) => "a string",
            Self::Bytes => "bytes",
            Self::List(_) => "a list",
            Self::Tuple(_) => "a tuple",
            Self::Dict(_) => "a dict",
            Self::Global(_) => "a class or function",
            Self::Storage(_) => "a storage",
            Self::Tensor(_) => "a tensor",
            Self::Other => "an object",
        }
    }
}

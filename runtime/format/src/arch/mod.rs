//! The architectures: for each its configuration, the checks on it, and the tensors it wants, in the order in which files list them.

pub mod dormouse;
pub mod llama;
pub mod llama_tensors;
pub mod sequential;

/// The kinds of model a file can hold. The numbers are those of the format-2 index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[repr(u8)]
pub enum Architecture {
    /// Llama-family decoders: [`llama`].
    Llama = 1,
    /// The dormouse byte model: [`dormouse`].
    Dormouse = 2,
    /// Small networks of layers, in sequence or as a graph: [`sequential`].
    Sequential = 3,
}

impl Architecture {
    /// The architecture with this number in the index.
    pub const fn from_code(code: u32) -> Option<Self> {
        match code {
            1 => Some(Self::Llama),
            2 => Some(Self::Dormouse),
            3 => Some(Self::Sequential),
            _ => None,
        }
    }

    /// The number in the index.
    pub const fn code(self) -> u32 {
        self as u32
    }

    /// The name in headers.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Llama => "llama",
            Self::Dormouse => "dormouse",
            Self::Sequential => "sequential",
        }
    }
}

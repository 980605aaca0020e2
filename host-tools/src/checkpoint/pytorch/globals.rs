//! The closed list of names that a pickle may mention, and what calling them means here. Nothing is imported or run: a name that is not in this list refuses the file.

use super::value::Element;

/// An allowed name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Global {
    /// A dict that keeps its order, or one with a default: called with nothing, or with pairs.
    Dict,
    /// Called with a factory: a dict.
    DefaultDict,
    /// list, tuple, set, frozenset: called with the elements.
    List,
    Tuple,
    /// Called with a storage, offset, sizes and strides.
    RebuildTensor,
    /// Called with a tensor.
    RebuildParameter,
    /// Names the type of a storage.
    Storage(Element),
    /// Scalars, element types, devices: whatever they are called with is of no use here.
    Inert,
}

/// What `module.name` means; `None` for all that is not allowed.
pub(super) fn find(module: &str, name: &str) -> Option<Global> {
    use Global::{DefaultDict, Dict, Inert, List, RebuildParameter, RebuildTensor, Storage, Tuple};
    Some(match (module, name) {
        ("collections", "OrderedDict") | ("builtins" | "__builtin__", "dict") => Dict,
        ("collections", "defaultdict") => DefaultDict,
        ("builtins" | "__builtin__", "list" | "set" | "frozenset") => List,
        ("builtins" | "__builtin__", "tuple") | ("torch", "Size") => Tuple,
        ("torch._utils", "_rebuild_tensor" | "_rebuild_tensor_v2") => RebuildTensor,
        ("torch._utils", "_rebuild_parameter") => RebuildParameter,
        ("torch" | "torch.storage", storage) if storage.ends_with("Storage") => Storage(element(storage)?),
        ("builtins" | "__builtin__", "int" | "float" | "bool" | "str" | "bytes" | "complex" | "long")
        | (
            "torch",
            "device" | "float32" | "float16" | "bfloat16" | "float64" | "int64" | "int32" | "int16" | "int8" | "uint8" | "bool" | "strided",
        ) => Inert,
        _ => return None,
    })
}

fn element(storage: &str) -> Option<Element> {
    Some(match storage {
        "FloatStorage" => Element::F32,
        "HalfStorage" => Element::F16,
        "BFloat16Storage" => Element::Bf16,
        "DoubleStorage" => Element::Other("float64", 8),
        "LongStorage" => Element::Other("int64", 8),
        "IntStorage" => Element::Other("int32", 4),
        "ShortStorage" => Element::Other("int16", 2),
        "CharStorage" => Element::Other("int8", 1),
        "ByteStorage" => Element::Other("uint8", 1),
        "BoolStorage" => Element::Other("bool", 1),
        _ => return None,
    })
}

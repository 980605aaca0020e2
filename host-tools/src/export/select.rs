//! Which tensor is stored as what: `--dtype`, what it implies for each tensor, and the exceptions of `--tensor 'output.*=q8:64'`.

use super::plan::Planned;
use super::{Options, parse_dtype};
use crate::error::{Class, Error, Result};
use dmexp_format::DType;
use dmexp_format::arch::llama::{LlamaConfig, TensorKind};
use dmexp_format::host::name_matches;
use dmexp_format::planes::GROUP_MULTIPLE;
use std::str::FromStr;

/// Tensors by a pattern of their names, and how they are stored: `PATTERN=TYPE` or `PATTERN=TYPE:GROUP`. In a pattern `*` stands for any characters, also none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Select {
    /// The pattern.
    pub pattern: String,
    /// How they are stored.
    pub dtype: DType,
    /// Elements that share a multiplier; `None` is what holds for the whole export.
    pub group: Option<u32>,
}

impl FromStr for Select {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = || {
            Error::new(Class::Request, format!("{text:?} names no tensors and type"))
                .advise("write PATTERN=TYPE or PATTERN=TYPE:GROUP, for example 'output.*=q8' or 'layers.*.feed_forward.*=q4:64'")
        };
        let (pattern, rest) = text.rsplit_once('=').ok_or_else(wrong)?;
        let (dtype, group) = match rest.split_once(':') {
            Some((dtype, group)) => (dtype, Some(group)),
            None => (rest, None),
        };
        if pattern.is_empty() {
            return Err(wrong());
        }
        let dtype = parse_dtype(dtype)?;
        let group = match group {
            Some(group) => Some(group.parse().map_err(|_| not_a_group(group))?),
            None => None,
        };
        if let Some(group) = group {
            check_group(group)?;
            if !matches!(dtype, DType::Q8 | DType::Q4) {
                return Err(
                    Error::new(Class::Request, format!("{text:?} gives a group, but {dtype} has none")).advise("leave the group out")
                );
            }
        }
        Ok(Self { pattern: pattern.to_owned(), dtype, group })
    }
}

/// Refuses a group that no tensor can have.
pub(super) fn check_group(group: u32) -> Result<()> {
    if group.is_multiple_of(GROUP_MULTIPLE) { Ok(()) } else { Err(not_a_group(&group.to_string())) }
}

fn not_a_group(group: &str) -> Error {
    Error::new(Class::Request, format!("groups of {group} elements are not possible"))
        .advise(format!("use a multiple of {GROUP_MULTIPLE}, or 0 for one group a row; 32 is usual"))
}

/// Gives every matrix its type and group. Vectors stay f32.
pub(super) fn apply(options: &Options, config: &LlamaConfig, tensors: &mut [Planned<'_>]) -> Result<()> {
    let mut used = vec![Used::No; options.select.len()];
    for (number, planned) in tensors.iter_mut().enumerate() {
        let Some(kind) = config.tensor(number as u32).map(|spec| spec.kind) else { break };
        let spec = &mut planned.spec;
        let mut chosen = (default_dtype(options.dtype, kind), options.group);
        for (select, used) in options.select.iter().zip(&mut used) {
            if !name_matches(&select.pattern, &spec.name) {
                continue;
            }
            if kind.is_matrix() {
                *used = Used::Matrix;
                chosen = (select.dtype, select.group.unwrap_or(options.group));
            } else if *used == Used::No {
                *used = Used::Vector;
            }
        }
        if kind.is_matrix() {
            let (dtype, group) = chosen;
            let grouped = matches!(dtype, DType::Q8 | DType::Q4) && group < spec.dims.cols();
            (spec.dtype, spec.group) = (dtype, if grouped { group } else { 0 });
            spec.planes(number as u32).map_err(|_| {
                let what = format!("tensor {} has rows of {}; {dtype} takes at most 65536", spec.name, spec.dims.cols());
                Error::new(Class::Unrepresentable, what).advise("store it as bf16")
            })?;
        }
    }
    for (select, used) in options.select.iter().zip(used) {
        let what = match used {
            Used::Matrix => continue,
            Used::Vector => format!("the tensors {:?} are vectors, which stay f32", select.pattern),
            Used::No => format!("no tensor of this model is called {:?}", select.pattern),
        };
        let names: Vec<_> = tensors.iter().filter(|tensor| tensor.spec.dims.rank() > 1).map(|tensor| tensor.spec.name.as_str()).collect();
        let shown = names.iter().take(8).copied().collect::<Vec<_>>().join(", ");
        let more = if names.len() > 8 { format!(" and {} more", names.len() - 8) } else { String::new() };
        return Err(Error::new(Class::Request, what).advise(format!("its matrices are {shown}{more}")));
    }
    Ok(())
}

#[derive(Clone, Copy, PartialEq)]
enum Used {
    No,
    Vector,
    Matrix,
}

/// Four bits are for the layers: the embedding and the classifier, which every token passes through once, stay in eight.
fn default_dtype(dtype: DType, kind: TensorKind) -> DType {
    match (dtype, kind) {
        (DType::Q4, TensorKind::TokEmbeddings | TensorKind::Output) => DType::Q8,
        _ => dtype,
    }
}

#[cfg(test)]
mod tests {
    use super::super::DTYPES;
    use super::*;

    #[test]
    fn selections_are_read_strictly() {
        let read = |text: &str| text.parse::<Select>();
        assert_eq!(read("output.*=q8").unwrap(), Select { pattern: "output.*".into(), dtype: DType::Q8, group: None });
        assert_eq!(read("*=q4:64").unwrap(), Select { pattern: "*".into(), dtype: DType::Q4, group: Some(64) });
        assert_eq!(read("*=q8:0").unwrap().group, Some(0));
        assert_eq!(read("a=b=Q8").unwrap().pattern, "a=b");
        for (wrong, says) in [
            ("output", "PATTERN=TYPE"),
            ("=q8", "PATTERN=TYPE"),
            ("a=q5", DTYPES),
            ("a=q8:", "multiple of 8"),
            ("a=q8:-8", "multiple of 8"),
            ("a=q8:12", "multiple of 8"),
            ("a=f16:32", "f16 has none"),
            ("a=u8", DTYPES),
        ] {
            let error = read(wrong).unwrap_err().to_string();
            assert!(error.contains(says), "{wrong}: {error}");
        }
    }
}

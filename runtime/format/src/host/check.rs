//! The rules that a header must keep, read or to be written, so that what is written can be opened and what is read means one thing.

use super::header::{Config, Golden, Header, LlamaSettings, TensorEntry, TensorSpec, Tokenizer};
use super::sequential::SequentialSettings;
use super::{HeaderError, NAME_LIMIT, TENSOR_LIMIT};
use crate::arch::llama::{LlamaConfig, TensorKind};
use crate::arch::sequential::Op;
use crate::planes::{COLUMN_LIMIT, GROUP_MULTIPLE};
use crate::tokenizer::{NO_TOKEN, TokenizerKind};
use crate::{ARITHMETIC, DType, Dims, Error};

impl Header {
    /// Checks everything that the header alone shows, in this order: arithmetic, configuration, tokenizer facts, number of tensors, each tensor (name, name not given twice, place, figures), the
    /// architecture's list (names, dims, types), the tokenizer's arrays, golden vectors, checksum of the source.
    ///
    /// # Errors
    /// [`HeaderError`] with the first rule broken.
    pub fn check(&self) -> Result<(), HeaderError> {
        if self.arithmetic != ARITHMETIC {
            return Err(HeaderError::wrong("arithmetic", self.arithmetic, ARITHMETIC));
        }
        match &self.config {
            Config::Llama(settings) => self.check_llama(settings)?,
            Config::Dormouse(config) => self.check_dormouse(config)?,
            Config::Sequential(settings) => self.check_sequential(settings)?,
        }
        if let Some(sum) = &self.provenance.sha256
            && !(sum.len() == 64 && sum.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')))
        {
            return Err(HeaderError::wrong("provenance.sha256", format!("{sum:?}"), "64 lower-case hexadecimal digits"));
        }
        Ok(())
    }

    /// A sequential model has no tokenizer, and its golden vectors are tensors.
    fn check_sequential(&self, settings: &SequentialSettings) -> Result<(), HeaderError> {
        settings.check()?;
        if self.tokenizer != Tokenizer::NONE {
            let allowed = "none: a sequential model takes numbers, not text";
            return Err(HeaderError::wrong("tokenizer.kind", self.tokenizer.kind.name(), allowed));
        }
        let wanted = settings.tensors().map_err(|(layer, fault)| HeaderError::from(fault.of_layer(layer)))?;
        let mut wanted: Vec<_> = wanted
            .iter()
            .map(|tensor| {
                let op = settings.layers.get(tensor.layer as usize).map_or(Op::Identity, |named| named.layer.op);
                let dtypes = tensor.role.dtypes(op);
                Wanted { name: tensor.to_string(), dims: tensor.dims, dtypes, trainable: tensor.role.is_trainable() }
            })
            .collect();
        if let Some(first) = self.tensors.get(wanted.len()).filter(|entry| entry.spec.name.starts_with("golden.")) {
            let samples = first.spec.dims.padded()[0];
            wanted.extend(settings.golden_tensors(samples).map(|(name, dims)| Wanted {
                name,
                dims,
                dtypes: &[DType::F32],
                trainable: false,
            }));
        }
        check_entries(&self.tensors)?;
        check_list(&self.tensors, &wanted)?;
        if self.golden.is_empty() {
            Ok(())
        } else {
            Err(HeaderError::wrong("golden", "golden vectors of tokens", "tensors, for this architecture"))
        }
    }

    fn check_llama(&self, settings: &LlamaSettings) -> Result<(), HeaderError> {
        let model = &settings.model;
        model.validate()?;
        if let Some(theta) = settings.rope_theta
            && !(theta.is_finite() && theta > 0.0)
        {
            return Err(HeaderError::wrong("config.rope_theta", theta, "a finite number above 0"));
        }
        if self.tokenizer.eos.len() > 8 {
            return Err(HeaderError::wrong("tokenizer.eos", format!("{} tokens", self.tokenizer.eos.len()), "at most 8 tokens"));
        }
        check_special(&self.tokenizer.special, model.vocab_size)?;
        let first_array = model.weight_tensors() + 1;
        self.tokenizer.facts(first_array).check(model.vocab_size)?;
        let wanted = wanted(model, self.tokenizer.kind, self.tokenizer.n_pieces, &self.tensors);
        check_entries(&self.tensors)?;
        check_list(&self.tensors, &wanted)?;
        for (number, golden) in self.golden.iter().enumerate() {
            check_golden(&format!("golden[{number}]"), golden, (model.vocab_size, model.max_seq_len))?;
        }
        Ok(())
    }
}

/// What a tensor must be: name, dims, the types allowed, whether it is trained.
struct Wanted {
    name: String,
    dims: Dims,
    dtypes: &'static [DType],
    trainable: bool,
}

fn wanted(model: &LlamaConfig, kind: TokenizerKind, n_pieces: u32, tensors: &[TensorEntry]) -> Vec<Wanted> {
    const MATRIX: &[DType] = &[DType::F32, DType::F16, DType::Bf16, DType::Q8, DType::Q4, DType::T2];
    let mut list: Vec<_> = (0..=model.weight_tensors())
        .map_while(|number| model.tensor(number))
        .map(|spec| Wanted {
            name: spec.to_string(),
            dims: spec.dims,
            dtypes: if spec.kind.is_matrix() { MATRIX } else { &[DType::F32] },
            trainable: spec.kind != TensorKind::RopeInvFreq,
        })
        .collect();
    if let Some(arrays) = kind.arrays() {
        // How many bytes the pieces have is for the offsets to say, so any length is allowed here; and any number of merges.
        let any =
            |place: usize, dims: fn(Dims) -> Dims| tensors.get(list.len() + place).map_or(Dims::vector(1), |entry| dims(entry.spec.dims));
        let values = match kind {
            TokenizerKind::ByteLevelBpe => any(2, |dims| Dims::matrix(dims.padded()[0], 4)),
            _ => Dims::vector(n_pieces),
        };
        let pieces = any(0, |dims| Dims::vector(dims.cols()));
        let dims = [pieces, Dims::vector(n_pieces.saturating_add(1)), values, Dims::vector(n_pieces)];
        list.extend(arrays.iter().zip(dims).map(|((name, dtype), dims)| Wanted {
            name: (*name).into(),
            dims,
            dtypes: std::slice::from_ref(dtype),
            trainable: false,
        }));
    }
    list
}

/// The special tokens are in the vocabulary, rising, each once.
fn check_special(special: &[u32], vocab_size: u32) -> Result<(), HeaderError> {
    let mut next = 0;
    for token in special {
        if *token < next || *token >= vocab_size {
            return Err(HeaderError::wrong("tokenizer.special", token, format!("rising tokens below {vocab_size}, each once")));
        }
        next = token + 1;
    }
    Ok(())
}

/// Checks what every tensor's entry must be, whatever the architecture.
pub(super) fn check_entries(tensors: &[TensorEntry]) -> Result<(), HeaderError> {
    if tensors.is_empty() || tensors.len() > TENSOR_LIMIT {
        return Err(HeaderError::wrong("tensors", format!("{} tensors", tensors.len()), format!("1 to {TENSOR_LIMIT} tensors")));
    }
    let mut names = std::collections::HashMap::with_capacity(tensors.len());
    let mut end = 0u64;
    for (number, entry) in tensors.iter().enumerate() {
        check_name(&format!("tensors[{number}].name"), &entry.spec.name)?;
        if let Some(first) = names.insert(entry.spec.name.as_str(), number as u32) {
            return Err(Error::DuplicateName { first, second: number as u32 }.into());
        }
        let key = |key| format!("tensors[{number}].{key} ({})", entry.spec.name);
        check_group(&key("group"), number as u32, &entry.spec)?;
        // The alignment itself is in the file's fixed part, at most 4096; the index is checked against it when the file is opened.
        let latest = if number == 0 { 0 } else { end.saturating_add(4095) };
        if entry.offset < end || entry.offset > latest || !entry.offset.is_multiple_of(16) {
            return Err(HeaderError::wrong(key("offset"), entry.offset, format!("the next multiple of the file's alignment from {end}")));
        }
        end = entry.offset.saturating_add(entry.bytes());
        match entry.figures {
            None if entry.spec.dtype.is_weight() => return Err(HeaderError::wrong(key("max_abs"), "nothing", "a number")),
            None => {}
            Some(figures) => {
                let count = entry.spec.dims.count();
                if figures.flushed > count {
                    return Err(HeaderError::wrong(key("flushed"), figures.flushed, format!("at most the {count} elements")));
                }
                if figures.subnormal > count {
                    return Err(HeaderError::wrong(key("subnormal"), figures.subnormal, format!("at most the {count} elements")));
                }
                if !(figures.max_abs.is_finite() && figures.max_abs >= 0.0) {
                    return Err(HeaderError::wrong(key("max_abs"), figures.max_abs, "a finite number, at least 0"));
                }
                if !(figures.min_nonzero_abs >= 0.0 && figures.min_nonzero_abs <= figures.max_abs) {
                    return Err(HeaderError::wrong(key("min_nonzero_abs"), figures.min_nonzero_abs, format!("0 to {}", figures.max_abs)));
                }
            }
        }
    }
    Ok(())
}

/// Refuses a group that the element type and the length of a row do not allow.
pub(super) fn check_group(key: &str, number: u32, spec: &TensorSpec) -> Result<(), HeaderError> {
    match spec.planes(number) {
        Ok(_) => Ok(()),
        Err(_) if spec.dtype.is_quantised() && spec.dims.cols() > COLUMN_LIMIT => Err(HeaderError::wrong(
            key,
            format!("rows of {}", spec.dims.cols()),
            format!("rows of at most {COLUMN_LIMIT} in {}", spec.dtype),
        )),
        Err(_) if matches!(spec.dtype, DType::Q8 | DType::Q4) => {
            let allowed = format!("0, or a multiple of {GROUP_MULTIPLE} up to {}, the length of a row", spec.dims.cols());
            Err(HeaderError::wrong(key, spec.group, allowed))
        }
        Err(_) => Err(HeaderError::wrong(key, spec.group, "0")),
    }
}

/// Refuses a name that the index could not hold.
pub(super) fn check_name(key: &str, name: &str) -> Result<(), HeaderError> {
    if name.is_empty() || name.len() > NAME_LIMIT || !name.bytes().all(|byte| (0x20..0x7f).contains(&byte)) {
        return Err(HeaderError::wrong(key, format!("{name:?}"), format!("1 to {NAME_LIMIT} bytes of printable ASCII")));
    }
    Ok(())
}

fn check_list(tensors: &[TensorEntry], wanted: &[Wanted]) -> Result<(), HeaderError> {
    for (number, wants) in wanted.iter().enumerate() {
        let key = |key| format!("tensors[{number}].{key} ({})", wants.name);
        let Some(TensorEntry { spec: TensorSpec { name, dtype, dims, trainable, .. }, .. }) = tensors.get(number) else {
            return Err(HeaderError::wrong(key("name"), "nothing", format!("{:?}, which the configuration calls for", wants.name)));
        };
        if *name != wants.name {
            return Err(HeaderError::wrong(
                key("name"),
                format!("{name:?}"),
                format!("{:?}, which the configuration calls for here", wants.name),
            ));
        }
        if *dims != wants.dims {
            let allowed = format!("{:?}, which the configuration calls for", wants.dims.as_slice());
            return Err(HeaderError::wrong(key("dims"), format!("{:?}", dims.as_slice()), allowed));
        }
        if !wants.dtypes.contains(dtype) {
            let names: Vec<_> = wants.dtypes.iter().map(|dtype| dtype.name()).collect();
            return Err(HeaderError::wrong(key("dtype"), dtype, names.join(" or ")));
        }
        if *trainable != wants.trainable {
            let kind = |trainable| if trainable { "trainable" } else { "non_trainable" };
            return Err(HeaderError::wrong(key("kind"), kind(*trainable), kind(wants.trainable)));
        }
    }
    match tensors.get(wanted.len()) {
        None => Ok(()),
        Some(extra) => {
            let allowed = format!("{} tensors, which the configuration and the tokenizer call for", wanted.len());
            Err(HeaderError::wrong(format!("tensors[{}].name", wanted.len()), format!("{:?}", extra.spec.name), allowed))
        }
    }
}

/// `vocab_size` and `max_seq_len` are the model's.
pub(super) fn check_golden(path: &str, golden: &Golden, (vocab_size, max_seq_len): (u32, u32)) -> Result<(), HeaderError> {
    let n = golden.tokens.len() as u64;
    if n == 0 || n > u64::from(max_seq_len) {
        return Err(HeaderError::wrong(format!("{path}.tokens"), format!("{n} tokens"), format!("1 to {max_seq_len} tokens")));
    }
    let vocabulary = format!("tokens below {vocab_size}");
    if let Some(token) = golden.tokens.iter().find(|token| **token >= vocab_size) {
        return Err(HeaderError::wrong(format!("{path}.tokens"), token, vocabulary));
    }
    if golden.positions.is_empty() {
        return Err(HeaderError::wrong(format!("{path}.positions"), "none", "at least one"));
    }
    let mut next = 0;
    for (number, at) in golden.positions.iter().enumerate() {
        if u64::from(at.position) >= n || at.position < next {
            let allowed = format!("rising positions below {n}");
            return Err(HeaderError::wrong(format!("{path}.positions[{number}].position"), at.position, allowed));
        }
        next = at.position + 1;
        let known = vocab_size.min(5) as usize;
        let (best, absent) = at.top5.split_at(known);
        if best.iter().any(|token| *token >= vocab_size) || absent.iter().any(|token| *token != NO_TOKEN) {
            let found = format!("{:?}", at.top5);
            return Err(HeaderError::wrong(format!("{path}.positions[{number}].top5"), found, format!("{known} {vocabulary}")));
        }
    }
    Ok(())
}

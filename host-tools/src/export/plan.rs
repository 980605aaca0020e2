//! What will be written: every tensor with its name, type and dims, and the facts around them. Nothing is read but sizes; values are judged when they are narrowed.

use super::{Format, Options, dormouse, select, sequential};
use crate::checkpoint::{ArrayView, Checkpoint, Config, DormouseSource, LlamaSource, SequentialSource, TokenizerSource};
use crate::error::{Error, Result};
use dmexp_format::DType;
use dmexp_format::Dims;
use dmexp_format::host::{self, TensorSpec};
use dmexp_format::tokenizer::{NO_TOKEN, TokenizerFacts};

/// Below as many parameters q4 comes with a warning: a model of 260,000 loses a hundred times as much by it as one of 135 million (docs/adr/0003-small-integers.md).
const Q4_PARAMS: u64 = 20_000_000;

/// What [`super::run`] will write.
#[derive(Debug)]
pub struct Plan<'c> {
    pub(super) source: Source<'c>,
    pub(super) tokenizer: host::Tokenizer,
    pub(super) tensors: Vec<Planned<'c>>,
    pub(super) warnings: Vec<String>,
}

/// What the model computes, as the checkpoint has it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Source<'c> {
    Llama(&'c LlamaSource),
    Dormouse(&'c DormouseSource),
    Sequential(&'c SequentialSource),
}

/// A tensor to be written, and where its values come from.
#[derive(Debug)]
pub(super) struct Planned<'c> {
    pub(super) spec: TensorSpec,
    pub(super) values: Values<'c>,
}

#[derive(Debug)]
pub(super) enum Values<'c> {
    /// An array of the source, to be narrowed.
    Array(ArrayView<'c>),
    /// The bytes themselves.
    Bytes(Vec<u8>),
}

impl Plan<'_> {
    /// The tensors in the file's order.
    pub fn tensors(&self) -> impl ExactSizeIterator<Item = &TensorSpec> {
        self.tensors.iter().map(|planned| &planned.spec)
    }

    /// How many numbers the weights are.
    pub fn num_params(&self) -> u64 {
        match self.source {
            Source::Llama(source) => source.config.num_params(),
            Source::Dormouse(_) => self.elements(),
            Source::Sequential(source) => {
                let wanted = source.settings.tensors().unwrap_or_default();
                wanted.iter().filter(|wanted| !wanted.role.is_computed()).map(|wanted| wanted.dims.count()).sum()
            }
        }
    }

    /// What a user should know, one sentence each.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Elements of all tensors.
    pub(super) fn elements(&self) -> u64 {
        self.tensors().map(|spec| spec.dims.count()).sum()
    }
}

/// Plans the export of `checkpoint`.
///
/// # Errors
/// [`Class::Request`](crate::error::Class::Request) for options that contradict each other; [`Class::Mismatch`](crate::error::Class::Mismatch) where the tokenizer has not as many pieces as the
/// model has tokens, or the arrays are not those that the configuration calls for.
pub fn plan<'c>(checkpoint: &'c Checkpoint, options: &Options) -> Result<Plan<'c>> {
    // A model of dormouse looks at the options itself: it has one format alone.
    if !matches!(checkpoint.config, Config::Dormouse(_)) {
        options.check()?;
    }
    let source = match &checkpoint.config {
        Config::Llama(source) => source,
        Config::Dormouse(source) => return dormouse::plan(checkpoint, source, options),
        Config::Sequential(source) => return sequential::plan(checkpoint, source, options),
    };
    let in_file = |error: Error| error.in_file(checkpoint.path());
    source.config.validate().map_err(|error| in_file(Error::damaged(error.to_string())))?;
    let mut warnings = checkpoint.notes.clone();
    if let (None, Some(refused)) = (&checkpoint.tokenizer, &checkpoint.refused_tokenizer) {
        let advice = "--tokenizer names another one, and --tokenizer none leaves it out";
        return Err(Error::new(refused.class(), refused.to_string()).advise(advice));
    }
    let tokenizer = match &checkpoint.tokenizer {
        Some(tokenizer) => {
            warnings.extend(tokenizer.notes.iter().cloned());
            facts(tokenizer, source.config.vocab_size).map_err(in_file)?
        }
        None => host::Tokenizer::NONE,
    };
    let mut tensors = weights(checkpoint, source, options).map_err(in_file)?;
    if options.format == Format::V2 {
        select::apply(options, &source.config, &mut tensors)?;
    }
    warnings.extend(too_small(&tensors, source.config.num_params()));
    match (options.format, &checkpoint.tokenizer) {
        (Format::V2, source_tokenizer) => {
            tensors.push(frequencies(source).map_err(in_file)?);
            match source_tokenizer {
                Some(tokenizer) => tensors.extend(arrays(tokenizer)),
                None => warnings.push("no tokenizer: the file takes and gives token ids, not text (--tokenizer names one)".to_owned()),
            }
        }
        (Format::V1, Some(_)) => {
            warnings.push("format 1 carries no tokenizer, only its special tokens: name it again when the file is run".to_owned());
        }
        (Format::V1, None) => warnings.push("format 1 carries no tokenizer: name it when the file is run".to_owned()),
    }
    Ok(Plan { source: Source::Llama(source), tokenizer, tensors, warnings })
}

/// The weights: in format 2 vectors stay f32.
fn weights<'c>(checkpoint: &'c Checkpoint, source: &LlamaSource, options: &Options) -> Result<Vec<Planned<'c>>> {
    let mut tensors = Vec::new();
    let mut arrays = checkpoint.arrays();
    for number in 0..source.config.weight_tensors() {
        let Some(wanted) = source.config.tensor(number) else { break };
        let Some(array) = arrays.next() else {
            return Err(Error::mismatch(format!("has no array {wanted}, which its configuration calls for")));
        };
        if array.name() != wanted.to_string() || array.dims() != wanted.dims {
            let (found, expected) = (array.dims(), wanted.dims);
            let what =
                format!("has {} {:?} where its configuration calls for {wanted} {:?}", array.name(), found.as_slice(), expected.as_slice());
            return Err(Error::mismatch(what));
        }
        let narrow = options.format == Format::V1 || wanted.kind.is_matrix();
        let spec = TensorSpec {
            name: wanted.to_string(),
            dtype: if narrow { options.dtype } else { DType::F32 },
            dims: wanted.dims,
            group: 0,
            trainable: true,
            transposed: false,
        };
        tensors.push(Planned { spec, values: Values::Array(array) });
    }
    match arrays.next() {
        Some(extra) => Err(Error::mismatch(format!("has an array {}, which its configuration does not call for", extra.name()))),
        None => Ok(tensors),
    }
}

/// A warning where a model is so small that four bits change what it says.
fn too_small(tensors: &[Planned<'_>], num_params: u64) -> Option<String> {
    let in_q4 = tensors.iter().any(|tensor| tensor.spec.dtype == DType::Q4);
    (in_q4 && num_params < Q4_PARAMS).then(|| {
        format!(
            "q4 is coarse for a model of {num_params} parameters (small models have no redundancy to spare): compare its text with q8's, and measure it with --quality TEXTFILE"
        )
    })
}

fn frequencies(source: &LlamaSource) -> Result<Planned<'static>> {
    let half = source.config.head_dim / 2;
    if source.inv_freq.len() as u64 != u64::from(half) {
        return Err(Error::mismatch(format!("has {} rotation frequencies; half a head are {half}", source.inv_freq.len())));
    }
    let spec = TensorSpec {
        name: dmexp_format::arch::llama::TensorKind::RopeInvFreq.name().to_owned(),
        dtype: DType::F32,
        dims: Dims::vector(half),
        group: 0,
        trainable: false,
        transposed: false,
    };
    Ok(Planned { spec, values: Values::Bytes(source.inv_freq.iter().flat_map(|f| f.to_le_bytes()).collect()) })
}

fn arrays(tokenizer: &TokenizerSource) -> Vec<Planned<'static>> {
    let specs = tokenizer.facts.kind.arrays().into_iter().flatten();
    let planned = tokenizer.arrays().into_iter().zip(specs).map(|(bytes, (name, dtype))| {
        let count = (bytes.len() as u64 / dtype.size()) as u32;
        // Left, right, rank, result.
        let dims = if *name == "tokenizer.merges" { Dims::matrix(count / 4, 4) } else { Dims::vector(count) };
        Planned {
            spec: TensorSpec { name: (*name).to_owned(), dtype: *dtype, dims, group: 0, trainable: false, transposed: false },
            values: Values::Bytes(bytes),
        }
    });
    planned.collect()
}

/// The header's view of a tokenizer, once it is known to be the model's.
fn facts(tokenizer: &TokenizerSource, vocab_size: u32) -> Result<host::Tokenizer> {
    let TokenizerFacts {
        kind,
        n_pieces,
        add_bos,
        dummy_prefix,
        bos,
        pad,
        unk,
        byte_base,
        max_piece_len,
        pre_tokenizer,
        ignore_merges,
        normalizer,
        eos,
        ..
    } = tokenizer.facts;
    if n_pieces != vocab_size {
        let name = if tokenizer.file_name.is_empty() { "the tokenizer" } else { &tokenizer.file_name };
        let what = format!("has {vocab_size} tokens, but {name} has {n_pieces} pieces");
        return Err(Error::mismatch(what).advise("name the tokenizer that the model was trained with"));
    }
    let token = |id: u32| (id != NO_TOKEN).then_some(id);
    Ok(host::Tokenizer {
        kind,
        n_pieces,
        add_bos,
        dummy_prefix,
        bos: token(bos),
        eos: eos.into_iter().filter_map(token).collect(),
        pad: token(pad),
        unk: token(unk),
        byte_base: token(byte_base),
        max_piece_len,
        special: tokenizer.special.clone(),
        pre_tokenizer,
        ignore_merges,
        normalizer,
        chat_template: tokenizer.chat_template.clone(),
    })
}

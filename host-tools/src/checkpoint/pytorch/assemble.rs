//! Arrays and arguments become a checkpoint of the Llama family: sizes compared with every array, the classifier tied where it is the embedding, nothing missing and nothing left over.

use super::args::Args;
use crate::checkpoint::array::{Array, ArrayView};
use crate::checkpoint::{Checkpoint, Config, Fixed, LlamaSource, Mapping, Provenance, rope};
use crate::error::{Error, Result};
use dmexp_format::arch::llama::{LlamaConfig, RopeLayout, TensorKind};
use std::collections::{BTreeMap, HashMap};

/// Values that both forms fix.
const ALWAYS: [Fixed; 4] = [
    Fixed { key: "rope_layout", value: "interleaved", why: WHY },
    Fixed { key: "attention_factor", value: "1", why: WHY },
    Fixed { key: "qkv_bias", value: "false", why: WHY },
    Fixed { key: "sliding_window", value: "0", why: WHY },
];
const NORM_EPS: Fixed = Fixed { key: "norm_eps", value: "0.00001", why: "not stated; the default of llama2.c and of Meta" };
const ROPE_THETA: Fixed = Fixed { key: "rope_theta", value: "10000", why: "not stated; the default of llama2.c and of Meta" };
const WHY: &str = "fixed by the architecture";

/// Elements compared at a time.
const CHUNK: usize = 1 << 16;

/// What the arguments say.
#[derive(Debug)]
pub(super) struct Stated {
    dim: u32,
    n_layers: u32,
    n_heads: u32,
    n_kv_heads: u32,
    /// Where it is stated.
    vocab_size: Option<u32>,
    max_seq_len: u32,
    norm_eps: f32,
    rope_theta: f64,
    /// Where it is stated, or follows from what is.
    hidden_dim: Option<u32>,
    fixed: Vec<Fixed>,
}

impl Stated {
    /// Takes the keys that `model_args` and `params.json` share; `max_seq_len` is what the caller found or chose.
    ///
    /// # Errors
    /// [`Class::Mismatch`](crate::error::Class::Mismatch) with key, value and what is allowed; [`Class::NotAModel`](crate::error::Class::NotAModel) for a key that is not known.
    pub(super) fn take(mut args: Args, vocab_size: Option<u32>, max_seq_len: u32) -> Result<Self> {
        let mut fixed = Vec::new();
        let dim = args.required("dim")?;
        let n_layers = args.required("n_layers")?;
        let n_heads = args.required("n_heads")?;
        let n_kv_heads = args.size("n_kv_heads")?.unwrap_or(n_heads);
        let norm_eps = args.positive("norm_eps")?.unwrap_or_else(|| {
            fixed.push(NORM_EPS);
            1e-5
        });
        let rope_theta = args.positive("rope_theta")?.unwrap_or_else(|| {
            fixed.push(ROPE_THETA);
            10_000.0
        });
        let multiple_of = args.size("multiple_of")?;
        let multiplier = args.positive("ffn_dim_multiplier")?;
        let hidden_dim = args.size("hidden_dim")?.or_else(|| hidden_dim(dim, multiplier, multiple_of?));
        args.refuse_rest()?;
        if !dim.is_multiple_of(n_heads) {
            return Err(Error::mismatch(format!("dim {dim} is not a multiple of n_heads {n_heads}")));
        }
        fixed.extend(ALWAYS);
        Ok(Self { dim, n_layers, n_heads, n_kv_heads, vocab_size, max_seq_len, norm_eps: norm_eps as f32, rope_theta, hidden_dim, fixed })
    }

    /// Width of the residual stream.
    pub(super) fn dim(&self) -> u32 {
        self.dim
    }

    /// Notes a value that the source does not state.
    pub(super) fn note(&mut self, fixed: Fixed) {
        self.fixed.push(fixed);
    }

    fn config(&self, arrays: &HashMap<String, Array>) -> Result<LlamaConfig> {
        let rows = |name: &str| {
            arrays.get(name).map(|array| array.dims.padded()[0]).ok_or_else(|| Error::mismatch(format!("has no tensor {name}")))
        };
        let compared = |name: &str, key: &str, stated: Option<u32>| {
            let found = rows(name)?;
            match stated {
                Some(stated) if stated != found => {
                    Err(Error::mismatch(format!("{key} is {stated} by the arguments, but {name} has {found} rows")))
                }
                _ => Ok(found),
            }
        };
        let config = LlamaConfig {
            dim: self.dim,
            hidden_dim: compared("layers.0.feed_forward.w1.weight", "hidden_dim", self.hidden_dim)?,
            n_layers: self.n_layers,
            n_heads: self.n_heads,
            n_kv_heads: self.n_kv_heads,
            head_dim: self.dim / self.n_heads,
            vocab_size: compared("tok_embeddings.weight", "vocab_size", self.vocab_size)?,
            max_seq_len: self.max_seq_len,
            norm_eps: self.norm_eps,
            rope_layout: RopeLayout::Interleaved,
            attention_factor: 1.0,
            tied_embeddings: false,
            qkv_bias: false,
            sliding_window: 0,
        };
        config.validate().map_err(|error| Error::mismatch(error.to_string()))?;
        Ok(config)
    }
}

/// The width of the feed-forward layers as llama2.c and Meta derive it: two thirds of four times `dim`, times the multiplier, rounded up.
fn hidden_dim(dim: u32, multiplier: Option<f64>, multiple_of: u32) -> Option<u32> {
    let mut hidden = u64::from(dim) * 8 / 3;
    if let Some(multiplier) = multiplier {
        hidden = (multiplier * hidden as f64) as u64;
    }
    u32::try_from(hidden.checked_next_multiple_of(u64::from(multiple_of))?).ok()
}

/// Makes the checkpoint of `files` and the arrays in them.
///
/// # Errors
/// [`Class::Mismatch`](crate::error::Class::Mismatch) for a tensor that is missing, of other dims or not known, with both sides.
pub(super) fn assemble(files: Vec<Mapping>, arrays: Vec<Array>, stated: Stated, importer: &'static str) -> Result<Checkpoint> {
    let mut arrays: HashMap<String, Array> = arrays.into_iter().map(|array| (array.name.clone(), array)).collect();
    let mut config = stated.config(&arrays)?;
    let inv_freq = rope::inv_freq(stated.rope_theta, config.head_dim);
    check_rotation(&mut arrays, &files, &config, &inv_freq, stated.rope_theta)?;
    let mut ordered = Vec::new();
    for number in 0..config.weight_tensors() {
        let Some(wanted) = config.tensor(number) else { break };
        let name = wanted.to_string();
        let array = arrays.remove(&name).ok_or_else(|| Error::mismatch(format!("has no tensor {name}")))?;
        if array.dims != wanted.dims {
            let (found, expected) = (array.dims, wanted.dims);
            return Err(Error::mismatch(format!(
                "has {name} {:?} where its arguments call for {:?}",
                found.as_slice(),
                expected.as_slice()
            )));
        }
        ordered.push(array);
    }
    if let Some(extra) = arrays.keys().min() {
        return Err(Error::mismatch(format!("has a tensor {extra}, which the model does not have")));
    }
    let embeddings = config.tensor_number(TensorKind::TokEmbeddings, 0) as usize;
    if let (Some(embeddings), Some(output)) = (ordered.get(embeddings), ordered.last())
        && equal(embeddings, output, &files)?
    {
        config.tied_embeddings = true;
        ordered.pop();
    }
    let source_bytes = files.iter().map(|file| file.bytes().len() as u64).sum();
    let file_name = files.first().map(Mapping::file_name).unwrap_or_default();
    let provenance = Provenance { file_name, importer, source_bytes, licence: None };
    let source = LlamaSource { config, rope_theta: stated.rope_theta, rope_scaling: BTreeMap::new(), inv_freq, fixed: stated.fixed };
    Checkpoint::new(files, ordered, Config::Llama(source), None, provenance)
}

/// Whether both arrays hold the same bits.
pub(super) fn equal(a: &Array, b: &Array, files: &[Mapping]) -> Result<bool> {
    if a.dims != b.dims || a.clone().named("") == b.clone().named("") {
        return Ok(a.dims == b.dims);
    }
    let b = ArrayView::new(b, files);
    let mut other = vec![0.0; CHUNK];
    let mut same = true;
    ArrayView::new(a, files).for_each_chunk(CHUNK, |start, values| {
        if same {
            let n = b.read(start, &mut other[..values.len()])?;
            same = values.iter().zip(&other[..n]).all(|(a, b)| a.to_bits() == b.to_bits());
        }
        Ok::<(), Error>(())
    })?;
    Ok(same)
}

/// Older files carry tables of the rotation, or its frequencies. They are not read, but where they say another rotation than the arguments the model would run and be wrong.
fn check_rotation(
    arrays: &mut HashMap<String, Array>,
    files: &[Mapping],
    config: &LlamaConfig,
    inv_freq: &[f32],
    theta: f64,
) -> Result<()> {
    let frequencies = || inv_freq.iter().copied();
    for (name, expected, is_table) in [
        ("rope.freqs", frequencies().collect::<Vec<_>>(), false),
        ("freqs_cos", frequencies().map(libm::cosf).collect(), true),
        ("freqs_sin", frequencies().map(libm::sinf).collect(), true),
    ] {
        let Some(array) = arrays.remove(name) else { continue };
        let half = u64::from(config.head_dim / 2);
        // Of a table the row of position 1, whose angles are the frequencies themselves.
        let (start, fits) = if is_table { (half, array.dims.rank() == 2 && array.dims.rows() >= 2) } else { (0, array.dims.rank() == 1) };
        if !fits || u64::from(array.dims.cols()) != half {
            return Err(Error::mismatch(format!("has {name} {:?}; half a head are {half}", array.dims.as_slice())));
        }
        let mut found = vec![0.0; inv_freq.len()];
        ArrayView::new(&array, files).read(start, &mut found)?;
        for (pair, (found, expected)) in found.iter().zip(expected).enumerate() {
            // As far apart as bf16 can put them.
            if (found - expected).abs() > 0.01 * expected.abs().max(if is_table { 0.1 } else { 0.0 }) || found.is_nan() {
                let what = format!("{name} says {found} for pair {pair}; a rope theta of {theta} gives {expected}");
                return Err(Error::mismatch(what).advise("the arguments do not state the rotation that the model was trained with"));
            }
        }
    }
    Ok(())
}

//! llama2.c's checkpoint of version 0: seven numbers, then f32 arrays, each kind for all layers before the next kind, and the tables of cosines and sines, which nobody reads any more.

use super::{Destination, Report, Watch, cannot, check_rotation, source};
use crate::checkpoint::{Checkpoint, Encoding, LlamaSource};
use crate::error::{Error, Result};
use crate::target::Target;
use dmexp_format::arch::llama::{RopeLayout, TensorKind};
use std::path::Path;

const FORMAT: Destination = Destination::Llama2cV0;
/// What run.c and every reader of version 0 take for granted.
const THETA: f64 = 10_000.0;
const NORM_EPS: f32 = 1e-5;
/// Elements written at a time.
const CHUNK: usize = 1 << 16;

/// Kinds before the tables; true for those that every layer has.
const ORDER: [(TensorKind, bool); 11] = [
    (TensorKind::TokEmbeddings, false),
    (TensorKind::AttentionNorm, true),
    (TensorKind::Wq, true),
    (TensorKind::Wk, true),
    (TensorKind::Wv, true),
    (TensorKind::Wo, true),
    (TensorKind::FfnNorm, true),
    (TensorKind::W1, true),
    (TensorKind::W2, true),
    (TensorKind::W3, true),
    (TensorKind::Norm, false),
];

pub(super) fn write(path: &Path, out: &Path, watch: &mut Watch<'_>) -> Result<Report> {
    let checkpoint = Checkpoint::of_dmexp(path, RopeLayout::Interleaved)?;
    let source = source(&checkpoint)?;
    let header = header(source).map_err(|error| error.in_file(path))?;
    let target = Target::new(out, [path])?;
    let mut bytes = 0;
    target.write(|out| {
        let mut put = |piece: &[u8]| {
            bytes += piece.len() as u64;
            out.write_all(piece).map_err(|error| target.failed(error))
        };
        put(&header)?;
        for (kind, in_layers) in ORDER {
            for layer in 0..if in_layers { source.config.n_layers } else { 1 } {
                array(&checkpoint, source, kind, layer, watch, &mut put)?;
            }
        }
        put(&tables(source))?;
        if !source.config.tied_embeddings {
            array(&checkpoint, source, TensorKind::Output, 0, watch, &mut put)?;
        }
        checkpoint.unchanged()
    })?;
    let mut notes = Vec::new();
    if checkpoint.arrays().any(|array| !matches!(array.encoding(), Some(Encoding::F32 { .. }))) {
        notes.push("16-bit weights were widened to f32, which changes none of them".to_owned());
    }
    Ok(Report { out: out.to_path_buf(), format: FORMAT, bytes, tensors: checkpoint.arrays().count() as u64, notes })
}

/// The seven numbers, once it is known that they say all there is to say.
fn header(source: &LlamaSource) -> Result<Vec<u8>> {
    let config = &source.config;
    check_rotation(source, THETA, FORMAT)?;
    if config.norm_eps != NORM_EPS {
        return Err(cannot(FORMAT, &format!("has a norm_eps of {}, not {NORM_EPS}", config.norm_eps)));
    }
    if config.qkv_bias {
        return Err(cannot(FORMAT, "has biases of q, k and v"));
    }
    if config.sliding_window != 0 {
        return Err(cannot(FORMAT, &format!("has a sliding window of {}", config.sliding_window)));
    }
    if config.q_dim() != u64::from(config.dim) {
        let what = format!("has {} heads of {}, which are not its dim of {}", config.n_heads, config.head_dim, config.dim);
        return Err(cannot(FORMAT, &what));
    }
    let vocab_size = if config.tied_embeddings { i64::from(config.vocab_size) } else { -i64::from(config.vocab_size) };
    let sizes = [config.dim, config.hidden_dim, config.n_layers, config.n_heads, config.n_kv_heads].map(i64::from);
    let numbers = sizes.into_iter().chain([vocab_size, i64::from(config.max_seq_len)]);
    // No size is past 2^24.
    Ok(numbers.flat_map(|number| (number as i32).to_le_bytes()).collect())
}

fn array(
    checkpoint: &Checkpoint,
    source: &LlamaSource,
    kind: TensorKind,
    layer: u32,
    watch: &mut Watch<'_>,
    put: &mut impl FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let number = source.config.tensor_number(kind, layer);
    let array = checkpoint.arrays().nth(number as usize).ok_or_else(|| Error::mismatch(format!("has no tensor {}", kind.name())))?;
    let mut bytes = Vec::new();
    array.for_each_chunk(CHUNK, |_, values| {
        bytes.clear();
        bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
        put(&bytes)?;
        watch.add(values.len() as u64)
    })
}

/// Cosines, then sines, of every position and pair.
fn tables(source: &LlamaSource) -> Vec<u8> {
    let angles =
        || (0..source.config.max_seq_len).flat_map(|position| source.inv_freq.iter().map(move |frequency| position as f32 * frequency));
    angles().map(libm::cosf).chain(angles().map(libm::sinf)).flat_map(f32::to_le_bytes).collect()
}

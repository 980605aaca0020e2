//! Where the arrays of a llama2.c checkpoint lie, by version; sizes in checked 64-bit arithmetic before anything is allocated.

use super::header::{Header, PADDED_LEN, V0_LEN};
use crate::checkpoint::Encoding;
use crate::checkpoint::array::Array;
use dmexp_format::arch::llama::{LlamaConfig, TensorKind};

/// What follows what in the file.
#[derive(Clone, Copy)]
enum Part {
    /// An array outside the layers.
    Once(TensorKind),
    /// An array of every layer.
    Layers(TensorKind),
    /// The tables of cosines and sines, which version 0 has and nobody needs.
    Tables,
}

const V0: [Part; 13] = [
    Part::Once(TensorKind::TokEmbeddings),
    Part::Layers(TensorKind::AttentionNorm),
    Part::Layers(TensorKind::Wq),
    Part::Layers(TensorKind::Wk),
    Part::Layers(TensorKind::Wv),
    Part::Layers(TensorKind::Wo),
    Part::Layers(TensorKind::FfnNorm),
    Part::Layers(TensorKind::W1),
    Part::Layers(TensorKind::W2),
    Part::Layers(TensorKind::W3),
    Part::Once(TensorKind::Norm),
    Part::Tables,
    Part::Once(TensorKind::Output),
];
const PADDED: [Part; 12] = [
    Part::Layers(TensorKind::AttentionNorm),
    Part::Layers(TensorKind::FfnNorm),
    Part::Once(TensorKind::Norm),
    Part::Once(TensorKind::TokEmbeddings),
    Part::Layers(TensorKind::Wq),
    Part::Layers(TensorKind::Wk),
    Part::Layers(TensorKind::Wv),
    Part::Layers(TensorKind::Wo),
    Part::Layers(TensorKind::W1),
    Part::Layers(TensorKind::W2),
    Part::Layers(TensorKind::W3),
    Part::Once(TensorKind::Output),
];

/// Why a header gives no layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Some offset is past 2^64.
    TooLarge,
    /// The group size does not divide the elements of this kind of array.
    Group(TensorKind, u64),
}

/// How long the file must be, with or without the tables of cosines and sines (which only version 0 can have).
pub(crate) fn file_len(header: &Header, tables: bool) -> Result<u64, Fault> {
    walk(header, tables, |_, _, _| ())
}

/// Bytes of the two tables together.
pub(crate) fn tables_len(config: &LlamaConfig) -> u64 {
    4 * u64::from(config.max_seq_len) * u64::from(config.head_dim)
}

/// The arrays in the order of [`LlamaConfig::tensor`], and where the tables begin if there are any. Called once the file is known to be as long as [`file_len`] says.
pub(crate) fn arrays(header: &Header, tables: bool) -> Result<(Vec<Array>, Option<u64>), Fault> {
    let config = &header.config;
    let mut arrays = Vec::with_capacity(config.weight_tensors() as usize);
    let mut tables_at = None;
    walk(header, tables, |part, layer, offset| {
        let kind = match part {
            Part::Tables => {
                tables_at = Some(offset);
                return;
            }
            Part::Once(kind) | Part::Layers(kind) => kind,
        };
        let number = config.tensor_number(kind, layer);
        if let Some(spec) = config.tensor(number) {
            let encoding = if quantised(header, kind) {
                Encoding::Q80 { codes: offset, scales: offset + spec.dims.count(), group: header.group }
            } else {
                Encoding::F32 { offset }
            };
            arrays.push((number, Array::whole(spec.to_string(), spec.dims, 0, encoding)));
        }
    })?;
    arrays.sort_by_key(|(number, _)| *number);
    Ok((arrays.into_iter().map(|(_, array)| array).collect(), tables_at))
}

fn quantised(header: &Header, kind: TensorKind) -> bool {
    header.version == 2 && kind.is_matrix()
}

/// Calls `each` with every part, its layer and its offset in the file's order, and returns where the file ends.
fn walk(header: &Header, tables: bool, mut each: impl FnMut(Part, u32, u64)) -> Result<u64, Fault> {
    let config = &header.config;
    let (mut offset, parts): (u64, &[Part]) = if header.version == 0 { (V0_LEN, &V0) } else { (PADDED_LEN, &PADDED) };
    for part in parts {
        let (bytes, layers) = match *part {
            Part::Tables if tables => (tables_len(config), 1),
            Part::Tables => continue,
            Part::Once(TensorKind::Output) if config.tied_embeddings => continue,
            Part::Once(kind) => (array_len(header, kind)?, 1),
            Part::Layers(kind) => (array_len(header, kind)?, config.n_layers),
        };
        for layer in 0..layers {
            each(*part, layer, offset);
            offset = offset.checked_add(bytes).ok_or(Fault::TooLarge)?;
        }
    }
    Ok(offset)
}

fn array_len(header: &Header, kind: TensorKind) -> Result<u64, Fault> {
    let count = header.config.dims(kind).count();
    if !quantised(header, kind) {
        return count.checked_mul(4).ok_or(Fault::TooLarge);
    }
    match (count.checked_div(u64::from(header.group)), count.checked_rem(u64::from(header.group))) {
        (Some(groups), Some(0)) => groups.checked_mul(4).and_then(|scales| scales.checked_add(count)).ok_or(Fault::TooLarge),
        _ => Err(Fault::Group(kind, count)),
    }
}

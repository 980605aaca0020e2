//! The positions of a Llama-family model: the embedding, each layer, the last norm and the classifier.

use super::roster::{Member, Position, Roster};
use dmexp_format::arch::llama::LlamaConfig;

/// The positions of a model of this configuration. A layer's type has all that its arrays' shapes do not tell: heads, and how rotated pairs lie.
pub(crate) fn llama_roster(config: &LlamaConfig) -> Roster {
    let LlamaConfig { n_heads, n_kv_heads, head_dim, rope_layout, dim, .. } = *config;
    let layer_type = format!("LlamaLayer({n_heads} heads, {n_kv_heads} key/value heads of {head_dim}, {} pairs)", rope_layout.name());
    let mut positions: Vec<Position> = Vec::new();
    for spec in (0..config.weight_tensors()).map_while(|number| config.tensor(number)) {
        let name = spec.to_string();
        let (path, member, type_name) = if let Some(layer) = spec.layer {
            (format!("layers.{layer}"), spec.kind.name().to_owned(), layer_type.clone())
        } else {
            let (path, member) = name.split_once('.').unwrap_or((&name, ""));
            (path.to_owned(), member.to_owned(), path.to_owned())
        };
        let shape: Vec<u64> = spec.dims.as_slice().iter().map(|size| u64::from(*size)).collect();
        let member = Member { name: member, trainable: true, count: spec.dims.count(), shape };
        if let Some(position) = positions.last_mut().filter(|last| last.path == path) {
            position.arrays.push(member);
        } else {
            let build = spec.layer.map(|_| vec![vec![None, Some(u64::from(dim))]]);
            positions.push(Position { path, type_name, build, arrays: vec![member], sublayers: Vec::new() });
        }
    }
    Roster { positions }
}

//! llama2.c's v0 checkpoint, written and read back. Called by the trainer and the sampler.

use crate::shape::Shape;

/// The file: seven numbers, the parameters in the order of the layout, and the two rotation tables.
pub fn to_bytes(shape: &Shape, flat: &[f32]) -> Vec<u8> {
    let header = [shape.dim, shape.hidden, shape.layers, shape.heads, shape.kv_heads, shape.vocab, shape.seq];
    let mut out: Vec<u8> = header.iter().flat_map(|&n| (n as i32).to_le_bytes()).collect();
    let (cos, sin) = shape.rotations();
    out.extend(flat.iter().chain(&cos).chain(&sin).flat_map(|x| x.to_le_bytes()));
    out
}

/// Shape and parameters of a file that `to_bytes` wrote; `None` when it is not one.
pub fn from_bytes(bytes: &[u8]) -> Option<(Shape, Vec<f32>)> {
    let (words, []) = bytes.as_chunks::<4>() else { return None };
    let (header, body) = words.split_first_chunk::<7>()?;
    let [dim, hidden, layers, heads, kv_heads, vocab, seq] = header.map(|n| u32::from_le_bytes(n) as usize);
    let shape = Shape { dim, hidden, layers, heads, kv_heads, vocab, seq };
    if heads == 0 || kv_heads == 0 || header.iter().any(|n| u32::from_le_bytes(*n) > 65_536) {
        return None;
    }
    let parameters = shape.parameters();
    (body.len() == parameters + seq * shape.head_dim())
        .then(|| (shape, body[..parameters].iter().map(|&x| f32::from_le_bytes(x)).collect()))
}

#[cfg(test)]
mod tests {
    use super::{from_bytes, to_bytes};
    use crate::recipe::{STORY, TINY};
    use crate::shape::Shape;

    #[test]
    fn the_file_has_the_size_that_the_format_says_and_reads_back() {
        for shape in [STORY.shape, TINY.shape] {
            let Shape { dim, hidden, layers, vocab, seq, .. } = shape;
            let kv = shape.kv_dim();
            let layer = 2 * dim + 2 * dim * dim + 2 * dim * kv + 3 * dim * hidden;
            let floats = vocab * dim + layers * layer + dim + seq * shape.head_dim();
            let flat: Vec<f32> = (0..shape.parameters()).map(|i| i as f32).collect();
            let bytes = to_bytes(&shape, &flat);
            assert_eq!(bytes.len(), 28 + 4 * floats);
            assert_eq!(from_bytes(&bytes), Some((shape, flat)));
            assert_eq!(from_bytes(&bytes[..bytes.len() - 4]), None);
        }
    }

    #[test]
    fn tensors_lie_where_the_format_says() {
        let shape = TINY.shape;
        let layout = shape.layout();
        let (dim, layers) = (shape.dim, shape.layers);
        assert_eq!(layout.layers[0].att_norm.start, shape.vocab * dim);
        assert_eq!(layout.layers[0].wq.start, shape.vocab * dim + layers * dim);
        assert_eq!(layout.layers[1].wq.start, layout.layers[0].wq.end);
        assert_eq!(layout.layers[0].wk.start, layout.layers[layers - 1].wq.end);
        assert_eq!(layout.layers[0].ffn_norm.start, layout.layers[layers - 1].wo.end);
        assert_eq!(layout.layers[0].w3.start, layout.layers[layers - 1].w2.end);
        assert_eq!(layout.final_norm.start, layout.layers[layers - 1].w3.end);
        // Position 0 is not rotated, and the cosines come first.
        let bytes = to_bytes(&shape, &vec![0.0; shape.parameters()]);
        let cos = 28 + 4 * shape.parameters();
        assert_eq!(bytes[cos..cos + 4], 1.0_f32.to_le_bytes());
        let sin = cos + 2 * shape.seq * shape.head_dim();
        assert_eq!(bytes[sin..sin + 4], 0.0_f32.to_le_bytes());
    }
}

//! The shape of a model and where each tensor lies in the one flat array of its parameters.
//! Used by everything that touches weights; the order of the array is that of the checkpoint file.

use std::ops::Range;

/// The sizes of a Llama model, as the checkpoint header names them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Width of the residual stream.
    pub dim: usize,
    /// Width of the feed-forward layer.
    pub hidden: usize,
    /// Number of layers.
    pub layers: usize,
    /// Number of query heads.
    pub heads: usize,
    /// Number of key and value heads.
    pub kv_heads: usize,
    /// Number of token ids.
    pub vocab: usize,
    /// Longest context in tokens.
    pub seq: usize,
}

/// The tensors of one layer, as ranges of the flat array. Matrices are row-major, `(out, in)`.
#[derive(Debug, Clone)]
pub struct Layer {
    /// Norm before attention, (dim).
    pub att_norm: Range<usize>,
    /// Queries, (dim, dim).
    pub wq: Range<usize>,
    /// Keys, (`kv_dim`, dim).
    pub wk: Range<usize>,
    /// Values, (`kv_dim`, dim).
    pub wv: Range<usize>,
    /// Attention output, (dim, dim).
    pub wo: Range<usize>,
    /// Norm before the feed-forward layer, (dim).
    pub ffn_norm: Range<usize>,
    /// Gate, (hidden, dim).
    pub w1: Range<usize>,
    /// Down, (dim, hidden).
    pub w2: Range<usize>,
    /// Up, (hidden, dim).
    pub w3: Range<usize>,
}

/// All tensors, as ranges of the flat array.
#[derive(Debug, Clone)]
pub struct Layout {
    /// Token embedding and classifier, (vocab, dim).
    pub embedding: Range<usize>,
    /// One entry a layer.
    pub layers: Vec<Layer>,
    /// Last norm, (dim).
    pub final_norm: Range<usize>,
}

impl Shape {
    /// Width of a head.
    pub fn head_dim(&self) -> usize {
        self.dim / self.heads
    }

    /// Width of the keys and values of one position in one layer.
    pub fn kv_dim(&self) -> usize {
        self.head_dim() * self.kv_heads
    }

    /// Number of trained parameters; the classifier is the embedding and counts once.
    pub fn parameters(&self) -> usize {
        self.layout().final_norm.end
    }

    /// Where each tensor lies: each kind for all layers before the next kind, as the v0 checkpoint has them.
    pub fn layout(&self) -> Layout {
        let mut at = 0;
        let mut take = |len: usize| {
            at += len;
            at - len..at
        };
        let (dim, kv, hidden) = (self.dim, self.kv_dim(), self.hidden);
        let embedding = take(self.vocab * dim);
        let sizes = [dim, dim * dim, kv * dim, kv * dim, dim * dim, dim, hidden * dim, dim * hidden, hidden * dim];
        let kinds: Vec<Vec<Range<usize>>> = sizes.iter().map(|&size| (0..self.layers).map(|_| take(size)).collect()).collect();
        let layers = (0..self.layers)
            .map(|l| Layer {
                att_norm: kinds[0][l].clone(),
                wq: kinds[1][l].clone(),
                wk: kinds[2][l].clone(),
                wv: kinds[3][l].clone(),
                wo: kinds[4][l].clone(),
                ffn_norm: kinds[5][l].clone(),
                w1: kinds[6][l].clone(),
                w2: kinds[7][l].clone(),
                w3: kinds[8][l].clone(),
            })
            .collect();
        Layout { embedding, layers, final_norm: take(dim) }
    }

    /// The ranges of all matrices: what starts random and is decayed; the rest are norms, which start at 1.
    pub fn matrices(&self) -> Vec<Range<usize>> {
        let layout = self.layout();
        let mut all = vec![layout.embedding];
        for l in layout.layers {
            all.extend([l.wq, l.wk, l.wv, l.wo, l.w1, l.w2, l.w3]);
        }
        all
    }

    /// Cosine and sine of every rotation, each (seq, `head_dim` / 2).
    pub fn rotations(&self) -> (Vec<f32>, Vec<f32>) {
        let half = self.head_dim() / 2;
        (0..self.seq * half)
            .map(|i| {
                let (position, pair) = (i / half, i % half);
                let angle = position as f64 * 10_000_f64.powf(-2.0 * pair as f64 / self.head_dim() as f64);
                (angle.cos() as f32, angle.sin() as f32)
            })
            .unzip()
    }
}

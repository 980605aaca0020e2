//! Causal attention over one sequence, forward and backward. Called by `model.rs`, once a layer.

use crate::kernels::{Left, Right, Target, product, softmax, softmax_gradient};
use crate::shape::Shape;

/// Rows handled together: products stop at the diagonal of each block, so that little is computed that causality throws away.
const ROWS: usize = 32;

/// What the forward pass leaves for the backward pass, one a layer.
#[derive(Debug)]
pub struct Attention {
    /// Rotated queries, (t, dim).
    pub q: Vec<f32>,
    /// Rotated keys, (t, `kv_dim`).
    pub k: Vec<f32>,
    /// Values, (t, `kv_dim`).
    pub v: Vec<f32>,
    /// Attention weights, (heads, t, t).
    weights: Vec<f32>,
}

/// Room that all layers of one worker share.
#[derive(Debug)]
pub struct Scratch {
    transposed: Vec<f32>,
    gradient: Vec<f32>,
}

impl Scratch {
    /// Room for sequences of the model's longest context.
    pub fn new(shape: &Shape) -> Self {
        Self { transposed: vec![0.0; shape.kv_dim() * shape.seq], gradient: vec![0.0; shape.seq * shape.seq] }
    }
}

/// `out` (columns, rows) becomes the transpose of `from` (rows, columns).
pub fn transpose(from: &[f32], rows: usize, columns: usize, out: &mut [f32]) {
    for (r, row) in from.chunks_exact(columns).take(rows).enumerate() {
        for (c, &x) in row.iter().enumerate() {
            out[c * rows + r] = x;
        }
    }
}

impl Attention {
    /// Room for sequences of the model's longest context.
    pub fn new(shape: &Shape) -> Self {
        let kv = shape.seq * shape.kv_dim();
        Self {
            q: vec![0.0; shape.seq * shape.dim],
            k: vec![0.0; kv],
            v: vec![0.0; kv],
            weights: vec![0.0; shape.heads * shape.seq * shape.seq],
        }
    }

    /// Attention of `t` positions from `q`, `k` and `v` into `out` (t, dim).
    pub fn forward(&mut self, shape: &Shape, t: usize, scratch: &mut Scratch, out: &mut [f32]) {
        let (dim, kv, hs) = (shape.dim, shape.kv_dim(), shape.head_dim());
        let scale = 1.0 / (hs as f32).sqrt();
        transpose(&self.k[..t * kv], t, kv, &mut scratch.transposed);
        for head in 0..shape.heads {
            let kv_at = head / (shape.heads / shape.kv_heads) * hs;
            let weights = &mut self.weights[head * t * t..][..t * t];
            for start in (0..t).step_by(ROWS) {
                let rows = ROWS.min(t - start);
                let seen = start + rows;
                product(
                    (rows, seen, hs),
                    Left { data: &self.q[start * dim + head * hs..], row_stride: dim, k_stride: 1 },
                    Right { data: &scratch.transposed[kv_at * t..], stride: t },
                    Target { data: &mut weights[start * t..], stride: t, add: false },
                );
                for row in start..seen {
                    let (past, future) = weights[row * t..][..seen].split_at_mut(row + 1);
                    softmax(past, scale);
                    future.fill(0.0);
                }
                product(
                    (rows, hs, seen),
                    Left { data: &weights[start * t..], row_stride: t, k_stride: 1 },
                    Right { data: &self.v[kv_at..], stride: kv },
                    Target { data: &mut out[start * dim + head * hs..], stride: dim, add: false },
                );
            }
        }
    }

    /// From the gradient of the output (t, dim) to those of queries (t, dim), keys and values (t, `kv_dim`).
    pub fn backward(
        &self,
        shape: &Shape,
        t: usize,
        scratch: &mut Scratch,
        dout: &[f32],
        (dq, dk, dv): (&mut [f32], &mut [f32], &mut [f32]),
    ) {
        let (dim, kv, hs) = (shape.dim, shape.kv_dim(), shape.head_dim());
        let scale = 1.0 / (hs as f32).sqrt();
        transpose(&self.v[..t * kv], t, kv, &mut scratch.transposed);
        dk[..t * kv].fill(0.0);
        dv[..t * kv].fill(0.0);
        for head in 0..shape.heads {
            let kv_at = head / (shape.heads / shape.kv_heads) * hs;
            let weights = &self.weights[head * t * t..][..t * t];
            let gradient = &mut scratch.gradient[..t * t];
            for start in (0..t).step_by(ROWS) {
                let rows = ROWS.min(t - start);
                let seen = start + rows;
                product(
                    (rows, seen, hs),
                    Left { data: &dout[start * dim + head * hs..], row_stride: dim, k_stride: 1 },
                    Right { data: &scratch.transposed[kv_at * t..], stride: t },
                    Target { data: &mut gradient[start * t..], stride: t, add: false },
                );
                for row in start..seen {
                    softmax_gradient(&weights[row * t..][..seen], &mut gradient[row * t..][..seen], scale);
                }
                product(
                    (rows, hs, seen),
                    Left { data: &gradient[start * t..], row_stride: t, k_stride: 1 },
                    Right { data: &self.k[kv_at..], stride: kv },
                    Target { data: &mut dq[start * dim + head * hs..], stride: dim, add: false },
                );
            }
            // Keys and values collect from all later queries; weights before the diagonal are zero.
            for start in (0..t).step_by(ROWS) {
                let rows = ROWS.min(t - start);
                let from = start * t + start;
                for (left, right, target) in [(&*gradient, self.q.as_slice(), &mut *dk), (weights, dout, &mut *dv)] {
                    product(
                        (rows, hs, t - start),
                        Left { data: &left[from..], row_stride: 1, k_stride: t },
                        Right { data: &right[start * dim + head * hs..], stride: dim },
                        Target { data: &mut target[start * kv + kv_at..], stride: kv, add: true },
                    );
                }
            }
        }
    }
}

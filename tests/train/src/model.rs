//! The Llama forward pass over whole sequences and its gradient, written out by hand. Called by `train.rs`, one `Worker` a thread.

use std::ops::Range;

use crate::attention::{Attention, Scratch, transpose};
use crate::kernels::{Left, Right, Target, gate, gate_gradient, product, softmax};
use crate::shape::{Layout, Shape};

/// The constant inside the root of the norms, as llama2.c has it.
pub const NORM_EPS: f32 = 1e-5;

/// Parameters as the forward pass wants them: each matrix also transposed, (in, out).
#[derive(Debug)]
pub struct Weights {
    /// The shape that these are for.
    pub shape: Shape,
    layout: Layout,
    flat: Vec<f32>,
    transposed: Vec<f32>,
    cos: Vec<f32>,
    sin: Vec<f32>,
}

impl Weights {
    /// Takes a copy of `flat`, laid out as `shape.layout()` says.
    pub fn new(shape: Shape, flat: &[f32]) -> Self {
        let (cos, sin) = shape.rotations();
        let transposed = vec![0.0; flat.len()];
        let mut weights = Self { shape, layout: shape.layout(), flat: flat.to_vec(), transposed, cos, sin };
        weights.set(flat);
        weights
    }

    /// Takes new values.
    pub fn set(&mut self, flat: &[f32]) {
        self.flat.copy_from_slice(flat);
        let (dim, kv, hidden) = (self.shape.dim, self.shape.kv_dim(), self.shape.hidden);
        let mut turn = |range: &Range<usize>, rows, columns| {
            transpose(&flat[range.clone()], rows, columns, &mut self.transposed[range.clone()]);
        };
        turn(&self.layout.embedding, self.shape.vocab, dim);
        for l in &self.layout.layers {
            turn(&l.wq, dim, dim);
            turn(&l.wk, kv, dim);
            turn(&l.wv, kv, dim);
            turn(&l.wo, dim, dim);
            turn(&l.w1, hidden, dim);
            turn(&l.w2, dim, hidden);
            turn(&l.w3, hidden, dim);
        }
    }

    /// `out = x W^T` for `t` rows, or added to `out`.
    fn forward(&self, w: &Range<usize>, t: usize, x: &[f32], out: &mut [f32], add: bool) {
        let inner = x.len() / t;
        let n = w.len() / inner;
        product(
            (t, n, inner),
            Left { data: x, row_stride: inner, k_stride: 1 },
            Right { data: &self.transposed[w.clone()], stride: n },
            Target { data: out, stride: n, add },
        );
    }

    /// Gradient of the input of `forward`, `dx = dy W`, or added to `dx`.
    fn backward(&self, w: &Range<usize>, t: usize, dy: &[f32], dx: &mut [f32], add: bool) {
        let n = dy.len() / t;
        let inner = w.len() / n;
        product(
            (t, inner, n),
            Left { data: dy, row_stride: n, k_stride: 1 },
            Right { data: &self.flat[w.clone()], stride: inner },
            Target { data: dx, stride: inner, add },
        );
    }

    /// Rotates `t` rows of heads in place; `turn` is 1 for the forward pass and -1 for the gradient.
    fn rotate(&self, t: usize, rows: &mut [f32], turn: f32) {
        let half = self.shape.head_dim() / 2;
        let width = rows.len() / t;
        for (row, (cos, sin)) in rows.chunks_exact_mut(width).zip(self.cos.chunks_exact(half).zip(self.sin.chunks_exact(half))) {
            for head in row.chunks_exact_mut(2 * half) {
                for (pair, (&c, &s)) in head.as_chunks_mut::<2>().0.iter_mut().zip(cos.iter().zip(sin)) {
                    let [a, b] = *pair;
                    *pair = [a * c - b * s * turn, a * s * turn + b * c];
                }
            }
        }
    }
}

/// Gradient of a weight matrix: `dw += dy^T x`.
fn weight_gradient(dw: &mut [f32], t: usize, dy: &[f32], x: &[f32]) {
    let (n, inner) = (dy.len() / t, x.len() / t);
    product(
        (n, inner, t),
        Left { data: dy, row_stride: 1, k_stride: n },
        Right { data: x, stride: inner },
        Target { data: dw, stride: inner, add: true },
    );
}

fn norm(x: &[f32], w: &[f32], out: &mut [f32], inverse: &mut [f32]) {
    for ((x, out), inverse) in x.chunks_exact(w.len()).zip(out.chunks_exact_mut(w.len())).zip(inverse) {
        let mean = x.iter().map(|v| v * v).sum::<f32>() / w.len() as f32;
        *inverse = 1.0 / (mean + NORM_EPS).sqrt();
        for ((o, v), w) in out.iter_mut().zip(x).zip(w) {
            *o = w * (v * *inverse);
        }
    }
}

/// Adds the gradients of a norm's input and weights.
fn norm_gradient(x: &[f32], w: &[f32], inverse: &[f32], dy: &[f32], dx: &mut [f32], dw: &mut [f32]) {
    let n = w.len();
    let rows = x.chunks_exact(n).zip(dy.chunks_exact(n)).zip(dx.chunks_exact_mut(n));
    for (((x, dy), dx), &r) in rows.zip(inverse) {
        let mut dot = 0.0;
        for (((x, dy), w), dw) in x.iter().zip(dy).zip(w).zip(&mut *dw) {
            dot += x * dy * w;
            *dw += dy * x * r;
        }
        let pull = dot * r * r * r / n as f32;
        for (((x, dy), w), dx) in x.iter().zip(dy).zip(w).zip(dx) {
            *dx += r * w * dy - x * pull;
        }
    }
}

/// What the forward pass of one layer leaves for the backward pass. Rows are positions.
#[derive(Debug)]
struct Saved {
    /// The layer's input, (t, dim).
    x: Vec<f32>,
    att_inverse: Vec<f32>,
    att_in: Vec<f32>,
    attention: Attention,
    att_out: Vec<f32>,
    /// The residual stream between attention and feed-forward, (t, dim).
    middle: Vec<f32>,
    ffn_inverse: Vec<f32>,
    ffn_in: Vec<f32>,
    /// (t, hidden) each.
    gate: Vec<f32>,
    up: Vec<f32>,
    product: Vec<f32>,
}

/// The memory of one thread: activations of one sequence, and the gradients that its sequences add up to.
#[derive(Debug)]
pub struct Worker {
    saved: Vec<Saved>,
    scratch: Scratch,
    /// The residual stream, (t, dim); its gradient on the way back.
    x: Vec<f32>,
    final_inverse: Vec<f32>,
    final_out: Vec<f32>,
    logits: Vec<f32>,
    d_dim: [Vec<f32>; 2],
    d_kv: [Vec<f32>; 2],
    d_hidden: Vec<f32>,
    /// Sums of the gradients since `clear`, laid out as the parameters.
    pub gradient: Vec<f32>,
    /// Sum of the losses since `clear`, in nats.
    pub loss: f64,
}

impl Worker {
    /// Memory for sequences of the model's longest context.
    pub fn new(shape: &Shape) -> Self {
        let rows = |width: usize| vec![0.0; shape.seq * width];
        let saved = (0..shape.layers).map(|_| Saved {
            x: rows(shape.dim),
            att_inverse: rows(1),
            att_in: rows(shape.dim),
            attention: Attention::new(shape),
            att_out: rows(shape.dim),
            middle: rows(shape.dim),
            ffn_inverse: rows(1),
            ffn_in: rows(shape.dim),
            gate: rows(shape.hidden),
            up: rows(shape.hidden),
            product: rows(shape.hidden),
        });
        Self {
            saved: saved.collect(),
            scratch: Scratch::new(shape),
            x: rows(shape.dim),
            final_inverse: rows(1),
            final_out: rows(shape.dim),
            logits: rows(shape.vocab),
            d_dim: [rows(shape.dim), rows(shape.dim)],
            d_kv: [rows(shape.kv_dim()), rows(shape.kv_dim())],
            d_hidden: rows(shape.hidden),
            gradient: vec![0.0; shape.parameters()],
            loss: 0.0,
        }
    }

    /// Forgets gradients and loss.
    pub fn clear(&mut self) {
        self.gradient.fill(0.0);
        self.loss = 0.0;
    }

    /// The logits of each position, (t, vocab); `tokens` is at most the longest context.
    pub fn forward(&mut self, w: &Weights, tokens: &[u16]) -> &mut [f32] {
        let (shape, t) = (&w.shape, tokens.len());
        let (td, tk, th) = (t * shape.dim, t * shape.kv_dim(), t * shape.hidden);
        let x = &mut self.x[..td];
        for (row, &token) in x.chunks_exact_mut(shape.dim).zip(tokens) {
            row.copy_from_slice(&w.flat[token as usize * shape.dim..][..shape.dim]);
        }
        for (l, s) in w.layout.layers.iter().zip(&mut self.saved) {
            s.x[..td].copy_from_slice(x);
            norm(x, &w.flat[l.att_norm.clone()], &mut s.att_in, &mut s.att_inverse[..t]);
            let a = &mut s.attention;
            w.forward(&l.wq, t, &s.att_in[..td], &mut a.q, false);
            w.forward(&l.wk, t, &s.att_in[..td], &mut a.k, false);
            w.forward(&l.wv, t, &s.att_in[..td], &mut a.v, false);
            w.rotate(t, &mut a.q[..td], 1.0);
            w.rotate(t, &mut a.k[..tk], 1.0);
            a.forward(shape, t, &mut self.scratch, &mut s.att_out);
            w.forward(&l.wo, t, &s.att_out[..td], x, true);
            s.middle[..td].copy_from_slice(x);
            norm(x, &w.flat[l.ffn_norm.clone()], &mut s.ffn_in, &mut s.ffn_inverse[..t]);
            w.forward(&l.w1, t, &s.ffn_in[..td], &mut s.gate, false);
            w.forward(&l.w3, t, &s.ffn_in[..td], &mut s.up, false);
            gate(&s.gate[..th], &s.up[..th], &mut s.product);
            w.forward(&l.w2, t, &s.product[..th], x, true);
        }
        norm(x, &w.flat[w.layout.final_norm.clone()], &mut self.final_out, &mut self.final_inverse[..t]);
        w.forward(&w.layout.embedding, t, &self.final_out[..td], &mut self.logits, false);
        &mut self.logits[..t * shape.vocab]
    }

    /// The sum over positions of -ln p(target), in nats, without a gradient.
    pub fn evaluate(&mut self, w: &Weights, tokens: &[u16], targets: &[u16]) -> f64 {
        let vocab = w.shape.vocab;
        let logits = self.forward(w, tokens);
        let mut loss = 0.0;
        for (row, &target) in logits.chunks_exact_mut(vocab).zip(targets) {
            softmax(row, 1.0);
            loss -= f64::from(row[target as usize].max(f32::MIN_POSITIVE)).ln();
        }
        loss
    }

    /// Adds the loss of one sequence, and `scale` times its gradient.
    pub fn train(&mut self, w: &Weights, tokens: &[u16], targets: &[u16], scale: f32) {
        let (shape, t) = (&w.shape, tokens.len());
        let (td, tk, th) = (t * shape.dim, t * shape.kv_dim(), t * shape.hidden);
        self.loss += self.evaluate(w, tokens, targets);
        let dlogits = &mut self.logits[..t * shape.vocab];
        for (row, &target) in dlogits.chunks_exact_mut(shape.vocab).zip(targets) {
            row[target as usize] -= 1.0;
            for p in row {
                *p *= scale;
            }
        }
        let grad = &mut self.gradient;
        let [d1, d2] = &mut self.d_dim;
        let (d1, d2) = (&mut d1[..td], &mut d2[..td]);
        let [dk, dv] = &mut self.d_kv;
        let (dk, dv) = (&mut dk[..tk], &mut dv[..tk]);
        let dh = &mut self.d_hidden[..th];

        weight_gradient(&mut grad[w.layout.embedding.clone()], t, dlogits, &self.final_out[..td]);
        w.backward(&w.layout.embedding, t, dlogits, d1, false);
        // From here on `dx` is the gradient of the residual stream; `last` its value after the last layer.
        let last = self.x[..td].to_vec();
        let dx = &mut self.x[..td];
        dx.fill(0.0);
        let range = w.layout.final_norm.clone();
        norm_gradient(&last, &w.flat[range.clone()], &self.final_inverse[..t], d1, dx, &mut grad[range]);

        for (l, s) in w.layout.layers.iter().zip(&mut self.saved).rev() {
            weight_gradient(&mut grad[l.w2.clone()], t, dx, &s.product[..th]);
            w.backward(&l.w2, t, dx, dh, false);
            gate_gradient(&mut s.gate[..th], &mut s.up[..th], dh);
            weight_gradient(&mut grad[l.w1.clone()], t, &s.gate[..th], &s.ffn_in[..td]);
            weight_gradient(&mut grad[l.w3.clone()], t, &s.up[..th], &s.ffn_in[..td]);
            w.backward(&l.w1, t, &s.gate[..th], d1, false);
            w.backward(&l.w3, t, &s.up[..th], d1, true);
            let range = l.ffn_norm.clone();
            norm_gradient(&s.middle[..td], &w.flat[range.clone()], &s.ffn_inverse[..t], d1, dx, &mut grad[range]);

            weight_gradient(&mut grad[l.wo.clone()], t, dx, &s.att_out[..td]);
            w.backward(&l.wo, t, dx, d1, false);
            s.attention.backward(shape, t, &mut self.scratch, d1, (&mut *d2, &mut *dk, &mut *dv));
            w.rotate(t, d2, -1.0);
            w.rotate(t, dk, -1.0);
            weight_gradient(&mut grad[l.wq.clone()], t, d2, &s.att_in[..td]);
            weight_gradient(&mut grad[l.wk.clone()], t, dk, &s.att_in[..td]);
            weight_gradient(&mut grad[l.wv.clone()], t, dv, &s.att_in[..td]);
            w.backward(&l.wq, t, d2, d1, false);
            w.backward(&l.wk, t, dk, d1, true);
            w.backward(&l.wv, t, dv, d1, true);
            let range = l.att_norm.clone();
            norm_gradient(&s.x[..td], &w.flat[range.clone()], &s.att_inverse[..t], d1, dx, &mut grad[range]);
        }
        for (row, &token) in dx.chunks_exact(shape.dim).zip(tokens) {
            let into = &mut grad[token as usize * shape.dim..][..shape.dim];
            into.iter_mut().zip(row).for_each(|(g, d)| *g += d);
        }
    }
}

#[cfg(test)]
#[path = "model_tests.rs"]
mod tests;

//! The forward pass a second time, one token at a time in f64 and without any cleverness: what samples text, and what the trainer's model is tested against.

use crate::model::NORM_EPS;
use crate::shape::Shape;

/// A model that reads one token after another and keeps what it has seen.
#[derive(Debug)]
pub struct Reader<'a> {
    shape: Shape,
    flat: &'a [f32],
    /// Keys and values, [layer][position].
    keys: Vec<Vec<Vec<f64>>>,
    values: Vec<Vec<Vec<f64>>>,
}

fn matvec(w: &[f32], x: &[f64]) -> Vec<f64> {
    w.chunks_exact(x.len()).map(|row| row.iter().zip(x).map(|(&w, x)| f64::from(w) * x).sum()).collect()
}

fn norm(x: &[f64], w: &[f32]) -> Vec<f64> {
    let mean = x.iter().map(|v| v * v).sum::<f64>() / x.len() as f64;
    let root = (mean + f64::from(NORM_EPS)).sqrt();
    x.iter().zip(w).map(|(v, &w)| f64::from(w) * v / root).collect()
}

fn add(x: &mut [f64], y: &[f64]) {
    x.iter_mut().zip(y).for_each(|(x, y)| *x += y);
}

impl<'a> Reader<'a> {
    /// A reader that has seen nothing, over parameters laid out as `shape.layout()` says.
    pub fn new(shape: Shape, flat: &'a [f32]) -> Self {
        Self { shape, flat, keys: vec![Vec::new(); shape.layers], values: vec![Vec::new(); shape.layers] }
    }

    fn rotate(&self, x: &mut [f64], position: usize) {
        let hs = self.shape.head_dim();
        for (i, pair) in x.as_chunks_mut::<2>().0.iter_mut().enumerate() {
            let angle = position as f64 * 10_000_f64.powf(-((2 * i % hs) as f64) / hs as f64);
            let [a, b] = *pair;
            *pair = [a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()];
        }
    }

    /// Reads `token` and gives the logits of the next one.
    pub fn step(&mut self, token: u16) -> Vec<f64> {
        let (shape, layout) = (self.shape, self.shape.layout());
        let (dim, hs) = (shape.dim, shape.head_dim());
        let position = self.keys[0].len();
        let w = |range: &std::ops::Range<usize>| &self.flat[range.clone()];
        let mut x: Vec<f64> = self.flat[token as usize * dim..][..dim].iter().map(|&v| f64::from(v)).collect();
        for (i, l) in layout.layers.iter().enumerate() {
            let h = norm(&x, w(&l.att_norm));
            let (mut q, mut k) = (matvec(w(&l.wq), &h), matvec(w(&l.wk), &h));
            self.rotate(&mut q, position);
            self.rotate(&mut k, position);
            self.keys[i].push(k);
            self.values[i].push(matvec(w(&l.wv), &h));
            let mut out = vec![0.0; dim];
            for head in 0..shape.heads {
                let at = head / (shape.heads / shape.kv_heads) * hs;
                let q = &q[head * hs..][..hs];
                let scores: Vec<f64> =
                    self.keys[i].iter().map(|k| q.iter().zip(&k[at..]).map(|(a, b)| a * b).sum::<f64>() / (hs as f64).sqrt()).collect();
                let top = scores.iter().copied().fold(f64::MIN, f64::max);
                let sum: f64 = scores.iter().map(|s| (s - top).exp()).sum();
                for (score, v) in scores.iter().zip(&self.values[i]) {
                    let weight = (score - top).exp() / sum;
                    out[head * hs..][..hs].iter_mut().zip(&v[at..]).for_each(|(o, v)| *o += weight * v);
                }
            }
            add(&mut x, &matvec(w(&l.wo), &out));
            let h = norm(&x, w(&l.ffn_norm));
            let (g, u) = (matvec(w(&l.w1), &h), matvec(w(&l.w3), &h));
            let product: Vec<f64> = g.iter().zip(u).map(|(g, u)| g / (1.0 + (-g).exp()) * u).collect();
            add(&mut x, &matvec(w(&l.w2), &product));
        }
        matvec(w(&layout.embedding), &norm(&x, w(&layout.final_norm)))
    }
}

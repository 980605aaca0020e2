//! Small llama2.c checkpoints made in memory, written from the description of the format and sharing no code with the reader.

/// The sizes of a model.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) dim: usize,
    pub(super) hidden: usize,
    pub(super) layers: usize,
    pub(super) heads: usize,
    pub(super) kv_heads: usize,
    pub(super) vocab: usize,
    pub(super) seq_len: usize,
    pub(super) tied: bool,
}

/// Odd enough that no two arrays have one size by chance.
pub(super) const SHAPE: Shape = Shape { dim: 12, hidden: 20, layers: 2, heads: 3, kv_heads: 1, vocab: 7, seq_len: 9, tied: true };

/// One array for all layers, with its name within a layer (or its whole name) and one vector of values a layer.
pub(super) type Weights = Vec<(&'static str, Vec<Vec<f32>>)>;

impl Shape {
    pub(super) fn untied(self) -> Self {
        Self { tied: false, ..self }
    }

    /// The arrays in the order of version 0, filled with small numbers that are all different.
    pub(super) fn weights(&self) -> Weights {
        let kv = self.kv_heads * self.dim / self.heads;
        let (d, f, l) = (self.dim, self.hidden, self.layers);
        let sizes = [
            ("tok_embeddings.weight", 1, self.vocab * d),
            ("attention_norm.weight", l, d),
            ("attention.wq.weight", l, d * d),
            ("attention.wk.weight", l, kv * d),
            ("attention.wv.weight", l, kv * d),
            ("attention.wo.weight", l, d * d),
            ("ffn_norm.weight", l, d),
            ("feed_forward.w1.weight", l, f * d),
            ("feed_forward.w2.weight", l, d * f),
            ("feed_forward.w3.weight", l, f * d),
            ("norm.weight", 1, d),
            ("output.weight", 1, self.vocab * d),
        ];
        let mut next = 0u32;
        let mut value = || {
            next += 1;
            (next as f32 - 900.0) / 1024.0
        };
        let wanted = sizes.into_iter().filter(|(name, ..)| !self.tied || *name != "output.weight");
        wanted.map(|(name, times, size)| (name, (0..times).map(|_| (0..size).map(|_| value()).collect()).collect())).collect()
    }

    /// The seven numbers of a header.
    pub(super) fn seven(&self, signed: bool) -> Vec<u8> {
        let vocab = if signed && !self.tied { -(self.vocab as i32) } else { self.vocab as i32 };
        let numbers =
            [self.dim as i32, self.hidden as i32, self.layers as i32, self.heads as i32, self.kv_heads as i32, vocab, self.seq_len as i32];
        numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
    }

    /// The tables of cosines and sines for this theta, in f32 arithmetic.
    pub(super) fn tables(&self, theta: f32) -> Vec<u8> {
        let half = self.dim / self.heads / 2;
        let angle = |element: usize| (element / half) as f32 * (1.0 / theta.powf((element % half) as f32 / half as f32));
        let all = 0..self.seq_len * half;
        let cosines = all.clone().map(|element| angle(element).cos());
        cosines.chain(all.map(|element| angle(element).sin())).flat_map(f32::to_le_bytes).collect()
    }

    pub(super) fn v0(&self, tables: Option<f32>) -> Vec<u8> {
        let mut file = self.seven(true);
        for (name, layers) in self.weights() {
            if name == "output.weight" {
                file.extend(tables.map(|theta| self.tables(theta)).unwrap_or_default());
            }
            file.extend(floats(&layers));
        }
        if self.tied {
            file.extend(tables.map(|theta| self.tables(theta)).unwrap_or_default());
        }
        file
    }

    fn padded(&self, version: i32, group: Option<i32>) -> Vec<u8> {
        let mut file = b"24ka".to_vec();
        file.extend(version.to_le_bytes());
        file.extend(self.seven(false));
        file.push(u8::from(self.tied));
        file.extend(group.map(i32::to_le_bytes).into_iter().flatten());
        file.resize(256, 0);
        file
    }

    /// The arrays in the order of versions 1 and 2, norms first; says which are norms.
    fn norms_first(&self) -> (Weights, Weights) {
        let rank = |name: &str| ["attention_norm.weight", "ffn_norm.weight", "norm.weight"].iter().position(|norm| *norm == name);
        let (mut norms, rest): (Weights, Weights) = self.weights().into_iter().partition(|(name, _)| rank(name).is_some());
        norms.sort_by_key(|(name, _)| rank(name));
        (norms, rest)
    }

    pub(super) fn v1(&self) -> Vec<u8> {
        let mut file = self.padded(1, None);
        let (norms, rest) = self.norms_first();
        for (_, layers) in norms.iter().chain(&rest) {
            file.extend(floats(layers));
        }
        file
    }

    /// Version 2, and the values that it stands for in the order of `weights`' names.
    pub(super) fn v2(&self, group: usize) -> (Vec<u8>, Weights) {
        let mut file = self.padded(2, Some(group as i32));
        let (norms, rest) = self.norms_first();
        for (_, layers) in &norms {
            file.extend(floats(layers));
        }
        let mut values = norms;
        for (name, layers) in rest {
            let mut kept = Vec::new();
            for layer in layers {
                let (mut codes, mut scales, mut back) = (Vec::new(), Vec::new(), Vec::new());
                for group in layer.chunks(group) {
                    let scale = group.iter().fold(0f32, |most, value| most.max(value.abs())) / 127.0;
                    for value in group {
                        let code = (value / scale).round_ties_even() as i8;
                        codes.push(code as u8);
                        back.push(f32::from(code) * scale);
                    }
                    scales.extend(scale.to_le_bytes());
                }
                file.extend(codes);
                file.extend(scales);
                kept.push(back);
            }
            values.push((name, kept));
        }
        (file, values)
    }
}

fn floats(layers: &[Vec<f32>]) -> Vec<u8> {
    layers.iter().flatten().flat_map(|value| value.to_le_bytes()).collect()
}

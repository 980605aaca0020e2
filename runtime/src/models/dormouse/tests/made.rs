//! Models with made weights, in format 1: the same weights that references.py makes.

use crate::format::arch::dormouse::DormouseConfig;
use crate::format::arch::dormouse::tensors::Role;
use crate::format::crc32;
use std::fmt::Write;

/// A configuration, and what else a file of it has.
#[derive(Clone, Debug)]
pub(super) struct Made {
    /// The configuration's text.
    pub(super) text: String,
    pub(super) config: DormouseConfig,
    /// Tensors that only train: name and dims.
    pub(super) aux: Vec<(String, Vec<u32>)>,
}

impl Made {
    /// The small shape that most tests take, with changes to the text and to what it means.
    pub(super) fn tiny(lines: &str, change: impl FnOnce(&mut DormouseConfig)) -> Self {
        let text = format!(
            "d_model = 32\nn_heads = 4\nhead_dim = 8\nd_ffn = 48\nrank = 8\nengram_rows = 60\nmax_seq_len = 96\nuse_byteflow = false\n{lines}"
        );
        let mut config = DormouseConfig {
            d_model: 32,
            n_heads: 4,
            head_dim: 8,
            d_ffn: 48,
            rank: 8,
            engram_rows: 60,
            max_seq_len: 96,
            ..DormouseConfig::DEFAULT
        };
        change(&mut config);
        Self { text, config, aux: Vec::new() }
    }

    /// Names, dims and weights, in order.
    pub(super) fn tensors(&self) -> Vec<Tensor> {
        let own = (0..self.config.num_tensors()).map(|number| {
            let spec = self.config.tensor(number).unwrap();
            (spec.to_string(), spec.dims.as_slice().to_vec())
        });
        own.chain(self.aux.iter().cloned())
            .map(|(name, dims)| {
                let values = weights(&name, &dims);
                (name, dims, values)
            })
            .collect()
    }

    /// The whole file.
    pub(super) fn file(&self) -> Vec<u8> {
        file(&self.text, &self.tensors())
    }

    pub(super) fn name(&self, role: Role) -> String {
        self.config.spec(role).unwrap().to_string()
    }
}

/// Name, dims and weights of a tensor.
pub(super) type Tensor = (String, Vec<u32>, Vec<f32>);

/// A format-1 file in f32.
pub(super) fn file(config: &str, tensors: &[Tensor]) -> Vec<u8> {
    let payload: Vec<u8> = tensors.iter().flat_map(|(_, _, values)| values.iter().flat_map(|value| value.to_le_bytes())).collect();
    let params: usize = tensors.iter().map(|(_, _, values)| values.len()).sum();
    let mut header = format!(
        "format = 1\ndtype = \"f32\"\nsource = \"made@step0\"\nstep = 0\nnum_params = {params}\nnum_tensors = {}\nflushed = 0\nmax_abs = 1.0\nmin_nonzero_abs = 1.0\nconfig = \"\"\"\n{config}\"\"\"\n",
        tensors.len()
    );
    for (name, dims, _) in tensors {
        writeln!(header, "\n[[tensors]]\nname = \"{name}\"\ndims = {dims:?}\noverflowed = 0").unwrap();
    }
    let mut bytes = b"DMEXPRT\x01".to_vec();
    bytes.extend((header.len() as u32).to_le_bytes());
    bytes.extend((payload.len() as u64).to_le_bytes());
    bytes.extend(crc32::checksum(&[&payload]).to_le_bytes());
    bytes.extend(header.into_bytes());
    bytes.extend(payload);
    bytes
}

/// The weights of a tensor: a hash of its name and the element's number, uniform in [-1, 1), times a scale, plus an offset.
pub(super) fn weights(name: &str, dims: &[u32]) -> Vec<f32> {
    let seed = name.bytes().fold(2_166_136_261u32, |seed, byte| (seed ^ u32::from(byte)).wrapping_mul(16_777_619));
    let leaf = name.rsplit('.').next().unwrap_or(name);
    let (scale, offset) = match leaf {
        "b_alpha" => (3.0, 0.0),
        "a_log" => (1.0, 0.0),
        "s" | "residual_scale" | "gain" | "gamma" | "o_norm_w" => (0.25, 1.0),
        _ if name.ends_with("norm.weight") || name.contains("branch_norms") => (0.25, 1.0),
        _ if name == "embedding.weight" || name.contains("memory") => (1.5, 0.0),
        "iter_embed" | "bias" | "beta" | "query" | "b_pre" | "b_post" | "b_res" => (0.5, 0.0),
        _ => ((3.0 / f64::from(dims[0])).sqrt() as f32, 0.0),
    };
    let count = dims.iter().product::<u32>();
    (0..count).map(|i| uniform(i.wrapping_mul(2_654_435_761).wrapping_add(seed)) * scale + offset).collect()
}

fn uniform(mut u: u32) -> f32 {
    u ^= u >> 16;
    u = u.wrapping_mul(0x7feb_352d);
    u ^= u >> 15;
    u = u.wrapping_mul(0x846c_a68b);
    u ^= u >> 16;
    (u >> 8) as f32 / 8_388_608.0 - 1.0
}

/// A text of `len` bytes, as tokens.
pub(super) fn text(len: usize) -> Vec<u32> {
    let words = b"the quick brown fox jumps over the lazy dog and back again, ";
    words.iter().cycle().take(len).map(|byte| u32::from(*byte)).collect()
}

//! Models of dormouse with made weights, in format 1: for measurements, emulated chips and GPUs.

use dmexp::format::arch::dormouse::DormouseConfig;
use dmexp::format::arch::dormouse::tensors::Role;
use dmexp::format::crc32;
use std::fmt::Write;

/// What the emulated chip is given.
pub(crate) const CHIP: DormouseConfig = DormouseConfig {
    d_model: 128,
    n_heads: 4,
    head_dim: 32,
    d_ffn: 256,
    rank: 24,
    max_seq_len: 64,
    engram_rows: 512,
    ..DormouseConfig::DEFAULT
};

/// A model in format 1, with made weights.
pub(crate) fn file(config: &DormouseConfig) -> Vec<u8> {
    let (mut payload, mut tables, mut state) = (Vec::new(), String::new(), 0x9e37_79b9_u32);
    let (mut largest, mut smallest) = (0.0f32, f32::INFINITY);
    let specs: Vec<_> = (0..config.num_tensors()).filter_map(|number| config.tensor(number)).collect();
    for spec in &specs {
        writeln!(tables, "\n[[tensors]]\nname = \"{spec}\"\ndims = {:?}\noverflowed = 0", spec.dims.as_slice()).expect("memory");
        let scale = (3.0 / f64::from(spec.dims.padded()[0])).sqrt() as f32;
        for _ in 0..spec.dims.count() {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            // From -1 to 1.
            let drawn = (state >> 8) as f32 / 8_388_608.0 - 1.0;
            let value = match spec.role {
                Role::DecayBias => 1.0,
                Role::DecayLog => -3.0,
                _ if spec.dims.rank() == 1 => 1.0 + 0.2 * drawn,
                Role::Embedding | Role::Memory => 1.5 * drawn,
                Role::IterEmbed => 0.3 * drawn,
                _ => drawn * scale,
            };
            largest = largest.max(value.abs());
            smallest = if value == 0.0 { smallest } else { smallest.min(value.abs()) };
            payload.extend(f32::to_le_bytes(value));
        }
    }
    let DormouseConfig { d_model, n_heads, head_dim, d_ffn, rank, max_seq_len, engram_rows, .. } = config;
    let header = format!(
        "format = 1\ndtype = \"f32\"\nsource = \"made@step0\"\nstep = 0\nnum_params = {}\nnum_tensors = {}\nflushed = 0\nmax_abs = {:?}\nmin_nonzero_abs = {:?}\nconfig = \"\"\"\nd_model = {d_model}\nn_heads = {n_heads}\nhead_dim = {head_dim}\nd_ffn = {d_ffn}\nmax_seq_len = {max_seq_len}\nrank = {rank}\nengram_rows = {engram_rows}\nuse_byteflow = false\n\"\"\"\n{tables}",
        payload.len() / 4,
        specs.len(),
        f64::from(largest),
        f64::from(smallest)
    );
    let mut bytes = b"DMEXPRT\x01".to_vec();
    bytes.extend((header.len() as u32).to_le_bytes());
    bytes.extend((payload.len() as u64).to_le_bytes());
    bytes.extend(crc32::checksum(&[&payload]).to_le_bytes());
    bytes.extend(header.into_bytes());
    bytes.extend(payload);
    bytes
}

//! Seconds that one more byte behind 255 takes a dormouse model of the size `small`: with everything computed again, with what changed computed again, and with nothing of it. Run by
//! `cargo xtask bench`; prints three numbers. With a path it writes a model there instead, of all the parts of `nano` but as small as an emulated chip has memory for.
//!
//! The weights are made, with the decay that dormouse starts its training from: how much is computed again depends on how fast the model forgets.

use dmexp::format::arch::dormouse::DormouseConfig;
use dmexp::format::arch::dormouse::tensors::Role;
use dmexp::format::crc32;
use dmexp::format::file::ModelFile;
use dmexp::format::layout::Decoding;
use dmexp::{Model, Sampler, Session};
use std::fmt::Write;
use std::time::Instant;

/// Positions of the text, the one that is timed counted.
const POSITIONS: u32 = 256;
/// Runs of which the fastest counts: what else the machine does only ever slows one down.
const RUNS: usize = 3;

fn main() {
    match std::env::args_os().nth(1) {
        Some(path) => std::fs::write(path, file(&CHIP)).expect("a file that can be written"),
        None => measure(),
    }
}

/// What the emulated chip is given.
const CHIP: DormouseConfig = DormouseConfig {
    d_model: 128,
    n_heads: 4,
    head_dim: 32,
    d_ffn: 256,
    rank: 24,
    max_seq_len: 64,
    engram_rows: 512,
    ..DormouseConfig::DEFAULT
};

fn measure() {
    let bytes = file(&DormouseConfig::DEFAULT);
    let model = Model::bind(&ModelFile::open(&bytes).expect("a file that was just made")).expect("a model that was just made");
    let mut seconds = [f64::INFINITY; 3];
    let mut logits: Vec<Vec<f32>> = vec![Vec::new(); 3];
    for _ in 0..RUNS {
        for ((decoding, seconds), logits) in
            [Decoding::Full, Decoding::Exact, Decoding::Fast].into_iter().zip(&mut seconds).zip(&mut logits)
        {
            let model = model.with_context(POSITIONS).with_decoding(decoding);
            let mut memory = vec![0; model.arena_len().expect("a size").div_ceil(4)];
            let mut session = Session::new(&model, memory.as_mut_slice(), Sampler::greedy()).expect("a session");
            let text: Vec<u32> = (0..POSITIONS).map(|position| u32::from(b"once upon a time "[position as usize % 17])).collect();
            let (last, before) = text.split_last().expect("a text");
            session.push_tokens(before).expect("room for the text");
            session.logits().expect("logits");
            session.push_tokens(&[*last]).expect("room for the text");
            let started = Instant::now();
            let found = session.logits().expect("logits");
            *seconds = seconds.min(started.elapsed().as_secs_f64());
            *logits = found.to_vec();
        }
    }
    let bits = |row: &[f32]| row.iter().map(|logit| logit.to_bits()).collect::<Vec<_>>();
    assert_eq!(bits(&logits[0]), bits(&logits[1]), "what changed is all that had to be computed again");
    println!("{} {} {}", seconds[0], seconds[1], seconds[2]);
}

/// A model in format 1, with made weights.
fn file(config: &DormouseConfig) -> Vec<u8> {
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

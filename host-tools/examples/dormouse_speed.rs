//! Seconds that one more byte behind 255 takes a dormouse model of the size `small`: with everything computed again, with what changed computed again, and with nothing of it. Run by
//! `cargo xtask bench`; prints three numbers. With a path it writes a model there instead, of all the parts of `nano` but as small as an emulated chip has memory for.
//!
//! The weights are made, with the decay that dormouse starts its training from: how much is computed again depends on how fast the model forgets.

#[path = "dormouse/made.rs"]
mod made;

use dmexp::format::arch::dormouse::DormouseConfig;
use dmexp::format::file::ModelFile;
use dmexp::format::layout::Decoding;
use dmexp::{Model, Sampler, Session};
use made::{CHIP, file};
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

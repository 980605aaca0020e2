//! What this machine takes to read f32, round it to bf16 and write it, with nothing else done: what the exporter's speed is compared with by `cargo xtask bench`.
//!
//! `copy_and_convert IN OUT` prints the seconds.

use half::bf16;
use half::slice::HalfFloatSliceExt;
use std::fs::File;
use std::io::{Read, Write};
use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut paths = std::env::args_os().skip(1);
    let (Some(from), Some(to), None) = (paths.next(), paths.next(), paths.next()) else {
        return Err("usage: copy_and_convert IN OUT".into());
    };
    let started = Instant::now();
    let (mut from, mut to) = (File::open(from)?, File::create(to)?);
    let mut bytes = vec![0u8; 1 << 20];
    let mut values = vec![0.0f32; 1 << 18];
    let mut halves = vec![bf16::ZERO; 1 << 18];
    loop {
        let n = from.read(&mut bytes)?;
        if n == 0 {
            break;
        }
        let words = bytes[..n].as_chunks().0;
        for (value, word) in values.iter_mut().zip(words) {
            *value = f32::from_le_bytes(*word);
        }
        halves[..words.len()].convert_from_f32_slice(&values[..words.len()]);
        let out: Vec<u8> = halves[..words.len()].iter().flat_map(|half| half.to_le_bytes()).collect();
        to.write_all(&out)?;
    }
    to.sync_all()?;
    println!("{}", started.elapsed().as_secs_f64());
    Ok(())
}
